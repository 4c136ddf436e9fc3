"""When a controller of all kinds discovers the server's resources again."""

from __future__ import annotations

import asyncio
from contextlib import suppress

REFRESH_SECONDS = 30.0
CRD_SETTLE_SECONDS = 0.5  # from a CustomResourceDefinition's change until its kind is served, or no longer served


class Rediscovery:
    """Discovery is due periodically, and soon after a CustomResourceDefinition has changed."""

    def __init__(self) -> None:
        self._requested = asyncio.Event()

    def request(self) -> None:
        """Make discovery due soon."""
        self._requested.set()

    async def wait(self, *, periodic: bool = True) -> None:
        """Wait until discovery is due; if not `periodic`, for a request only. Cancellation: safe."""
        with suppress(TimeoutError):
            async with asyncio.timeout(REFRESH_SECONDS if periodic else None):
                await self._requested.wait()
                await asyncio.sleep(CRD_SETTLE_SECONDS)
        self._requested.clear()
