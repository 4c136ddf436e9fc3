"""Taint eviction controller: deletes pods that do not tolerate the NoExecute taints of their node.

Source: kube-controller-manager, taint eviction controller.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from datetime import timedelta

from kubeloop.devcluster.controllers.pod_gc import with_disruption_target
from kubeloop.devcluster.simulation.simulation import Simulation
from kubeloop.devcluster.simulation.timers import Timer
from kubeloop.kube.clock import rfc3339
from kubeloop.kube.json_object import JSON
from kubeloop.kube.objects.resources import PODS


def no_execute_taints(node: JSON) -> list[JSON]:
    return [taint for taint in (node.get("spec") or {}).get("taints") or () if taint.get("effect") == "NoExecute"]


def tolerates(toleration: JSON, taint: JSON) -> bool:
    """Return True if a toleration matches a taint. Source: v1.Toleration.ToleratesTaint.

    The operators Lt and Gt compare the taint's value as an integer.
    """
    if toleration.get("effect") and toleration["effect"] != taint.get("effect"):
        return False
    if toleration.get("key") and toleration["key"] != taint.get("key"):
        return False
    operator = toleration.get("operator") or "Equal"
    declared, actual = toleration.get("value", ""), taint.get("value", "")
    if operator == "Equal":
        return bool(declared == actual)
    if operator in ("Lt", "Gt"):
        try:
            return int(actual) < int(declared) if operator == "Lt" else int(actual) > int(declared)
        except ValueError:
            return False
    return bool(operator == "Exists")


def stay_seconds(taints: Sequence[JSON], tolerations: Iterable[JSON]) -> float | None:
    """Return the seconds that a pod with these tolerations may stay on a node with these NoExecute taints.

    0: evict now; None: no limit. The shortest tolerationSeconds among the matching tolerations counts.
    """
    used: list[JSON] = []
    tolerations = list(tolerations)
    for taint in taints:
        matching = [toleration for toleration in tolerations if tolerates(toleration, taint)]
        if not matching:
            return 0.0
        used += matching[:1]  # the first match counts
    limits = [toleration["tolerationSeconds"] for toleration in used if toleration.get("tolerationSeconds") is not None]
    return max(0.0, float(min(limits))) if limits else None


class TaintEviction:
    """Deletes pods that do not tolerate the NoExecute taints of their node, after their tolerationSeconds."""

    def __init__(self, simulation: Simulation) -> None:
        self._simulation = simulation
        self._planned: dict[str, tuple[float, float, Timer]] = {}  # by uid: (tainted at, evicted at, timer)

    def consider(self, pod: JSON, taints: Sequence[JSON]) -> None:
        """Schedule, reschedule or cancel the eviction of `pod`; `taints`: the NoExecute taints of its node."""
        uid = pod["metadata"]["uid"]
        if not taints and uid not in self._planned:
            return
        now = self._simulation.now()
        stay = stay_seconds(taints, pod["spec"].get("tolerations") or ()) if taints else None
        planned = self._planned.get(uid)
        if stay is None:
            if planned is not None:
                self.forget(uid)
                self._event(pod, "Cancelling deletion of Pod {}")
            return
        tainted_at = planned[0] if planned else now
        if planned is not None:
            if planned[1] == tainted_at + stay:
                return
            planned[2].cancel()
        when = tainted_at + stay
        self._planned[uid] = (tainted_at, when, self._simulation.timers.at(when, self._evict, pod))

    def forget(self, uid: str) -> None:
        """Cancel the eviction of a deleted pod."""
        planned = self._planned.pop(uid, None)
        if planned is not None:
            planned[2].cancel()

    def _evict(self, pod: JSON) -> None:
        simulation = self._simulation
        self._planned.pop(pod["metadata"]["uid"], None)
        current = simulation.current_pod(pod)
        if current is None or current["metadata"].get("deletionTimestamp"):
            return
        self._event(current, "Marking for deletion Pod {}")
        text = "Taint manager: deleting due to NoExecute taint"
        status = with_disruption_target(current, "DeletionByTaintManager", text, simulation.wall())
        current = simulation.update(PODS, {**current, "status": status})
        if status.get("phase") in ("Succeeded", "Failed"):  # finished pods have no grace period
            simulation.remove_pod(current)
            return
        grace = current["spec"].get("terminationGracePeriodSeconds", 30)
        metadata = dict(current["metadata"])
        metadata["deletionTimestamp"] = rfc3339(simulation.clock.now() + timedelta(seconds=grace))
        metadata["deletionGracePeriodSeconds"] = grace
        metadata["generation"] = metadata.get("generation", 0) + 1
        simulation.update(PODS, {**current, "metadata": metadata})

    def _event(self, pod: JSON, message: str) -> None:
        key = f"{pod['metadata']['namespace']}/{pod['metadata']['name']}"
        text = message.format(key)
        self._simulation.event(pod, "Normal", "TaintManagerEviction", text, component="taint-eviction-controller")
