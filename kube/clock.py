"""Wall time, injected. Durations and waiting are the event loop's (`loop.time()`, `asyncio.sleep`)."""

from __future__ import annotations

import time
from datetime import UTC, datetime
from typing import Protocol


class Clock(Protocol):
    """Wall time: what stands in objects, events and spans."""

    def now(self) -> datetime:
        """The time in UTC, aware, to the microsecond."""
        ...

    def time_ns(self) -> int:
        """Nanoseconds since the epoch, of the same clock."""
        ...


class SystemClock:
    """The machine's own clock."""

    def now(self) -> datetime:
        return datetime.now(UTC)

    def time_ns(self) -> int:
        return time.time_ns()


def rfc3339(moment: datetime) -> str:
    """metav1.Time: whole seconds, "2026-01-31T12:00:00Z"."""
    return moment.strftime("%Y-%m-%dT%H:%M:%SZ")


def rfc3339_micro(moment: datetime) -> str:
    """metav1.MicroTime: "2026-01-31T12:00:00.000000Z"."""
    return moment.strftime("%Y-%m-%dT%H:%M:%S.%fZ")
