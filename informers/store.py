"""The objects of one resource as last seen, by key ("namespace/name") and by index.

Only the informer that fills a store writes to it, always on the event loop: whoever reads without awaiting in between
sees one state. Objects are shared by the whole process; nobody changes one. May import `kubeloop.kube` alone.
"""

from __future__ import annotations

import builtins
from collections.abc import Callable, Iterable, Iterator, KeysView, ValuesView
from typing import Generic, TypeVar

from kubeloop.informers import object_metadata

T = TypeVar("T")

IndexFunction = Callable[[T], Iterable[str]]
"""The values under which an object is found. Depends on the object alone, and is called again when it changes."""

BUILT_IN_INDEXES: dict[str, Callable[[object], Iterable[str]]] = {
    "namespace": object_metadata.namespace,
    "owner": object_metadata.controller_uid,
    "node": object_metadata.node_name,
}


class Store(Generic[T]):
    """Objects by key, in the order in which they were first seen.

    An index answers in time proportional to its answer. The built-in ones ("namespace": metadata.namespace, "owner":
    uid of the controlling owner reference, "node": spec.nodeName) are built when first asked for; call add_index early
    where building over a full store would hold up the loop (1 us an object).
    """

    version: int
    """Grows with every change: whoever derives something from all objects can tell whether it still holds."""

    def __init__(self) -> None:
        self.version = 0
        self._objects: dict[str, T] = {}
        self._functions: dict[str, IndexFunction[T]] = {}
        self._indexes: dict[str, dict[str, dict[str, T]]] = {}  # index -> value -> key -> object; no empty innermost

    def get(self, key: str) -> T | None:
        return self._objects.get(key)

    def __getitem__(self, key: str) -> T:
        return self._objects[key]

    def __contains__(self, key: object) -> bool:
        return key in self._objects

    def __len__(self) -> int:
        return len(self._objects)

    def __iter__(self) -> Iterator[str]:
        return iter(self._objects)

    def list(self) -> list[T]:
        """All objects: a copy, which stays as it is."""
        return [*self._objects.values()]

    def keys(self) -> KeysView[str]:
        """A live view: do not await while iterating."""
        return self._objects.keys()

    def values(self) -> ValuesView[T]:
        """A live view: do not await while iterating."""
        return self._objects.values()

    def by_index(self, index: str, value: str) -> builtins.list[T]:
        """The objects under `value`: a copy, which stays as it is. Raises KeyError for an index that nobody added."""
        found = self._index(index).get(value)
        return [*found.values()] if found else []

    def view(self, index: str, value: str) -> ValuesView[T]:
        """The objects under `value`, not copied: do not await while iterating."""
        found = self._index(index).get(value)
        return found.values() if found else {}.values()

    def count(self, index: str, value: str) -> int:
        found = self._index(index).get(value)
        return len(found) if found else 0

    def index_values(self, index: str) -> KeysView[str]:
        """The values under which there is anything. A live view: do not await while iterating."""
        return self._index(index).keys()

    def add_index(self, name: str, function: IndexFunction[T] | None = None) -> None:
        """Keep an index from now on, over what is there and what comes. Without a function: a built-in one.

        Adding the same again is fine; another function under a taken name raises ValueError.
        """
        if function is None:
            function = BUILT_IN_INDEXES[name]
        known = self._functions.get(name)
        if known is not None:
            if known != function:
                raise ValueError(f"index {name!r} exists with another function")
            return
        self._functions[name] = function
        index = self._indexes[name] = {}
        for key, obj in self._objects.items():
            for value in function(obj):
                index.setdefault(value, {})[key] = obj

    def put(self, key: str, obj: T) -> T | None:
        """Set what stands under `key`; the object that stood there before, if any. For the informer only."""
        self.version += 1
        old = self._objects.get(key)
        self._objects[key] = obj
        for name, function in self._functions.items():
            index = self._indexes[name]
            values = tuple(function(obj))
            if old is not None:
                for value in function(old):
                    if value not in values:
                        self._drop(index, value, key)
            for value in values:
                entries = index.get(value)
                if entries is None:
                    entries = index[value] = {}
                entries[key] = obj
        return old

    def remove(self, key: str) -> T | None:
        """Remove what stands under `key` and return it. For the informer only."""
        old = self._objects.pop(key, None)
        if old is not None:
            self.version += 1
            for name, function in self._functions.items():
                for value in function(old):
                    self._drop(self._indexes[name], value, key)
        return old

    def check(self) -> None:
        """Assert that every index says what the objects say."""
        for name, function in self._functions.items():
            expected: dict[str, dict[str, T]] = {}
            for key, obj in self._objects.items():
                for value in function(obj):
                    expected.setdefault(value, {})[key] = obj
            assert self._indexes[name] == expected, name

    def _index(self, name: str) -> dict[str, dict[str, T]]:
        index = self._indexes.get(name)
        if index is None:
            self.add_index(name)
            index = self._indexes[name]
        return index

    @staticmethod
    def _drop(index: dict[str, dict[str, T]], value: str, key: str) -> None:
        entries = index.get(value)
        if entries is not None:
            entries.pop(key, None)
            if not entries:
                del index[value]
