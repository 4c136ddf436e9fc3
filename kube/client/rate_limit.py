"""Token bucket: the rate limit of requests, events and retries."""

from __future__ import annotations

import asyncio


class TokenBucket:
    """Holds at most `burst` tokens, and gets `qps` per second. Tokens may be borrowed: callers are served in order.

    Source: golang.org/x/time/rate, as client-go's flow control uses it.
    """

    def __init__(self, qps: float, burst: int) -> None:
        self._qps = qps
        self._burst = float(burst)
        self._tokens = float(burst)
        self._updated_at: float | None = None  # time of the value in _tokens; None before the first take

    def reserve_seconds(self, now: float) -> float:
        """Take one token; returns the seconds until it may be used. `now` is in seconds, of any one clock."""
        if self._updated_at is not None:
            elapsed_seconds = max(0.0, now - self._updated_at)
            self._tokens = min(self._burst, self._tokens + elapsed_seconds * self._qps)
        self._updated_at = now
        self._tokens -= 1.0
        return max(0.0, -self._tokens / self._qps)

    def try_take(self, now: float) -> bool:
        """Take one token if one is available now. `now` is in seconds, of any one clock."""
        if self.reserve_seconds(now) <= 0:
            return True
        self._tokens += 1.0
        return False

    async def take(self) -> None:
        """Wait for a token. Cancellation: safe; a cancelled take() returns its token."""
        wait_seconds = self.reserve_seconds(asyncio.get_running_loop().time())
        if wait_seconds > 0:
            try:
                await asyncio.sleep(wait_seconds)
            except asyncio.CancelledError:
                self._tokens += 1.0
                raise
