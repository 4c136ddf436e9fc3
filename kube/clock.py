"""Injected wall clock. Durations and delays use the event loop's clock (`loop.time()`, `asyncio.sleep`)."""

from __future__ import annotations

import time
from datetime import UTC, datetime
from typing import Protocol


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


def rfc3339(moment: datetime) -> str:
    """Format as metav1.Time, in whole seconds: "2026-01-31T12:00:00Z"."""
    return f"{moment.isoformat(timespec='seconds')[:19]}Z"  # strftime() pads no year before 1000


def rfc3339_micro(moment: datetime) -> str:
    """Format as metav1.MicroTime: "2026-01-31T12:00:00.000000Z"."""
    return f"{moment.isoformat(timespec='microseconds')[:26]}Z"
