"""Receivers of traces: an OTLP collector on opentelemetry-proto, and Phoenix, a trace store from PyPI."""

from __future__ import annotations

import contextlib
import gzip
import json
import os
import shutil
import socket
import sqlite3
import subprocess
import threading
import time
import urllib.request
from collections import defaultdict
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import (
    ExportTraceServiceRequest,
    ExportTraceServiceResponse,
)
from opentelemetry.proto.common.v1.common_pb2 import AnyValue

PHOENIX = os.environ.get("KUBELOOP_PHOENIX") or shutil.which("phoenix")  # pip install arize-phoenix, 0.9 GB
_START_SECONDS = 90.0


@dataclass(frozen=True)
class ReceivedSpan:
    """A span as received. Times in ns; links as (trace ID, span ID)."""

    trace_id: str
    span_id: str
    parent_id: str
    name: str
    start: int
    end: int
    attributes: dict[str, Any] = field(compare=False)
    error: str | None = None
    links: tuple[tuple[str, str], ...] = ()
    events: tuple[str, ...] = ()


class Collector:
    """An OTLP/HTTP receiver that stores all requests.

    delay_seconds: before each response. status: of all responses. retry_after: header of responses that are errors.
    """

    def __init__(self) -> None:
        self.requests: list[ExportTraceServiceRequest] = []
        self.paths: set[str] = set()
        self.headers: list[dict[str, str]] = []
        self.delay_seconds = 0.0
        self.status = 200
        self.retry_after = ""
        self.first_statuses: list[int] = []  # of the first requests, instead of `status`
        collector = self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                body = self.rfile.read(int(self.headers["Content-Length"]))
                if self.headers.get("Content-Encoding") == "gzip":
                    body = gzip.decompress(body)
                time.sleep(collector.delay_seconds)
                collector.paths.add(self.path)
                collector.headers.append({name.lower(): value for name, value in self.headers.items()})
                status = collector.first_statuses.pop(0) if collector.first_statuses else collector.status
                if status == 200:
                    collector.requests.append(ExportTraceServiceRequest.FromString(body))
                response = ExportTraceServiceResponse().SerializeToString()
                with contextlib.suppress(ConnectionError):  # the sender may have timed out
                    self.send_response(status)
                    self.send_header("Content-Type", "application/x-protobuf")
                    self.send_header("Content-Length", str(len(response)))
                    if status != 200 and collector.retry_after:
                        self.send_header("Retry-After", collector.retry_after)
                    self.end_headers()
                    self.wfile.write(response)

            def log_message(self, *_: object) -> None:
                """Log nothing."""

        self.server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server.server_port}"

    @contextmanager
    def running(self) -> Iterator[Collector]:
        thread = threading.Thread(target=self.server.serve_forever, args=(0.02,))
        thread.start()
        try:
            yield self
        finally:
            self.server.shutdown()
            thread.join()
            self.server.server_close()

    def resources(self) -> list[dict[str, str]]:
        return [
            {attribute.key: attribute.value.string_value for attribute in part.resource.attributes}
            for request in self.requests
            for part in request.resource_spans
        ]

    def spans(self) -> list[ReceivedSpan]:
        return _received_spans(self.requests)

    def take_spans(self) -> list[ReceivedSpan]:
        """Return the spans, and remove their requests."""
        requests = self.requests[:]  # others may arrive meanwhile
        del self.requests[: len(requests)]
        return _received_spans(requests)


def _received_spans(requests: Iterable[ExportTraceServiceRequest]) -> list[ReceivedSpan]:
    return [
        ReceivedSpan(
            span.trace_id.hex(),
            span.span_id.hex(),
            span.parent_span_id.hex(),
            span.name,
            span.start_time_unix_nano,
            span.end_time_unix_nano,
            {attribute.key: _value(attribute.value) for attribute in span.attributes},
            span.status.message if span.status.code == 2 else None,
            tuple((link.trace_id.hex(), link.span_id.hex()) for link in span.links),
            tuple(event.name for event in span.events),
        )
        for request in requests
        for part in request.resource_spans
        for scope in part.scope_spans
        for span in scope.spans
    ]


