"""Frames that a SPDY/3.1 client sends."""

from __future__ import annotations

import zlib

from kubeloop.devcluster.handlers.containers.spdy_frames import _DICTIONARY


def control_frame(kind: int, content: bytes, flags: int = 0) -> bytes:
    return b"\x80\x03" + kind.to_bytes(2, "big") + bytes([flags]) + len(content).to_bytes(3, "big") + content


class SpdyClient:
    """Opens streams; keeps the state of the header compression."""

    def __init__(self) -> None:
        self._deflate = zlib.compressobj(zdict=_DICTIONARY)

    def open(self, stream: int, *, is_last: bool = False, **headers: str) -> bytes:
        """Return the frame that opens a stream."""
        block = len(headers).to_bytes(4, "big")
        for text in (text for pair in headers.items() for text in pair):
            block += len(text).to_bytes(4, "big") + text.encode()
        compressed = self._deflate.compress(block) + self._deflate.flush(zlib.Z_SYNC_FLUSH)
        return control_frame(1, stream.to_bytes(4, "big") + bytes(6) + compressed, int(is_last))
