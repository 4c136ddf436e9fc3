"""Log records on stderr, one line each: text for people, or JSON for machines (`--log-format`).

Records that are logged while a pod or a reconcile is worked on carry its trace and span, in both forms.
"""

from __future__ import annotations

import logging
import sys
from datetime import UTC, datetime
from typing import Any, Final, Literal

from kubeloop.tracing.recording.current_span import log_traceparent
from kubeloop.tracing.spans.traceparent import parse_traceparent

_TEXT: Final = "%(asctime)s %(levelname)s %(name)s: %(message)s"
_OWN: Final = frozenset(vars(logging.makeLogRecord({}))) | {"message", "asctime", "taskName", "traceparent"}


def configure_logging(verbosity: str, log_format: Literal["text", "json"] = "text") -> None:
    """Print kubeloop's records from `verbosity` ("error" to "debug") on; other libraries' from warning on."""
    handler = logging.StreamHandler(sys.stderr)
    handler.addFilter(_note_trace)
    handler.setFormatter(JsonLines() if log_format == "json" else TextLines(_TEXT))
    logging.basicConfig(level=logging.WARNING, handlers=[handler])
    logging.getLogger("kubeloop").setLevel(verbosity.upper())
    # what somebody asked for with a signal is not noise, however quiet the log was made
    logging.getLogger("kubeloop.process.scheduler_dump").setLevel(logging.INFO)


class TextLines(logging.Formatter):
    """The message, and in brackets what else it is about: pod=default/web-1 trace_id=4bf9... span_id=00f0..."""

    def formatMessage(self, record: logging.LogRecord) -> str:  # noqa: N802  # logging's name
        told = {str(each) for each in record.args} if isinstance(record.args, tuple) else ()
        about = " ".join(f"{name}={value}" for name, value in _fields(record).items() if str(value) not in told)
        line = super().formatMessage(record)
        return f"{line} [{about}]" if about else line


class JsonLines(logging.Formatter):
    """{"time", "level", "logger", "message", what it is about, "trace_id", "span_id", "error"}, one object a line.

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
        import json

        return json.dumps(document, default=str)


def _note_trace(record: logging.LogRecord) -> bool:
    """Here, where the record is made: its task knows whose work it does."""
    if not hasattr(record, "traceparent"):
        record.traceparent = log_traceparent() if record.name.startswith("kubeloop") else ""
    return True


def _fields(record: logging.LogRecord) -> dict[str, Any]:
    """What was given with extra=, and the trace."""
    fields = {name: value for name, value in vars(record).items() if name not in _OWN}
    context = parse_traceparent(getattr(record, "traceparent", ""))
    if context is not None:
        fields["trace_id"], fields["span_id"] = context.trace_id, context.span_id
    return fields
