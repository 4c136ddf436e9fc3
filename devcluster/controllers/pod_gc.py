"""Pods that nobody runs any more, and what becomes of them.

Source: kube-controller-manager, pod garbage collector (pods of a node that is gone, and of one that is out of service).
"""

from __future__ import annotations

from kubeloop.devcluster.api.conditions import is_true
from kubeloop.devcluster.simulation.agenda import Appointment, Simulation
from kubeloop.kube.json_object import JSON
from kubeloop.kube.objects.resources import NODES, PODS

OUT_OF_SERVICE = "node.kubernetes.io/out-of-service"


def disrupted(obj: JSON, reason: str, message: str, now: str) -> JSON:
    """The status of the pod `obj` with the condition DisruptionTarget."""
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
    others = [each for each in status.get("conditions") or () if each.get("type") != "DisruptionTarget"]
    return {**status, "conditions": [*others, condition]}


class OrphanedPods:
    """Pods bound to a node that does not exist: left alone for a quarantine, then removed."""

    def __init__(self, simulation: Simulation) -> None:
        self._simulation = simulation
        self._orphans: dict[str, tuple[JSON, Appointment]] = {}  # by uid

    def add(self, pod: JSON) -> None:
        uid = pod["metadata"]["uid"]
        if uid not in self._orphans:
            simulation = self._simulation
            when = simulation.now() + simulation.settings.orphan_quarantine_seconds
            self._orphans[uid] = (pod, simulation.agenda.at(when, self._collect, uid))

    def forget(self, uid: str) -> None:
        found = self._orphans.pop(uid, None)
        if found is not None:
            found[1].cancel()

    def taken_back(self, node_name: str) -> list[JSON]:
        """A node of that name is there (again): its pods, as they are now, which are no orphans any more."""
        found = [pod for pod, _ in self._orphans.values() if pod["spec"]["nodeName"] == node_name]
        for pod in found:
            self.forget(pod["metadata"]["uid"])
        return [current for pod in found if (current := self._simulation.current_pod(pod)) is not None]

    def _collect(self, uid: str) -> None:
        pod, _ = self._orphans.pop(uid)
        force_deleted(self._simulation, pod, "PodGC: node no longer exists")


def force_deleted(simulation: Simulation, pod: JSON, message: str) -> bool:
    """Mark a pod that has not ended as failed, and delete it without grace. False if finalizers still keep it."""
    current = simulation.current_pod(pod)
    if current is None:
        return True
    if (current.get("status") or {}).get("phase") not in ("Succeeded", "Failed"):
        status = {**disrupted(current, "DeletionByPodGC", message, simulation.wall()), "phase": "Failed"}
        current = simulation.update(PODS, {**current, "status": status}, quiet=True)
    return simulation.remove_pod(current)


def out_of_service(simulation: Simulation, node_name: str) -> bool:
    """Whether somebody has said, by a taint, that this node will not come back, and it is indeed not ready."""
    node = simulation.store.get(NODES, "", node_name)
    if node is None:
        return False
    tainted = any(taint.get("key") == OUT_OF_SERVICE for taint in (node.get("spec") or {}).get("taints") or ())
    return tainted and not is_true(node, "Ready")
