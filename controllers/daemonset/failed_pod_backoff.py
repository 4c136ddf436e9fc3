"""Back-off between deletions of failed pods on one node. Source: client-go util/flowcontrol/backoff.go."""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import NamedTuple

_INITIAL, _MAXIMUM = timedelta(seconds=1), timedelta(minutes=15)
_EXPIRES_AFTER = 2 * _MAXIMUM


class _Entry(NamedTuple):
    deleted_at: datetime
    delay: timedelta


class FailedPodBackoff:
    """Delay per DaemonSet, observed generation and node: one second, doubled with each deletion, at most 15 minutes.

    It starts again half an hour after the last deletion, and with a new generation.
    """

    def __init__(self) -> None:
        self._generations: dict[str, tuple[int, dict[str, _Entry]]] = {}

    def seconds(self, uid: str, generation: int, node: str, now: datetime) -> float:
        """Return the seconds for which failed pods on the node are not deleted; 0 if there is no limit."""
        stored = self._generations.get(uid)
        entry = stored[1].get(node) if stored is not None and stored[0] == generation else None
        if entry is None or now - entry.deleted_at > _EXPIRES_AFTER:
            return 0.0
        return max(0.0, (entry.deleted_at + entry.delay - now).total_seconds())

    def deleted(self, uid: str, generation: int, node: str, now: datetime) -> None:
        """Record the deletion of a failed pod."""
        stored = self._generations.get(uid)
        if stored is None or stored[0] != generation:
            stored = self._generations[uid] = (generation, {})
        entries = stored[1]
        entry = entries.get(node)
        expired = entry is None or now - entry.deleted_at > _EXPIRES_AFTER
        delay = _INITIAL if entry is None or expired else min(2 * entry.delay, _MAXIMUM)
        entries[node] = _Entry(now, delay)

    def forget(self, uid: str) -> None:
        """Drop the entries of a DaemonSet that was deleted."""
        self._generations.pop(uid, None)
