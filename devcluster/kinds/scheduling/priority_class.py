"""Validation of PriorityClasses. Source: pkg/apis/scheduling/validation/validation.go of Kubernetes v1.36."""

from __future__ import annotations

from datetime import datetime

from kubeloop.devcluster.admission.priority import SYSTEM_PRIORITY_CLASSES
from kubeloop.devcluster.api.strategy import Strategy
from kubeloop.devcluster.printers.formatting import Cells, object_age, object_name
from kubeloop.devcluster.validation.common.error_list import ErrorList
from kubeloop.devcluster.validation.pod.scheduling import validate_preemption_policy
from kubeloop.kube.json_object import JSON

_HIGHEST_USER_PRIORITY = 1_000_000_000


def validate_priority_class(errors: ErrorList, obj: JSON) -> None:
    name, value = obj["metadata"].get("name", ""), obj.get("value", 0)
    if name.startswith("system-"):
        if name not in SYSTEM_PRIORITY_CLASSES:
            detail = f"{name} is not a known system priority class"
        elif value != SYSTEM_PRIORITY_CLASSES[name]:
            detail = f"value of {name} PriorityClass must be {SYSTEM_PRIORITY_CLASSES[name]}"
        elif obj.get("globalDefault"):
            detail = f"globalDefault of {name} PriorityClass must be false"
        else:
            detail = ""
        if detail:
            message = f"priority class names with 'system-' prefix are reserved for system use only. error: {detail}"
            errors.forbidden("metadata.name", message)
    elif value > _HIGHEST_USER_PRIORITY:
        errors.forbidden("value", f"maximum allowed value of a user defined priority is {_HIGHEST_USER_PRIORITY}")
    validate_preemption_policy(errors, "preemptionPolicy", obj.get("preemptionPolicy"))


def validate_priority_class_update(errors: ErrorList, obj: JSON, old: JSON) -> None:
    if obj.get("value", 0) != old.get("value", 0):
        errors.forbidden("value", "may not be changed in an update.")
    errors.immutable("preemptionPolicy", obj.get("preemptionPolicy"), old.get("preemptionPolicy"))


def _default(obj: JSON) -> None:
    obj.setdefault("preemptionPolicy", "PreemptLowerPriority")


def _cells(obj: JSON, now: datetime) -> Cells:
    default = bool(obj.get("globalDefault"))
    return [object_name(obj), obj.get("value", 0), default, object_age(obj, now), obj.get("preemptionPolicy") or ""]


STRATEGY = Strategy(
    default=_default, validate=validate_priority_class, validate_update=validate_priority_class_update, cells=_cells
)
