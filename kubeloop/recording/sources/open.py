"""The input of a command: a recording, or files that other tools wrote."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Final

from kubeloop.kube.user_error import UserError
from kubeloop.recording.memory import MEMORY_PER_BYTE, MemoryLimit
from kubeloop.recording.reader import RecordingFile
from kubeloop.recording.sources.collected import CollectedRecording
from kubeloop.recording.sources.csv_tables import read_csv_table
from kubeloop.recording.sources.manifests import read_manifest_files
from kubeloop.recording.sources.simkube import read_simkube_trace
from kubeloop.recording.writer import FORMAT

_GZIP: Final = b"\x1f\x8b"
_SIMKUBE: Final = ".sktrace"


def open_recording(paths: Sequence[Path], *, per_byte: int = MEMORY_PER_BYTE) -> RecordingFile | CollectedRecording:
    """Return the recording of a file, or of several that belong together: a trace and its nodes, tables, manifests.

    The kind of a file is seen by its content; a trace of SimKube by its suffix. per_byte: see MemoryLimit. Raises
    UserError.
    """
    name = ", ".join(map(str, paths))
    limit = MemoryLimit(name, per_byte=per_byte)
    recordings = [path for path in paths if _is_recording(path)]
    if recordings:
        if len(paths) > 1:
            raise UserError(
                f"{recordings[0]} is a recording, and cannot be combined with other files", hint="name one file"
            )
        return RecordingFile(recordings[0], limit=limit)
    traces = [path for path in paths if path.suffix == _SIMKUBE]
    if len(traces) > 1:
        raise UserError("only one trace of SimKube can be read", hint="remove one")
    recording = read_simkube_trace(traces[0]) if traces else CollectedRecording(name)
    for path in paths:
        if path.suffix == ".csv":
            read_csv_table(recording, path)
        elif path not in traces:
            read_manifest_files(recording, path, on_bytes=limit.add)
    return recording.finish()


def _is_recording(path: Path) -> bool:
    if path.is_dir():
        return False
    try:
        with path.open("rb") as file:
            begin = file.read(64)
    except OSError as error:
        raise UserError(f"cannot read {path}: {error.strerror}", hint="check the path") from None
    return begin.startswith(_GZIP) or f'"{FORMAT}"'.encode() in begin
