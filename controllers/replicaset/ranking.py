"""Which Pods of a ReplicaSet go first when there are too many.

Pure functions of Pods and the time. Source: ActivePodsWithRanks in pkg/controller/controller_utils.go and
getPodsToDelete in pkg/controller/replicaset/replica_set.go.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime, timedelta

from kubeloop.controllers.gonumbers import NotANumber, parse_int
from kubeloop.controllers.pods import is_active
from kubeloop.kube.objects import Pod

DELETION_COST = "controller.kubernetes.io/pod-deletion-cost"

_PHASES = {"Pending": 0, "Unknown": 1, "Running": 2}


class InvalidDeletionCost(ValueError):
    """The annotation is no 32-bit integer in its plainest form."""


def deletion_cost(annotations: Mapping[str, str]) -> int:
    """The annotation controller.kubernetes.io/pod-deletion-cost; 0 without one. Raises InvalidDeletionCost."""
    text = annotations.get(DELETION_COST)
    if text is None:
        return 0
    if not (text[:1] == "-" or text == "0" or "1" <= text[:1] <= "9"):
        raise InvalidDeletionCost(f"invalid value {text!r}")
    try:
        return parse_int(text, 32)
    except NotANumber as error:
        raise InvalidDeletionCost(str(error)) from error


def _cost_or_zero(pod: Pod) -> int:
    if not pod.metadata.annotations:
        return 0
    try:
        return deletion_cost(pod.metadata.annotations)
    except InvalidDeletionCost:
        return 0


def _restarts(pod: Pod) -> tuple[int, int]:
    """The most restarts of a container, and of a sidecar."""
    regular = 0
    for status in pod.status.container_statuses:
        regular = max(regular, status.restart_count)
    if not pod.status.init_container_statuses:
        return regular, 0
    sidecars = {container.name for container in pod.spec.init_containers if container.restart_policy == "Always"}
    sidecar = max(
        (status.restart_count for status in pod.status.init_container_statuses if status.name in sidecars), default=0
    )
    return regular, sidecar


class AgeClasses(dict[datetime | None, int | None]):
    """The binary logarithm of an age in nanoseconds, so that one among ages alike does not always go first.

    By the moment it counts from; None for an unknown one. Moments are whole seconds: thousands of Pods share a few.
    """

    def __init__(self, now: datetime) -> None:
        super().__init__()
        self._now = now
        self[None] = None

    def __missing__(self, moment: datetime | None) -> int:
        assert moment is not None
        nanoseconds = (self._now - moment) // timedelta(microseconds=1) * 1000
        age_class = self[moment] = int(math.log2(nanoseconds)) if nanoseconds > 0 else -1
        return age_class


class RankedPod:
    """A Pod in the order of deletion: less means goes first."""

    __slots__ = ("created", "created_class", "head", "pod", "ready", "ready_class", "restarts", "uid")

    def __init__(self, pod: Pod, rank: int, ages: AgeClasses) -> None:
        """rank: related Pods on its node, itself included."""
        self.pod = pod
        self.uid = pod.metadata.uid
        ready = False
        ready_at: datetime | None = None
        for condition in pod.status.conditions:
            if condition.type == "Ready":
                ready = condition.status == "True"
                ready_at = condition.last_transition_time
                break
        # unassigned before assigned, earlier phases before later ones, not ready before ready, cheap before dear,
        # crowded nodes before others
        self.head = (pod.spec.node_name != "", _PHASES.get(pod.status.phase, 0), ready, _cost_or_zero(pod), -rank)
        self.ready = ready_at if ready else None
        self.ready_class = ages[self.ready]
        regular, sidecar = _restarts(pod)
        self.restarts = (-regular, -sidecar)
        self.created = pod.metadata.creation_timestamp
        self.created_class = ages[self.created]

    def __lt__(self, other: RankedPod) -> bool:
        if self.head != other.head:
            return self.head < other.head
        if self.ready != other.ready:  # not ready ones are None both: `head` tells ready from not ready
            return self._younger(self.ready_class, other.ready_class, other)
        if self.restarts != other.restarts:
            return self.restarts < other.restarts
        if self.created != other.created:
            return self._younger(self.created_class, other.created_class, other)
        return False

    def _younger(self, mine: int | None, theirs: int | None, other: RankedPod) -> bool:
        """Whether this goes first by a time: the unknown before the known, the younger age class before the older."""
        if mine is None or theirs is None:
            return mine is None
        return mine < theirs if mine != theirs else self.uid < other.uid


def ranks_on_nodes(pods: Iterable[Pod], related: Iterable[Pod]) -> list[int]:
    """For each Pod, how many active related ones its node has."""
    per_node: dict[str, int] = {}
    for pod in related:
        if is_active(pod):
            per_node[pod.spec.node_name] = per_node.get(pod.spec.node_name, 0) + 1
    return [per_node.get(pod.spec.node_name, 0) for pod in pods]


def deletion_order(pods: Sequence[Pod], related: Iterable[Pod], now: datetime) -> list[Pod]:
    """All of `pods`, the one to go first at the front. `related`: Pods of all ReplicaSets of the same owner."""
    ranks = ranks_on_nodes(pods, related)
    ages = AgeClasses(now)
    ranked = sorted(RankedPod(pod, rank, ages) for pod, rank in zip(pods, ranks, strict=True))
    return [each.pod for each in ranked]


def pods_to_delete(pods: Sequence[Pod], related: Iterable[Pod], count: int, now: datetime) -> list[Pod]:
    """The `count` Pods to delete, first to go first; if it is all of them, in the order given."""
    if count >= len(pods):
        return list(pods)
    return deletion_order(pods, related, now)[:count]


def deletion_age_ratios(pods: Sequence[Pod], chosen: Sequence[Pod], now: datetime) -> list[float]:
    """The age of each ready Pod chosen, in terms of the youngest ready one of all (1: it is the youngest).

    For the metric replicaset_controller_sorting_deletion_age_ratio; empty if no Pod is ready.
    """

    def ready_since(pod: Pod) -> datetime | None:
        for condition in pod.status.conditions:
            if condition.type == "Ready":
                return condition.last_transition_time if condition.status == "True" else None
        return None

    moments = [moment for pod in pods if (moment := ready_since(pod)) is not None]
    if not moments:
        return []
    youngest = (now - max(moments)).total_seconds()
    if youngest <= 0:
        return []
    return [(now - moment).total_seconds() / youngest for pod in chosen if (moment := ready_since(pod)) is not None]
