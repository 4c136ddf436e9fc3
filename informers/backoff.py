"""How long a reflector waits before it bothers the server again. May import the standard library only."""

from __future__ import annotations

import asyncio
import random


class Backoff:
    """800 ms, doubled each time up to 30 s, each times 1 to 2 by chance; from the start after 2 quiet minutes, or once
    the server has served us in between.

    Source: client-go tools/cache/reflector.go (defaultBackoffInit, defaultBackoffMax, defaultBackoffReset). There only
    quiet counts: a server that drops its watches and now and then refuses one is then asked every half minute, and
    every controller works from a cache that is as old.
    """

    INITIAL_SECONDS = 0.8
    CAP_SECONDS = 30.0
    RESET_SECONDS = 120.0

    def __init__(self, rng: random.Random) -> None:
        self._rng = rng
        self._step_seconds = self.INITIAL_SECONDS
        self._last: float | None = None

    def next_seconds(self) -> float:
        """The wait that is due now."""
        now = asyncio.get_running_loop().time()
        if self._last is not None and now - self._last > self.RESET_SECONDS:
            self._step_seconds = self.INITIAL_SECONDS
        self._last = now
        seconds = self._step_seconds
        self._step_seconds = min(self.CAP_SECONDS, seconds * 2)
        return seconds * (1 + self._rng.random())

    def reset(self) -> None:
        """The server did what it was asked: the next wait is the shortest again."""
        self._step_seconds = self.INITIAL_SECONDS
