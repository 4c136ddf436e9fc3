"""Pod garbage collector: deletes pods of missing nodes and of nodes that are out of service.

Source: kube-controller-manager, pkg/controller/podgc.
"""

from __future__ import annotations

from kubeloop.devcluster.api.conditions import is_true
from kubeloop.devcluster.simulation.simulation import Simulation
from kubeloop.devcluster.simulation.timers import Timer
from kubeloop.kube.json_object import JSON
from kubeloop.kube.objects.resources import NODES, PODS

OUT_OF_SERVICE = "node.kubernetes.io/out-of-service"


def with_disruption_target(obj: JSON, reason: str, message: str, now: str) -> JSON:
    """Return the status of a pod with the condition DisruptionTarget."""
    status: JSON = obj.get("status") or {}
    condition = {
        "type": "DisruptionTarget",
        "status": "True",
        "lastProbeTime": None,
        "lastTransitionTime": now,
        "reason": reason,
        "message": message,
    }
    if obj["metadata"].get("generation"):
        condition["observedGeneration"] = obj["metadata"]["generation"]
    others = [condition for condition in status.get("conditions") or () if condition.get("type") != "DisruptionTarget"]
    return {**status, "conditions": [*others, condition]}


class PodGarbageCollector:
    """Pods bound to a missing node: deleted after a quarantine."""

    def __init__(self, simulation: Simulation) -> None:
        self._simulation = simulation
        self._orphans: dict[str, tuple[JSON, Timer]] = {}  # by uid

    def add(self, pod: JSON) -> None:
        uid = pod["metadata"]["uid"]
        if uid not in self._orphans:
            simulation = self._simulation
            when = simulation.now() + simulation.settings.orphan_quarantine_seconds
            self._orphans[uid] = (pod, simulation.timers.at(when, self._collect, uid))

    def forget(self, uid: str) -> None:
        orphan = self._orphans.pop(uid, None)
        if orphan is not None:
            orphan[1].cancel()

    def release(self, node_name: str) -> list[JSON]:
        """Return the current pods of a node that exists again; they are orphans no longer."""
        orphans = [pod for pod, _ in self._orphans.values() if pod["spec"]["nodeName"] == node_name]
        for pod in orphans:
            self.forget(pod["metadata"]["uid"])
        return [current for pod in orphans if (current := self._simulation.current_pod(pod)) is not None]

    def _collect(self, uid: str) -> None:
        pod, _ = self._orphans.pop(uid)
        force_delete(self._simulation, pod, "PodGC: node no longer exists")


def force_delete(simulation: Simulation, pod: JSON, message: str) -> bool:
    """Mark an unfinished pod as failed and delete it without grace; return False if finalizers remain."""
    current = simulation.current_pod(pod)
    if current is None:
        return True
    if (current.get("status") or {}).get("phase") not in ("Succeeded", "Failed"):
        status = {**with_disruption_target(current, "DeletionByPodGC", message, simulation.wall()), "phase": "Failed"}
        current = simulation.update(PODS, {**current, "status": status}, quiet=True)
    return simulation.remove_pod(current)


def collect_if_out_of_service(simulation: Simulation, pod: JSON) -> None:
    """Delete a pod in deletion whose node is out of service, because its kubelet will not confirm it."""
    name = pod["spec"]["nodeName"]
    if pod["metadata"].get("deletionTimestamp") and out_of_service(simulation, name):
        force_delete(simulation, pod, f"PodGC: node {name} is out of service")


def out_of_service(simulation: Simulation, node_name: str) -> bool:
    """Return True for a node with the out-of-service taint that is not ready."""
    node = simulation.store.get(NODES, "", node_name)
    if node is None:
        return False
    tainted = any(taint.get("key") == OUT_OF_SERVICE for taint in (node.get("spec") or {}).get("taints") or ())
    return tainted and not is_true(node, "Ready")
