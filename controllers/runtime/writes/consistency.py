"""Consistency store: postpones a sync while the caches are older than the controller's own last writes.

Source: pkg/controller/util/consistency (feature gates StaleControllerConsistency*, on since v1.36).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from typing import Any, Self

import msgspec

from kubeloop.controllers.runtime.controller import StaleCache
from kubeloop.informers.metadata_accessor import is_older
from kubeloop.informers.shared_informer import SharedInformer
from kubeloop.kube.objects.api_types import Object
from kubeloop.kube.objects.resources import Resource


class _Writes(msgspec.Struct):
    uid: str
    versions: dict[str, str] = msgspec.field(default_factory=dict)  # group resource -> newest resourceVersion written


class ConsistencyStore:
    """Newest resourceVersion written per owner and resource, compared with the versions that the caches hold."""

    def __init__(self, read_versions: Mapping[str, Callable[[], str]], *, enabled: bool = True) -> None:
        """read_versions: group resource ("pods", "replicasets.apps") -> function that returns its cache's version.

        enabled: False to record nothing, so that no sync is postponed.
        """
        self._enabled = enabled
        self._read_versions = read_versions
        self._writes: dict[str, _Writes] = {}

    @classmethod
    def of(cls, *informers: SharedInformer[Any], enabled: bool = True) -> Self:
        """Return a store that compares with the caches of these informers."""
        versions = {
            informer.resource.group_resource: partial(getattr, informer, "last_resource_version")
            for informer in informers
        }
        return cls(versions, enabled=enabled)

    def wrote(self, owner: Object, resource: Resource[Any], written: Object) -> None:
        """Record that `owner` wrote an object of `resource`, and got `written` back."""
        self.wrote_at(owner.key, owner.metadata.uid, resource.group_resource, written.metadata.resource_version)

    def wrote_at(self, owner: str, uid: str, resource: str, resource_version: str) -> None:
        """Record that `owner` (key and uid) wrote an object of `resource` and got `resource_version` back."""
        if not self._enabled:
            return
        writes = self._writes.get(owner)
        if writes is None or writes.uid != uid:
            writes = self._writes[owner] = _Writes(uid)
        if not is_older(resource_version, writes.versions.get(resource, "")):  # not comparable: the later write wins
            writes.versions[resource] = resource_version

    def forget(self, owner: str, uid: str = "") -> None:
        """Drop the record of `owner` (only if it has this uid, when a uid is passed)."""
        writes = self._writes.get(owner)
        if writes is not None and uid in ("", writes.uid):
            del self._writes[owner]

    def ensure_ready(self, owner: str) -> None:
        """Raise StaleCache while a cache is older than a write of `owner`; drop the record once no cache is."""
        writes = self._writes.get(owner)
        if writes is None:
            return
        for resource, written in writes.versions.items():
            read = self._read_versions[resource]()
            if is_older(read, written):
                raise StaleCache(
                    f"read version: {read} is not as new as written version: {written} for group resource {resource}",
                    resource,
                )
        del self._writes[owner]
