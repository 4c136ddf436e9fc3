"""`kubeloop replay`: a recorded cluster again in virtual time, and the report on it."""

from __future__ import annotations

import contextlib
import logging
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import BinaryIO

from kubeloop.cli.options.options import arguments_of
from kubeloop.cli.options.recording_options import ChangeOptions
from kubeloop.cli.options.replay_options import ReplayOptions
from kubeloop.cli.recording.plan import requested_changes
from kubeloop.cli.replay.trace_file import TraceFile
from kubeloop.kube.allocator import map_large_blocks
from kubeloop.kube.user_error import UserError
from kubeloop.recording.memory import REPLAY_PER_BYTE
from kubeloop.recording.sources.open import open_recording
from kubeloop.replay.replay import measure_recording, replay_options
from kubeloop.replay.replay import replay as run_replay
from kubeloop.replay.report import build_report
from kubeloop.replay.text import report_lines
from kubeloop.replay.user_actions import read_file


def replay(paths: Sequence[Path], options: ReplayOptions, change_options: ChangeOptions) -> int:
    """Run the command and return its exit code. Raises UserError for invalid input."""
    changes = requested_changes(change_options)
    if changes.fit and options.traces is not None:
        raise UserError("--traces and --fit are mutually exclusive", hint="add the nodes of the result by --add-nodes")
    configurations = {"default" if options.config is None else _name(options.config): options.config}
    for other in options.compare:
        if _name(other) in configurations:
            raise UserError(f"--compare: {other} has the name of another configuration", hint="rename the file")
        configurations[_name(other)] = other
    # before the first replay, which takes long
    clusters = {
        name: replay_options("" if file is None else str(file), seed=options.seed)
        for name, file in configurations.items()
    }
    for cluster in clusters.values():
        cluster.settings()
    map_large_blocks()
    recording = open_recording(paths, per_byte=REPLAY_PER_BYTE)
    day = read_file(recording)
    results = [measure_recording(recording, day)]
    with contextlib.ExitStack() as stack:
        stack.enter_context(_without_warnings())
        exporter = None
        if options.traces is not None:
            exporter = TraceFile(stack.enter_context(_opened(options.traces)))
        for name, cluster in clusters.items():
            results.append(run_replay(day, name, cluster, changes=changes, exporter=exporter))
            exporter = None
    report = build_report(day, results, seed=options.seed, changes=_arguments(change_options))
    if options.html is not None:
        from kubeloop.replay.page import report_page

        with _opened(options.html) as file:
            file.write(report_page(report).encode())
    if options.as_json:
        sys.stdout.buffer.write(report.to_json())
    else:
        print("\n".join(report_lines(report)))
    return 1 if any(run.fit is not None and run.fit.nodes is None for run in report.runs) else 0


@contextlib.contextmanager
def _without_warnings() -> Iterator[None]:
    """Log errors only: pods that fail as recorded are no news."""
    logger = logging.getLogger("kubeloop")
    level = logger.level
    logger.setLevel(logging.ERROR)
    try:
        yield
    finally:
        logger.setLevel(level)


def _arguments(options: ChangeOptions) -> list[str]:
    """Return the options that are set, as on the command line."""
    defaults = arguments_of(ChangeOptions())
    return [argument for argument in arguments_of(options) if argument not in defaults]


def _name(path: Path) -> str:
    return path.stem


def _opened(path: Path) -> contextlib.AbstractContextManager[BinaryIO]:
    try:
        return path.open("wb")
    except OSError as error:
        raise UserError(f"cannot write {path}: {error.strerror}", hint="choose another file") from None
