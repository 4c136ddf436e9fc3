"""Conditions in the status of an object: a node's Ready, a definition's Established."""

from __future__ import annotations

from collections.abc import Iterable

from kubeloop.kube.json_object import JSON


def condition_of(obj: JSON, type_: str) -> JSON | None:
    """Return the object's condition of that type, None if it has none."""
    conditions = (obj.get("status") or {}).get("conditions") or ()
    return next((condition for condition in conditions if condition.get("type") == type_), None)


def is_true(obj: JSON, type_: str) -> bool:
    """Return True if the object has the condition with status "True"."""
    condition = condition_of(obj, type_)
    return condition is not None and condition.get("status") == "True"


def set_condition(conditions: Iterable[JSON], new: JSON) -> list[JSON]:
    """Return `conditions` with `new` in place of the one of its type, else appended.

    lastTransitionTime of the old one is kept if the status does not change.
    """
    result = list(conditions)
    for index, condition in enumerate(result):
        if condition["type"] == new["type"]:
            if condition["status"] == new["status"]:
                new = {**new, "lastTransitionTime": condition.get("lastTransitionTime")}
            result[index] = new
            return result
    return [*result, new]
