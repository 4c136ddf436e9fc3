"""An event sink that stores events instead of writing them to an API server."""

from __future__ import annotations

from typing import Any, NamedTuple


class RecordedEvent(NamedTuple):
    type: str
    reason: str
    message: str
    regarding: Any
    """The object that the event is about."""
    related: Any = None


class RecordedEvents:
    """Stands in for the event recorder of controllers and the scheduler."""

    def __init__(self) -> None:
        self.events: list[RecordedEvent] = []

    def event(
        self, about: Any, type_: str, reason: str, message: str, *, action: str = "", related: Any = None
    ) -> None:
        self.events.append(RecordedEvent(type_, reason, message, about, related))
