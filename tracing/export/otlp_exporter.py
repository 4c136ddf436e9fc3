"""Exporter of finished traces to an OTLP/HTTP endpoint, in a thread that never blocks the event loop.

    export(trace): encode on the loop -> bounded queue -> thread: one POST for many whole traces -> delivered()

A trace is never split between requests: a killed process has sent all of it or nothing. Follows the standard variables
OTEL_EXPORTER_OTLP_* and OTEL_BSP_*. The OpenTelemetry SDK is imported only for the resource and for the tracers of
plugins (`provider`).
"""

from __future__ import annotations

import gzip
import logging
import math
import ssl
import threading
import time
import urllib.error
import urllib.parse
import urllib.request
from collections import deque
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from importlib.metadata import PackageNotFoundError, version
from typing import TYPE_CHECKING, Final

from kubeloop.kube.errors import UserError
from kubeloop.tracing.export.otlp_encoding import TraceEncoder
from kubeloop.tracing.metrics_interface import DropReason, TraceMetrics
from kubeloop.tracing.spans.trace import Attributes, Trace

if TYPE_CHECKING:
    from opentelemetry.sdk.trace import TracerProvider

log = logging.getLogger(__name__)

# A rollout produces the SDK's default queue of 2,048 spans in a fraction of a second. OTEL_BSP_* override these values.
QUEUE_SPANS: Final = 200_000  # some 40 MB
BATCH_SPANS: Final = 2_000
DELAY_SECONDS: Final = 5.0
ATTEMPT_SECONDS: Final = 10.0
BATCH_SECONDS: Final = 30.0  # per batch, including retries
_FIRST_RETRY_SECONDS: Final = 1.0
_RETRIED_STATUSES: Final = (429, 502, 503, 504)  # https://opentelemetry.io/docs/specs/otlp/#retryable-response-codes
_VARIABLE: Final = "OTEL_EXPORTER_OTLP_"


@dataclass(frozen=True, slots=True)
class ExportSettings:
    """Settings of the exporter. Times in seconds; queue and batch sizes in spans."""

    url: str
    headers: Mapping[str, str] = field(default_factory=dict)
    attempt_seconds: float = ATTEMPT_SECONDS
    is_gzip: bool = False
    certificate: str = ""
    client_certificate: str = ""
    client_key: str = ""
    queue_spans: int = QUEUE_SPANS
    batch_spans: int = BATCH_SPANS
    delay_seconds: float = DELAY_SECONDS
    batch_seconds: float = BATCH_SECONDS


def export_settings(environ: Mapping[str, str]) -> ExportSettings:
    """Read the OTEL_* variables. Raises UserError for an invalid endpoint; logs and ignores other invalid values."""

    def otlp(name: str) -> str:
        return (environ.get(f"{_VARIABLE}TRACES_{name}") or environ.get(f"{_VARIABLE}{name}", "")).strip()

    url = environ.get(f"{_VARIABLE}TRACES_ENDPOINT", "").strip()
    if not url:
        url = environ.get(f"{_VARIABLE}ENDPOINT", "").strip().rstrip("/") + "/v1/traces"
    if urllib.parse.urlsplit(url).scheme not in ("http", "https"):
        raise UserError(f"OTEL_EXPORTER_OTLP_ENDPOINT: '{url}' is no URL", hint="for example http://localhost:4318")
    protocol = otlp("PROTOCOL")
    if protocol not in ("", "http/protobuf"):
        log.warning("spans are exported by http/protobuf only", extra={"protocol": protocol})

    def batching(name: str, default: float) -> float:
        return _number(f"OTEL_BSP_{name}", environ.get(f"OTEL_BSP_{name}", "").strip(), default)

    queue = batching("MAX_QUEUE_SIZE", QUEUE_SPANS)
    return ExportSettings(
        url=url,
        headers=_headers(otlp("HEADERS")),
        # The specification counts milliseconds, the Python SDK seconds; as the SDK's users have set it: seconds.
        attempt_seconds=_number(f"{_VARIABLE}TIMEOUT", otlp("TIMEOUT"), ATTEMPT_SECONDS),
        is_gzip=otlp("COMPRESSION") == "gzip",
        certificate=otlp("CERTIFICATE"),
        client_certificate=otlp("CLIENT_CERTIFICATE"),
        client_key=otlp("CLIENT_KEY"),
        queue_spans=int(queue),
        batch_spans=int(min(queue, batching("MAX_EXPORT_BATCH_SIZE", BATCH_SPANS))),
        delay_seconds=batching("SCHEDULE_DELAY", DELAY_SECONDS * 1000) / 1000,
        batch_seconds=batching("EXPORT_TIMEOUT", BATCH_SECONDS * 1000) / 1000,
    )


