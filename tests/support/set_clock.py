"""A clock that stands still where it is put, for tests of what happens at one moment."""

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
