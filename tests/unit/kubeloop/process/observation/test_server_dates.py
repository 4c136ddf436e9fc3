"""Dates of the API server's responses."""

from __future__ import annotations

from contextlib import asynccontextmanager

import pytest

from kubeloop.kube.client.transport import HttpResponse, StreamedResponse
from kubeloop.process.observation.server_dates import DatedTransport

SECOND_NS = 1_000_000_000
DATE_NS = 1_700_000_000 * SECOND_NS
DATE = "Tue, 14 Nov 2023 22:13:20 GMT"


class StubTransport:
    server = "https://10.0.0.1"

    def __init__(self, headers):
        self._headers = headers
        self.closed = False

    async def request(self, method, target, *, headers, body=b"", timeout_seconds=None):
        return HttpResponse(200, b"body", self._headers)

    @asynccontextmanager
    async def stream(self, method, target, *, headers, body=b""):
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
        transport = DatedTransport(
            StubTransport(headers), iter([1, 2]).__next__, lambda *times, reported=reported: reported.append(times)
        )
        if is_stream:
            async with transport.stream("GET", "/", headers={}) as response:
                assert response.status == 200
        else:
            assert (await transport.request("GET", "/", headers={})).body == b"body"
        assert reported == dates


async def test_transport_forwards_server_and_close():
    inner = StubTransport({})
    transport = DatedTransport(inner, iter(()).__next__, lambda *times: None)
    assert transport.server == inner.server
    await transport.close()
    assert inner.closed
