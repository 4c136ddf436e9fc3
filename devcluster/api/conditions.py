"""The conditions in the status of an object: a node's Ready, a definition's Established."""

from __future__ import annotations

from kubeloop.kube.json_object import JSON


def condition_of(obj: JSON, type_: str) -> JSON | None:
    """The object's condition of that type, if it has one."""
    conditions = (obj.get("status") or {}).get("conditions") or ()
    return next((each for each in conditions if each.get("type") == type_), None)


def is_true(obj: JSON, type_: str) -> bool:
    condition = condition_of(obj, type_)
    return condition is not None and condition.get("status") == "True"
