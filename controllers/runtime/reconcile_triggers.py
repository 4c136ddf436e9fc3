"""Triggers of a reconcile, for its trace. The reconcile itself reads the caches, never the event that triggered it."""

from __future__ import annotations

_MAX_TRIGGERS = 4


class ReconcileTriggers:
    """Per key the reasons for which it was enqueued since its last reconcile."""

    def __init__(self) -> None:
        self._triggers: dict[str, list[str]] = {}

    def add(self, key: str, reason: str) -> None:
        """Record why `key` is enqueued. Keeps the first few distinct reasons."""
        if not reason:
            return
        triggers = self._triggers.get(key)
        if triggers is None:
            self._triggers[key] = [reason]
        elif len(triggers) < _MAX_TRIGGERS and reason not in triggers:
            triggers.append(reason)

    def pop(self, key: str) -> str:
        """Return and clear the reasons of `key`, or "retry or time" if no event triggered it."""
        triggers = self._triggers.pop(key, None)
        return ", ".join(triggers) if triggers else "retry or time"
