"""Why a key is reconciled, for its trace: a reconcile itself reads the caches, never the event that woke it."""

from __future__ import annotations

_MAX_REASONS = 4


class ReconcileTriggers:
    """The events since the last reconcile of each key, in words."""

    def __init__(self) -> None:
        self._triggers: dict[str, list[str]] = {}

    def note(self, key: str, reason: str) -> None:
        """`key` is put on the queue for this reason. The first few different ones are kept."""
        if not reason:
            return
        noted = self._triggers.get(key)
        if noted is None:
            self._triggers[key] = [reason]
        elif len(noted) < _MAX_REASONS and reason not in noted:
            noted.append(reason)

    def take(self, key: str) -> str:
        """What woke `key`; "retry or time" if no event did. They are forgotten."""
        noted = self._triggers.pop(key, None)
        return ", ".join(noted) if noted else "retry or time"
