"""A trace drawn for the terminal: the tree of spans as bars over time, with what the scheduler thought of it.

May import rich and the standard library only.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from datetime import UTC, datetime
from typing import Any

from rich.console import Console, ConsoleOptions, RenderResult
from rich.table import Table
from rich.text import Text

_EIGHTHS = " ▏▎▍▌▋▊▉█"
_MIN_BAR_COLUMNS = 16
_MAX_BAR_COLUMNS = 60
_COLORS = (
    ("scheduling attempt", "cyan"),
    ("queue active", "yellow"),
    ("queue", "magenta"),
    ("create", "blue"),
    ("bind", "blue"),
    ("watch delivery", "green"),
    ("confirmation", "green"),
)
_REJECTED = "kubeloop.rejected."


class Waterfall:
    """What `waterfall` returns: prints itself as wide as the console is."""

    def __init__(self, document: Mapping[str, Any]) -> None:
        self._trace_id: str = document["traceId"]
        self._spans: list[Mapping[str, Any]] = document["spans"]

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        if not self._spans:
            yield Text(f"trace {self._trace_id}: no spans")
            return
        root = self._spans[0]
        yield self._title(root)
        rows = [*self._rows(root, 0)]
        labels = [f"{'  ' * depth}{span['name']}" for span, depth in rows]
        label_columns = min(max(map(len, labels)), max(20, options.max_width // 3))
        bar_columns = options.max_width - label_columns - 14
        bar_columns = max(_MIN_BAR_COLUMNS, min(_MAX_BAR_COLUMNS, bar_columns))
        table = Table.grid(padding=(0, 1))
        table.add_column(no_wrap=True, max_width=label_columns, overflow="ellipsis")
        table.add_column(no_wrap=True, width=bar_columns)
        table.add_column(justify="right", no_wrap=True)
        for (span, depth), label in zip(rows, labels, strict=True):
            failed = _is_error(span)
            style = "bold" if depth == 0 else ("red" if failed else "")
            table.add_row(Text(label, style=style), _bar(span, root, bar_columns), Text(_duration(span)))
        yield table
        for span, _depth in rows:
            for line in _remarks(span):
                yield Text(f"  {line}", style="dim")

    def _title(self, root: Mapping[str, Any]) -> Text:
        began = datetime.fromtimestamp(root["start"] / 1e9, UTC).strftime("%Y-%m-%d %H:%M:%S")
        attributes = root["attributes"]
        title = Text.assemble((root["name"], "bold"), f"  {_duration(root).strip()}, from {began} UTC")
        if attributes.get("k8s.node.name"):
            title.append(f", on {attributes['k8s.node.name']}")
        if _is_error(root):
            title.append(f"  {root['status'].get('message', 'failed')}", style="red")
        if attributes.get("kubeloop.continued"):
            title.append("  (continued after a restart)", style="dim")
        title.append(f"\ntrace {self._trace_id}", style="dim")
        return title

    def _rows(self, root: Mapping[str, Any], depth: int) -> Iterator[tuple[Mapping[str, Any], int]]:
        yield root, depth
        children = [span for span in self._spans if span["parentSpanId"] == root["spanId"]]
        for child in sorted(children, key=lambda span: (span["start"], span["end"])):
            yield from self._rows(child, depth + 1)


def waterfall(document: Mapping[str, Any]) -> Waterfall:
    """The document of a trace (Trace.document) as something that rich prints."""
    return Waterfall(document)


def _bar(span: Mapping[str, Any], root: Mapping[str, Any], columns: int) -> Text:
    """A bar as long as the span, to an eighth of a column; what is too short to see is a thin line."""
    total = max(1, root["end"] - root["start"])
    first = (span["start"] - root["start"]) / total * columns
    last = (span["end"] - root["start"]) / total * columns
    left = min(int(first), columns - 1)
    eighths = round((last - first) * 8)
    bar = _EIGHTHS[8] * (eighths // 8) + (_EIGHTHS[eighths % 8] if eighths % 8 else "")
    color = "red" if _is_error(span) else _color(span["name"])
    return Text.assemble(" " * left, ((bar or _EIGHTHS[1])[: columns - left], color))


def _color(name: str) -> str:
    return next((color for start, color in _COLORS if name.startswith(start)), "white")


def _duration(span: Mapping[str, Any]) -> str:
    milliseconds = (span["end"] - span["start"]) / 1e6
    return f"{milliseconds:.0f} ms" if milliseconds >= 1000 else f"{milliseconds:.2f} ms"


def _is_error(span: Mapping[str, Any]) -> bool:
    return bool(span["status"].get("code") == "ERROR")


def _remarks(span: Mapping[str, Any]) -> Iterator[str]:
    """What a span says beyond its time: why it waited, who rejected, who scored how."""
    attributes, name = span["attributes"], span["name"]
    if attributes.get("kubeloop.reason") and name.startswith("queue"):
        yield f"{name}: {attributes['kubeloop.reason']}"
    if name.startswith("scheduling attempt") and attributes.get("kubeloop.message"):
        yield f"{name}: {attributes['kubeloop.message']}"
    if name == "filter":
        rejected = {key.removeprefix(_REJECTED): n for key, n in attributes.items() if key.startswith(_REJECTED)}
        by_plugin = ", ".join(f"{plugin} rejected {count}" for plugin, count in rejected.items())
        feasible = (
            f"filter: {attributes.get('kubeloop.feasible_nodes')} of {attributes.get('kubeloop.nodes')} nodes fit"
        )
        yield f"{feasible}; {by_plugin}" if by_plugin else feasible
    if name == "score" and attributes.get("kubeloop.score.nodes"):
        scores = zip(attributes["kubeloop.score.nodes"], attributes["kubeloop.score.totals"], strict=True)
        yield "score: " + ", ".join(f"{node} {total}" for node, total in scores)
    if name in ("create", "reserve", "permit", "pre-bind", "bind") and _is_error(span):
        yield f"{name}: {span['status'].get('message')}"
