"""Lines of text in a gzip stream that can be cut off at any byte.

One stream with one window, so that equal objects cost little, however far apart in time they are flushed. flush() makes
all lines readable that were written before (Z_SYNC_FLUSH: the stream is then at a byte boundary). A stream that was cut
off is closed by repair(), and the next one follows as another gzip member, as gzip allows. May import the
standard library only.
"""

from __future__ import annotations

import os
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any, BinaryIO, NamedTuple

_GZIP = 31  # wbits of zlib for a stream with gzip's header and trailer
_LEVEL = 6
_CHUNK_BYTES = 1 << 18
_FLUSHED = b"\x00\x00\xff\xff"  # ends what Z_SYNC_FLUSH writes
_MAGIC = b"\x1f\x8b"


class DamagedStream(Exception):
    """The bytes are no gzip stream from a place on; all lines before it were read."""


class GzipLineWriter:
    """Writes lines to a file, as one gzip member."""

    def __init__(self, file: BinaryIO) -> None:
        self._file = file
        self._compressor = zlib.compressobj(_LEVEL, zlib.DEFLATED, _GZIP)

    def write(self, line: bytes) -> None:
        """Write a line, without its newline."""
        self._file.write(self._compressor.compress(line + b"\n"))

    def flush(self) -> None:
        """Make all lines readable, even if the process is killed now."""
        self._file.write(self._compressor.flush(zlib.Z_SYNC_FLUSH))
        self._file.flush()

    def close(self) -> None:
        """End the member. The file stays open."""
        self._file.write(self._compressor.flush(zlib.Z_FINISH))
        self._file.flush()


class GzipLineReader:
    """Reads the lines of all members of a file, or of a file that is not compressed.

    is_compressed: the file begins as a gzip stream. is_cut_off: after the last line, whether the last member or line
    has no end. damage: why reading ended before the end of the file, "" if it did not.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        self.is_compressed = self.is_cut_off = False
        self.damage = ""

    def __iter__(self) -> Iterator[bytes]:
        """Yield complete lines without their newline. Raises OSError."""
        rest = b""
        for text in self._texts():
            lines = (rest + text).split(b"\n")
            rest = lines.pop()
            yield from lines
        self.is_cut_off = self.is_cut_off or bool(rest)

    def _texts(self) -> Iterator[bytes]:
        with self._path.open("rb") as file:
            chunk = file.read(_CHUNK_BYTES)
            if not chunk.startswith(_MAGIC):
                while chunk:
                    yield chunk
                    chunk = file.read(_CHUNK_BYTES)
                return
            self.is_compressed = True
            stream = zlib.decompressobj(_GZIP)
            while chunk:
                before = stream.copy()
                try:
                    text = stream.decompress(chunk)
                except zlib.error as error:
                    self.damage = f"the compressed data is damaged ({error})"
                    yield from _readable(before, chunk)
                    return
                yield text
                chunk = stream.unused_data or file.read(_CHUNK_BYTES)
                if stream.eof and chunk:
                    stream = zlib.decompressobj(_GZIP)
            self.is_cut_off = not stream.eof


def _readable(stream: Any, chunk: bytes) -> Iterator[bytes]:
    """Yield the text before the damage in a chunk."""
    for index in range(len(chunk)):
        try:
            yield stream.decompress(chunk[index : index + 1])
        except zlib.error:
            return


def repair(path: Path) -> bool:
    """Close the last gzip member of a file that was cut off; what follows its last flush is removed.

    Returns True if the file was changed. Raises OSError, and DamagedStream if the file is no gzip stream.
    """
    with path.open("r+b") as file:
        if file.read(len(_MAGIC)) != _MAGIC:
            raise DamagedStream("it is not compressed by gzip")
        size = file.seek(0, os.SEEK_END)
        start = 0
        while True:
            member = _scan(file, start, size)
            if not member.is_complete:
                break
            start = member.end
            if start >= size:
                return False
        stop = size
        while (stop := _last_flush(file, start, stop)) > start:
            member = _scan(file, start, stop)
            if member.last_byte == b"\n":
                file.truncate(stop)
                file.seek(stop)
                length = member.length & 0xFFFFFFFF
                # an empty last block and the trailer, as Z_FINISH writes them
                file.write(b"\x03\x00" + member.crc.to_bytes(4, "little") + length.to_bytes(4, "little"))
                return True
            stop -= 1
        file.truncate(start)  # nothing of the last member was flushed
        return True


class _Member(NamedTuple):
    """A gzip member, or its beginning: of its text the checksum, the length and the last byte."""

    is_complete: bool
    end: int
    crc: int
    length: int
    last_byte: bytes


def _scan(file: BinaryIO, start: int, stop: int) -> _Member:
    """Decompress the member that begins at `start`, up to `stop`. Raises DamagedStream."""
    stream = zlib.decompressobj(_GZIP)
    crc, length, last_byte, position = 0, 0, b"", start
    file.seek(start)
    while position < stop and not stream.eof:
        chunk = file.read(min(_CHUNK_BYTES, stop - position))
        position += len(chunk)
        try:
            text = stream.decompress(chunk)
        except zlib.error as error:
            raise DamagedStream(f"the compressed data is damaged ({error})") from None
        crc, length, last_byte = zlib.crc32(text, crc), length + len(text), text[-1:] or last_byte
    return _Member(stream.eof, position - len(stream.unused_data), crc, length, last_byte)


def _last_flush(file: BinaryIO, start: int, stop: int) -> int:
    """Return the end of the last flush between these positions, `start` if there is none."""
    while stop > start:
        begin = max(start, stop - _CHUNK_BYTES)
        file.seek(begin)
        index = file.read(stop - begin).rfind(_FLUSHED)
        if index >= 0:
            return begin + index + len(_FLUSHED)
        if begin == start:
            break
        stop = begin + len(_FLUSHED) - 1
    return start
