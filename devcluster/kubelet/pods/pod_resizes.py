"""In-place resizes: the resources that a node allocates to its pods may be fewer than their specs ask for.

    spec changed --room--> allocated (PodResizeInProgress) --applied--> running with the new resources
       |                      ^
       +--no room--> deferred +        PodResizePending: Deferred until the node has room, or Infeasible

A node never allocates more than it has. Source: pkg/kubelet/allocation of v1.36, KEP-1287.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import msgspec

from kubeloop.devcluster.kubelet.containers.container_run import ContainerRun
from kubeloop.devcluster.kubelet.pods.kubelet_events import KubeletEvents
from kubeloop.devcluster.kubelet.pods.pod_admission import rejection, requested_amounts
from kubeloop.devcluster.kubelet.pods.pod_allocation import allocate, differs_from_spec
from kubeloop.devcluster.kubelet.pods.pod_conditions import RESIZE_PENDING, RESIZING, Resize
from kubeloop.devcluster.kubelet.pods.simulated_node import SimulatedNode
from kubeloop.devcluster.kubelet.pods.simulated_pod import SimulatedPod
from kubeloop.kube.json_object import JSON
from kubeloop.kube.objects.qos import qos_class

_POD_LEVEL_FEATURE = "InPlacePodLevelResourcesVerticalScaling"
_encode = msgspec.json.Encoder(order="sorted").encode


class PodResizes:
    """Resizes of the pods of all simulated nodes.

    report: writes the status of a pod. restart: restarts a container, for a reason that completes the message of the
    event.
    """

    def __init__(
        self,
        events: KubeletEvents,
        report: Callable[[SimulatedPod], None],
        restart: Callable[[SimulatedPod, ContainerRun, str], None],
        set_timer: Callable[[SimulatedPod], None],
        *,
        delay_seconds: float,
    ) -> None:
        """delay_seconds: from the allocation of resources until they are applied to the containers."""
        self._events = events
        self._report = report
        self._restart = restart
        self._set_timer = set_timer
        self._delay_seconds = delay_seconds
        self._pending: dict[str, dict[str, SimulatedPod]] = {}  # by name of the node and uid; in the order of arrival
        self._is_retrying = False

    def consider(self, pod: SimulatedPod, now: float) -> None:
        """Allocate the resources of a spec that has changed, or defer that."""
        if differs_from_spec(pod):
            self._pending.setdefault(pod.node.name, {})[pod.uid] = pod
            self.retry(pod.node, now)
        elif self._remove(pod):
            self._report(pod)

    def retry(self, node: SimulatedNode, now: float) -> None:
        """Allocate what the node has room for. Source: retryPendingResizes, sortPendingResizes."""
        if not self._pending or self._is_retrying or node.is_unreachable:
            return
        self._is_retrying = True
        try:
            for pod in sorted(self._pending.get(node.name, {}).values(), key=_order):
                if pod.ended or pod.stop_at is not None:
                    self._remove(pod)
                else:
                    self._attempt(pod, now)
        finally:
            self._is_retrying = False

    def room_made(self, pod: SimulatedPod, now: float) -> None:
        """Retry after the resources of an ended or deleted pod are free."""
        if self._pending:
            self._remove(pod)
            self.retry(pod.node, now)

    def forget_node(self, node: SimulatedNode) -> None:
        """Remove the resizes of a node that is removed."""
        self._pending.pop(node.name, None)

    def _remove(self, pod: SimulatedPod) -> bool:
        """End the wait of a pod; return True if it waited."""
        pods = self._pending.get(pod.node.name, {})
        waited = pods.pop(pod.uid, None) is not None
        if waited and not pods:
            del self._pending[pod.node.name]
        pod.deferred = None
        return waited

    def _attempt(self, pod: SimulatedPod, now: float) -> None:
        generation = pod.object["metadata"].get("generation", 0)
        reason, message = _obstacle(pod)
        if reason:
            before = pod.deferred
            pod.deferred = Resize(RESIZE_PENDING, generation, reason, message)
            if before is None or (before.reason, before.generation) != (reason, generation):
                text = f"Pod resize {reason}: {_summary(pod, generation, message)}"
                self._events.record(pod, "Warning", f"Resize{reason}", text)
            if pod.deferred != before:
                self._report(pod)
            return
        self._remove(pod)
        allocate(pod)
        pod.resizing = Resize(RESIZING, generation)
        self._events.record(pod, "Normal", "ResizeStarted", f"Pod resize started: {_summary(pod, generation)}")
        pod.resize_at = now + self._delay_seconds
        self._report(pod)
        self._set_timer(pod)

    def apply(self, pod: SimulatedPod) -> None:
        """Apply the allocated resources to the containers; restart those whose resizePolicy demands it."""
        pod.resize_at = None
        for run in pod.runs:
            if run.resources == run.allocated:
                continue
            needs_restart = run.state == "running" and _needs_restart(pod.container(run), run)
            run.resources = run.allocated
            if needs_restart:
                self._restart(pod, run, "resize requires restart")
        if pod.resizing is not None:
            text = _summary(pod, pod.resizing.generation)
            self._events.record(pod, "Normal", "ResizeCompleted", f"Pod resize completed: {text}")
        pod.resizing = None


def _order(pod: SimulatedPod) -> tuple[bool, int, bool, bool]:
    """Return the sort key: resizes that need no more, then by priority, QoS class, and the time they wait."""
    spec, requested = pod.object["spec"], requested_amounts(pod.object)
    is_larger = any(requested.get(name, 0) > pod.requests.get(name, 0) for name in ("cpu", "memory"))
    return is_larger, -(spec.get("priority") or 0), qos_class(spec) != "Guaranteed", pod.deferred is None


def _obstacle(pod: SimulatedPod) -> tuple[str, str]:
    """Return reason and message of a resize that the node does not allocate, ("", "") if it does."""
    obj, node = pod.object, pod.node
    status = node.object.get("status") or {}
    if (node.object["metadata"].get("labels") or {}).get("kubernetes.io/os", "linux") == "windows":
        return "Infeasible", "In-place pod resize is not supported on Windows"
    is_of_pod = (obj["spec"].get("resources") or {}) != (pod.allocated or {})
    if is_of_pod and _POD_LEVEL_FEATURE not in status.get("declaredFeatures", (_POD_LEVEL_FEATURE,)):
        return "Infeasible", f"{_POD_LEVEL_FEATURE} is disabled"
    rejected = rejection(
        obj,
        node.object,
        requested_amounts(obj),
        used=node.used_without(pod.uid),
        allocatable=node.allocatable,
        used_ports=node.used_ports(without=pod.uid),
    )
    return ("", "") if rejected is None else ("Deferred", rejected.message)


def _needs_restart(container: JSON, run: ContainerRun) -> bool:
    policies = {entry["resourceName"]: entry["restartPolicy"] for entry in container.get("resizePolicy") or ()}
    before, after = run.resources or {}, run.allocated or {}
    return any(
        policy == "RestartContainer"
        and any(
            (before.get(part) or {}).get(name) != (after.get(part) or {}).get(name) for part in ("requests", "limits")
        )
        for name, policy in policies.items()
    )


def _summary(pod: SimulatedPod, generation: int, error: str = "") -> str:
    """Return the resources of the pod's spec as in the messages of kubelet's events."""
    spec = pod.object["spec"]
    summary: dict[str, Any] = {
        field: [{"name": container["name"], "resources": container.get("resources") or {}} for container in spec[field]]
        for field in ("initContainers", "containers")
        if spec.get(field)
    }
    summary["generation"] = generation
    if error:
        summary["error"] = error
    parts = [f'"{name}":{_encode(value).decode()}' for name, value in summary.items()]
    return "{" + ",".join(parts) + "}"
