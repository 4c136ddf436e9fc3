"""What an answer has to wait for.

Requests are answered in one go, so that each sees one state of the store. Where that would hold the event loop for too
long, nothing is done yet and `Later` is raised: the work is done aside, its result kept, and the request answered again
from its beginning. Whoever asks for the work again finds the result, if what it is about is still the same.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Hashable
from typing import Any

_KEPT = 64  # results; a request looks for its own right after it has waited


class Later(Exception):
    """The request has to wait for `work`, and be answered again then."""

    def __init__(self, key: Hashable, work: Callable[[], Awaitable[Any]]) -> None:
        super().__init__("the answer takes time")
        self.key = key
        self.work = work


class Waiting:
    """What requests of one server have waited for."""

    def __init__(self) -> None:
        self.allowed = False
        """May the request that is being answered be answered later?"""
        self._results: dict[Hashable, Any] = {}  # oldest first
        self._alone = asyncio.Lock()

    def result(self, key: Callable[[], Hashable]) -> Any | None:
        """What came of the work of this key. `key` is asked for only if there are results at all."""
        return self._results.get(key()) if self._results else None

    def take(self, key: Hashable) -> Any | None:
        """What came of the work of this key, for one request alone."""
        return self._results.pop(key, None)

    async def finish(self, later: Later) -> None:
        """Do the work, and keep its result for the next who asks."""
        self._results.pop(later.key, None)
        self._results[later.key] = await later.work()
        while len(self._results) > _KEPT:
            del self._results[next(iter(self._results))]

    async def in_thread(self, compute: Callable[[], Any]) -> Any:
        """Compute something beside the event loop, one at a time: two would keep it waiting twice as long."""
        async with self._alone:
            return await asyncio.to_thread(compute)
