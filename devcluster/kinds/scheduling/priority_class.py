"""PriorityClasses. Source: pkg/apis/scheduling/validation/validation.go of Kubernetes v1.36."""

from __future__ import annotations

from kubeloop.devcluster.admission.chain import AdmissionChain
from kubeloop.devcluster.admission.priority import SYSTEM_PRIORITY_CLASSES, default_priority_class
from kubeloop.devcluster.api import errors
from kubeloop.devcluster.api.request_context import RequestContext
from kubeloop.devcluster.api.strategy import Strategy
from kubeloop.devcluster.printers.columns import AGE, boolean_of, number_of, row, text_of
from kubeloop.devcluster.storage.store import ObjectStore
from kubeloop.devcluster.validation.common.error_list import ErrorList
from kubeloop.devcluster.validation.pod.scheduling import validate_preemption_policy
from kubeloop.kube.json_object import JSON
from kubeloop.kube.objects.resources import PRIORITY_CLASSES

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


def _check_create(chain: AdmissionChain, _context: RequestContext, priority_class: JSON) -> None:
    if "Priority" in chain.enabled:
        check_single_default(chain.store, priority_class, new=True)


def _check_update(chain: AdmissionChain, _context: RequestContext, priority_class: JSON, _old: JSON) -> None:
    if "Priority" in chain.enabled:
        check_single_default(chain.store, priority_class, new=False)


def check_single_default(store: ObjectStore, priority_class: JSON, *, new: bool) -> None:
    """Raise StatusError 403 if another priority class is the default already."""
    other = default_priority_class(store) if priority_class.get("globalDefault") else None
    name = priority_class["metadata"].get("name", "")
    if other is not None and (new or other["metadata"]["name"] != name):
        message = f"PriorityClass {other['metadata']['name']} is already marked as default. Only one default can exist"
        raise errors.forbidden(PRIORITY_CLASSES, name, message)


STRATEGY = Strategy(
    default=_default,
    validate=validate_priority_class,
    validate_update=validate_priority_class_update,
    check_create=_check_create,
    check_update=_check_update,
    cells=row(number_of("value"), boolean_of("globalDefault"), AGE, text_of("preemptionPolicy")),
)
