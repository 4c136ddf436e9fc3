"""Timers of the simulation: one heap for all nodes and pods, no task per pod or node."""

from __future__ import annotations

import asyncio
import heapq
from collections.abc import Callable
from typing import Any


class Timer:
    """An action at a time. cancel() may be called repeatedly, also after the action."""

    __slots__ = ("act", "argument")

    def __init__(self, act: Callable[[Any], None], argument: Any) -> None:
        self.act: Callable[[Any], None] | None = act
        self.argument = argument

    def cancel(self) -> None:
        self.act = None


class TimerQueue:
    """Timers in seconds of the event loop's clock; one heap for all nodes and pods. Equal times keep their order."""

    def __init__(self) -> None:
        self._heap: list[tuple[float, int, Timer]] = []
        self._serial = 0

    def at(self, when: float, act: Callable[[Any], None], argument: Any = None) -> Timer:
        """Call `act(argument)` at loop time `when`."""
        self._serial += 1
        timer = Timer(act, argument)
        heapq.heappush(self._heap, (when, self._serial, timer))
        return timer

    def next_due(self) -> float | None:
        """Return the time of the next timer that is not cancelled."""
        while self._heap and self._heap[0][2].act is None:
            heapq.heappop(self._heap)
        return self._heap[0][0] if self._heap else None

    async def wait(self, wake: asyncio.Event) -> None:
        """Wait until a timer is due or `wake` is set, and clear the event."""
        handle, due = None, self.next_due()
        if due is not None:
            handle = asyncio.get_running_loop().call_at(due, wake.set)
        try:
            await wake.wait()
        finally:
            if handle is not None:
                handle.cancel()
        wake.clear()

    def pop(self, now: float) -> Timer | None:
        """Remove and return the next due timer; None if none is due."""
        due = self.next_due()
        return heapq.heappop(self._heap)[2] if due is not None and due <= now else None
