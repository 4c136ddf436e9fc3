"""A clock that shows the time that the test sets."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime


@dataclass
class SetClock:
    moment: datetime

    def now(self) -> datetime:
        return self.moment

    def time_ns(self) -> int:
        return int(self.moment.timestamp()) * 10**9
