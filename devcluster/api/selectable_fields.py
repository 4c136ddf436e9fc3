"""Getters of the values that field selectors compare, as text.

Source: pkg/apis/core/v1/conversion.go and the strategies' SelectableFields of Kubernetes v1.36.
"""

from __future__ import annotations

from kubeloop.devcluster.api.strategy import Getter
from kubeloop.kube.json_object import JSON


def field_getter(path: str, unset: str = "") -> Getter:
    """Return a function that returns the field at a path as text; unset: of an empty field."""
    *parents, last = path.split(".")

    def get(obj: JSON) -> str:
        for parent in parents:
            inner = obj.get(parent)
            if type(inner) is not dict:
                return unset
            obj = inner
        value = obj.get(last)
        if isinstance(value, bool):
            return "true" if value else "false"
        return unset if value in (None, "") else str(value)

    return get


def fields(*paths: str) -> dict[str, Getter]:
    """Return the getters of fields that are selected by their path."""
    return {path: field_getter(path) for path in paths}


NAME = fields("metadata.name")
METADATA = fields("metadata.name", "metadata.namespace")
