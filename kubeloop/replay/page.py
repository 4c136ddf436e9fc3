"""The report as one HTML page: charts, tables, no script, and nothing that is loaded from elsewhere."""

from __future__ import annotations

import base64
import hashlib
from collections.abc import Iterable, Iterator, Sequence
from html import escape
from typing import Final

from kubeloop.replay.charts import Line, line_chart
from kubeloop.replay.report import Comparison, Report
from kubeloop.replay.text import conditions, duration, fit_lines, percentiles, share

_STYLE: Final = """
body{font:14px/1.45 system-ui,sans-serif;margin:2em auto;max-width:1180px;padding:0 1em;color:#1a1a1a;background:#fff}
h1{font-size:1.4em}h2{font-size:1.15em;margin-top:2em}
table{border-collapse:collapse;margin:.6em 0}th,td{text-align:left;padding:.2em .9em .2em 0;vertical-align:top}
th{border-bottom:1px solid #999;font-weight:600}td{border-bottom:1px solid #eee}
.charts{display:grid;grid-template-columns:repeat(auto-fit,minmax(480px,1fr));gap:1.2em}
figure{margin:0}figcaption{font-weight:600}
svg{width:100%;height:auto}.grid{stroke:#ddd}text{font-size:10px;fill:#666}.y{text-anchor:end}.x{text-anchor:middle}
.line{fill:none;stroke-width:1.6}.key{font-weight:400;margin-left:.8em}.key::before{content:"\\25AC ";}
.s0{stroke:#1f6feb}.s1{stroke:#d1570b}.s2{stroke:#1a7f37}.s3{stroke:#8250df}.s4{stroke:#9a6700}.s5{stroke:#cf222e}
.key.s0{color:#1f6feb}.key.s1{color:#d1570b}.key.s2{color:#1a7f37}.key.s3{color:#8250df}.key.s4{color:#9a6700}
.key.s5{color:#cf222e}.warning{color:#9a6700}
@media(prefers-color-scheme:dark){body{color:#e6e6e6;background:#111}td{border-color:#333}.grid{stroke:#333}text{fill:#999}}
"""


def report_page(report: Report) -> str:
    """Return the page."""
    digest = base64.b64encode(hashlib.sha256(_STYLE.encode()).digest()).decode()
    policy = f"default-src 'none'; style-src 'sha256-{digest}'; base-uri 'none'; form-action 'none'"
    title = f"Replay of {report.recording}"
    body = "\n".join(_sections(report))
    return (
        f'<!doctype html>\n<html lang="en"><head><meta charset="utf-8">\n'
        f'<meta http-equiv="Content-Security-Policy" content="{policy}">\n'
        f"<title>{escape(title)}</title><style>{_STYLE}</style></head>\n<body>\n<h1>{escape(title)}</h1>\n"
        f"<p>{escape(conditions(report))}</p>\n"
        f"{body}\n</body></html>\n"
    )


def _sections(report: Report) -> Iterator[str]:
    for finding in report.findings:
        yield f'<p class="warning">{escape(str(finding))}</p>'
    yield _summary(report)
    for line in fit_lines(report):
        yield f"<p>{escape(line)}</p>"
    yield f'<div class="charts">{"".join(_charts(report))}</div>'
    yield "<h2>Time from creation to binding by workload: p50 / p90 / p99</h2>"
    yield _workload_table(report)
    yield "<h2>Time without a node, by reason</h2>"
    yield _reason_table(report)
    for comparison in report.comparisons:
        yield f"<h2>{escape(comparison.first)} and {escape(comparison.second)}</h2>"
        yield _comparison_table(comparison)


def _summary(report: Report) -> str:
    header = ["run", "created", "bound", "pending at the end", "preempted", "evicted", "failed", "time to bind"]
    rows = [
        [
            run.name,
            *map(str, (run.created, run.bound, run.pending, run.preempted, run.evicted, run.failed)),
            percentiles(run.time_to_bind),
        ]
        for run in report.runs
    ]
    return _table(header, rows)


def _charts(report: Report) -> Iterator[str]:
    runs, seconds = report.runs, report.seconds
    for title, field in (("Pods created", "created"), ("Pods bound", "bound"), ("Pods pending", "pending")):
        series = [Line(run.name, [(sample.seconds, getattr(sample, field)) for sample in run.samples]) for run in runs]
        yield line_chart(title, series, seconds=seconds, label=_number)
    pools = sorted({hour.pool for run in runs for hour in run.pools})
    for pool in pools:
        of_pool = [(run.name, [hour for hour in run.pools if hour.pool == pool]) for run in runs]
        for resource in report.resources:
            series = [
                Line(name, [(it.seconds, it.requested.get(resource, 0.0)) for it in hours]) for name, hours in of_pool
            ]
            yield line_chart(f"{pool}: {resource} requested", series, seconds=seconds, label=share, steps=True)
        series = [Line(name, [(hour.seconds, hour.fragmented) for hour in hours]) for name, hours in of_pool]
        yield line_chart(f"{pool}: free cpu unusable", series, seconds=seconds, label=share, steps=True)
        series = [Line(name, [(hour.seconds, hour.nodes_needed) for hour in hours]) for name, hours in of_pool]
        nodes = Line("nodes", [(hour.seconds, hour.nodes) for hour in of_pool[0][1]])
        yield line_chart(f"{pool}: nodes needed", [*series, nodes], seconds=seconds, label=_number, steps=True)


def _workload_table(report: Report) -> str:
    figures = [{it.name: it for it in run.workloads} for run in report.runs]
    names = sorted({it.name for run in report.runs for it in run.workloads if it.created})
    rows = []
    for name in names:
        of_runs = [of_run.get(name) for of_run in figures]
        created = max(it.created for it in of_runs if it is not None)
        rows.append([name, str(created), *("-" if it is None else percentiles(it.time_to_bind) for it in of_runs)])
    return _table(["workload", "pods", *(run.name for run in report.runs)], rows)


def _reason_table(report: Report) -> str:
    reasons = {reason for run in report.runs for reason in run.unschedulable_seconds}
    rows = [
        [reason, *(duration(run.unschedulable_seconds.get(reason, 0.0)) for run in report.runs)]
        for reason in sorted(reasons)
    ]
    return _table(["reason", *(run.name for run in report.runs)], rows)


def _comparison_table(comparison: Comparison) -> str:
    first, second = comparison.first, comparison.second
    header = ["workload", "pods", "on another node", f"waited: {first}", second, f"preempted: {first}", second]
    rows = [
        [
            it.name,
            str(it.pods),
            str(it.moved),
            *(str(values[name]) for values in (it.waited, it.preempted) for name in (first, second)),
        ]
        for it in comparison.workloads
    ]
    return _table(header, rows)


def _table(header: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    head = "".join(f"<th>{escape(text)}</th>" for text in header)
    body = "".join(f"<tr>{''.join(f'<td>{escape(text)}</td>' for text in row)}</tr>" for row in rows)
    return f"<table><tr>{head}</tr>{body}</table>"


def _number(value: float) -> str:
    return f"{value:,.0f}" if value == round(value) else f"{value:,.2f}"
