"""Injected wall clock. Durations and delays use the event loop's clock (`loop.time()`, `asyncio.sleep`)."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from datetime import UTC, datetime
from typing import Protocol

import msgspec

_encode = msgspec.json.Encoder().encode


class Clock(Protocol):
    """Wall clock for timestamps of objects, events and spans."""

    def now(self) -> datetime:
        """Return the current time in UTC, timezone-aware, with microseconds."""
        ...

    def time_ns(self) -> int:
        """Return nanoseconds since the epoch, of the same clock."""
        ...


class SystemClock:
    """The system's clock."""

    def now(self) -> datetime:
        return datetime.now(UTC)

    time_ns = staticmethod(time.time_ns)  # without a call of its own: it is read 70 times per pod


def is_virtual(loop: asyncio.AbstractEventLoop) -> bool:
    """Return True if the loop's time does not pass by itself, but jumps to the next timer."""
    return getattr(loop, "is_virtual", False)


async def pause(seconds: float, due: float | None = None, *, has_work: Callable[[], bool] | None = None) -> float:
    """Sleep between two runs of periodic work that changes nothing while the process is idle. Return how late it ends.

    due: loop time from which time alone gives the work something to do, None if it never does. has_work: returns False
    while other work has given it nothing to do, either. In virtual time, the runs before `due` are skipped in which
    nothing but such work has run since the last one, and those without work; the others have their times. Cancellation:
    safe.
    """
    loop = asyncio.get_running_loop()
    if is_virtual(loop):
        return await loop.pause(seconds, due, has_work)  # type: ignore[attr-defined, no-any-return]
    end = loop.time() + seconds
    await asyncio.sleep(seconds)
    return loop.time() - end


def rfc3339(moment: datetime) -> str:
    """Format as metav1.Time, in whole seconds: "2026-01-31T12:00:00Z"."""
    return f"{_encode(moment)[1:20].decode()}Z"  # a sixth of isoformat()'s time; strftime() pads no year before 1000


def rfc3339_micro(moment: datetime) -> str:
    """Format as metav1.MicroTime: "2026-01-31T12:00:00.000000Z"."""
    return f"{moment.isoformat(timespec='microseconds')[:26]}Z"
