"""Traces of a replay as a file of OTLP JSON, one trace per line."""

from __future__ import annotations

from typing import BinaryIO

import msgspec

from kubeloop import __version__
from kubeloop.tracing.spans.trace import Trace
from kubeloop.tracing.views.otlp_json import to_otlp


class TraceFile:
    """A TraceExporter that writes each trace at once."""

    def __init__(self, file: BinaryIO) -> None:
        self._file = file
        self._delivered: list[str] = []

    def export(self, trace: Trace, key: str = "") -> None:
        self._file.write(msgspec.json.encode(to_otlp([trace.document()], version=__version__)) + b"\n")
        self._delivered.append(key)

    def delivered(self) -> list[str]:
        delivered, self._delivered = self._delivered, []
        return delivered

    def shut_down(self, within_seconds: float) -> None:
        self._file.flush()