class OtlpExporter:
    """A TraceExporter for OTLP/HTTP. Starts its thread with the first trace; shut_down() ends it.

    _queue and _spans are shared with the thread, under _changed. _delivered holds the keys of traces that were sent or
    dropped until delivered() is called.
    """

    def __init__(self, settings: ExportSettings, metrics: TraceMetrics | None = None) -> None:
        """Raises UserError if a certificate cannot be read."""
        self._settings = settings
        self._metrics = metrics or TraceMetrics()
        self._encoder = TraceEncoder(resource_attributes(), "kubeloop", kubeloop_version())
        self._opener = _opener(settings)
        self._queue: deque[tuple[bytes, int, str]] = deque()
        self._spans = 0
        self._changed = threading.Condition()
        self._thread: threading.Thread | None = None
        self._stop_at: float | None = None
        self._delivered: deque[str] = deque()
        self._is_dropping = False
        self._provider: TracerProvider | None = None

    @property
    def provider(self) -> TracerProvider:
        """The SDK's TracerProvider with the same destination, for spans of plugins; created on demand."""
        if self._provider is None:
            from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
            from opentelemetry.sdk.resources import Resource
            from opentelemetry.sdk.trace import TracerProvider
            from opentelemetry.sdk.trace.export import BatchSpanProcessor

            self._provider = TracerProvider(resource=Resource(resource_attributes()), shutdown_on_exit=False)
            self._provider.add_span_processor(BatchSpanProcessor(OTLPSpanExporter()))
        return self._provider

    def export(self, trace: Trace, key: str = "") -> None:
        """Queue a trace. `key`: returned by delivered() when the trace was sent or dropped."""
        piece = self._encoder.encode(trace)
        dropped = 0
        with self._changed:
            self._queue.append((piece, len(trace.spans), key))
            self._spans += len(trace.spans)
            while self._spans > self._settings.queue_spans and len(self._queue) > 1:
                dropped += self._drop_oldest()
            if self._spans >= self._settings.batch_spans:
                self._changed.notify()
        if dropped:
            self._report_dropped("queue full", dropped)
        if self._thread is None:
            self._thread = threading.Thread(target=self._send_forever, name="otlp-export", daemon=True)
            self._thread.start()

    def delivered(self) -> list[str]:
        """Return the keys of traces that the collector received, or that were dropped, since the last call."""
        keys = []
        while self._delivered:
            keys.append(self._delivered.popleft())
        return keys

    def shut_down(self, within_seconds: float = 4.0) -> None:
        """Send the remaining traces and wait for them; called in a thread."""
        with self._changed:
            self._stop_at = time.monotonic() + within_seconds
            self._changed.notify()
        if self._thread is not None:
            self._thread.join(within_seconds + 1.0)
        if self._provider is not None:
            self._provider.shutdown()

    # --- the thread ------------------------------------------------------------------------------------------------

    def _send_forever(self) -> None:
        while True:
            with self._changed:
                if self._stop_at is None and self._spans < self._settings.batch_spans:
                    self._changed.wait(self._settings.delay_seconds)
                stopping = self._stop_at is not None
                too_late = self._stop_at is not None and time.monotonic() >= self._stop_at
                dropped = sum(self._drop_oldest() for _ in range(len(self._queue))) if too_late else 0
                batch = self._take()
            if dropped:
                self._report_dropped("shutdown", dropped)
            if batch:
                self._send(batch)
            elif stopping:
                return

    def _take(self) -> list[tuple[bytes, int, str]]:
        """The oldest traces, as many as are one batch."""
        batch: list[tuple[bytes, int, str]] = []
        spans = 0
        while self._queue and (not batch or spans + self._queue[0][1] <= self._settings.batch_spans):
            piece = self._queue.popleft()
            spans += piece[1]
            batch.append(piece)
        self._spans -= spans
        return batch

    def _send(self, batch: Sequence[tuple[bytes, int, str]]) -> None:
        body = self._encoder.request(piece for piece, _, _ in batch)
        spans = sum(count for _, count, _ in batch)
        failure = self._post_with_retries(gzip.compress(body, 1) if self._settings.is_gzip else body)
        self._delivered.extend(key for _, _, key in batch if key)
        if failure is None:
            self._metrics.spans_exported(spans)
            if self._is_dropping:
                self._is_dropping = False
                log.warning("traces are exported again", extra={"endpoint": self._settings.url})
        else:
            reason, text = failure
            self._report_dropped(reason, spans, text)

    def _post_with_retries(self, body: bytes) -> tuple[DropReason, str] | None:
        """Send a batch, with retries until it expires. Returns None on success, else reason and text of the failure."""
        give_up_at = time.monotonic() + self._settings.batch_seconds
        delay_seconds = _FIRST_RETRY_SECONDS
        while True:
            failure = self._post(body)
            if failure is None or failure[0] == "refused":
                return failure
            with self._changed:
                if self._stop_at is not None:
                    give_up_at = min(give_up_at, self._stop_at)
                if time.monotonic() + delay_seconds >= give_up_at or self._is_dropping:
                    return failure  # while the endpoint is down, one attempt per batch: the queue must not stall
                self._changed.wait(delay_seconds)
            delay_seconds *= 2

    def _post(self, body: bytes) -> tuple[DropReason, str] | None:
        headers = {**self._settings.headers, "Content-Type": "application/x-protobuf", "User-Agent": "kubeloop"}
        if self._settings.is_gzip:
            headers["Content-Encoding"] = "gzip"
        seconds = self._settings.attempt_seconds
        with self._changed:
            if self._stop_at is not None:
                seconds = max(0.1, min(seconds, self._stop_at - time.monotonic()))
        request = urllib.request.Request(self._settings.url, data=body, headers=headers, method="POST")
        try:
            with self._opener.open(request, timeout=seconds) as response:
                response.read()
        except urllib.error.HTTPError as error:
            error.close()
            return ("unreachable" if error.code in _RETRIED_STATUSES else "refused"), f"HTTP status {error.code}"
        except (OSError, ValueError) as error:
            return "unreachable", str(getattr(error, "reason", None) or error)
        except Exception as error:  # of http.client, such as an incomplete response: the thread must not end
            return "unreachable", f"{type(error).__name__}: {error}"
        return None

    def _drop_oldest(self) -> int:
        _, spans, key = self._queue.popleft()
        self._spans -= spans
        if key:
            self._delivered.append(key)
        return spans

    def _report_dropped(self, reason: DropReason, spans: int, text: str = "") -> None:
        self._metrics.spans_dropped(reason, spans)
        with self._changed:  # both threads drop spans, one of them logs it
            was_losing, self._is_dropping = self._is_dropping, True
        if not was_losing:
            log.warning(
                "cannot export traces to %s (%s); spans are dropped until it can be done again, and counted in "
                "kubeloop_trace_spans_dropped_total",
                self._settings.url,
                text or reason,
            )


