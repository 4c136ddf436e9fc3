"""The order of a user's queue sort plugin, which may raise or give keys that cannot be compared: such pods go last.

The default order does without this: it costs a comparison in Python for each step in the heap.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable
from typing import Any

from kubeloop.scheduler.api.queued_pod import QueuedPodInfo


class SafeKey:
    """Ordered by the plugin's key where there is one, else by number; pods without a key come after those with one."""

    __slots__ = ("key", "known", "number")

    def __init__(self, key: Any, *, known: bool, number: int) -> None:
        self.key = key
        self.known = known
        self.number = number

    def __lt__(self, other: SafeKey) -> bool:
        if self.known and other.known:
            try:
                return bool(self.key < other.key)
            except Exception:  # of two kinds, as a plugin's mistake: any order will do that is always the same
                return self.number < other.number
        return self.known if self.known != other.known else self.number < other.number

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, SafeKey) or self.known != other.known:
            return False
        try:
            return bool(self.key == other.key) if self.known else self.number == other.number
        except Exception:  # as above
            return self.number == other.number

    __hash__ = None  # type: ignore[assignment]


def safe_sort_key(
    sort_key: Callable[[QueuedPodInfo], Any], failed: Callable[[QueuedPodInfo, Exception], None]
) -> Callable[[QueuedPodInfo], SafeKey]:
    """`sort_key` that never raises; `failed` is told of what it raised."""
    numbers = itertools.count()

    def key_of(queued: QueuedPodInfo) -> SafeKey:
        try:
            return SafeKey(sort_key(queued), known=True, number=next(numbers))
        except Exception as error:
            failed(queued, error)
            return SafeKey(None, known=False, number=next(numbers))

    return key_of
