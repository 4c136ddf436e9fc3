"""Terminal view of a trace: the tree of spans as bars over time, with the scheduler's details.

Imports rich, the standard library and this folder only.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from rich.console import Console, ConsoleOptions, Group, RenderResult
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from kubeloop.tracing.views.phases import PHASES, phase_index
from kubeloop.tracing.views.pod_lines import pod_line, pod_span, uncertainty_us
from kubeloop.tracing.views.printable import printable
from kubeloop.tracing.views.span_titles import span_details, title
from kubeloop.tracing.views.time_format import format_duration, format_skew, format_time

_EIGHTHS = " ▏▎▍▌▋▊▉█"
_SHADED_BEFORE, _SHADED_END = "░▒"
_MIN_BAR_COLUMNS = 16
_MAX_BAR_COLUMNS = 80
_FIRST_ROWS = 4  # always shown when rows are left out: the root and the first spans

Span = Mapping[str, Any]


class Waterfall:
    """Result of `waterfall`, a rich renderable as wide as the console."""

    def __init__(self, document: Mapping[str, Any], max_rows: int | None) -> None:
        self._document = document
        self._max_rows = max_rows
        self._trace_id: str = document["traceId"]
        self._spans: list[Span] = document["spans"]

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        if not self._spans:
            yield Text(f"trace {self._trace_id}: no spans")
            return
        yield self._title()
        rows = [*self._rows()]
        left_out = 0
        if self._max_rows is not None and len(rows) > self._max_rows:
            left_out = len(rows) - self._max_rows
            last = max(1, self._max_rows - _FIRST_ROWS)
            rows = [*rows[: self._max_rows - last], *rows[-last:]]
        start = min(span["start"] for span in self._spans)
        end = max(span["end"] for span in self._spans)
        labels = [f"{'  ' * depth}{title(span)}" for span, depth in rows]
        duration_columns = max(len(_duration(span)) for span, _ in rows)
        label_columns = min(max(map(len, labels)), max(20, options.max_width // 3))
        bar_columns = min(_MAX_BAR_COLUMNS, options.max_width - label_columns - duration_columns - 3)
        has_bars = bar_columns >= _MIN_BAR_COLUMNS
        label_columns = max(1, min(label_columns, options.max_width - duration_columns - 2))
        table = Table.grid(padding=(0, 1))
        table.add_column(no_wrap=True, max_width=label_columns, overflow="ellipsis")
        if has_bars:
            table.add_column(no_wrap=True, width=bar_columns)
        table.add_column(justify="right", no_wrap=True)
        for number, ((span, depth), label) in enumerate(zip(rows, labels, strict=True)):
            if left_out and number == _FIRST_ROWS:
                table.add_row(Text(f"  ... {left_out} more", style="dim"))
            style = "bold" if depth == 0 else ("red" if _is_error(span) else "")
            bar = [_bar(span, start, end, bar_columns)] if has_bars else []
            table.add_row(Text(label, style=style), *bar, Text(_duration(span)))
        yield table
        details = [detail for span, _ in rows for detail in span_details(span)]
        if any(uncertainty_us(span, edge) for span, _ in rows for edge in ("start", "end")):
            details.append(
                f"{_SHADED_BEFORE} and {_SHADED_END}: an edge lies in here; ±: the uncertainty of a duration"
            )
        yield Group(
            *(Padding(Text(detail, style="dim"), (0, 0, 0, 2), expand=False) for detail in dict.fromkeys(details))
        )

    def _title(self) -> Text:
        root = pod_span(self._document) or self._spans[0]
        attributes = root["attributes"]
        line = pod_line(self._document)
        heading = Text.assemble((title(root), "bold"), f"  {_duration(root)}, from {format_time(root['start'])}")
        if attributes.get("k8s.node.name"):
            heading.append(f", on {attributes['k8s.node.name']}")
        if line is not None and line.is_open:
            heading.append(f"  {line.stage}, in progress", style="yellow")
        elif attributes.get("kubeloop.pod_group.outcome") == "open":
            heading.append("  in progress", style="yellow")
        if _is_error(root):
            heading.append(f"  {root['status'].get('message', 'failed')}", style="red")
        if attributes.get("kubeloop.continued"):
            heading.append("  (continued after a restart)", style="dim")
        if attributes.get("kubeloop.reconstructed"):
            heading.append("  (reconstructed from the object: it is older than this process)", style="dim")
        elif attributes.get("kubeloop.observed"):
            heading.append("  (observed)", style="dim")
        heading.append(f"\ntrace {self._trace_id}", style="dim")
        for clock, bounds in self._document.get("clockSkew", {}).items():
            skew = format_skew(clock, bounds["lowestMs"], bounds["highestMs"])
            heading.append(f"\nclock of {skew}; its times are corrected by the least difference", style="yellow")
        return heading

    def _rows(self) -> Iterator[tuple[Span, int]]:
        """Yield every span with its depth; a span without its parent is at the top level."""
        ids = {span["spanId"] for span in self._spans}
        children: dict[str, list[Span]] = {}
        for span in self._spans:
            children.setdefault(span["parentSpanId"] if span["parentSpanId"] in ids else "", []).append(span)
        pending = [(span, 0) for span in _latest_first(children.get("", []))]
        while pending:
            span, depth = pending.pop()
            yield span, depth
            pending += [(child, depth + 1) for child in _latest_first(children.get(span["spanId"], []))]


def waterfall(document: Mapping[str, Any], *, max_rows: int | None = None) -> Waterfall:
    """Return the document of a trace (Trace.document) as a rich renderable.

    max_rows: bars to show at most; the first few and the last ones, for a screen that is drawn again and again.
    """
    return Waterfall(printable(document), max_rows)


def _latest_first(spans: list[Span]) -> list[Span]:
    """Sort by start for popping from the end; spans with equal times keep their order."""
    return sorted(spans, key=lambda span: (span["start"], span["end"]))[::-1]


def _bar(span: Span, start: int, end: int, columns: int) -> Text:
    """Draw a bar as long as the span, to an eighth of a column; a very short span is a thin line.

    Before the bar and at its end, the intervals in which its true edges lie are shaded.
    """
    total = max(1, end - start)
    first = (span["start"] - start) / total * columns
    last = (span["end"] - start) / total * columns
    left = min(int(first), columns - 1)
    eighths = round((last - first) * 8)
    bar = (_EIGHTHS[8] * (eighths // 8) + (_EIGHTHS[eighths % 8] if eighths % 8 else "")) or _EIGHTHS[1]
    bar = bar[: columns - left]
    before = min(left, round(uncertainty_us(span, "start") * 1000 / total * columns))
    at_end = min(len(bar), round(uncertainty_us(span, "end") * 1000 / total * columns))
    bar = bar[: len(bar) - at_end] + _SHADED_END * at_end
    color = "red" if _is_error(span) else PHASES[phase_index(span["name"])].color
    return Text.assemble(" " * (left - before), (_SHADED_BEFORE * before + bar, color))


def _duration(span: Span) -> str:
    uncertain_us = max(uncertainty_us(span, "start"), uncertainty_us(span, "end"))
    return format_duration((span["end"] - span["start"]) / 1000, uncertain_us)


def _is_error(span: Span) -> bool:
    return bool(span["status"].get("code") == "ERROR")
