"""Difference of the objects before and after the changes of a plan, before the controllers react."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, Final

import msgspec

from kubeloop.kube.json_object import JSON
from kubeloop.kube.objects.resources import Resource
from kubeloop.planning.result import ObjectChange
from kubeloop.recording.projection import OMITTED

DEPENDENT_KINDS: Final = frozenset(
    {"Deployment", "StatefulSet", "DaemonSet", "ReplicaSet", "ReplicationController", "Job", "Pod"}
)
"""Kinds of workloads that a user applies, and that have pods."""

_METADATA: Final = ("labels", "annotations")
_BOOKKEEPING: Final = (
    "kubectl.kubernetes.io/last-applied-configuration",
    "deployment.kubernetes.io/revision",
    "deprecated.daemonset.template.generation",
)
_MAX_FIELDS: Final = 8
_MAX_VALUE: Final = 40  # characters

Objects = Mapping[Resource[Any], Mapping[str, JSON]]


def object_changes(before: Objects, after: Objects) -> list[ObjectChange]:
    """Return the changes by kind and name, created objects last."""
    changes = []
    for resource, objects in after.items():
        old_objects = before[resource]
        for key, obj in objects.items():
            old = old_objects.get(key)
            if old is obj:
                continue
            if old is None:
                changes.append(_change("create", obj))
            elif fields := changed_fields(old, obj):
                changes.append(_change("change", obj, fields))
        changes += [_change("delete", old) for key, old in old_objects.items() if key not in objects]
    return changes


def _change(action: Any, obj: JSON, fields: list[str] | None = None) -> ObjectChange:
    metadata = obj["metadata"]
    return ObjectChange(action, obj["kind"], metadata["name"], metadata.get("namespace", ""), fields or [])


def changed_fields(before: JSON, after: JSON) -> list[str]:
    """Return the fields that a user may have changed, as "replicas 4 -> 12"."""
    differences = [*_differences(_user_fields(before), _user_fields(after), "")]
    left_out = len(differences) - _MAX_FIELDS
    return differences[:_MAX_FIELDS] + ([f"and {left_out} more fields"] if left_out > 0 else [])


def _user_fields(obj: JSON) -> JSON:
    fields = {name: value for name, value in obj.items() if name not in ("metadata", "status", "apiVersion", "kind")}
    for name in _METADATA:
        values = obj["metadata"].get(name) or {}
        fields[name] = {key: value for key, value in values.items() if key not in _BOOKKEEPING}
    return fields


def _differences(before: Any, after: Any, path: str) -> Iterator[str]:
    if before == after:
        return
    if isinstance(before or after, list):
        before, after = before or [], after or []
    if isinstance(before, dict) and isinstance(after, dict):
        for name in dict.fromkeys((*before, *after)):
            yield from _differences(before.get(name), after.get(name), f"{path}.{name}")
    elif isinstance(before, list) and isinstance(after, list) and (named := _by_name(before, after)) is not None:
        old, new = named
        for name in dict.fromkeys((*old, *new)):
            yield from _differences(old.get(name), new.get(name), f"{path}.{name}")
    elif path.endswith(f".{OMITTED}.value") or path.endswith(f".{OMITTED}"):
        yield f"{_short(path.partition('.env.')[0])} environment, command or mounts"
    else:
        yield f"{_short(path)} {_text(before)} -> {_text(after)}"


def _by_name(before: list[Any], after: list[Any]) -> tuple[dict[str, Any], dict[str, Any]] | None:
    """Return the items of two lists by their names, None if they have no unique names."""
    named = []
    for items in (before, after):
        by_name = {item["name"]: item for item in items if isinstance(item, dict) and isinstance(item.get("name"), str)}
        if len(by_name) != len(items):
            return None
        named.append(by_name)
    return named[0], named[1]


def _short(path: str) -> str:
    """Return a path as users know it: without spec and template."""
    for prefix in (".spec.template.spec.", ".spec.jobTemplate.spec.template.spec.", ".spec.", "."):
        if path.startswith(prefix):
            return path.removeprefix(prefix)
    return path


def _text(value: Any) -> str:
    if value is None or value == {}:
        return "none"
    text = value if isinstance(value, str) else msgspec.json.encode(value).decode()
    return text if len(text) <= _MAX_VALUE else f"{text[: _MAX_VALUE - 3]}..."
