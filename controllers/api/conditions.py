"""Conditions of a status, of type metav1.Condition. Source: apimachinery api/meta/conditions.go."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from datetime import datetime
from typing import Any, Literal

import msgspec

from kubeloop.kube.clock import rfc3339
from kubeloop.kube.objects.api_types import Condition, to_json

ConditionStatus = Literal["True", "False", "Unknown"]


def set_status_condition(
    conditions: Iterable[Condition | Mapping[str, Any]],
    type_: str,
    status: ConditionStatus | bool,
    reason: str,
    message: str = "",
    *,
    now: datetime,
    observed_generation: int = 0,
) -> list[dict[str, Any]]:
    """Return the conditions as JSON with this one in the place of the one of its type, or at the end.

    reason: a word in CamelCase. now: the lastTransitionTime if the status changes. observed_generation: metadata.
    generation of the object that the condition was computed from. Source: meta.SetStatusCondition.
    """
    text = str(status)
    condition = {
        "type": type_,
        "status": text,
        "reason": reason,
        "message": message,
        "lastTransitionTime": rfc3339(now),
        **({"observedGeneration": observed_generation} if observed_generation else {}),
    }
    result = [_json(other) for other in conditions]
    for number, other in enumerate(result):
        if other.get("type") == type_:
            if other.get("status") == text and other.get("lastTransitionTime"):
                condition["lastTransitionTime"] = other["lastTransitionTime"]
            result[number] = condition
            return result
    return [*result, condition]


def find_status_condition(conditions: Iterable[Condition | Mapping[str, Any]], type_: str) -> dict[str, Any] | None:
    """Return the condition of a type as JSON, or None. Source: meta.FindStatusCondition."""
    return next((condition for condition in map(_json, conditions) if condition.get("type") == type_), None)


def is_status_condition_true(conditions: Iterable[Condition | Mapping[str, Any]], type_: str) -> bool:
    """Return True if the condition of a type is True. Source: meta.IsStatusConditionTrue."""
    condition = find_status_condition(conditions, type_)
    return condition is not None and condition.get("status") == "True"


def _json(condition: Condition | Mapping[str, Any]) -> dict[str, Any]:
    return dict(to_json(condition) if isinstance(condition, msgspec.Struct) else condition)
