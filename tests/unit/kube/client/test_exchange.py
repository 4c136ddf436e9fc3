"""The reader's side of an exchange, whatever connection it is on."""

from __future__ import annotations

import asyncio

import pytest

from kubeloop.kube.client.exchange import Exchange, LazyHeaders
from kubeloop.kube.client.transport import TransportError


class Received(Exchange):
    """An exchange whose response a test passes in."""

    def __init__(self) -> None:
        super().__init__(asyncio.get_running_loop())
        self.aborted = False
        self.taken: list[int] = []

    def receive(self, *chunks: bytes, end: bool = False) -> None:
        self._status, self._head_done, self._done = 200, True, end
        self._chunks.extend(chunks)
        self._wake()

    def fail(self, problem: str) -> None:
        self._fail(TransportError(problem, request_sent=False))

    def abort(self) -> None:
        self.aborted = True

    def _response_headers(self) -> LazyHeaders:
        return LazyHeaders(dict)

    def _consumed(self, size: int) -> None:
        self.taken.append(size)


async def test_response_is_complete_at_its_end():
    exchange = Received()
    response = asyncio.create_task(exchange.response())
    for chunk in (b"a", b"b"):
        await asyncio.sleep(0)
        exchange.receive(chunk)
    await asyncio.sleep(0)
    assert not response.done()
    exchange.receive(b"c", end=True)
    assert (await response).body == b"abc"


async def test_reader_takes_all_that_has_arrived():
    exchange = Received()
    exchange.receive(b"a", b"b")
    assert await anext(exchange) == b"ab"
    exchange.receive(b"c", end=True)
    assert [chunk async for chunk in exchange] == [b"c"]
    assert exchange.taken == [2, 1]


async def test_failure_reaches_reader_after_the_data_before_it():
    exchange = Received()
    exchange.receive(b"a")
    exchange.fail("first")
    exchange.fail("second")
    assert await anext(exchange) == b"a"
    with pytest.raises(TransportError, match="first") as error:
        await anext(exchange)
    assert not error.value.request_sent


async def test_timeout_fails_and_aborts_exchange():
    exchange = Received()
    response = asyncio.create_task(exchange.response())
    await asyncio.sleep(0)
    exchange.time_out()
    with pytest.raises(TransportError, match="timed out"):
        await response
    assert exchange.aborted


def test_headers_are_decoded_once_when_read():
    calls = []

    def decode() -> dict[str, str]:
        calls.append(1)
        return {"a": "b"}

    headers = LazyHeaders(decode)
    assert calls == []
    assert (headers["a"], dict(headers), len(headers), repr(headers)) == ("b", {"a": "b"}, 1, "{'a': 'b'}")
    assert calls == [1]
