"""rest_client_* metrics of the requests to the API server."""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from urllib.parse import urlsplit

from kubeloop.kube.client.transport import HttpRequest, HttpResponse, StreamedResponse, Transport, TransportError
from kubeloop.process.metrics.metrics_registry import PrometheusCounter, PrometheusHistogram, Registerer

# Source: k8s.io/component-base/metrics/prometheus/restclient
_REQUEST_BUCKETS = (0.005, 0.025, 0.1, 0.25, 0.5, 1.0, 2.0, 4.0, 8.0, 15.0, 30.0, 60.0)


class MeasuredTransport(Transport):
    """A transport with metrics: rest_client_requests_total and rest_client_request_duration_seconds."""

    def __init__(self, transport: Transport, registry: Registerer, now_ns: Callable[[], int]) -> None:
        self._transport = transport
        self._now_ns = now_ns
        self._host = urlsplit(transport.server).netloc or transport.server
        self._requests = PrometheusCounter(
            "rest_client_requests_total",
            "Number of HTTP requests, by status code, method and host; code <error> without a response.",
            ["code", "method", "host"],
            registry=registry,
        )
        self._seconds = PrometheusHistogram(
            "rest_client_request_duration_seconds",
            "Request latency in seconds, by verb and host; for a watch, until the response headers.",
            ["verb", "host"],
            buckets=_REQUEST_BUCKETS,
            registry=registry,
        )

    @property
    def server(self) -> str:
        return self._transport.server

    async def send(self, request: HttpRequest) -> HttpResponse:
        start_ns, code = self._now_ns(), "<error>"
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
            self._record(request.method, "<error>", start_ns)
            raise
        self._record(request.method, str(response.status), start_ns)
        async with contextlib.AsyncExitStack() as stack:
            stack.push_async_exit(stream)
            yield response

    async def close(self) -> None:
        await self._transport.close()

    def _record(self, method: str, code: str, start_ns: int) -> None:
        self._requests.labels(code, method, self._host).inc()
        self._seconds.labels(method, self._host).observe((self._now_ns() - start_ns) / 1e9)
