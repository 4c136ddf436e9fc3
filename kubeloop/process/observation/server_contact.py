"""Derives from responses of the API server whether it is available, and how far its clock is off."""

from __future__ import annotations

import logging
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from datetime import UTC
from email.utils import parsedate_to_datetime
from typing import Final

from kubeloop.kube.client.transport import HttpRequest, HttpResponse, StreamedResponse, Transport, TransportError
from kubeloop.kube.values.times import epoch_ns

log = logging.getLogger(__name__)

OUTAGE_NS: Final = 2_000_000_000  # shorter outages are not reported

DateReceiver = Callable[[int, int, int], None]
"""Receives a date (start of its second), when its request was sent, and when the response arrived, in ns."""


class ContactTransport(Transport):
    """A transport that passes on the date of each response, and logs one line per outage and one per recovery.

    An outage: for OUTAGE_NS, requests have no response, or 401, which means rejected credentials, or watches have 5xx.
    For other requests, 5xx may mean that one aggregated API is not available.
    """

    def __init__(self, transport: Transport, now_ns: Callable[[], int], on_date: DateReceiver) -> None:
        self._transport = transport
        self._now_ns = now_ns
        self._on_date = on_date
        self._failing_since_ns = 0  # 0: the last request was answered
        self._is_reported = False

    @property
    def server(self) -> str:
        return self._transport.server

    async def send(self, request: HttpRequest) -> HttpResponse:
        sent_ns = self._now_ns()
        try:
            response = await self._transport.send(request)
        except TransportError as error:
            self._failed(str(error), sent_ns)
            raise
        self._responded(response, sent_ns, is_watch=False)
        return response

    @asynccontextmanager
    async def stream(self, request: HttpRequest) -> AsyncIterator[StreamedResponse]:
        sent_ns = self._now_ns()
        has_response = False
        try:
            async with self._transport.stream(request) as response:
                has_response = True
                self._responded(response, sent_ns, is_watch=True)
                yield response
        except TransportError as error:
            if not has_response:  # else the next request shows whether the server is available
                self._failed(str(error), sent_ns)
            raise

    async def close(self) -> None:
        await self._transport.close()

    def _responded(self, response: HttpResponse | StreamedResponse, sent_ns: int, *, is_watch: bool) -> None:
        status = response.status
        if status == 401 or (status >= 500 and is_watch):
            self._failed(f"status {status}", sent_ns)
        elif status < 500 and self._failing_since_ns:
            if self._is_reported:
                seconds = round((self._now_ns() - self._failing_since_ns) / 1e9)
                log.warning("the API server responds again", extra={"server": self.server, "after_seconds": seconds})
            self._failing_since_ns, self._is_reported = 0, False
        try:
            date = parsedate_to_datetime(response.headers["date"])
        except (KeyError, ValueError, OverflowError):  # none, or one of a proxy that is no date
            return
        self._on_date(epoch_ns(date if date.tzinfo else date.replace(tzinfo=UTC)), sent_ns, self._now_ns())

    def _failed(self, problem: str, sent_ns: int) -> None:
        self._failing_since_ns = self._failing_since_ns or sent_ns
        if not self._is_reported and self._now_ns() - self._failing_since_ns >= OUTAGE_NS:
            self._is_reported = True
            fields = {"server": self.server, "error": problem.removeprefix(f"{self.server}: ")}
            log.warning("the API server is not available, trying again", extra=fields)
