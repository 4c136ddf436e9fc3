"""Figures of replays, beside those of the recording, and the differences between two scheduler configurations."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from typing import Final

import msgspec

from kubeloop.kube.clock import rfc3339
from kubeloop.planning.result import FitResult
from kubeloop.recording.changes import Finding
from kubeloop.replay.measurement import Measurement, PodRun, Sample
from kubeloop.replay.replay import ReplayResult
from kubeloop.replay.user_actions import RecordedDay

PREEMPTION: Final = "PreemptionByScheduler"
_WAITED_SECONDS: Final = 1.0  # longer until bound: the pod has waited


class Percentiles(msgspec.Struct, frozen=True, rename="camel"):
    """Seconds from creation to binding, of the pods that were bound; None if there are none."""

    p50: float | None = None
    p90: float | None = None
    p99: float | None = None


class WorkloadFigures(msgspec.Struct, frozen=True, rename="camel"):
    """Pods of one workload. unschedulable_seconds: sum over its pods, by reason."""

    name: str
    created: int
    bound: int
    time_to_bind: Percentiles
    preempted: int
    evicted: int
    failed: int
    unschedulable_seconds: Mapping[str, float]


class PoolHour(msgspec.Struct, frozen=True, rename="camel"):
    """Use of a node pool in one hour (24 parts of a shorter recording). nodes_needed: most that its pods need.

    requested: share of what is allocatable, by resource: "cpu", "memory", extended resources.
    """

    seconds: float
    pool: str
    nodes: int
    nodes_needed: int
    requested: Mapping[str, float]
    fragmented: float


class RunFigures(msgspec.Struct, frozen=True, rename="camel"):
    """One run. pending: pods without a node at its end. requested_at_end: share of what all nodes have, by resource.

    fit: the nodes that were added so that nothing is pending.
    """

    name: str
    created: int
    bound: int
    pending: int
    preempted: int
    evicted: int
    failed: int
    requested_at_end: Mapping[str, float]
    time_to_bind: Percentiles
    unschedulable_seconds: Mapping[str, float]
    workloads: Sequence[WorkloadFigures]
    pools: Sequence[PoolHour]
    samples: Sequence[Sample]
    fit: FitResult | None = None


class WorkloadDifference(msgspec.Struct, frozen=True, rename="camel"):
    """Pods of a workload whose fate differs between two runs: the n-th pod of one with the n-th of the other.

    moved: on another node. waited, preempted: only in that run, by the name of the run.
    """

    name: str
    pods: int
    moved: int
    waited: Mapping[str, int]
    preempted: Mapping[str, int]


class Comparison(msgspec.Struct, frozen=True, rename="camel"):
    """Differences between the first run and another one."""

    first: str
    second: str
    moved: int
    workloads: Sequence[WorkloadDifference]


class Report(msgspec.Struct, frozen=True, rename="camel"):
    """All figures of a replay. Times are in seconds since `start`. changes: options of the changes at the start."""

    recording: str
    start: str
    seconds: float
    seed: int
    changes: Sequence[str]
    findings: Sequence[Finding]
    runs: Sequence[RunFigures]
    comparisons: Sequence[Comparison]

    @property
    def resources(self) -> list[str]:
        """Return the resources of all pools, "cpu" and "memory" first."""
        names = {name for run in self.runs for hour in run.pools for name in hour.requested}
        return sorted(names, key=lambda name: ("/" in name, name))

    def to_json(self) -> bytes:
        return msgspec.json.format(msgspec.json.encode(self), indent=2) + b"\n"


def build_report(
    day: RecordedDay, results: Sequence[ReplayResult], *, seed: int, changes: Sequence[str] = ()
) -> Report:
    """Return the report of the results: the recording's own first, then the replays."""
    findings = [*day.findings, *(finding for result in results for finding in result.findings)]
    replays = results[1:]
    pairs = [(results[0], replays[0]), *((replays[0], other) for other in replays[1:])] if replays else []
    return Report(
        recording=day.name,
        start=rfc3339(day.start),
        seconds=day.seconds,
        seed=seed,
        changes=changes,
        findings=findings,
        runs=[_run_figures(result) for result in results],
        comparisons=[_comparison(first, second) for first, second in pairs],
    )


# --- one run ----------------------------------------------------------------------------------------------------------


def _run_figures(result: ReplayResult) -> RunFigures:
    measurement = result.measurement
    runs = list(measurement.runs.values())
    by_workload: dict[str, list[PodRun]] = {}
    for run in runs:
        by_workload.setdefault(run.workload, []).append(run)
    created = [run for run in runs if not run.is_initial]
    return RunFigures(
        name=result.name,
        created=len(created),
        bound=sum(run.bound is not None for run in created),
        pending=sum(run.bound is None and run.deleted is None for run in runs),
        preempted=sum(run.disruption == PREEMPTION for run in runs),
        evicted=sum(run.disruption not in ("", PREEMPTION) for run in runs),
        failed=sum(run.failed for run in runs),
        requested_at_end=_requested_at_end(measurement),
        time_to_bind=_time_to_bind(created),
        unschedulable_seconds=_waits(runs),
        workloads=[_workload_figures(name, pods) for name, pods in sorted(by_workload.items())],
        pools=_pool_hours(measurement, result.seconds),
        samples=measurement.samples,
        fit=result.fit,
    )


