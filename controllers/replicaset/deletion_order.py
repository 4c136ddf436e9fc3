"""Which Pods of a ReplicaSet go first when there are too many.

Pure functions of Pods and the time. Source: ActivePodsWithRanks in pkg/controller/controller_utils.go and
getPodsToDelete in pkg/controller/replicaset/replica_set.go.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from datetime import datetime, timedelta

from kubeloop.controllers.replicaset.related_pods import PodsPerNode
from kubeloop.controllers.runtime.integers import InvalidInteger, parse_int
from kubeloop.controllers.runtime.pod_status import is_ready
from kubeloop.kube.objects.api_types import Pod

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
    except InvalidInteger as error:
        raise InvalidDeletionCost(str(error)) from error


def _cost_or_zero(pod: Pod) -> int:
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


UNKNOWN_AGE = -2


class AgeBuckets(dict[datetime | None, int]):
    """The binary logarithm of an age in nanoseconds, so that one among ages alike does not always go first.

    By the moment it counts from; an unknown one counts as the youngest. Moments are whole seconds: thousands of Pods
    share a few.
    """

    def __init__(self, now: datetime) -> None:
        super().__init__()
        self._now = now
        self[None] = UNKNOWN_AGE

    def __missing__(self, moment: datetime | None) -> int:
        assert moment is not None
        nanoseconds = (self._now - moment) // timedelta(microseconds=1) * 1000
        age_class = self[moment] = int(math.log2(nanoseconds)) if nanoseconds > 0 else -1
        return age_class


DeletionSortKey = tuple[bool, int, bool, int, int, int]


def _ready_since(pod: Pod) -> tuple[bool, datetime | None]:
    for condition in pod.status.conditions:
        if condition.type == "Ready":
            ready = condition.status == "True"
            return ready, condition.last_transition_time if ready else None
    return False, None


def deletion_sort_key(pod: Pod, rank: int, ages: AgeBuckets) -> DeletionSortKey:
    """What decides between most Pods, less goes first: unassigned before assigned, earlier phases before later ones,
    not ready before ready, cheap before dear, crowded nodes before others, ready for a short time before for a long.

    rank: related Pods on its node, itself included.
    """
    ready, since = _ready_since(pod)
    return (
        pod.spec.node_name != "",
        _PHASES.get(pod.status.phase, 0),
        ready,
        _cost_or_zero(pod) if pod.metadata.annotations else 0,
        -rank,
        ages[since],
    )


class TiedPod:
    """A Pod among those of the same head; less means goes first.

    The order is v1.36's, which is not transitive where ready times that are equal meet others of the same age class.
    """

    __slots__ = ("created", "created_class", "pod", "ready_since", "restarts", "uid")

    def __init__(self, pod: Pod, ages: AgeBuckets) -> None:
        self.pod = pod
        self.uid = pod.metadata.uid
        self.ready_since = _ready_since(pod)[1]
        regular, sidecar = _restarts(pod)
        self.restarts = (-regular, -sidecar)
        self.created = pod.metadata.creation_timestamp
        self.created_class = ages[self.created]

    def __lt__(self, other: TiedPod) -> bool:
        if self.ready_since != other.ready_since:
            return self.uid < other.uid
        if self.restarts != other.restarts:
            return self.restarts < other.restarts
        if self.created_class != other.created_class:
            return self.created_class < other.created_class
        return self.created != other.created and self.uid < other.uid


def _in_order(tied: list[TiedPod]) -> list[TiedPod]:
    """`tied` sorted; by a key where one says the same, which is nearly always."""
    told: dict[datetime | None, tuple[tuple[int, int], int]] = {}
    alike = True  # whether Pods of one ready time have the same restarts and age class
    for each in tied:
        mine = (each.restarts, each.created_class)
        if told.setdefault(each.ready_since, mine) != mine:
            alike = False
            if len(told) > 1:
                return sorted(tied)
    if alike:
        return sorted(tied, key=lambda each: each.uid)
    if len(told) > 1:
        return sorted(tied)
    return sorted(tied, key=lambda each: (each.restarts, each.created_class, each.uid))


def deletion_order(pods: Iterable[Pod], related: PodsPerNode, now: datetime) -> Iterator[Pod]:
    """`pods`, the one to go first at the front. Sorts no further than is asked for.

    `related`: active Pods per node of all ReplicaSets of the same owner.
    """
    ages = AgeBuckets(now)
    tied: dict[DeletionSortKey, list[Pod]] = {}
    for pod in pods:
        head = deletion_sort_key(pod, related.get(pod.spec.node_name, 0), ages)
        among = tied.get(head)
        if among is None:
            tied[head] = [pod]
        else:
            among.append(pod)
    for head in sorted(tied):
        yield from (each.pod for each in _in_order([TiedPod(pod, ages) for pod in tied[head]]))


def pods_to_delete(pods: Sequence[Pod], related: Callable[[], PodsPerNode], count: int, now: datetime) -> list[Pod]:
    """The `count` Pods to delete, first to go first; if it is all of them, in the order given.

    `related` is asked only if Pods have to be chosen.
    """
    if count >= len(pods):
        return list(pods)
    return list(itertools.islice(deletion_order(pods, related(), now), count))


def deletion_age_ratios(pods: Sequence[Pod], chosen: Sequence[Pod], now: datetime) -> list[int]:
    """The age of each ready Pod chosen, in terms of the youngest ready one of all (1: about as young).

    For the metric replicaset_controller_sorting_deletion_age_ratio, and as that cut to whole numbers. Empty if no ready
    Pod is old enough to be divided by.
    """

    def age_ms(pod: Pod) -> int:
        created = pod.metadata.creation_timestamp
        return 0 if created is None else (now - created) // timedelta(milliseconds=1)

    youngest_ms = min((age_ms(pod) for pod in pods if is_ready(pod)), default=0)
    if youngest_ms <= 0:
        return []
    return [age_ms(pod) // youngest_ms for pod in chosen if is_ready(pod)]
