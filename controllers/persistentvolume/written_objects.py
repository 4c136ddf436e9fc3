"""Objects that a controller has written and that its cache may not show yet."""

from __future__ import annotations

from typing import Generic, TypeVar

from kubeloop.informers.metadata_accessor import is_older
from kubeloop.informers.store import Store
from kubeloop.kube.objects.api_types import Object

T = TypeVar("T", bound=Object)


class WrittenObjects(Generic[T]):
    """The newer one of a cached object and our last write of it, so that two writes in a row do not conflict."""

    def __init__(self, cache: Store[T]) -> None:
        self._cache = cache
        self._written: dict[str, T] = {}

    def get(self, key: str) -> T | None:
        """Return the newest known version of an object; None if the cache does not have it."""
        cached = self._cache.get(key)
        written = self._written.get(key)
        if cached is None or written is None:
            self._written.pop(key, None)
            return cached
        same = cached.metadata.uid == written.metadata.uid
        if same and is_older(cached.metadata.resource_version, written.metadata.resource_version):
            return written
        del self._written[key]
        return cached

    def wrote(self, obj: T) -> T:
        """Record the response of a write, and return it."""
        self._written[obj.key] = obj
        return obj
