"""Getters of the values that field selectors compare, as text.

Source: pkg/apis/core/v1/conversion.go and the strategies' SelectableFields of Kubernetes v1.36.
"""

from __future__ import annotations

from typing import Any

from kubeloop.devcluster.api.strategy import Getter
from kubeloop.kube.json_object import JSON


def field_getter(*path: str) -> Getter:
    *parents, last = path

    def get(obj: JSON) -> str:
        for parent in parents:
            inner = obj.get(parent)
            if type(inner) is not dict:
                return ""
            obj = inner
        value = obj.get(last)
        return _as_text(value)

    return get


def _as_text(value: Any) -> str:
    if value is None:
        return ""
    if isinstance(value, bool):
        return "true" if value else "false"
    return str(value)


def boolean_getter(*path: str) -> Getter:
    get = field_getter(*path)
    return lambda obj: get(obj) or "false"


def number_getter(*path: str) -> Getter:
    get = field_getter(*path)
    return lambda obj: get(obj) or "0"


NAME = field_getter("metadata", "name")
METADATA: dict[str, Getter] = {"metadata.name": NAME, "metadata.namespace": field_getter("metadata", "namespace")}
