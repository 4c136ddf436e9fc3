"""Access to fields of objects by their path, and to their metadata."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from kubeloop.kube.json_object import JSON


def value_at(obj: JSON, names: Iterable[str]) -> Any:
    """Return the value of the field at a path, None if it or one of its parents is unset."""
    value: Any = obj
    for name in names:
        value = value.get(name) if isinstance(value, dict) else None
    return value


def without_managed_fields(obj: JSON) -> JSON:
    """Return the object without its managedFields."""
    metadata = {name: value for name, value in obj["metadata"].items() if name != "managedFields"}
    return {**obj, "metadata": metadata}


def with_annotation(obj: JSON, name: str, value: str) -> JSON:
    """Return a copy of an object with an annotation."""
    metadata = obj["metadata"]
    return {**obj, "metadata": {**metadata, "annotations": {**(metadata.get("annotations") or {}), name: value}}}


def without_annotation(obj: JSON, name: str) -> JSON:
    """Return a copy of an object without an annotation."""
    metadata = dict(obj["metadata"])
    rest = {key: text for key, text in metadata.pop("annotations", {}).items() if key != name}
    return {**obj, "metadata": {**metadata, "annotations": rest} if rest else metadata}
