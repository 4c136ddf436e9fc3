"""Data that a protocol under test receives."""

from __future__ import annotations

import asyncio


def receive(protocol: asyncio.BufferedProtocol, data: bytes) -> None:
    """Pass data to a protocol as a loop does, and overwrite its buffer, as the next read of any connection does."""
    buffer = memoryview(protocol.get_buffer(-1))
    buffer[: len(data)] = data
    protocol.buffer_updated(len(data))
    buffer[: len(data)] = bytes(len(data))
