"""The option --trace-journal of `kubeloop run` and `kubeloop observe`."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from kubeloop.process.process_files import runtime_directory
from kubeloop.tracing.journal.trace_journal import TraceJournal


def journal_opener(folder: str | None, server: str) -> Callable[[], TraceJournal] | None:
    """Return what opens the trace journal in `folder` (default: the runtime directory); None if it is "".

    server: the API server or scope that the traces belong to.
    """
    if folder == "":
        return None
    return lambda: TraceJournal(Path(folder) if folder is not None else runtime_directory(), server)
