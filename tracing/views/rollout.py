"""Many pods as one picture: how fast they came, where their time went, which were the slowest.

May import msgspec and this folder only.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from typing import Any

import msgspec

from kubeloop.tracing.views.phases import PHASES
from kubeloop.tracing.views.pod_lines import PodLine

_FINISHED = frozenset({"bound", "starting", "running", "ready", "completed"})


class PhaseTimes(msgspec.Struct, frozen=True, gc=False, rename="camel"):
    """What one phase took, in microseconds a pod. pods: those that had it; share: of all time of all pods, 0 to 1."""

    phase: str
    pods: int
    p50_us: int
    p90_us: int
    p99_us: int
    max_us: int
    share: float


class Rollout(msgspec.Struct, frozen=True, rename="camel"):
    """The pods of one owner (or of everything), by start. Times in microseconds.

    stages  number of pods by stage
    phases  those that any pod had, in the order of a pod's way; total: from creation to binding
    rate    pods bound per second, between the first pod's creation and the last one's binding; 0 if none is bound
    """

    title: str
    start_us: int
    duration_us: int
    stages: dict[str, int]
    phases: list[PhaseTimes]
    total: PhaseTimes | None
    rate: float
    lines: list[PodLine]

    def slowest(self, count: int) -> list[PodLine]:
        """Longest first."""
        return sorted(self.lines, key=lambda line: (-line.duration_us, line.name))[:count]

    def document(self, *, slowest: int = 10) -> dict[str, Any]:
        """As plain JSON, the pods with their segments by name."""
        plain: dict[str, Any] = msgspec.to_builtins(self)
        plain["slowest"] = [line.name for line in self.slowest(slowest)]
        plain["pods"] = [
            {
                **{key: value for key, value in each.items() if key != "segments"},
                "segments": [
                    {"phase": PHASES[phase].key, "offsetUs": offset, "durationUs": duration}
                    for phase, offset, duration in line.triples()
                ],
            }
            for each, line in zip(plain.pop("lines"), self.lines, strict=True)
        ]
        return plain


def rollout(title: str, lines: Iterable[PodLine]) -> Rollout:
    """`title`: "deployment shop/web". Pods that never were (a create that failed) count too."""
    pods = sorted(lines, key=lambda line: (line.start_us, line.name))
    start_us = pods[0].start_us if pods else 0
    finished = [line for line in pods if line.stage in _FINISHED]
    last_bound_us = max((line.start_us + line.bound_after_us for line in finished), default=start_us)
    end_us = max((line.end_us for line in pods), default=start_us)
    seconds = (last_bound_us - start_us) / 1e6
    everything_us = sum(line.duration_us for line in pods)
    phases = []
    for index, phase in enumerate(PHASES):
        times = sorted(sums[index] for sums in map(phase_sums, pods) if sums[index])
        if times:
            phases.append(_times(phase.key, times, everything_us))
    totals = sorted(line.bound_after_us for line in finished)
    return Rollout(
        title=title,
        start_us=start_us,
        duration_us=end_us - start_us,
        stages=dict(Counter(line.stage for line in pods).most_common()),
        phases=phases,
        total=_times("total", totals, everything_us) if totals else None,
        rate=len(finished) / seconds if seconds > 0 else 0.0,
        lines=pods,
    )


def phase_sums(line: PodLine) -> list[int]:
    """Microseconds in each of PHASES."""
    sums = [0] * len(PHASES)
    for phase, _, duration in line.triples():
        sums[phase] += duration
    return sums


def percentile(ordered: Sequence[int], share: float) -> int:
    """The smallest value that is not exceeded by `share` of all (nearest rank). ordered: ascending, not empty."""
    rank = -(-len(ordered) * share // 1)
    return ordered[max(0, min(len(ordered), int(rank)) - 1)]


def _times(phase: str, ordered: Sequence[int], everything_us: int) -> PhaseTimes:
    return PhaseTimes(
        phase=phase,
        pods=len(ordered),
        p50_us=percentile(ordered, 0.5),
        p90_us=percentile(ordered, 0.9),
        p99_us=percentile(ordered, 0.99),
        max_us=ordered[-1],
        share=sum(ordered) / everything_us if everything_us else 0.0,
    )
