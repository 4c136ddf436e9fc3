"""Token bucket for client-side rate limits, on the event loop's clock."""

from __future__ import annotations

import asyncio


class TokenBucketRateLimiter:
    """`burst` tokens at most, `qps` new ones per second. Tokens may be owed: takers are served in order of arrival.

    Source: golang.org/x/time/rate, as client-go's flow control uses it.
    """

    def __init__(self, qps: float, burst: int) -> None:
        self._qps = qps
        self._burst = float(burst)
        self._tokens = float(burst)
        self._counted_at: float | None = None  # loop time at which _tokens was right; None before the first take

    def reserve_seconds(self, now: float) -> float:
        """Take one token; the seconds after which it may be used. `now` is loop time."""
        if self._counted_at is not None:
            self._tokens = min(self._burst, self._tokens + (now - self._counted_at) * self._qps)
        self._counted_at = now
        self._tokens -= 1.0
        return max(0.0, -self._tokens / self._qps)

    def try_take(self, now: float) -> bool:
        """Take one token if there is one now. `now` is loop time."""
        if self.reserve_seconds(now) <= 0:
            return True
        self._tokens += 1.0
        return False

    async def take(self) -> None:
        """Wait for a token. Cancellation: safe; a cancelled take() gives its token back."""
        wait_seconds = self.reserve_seconds(asyncio.get_running_loop().time())
        if wait_seconds > 0:
            try:
                await asyncio.sleep(wait_seconds)
            except asyncio.CancelledError:
                self._tokens += 1.0
                raise
