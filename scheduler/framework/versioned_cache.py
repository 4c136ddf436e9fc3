"""Cache of results that are valid for one version of what they were computed from."""

from __future__ import annotations

from collections.abc import Callable, Hashable
from typing import Generic, NamedTuple, TypeVar

K = TypeVar("K", bound=Hashable)
V = TypeVar("V")


class _Entry(NamedTuple, Generic[V]):
    version: object
    value: V


class VersionedCache(Generic[K, V]):
    """At most `size` results, by key; all are dropped when there are more."""

    def __init__(self, size: int) -> None:
        self._size = size
        self._entries: dict[K, _Entry[V]] = {}

    def __len__(self) -> int:
        return len(self._entries)

    def get(self, key: K, version: object, compute: Callable[[], V]) -> V:
        """Return the result for the key, which is computed if it is not cached for this version."""
        entry = self._entries.get(key)
        if entry is None or entry.version != version:
            if len(self._entries) >= self._size:
                self._entries.clear()
            entry = self._entries[key] = _Entry(version, compute())
        return entry.value
