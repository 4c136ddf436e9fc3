"""Exporter of finished traces to an OTLP/HTTP endpoint.

    export(trace): encode on the loop -> BatchThread: one POST for many whole traces -> delivered()

A trace is never split between requests: a killed process has sent all of it or nothing. Follows the standard variables
OTEL_EXPORTER_OTLP_* and OTEL_BSP_*. The OpenTelemetry SDK is imported only for the resource.
"""

from __future__ import annotations

import gzip
import logging
import ssl
import time
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final, NamedTuple

from kubeloop.kube.user_error import UserError
from kubeloop.tracing.export.batch_thread import BatchSettings, BatchThread, batch_settings, positive_number
from kubeloop.tracing.export.otlp_encoding import TraceEncoder
from kubeloop.tracing.export.resource import kubeloop_version, resource_attributes
from kubeloop.tracing.metrics_interface import DropReason, TraceMetrics
from kubeloop.tracing.spans.trace import Trace

log = logging.getLogger(__name__)

# A rollout produces the SDK's default queue of 2,048 spans in a fraction of a second. OTEL_BSP_* override these values.
QUEUE_SPANS: Final = 200_000  # some 40 MB
BATCH_SPANS: Final = 2_000
DEFAULT_BATCHES: Final = BatchSettings(QUEUE_SPANS, BATCH_SPANS)
ATTEMPT_SECONDS: Final = 10.0
_FIRST_RETRY_SECONDS: Final = 1.0
_RETRIED_STATUSES: Final = (429, 502, 503, 504)  # https://opentelemetry.io/docs/specs/otlp/#retryable-response-codes
_VARIABLE: Final = "OTEL_EXPORTER_OTLP_"


@dataclass(frozen=True, slots=True)
class ExportSettings:
    """Settings of the exporter. Times in seconds."""

    url: str
    headers: Mapping[str, str] = field(default_factory=dict)
    attempt_seconds: float = ATTEMPT_SECONDS
    is_gzip: bool = False
    certificate: str = ""
    client_certificate: str = ""
    client_key: str = ""
    batches: BatchSettings = DEFAULT_BATCHES


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
        log.warning("spans are exported by http/protobuf and grpc only", extra={"protocol": protocol})
    return ExportSettings(
        url=url,
        headers=_headers(otlp("HEADERS")),
        # The specification counts milliseconds, the Python SDK seconds; as the SDK's users have set it: seconds.
        attempt_seconds=positive_number(f"{_VARIABLE}TIMEOUT", otlp("TIMEOUT"), ATTEMPT_SECONDS),
        is_gzip=otlp("COMPRESSION") == "gzip",
        certificate=otlp("CERTIFICATE"),
        client_certificate=otlp("CLIENT_CERTIFICATE"),
        client_key=otlp("CLIENT_KEY"),
        batches=batch_settings(environ, queue_spans=QUEUE_SPANS, batch_spans=BATCH_SPANS),
    )


class _Failure(NamedTuple):
    reason: DropReason
    text: str
    retry_after_seconds: int = 0


class OtlpExporter:
    """A TraceExporter for OTLP/HTTP."""

    def __init__(self, settings: ExportSettings, metrics: TraceMetrics) -> None:
        """Raises UserError if a certificate cannot be read."""
        self._settings = settings
        self._encoder = TraceEncoder(resource_attributes(), "kubeloop", kubeloop_version())
        self._opener = _opener(settings)
        self._thread: BatchThread[bytes] = BatchThread(settings.url, settings.batches, self._send, metrics)

    def export(self, trace: Trace, key: str = "") -> None:
        self._thread.put(self._encoder.encode(trace), len(trace.spans), key)

    def delivered(self) -> list[str]:
        return self._thread.delivered()

    def shut_down(self, within_seconds: float) -> None:
        self._thread.shut_down(within_seconds)

    # --- in the thread ---------------------------------------------------------------------------------------------

    def _send(self, batch: list[bytes]) -> tuple[DropReason, str] | None:
        """Send a batch, with retries until it expires."""
        body = self._encoder.request(batch)
        body = gzip.compress(body, 1) if self._settings.is_gzip else body
        give_up_at = time.monotonic() + self._settings.batches.batch_seconds
        delay_seconds = _FIRST_RETRY_SECONDS
        while True:
            failure = self._post(body)
            if failure is None:
                return None
            seconds, requested = max(delay_seconds, failure.retry_after_seconds), failure.retry_after_seconds > 0
            if failure.reason == "refused" or not self._thread.wait_for_retry(seconds, give_up_at, requested=requested):
                return failure.reason, failure.text
            delay_seconds *= 2

    def _post(self, body: bytes) -> _Failure | None:
        headers = {**self._settings.headers, "Content-Type": "application/x-protobuf", "User-Agent": "kubeloop"}
        if self._settings.is_gzip:
            headers["Content-Encoding"] = "gzip"
        seconds = max(0.1, min(self._settings.attempt_seconds, self._thread.seconds_until_stop()))
        request = urllib.request.Request(self._settings.url, data=body, headers=headers, method="POST")
        try:
            with self._opener.open(request, timeout=seconds) as response:
                response.read()
        except urllib.error.HTTPError as error:
            error.close()
            reason: DropReason = "unreachable" if error.code in _RETRIED_STATUSES else "refused"
            retry_after = error.headers.get("Retry-After", "")
            return _Failure(reason, f"HTTP status {error.code}", int(retry_after) if retry_after.isdecimal() else 0)
        except (OSError, ValueError) as error:
            return _Failure("unreachable", str(getattr(error, "reason", None) or error))
        except Exception as error:  # of http.client, such as an incomplete response: the thread must not end
            return _Failure("unreachable", f"{type(error).__name__}: {error}")
        return None


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
