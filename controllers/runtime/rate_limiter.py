"""How long a key waits before it is tried again.

Pure bookkeeping: the caller waits. May import the standard library only. Source: client-go
util/workqueue/default_rate_limiters.go and golang.org/x/time/rate.
"""

from __future__ import annotations

import asyncio
import math
from collections.abc import Callable
from typing import Protocol


class RateLimiter(Protocol):
    """Decides the waiting time per key."""

    def when(self, key: str) -> float:
        """Seconds until `key` may be tried again; the question itself counts as one more failure."""
        ...

    def forget(self, key: str) -> None:
        """`key` succeeded, or was given up: its next failure is its first."""
        ...

    def num_requeues(self, key: str) -> int:
        """How often when() was asked for `key` since it was last forgotten."""
        ...


def backoff_seconds(failures: int, base: float = 0.005, cap: float = 1000.0) -> float:
    """Seconds to the next try after `failures` earlier ones: base, doubled per failure, at most cap."""
    return min(cap, math.ldexp(base, min(failures, 1000)))  # a larger exponent would overflow a float


class ItemExponentialFailureRateLimiter:
    """Per key: base * 2^failures, at most cap (seconds)."""

    def __init__(self, base: float = 0.005, cap: float = 1000.0) -> None:
        self._base = base
        self._cap = cap
        self._failures: dict[str, int] = {}

    def when(self, key: str) -> float:
        failures = self._failures.get(key, 0)
        self._failures[key] = failures + 1
        return backoff_seconds(failures, self._base, self._cap)

    def forget(self, key: str) -> None:
        self._failures.pop(key, None)

    def num_requeues(self, key: str) -> int:
        return self._failures.get(key, 0)


def loop_time() -> float:
    """Seconds of the running event loop's clock."""
    return asyncio.get_running_loop().time()


class BucketRateLimiter:
    """One bucket for all keys: `rate` tokens a second, at most `burst` of them. Borrowing is allowed and waited for."""

    def __init__(self, rate: float = 10.0, burst: int = 100, *, now: Callable[[], float] = loop_time) -> None:
        self._rate = rate
        self._burst = burst
        self._now = now
        self._tokens = float(burst)
        self._filled_at: float | None = None

    def when(self, key: str) -> float:
        del key
        now = self._now()
        if self._filled_at is not None:
            elapsed = max(0.0, now - self._filled_at)
            self._tokens = min(float(self._burst), self._tokens + elapsed * self._rate)
        self._filled_at = now
        self._tokens -= 1.0
        return max(0.0, -self._tokens / self._rate)

    def forget(self, key: str) -> None:
        """A bucket remembers no keys."""

    def num_requeues(self, key: str) -> int:
        del key
        return 0


class MaxOfRateLimiter:
    """The longest wait of several limiters; each of them counts every question."""

    def __init__(self, *limiters: RateLimiter) -> None:
        self._limiters = limiters

    def when(self, key: str) -> float:
        return max([limiter.when(key) for limiter in self._limiters], default=0.0)

    def forget(self, key: str) -> None:
        for limiter in self._limiters:
            limiter.forget(key)

    def num_requeues(self, key: str) -> int:
        return max([limiter.num_requeues(key) for limiter in self._limiters], default=0)


def controller_rate_limiter(now: Callable[[], float] = loop_time) -> RateLimiter:
    """What controllers use: 5 ms to 1000 s per key, and 10 retries a second (burst 100) over all keys."""
    return MaxOfRateLimiter(ItemExponentialFailureRateLimiter(), BucketRateLimiter(now=now))
