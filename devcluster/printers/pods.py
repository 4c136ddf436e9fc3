"""Cells of pods and pod templates."""

from __future__ import annotations

from collections.abc import Set
from dataclasses import dataclass
from datetime import datetime

from kubeloop.devcluster.api.conditions import condition_of, is_true
from kubeloop.devcluster.printers.formatting import (
    NONE,
    CellPrinter,
    Cells,
    age_since,
    container_names_and_images,
    is_terminating,
    labels_text,
    object_age,
    object_name,
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
    """Restarts of containers, and the time of the last one: a metav1.Time, or ""."""

    count: int = 0
    last: str = ""

    def add(self, status: JSON) -> None:
        finished = ((status.get("lastState") or {}).get("terminated") or {}).get("finishedAt") or ""
        self.count += status.get("restartCount", 0)
        self.last = max(self.last, finished)

    def cell(self, now: datetime) -> str:
        return f"{self.count} ({age_since(self.last, now)} ago)" if self.count and self.last else str(self.count)


def _init_status_text(status: JSON, index: int, count: int) -> str:
    state = status.get("state") or {}
    waiting = (state.get("waiting") or {}).get("reason", "")
    if terminated := state.get("terminated"):
        return f"Init:{_terminated_reason(terminated)}"
    if waiting and waiting != "PodInitializing":
        return f"Init:{waiting}"
    return f"Init:{index}/{count}"


def _init_container_state(
    pod: JSON, sidecars: Set[str], all_restarts: _Restarts, sidecar_restarts: _Restarts
) -> tuple[str, int]:
    """Return the STATUS of an uninitialized pod ("" for an initialized one) and the number of ready sidecars.

    Adds the containers' restarts to `all_restarts`, those of sidecars also to `sidecar_restarts`.
    """
    ready = 0
    for index, init_container_status in enumerate(status_of(pod).get("initContainerStatuses") or ()):
        all_restarts.add(init_container_status)
        is_sidecar = init_container_status["name"] in sidecars
        if is_sidecar:
            sidecar_restarts.add(init_container_status)
        terminated = (init_container_status.get("state") or {}).get("terminated")
        if terminated is not None and terminated.get("exitCode", 0) == 0:
            continue
        if not is_sidecar or not init_container_status.get("started"):
            return _init_status_text(init_container_status, index, len(spec_of(pod).get("initContainers") or ())), ready
        ready += bool(init_container_status.get("ready"))
    return "", ready


def _container_state(pod: JSON, reason: str, restarts: _Restarts) -> tuple[str, int]:
    """Return the STATUS that the containers imply, else `reason`, and how many are ready; adds their restarts."""
    ready = 0
    for container_status in reversed(status_of(pod).get("containerStatuses") or ()):
        restarts.add(container_status)
        state = container_status.get("state") or {}
        if waiting := (state.get("waiting") or {}).get("reason"):
            reason = waiting
        elif (terminated := state.get("terminated")) is not None:
            reason = _terminated_reason(terminated)
        elif container_status.get("ready") and state.get("running") is not None:
            ready += 1
    if reason == "Completed" and ready:  # some containers are still running
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
    sidecars = {
        init_container["name"] for init_container in init_containers if init_container.get("restartPolicy") == "Always"
    }
    restarts, sidecar_restarts = _Restarts(), _Restarts()
    init_reason, ready = _init_container_state(pod, sidecars, restarts, sidecar_restarts)
    reason = init_reason or reason
    if not init_reason or is_true(pod, "Initialized"):
        restarts = sidecar_restarts  # restarts of plain init containers count only during initialization
        reason, running = _container_state(pod, reason, restarts)
        ready += running
    if is_terminating(pod) and status.get("reason") == "NodeLost":
        reason = "Unknown"
    elif is_terminating(pod) and phase not in ("Succeeded", "Failed"):
        reason = "Terminating"
    gates = spec.get("readinessGates") or ()
    passed = sum(is_true(pod, gate["conditionType"]) for gate in gates)
    pod_ips = status.get("podIPs") or ()
    return [
        object_name(pod),
        f"{ready}/{len(spec.get('containers') or ()) + len(sidecars)}",
        reason,
        restarts.cell(now),
        object_age(pod, now),
        (pod_ips[0].get("ip") if pod_ips else "") or NONE,
        spec.get("nodeName") or NONE,
        status.get("nominatedNodeName") or NONE,
        f"{passed}/{len(gates)}" if gates else NONE,
    ]


def _pod_template(obj: JSON, _now: datetime) -> Cells:
    template = obj.get("template") or {}
    return [
        object_name(obj),
        *container_names_and_images(template),
        labels_text((template.get("metadata") or {}).get("labels")),
    ]


PRINTERS: dict[str, CellPrinter] = {
    "pods": _pod,
    "podtemplates": _pod_template,
}
