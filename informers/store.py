"""Store: the last received objects of one resource, by key ("namespace/name") and by index.

Only the informer that fills a store writes to it, always on the event loop: code that does not await between two reads
sees one consistent state. Objects are shared by the whole process and must not be modified.
"""

from __future__ import annotations

import builtins
from collections.abc import Callable, Iterable, Iterator, KeysView, ValuesView
from typing import Any, Generic, TypeVar

from kubeloop.kube.objects.object_fields import controller_of, pod_group_key

T = TypeVar("T")

IndexFunction = Callable[[T], Iterable[str]]
"""Returns the index values of an object. Must depend on the object only; called again when the object changes."""


def _controller_uid(obj: Any) -> tuple[str, ...]:
    """Return the UID of the owner reference with controller=true, if there is one."""
    if isinstance(obj, dict):
        references = (obj.get("metadata") or {}).get("ownerReferences") or ()
        return tuple(reference.get("uid", "") for reference in references if reference.get("controller"))[:1]
    reference = controller_of(obj.metadata)
    return () if reference is None else (reference.uid,)


def _namespace(obj: Any) -> tuple[str, ...]:
    """Return metadata.namespace."""
    if isinstance(obj, dict):
        return ((obj.get("metadata") or {}).get("namespace", ""),)
    return (obj.metadata.namespace,)


def _node_name(obj: Any) -> tuple[str, ...]:
    """Return spec.nodeName, if set."""
    name = (obj.get("spec") or {}).get("nodeName", "") if isinstance(obj, dict) else obj.spec.node_name
    return (name,) if name else ()


def _pod_group(pod: Any) -> tuple[str, ...]:
    """Return the key of the PodGroup of a Pod, if it has one."""
    key = pod_group_key(pod)
    return () if key is None else (key,)


BUILT_IN_INDEXES: dict[str, Callable[[object], Iterable[str]]] = {
    "namespace": _namespace,
    "owner": _controller_uid,
    "node": _node_name,
    "pod-group": _pod_group,
}


class Store(Generic[T]):
    """Objects by key, in the order in which they were added.

    A lookup by index takes time proportional to its result. The built-in indexes ("namespace": metadata.namespace,
    "owner": UID of the controller owner reference, "node": spec.nodeName, "pod-group": key of a Pod's PodGroup) are
    built on first use; call add_index early where building over a full store would block the event loop (1 us per
    object).
    """

    version: int
    """Increases with every change, so that values derived from all objects can be checked for staleness."""

    def __init__(self) -> None:
        self.version = 0
        self._objects: dict[str, T] = {}
        self._index_functions: dict[str, IndexFunction[T]] = {}
        self._indexes: dict[str, dict[str, dict[str, T]]] = {}  # index -> value -> key -> object; no empty inner dict

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
        """Return a copy of all objects."""
        return [*self._objects.values()]

    def keys(self) -> KeysView[str]:
        """Return a live view: do not await while iterating."""
        return self._objects.keys()

    def values(self) -> ValuesView[T]:
        """Return a live view: do not await while iterating."""
        return self._objects.values()

    def by_index(self, index: str, value: str) -> builtins.list[T]:
        """Return a copy of the objects under `value`. Raises KeyError for an unknown index."""
        entries = self._index(index).get(value)
        return [*entries.values()] if entries else []

    def index_values(self, index: str) -> KeysView[str]:
        """Return a live view of the values under which there are objects: do not await while iterating."""
        return self._index(index).keys()

    def view(self, index: str, value: str) -> ValuesView[T]:
        """Return a live view of the objects under `value`: do not await while iterating."""
        entries = self._index(index).get(value)
        return entries.values() if entries else {}.values()

    def count(self, index: str, value: str) -> int:
        entries = self._index(index).get(value)
        return len(entries) if entries else 0

    def add_index(self, name: str, function: IndexFunction[T] | None = None) -> None:
        """Add an index over all present and future objects. Without a function: a built-in index.

        Adding the same index again does nothing; another function under an existing name raises ValueError.
        """
        if function is None:
            function = BUILT_IN_INDEXES[name]
        existing = self._index_functions.get(name)
        if existing is not None:
            if existing != function:
                raise ValueError(f"index {name!r} exists with another function")
            return
        self._index_functions[name] = function
        index = self._indexes[name] = {}
        for key, obj in self._objects.items():
            for value in function(obj):
                index.setdefault(value, {})[key] = obj

    def shared_index(self, name: str, function: IndexFunction[T]) -> str:
        """Return the name of the index with this function, which is added as `name` if there is none."""
        for existing, other in self._index_functions.items():
            if other == function:
                return existing
        self.add_index(name, function)
        return name

    def put(self, key: str, obj: T) -> T | None:
        """Store `obj` under `key` and return the previous object, if any. For the informer only."""
        self.version += 1
        old = self._objects.get(key)
        self._objects[key] = obj
        for name, function in self._index_functions.items():
            index = self._indexes[name]
            values = tuple(function(obj))
            if old is not None:
                for value in function(old):
                    if value not in values:
                        self._remove_from_index(index, value, key)
            for value in values:
                entries = index.get(value)
                if entries is None:
                    entries = index[value] = {}
                entries[key] = obj
        return old

    def remove(self, key: str) -> T | None:
        """Remove the object under `key` and return it. For the informer only."""
        old = self._objects.pop(key, None)
        if old is not None:
            self.version += 1
            for name, function in self._index_functions.items():
                for value in function(old):
                    self._remove_from_index(self._indexes[name], value, key)
        return old

    def check(self) -> None:
        """Assert that every index agrees with the objects."""
        for name, function in self._index_functions.items():
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
    def _remove_from_index(index: dict[str, dict[str, T]], value: str, key: str) -> None:
        entries = index.get(value)
        if entries is not None:
            entries.pop(key, None)
            if not entries:
                del index[value]