def _workload_figures(name: str, runs: Sequence[PodRun]) -> WorkloadFigures:
    created = [run for run in runs if not run.is_initial]
    return WorkloadFigures(
        name=name,
        created=len(created),
        bound=sum(run.bound is not None for run in created),
        time_to_bind=_time_to_bind(created),
        preempted=sum(run.disruption == PREEMPTION for run in runs),
        evicted=sum(run.disruption not in ("", PREEMPTION) for run in runs),
        failed=sum(run.failed for run in runs),
        unschedulable_seconds=_waits(runs),
    )


def _time_to_bind(runs: Iterable[PodRun]) -> Percentiles:
    seconds = sorted(round(run.bound - run.created, 3) for run in runs if run.bound is not None)
    return Percentiles(*(_percentile(seconds, share) for share in (0.5, 0.9, 0.99))) if seconds else Percentiles()


def _percentile(ordered: Sequence[float], share: float) -> float:
    return ordered[max(0, math.ceil(share * len(ordered)) - 1)]


def _waits(runs: Iterable[PodRun]) -> dict[str, float]:
    total: dict[str, float] = {}
    for run in runs:
        for reason, seconds in run.waits.items():
            total[reason] = total.get(reason, 0.0) + seconds
    return {reason: round(total[reason], 3) for reason in sorted(total, key=lambda reason: (-total[reason], reason))}


def _pool_hours(measurement: Measurement, seconds: float) -> list[PoolHour]:
    hour = seconds / 24 if seconds < 24 * 3600 else 3600.0
    by_hour: dict[tuple[int, str], list[Sample]] = {}
    for sample in measurement.samples:
        for pool in sample.pools:
            by_hour.setdefault((int(sample.seconds // hour) if hour else 0, pool), []).append(sample)
    hours = []
    for (number, pool), samples in sorted(by_hour.items()):
        uses = [sample.pools[pool] for sample in samples]
        hours.append(
            PoolHour(
                seconds=number * hour,
                pool=pool,
                nodes=max(use.nodes for use in uses),
                nodes_needed=max(use.needed for use in uses),
                requested={
                    name: _mean(_share(use.requested, use.allocatable, name) for use in uses)
                    for name in uses[0].allocatable
                    if name != "pods"
                },
                fragmented=_mean(use.fragmented for use in uses),
            )
        )
    return hours


def _requested_at_end(measurement: Measurement) -> dict[str, float]:
    """Return the requested share of each resource of all nodes in the last sample."""
    allocatable: dict[str, int] = {}
    requested: dict[str, int] = {}
    for use in measurement.samples[-1].pools.values() if measurement.samples else ():
        for name, amount in use.allocatable.items():
            allocatable[name] = allocatable.get(name, 0) + amount
            requested[name] = requested.get(name, 0) + use.requested[name]
    return {name: round(_share(requested, allocatable, name), 6) for name in allocatable if name != "pods"}


def _share(requested: Mapping[str, int], allocatable: Mapping[str, int], name: str) -> float:
    return requested.get(name, 0) / allocatable[name] if allocatable.get(name) else 0.0


def _mean(values: Iterable[float]) -> float:
    values = list(values)
    return round(sum(values) / len(values), 4)


# --- two runs ---------------------------------------------------------------------------------------------------------


def _comparison(first: ReplayResult, second: ReplayResult) -> Comparison:
    before, after = _pods_by_workload(first.measurement), _pods_by_workload(second.measurement)
    differences = []
    for workload in sorted(before.keys() | after.keys()):
        difference = _difference(workload, before.get(workload, []), after.get(workload, []), first.name, second.name)
        if difference is not None:
            differences.append(difference)
    return Comparison(first.name, second.name, sum(it.moved for it in differences), differences)


def _pods_by_workload(measurement: Measurement) -> dict[str, list[PodRun]]:
    """Return the pods that were created in the run, in their order, by workload."""
    pods: dict[str, list[PodRun]] = {}
    for run in measurement.runs.values():
        if not run.is_initial:
            pods.setdefault(run.workload, []).append(run)
    return pods


def _difference(
    workload: str, before: Sequence[PodRun], after: Sequence[PodRun], first: str, second: str
) -> WorkloadDifference | None:
    moved = sum(a.node != b.node for a, b in zip(before, after, strict=False) if a.node and b.node)
    waited = {first: sum(map(_has_waited, before)), second: sum(map(_has_waited, after))}
    preempted = {
        name: sum(run.disruption == PREEMPTION for run in runs) for name, runs in ((first, before), (second, after))
    }
    waits_differ = bool(waited[first]) != bool(waited[second])
    preemptions_differ = bool(preempted[first]) != bool(preempted[second])
    if not (moved or waits_differ or preemptions_differ or len(before) != len(after)):
        return None
    return WorkloadDifference(workload, len(after), moved, waited, preempted)


def _has_waited(run: PodRun) -> bool:
    if run.bound is None:
        return run.deleted is None or bool(run.waits)
    return run.bound - run.created > _WAITED_SECONDS
