"""The report as text: one column per run."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

from kubeloop.planning.texts import fit_line
from kubeloop.replay.report import Comparison, Percentiles, Report, RunFigures, WorkloadFigures
from kubeloop.tracing.views.time_format import format_duration

_MOST_WORKLOADS, _MOST_REASONS = 20, 5


def report_lines(report: Report) -> Iterator[str]:
    """Yield the lines of the report."""
    yield f"{report.recording}: {conditions(report)}"
    yield ""
    yield from table(["", *(run.name for run in report.runs)], list(_rows(report.runs)))
    yield from fit_lines(report)
    yield ""
    yield from _workload_lines(report)
    yield from _pool_lines(report)
    for comparison in report.comparisons:
        yield from _comparison_lines(comparison)
    for finding in report.findings:
        yield f"warning: {finding}"


def conditions(report: Report) -> str:
    """Return length, start, seed and changes of the replays."""
    changes = f", with {' '.join(report.changes)}" if report.changes else ""
    return f"{duration(report.seconds)} from {report.start}, seed {report.seed}{changes}"


def fit_lines(report: Report) -> Iterator[str]:
    """Yield the nodes that are enough under each configuration, and the replays of the search."""
    for run in report.runs:
        if run.fit is not None:
            yield f"{run.name}: {fit_line(run.fit)}"


def _rows(runs: Sequence[RunFigures]) -> Iterator[list[str]]:
    rows: list[tuple[str, Callable[[RunFigures], str]]] = [
        ("pods created", lambda run: str(run.created)),
        ("pods bound", lambda run: str(run.bound)),
        ("pending at the end", lambda run: str(run.pending)),
        ("time to bind p50 / p90 / p99", lambda run: percentiles(run.time_to_bind)),
        ("preempted", lambda run: str(run.preempted)),
        ("evicted", lambda run: str(run.evicted)),
        ("failed", lambda run: str(run.failed)),
    ]
    for title, figure in rows:
        yield [title, *map(figure, runs)]
    for resource in sorted({name for run in runs for name in run.requested_at_end}):
        yield [f"requested at the end: {resource}", *(share(run.requested_at_end.get(resource, 0.0)) for run in runs)]
    reasons: dict[str, float] = {}
    for run in runs:
        for reason, seconds in run.unschedulable_seconds.items():
            reasons[reason] = max(reasons.get(reason, 0.0), seconds)
    for reason in sorted(reasons, key=lambda reason: (-reasons[reason], reason))[:_MOST_REASONS]:
        yield [
            f"unschedulable: {reason}",
            *(duration(run.unschedulable_seconds.get(reason, 0.0)) for run in runs),
        ]


def _workload_lines(report: Report) -> Iterator[str]:
    last = report.runs[-1]
    slowest = sorted(last.workloads, key=lambda it: (-(it.time_to_bind.p99 or 0.0), -it.created, it.name))
    shown = [it for it in slowest if it.created][:_MOST_WORKLOADS]
    if not shown:
        return
    figures = [{it.name: it for it in run.workloads} for run in report.runs]
    rows = [[it.name, str(it.created), *(_time_to_bind(of_run.get(it.name)) for of_run in figures)] for it in shown]
    yield "time to bind p50 / p90 / p99 by workload, slowest first"
    yield from table(["workload", "pods", *(run.name for run in report.runs)], rows)
    left_out = sum(bool(it.created) for it in last.workloads) - len(shown)
    if left_out:
        yield f"  and {left_out} more (--json has all)"
    yield ""


def _time_to_bind(figures: WorkloadFigures | None) -> str:
    return "-" if figures is None else percentiles(figures.time_to_bind)


def _pool_lines(report: Report) -> Iterator[str]:
    rows, resources = [], report.resources
    for pool in sorted({hour.pool for run in report.runs for hour in run.pools}):
        for run in report.runs:
            hours = [hour for hour in run.pools if hour.pool == pool]
            if hours:
                count = len(hours)
                rows.append(
                    [
                        pool,
                        run.name,
                        str(max(hour.nodes for hour in hours)),
                        str(max(hour.nodes_needed for hour in hours)),
                        *(share(sum(hour.requested.get(name, 0.0) for hour in hours) / count) for name in resources),
                        share(sum(hour.fragmented for hour in hours) / count),
                    ]
                )
    yield "node pools, and requested shares"
    yield from table(["pool", "run", "nodes", "needed at most", *resources, "free cpu unusable"], rows)
    yield ""


def _comparison_lines(comparison: Comparison) -> Iterator[str]:
    first, second = comparison.first, comparison.second
    yield f"{first} and {second}: {comparison.moved} pods on other nodes"
    rows = [
        [
            it.name,
            str(it.moved),
            f"{it.waited[first]} / {it.waited[second]}",
            f"{it.preempted[first]} / {it.preempted[second]}",
        ]
        for it in comparison.workloads[:_MOST_WORKLOADS]
    ]
    if rows:
        names = f"{first} / {second}"
        yield from table(["workload", "moved", f"waited: {names}", f"preempted: {names}"], rows)
    if len(comparison.workloads) > _MOST_WORKLOADS:
        yield f"  and {len(comparison.workloads) - _MOST_WORKLOADS} more (--json has all)"
    yield ""


def table(header: Sequence[str], rows: Sequence[Sequence[str]]) -> Iterator[str]:
    """Yield the lines of a table with aligned columns."""
    widths = [max(len(row[column]) for row in (header, *rows)) for column in range(len(header))]
    for row in (header, *rows):
        yield "  " + "  ".join(text.ljust(width) for text, width in zip(row, widths, strict=True)).rstrip()


def percentiles(values: Percentiles) -> str:
    if values.p50 is None or values.p90 is None or values.p99 is None:
        return "-"
    return " / ".join(duration(value) for value in (values.p50, values.p90, values.p99))


def duration(seconds: float) -> str:
    return format_duration(seconds * 1e6) if seconds >= 0.0005 else "0 s"


def share(value: float) -> str:
    return f"{100 * value:.1f} %"
