"""Metrics of requests to the API server."""

import itertools
from contextlib import asynccontextmanager

import pytest
from prometheus_client import CollectorRegistry, generate_latest

from kubeloop.kube.client.transport import HttpRequest, HttpResponse, StreamedResponse, TransportError
from kubeloop.process.metrics.client_metrics import MeasuredTransport


class StubTransport:
    """Returns 404 for GET, loses any other request."""

    server = "https://10.0.0.1:6443"

    async def send(self, request):
        if request.method != "GET":
            raise TransportError("lost", request_sent=True)
        return HttpResponse(404, b"{}")

    @asynccontextmanager
    async def stream(self, request):
        async def chunks():
            yield b"{}"

        yield StreamedResponse(200, {}, chunks())

    async def close(self): ...


def text(registry):
    return generate_latest(registry).decode()


async def test_request_metrics_have_client_go_names():
    registry = CollectorRegistry()
    seconds = itertools.count(0, 250_000_000)
    transport = MeasuredTransport(StubTransport(), registry, lambda: next(seconds))
    assert transport.server == "https://10.0.0.1:6443"
    assert (await transport.send(HttpRequest("GET", "/api", headers={}))).status == 404
    with pytest.raises(TransportError):
        await transport.send(HttpRequest("POST", "/api", headers={}))
    async with transport.stream(HttpRequest("GET", "/api?watch=1", headers={})) as response:
        assert [chunk async for chunk in response.chunks] == [b"{}"]
    page = text(registry)
    for line in (
        'rest_client_requests_total{code="404",host="10.0.0.1:6443",method="GET"} 1.0',
        'rest_client_requests_total{code="<error>",host="10.0.0.1:6443",method="POST"} 1.0',
        'rest_client_requests_total{code="200",host="10.0.0.1:6443",method="GET"} 1.0',
        'rest_client_request_duration_seconds_sum{host="10.0.0.1:6443",verb="GET"} 0.5',
        'rest_client_request_duration_seconds_count{host="10.0.0.1:6443",verb="POST"} 1.0',
    ):
        assert line in page


async def test_request_metrics_have_the_names_of_opentelemetry():
    registry = CollectorRegistry()
    seconds = itertools.count(0, 80_000_000)
    transport = MeasuredTransport(StubTransport(), registry, lambda: next(seconds))
    await transport.send(HttpRequest("GET", "/api", headers={}))
    with pytest.raises(TransportError):
        await transport.send(HttpRequest("POST", "/api", headers={}))
    async with transport.stream(HttpRequest("GET", "/api?watch=1", headers={})):
        pass
    name, page = "http_client_request_duration_seconds", text(registry)
    server = 'server_address="10.0.0.1",server_port="6443"'
    refused = f'{{error_type="404",http_request_method="GET",http_response_status_code="404",{server}}}'
    lost = f'{{error_type="_OTHER",http_request_method="POST",http_response_status_code="",{server}}}'
    streamed = f'{{error_type="",http_request_method="GET",http_response_status_code="200",{server}}}'
    for labels in (refused, lost, streamed):
        assert f"{name}_count{labels} 1.0" in page
        assert f"{name}_sum{labels} 0.08" in page
    buckets = [line for line in page.splitlines() if line.startswith(f"{name}_bucket") and 'error_type="404"' in line]
    counts = {line.split('le="')[1].split('"')[0]: line.rpartition(" ")[2] for line in buckets}
    assert (len(counts), counts["0.075"], counts["0.1"], counts["+Inf"]) == (15, "0.0", "1.0", "1.0")
    assert 'rest_client_request_duration_seconds_bucket{host="10.0.0.1:6443",le="0.1",verb="GET"} 2.0' in page
    assert 'rest_client_request_duration_seconds_bucket{host="10.0.0.1:6443",le="0.025",verb="GET"} 0.0' in page


async def test_watch_error_is_counted_and_raised():
    class Breaking(StubTransport):
        @asynccontextmanager
        async def stream(self, request):
            raise TransportError("no connection", request_sent=False)
            yield

    registry = CollectorRegistry()
    transport = MeasuredTransport(Breaking(), registry, lambda: 0)
    with pytest.raises(TransportError):
        async with transport.stream(HttpRequest("GET", "/api?watch=1", headers={})):
            pass
    assert 'rest_client_requests_total{code="<error>",host="10.0.0.1:6443",method="GET"} 1.0' in text(registry)
