"""Date headers of the API server, which show how far its clock differs from this machine's."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from email.utils import parsedate_to_datetime

from kubeloop.kube.client.transport import HttpResponse, StreamedResponse, Transport

DateReceiver = Callable[[int, int, int], None]
"""Receives a date (start of its second), when its request was sent, and when the response arrived, in ns."""


class DatedTransport(Transport):
    """A transport that reports the date of each response."""

    def __init__(self, transport: Transport, now_ns: Callable[[], int], on_date: DateReceiver) -> None:
        self._transport = transport
        self._now_ns = now_ns
        self._on_date = on_date

    @property
    def server(self) -> str:
        return self._transport.server

    async def request(
        self,
        method: str,
        target: str,
        *,
        headers: Mapping[str, str],
        body: bytes = b"",
        timeout_seconds: float | None = None,
    ) -> HttpResponse:
        sent_ns = self._now_ns()
        response = await self._transport.request(
            method, target, headers=headers, body=body, timeout_seconds=timeout_seconds
        )
        self._report(response.headers, sent_ns)
        return response

    @asynccontextmanager
    async def stream(
        self, method: str, target: str, *, headers: Mapping[str, str], body: bytes = b""
    ) -> AsyncIterator[StreamedResponse]:
        sent_ns = self._now_ns()
        async with self._transport.stream(method, target, headers=headers, body=body) as response:
            self._report(response.headers, sent_ns)
            yield response

    async def close(self) -> None:
        await self._transport.close()

    def _report(self, headers: Mapping[str, str], sent_ns: int) -> None:
        try:
            date = parsedate_to_datetime(headers["date"])
        except (KeyError, ValueError):  # none, or one of a proxy that is no date
            return
        self._on_date(int(date.timestamp()) * 1_000_000_000, sent_ns, self._now_ns())
