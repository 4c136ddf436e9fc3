"""Candidates for a preemption: nodes with their victims, and the choice of the best one.

Source: pickOneNodeForPreemption of framework/preemption, v1.36.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from datetime import datetime
from functools import cached_property

import msgspec

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


class Candidate(msgspec.Struct, dict=True):
    """A node where the pod fits without `victims`, most important first; pdb_violations: victims that violate a PDB."""

    node: str
    victims: tuple[PodInfo, ...]
    pdb_violations: int

    @cached_property
    def rank(self) -> tuple[int, ...]:
        """Lower is better; among equal ranks, the latest `earliest_start` is best."""
        priorities = sum([victim.priority + PRIORITY_SHIFT for victim in self.victims])
        return self.pdb_violations, self.victims[0].priority, priorities, len(self.victims)

    def earliest_start(self, now: datetime) -> datetime:
        """Return when the first of the victims with the highest priority started; `now` for those not started yet."""
        earliest, all_started = self._starts
        if earliest is None:
            return now
        return earliest if all_started else min(earliest, now)

    @cached_property
    def _starts(self) -> tuple[datetime | None, bool]:
        """The earliest start of the victims with the highest priority, and whether all of these have started."""
        highest = self.victims[0].priority
        starts = [victim.pod.status.start_time for victim in self.victims if victim.priority == highest]
        return min([start for start in starts if start is not None], default=None), None not in starts


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
