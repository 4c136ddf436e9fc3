"""Terminal view of a rollout: pods as lines over time, percentiles per phase, slowest pods.

Imports rich, the standard library and this folder only.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence

from rich.console import Console, ConsoleOptions, RenderResult
from rich.table import Table
from rich.text import Text

from kubeloop.tracing.views.columns import fitting_columns, text_width, word_width
from kubeloop.tracing.views.phases import PHASES
from kubeloop.tracing.views.pod_lines import PodLine
from kubeloop.tracing.views.rollout import PhaseTimes, Rollout, phase_sums
from kubeloop.tracing.views.time_format import format_duration, format_time

_MIN_BAR_COLUMNS = 20
_MAX_BAR_COLUMNS = 100
_MIN_DETAIL_COLUMNS = 20
_COLORS = {phase.key: phase.color for phase in PHASES}
_TITLES = {phase.key: phase.title for phase in PHASES} | {"total": "created to bound"}


class RolloutView:
    """Result of `rollout_view`, a rich renderable as wide as the console."""

    def __init__(self, rollout: Rollout, max_lines: int, slowest: int) -> None:
        self._rollout = rollout
        self._max_lines = max_lines
        self._slowest = slowest

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        rollout = self._rollout
        yield self._title()
        if not rollout.lines:
            return
        yield Text()
        yield self._percentiles(options.max_width)
        yield from self._waiting()
        if self._max_lines:
            yield Text()
            yield from self._pods(options.max_width)
        if self._slowest and len(rollout.lines) > self._max_lines:
            yield Text()
            yield from self._slowest_pods(options.max_width)

    def _title(self) -> Text:
        rollout = self._rollout
        stages = ", ".join(f"{count} {stage}" for stage, count in rollout.stages.items())
        title = Text.assemble((rollout.title, "bold"), f"  {_count(len(rollout.lines))}: {stages or 'none'}")
        if rollout.lines:
            title.append(f"\nfrom {format_time(rollout.start_us * 1000)}, {format_duration(rollout.duration_us)}")
            title.append(f", {_rate(rollout)}" if rollout.rate else "", style="green")
        return title

    def _percentiles(self, width: int) -> Table:
        rollout = self._rollout
        times_of_phases: list[PhaseTimes] = [*rollout.phases, *([rollout.total] if rollout.total is not None else [])]
        is_uncertain = any(times.uncertainty_us for times in times_of_phases)
        exact_to = ["exact to"] if is_uncertain else []
        rows = [("  phase", "pods", "p50", "p90", "p99", "max", *exact_to, "of all time")]
        for times in times_of_phases:
            total = times.phase == "total"
            uncertainty = f"±{format_duration(times.uncertainty_us)}" if times.uncertainty_us else ""
            rows.append(
                (
                    f"{'  ' if total else '■ '}{_TITLES[times.phase]}",
                    str(times.pods),
                    *(format_duration(time_us) for time_us in (times.p50_us, times.p90_us, times.p99_us, times.max_us)),
                    *([uncertainty] if is_uncertain else []),
                    "" if total else f"{times.share:.0%}",
                )
            )
        gap = 1 if is_uncertain else 2
        columns = range(len(rows[0]))
        widths = [text_width(row[column] for row in rows) for column in columns]
        optional = [*reversed(columns[6:]), 3, 4, 1, 2]  # phase and max stay
        table = Table.grid(padding=(0, gap))
        shown = fitting_columns(widths, optional, width, gap=gap)
        widths[0] = max(1, min(widths[0], width - sum(widths[column] + gap for column in shown[1:])))
        for column in shown:
            table.add_column(justify="right" if column else "left", no_wrap=True, width=widths[column])
        for number, row in enumerate(rows):
            phase = Text(row[0])
            if not number:
                phase = Text("phase", style="dim")
            elif row[0].startswith("■"):
                phase.stylize(_COLORS.get(times_of_phases[number - 1].phase, ""), 0, 1)
            else:
                phase.stylize("bold")
            style = "" if number else "dim"
            table.add_row(phase, *(Text(row[column], style=style) for column in shown[1:]))
        return table

    def _waiting(self) -> Iterator[Text]:
        if self._rollout.waiting:
            yield Text(f"  {_not_bound(self._rollout)}", style="yellow")

    def _pods(self, width: int) -> RenderResult:
        """Yield the lines of pods over time: all, or as many as fit, evenly spread over the rollout."""
        rollout = self._rollout
        shown = _evenly(rollout.lines, self._max_lines)
        if len(shown) < len(rollout.lines):
            yield Text(f"{len(shown)} of {len(rollout.lines)} pods, evenly spread:", style="dim")
        names = min(max(len(_label(line)) for line in shown), max(12, width // 3))
        durations = [format_duration(line.duration_us, line.uncertainty_us()) for line in shown]
        columns = min(_MAX_BAR_COLUMNS, width - names - 3 - max(10, *map(len, durations)))
        has_bars = columns >= _MIN_BAR_COLUMNS
        if not has_bars:
            names = max(1, min(max(len(_label(line)) for line in shown), width - max(map(len, durations)) - 1))
        table = Table.grid(padding=(0, 1))
        table.add_column(no_wrap=True, width=names, overflow="ellipsis")
        if has_bars:
            yield Text(f"{'':{names}} 0{format_duration(rollout.duration_us):>{columns - 1}}", style="dim")
            table.add_column(no_wrap=True, width=columns)
        table.add_column(justify="right", no_wrap=True)
        for line, duration in zip(shown, durations, strict=True):
            style = "yellow" if line.is_open else "red" if line.stage in ("failed", "deleted") else ""
            table.add_row(
                Text(_label(line), style=style),
                *([_bar(line, rollout.start_us, max(1, rollout.duration_us), columns)] if has_bars else []),
                duration,
            )
        yield table

    def _slowest_pods(self, width: int) -> RenderResult:
        yield Text("slowest:", style="dim")
        rows = []
        for line in self._rollout.slowest(self._slowest):
            sums, _ = phase_sums(line)
            longest = max(sums)
            where = f"{PHASES[sums.index(longest)].title} {format_duration(longest)}" if longest else ""
            attempts = f"{line.attempts} attempts" if line.attempts > 1 else ""
            details = ", ".join(filter(None, (where, attempts, line.reason)))
            duration = format_duration(line.duration_us, line.uncertainty_us())
            rows.append((f"  {_label(line)}", duration, details))
        names, durations, details_width = (text_width(column) for column in zip(*rows, strict=True))
        names = max(1, min(names, width - durations - 2))
        readable = max(min(details_width, _MIN_DETAIL_COLUMNS), word_width(row[2] for row in rows))
        shown = fitting_columns([names, durations, readable], [2], width, gap=2)
        table = Table.grid(padding=(0, 2))
        table.add_column(no_wrap=True, width=names, overflow="ellipsis")
        table.add_column(no_wrap=True, width=durations)
        for name, duration, details in rows:
            table.add_row(Text(name), duration, *([Text(details, style="dim")] if 2 in shown else []))
        yield table


def rollout_view(rollout: Rollout, *, max_lines: int = 30, slowest: int = 5) -> RolloutView:
    """Return a rollout as a rich renderable. max_lines: pods drawn; slowest: listed if not all are drawn."""
    return RolloutView(rollout, max_lines, slowest)


def rollout_log_line(rollout: Rollout) -> str:
    """Return one log line: "9 pods: 8 bound, 1 queued; 31.5 pods bound/s; created to bound p50 12 ms, p99 80 ms"."""
    stages = ", ".join(f"{count} {stage}" for stage, count in rollout.stages.items())
    parts = [f"{_count(len(rollout.lines))}: {stages or 'none'}"]
    if rollout.rate:
        parts.append(_rate(rollout))
    if rollout.total is not None:
        total = rollout.total
        exact_to = f", exact to {format_duration(total.uncertainty_us)}" if total.uncertainty_us else ""
        parts.append(
            f"created to bound p50 {format_duration(total.p50_us)}, p99 {format_duration(total.p99_us)}{exact_to}"
        )
    if rollout.waiting:  # without their time: a line would differ from the last one at each poll
        parts.append(f"{_count(rollout.waiting)} not bound")
    return "; ".join(parts)


def _rate(rollout: Rollout) -> str:
    return f"{rollout.rate:.1f} pods bound/s" if rollout.rate >= 1 else f"{rollout.rate:.2g} pods bound/s"


def _not_bound(rollout: Rollout) -> str:
    return f"{_count(rollout.waiting)} not bound for up to {format_duration(rollout.waiting_max_us)}"


def _label(line: PodLine) -> str:
    return line.name or "(never created)"


def _count(pods: int) -> str:
    return f"{pods} pod{'' if pods == 1 else 's'}"


def _evenly(lines: Sequence[PodLine], most: int) -> list[PodLine]:
    """Return at most `most` lines, including the first and the last."""
    if len(lines) <= most:
        return [*lines]
    if most == 1:
        return [lines[0]]
    return [lines[round(index * (len(lines) - 1) / (most - 1))] for index in range(most)]


def _bar(line: PodLine, start_us: int, total_us: int, columns: int) -> Text:
    """Draw a line: each column has the colour of the phase that fills most of it; every pod has at least one mark."""
    offset = line.start_us - start_us
    by_column = [[0] * len(PHASES) for _ in range(columns)]  # thousandths of a column, by phase
    for phase, at, took in line.triples():
        first, last = (offset + at) / total_us * columns, (offset + at + took) / total_us * columns
        for column in range(max(0, int(first)), min(columns, int(last) + 1)):
            covered = min(last, column + 1) - max(first, column)
            by_column[column][phase] += max(0, round(covered * 1000))
    cells = []
    for filled in by_column:
        most = max(filled)
        mark = "█" if sum(filled) >= 500 else "▌"
        cells.append((mark, PHASES[filled.index(most)].color) if most else (" ", ""))
    text = Text()
    for cell, same in itertools.groupby(cells):
        text.append(cell[0] * len([*same]), style=cell[1])
    if not text.plain.strip():
        at = min(columns - 1, int(offset / total_us * columns))
        text = Text.assemble(" " * at, ("▏", "white"), " " * (columns - at - 1))
    return text
