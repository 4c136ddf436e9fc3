"""Pseudo-terminal of an exec request with `tty`."""

from __future__ import annotations

import asyncio
import contextlib
import fcntl
import os
import struct
import termios
from collections.abc import Callable
from typing import Any, Self

_MAX_CELLS = 0xFFFF
END_OF_INPUT = b"\x04"  # ^D


class Terminal:
    """A terminal of a local command: this process has one end, the command the other until release() and its end."""

    def __init__(self) -> None:
        self._master, self.command_end = os.openpty()
        os.set_blocking(self._master, False)
        self._is_released = False

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.release()
        os.close(self._master)

    def attach(self) -> None:
        """Make it the controlling terminal of a new session; called in the command's process before the command."""
        os.setsid()
        fcntl.ioctl(self.command_end, termios.TIOCSCTTY, 0)

    def release(self) -> None:
        """Close the command's end in this process, so that read() ends with the command."""
        if not self._is_released:
            self._is_released = True
            os.close(self.command_end)

    def resize(self, width: int, height: int) -> None:
        """Set the size in characters; the command receives SIGWINCH."""
        rows, columns = (max(0, min(cells, _MAX_CELLS)) for cells in (height, width))
        fcntl.ioctl(self._master, termios.TIOCSWINSZ, struct.pack("HHHH", rows, columns, 0, 0))

    async def read(self, size: int) -> bytes:
        """Wait for output; b"" when no process has the terminal any more."""
        loop = asyncio.get_running_loop()
        while True:
            try:
                return os.read(self._master, size)
            except BlockingIOError:
                await _ready(loop.add_reader, loop.remove_reader, self._master)
            except OSError:  # EIO: the end on Linux
                return b""

    async def write(self, data: bytes) -> None:
        """Send input; it is lost when no process has the terminal any more."""
        loop = asyncio.get_running_loop()
        while data:
            try:
                data = data[os.write(self._master, data) :]
            except BlockingIOError:
                await _ready(loop.add_writer, loop.remove_writer, self._master)
            except OSError:
                return


async def _ready(add: Callable[..., Any], remove: Callable[[int], Any], descriptor: int) -> None:
    """Wait until the descriptor can be read or written."""
    ready = asyncio.get_running_loop().create_future()

    def wake() -> None:
        with contextlib.suppress(asyncio.InvalidStateError):
            ready.set_result(None)

    add(descriptor, wake)
    try:
        await ready
    finally:
        remove(descriptor)
