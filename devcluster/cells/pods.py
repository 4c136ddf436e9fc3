"""Cells of pods and pod templates."""

from __future__ import annotations

from datetime import datetime

from kubeloop.devcluster.cells.parts import (
    JSON,
    NONE,
    Cells,
    Print,
    age_of,
    container_cells,
    is_deleted,
    labels_text,
    name_of,
    since,
    spec_of,
    status_of,
)
from kubeloop.devcluster.conditions import condition_of, is_true


def _terminated_reason(terminated: JSON) -> str:
    if terminated.get("reason"):
        return str(terminated["reason"])
    if terminated.get("signal"):
        return f"Signal:{terminated['signal']}"
    return f"ExitCode:{terminated.get('exitCode', 0)}"


def _last_finish(status: JSON) -> str:
    finished = ((status.get("lastState") or {}).get("terminated") or {}).get("finishedAt")
    return finished or ""


def _init_reason(status: JSON, index: int, count: int) -> str:
    state = status.get("state") or {}
    waiting = (state.get("waiting") or {}).get("reason", "")
    if terminated := state.get("terminated"):
        return f"Init:{_terminated_reason(terminated)}"
    if waiting and waiting != "PodInitializing":
        return f"Init:{waiting}"
    return f"Init:{index}/{count}"


def _pod(pod: JSON, now: datetime) -> Cells:
    spec, status = spec_of(pod), status_of(pod)
    phase = status.get("phase", "")
    reason = status.get("reason") or phase
    scheduled = condition_of(pod, "PodScheduled")
    if scheduled is not None and scheduled.get("reason") == "SchedulingGated":
        reason = "SchedulingGated"

    init_containers = spec.get("initContainers") or ()
    sidecars = {each["name"] for each in init_containers if each.get("restartPolicy") == "Always"}
    total = len(spec.get("containers") or ()) + len(sidecars)
    ready = restarts = sidecar_restarts = 0
    last_restart = last_sidecar_restart = ""
    initializing = False
    for index, each in enumerate(status.get("initContainerStatuses") or ()):
        count, finished = each.get("restartCount", 0), _last_finish(each)
        restarts += count
        last_restart = max(last_restart, finished)
        sidecar = each["name"] in sidecars
        if sidecar:
            sidecar_restarts += count
            last_sidecar_restart = max(last_sidecar_restart, finished)
        terminated = (each.get("state") or {}).get("terminated")
        if terminated is not None and terminated.get("exitCode", 0) == 0:
            continue
        if sidecar and each.get("started"):
            ready += bool(each.get("ready"))
            continue
        reason = _init_reason(each, index, len(init_containers))
        initializing = True
        break

    if not initializing or is_true(pod, "Initialized"):
        restarts, last_restart = sidecar_restarts, last_sidecar_restart
        running = False
        for each in reversed(status.get("containerStatuses") or ()):
            restarts += each.get("restartCount", 0)
            last_restart = max(last_restart, _last_finish(each))
            state = each.get("state") or {}
            if waiting := (state.get("waiting") or {}).get("reason"):
                reason = waiting
            elif (terminated := state.get("terminated")) is not None:
                reason = _terminated_reason(terminated)
            elif each.get("ready") and state.get("running") is not None:
                running = True
                ready += 1
        if reason == "Completed" and running:  # some containers go on
            reason = "Running" if is_true(pod, "Ready") else "NotReady"

    if is_deleted(pod) and status.get("reason") == "NodeLost":
        reason = "Unknown"
    elif is_deleted(pod) and phase not in ("Succeeded", "Failed"):
        reason = "Terminating"

    gates = spec.get("readinessGates") or ()
    passed = sum(is_true(pod, gate["conditionType"]) for gate in gates)
    pod_ips = status.get("podIPs") or ()
    return [
        name_of(pod),
        f"{ready}/{total}",
        reason,
        f"{restarts} ({since(last_restart, now)} ago)" if restarts and last_restart else str(restarts),
        age_of(pod, now),
        (pod_ips[0].get("ip") if pod_ips else "") or NONE,
        spec.get("nodeName") or NONE,
        status.get("nominatedNodeName") or NONE,
        f"{passed}/{len(gates)}" if gates else NONE,
    ]


def _pod_template(obj: JSON, _now: datetime) -> Cells:
    template = obj.get("template") or {}
    return [name_of(obj), *container_cells(template), labels_text((template.get("metadata") or {}).get("labels"))]


PRINTERS: dict[str, Print] = {
    "pods": _pod,
    "podtemplates": _pod_template,
}
