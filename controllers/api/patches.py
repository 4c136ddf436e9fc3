"""Patches for Client.patch. Source: controller-runtime pkg/client/patch.go."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import msgspec

from kubeloop.controllers.api.objects import ApiObject, manifest_of, metadata_of
from kubeloop.kube.client.api_client import PatchType
from kubeloop.kube.objects.api_types import JSONValue


class Patch(msgspec.Struct, frozen=True):
    """A patch: its type, and a function that returns the body for the object to patch."""

    type: PatchType
    body_for: Callable[[ApiObject], Any]


def merge_patch(body: Mapping[str, JSONValue]) -> Patch:
    """Return a JSON merge patch; null removes a field. It applies to any version of the object with its uid."""
    return Patch(PatchType.MERGE, lambda obj: _pinned(body, obj))


def strategic_merge_patch(body: Mapping[str, JSONValue]) -> Patch:
    """Return a strategic merge patch, for built-in kinds: lists are merged by the keys of their items."""
    return Patch(PatchType.STRATEGIC, lambda obj: _pinned(body, obj))


def json_patch(operations: Sequence[Mapping[str, JSONValue]]) -> Patch:
    """Return a JSON patch (RFC 6902)."""
    return Patch(PatchType.JSON, lambda obj: [*operations])


def merge_from(old: ApiObject, *, optimistic_lock: bool = False) -> Patch:
    """Return the JSON merge patch that turns `old` into the object to patch; it contains the changed fields only.

    optimistic_lock: it applies to the version `old` only, and raises Conflict for another one.
    """

    def body_for(new: ApiObject) -> Any:
        body = _difference(manifest_of(old), manifest_of(new))
        version = metadata_of(old).resource_version
        return _pinned(body, old, resourceVersion=version) if optimistic_lock else _pinned(body, old)

    return Patch(PatchType.MERGE, body_for)


def pinned_merge_patch(obj: ApiObject, **members: JSONValue) -> dict[str, JSONValue]:
    """Return a merge patch of `members` that applies to this version of the object only."""
    return _pinned(members, obj, resourceVersion=metadata_of(obj).resource_version)


def _pinned(body: Mapping[str, JSONValue], obj: ApiObject, **pins: str) -> dict[str, JSONValue]:
    """Return a patch with the uid as precondition: it does not apply to another object of the same name."""
    uid = metadata_of(obj).uid
    preconditions = {**({"uid": uid} if uid else {}), **pins}
    return {**body, "metadata": {**(body.get("metadata") or {}), **preconditions}}


def _difference(old: Mapping[str, JSONValue], new: Mapping[str, JSONValue]) -> dict[str, JSONValue]:
    changes: dict[str, JSONValue] = dict.fromkeys(old.keys() - new.keys())
    for name, value in new.items():
        before = old.get(name)
        if isinstance(before, dict) and isinstance(value, dict):
            if nested := _difference(before, value):
                changes[name] = nested
        elif before != value or name not in old:
            changes[name] = value
    return changes
