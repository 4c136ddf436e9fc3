"""Free TCP ports of an operator by name: {port:NAME} in its command."""

from __future__ import annotations

import random
import re
import socket
import sys
from typing import Self

_PORT = re.compile(r"\{port:([\w-]+)\}")
_FIRST, _LAST = 10_000, 32_767  # below the ports of outgoing connections, which would take them meanwhile


class Ports:
    """Ports that no other run draws, in this process or another one, until the end of the context."""

    def __init__(self, rng: random.Random) -> None:
        self._rng = rng
        self.numbers: dict[str, int] = {}
        self._locks: list[socket.socket] = []

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exception: object) -> None:
        for lock in self._locks:
            lock.close()

    def insert(self, text: str) -> str:
        """Return a text with the port of each {port:NAME}; a new name gets a free port."""
        return _PORT.sub(lambda match: str(self.numbers.get(match[1]) or self._draw(match[1])), text)

    def _draw(self, name: str) -> int:
        while True:
            port = self._rng.randint(_FIRST, _LAST)
            if self._lock(port) and _is_free(port):
                self.numbers[name] = port
                return port

    def _lock(self, port: int) -> bool:
        """Take the port for this run; by a name that ends with the process, where the system has such names."""
        if sys.platform != "linux":
            return True
        lock = socket.socket(socket.AF_UNIX)
        try:
            lock.bind(f"\0kubeloop-port-{port}")
        except OSError:
            lock.close()
            return False
        self._locks.append(lock)
        return True


def _is_free(port: int) -> bool:
    try:
        with socket.create_server(("", port)):
            return True
    except OSError:
        return False
