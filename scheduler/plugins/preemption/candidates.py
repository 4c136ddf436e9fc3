"""Candidates for a preemption: nodes with their victims, and the choice of the best one.

Source: pickOneNodeForPreemption of framework/preemption, v1.36.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from datetime import datetime

from kubeloop.scheduler.cache.node_info import PodInfo

PRIORITY_SHIFT = 1 << 31
"""Makes priorities positive in sums, so that more victims with negative priority are not better than fewer."""


def importance_at(now: datetime) -> Callable[[PodInfo], tuple[int, datetime, str]]:
    """Return a sort key, most important first: highest priority, then earliest start (`now` if not started).

    The order of pods that are equal in both is open in kube-scheduler. Here it is that of their UIDs, so that victims
    do not depend on the order in which pods came to the node.
    """

    def importance(pod: PodInfo) -> tuple[int, datetime, str]:
        return -pod.priority, pod.pod.status.start_time or now, pod.uid

    return importance


@dataclass(slots=True)
class Candidate:
    """A node where the pod fits without `victims`, most important first; pdb_violations: victims that violate a PDB.

    rank: lower is better; among equal ranks, the latest `earliest_start` is best.
    """

    node: str
    victims: tuple[PodInfo, ...]
    pdb_violations: int
    rank: tuple[int, ...] = field(init=False)
    _earliest_start: datetime | None = field(init=False, default=None, compare=False)
    _all_started: bool | None = field(init=False, default=None, compare=False)  # None: not computed yet

    def __post_init__(self) -> None:
        priorities = sum([victim.priority + PRIORITY_SHIFT for victim in self.victims])
        self.rank = (self.pdb_violations, self.victims[0].priority, priorities, len(self.victims))

    def earliest_start(self, now: datetime) -> datetime:
        """Return when the first of the victims with the highest priority started; `now` for those not started yet."""
        if self._all_started is None:
            highest = self.victims[0].priority
            starts = [victim.pod.status.start_time for victim in self.victims if victim.priority == highest]
            self._earliest_start = min([victim for victim in starts if victim is not None], default=None)
            self._all_started = None not in starts
        if self._earliest_start is None:
            return now
        return self._earliest_start if self._all_started else min(self._earliest_start, now)


def best_candidates(candidates: Sequence[Candidate], now: datetime) -> list[Candidate]:
    """Return the best candidates, in order of the criteria of kube-scheduler's pickOneNodeForPreemption.

    Fewest PDB violations, lowest of the highest victim priorities, lowest sum of priorities, fewest victims, latest
    start among the victims with the highest priority.
    """
    lowest = min(candidate.rank for candidate in candidates)
    best = [candidate for candidate in candidates if candidate.rank == lowest]
    if len(best) == 1:
        return best
    starts = [candidate.earliest_start(now) for candidate in best]
    latest = max(starts)
    return [candidate for candidate, start in zip(best, starts, strict=True) if start == latest]


def best_candidate(candidates: Sequence[Candidate], now: datetime) -> Candidate:
    return best_candidates(candidates, now)[0]