def kubeloop_version() -> str:
    try:
        return version("kubeloop")
    except PackageNotFoundError:  # run from a source tree that is not installed
        return "0"


def _opener(settings: ExportSettings) -> urllib.request.OpenerDirector:
    if not settings.url.startswith("https:"):
        return urllib.request.build_opener()
    try:
        context = ssl.create_default_context(cafile=settings.certificate or None)
        if settings.client_certificate:
            context.load_cert_chain(settings.client_certificate, settings.client_key or None)
    except OSError as error:
        raise UserError(
            f"cannot read the certificates for {settings.url}: {error}",
            hint="OTEL_EXPORTER_OTLP_CERTIFICATE, OTEL_EXPORTER_OTLP_CLIENT_CERTIFICATE, OTEL_EXPORTER_OTLP_CLIENT_KEY",
        ) from None
    return urllib.request.build_opener(urllib.request.HTTPSHandler(context=context))


def resource_attributes() -> Attributes:
    """Return the resource of OTEL_SERVICE_NAME, OTEL_RESOURCE_ATTRIBUTES and OTEL_EXPERIMENTAL_RESOURCE_DETECTORS."""
    from opentelemetry.sdk.resources import Resource

    attributes = dict(Resource.create({"service.version": kubeloop_version()}).attributes)
    if str(attributes.get("service.name", "")).startswith("unknown_service"):
        attributes["service.name"] = "kubeloop"
    return {key: value if isinstance(value, str | int | float) else str(value) for key, value in attributes.items()}


def _headers(text: str) -> dict[str, str]:
    """Parse "key=value,key=value" with percent-encoding."""
    headers = {}
    for part in filter(None, (entry.strip() for entry in text.split(","))):
        name, equals, value = part.partition("=")
        if not equals:
            log.warning("OTEL_EXPORTER_OTLP_HEADERS: ignored an entry without key=value")
            continue
        headers[urllib.parse.unquote(name.strip())] = urllib.parse.unquote(value.strip())
    return headers


def _number(name: str, text: str, default: float) -> float:
    """Parse the value `text` of the variable `name`; an invalid one is logged and replaced by `default`."""
    try:
        number = float(text) if text else default
    except ValueError:
        number = -1.0
    if not 0 < number < math.inf:
        log.warning("%s is not a positive number", name, extra={"value": text})
        return default
    return number
