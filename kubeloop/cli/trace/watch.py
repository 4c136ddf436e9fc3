"""`kubeloop trace --watch`: output that is redrawn on a terminal, or lines in a pipe."""

from __future__ import annotations

import contextlib
import functools
import json
import sys
import time
from collections.abc import Callable, Iterator
from typing import Any

import msgspec
from rich.console import Group

from kubeloop.cli.terminal import output_console
from kubeloop.cli.trace.sources import RunningProcessTraces, group_trace
from kubeloop.process.endpoint.trace_targets import POD_GROUP_KIND, Target
from kubeloop.tracing.views.pod_lines import pod_line, pod_span
from kubeloop.tracing.views.printable import printable
from kubeloop.tracing.views.rollout import Rollout, rollout
from kubeloop.tracing.views.rollout_view import rollout_log_line, rollout_view
from kubeloop.tracing.views.span_titles import span_details, title
from kubeloop.tracing.views.time_format import format_duration
from kubeloop.tracing.views.waterfall import waterfall

_POLL_SECONDS = 0.5
_MARGIN_ROWS = 12  # for title, headings and remarks around the bars
_MIN_GROUP_ROWS = 6  # for the bars of a pod group above its pods


def watch_traces(traces: RunningProcessTraces, selected: Target, *, as_json: bool) -> int:
    """Watch a pod until its trace is complete, any other target until Ctrl-C. Returns the exit code.

    Raises UserError, also when the process ends.
    """
    interactive = sys.stdout.isatty() and not as_json
    try:
        if selected.kind == "pod":
            return _watch_pod(traces, selected, as_json=as_json, interactive=interactive)
        return _watch_rollout(traces, selected, as_json=as_json, interactive=interactive)
    except KeyboardInterrupt:
        return 0


def _watch_pod(traces: RunningProcessTraces, selected: Target, *, as_json: bool, interactive: bool) -> int:
    with _screen(interactive) as draw:
        printed_ids: set[str] = set()
        while True:
            document = traces.trace(selected)
            line = pod_line(document)
            is_open = line is not None and line.is_open
            if as_json:
                _print(json.dumps(document))
            elif draw is not None:
                draw(functools.partial(_waterfall, document))
            else:
                _print_ended_spans(printable(document), printed_ids, is_open=is_open)
            if not is_open:
                return 0
            time.sleep(_POLL_SECONDS)


def _print_ended_spans(document: dict[str, Any], printed_ids: set[str], *, is_open: bool) -> None:
    """Print the spans that have ended since the last call, one per line."""
    root = _root(document)
    for span in _new_ended_spans(document, printed_ids, is_open=is_open):
        at, took = (
            (number - base) / 1000 for number, base in ((span["start"], root["start"]), (span["end"], span["start"]))
        )
        details = "; ".join(detail.removeprefix(f"{title(span)}: ") for detail in span_details(span))
        suffix = f"  {details}" if details else ""
        _print(f"{'+' + format_duration(at):>12}  {title(span)}  {format_duration(took)}{suffix}")


def _new_ended_spans(document: dict[str, Any], known_ids: set[str], *, is_open: bool) -> list[dict[str, Any]]:
    """Return the spans that have ended and are not in `known_ids`, by end, and add them to it."""
    root = _root(document)
    ended = [
        span
        for span in sorted(document["spans"], key=lambda span: (span["end"], -span["start"]))
        if span["spanId"] not in known_ids and not (is_open and span["end"] >= root["end"])
    ]
    known_ids.update(span["spanId"] for span in ended)
    return ended


def _root(document: dict[str, Any]) -> dict[str, Any]:
    return dict(pod_span(document) or document["spans"][0])


def _watch_rollout(traces: RunningProcessTraces, selected: Target, *, as_json: bool, interactive: bool) -> int:
    line_feed = traces.line_feed(selected)
    began = time.monotonic()
    last = ""
    printed_ids: set[str] = set()  # of the group's spans
    with _screen(interactive) as draw:
        while True:
            changed = line_feed.catch_up()
            lines = line_feed.now()
            group = group_trace(traces, lines) if selected.kind == POD_GROUP_KIND else None
            if as_json:
                for line in changed:
                    _print(msgspec.json.encode(line).decode())
                if group is not None and _new_ended_spans(group, printed_ids, is_open=_is_open(group)):
                    _print(json.dumps({"group": group}))
            else:
                summary = rollout(str(selected), [line for line in lines if line.trace_id])
                if draw is not None:
                    draw(functools.partial(_rollout, summary, group))
                else:
                    if group is not None:
                        _print_ended_spans(printable(group), printed_ids, is_open=_is_open(group))
                    if (now := rollout_log_line(summary)) != last:
                        last = now
                        _print(f"{time.monotonic() - began:6.1f} s  {now}")
            time.sleep(_POLL_SECONDS)


def _is_open(group: dict[str, Any]) -> bool:
    return bool(group["spans"][0]["attributes"]["kubeloop.pod_group.outcome"] == "open")


def _waterfall(document: dict[str, Any], rows: int) -> Any:
    return waterfall(document, max_rows=rows)


def _rollout(summary: Rollout, group: dict[str, Any] | None, rows: int) -> Any:
    if group is None:
        return rollout_view(summary, max_lines=max(3, rows - len(summary.phases) - 2), slowest=3)
    group_rows = max(_MIN_GROUP_ROWS, rows // 2)
    lines = max(3, rows - group_rows - len(summary.phases) - 2)
    return Group(waterfall(group, max_rows=group_rows), "", rollout_view(summary, max_lines=lines, slowest=3))


@contextlib.contextmanager
def _screen(interactive: bool) -> Iterator[Callable[[Callable[[int], Any]], None] | None]:
    """Yield a function that redraws the screen; it passes the number of rows. None if not interactive."""
    if not interactive:
        yield None
        return
    from rich.live import Live

    console = output_console()
    with Live(
        console=console, auto_refresh=False, vertical_overflow="ellipsis", redirect_stderr=sys.stderr.isatty()
    ) as screen:

        def draw(picture: Callable[[int], Any]) -> None:
            screen.update(picture(max(6, console.height - _MARGIN_ROWS)), refresh=True)

        yield draw


def _print(text: str) -> None:
    print(text, flush=True)
