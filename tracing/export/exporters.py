"""Exporters that OTEL_TRACES_EXPORTER selects: kubeloop's own for `otlp` over HTTP, others through their entry points.

The modules of an exporter, and the OpenTelemetry SDK, are imported only if the exporter is selected.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Mapping, Sequence
from typing import Final, Protocol

from kubeloop.kube.user_error import UserError
from kubeloop.tracing.metrics_interface import TraceMetrics
from kubeloop.tracing.spans.trace import Trace

SHUTDOWN_SECONDS: Final = 4.0


class TraceExporter(Protocol):
    """Destination of finished traces outside of the process. Called on the event loop; must not block."""

    def export(self, trace: Trace, key: str = "") -> None:
        """Queue a trace. `key`: returned by delivered() when the trace was exported or dropped."""
        ...

    def delivered(self) -> list[str]:
        """Return the keys of traces that were exported or dropped since the last call."""
        ...

    def shut_down(self, within_seconds: float) -> None:
        """Send the remaining traces and wait for them; called in a thread."""
        ...


class Exporters:
    """The configured exporters; each of them gets every trace. A trace is delivered when all have delivered it."""

    def __init__(self, exporters: Sequence[TraceExporter]) -> None:
        self._exporters = exporters
        self._undelivered: dict[str, int] = {}  # number of exporters, by key

    def export(self, trace: Trace, key: str = "") -> None:
        if key and len(self._exporters) > 1:
            self._undelivered[key] = len(self._exporters)
        for exporter in self._exporters:
            exporter.export(trace, key)

    def delivered(self) -> list[str]:
        if len(self._exporters) == 1:
            return self._exporters[0].delivered()
        delivered = []
        for exporter in self._exporters:
            for key in exporter.delivered():
                self._undelivered[key] -= 1
                if not self._undelivered[key]:
                    del self._undelivered[key]
                    delivered.append(key)
        return delivered

    def shut_down(self, within_seconds: float) -> None:
        """Shut all down at the same time. A thread that does not end in time is abandoned: it ends with the process."""
        deadline = time.monotonic() + within_seconds + 1.0
        stops = [exporter.shut_down for exporter in self._exporters]
        threads = [threading.Thread(target=stop, args=(within_seconds,), daemon=True) for stop in stops]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(max(0.0, deadline - time.monotonic()))


def configured_exporters(environ: Mapping[str, str], metrics: TraceMetrics) -> Exporters | None:
    """Return the exporters of OTEL_TRACES_EXPORTER; None for no export. Raises UserError."""
    parts = (environ.get("OTEL_TRACES_EXPORTER") or "otlp").split(",")
    names = [name for part in parts if (name := part.strip().lower())]
    if "none" in names:
        if set(names) != {"none"}:
            raise UserError(
                "OTEL_TRACES_EXPORTER: none excludes other exporters", hint="set it to none, or to names of exporters"
            )
        return None
    exporters: list[TraceExporter] = []
    for name in dict.fromkeys(names):
        if name == "otlp" and not _otlp(environ, "ENDPOINT"):
            continue
        if name == "otlp" and _otlp(environ, "PROTOCOL") != "grpc":
            from kubeloop.tracing.export.otlp_exporter import OtlpExporter, export_settings

            exporters.append(OtlpExporter(export_settings(environ), metrics))
            continue
        from kubeloop.tracing.export.sdk_exporter import (
            GRPC_EXPORTER,
            SdkExporter,
            new_span_exporter,
            sdk_batch_settings,
        )

        exporter = new_span_exporter(GRPC_EXPORTER if name == "otlp" else name)
        exporters.append(SdkExporter(name, exporter, sdk_batch_settings(environ), metrics))
    return Exporters(exporters) if exporters else None


def _otlp(environ: Mapping[str, str], name: str) -> str:
    return (environ.get(f"OTEL_EXPORTER_OTLP_TRACES_{name}") or environ.get(f"OTEL_EXPORTER_OTLP_{name}", "")).strip()
