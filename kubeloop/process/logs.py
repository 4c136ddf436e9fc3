"""Log records on stderr, one line each: text, or JSON with `--log-format json`.

Records that kubeloop, or an author's controller, logs during work on a pod or a reconcile carry its trace and span, in
both formats.
"""

from __future__ import annotations

import json
import logging
import sys
from collections.abc import Iterable
from datetime import UTC, datetime
from typing import Any, Final, Literal, TextIO

from kubeloop.kube.client.current_span import log_traceparent
from kubeloop.tracing.spans.traceparent import parse_traceparent

_TEXT: Final = "%(asctime)s %(levelname)s %(name)s: %(message)s"
_OWN: Final = frozenset(vars(logging.makeLogRecord({}))) | {"message", "asctime", "taskName"}


class TraceFilter(logging.Filter):
    """Adds `trace_id` and `span_id` to the records that a reconcile logs, for a handler: OpenTelemetry's names.

    packages: loggers, with their children, whose records get them, besides kubeloop's. A reconcile that logs such a
    record is exported, even if it changes nothing.
    """

    def __init__(self, *packages: str) -> None:
        super().__init__()
        self.packages = {"kubeloop", *packages}

    def filter(self, record: logging.LogRecord) -> bool:
        """Return True. Runs in the task that logs, unlike formatters."""
        if record.name.partition(".")[0] in self.packages and not hasattr(record, "trace_id"):
            context = parse_traceparent(log_traceparent())
            if context is not None:
                record.trace_id, record.span_id = context.trace_id, context.span_id
        return True


_traces: Final = TraceFilter()  # of the handler of this process


def configure_logging(verbosity: str, log_format: Literal["text", "json"] = "text") -> None:
    """Log kubeloop's records at `verbosity` ("error" to "debug") and above; other libraries' at warning and above."""
    handler = StderrHandler()
    handler.addFilter(_traces)
    handler.setFormatter(JsonLines() if log_format == "json" else TextLines(_TEXT))
    logging.basicConfig(level=logging.WARNING, handlers=[handler])
    logging.getLogger("kubeloop").setLevel(verbosity.upper())
    # a dump that was requested with a signal is logged at any verbosity
    logging.getLogger("kubeloop.process.control_plane.scheduler_dump").setLevel(logging.INFO)


def configure_packages(packages: Iterable[str], verbosity: str) -> None:
    """Log the records of these packages, which contain controllers, like kubeloop's own."""
    for package in packages:
        logging.getLogger(package).setLevel(verbosity.upper())
        _traces.packages.add(package)


class StderrHandler(logging.StreamHandler[TextIO]):
    """Writes to the present sys.stderr, which a live display replaces so that records appear above it."""

    def __init__(self) -> None:
        logging.Handler.__init__(self)

    @property
    def stream(self) -> TextIO:  # type: ignore[override]  # as in logging's own handler of last resort
        return sys.stderr


class TextLines(logging.Formatter):
    """The message, then fields in brackets: pod=default/web-1 trace_id=4bf9... span_id=00f0..."""

    def formatMessage(self, record: logging.LogRecord) -> str:  # noqa: N802  # logging's name
        args = {str(arg) for arg in record.args} if isinstance(record.args, tuple) else ()
        fields = " ".join(f"{name}={value}" for name, value in _fields(record).items() if str(value) not in args)
        line = super().formatMessage(record)
        return f"{line} [{fields}]" if fields else line


class JsonLines(logging.Formatter):
    """{"time", "level", "logger", "message", fields, "trace_id", "span_id", "error"}, one object per line.

    Times are RFC 3339 in UTC; trace_id and span_id have the names of OpenTelemetry's "Trace Context in non-OTLP Log
    Formats".
    """

    def format(self, record: logging.LogRecord) -> str:
        document: dict[str, Any] = {
            "time": datetime.fromtimestamp(record.created, UTC).isoformat(timespec="microseconds"),
            "level": record.levelname.lower(),
            "logger": record.name,
            "message": record.getMessage(),
        }
        for name, value in _fields(record).items():
            document[name if name not in document else f"{name}_"] = value
        if record.exc_info:
            document["error"] = self.formatException(record.exc_info)
        return json.dumps(document, default=str)


def _fields(record: logging.LogRecord) -> dict[str, Any]:
    """Return the fields of extra=, and the trace."""
    return {name: value for name, value in vars(record).items() if name not in _OWN}
