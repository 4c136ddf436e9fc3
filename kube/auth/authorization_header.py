"""Authorization header of requests, and its renewal. Imports `client.transport`, `user_error` and msgspec only."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Protocol

import msgspec

from kubeloop.kube.client.transport import HttpRequest, HttpResponse, StreamedResponse, Transport
from kubeloop.kube.user_error import UserError

log = logging.getLogger(__name__)

_RENEWALS_APART_SECONDS = 5.0


class Authorization(Protocol):
    async def header(self) -> str:
        """Return the current value of the header; "" for none (a client certificate identifies us)."""
        ...

    async def renew(self, rejected: str) -> bool:
        """The server rejected the value `rejected` with 401; returns True if there is a newer value to try."""
        ...


class StaticAuthorization:
    """A constant token."""

    def __init__(self, value: str) -> None:
        """`value`: of the header, "Bearer ..."."""
        self._value = value

    async def header(self) -> str:
        return self._value

    async def renew(self, rejected: str) -> bool:
        return False


class ReloadedAuthorization:
    """A token that is reloaded periodically, and when the server rejects it. One load at a time.

    If loading fails (UserError), the error is logged and the current value stays: it may still be valid, and if not,
    the server's 401 is the more precise error.
    """

    def __init__(
        self, value: str, load: Callable[[bool], Awaitable[str]], *, every_seconds: float | None = None
    ) -> None:
        """`load(rejected)` returns the header's value; `rejected`: the server rejected the current one.
        `every_seconds`: None to load after a rejection only."""
        self._value = value
        self._load = load
        self._every_seconds = every_seconds
        self._due_at: float | None = None  # loop time
        self._renewed_at = float("-inf")  # loop time
        self._loading = asyncio.Lock()

    async def header(self) -> str:
        if self._every_seconds is not None:
            now = asyncio.get_running_loop().time()
            if self._due_at is None:
                self._due_at = now + self._every_seconds
            elif now >= self._due_at:
                self._due_at = now + self._every_seconds  # concurrent callers use the current value
                async with self._loading:
                    await self._reload(rejected=False)
        return self._value

    async def renew(self, rejected: str) -> bool:
        async with self._loading:
            now = asyncio.get_running_loop().time()
            if self._value == rejected and now - self._renewed_at >= _RENEWALS_APART_SECONDS:
                self._renewed_at = now
                # Also True if the header stays the same: the client certificate may be new.
                return await self._reload(rejected=True)
            return self._value != rejected

    async def _reload(self, *, rejected: bool) -> bool:
        try:
            self._value = await self._load(rejected)
        except UserError as error:
            log.warning("credentials not renewed", extra={"error": str(error), "hint": error.hint})
            return False
        return True


class AuthorizedTransport:
    """A Transport that adds the Authorization header. A request rejected with 401 is retried once after a renewal."""

    def __init__(self, transport: Transport, authorization: Authorization) -> None:
        self._transport = transport
        self._authorization = authorization

    @property
    def server(self) -> str:
        return self._transport.server

    async def send(self, request: HttpRequest) -> HttpResponse:
        value = await self._authorization.header()
        response = await self._transport.send(_with(request, value))
        if response.status == 401 and await self._authorization.renew(value):
            value = await self._authorization.header()
            response = await self._transport.send(_with(request, value))
        return response

    @asynccontextmanager
    async def stream(self, request: HttpRequest) -> AsyncIterator[StreamedResponse]:
        value = await self._authorization.header()
        async with self._transport.stream(_with(request, value)) as response:
            if response.status != 401 or not await self._authorization.renew(value):
                yield response
                return
        value = await self._authorization.header()
        async with self._transport.stream(_with(request, value)) as response:
            yield response

    async def close(self) -> None:
        await self._transport.close()


def _with(request: HttpRequest, value: str) -> HttpRequest:
    return msgspec.structs.replace(request, headers={**request.headers, "authorization": value}) if value else request
