"""Cells of pods and pod templates."""

from __future__ import annotations

from collections.abc import Set
from dataclasses import dataclass
from datetime import datetime

from kubeloop.devcluster.api.conditions import condition_of, is_true
from kubeloop.devcluster.printers.formatting import (
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
from kubeloop.kube.json_object import JSON


def _terminated_reason(terminated: JSON) -> str:
    if terminated.get("reason"):
        return str(terminated["reason"])
    if terminated.get("signal"):
        return f"Signal:{terminated['signal']}"
    return f"ExitCode:{terminated.get('exitCode', 0)}"


@dataclass(slots=True)
class _Restarts:
    """How often containers were restarted, and when the last time: a metav1.Time, or ""."""

    count: int = 0
    last: str = ""

    def add(self, status: JSON) -> None:
        finished = ((status.get("lastState") or {}).get("terminated") or {}).get("finishedAt") or ""
        self.count += status.get("restartCount", 0)
        self.last = max(self.last, finished)

    def cell(self, now: datetime) -> str:
        return f"{self.count} ({since(self.last, now)} ago)" if self.count and self.last else str(self.count)


def _init_reason(status: JSON, index: int, count: int) -> str:
    state = status.get("state") or {}
    waiting = (state.get("waiting") or {}).get("reason", "")
    if terminated := state.get("terminated"):
        return f"Init:{_terminated_reason(terminated)}"
    if waiting and waiting != "PodInitializing":
        return f"Init:{waiting}"
    return f"Init:{index}/{count}"


def _initializing(pod: JSON, sidecars: Set[str], every: _Restarts, of_sidecars: _Restarts) -> tuple[str, int]:
    """Why the pod is not initialized, "" if it is, and how many sidecars are ready; counts restarts."""
    ready = 0
    for index, each in enumerate(status_of(pod).get("initContainerStatuses") or ()):
        every.add(each)
        sidecar = each["name"] in sidecars
        if sidecar:
            of_sidecars.add(each)
        terminated = (each.get("state") or {}).get("terminated")
        if terminated is not None and terminated.get("exitCode", 0) == 0:
            continue
        if not sidecar or not each.get("started"):
            return _init_reason(each, index, len(spec_of(pod).get("initContainers") or ())), ready
        ready += bool(each.get("ready"))
    return "", ready


def _running(pod: JSON, reason: str, restarts: _Restarts) -> tuple[str, int]:
    """What the containers say instead of `reason`, and how many of them are ready; counts restarts."""
    ready = 0
    for each in reversed(status_of(pod).get("containerStatuses") or ()):
        restarts.add(each)
        state = each.get("state") or {}
        if waiting := (state.get("waiting") or {}).get("reason"):
            reason = waiting
        elif (terminated := state.get("terminated")) is not None:
            reason = _terminated_reason(terminated)
        elif each.get("ready") and state.get("running") is not None:
            ready += 1
    if reason == "Completed" and ready:  # some containers go on
        reason = "Running" if is_true(pod, "Ready") else "NotReady"
    return reason, ready


def _pod(pod: JSON, now: datetime) -> Cells:
    spec, status = spec_of(pod), status_of(pod)
    phase = status.get("phase", "")
    reason = status.get("reason") or phase
    scheduled = condition_of(pod, "PodScheduled")
    if scheduled is not None and scheduled.get("reason") == "SchedulingGated":
        reason = "SchedulingGated"
    init_containers = spec.get("initContainers") or ()
    sidecars = {each["name"] for each in init_containers if each.get("restartPolicy") == "Always"}
    restarts, of_sidecars = _Restarts(), _Restarts()
    init_reason, ready = _initializing(pod, sidecars, restarts, of_sidecars)
    reason = init_reason or reason
    if not init_reason or is_true(pod, "Initialized"):
        restarts = of_sidecars  # what has only to be done once counts until then
        reason, running = _running(pod, reason, restarts)
        ready += running
    if is_deleted(pod) and status.get("reason") == "NodeLost":
        reason = "Unknown"
    elif is_deleted(pod) and phase not in ("Succeeded", "Failed"):
        reason = "Terminating"
    gates = spec.get("readinessGates") or ()
    passed = sum(is_true(pod, gate["conditionType"]) for gate in gates)
    pod_ips = status.get("podIPs") or ()
    return [
        name_of(pod),
        f"{ready}/{len(spec.get('containers') or ()) + len(sidecars)}",
        reason,
        restarts.cell(now),
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
