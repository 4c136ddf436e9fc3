"""Deletion order: which Pods of a ReplicaSet are deleted first when there are too many.

Pure functions of Pods and the time. Includes the Pod deletion cost. Source: ActivePodsWithRanks in
pkg/controller/controller_utils.go and getPodsToDelete in pkg/controller/replicaset/replica_set.go.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from datetime import datetime, timedelta

from kubeloop.controllers.replicaset.related_pods import PodsPerNode
from kubeloop.controllers.runtime.integers import InvalidInteger, parse_int
from kubeloop.controllers.runtime.pods.active_pod_order import max_restarts, phase_rank, ready_since
from kubeloop.kube.objects.api_types import Pod
from kubeloop.kube.objects.object_fields import is_ready
from kubeloop.kube.values.times import seconds_between

DELETION_COST = "controller.kubernetes.io/pod-deletion-cost"


class InvalidDeletionCost(ValueError):
    """The annotation is not a 32-bit integer in canonical form."""


def deletion_cost(annotations: Mapping[str, str]) -> int:
    """Return the annotation controller.kubernetes.io/pod-deletion-cost; 0 without one. Raises InvalidDeletionCost."""
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


UNKNOWN_AGE = -2


class AgeBuckets(dict[datetime | None, int]):
    """Age by start time, as the binary logarithm of nanoseconds, so that Pods of similar age compare as equal.

    An unknown start time counts as the youngest. Computed once per start time: start times are whole seconds, and
    thousands of Pods share a few.
    """

    def __init__(self, now: datetime) -> None:
        super().__init__()
        self._now = now
        self[None] = UNKNOWN_AGE

    def __missing__(self, since: datetime | None) -> int:
        assert since is not None
        nanoseconds = round(seconds_between(since, self._now) * 1e6) * 1000
        bucket = self[since] = int(math.log2(nanoseconds)) if nanoseconds > 0 else -1
        return bucket


DeletionSortKey = tuple[bool, int, bool, int, int, int]


def deletion_sort_key(pod: Pod, rank: int, ages: AgeBuckets, *, by_cost: bool = True) -> DeletionSortKey:
    """Return the sort key that decides between most Pods; the smaller one is deleted first.

    Unassigned before assigned, earlier phase before later, not ready before ready, lower deletion cost before higher,
    more related Pods on the node before fewer, ready for a shorter time before longer. rank: related Pods on the Pod's
    node, including itself. by_cost: False to ignore the deletion cost.
    """
    ready, since = ready_since(pod)
    return (
        pod.spec.node_name != "",
        phase_rank(pod),
        ready,
        _cost_or_zero(pod) if by_cost and pod.metadata.annotations else 0,
        -rank,
        ages[since],
    )


class TiedPod:
    """A Pod among those with the same sort key; the smaller one is deleted first.

    The order is that of v1.36. It is not transitive where Pods with equal ready times are compared with Pods of the
    same age bucket; such Pods are sorted from the order of their UIDs, so that the result depends on no cache.
    """

    __slots__ = ("created", "created_bucket", "pod", "ready_since", "restarts", "uid")

    def __init__(self, pod: Pod, ages: AgeBuckets) -> None:
        self.pod = pod
        self.uid = pod.metadata.uid
        self.ready_since = ready_since(pod)[1]
        regular, sidecar = max_restarts(pod)
        self.restarts = (-regular, -sidecar)
        self.created = pod.metadata.creation_timestamp
        self.created_bucket = ages[self.created]

    def __lt__(self, other: TiedPod) -> bool:
        if self.ready_since != other.ready_since:
            return self.uid < other.uid
        if self.restarts != other.restarts:
            return self.restarts < other.restarts
        if self.created_bucket != other.created_bucket:
            return self.created_bucket < other.created_bucket
        return self.created != other.created and self.uid < other.uid


def _sort_tied(tied: list[TiedPod]) -> list[TiedPod]:
    """Sort Pods with the same sort key; uses a key function where it gives the same result, which is almost always.

    The result is the same for each order of `tied`.
    """
    rank_by_ready_time: dict[datetime | None, tuple[tuple[int, int], int]] = {}
    uniform = True  # True while Pods with the same ready time have the same restarts and age bucket
    for tied_pod in tied:
        rank = (tied_pod.restarts, tied_pod.created_bucket)
        if rank_by_ready_time.setdefault(tied_pod.ready_since, rank) != rank:
            uniform = False
            if len(rank_by_ready_time) > 1:
                return _sort_by_comparison(tied)
    if uniform:
        return sorted(tied, key=lambda tied_pod: tied_pod.uid)
    if len(rank_by_ready_time) > 1:
        return _sort_by_comparison(tied)
    return sorted(tied, key=lambda tied_pod: (tied_pod.restarts, tied_pod.created_bucket, tied_pod.uid))


def _sort_by_comparison(tied: list[TiedPod]) -> list[TiedPod]:
    return sorted(sorted(tied, key=lambda tied_pod: tied_pod.uid))


def deletion_order(pods: Iterable[Pod], related: PodsPerNode, now: datetime, *, by_cost: bool = True) -> Iterator[Pod]:
    """Yield `pods` in deletion order. Sorts only as far as the caller consumes the result.

    related: active Pods per node of all ReplicaSets of the same owner. by_cost: see deletion_sort_key.
    """
    ages = AgeBuckets(now)
    by_key: dict[DeletionSortKey, list[Pod]] = {}
    for pod in pods:
        key = deletion_sort_key(pod, related.get(pod.spec.node_name, 0), ages, by_cost=by_cost)
        same_key = by_key.get(key)
        if same_key is None:
            by_key[key] = [pod]
        else:
            same_key.append(pod)
    for key in sorted(by_key):
        yield from (tied_pod.pod for tied_pod in _sort_tied([TiedPod(pod, ages) for pod in by_key[key]]))


def pods_to_delete(
    pods: Sequence[Pod], related: Callable[[], PodsPerNode], count: int, now: datetime, *, by_cost: bool = True
) -> list[Pod]:
    """Return the `count` Pods to delete, in deletion order; if that is all Pods, in the order of `pods`.

    `related` is called only if Pods have to be selected. by_cost: see deletion_sort_key.
    """
    if count >= len(pods):
        return list(pods)
    return list(itertools.islice(deletion_order(pods, related(), now, by_cost=by_cost), count))


def deletion_age_ratios(pods: Sequence[Pod], chosen: Sequence[Pod], now: datetime) -> list[int]:
    """Return the age of each selected ready Pod divided by the age of the youngest ready Pod (1: about as young).

    For the metric replicaset_controller_sorting_deletion_age_ratio; truncated to integers as there. Empty if the
    youngest ready Pod has age 0.
    """

    def age_ms(pod: Pod) -> int:
        created = pod.metadata.creation_timestamp
        return 0 if created is None else (now - created) // timedelta(milliseconds=1)

    youngest_ms = min((age_ms(pod) for pod in pods if is_ready(pod)), default=0)
    if youngest_ms <= 0:
        return []
    return [age_ms(pod) // youngest_ms for pod in chosen if is_ready(pod)]
