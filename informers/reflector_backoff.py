"""Backoff of a reflector between its requests. May import the standard library only."""

from __future__ import annotations

import asyncio
import random


class Backoff:
    """Delays of 0.8 s, doubled per call up to 30 s, each multiplied by a random factor of 1 to 2.

    Starts over after 2 minutes without a call, or after reset(). Source: client-go tools/cache/reflector.go
    (defaultBackoffInit, defaultBackoffMax, defaultBackoffReset). client-go starts over after 2 quiet minutes only: if
    a server drops its watches and sometimes refuses one, client-go then connects every half minute, and the caches of
    all controllers are as old as that.
    """

    INITIAL_SECONDS = 0.8
    CAP_SECONDS = 30.0
    RESET_SECONDS = 120.0

    def __init__(self, rng: random.Random) -> None:
        self._rng = rng
        self._step_seconds = self.INITIAL_SECONDS
        self._last_call_at: float | None = None

    def next_seconds(self) -> float:
        """Return the seconds to wait before the next request."""
        now = asyncio.get_running_loop().time()
        if self._last_call_at is not None and now - self._last_call_at > self.RESET_SECONDS:
            self._step_seconds = self.INITIAL_SECONDS
        self._last_call_at = now
        seconds = self._step_seconds
        self._step_seconds = min(self.CAP_SECONDS, seconds * 2)
        return seconds * (1 + self._rng.random())

    def reset(self) -> None:
        """Start over with the shortest delay, because the server answered a request."""
        self._step_seconds = self.INITIAL_SECONDS
