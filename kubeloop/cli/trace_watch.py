"""`kubeloop trace --watch`: a picture that is drawn anew on a terminal, and lines for whoever reads a pipe."""

from __future__ import annotations

import contextlib
import functools
import json
import sys
import time
from collections.abc import Callable, Iterator
from typing import Any

import msgspec

from kubeloop.cli.trace_sources import RunningProcessTraces
from kubeloop.process.endpoint.trace_targets import Target
from kubeloop.tracing.views.pod_lines import pod_line, pod_span
from kubeloop.tracing.views.rollout import Rollout, rollout
from kubeloop.tracing.views.rollout_view import rollout_log_line, rollout_view
from kubeloop.tracing.views.span_titles import span_details, title
from kubeloop.tracing.views.time_format import format_duration
from kubeloop.tracing.views.waterfall import waterfall

_LOOK_SECONDS = 0.5
_MARGIN_ROWS = 12  # of the screen: title, headings and remarks around the bars


def watching(traces: RunningProcessTraces, wanted: Target, *, as_json: bool) -> int:
    """Watch a pod until its trace is complete, anything else until Ctrl-C. Returns the exit code.

    Raises UserError, also when the process ends meanwhile.
    """
    live = sys.stdout.isatty() and not as_json
    try:
        if wanted.kind == "pod":
            return _watch_pod(traces, wanted, as_json=as_json, live=live)
        return _watch_rollout(traces, wanted, as_json=as_json, live=live)
    except KeyboardInterrupt:
        return 0


def _watch_pod(traces: RunningProcessTraces, wanted: Target, *, as_json: bool, live: bool) -> int:
    with _screen(live) as draw:
        told: set[str] = set()
        while True:
            document = traces.one(wanted)
            line = pod_line(document)
            goes_on = line is not None and line.is_open
            if as_json:
                _say(json.dumps(document))
            elif draw is not None:
                draw(functools.partial(_waterfall, document))
            else:
                _tell_spans(document, told, goes_on=goes_on)
            if not goes_on:
                return 0
            time.sleep(_LOOK_SECONDS)


def _tell_spans(document: dict[str, Any], told: set[str], *, goes_on: bool) -> None:
    """The spans that have ended since the last time, a line each."""
    root = pod_span(document) or document["spans"][0]
    for span in sorted(document["spans"], key=lambda span: (span["end"], -span["start"])):
        lasts_until_now = goes_on and span["end"] >= root["end"]
        if span["spanId"] in told or lasts_until_now:
            continue
        told.add(span["spanId"])
        at, took = (
            (number - base) / 1000 for number, base in ((span["start"], root["start"]), (span["end"], span["start"]))
        )
        details = "; ".join(detail.removeprefix(f"{title(span)}: ") for detail in span_details(span))
        suffix = f"  {details}" if details else ""
        _say(f"{'+' + format_duration(at):>12}  {title(span)}  {format_duration(took)}{suffix}")


def _watch_rollout(traces: RunningProcessTraces, wanted: Target, *, as_json: bool, live: bool) -> int:
    changing = traces.changing(wanted)
    began = time.monotonic()
    last = ""
    with _screen(live) as draw:
        while True:
            changed = changing.catch_up()
            if as_json:
                for line in changed:
                    _say(msgspec.json.encode(line).decode())
            else:
                found = rollout(str(wanted), [line for line in changing.now() if line.trace_id])
                if draw is not None:
                    draw(functools.partial(_rollout, found))
                elif (now := rollout_log_line(found)) != last:
                    last = now
                    _say(f"{time.monotonic() - began:6.1f} s  {now}")
            time.sleep(_LOOK_SECONDS)


def _waterfall(document: dict[str, Any], rows: int) -> Any:
    return waterfall(document, max_rows=rows)


def _rollout(found: Rollout, rows: int) -> Any:
    return rollout_view(found, max_lines=max(3, rows - len(found.phases) - 2), slowest=3)


@contextlib.contextmanager
def _screen(live: bool) -> Iterator[Callable[[Callable[[int], Any]], None] | None]:
    """Gives what draws a picture in place of the last one; it is told how many rows there are. None: not live."""
    if not live:
        yield None
        return
    from rich.console import Console
    from rich.live import Live

    console = Console(highlight=False)
    with Live(console=console, auto_refresh=False, vertical_overflow="ellipsis") as screen:

        def draw(picture: Callable[[int], Any]) -> None:
            screen.update(picture(max(6, console.height - _MARGIN_ROWS)), refresh=True)

        yield draw


def _say(text: str) -> None:
    print(text, flush=True)
