"""Reading one's own writes: a sync is put off while the caches are older than what it last wrote.

Source: pkg/controller/util/consistency (StaleControllerConsistencyReplicaSet, on since v1.36).
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping

import msgspec

from kubeloop.controllers.runtime.controller import StaleCache

_DECIMAL = re.compile(r"[1-9][0-9]*|0")


def compare_resource_versions(a: str, b: str) -> int | None:
    """Negative, 0 or positive; None if they cannot be compared. Decimal numbers of any length, "0" excepted."""
    if not (_is_version(a) and _is_version(b)):
        return None
    return (int(a) > int(b)) - (int(a) < int(b))


def _is_version(text: str) -> bool:
    return _DECIMAL.fullmatch(text) is not None and text != "0"


class _Writes(msgspec.Struct):
    uid: str
    versions: dict[str, str] = msgspec.field(default_factory=dict)  # group resource -> newest resourceVersion written


class ConsistencyStore:
    """The newest resourceVersion written per owner and resource, against what the stores have seen."""

    def __init__(self, read_versions: Mapping[str, Callable[[], str]]) -> None:
        """read_versions: per group resource ("pods", "replicasets.apps") the newest version its store has seen."""
        self._read_versions = read_versions
        self._writes: dict[str, _Writes] = {}

    def wrote(self, owner: str, uid: str, resource: str, resource_version: str) -> None:
        """`owner` (key and uid) wrote an object of `resource`, and the API server answered with this version."""
        writes = self._writes.get(owner)
        if writes is None or writes.uid != uid:
            writes = self._writes[owner] = _Writes(uid)
        order = compare_resource_versions(writes.versions.get(resource, ""), resource_version)
        if order is None or order < 0:  # versions that cannot be compared say nothing: the later one stands
            writes.versions[resource] = resource_version

    def written(self, owner: str) -> dict[str, str]:
        """What is remembered for `owner`, by resource."""
        writes = self._writes.get(owner)
        return dict(writes.versions) if writes is not None else {}

    def forget(self, owner: str, uid: str = "") -> None:
        """Remember nothing of `owner` (of this uid, if one is given)."""
        writes = self._writes.get(owner)
        if writes is not None and uid in ("", writes.uid):
            del self._writes[owner]

    def ensure_ready(self, owner: str) -> None:
        """Raise StaleCache while a store has not seen what `owner` wrote. Once all have, the record is dropped."""
        writes = self._writes.get(owner)
        if writes is None:
            return
        for resource, wrote in writes.versions.items():
            read = self._read_versions[resource]()
            if (compare_resource_versions(wrote, read) or 0) > 0:
                raise StaleCache(
                    f"read version: {read} is not as new as written version: {wrote} for group resource {resource}"
                )
        del self._writes[owner]
