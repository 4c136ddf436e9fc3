"""Summary of many pods: rate, time per phase, slowest pods. Imports msgspec and this folder only."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from typing import Any

import msgspec

from kubeloop.tracing.views.phases import PHASES
from kubeloop.tracing.views.pod_lines import PodLine


class PhaseTimes(msgspec.Struct, frozen=True, gc=False, rename="camel"):
    """Time of one phase, in microseconds per pod. pods: number that had it; share: of all pods' total time, 0 to 1.

    uncertainty_us: none of the percentiles, nor the maximum, differs from that of the true times by more than this.
    """

    phase: str
    pods: int
    p50_us: int
    p90_us: int
    p99_us: int
    max_us: int
    share: float
    uncertainty_us: int = 0


class Rollout(msgspec.Struct, frozen=True, rename="camel"):
    """The pods of one owner (or all pods), by start. Times in microseconds.

    stages  number of pods by stage
    phases  those that any pod had, in the order of PHASES; total: from creation to binding
    waiting  number of pods that are not bound yet, which `total` leaves out; waiting_max_us: the longest time of one
    rate    pods bound per second, from the first pod's creation to the last one's binding; 0 for one pod
    """

    title: str
    start_us: int
    duration_us: int
    stages: dict[str, int]
    phases: list[PhaseTimes]
    total: PhaseTimes | None
    waiting: int
    waiting_max_us: int
    rate: float
    lines: list[PodLine]

    def slowest(self, count: int) -> list[PodLine]:
        """Return the pods with the longest duration, longest first."""
        return sorted(self.lines, key=lambda line: (-line.duration_us, line.name))[:count]

    def document(self, *, slowest: int = 10) -> dict[str, Any]:
        """Return the rollout as plain JSON, with phases of segments by name."""
        plain: dict[str, Any] = msgspec.to_builtins(self)
        plain["slowest"] = [line.name for line in self.slowest(slowest)]
        plain["pods"] = [
            {
                **{key: value for key, value in pod.items() if key != "segments"},
                "segments": [
                    {"phase": PHASES[phase].key, "offsetUs": offset, "durationUs": duration}
                    for phase, offset, duration in line.triples()
                ],
            }
            for pod, line in zip(plain.pop("lines"), self.lines, strict=True)
        ]
        return plain


def rollout(title: str, lines: Iterable[PodLine]) -> Rollout:
    """Summarize pods. `title`: "deployment shop/web". Pods whose create request failed count too."""
    pods = sorted(lines, key=lambda line: (line.start_us, line.name))
    start_us = pods[0].start_us if pods else 0
    bound = [line for line in pods if line.is_bound]
    waiting_us = [line.duration_us for line in pods if line.is_open and not line.is_bound]
    last_bound_us = max((line.start_us + line.bound_after[0] for line in bound), default=start_us)
    end_us = max((line.end_us for line in pods), default=start_us)
    seconds = (last_bound_us - start_us) / 1e6
    all_us = sum(line.duration_us for line in pods)
    phases = []
    for index, phase in enumerate(PHASES):
        times = [(sums[index], uncertain[index]) for sums, uncertain in map(phase_sums, pods) if sums[index]]
        if times:
            phases.append(_times(phase.key, times, all_us))
    totals = [line.bound_after for line in bound]
    return Rollout(
        title=title,
        start_us=start_us,
        duration_us=end_us - start_us,
        stages=dict(Counter(line.stage for line in pods).most_common()),
        phases=phases,
        total=_times("total", totals, all_us) if totals else None,
        waiting=len(waiting_us),
        waiting_max_us=max(waiting_us, default=0),
        rate=len(bound) / seconds if len(bound) > 1 and seconds > 0 else 0.0,
        lines=pods,
    )


def phase_sums(line: PodLine) -> tuple[list[int], list[int]]:
    """Return microseconds in each of PHASES, and their uncertainties."""
    sums, uncertain = [0] * len(PHASES), [0] * len(PHASES)
    for index, (phase, _, duration) in enumerate(line.triples()):
        sums[phase] += duration
        uncertain[phase] += line.uncertainty_us(index, index + 1)
    return sums, uncertain


def percentile(ordered: Sequence[int], share: float) -> int:
    """Return the nearest-rank percentile for `share` (0 to 1). ordered: ascending, not empty."""
    rank = -(-len(ordered) * share // 1)
    return ordered[max(0, min(len(ordered), int(rank)) - 1)]


def _times(phase: str, times: Sequence[tuple[int, int]], all_us: int) -> PhaseTimes:
    """times: of each pod, with their uncertainty."""
    lowest, ordered, highest = (
        sorted(time_us + sign * uncertainty_us for time_us, uncertainty_us in times) for sign in (-1, 0, 1)
    )
    shares = (0.5, 0.9, 0.99, 1.0)
    p50_us, p90_us, p99_us, max_us = (percentile(ordered, share) for share in shares)
    return PhaseTimes(
        phase=phase,
        pods=len(ordered),
        p50_us=p50_us,
        p90_us=p90_us,
        p99_us=p99_us,
        max_us=max_us,
        share=sum(ordered) / all_us if all_us else 0.0,
        uncertainty_us=max(
            abs(percentile(limit, share) - percentile(ordered, share))
            for limit in (lowest, highest)
            for share in shares
        ),
    )
