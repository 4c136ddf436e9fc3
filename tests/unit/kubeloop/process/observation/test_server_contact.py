"""Availability and dates that responses of the API server show."""

from __future__ import annotations

import contextlib
import itertools
from contextlib import asynccontextmanager

import pytest

from kubeloop.kube.client.transport import HttpRequest, HttpResponse, StreamedResponse, TransportError
from kubeloop.process.observation.server_contact import ContactTransport

SECOND_NS = 1_000_000_000
DATE_NS = 1_700_000_000 * SECOND_NS
DATE = "Tue, 14 Nov 2023 22:13:20 GMT"


class StubTransport:
    server = "https://10.0.0.1"

    def __init__(self, headers):
        self._headers = headers
        self.closed = False

    async def send(self, request):
        return HttpResponse(200, b"body", self._headers)

    @asynccontextmanager
    async def stream(self, request):
        yield StreamedResponse(200, self._headers, iter(()))

    async def close(self):
        self.closed = True


@pytest.mark.parametrize(
    ("headers", "dates"),
    [
        pytest.param({"date": DATE}, [(DATE_NS, 1, 2)], id="date"),
        pytest.param({}, [], id="no date"),
        pytest.param({"date": "yesterday"}, [], id="no valid date"),
    ],
)
async def test_date_is_reported_with_times_of_request_and_response(headers, dates):
    for is_stream in (False, True):
        reported = []
        transport = ContactTransport(
            StubTransport(headers), iter([1, 2]).__next__, lambda *times, reported=reported: reported.append(times)
        )
        if is_stream:
            async with transport.stream(HttpRequest("GET", "/", headers={})) as response:
                assert response.status == 200
        else:
            assert (await transport.send(HttpRequest("GET", "/", headers={}))).body == b"body"
        assert reported == dates


async def test_transport_forwards_server_and_close():
    inner = StubTransport({})
    transport = ContactTransport(inner, iter(()).__next__, lambda *times: None)
    assert transport.server == inner.server
    await transport.close()
    assert inner.closed


class FailingTransport(StubTransport):
    """Answers each request with the next of `outcomes`: a status, or a TransportError with this message."""

    def __init__(self, *outcomes):
        super().__init__({})
        self._outcomes = list(outcomes)

    def _next(self):
        outcome = self._outcomes.pop(0)
        if isinstance(outcome, str):
            raise TransportError(outcome, request_sent=False)
        return outcome

    async def send(self, request):
        return HttpResponse(self._next(), b"", {})

    @asynccontextmanager
    async def stream(self, request):
        yield StreamedResponse(self._next(), {}, iter(()))


async def logged(caplog, outcomes, *, seconds_each):
    """Return what is logged while requests and streams have these outcomes, in turns."""
    seconds = itertools.count(step=seconds_each)
    inner = FailingTransport(*outcomes)
    transport = ContactTransport(inner, lambda: next(seconds) * SECOND_NS // 2, lambda *times: None)
    for number in range(len(outcomes)):
        with contextlib.suppress(TransportError):
            if number % 2:
                async with transport.stream(HttpRequest("GET", "/", headers={})):
                    pass
            else:
                await transport.send(HttpRequest("GET", "/", headers={}))
    return [(record.message, getattr(record, "error", None)) for record in caplog.records]


DOWN, UP = "the API server is not available, trying again", "the API server responds again"


@pytest.mark.parametrize("outcome", ["Connection refused", 503, 401])
async def test_outage_and_recovery_have_one_line_each(caplog, outcome):
    problem = outcome if isinstance(outcome, str) else f"status {outcome}"
    lines = await logged(caplog, [200, *[outcome] * 6, 200, 404], seconds_each=1)
    assert lines == [(DOWN, problem), (UP, None)]


@pytest.mark.parametrize(
    "outcomes",
    [
        pytest.param([200, "Connection reset", 200, "Connection reset", 200], id="shorter than two seconds"),
        pytest.param([200, 403, 404, 410, 429, 409] * 3, id="responses of a server that is available"),
        pytest.param([503, 200] * 6, id="5xx of one API, while watches are answered"),
    ],
)
async def test_short_outages_and_refusals_are_not_logged(caplog, outcomes):
    assert await logged(caplog, outcomes, seconds_each=1) == []


async def test_broken_stream_is_no_outage(caplog):
    transport = ContactTransport(
        FailingTransport(200), itertools.count(0, 10 * SECOND_NS).__next__, lambda *times: None
    )
    with pytest.raises(TransportError):
        async with transport.stream(HttpRequest("GET", "/", headers={})):
            raise TransportError("Connection reset", request_sent=True)
    assert caplog.records == []
