"""Protocols that receive into one buffer for all connections of a loop."""

from __future__ import annotations

import asyncio
from abc import abstractmethod

RECEIVE_BYTES = 256 << 10  # uvloop receives at most this much of a TLS connection at once


def new_buffer() -> memoryview:
    """Return a buffer for SharedBufferProtocols of the same loop."""
    return memoryview(bytearray(RECEIVE_BYTES))


class SharedBufferProtocol(asyncio.BufferedProtocol):
    """A Protocol whose data_received() gets a view of the buffer, valid until it returns.

    With an asyncio.Protocol, uvloop allocates RECEIVE_BYTES for each read of a TLS connection, which takes as long as a
    small request where such blocks are not in the heap (`allocator.map_large_blocks`).
    """

    def __init__(self, buffer: memoryview) -> None:
        self._receive_buffer = buffer

    def get_buffer(self, sizehint: int) -> memoryview:
        return self._receive_buffer

    def buffer_updated(self, nbytes: int) -> None:
        self.data_received(self._receive_buffer[:nbytes])

    @abstractmethod
    def data_received(self, data: bytes | memoryview) -> None:
        """Handle received bytes."""
