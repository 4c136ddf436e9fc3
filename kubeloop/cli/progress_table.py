"""Progress table of `kubeloop up`, redrawn in place on a terminal."""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Callable, Iterator

from rich.console import Console, ConsoleOptions, RenderResult
from rich.live import Live
from rich.progress_bar import ProgressBar
from rich.table import Table
from rich.text import Text

from kubeloop.cli.terminal import output_console
from kubeloop.process.workload_progress import Progress, WorkloadProgress
from kubeloop.tracing.views.columns import fitting_columns, text_width, word_width

_ROWS = 20
_BAR_COLUMNS = 24
_MIN_NAME_COLUMNS = 12
_MAX_STATE_COLUMNS = 40  # longer ones are wrapped


@contextlib.contextmanager
def progress_table(*, rates: bool = True) -> Iterator[Callable[[Progress, float, bool], None]]:
    """Yield the function that displays a Progress; the last one stays on the screen.

    rates: show the time, and the pods bound per second of it. Other output appears above the table.
    """
    with Live(console=output_console(), auto_refresh=False, redirect_stderr=sys.stderr.isatty()) as display:

        def show(progress: Progress, seconds: float, finished: bool) -> None:
            display.update(ProgressTable(progress, seconds if rates else None), refresh=True)

        yield show


class ProgressTable:
    """A Progress as a rich renderable as wide as the console. seconds: since the manifests were applied."""

    def __init__(self, progress: Progress, seconds: float | None) -> None:
        self._progress = progress
        self._seconds = seconds

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        progress, seconds = self._progress, self._seconds
        incomplete_first = sorted(progress.workloads, key=lambda workload: workload.complete)
        shown_workloads = incomplete_first[:_ROWS]
        names = [f"{workload.namespace}/{workload.title}" for workload in shown_workloads]
        states = [workload.state for workload in shown_workloads]
        available = options.max_width - 5  # for name and state, next to the sign
        room = available - min(text_width(names), _MIN_NAME_COLUMNS)
        state_columns = max(min(text_width(states), _MAX_STATE_COLUMNS, room), word_width(states))
        name_columns = max(1, min(text_width(names), available - state_columns))
        widths = [1, name_columns, _BAR_COLUMNS, state_columns]
        shown = fitting_columns(widths, [2], options.max_width, gap=2)
        table = Table.grid(padding=(0, 2))
        for index in shown:
            table.add_column(no_wrap=index < 3, overflow="ellipsis", width=widths[index])
        for workload, name, state in zip(shown_workloads, names, states, strict=True):
            bar = ProgressBar(total=max(workload.replicas, 1), completed=workload.available, width=_BAR_COLUMNS)
            cells = (_sign(workload), Text(name), bar, Text(state))
            table.add_row(*(cells[index] for index in shown))
        if len(incomplete_first) > _ROWS:
            table.add_row("", f"and {len(incomplete_first) - _ROWS} more")
        yield table
        line = progress.line()
        if seconds is not None:
            rate = f", {progress.bound / seconds:.0f} bound/s" if seconds > 0 else ""
            line = f"{seconds:.1f} s  {line}{rate}"
        yield Text(line, style="dim")


def _sign(workload: WorkloadProgress) -> Text:
    if workload.failure:
        return Text("✗", style="red")
    return Text("✓", style="green") if workload.complete else Text("…", style="yellow")
