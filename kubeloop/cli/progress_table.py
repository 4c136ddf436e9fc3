"""Progress table of `kubeloop up`, redrawn in place on a terminal."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator

from rich.console import Console, Group
from rich.live import Live
from rich.progress_bar import ProgressBar
from rich.table import Table
from rich.text import Text

from kubeloop.process.workload_progress import Progress, WorkloadProgress

_ROWS = 20


@contextlib.contextmanager
def progress_table() -> Iterator[Callable[[Progress, float, bool], None]]:
    """Yield the function that displays a Progress; the last one stays on the screen."""
    console = Console()
    with Live(console=console, refresh_per_second=10, transient=False) as display:

        def show(progress: Progress, seconds: float, finished: bool) -> None:
            display.update(_render(progress, seconds), refresh=finished)

        yield show


def _sign(workload: WorkloadProgress) -> Text:
    if workload.failure:
        return Text("✗", style="red")
    return Text("✓", style="green") if workload.complete else Text("…", style="yellow")


def _render(progress: Progress, seconds: float) -> Group:
    table = Table.grid(padding=(0, 2))
    incomplete_first = sorted(progress.workloads, key=lambda workload: workload.complete)
    for workload in incomplete_first[:_ROWS]:
        table.add_row(
            _sign(workload),
            f"{workload.namespace}/{workload.title}",
            ProgressBar(total=max(workload.replicas, 1), completed=workload.available, width=24),
            workload.state,
        )
    if len(incomplete_first) > _ROWS:
        table.add_row("", f"and {len(incomplete_first) - _ROWS} more")
    rate = f", {progress.bound / seconds:.0f} bound/s" if seconds > 0 else ""
    return Group(table, Text(f"{seconds:.1f} s  {progress.line()}{rate}", style="dim"))