class Phoenix:
    """Arize Phoenix as a process. Spans are read from its database, which stores microseconds."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        with socket.socket() as one, socket.socket() as other:
            one.bind(("127.0.0.1", 0))
            other.bind(("127.0.0.1", 0))
            self._port, grpc = one.getsockname()[1], other.getsockname()[1]
        self.url = f"http://127.0.0.1:{self._port}"
        self._environment = {
            **os.environ,
            "PHOENIX_WORKING_DIR": str(folder),
            "PHOENIX_HOST": "127.0.0.1",
            "PHOENIX_PORT": str(self._port),
            "PHOENIX_GRPC_PORT": str(grpc),
            "PHOENIX_TELEMETRY_ENABLED": "false",
        }

    @contextmanager
    def running(self) -> Iterator[Phoenix]:
        log = (self._folder / "phoenix.log").open("wb")
        process = subprocess.Popen([PHOENIX or "", "serve"], stdout=log, stderr=log, env=self._environment)
        try:
            deadline = time.monotonic() + _START_SECONDS
            while not self._is_healthy():
                assert process.poll() is None, (self._folder / "phoenix.log").read_text()[-2000:]
                assert time.monotonic() < deadline, "Phoenix does not start"
                time.sleep(0.2)
            yield self
        finally:
            process.terminate()
            process.wait(30)
            log.close()

    def _is_healthy(self) -> bool:
        try:
            with urllib.request.urlopen(f"{self.url}/healthz", timeout=5) as response:
                return bool(response.status == 200)
        except OSError:
            return False

    def spans(self) -> list[ReceivedSpan]:
        """Wait until no more spans arrive, because Phoenix stores them asynchronously, and return all spans."""
        before = -1
        while True:
            rows = self._rows()
            if len(rows) == before:
                return rows
            before = len(rows)
            time.sleep(2.0)

    def _rows(self) -> list[ReceivedSpan]:
        with sqlite3.connect(f"file:{self._folder / 'phoenix.db'}?mode=ro", uri=True) as database:
            rows = database.execute(
                "select t.trace_id, s.span_id, s.parent_id, s.name, s.start_time, s.end_time, s.attributes, "
                "s.status_code, s.status_message, s.events from spans s join traces t on t.id = s.trace_rowid"
            ).fetchall()
        return [
            ReceivedSpan(
                trace_id,
                span_id,
                parent_id or "",
                name,
                _ns(start),
                _ns(end),
                _flat(json.loads(attributes)),
                message if code == "ERROR" else None,
                (),
                tuple(event["name"] for event in json.loads(events)),
            )
            for trace_id, span_id, parent_id, name, start, end, attributes, code, message, events in rows
        ]


def by_trace(spans: list[ReceivedSpan]) -> dict[str, list[ReceivedSpan]]:
    traces = defaultdict(list)
    for span in spans:
        traces[span.trace_id].append(span)
    return traces


def _value(value: AnyValue) -> Any:
    kind = value.WhichOneof("value")
    if kind == "array_value":
        return [_value(item) for item in value.array_value.values]
    return getattr(value, kind) if kind else None


def _ns(text: str) -> int:
    moment = datetime.fromisoformat(text).replace(tzinfo=UTC) - datetime(1970, 1, 1, tzinfo=UTC)
    return (moment.days * 86_400 + moment.seconds) * 10**9 + moment.microseconds * 1000


def _flat(nested: dict[str, Any], prefix: str = "") -> dict[str, Any]:
    """Return nested attributes with dotted names; Phoenix stores dotted names as nested objects."""
    flat: dict[str, Any] = {}
    for name, value in nested.items():
        flat |= _flat(value, f"{prefix}{name}.") if isinstance(value, dict) else {f"{prefix}{name}": value}
    return flat
