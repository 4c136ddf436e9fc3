"""Metrics of the requests to the API server: rest_client_* of client-go, and http_client_* of OpenTelemetry."""

from __future__ import annotations

import contextlib
import math
from bisect import bisect_left
from collections.abc import AsyncIterator, Callable, Iterable, Mapping, Sequence
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

from kubeloop.kube.client.transport import HttpRequest, HttpResponse, StreamedResponse, Transport, TransportError
from kubeloop.process.metrics.metrics_registry import LabeledHistogram, Registerer

if TYPE_CHECKING:
    from prometheus_client.metrics_core import Metric

    from kubeloop.process.metrics.histogram_families import HistogramFamily

# Source: k8s.io/component-base/metrics/prometheus/restclient
_REQUEST_BUCKETS = (0.005, 0.025, 0.1, 0.25, 0.5, 1.0, 2.0, 4.0, 8.0, 15.0, 30.0, 60.0)
# Source: OpenTelemetry semantic conventions, http.client.request.duration
_HTTP_BUCKETS = (0.005, 0.01, 0.025, 0.05, 0.075, 0.1, 0.25, 0.5, 0.75, 1.0, 2.5, 5.0, 7.5, 10.0)
_BUCKETS = tuple(sorted({*_REQUEST_BUCKETS, *_HTTP_BUCKETS}))
_NO_RESPONSE = "<error>"


class MeasuredTransport(Transport):
    """A transport with metrics: rest_client_requests_total, rest_client_request_duration_seconds, and OpenTelemetry's
    http_client_request_duration_seconds."""

    def __init__(self, transport: Transport, registry: Registerer, now_ns: Callable[[], int]) -> None:
        self._transport = transport
        self._now_ns = now_ns
        self._seconds: dict[tuple[str, str], LabeledHistogram] = {}  # by method and status code
        registry.register(self)

    @property
    def server(self) -> str:
        return self._transport.server

    async def send(self, request: HttpRequest) -> HttpResponse:
        start_ns, code = self._now_ns(), _NO_RESPONSE
        try:
            response = await self._transport.send(request)
            code = str(response.status)
            return response
        finally:
            self._record(request.method, code, start_ns)

    @asynccontextmanager
    async def stream(self, request: HttpRequest) -> AsyncIterator[StreamedResponse]:
        start_ns = self._now_ns()
        try:
            stream = self._transport.stream(request)
            response = await stream.__aenter__()
        except TransportError:
            self._record(request.method, _NO_RESPONSE, start_ns)
            raise
        self._record(request.method, str(response.status), start_ns)
        async with contextlib.AsyncExitStack() as stack:
            stack.push_async_exit(stream)
            yield response

    async def close(self) -> None:
        await self._transport.close()

    def collect(self) -> Iterable[Metric | HistogramFamily]:
        """Return the metric families; latencies of a watch are those until the response headers."""
        from prometheus_client.metrics_core import CounterMetricFamily

        from kubeloop.process.metrics.histogram_families import HistogramCopy, HistogramFamily

        url = urlsplit(self.server)
        host = url.netloc or self.server
        requests = CounterMetricFamily(
            "rest_client_requests_total",
            "Number of HTTP requests, by status code, method and host; code <error> without a response.",
            labels=["code", "method", "host"],
        )
        address = url.hostname or self.server, str(url.port or (443 if url.scheme == "https" else 80))
        by_verb: dict[str, dict[float, int]] = {}
        sums: dict[str, float] = {}
        copies = []
        for (method, code), histogram in self._seconds.items():
            requests.add_metric([code, method, host], sum(histogram.counts))
            counts = _by_bound(histogram)
            before = by_verb.get(method, {})
            by_verb[method] = {bound: count + before.get(bound, 0) for bound, count in counts.items()}
            sums[method] = sums.get(method, 0.0) + histogram.sum
            failed = "" if code.startswith(("1", "2", "3")) else code.replace(_NO_RESPONSE, "_OTHER")
            labels = method, *address, code.replace(_NO_RESPONSE, ""), failed
            copies.append(HistogramCopy(labels, _rebucketed(counts, _HTTP_BUCKETS), histogram.sum))
        yield requests
        yield HistogramFamily(
            "rest_client_request_duration_seconds",
            "Request latency in seconds, by verb and host; for a watch, until the response headers.",
            ["verb", "host"],
            _REQUEST_BUCKETS,
            [
                HistogramCopy((verb, host), _rebucketed(counts, _REQUEST_BUCKETS), sums[verb])
                for verb, counts in by_verb.items()
            ],
        )
        yield HistogramFamily(
            "http_client_request_duration_seconds",
            "Duration of HTTP client requests.",
            ["http_request_method", "server_address", "server_port", "http_response_status_code", "error_type"],
            _HTTP_BUCKETS,
            copies,
        )

    def _record(self, method: str, code: str, start_ns: int) -> None:
        histogram = self._seconds.get((method, code))
        if histogram is None:
            histogram = self._seconds[method, code] = LabeledHistogram(_BUCKETS)
        histogram.observe((self._now_ns() - start_ns) / 1e9)


def _by_bound(histogram: LabeledHistogram) -> dict[float, int]:
    """Return the observations by the upper bound of their bucket."""
    return dict(zip((*_BUCKETS, math.inf), histogram.counts, strict=True))


def _rebucketed(counts: Mapping[float, int], bounds: Sequence[float]) -> list[int]:
    """Return the observations by the buckets of `bounds`, a part of _BUCKETS."""
    result = [0] * (len(bounds) + 1)
    for bound, count in counts.items():
        result[bisect_left(bounds, bound)] += count
    return result
