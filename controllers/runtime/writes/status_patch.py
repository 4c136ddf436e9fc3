"""Merge patches that turn one version of an object into another, field by field.

A write never sends a partial struct. It sends the changed fields and the resourceVersion that the decision was based
on (JSON merge patch), so that it conflicts in the same cases as an update.
"""

from __future__ import annotations

from collections.abc import Mapping

from kubeloop.kube.objects.api_types import JSONValue, Struct, to_json


def versioned_merge_patch(resource_version: str, **members: JSONValue) -> dict[str, JSONValue]:
    """Return a merge patch of `members` that applies to this resourceVersion only."""
    metadata = members.pop("metadata", {})
    pin = {"resourceVersion": resource_version} if resource_version else {}
    return {"metadata": {**pin, **metadata}, **members}


def changed_fields(old: Struct, new: Struct, *, always: Mapping[str, JSONValue] | None = None) -> dict[str, JSONValue]:
    """Return the merge patch members that turn `old` into `new`; null removes a field.

    A field that became its zero value is removed, as with Go's omitempty; a field named in `always` is set to the value
    given there instead.
    """
    before, after = to_json(old), to_json(new)
    changes = {name: value for name, value in after.items() if before.get(name) != value}
    for name in before:
        if name not in after:
            changes[name] = always[name] if always is not None and name in always else None
    return changes
