"""Consistency store: postpones a sync while the caches are older than the controller's own last writes.

Source: pkg/controller/util/consistency (StaleControllerConsistencyReplicaSet, on since v1.36).
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping

import msgspec

from kubeloop.controllers.runtime.controller import StaleCache

_DECIMAL = re.compile(r"[1-9][0-9]*|0")


def compare_resource_versions_or_none(left: str, right: str) -> int | None:
    """Return a negative number, 0 or a positive number, or None if a version is not comparable.

    Comparable versions are decimal numbers of any length except "0".
    """
    if not (_is_version(left) and _is_version(right)):
        return None
    return (int(left) > int(right)) - (int(left) < int(right))


def _is_version(text: str) -> bool:
    return _DECIMAL.fullmatch(text) is not None and text != "0"


class _Writes(msgspec.Struct):
    uid: str
    versions: dict[str, str] = msgspec.field(default_factory=dict)  # group resource -> newest resourceVersion written


class ConsistencyStore:
    """Newest resourceVersion written per owner and resource, compared with the versions that the caches hold."""

    def __init__(self, read_versions: Mapping[str, Callable[[], str]]) -> None:
        """read_versions: group resource ("pods", "replicasets.apps") -> function that returns its cache's version."""
        self._read_versions = read_versions
        self._writes: dict[str, _Writes] = {}

    def wrote_at(self, owner: str, uid: str, resource: str, resource_version: str) -> None:
        """Record that `owner` (key and uid) wrote an object of `resource` and got `resource_version` back."""
        writes = self._writes.get(owner)
        if writes is None or writes.uid != uid:
            writes = self._writes[owner] = _Writes(uid)
        order = compare_resource_versions_or_none(writes.versions.get(resource, ""), resource_version)
        if order is None or order < 0:  # versions that are not comparable have no order: the later write wins
            writes.versions[resource] = resource_version

    def written_versions(self, owner: str) -> dict[str, str]:
        """Return the versions recorded for `owner`, by group resource."""
        writes = self._writes.get(owner)
        return dict(writes.versions) if writes is not None else {}

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
            if (compare_resource_versions_or_none(written, read) or 0) > 0:
                raise StaleCache(
                    f"read version: {read} is not as new as written version: {written} for group resource {resource}"
                )
        del self._writes[owner]
