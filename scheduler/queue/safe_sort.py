"""Safe order for a user's queue sort plugin: pods whose sort key raises or is not comparable are sorted last.

The default queue sort does not use this: it would cost a comparison in Python for each step in the heap.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable
from typing import Any

from kubeloop.scheduler.api.queued_pod import QueuedPodInfo


class SafeKey:
    """A sort key: ordered by the plugin's key if there is one, else by number, after all pods with a key."""

    __slots__ = ("has_key", "key", "number")

    def __init__(self, key: Any, *, has_key: bool, number: int) -> None:
        self.key = key
        self.has_key = has_key
        self.number = number

    def __lt__(self, other: SafeKey) -> bool:
        if self.has_key and other.has_key:
            try:
                return bool(self.key < other.key)
            except Exception:  # not comparable: any order that is always the same
                return (_kind(self.key), self.number) < (_kind(other.key), other.number)
        return self.has_key if self.has_key != other.has_key else self.number < other.number

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, SafeKey) or self.has_key != other.has_key:
            return False
        try:
            return bool(self.key == other.key) if self.has_key else self.number == other.number
        except Exception:  # not comparable
            return self.number == other.number

    __hash__ = None  # type: ignore[assignment]


def _kind(key: Any) -> str:
    """Return a text that is the same for keys that can be compared, so that three keys of two kinds have one order."""
    if isinstance(key, tuple | list):
        return f"{type(key).__name__}({','.join(map(_kind, key))})"
    return "number" if isinstance(key, int | float) else type(key).__qualname__


def safe_sort_key(
    sort_key: Callable[[QueuedPodInfo], Any], failed: Callable[[QueuedPodInfo, Exception], None]
) -> Callable[[QueuedPodInfo], SafeKey]:
    """Return a `sort_key` that never raises; `failed` is called with an exception of the plugin's."""
    numbers = itertools.count()

    def key_of(queued: QueuedPodInfo) -> SafeKey:
        try:
            return SafeKey(sort_key(queued), has_key=True, number=next(numbers))
        except Exception as error:
            failed(queued, error)
            return SafeKey(None, has_key=False, number=next(numbers))

    return key_of
