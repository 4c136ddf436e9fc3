"""The connection of a client after a switch of protocols, independent of the HTTP server."""

from __future__ import annotations

from typing import Protocol


class UpgradedConnection(Protocol):
    """Bytes in both directions."""

    async def receive(self) -> bytes:
        """Wait for bytes of the client; b"" when it has closed the connection."""
        ...

    async def send(self, data: bytes) -> None:
        """Send bytes; wait while the client does not read. Raises ConnectionError when the client has disconnected."""
        ...
