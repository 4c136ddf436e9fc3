"""Rate limiters of the work queue: the delay before a key is retried.

They only compute delays; the caller waits. Source: client-go util/workqueue/default_rate_limiters.go.
"""

from __future__ import annotations

import asyncio
import math
from typing import Protocol

from kubeloop.kube.client.rate_limit import TokenBucket


class RateLimiter(Protocol):
    """Computes the delay per key."""

    def when(self, key: str) -> float:
        """Return the seconds until `key` may be retried, and count one more failure of it."""
        ...

    def forget(self, key: str) -> None:
        """Reset the failures of `key`: it succeeded, or is not retried any more."""
        ...

    def num_requeues(self, key: str) -> int:
        """Return the number of when() calls for `key` since it was last forgotten."""
        ...


def backoff_seconds(failures: int, base: float = 0.005, cap: float = 1000.0) -> float:
    """Return the seconds before the retry that follows `failures` failures: base, doubled per failure, at most cap."""
    return min(cap, math.ldexp(base, min(failures, 1000)))  # a larger exponent would overflow a float


class ItemExponentialFailureRateLimiter:
    """Delay per key: base * 2^failures, at most cap (seconds)."""

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
    """Return the seconds of the running event loop's clock."""
    return asyncio.get_running_loop().time()


class BucketRateLimiter:
    """One token bucket for all keys: `qps` retries per second, at most `burst` at once."""

    def __init__(self, qps: float = 10.0, burst: int = 100) -> None:
        self._bucket = TokenBucket(qps, burst)

    def when(self, key: str) -> float:
        del key
        return self._bucket.reserve_seconds(loop_time())

    def forget(self, key: str) -> None:
        """Do nothing: a bucket stores no keys."""

    def num_requeues(self, key: str) -> int:
        del key
        return 0


class MaxOfRateLimiter:
    """The longest delay of several limiters; each when() counts in all of them."""

    def __init__(self, *limiters: RateLimiter) -> None:
        self._limiters = limiters

    def when(self, key: str) -> float:
        return max([limiter.when(key) for limiter in self._limiters], default=0.0)

    def forget(self, key: str) -> None:
        for limiter in self._limiters:
            limiter.forget(key)

    def num_requeues(self, key: str) -> int:
        return max([limiter.num_requeues(key) for limiter in self._limiters], default=0)


def controller_rate_limiter(base: float = 0.005, cap: float = 1000.0) -> RateLimiter:
    """Return the limiter of controllers: `base` to `cap` seconds per key, and 10 retries/s (burst 100) for all keys."""
    return MaxOfRateLimiter(ItemExponentialFailureRateLimiter(base, cap), BucketRateLimiter())
