"""LimitRanges and ResourceQuotas. Source: core/validation/validation.go, pkg/apis/core/helper."""

from __future__ import annotations

import math

from kubeloop.devcluster.api.name_checks import qualified_name
from kubeloop.devcluster.validation.containers import (
    container_resource_name,
    may_be_overcommitted,
    resource_name,
    resource_quantity,
)
from kubeloop.devcluster.validation.field import Errors
from kubeloop.kube.json_object import JSON
from kubeloop.kube.quantities import parse_quantity

# --- limit ranges -----------------------------------------------------------------------------------------------------

_POD = "may not be specified when `type` is 'Pod'"


def limit_range_create(errors: Errors, obj: JSON) -> None:
    kinds = set()
    for i, item in enumerate(obj["spec"].get("limits") or ()):
        where, kind = f"spec.limits[{i}]", item.get("type", "")
        wrong = qualified_name(kind)
        errors.invalid_each(f"{where}.type", kind, wrong)
        if not wrong and "/" not in kind and kind not in ("Pod", "Container", "PersistentVolumeClaim"):
            errors.invalid(f"{where}.type", kind, "must be a standard limit type or fully qualified")
        if kind in kinds:
            errors.duplicate(f"{where}.type", kind)
        kinds.add(kind)
        _item(errors, where, kind, item)


def _item(errors: Errors, where: str, kind: str, item: JSON) -> None:
    check = container_resource_name if kind in ("Pod", "Container") else resource_name
    for field in ("max", "min"):
        for name in sorted(item.get(field, {})):
            check(errors, f"{where}.{field}[{name}]", name)
    for field in ("default", "defaultRequest"):
        if kind == "Pod":
            if item.get(field):
                errors.forbidden(f"{where}.{field}", _POD)
            continue
        for name in sorted(item.get(field, {})):
            check(errors, f"{where}.{field}[{name}]", name)
    if kind == "PersistentVolumeClaim" and "storage" not in {**item.get("min", {}), **item.get("max", {})}:
        needed = "either minimum or maximum storage value is required, but neither was provided"
        errors.required(f"{where}.limits", needed)
    for name in sorted(item.get("maxLimitRequestRatio", {})):
        check(errors, f"{where}.maxLimitRequestRatio[{name}]", name)
    fields = ("max", "min", "maxLimitRequestRatio", *(() if kind == "Pod" else ("default", "defaultRequest")))
    amounts = {field: item.get(field, {}) for field in fields}
    for name in sorted(set().union(*amounts.values())):
        _amounts(errors, where, name, {field: each[name] for field, each in amounts.items() if name in each})


def _above(one: str | None, other: str | None) -> bool:
    return one is not None and other is not None and parse_quantity(one).compare(parse_quantity(other)) > 0


def _amounts(errors: Errors, where: str, name: str, of: dict[str, str]) -> None:
    """The amounts of one resource against each other."""
    low, high, ratio = of.get("min"), of.get("max"), of.get("maxLimitRequestRatio")
    limit, request = of.get("default"), of.get("defaultRequest")
    if _above(low, high):
        errors.invalid(f"{where}.min[{name}]", low, f"min value {low} is greater than max value {high}")
    asked, default = f"{where}.defaultRequest[{name}]", f"{where}.default[{name}]"
    if _above(low, request):
        errors.invalid(asked, request, f"min value {low} is greater than default request value {request}")
    if _above(request, high):
        errors.invalid(asked, request, f"default request value {request} is greater than max value {high}")
    if _above(request, limit):
        errors.invalid(asked, request, f"default request value {request} is greater than default limit value {limit}")
    if _above(low, limit):
        errors.invalid(default, low, f"min value {low} is greater than default value {limit}")
    if _above(limit, high):
        errors.invalid(default, high, f"default value {limit} is greater than max value {high}")
    if ratio is not None:
        path = f"{where}.maxLimitRequestRatio[{name}]"
        if _above("1", ratio):
            errors.invalid(path, ratio, f"ratio {ratio} is less than 1")
        if low is not None and high is not None:
            _ratio(errors, path, ratio, low, high)
    if not may_be_overcommitted(name) and (_above(limit, request) or _above(request, limit)):
        wrong = f"default value {limit} must equal to defaultRequest value {request} in {name}"
        errors.invalid(asked, request, wrong)


def _ratio(errors: Errors, path: str, ratio: str, low: str, high: str) -> None:
    """In thousandths where those do not overflow. What is there against nothing, Go counts as infinite."""
    amounts = [parse_quantity(each) for each in (ratio, low, high)]
    exact = all(each.value() < _MAX_MILLI_VALUE for each in amounts)
    asked, least, most = (each.milli_value() if exact else each.value() for each in amounts)
    if not least and most >= 0:
        return
    limit = most / least if least else -math.inf
    if (asked / 1000 if exact else asked) > limit:
        told = f"{limit:f}" if least else "-Inf"
        errors.invalid(path, ratio, f"ratio {ratio} is greater than max/min = {told}")


_MAX_MILLI_VALUE = ((1 << 63) - 1) // 1000


# --- quotas -----------------------------------------------------------------------------------------------------------

_COMPUTE = ("cpu", "memory", "limits.cpu", "limits.memory", "requests.cpu", "requests.memory")
_QUOTA_NAMES = frozenset(
    {*_COMPUTE, "ephemeral-storage", "requests.storage", "requests.ephemeral-storage", "limits.ephemeral-storage",
     "pods", "resourcequotas", "services", "replicationcontrollers", "secrets", "persistentvolumeclaims", "configmaps",
     "services.nodeports", "services.loadbalancers"}
)  # fmt: skip
_OF_PODS = frozenset({"pods", *_COMPUTE})
_SCOPES: dict[str, frozenset[str] | None] = {
    "Terminating": _OF_PODS,
    "NotTerminating": _OF_PODS,
    "NotBestEffort": _OF_PODS,
    "PriorityClass": _OF_PODS,
    "CrossNamespacePodAffinity": _OF_PODS,
    "BestEffort": frozenset({"pods"}),
    "VolumeAttributesClass": frozenset({"persistentvolumeclaims", "requests.storage"}),
}
"""Scopes, and the resources of which each can say which objects count."""
_EXISTS_ALONE = frozenset(_SCOPES) - {"PriorityClass", "VolumeAttributesClass"}
_PAIRS = (("BestEffort", "NotBestEffort"), ("NotTerminating", "Terminating"))


def _is_standard(name: str) -> bool:
    return name in _QUOTA_NAMES or name.startswith(("hugepages-", "requests.hugepages-"))


def _amounts_by_name(errors: Errors, path: str, amounts: JSON) -> None:
    for name, quantity in sorted(amounts.items()):
        where = f"{path}[{name}]"
        resource_name(errors, where, name)
        if "/" not in name and not _is_standard(name):
            errors.invalid(where, name, "must be a standard resource for quota")
        resource_quantity(errors, where, name, quantity)


def _does_not_apply(scope: str, name: str) -> bool:
    applies = _SCOPES.get(scope)
    return applies is not None and _is_standard(name) and name not in applies


def quota_spec(errors: Errors, spec: JSON) -> None:
    hard, scopes, path = spec.get("hard") or {}, spec.get("scopes") or [], "spec.scopes"
    _amounts_by_name(errors, "spec.hard", hard)
    for scope in scopes:
        if scope not in _SCOPES:
            errors.invalid(path, scopes, "unsupported scope")
        for name in sorted(hard):
            if _does_not_apply(scope, name):
                errors.invalid(path, scopes, "unsupported scope applied to resource")
    _conflicts(errors, path, scopes, scopes)
    selector = spec.get("scopeSelector")
    if selector is not None:
        _scope_selector(errors, "spec.scopeSelector.matchExpressions", spec, selector)


def _conflicts(errors: Errors, path: str, named: list[str], scopes: list[str] | None) -> None:
    for pair in _PAIRS:
        if set(pair) <= set(named):
            errors.invalid(path, scopes, "conflicting scopes")


def _scope_selector(errors: Errors, path: str, spec: JSON, selector: JSON) -> None:
    expressions = selector.get("matchExpressions") or ()
    for each in expressions:
        scope, operator, values = each.get("scopeName", ""), each.get("operator", ""), each.get("values") or []
        if scope not in _SCOPES:
            errors.invalid(f"{path}.scopeName", scope, "unsupported scope")
        for name in sorted(spec.get("hard") or {}):
            if _does_not_apply(scope, name):
                wrong = "unsupported scope applied to resource"
                errors.invalid(path, selector, wrong, "core/v1.ScopeSelector")
        if scope in _EXISTS_ALONE and operator != "Exists":
            wrong = (
                "must be 'Exists' when scope is any of ResourceQuotaScopeTerminating, "
                "ResourceQuotaScopeNotTerminating, ResourceQuotaScopeBestEffort, ResourceQuotaScopeNotBestEffort or "
                "ResourceQuotaScopeCrossNamespacePodAffinity"
            )
            errors.invalid(f"{path}.operator", operator, wrong)
        if operator in ("In", "NotIn"):
            if not values:
                needed = "must be at least one value when `operator` is 'In' or 'NotIn' for scope selector"
                errors.required(f"{path}.values", needed)
        elif operator in ("Exists", "DoesNotExist"):
            if values:
                wrong = "must be no value when `operator` is 'Exist' or 'DoesNotExist' for scope selector"
                errors.invalid(f"{path}.values", values, wrong)
        else:
            errors.invalid(f"{path}.operator", operator, "not a valid selector operator")
    _conflicts(errors, path, [each.get("scopeName", "") for each in expressions], spec.get("scopes"))


def quota_create(errors: Errors, obj: JSON) -> None:
    quota_spec(errors, obj["spec"])


def quota_update(errors: Errors, obj: JSON, old: JSON) -> None:
    spec, before = obj["spec"], old["spec"]
    if spec == before:
        return
    quota_spec(errors, spec)
    if set(spec.get("scopes") or ()) != set(before.get("scopes") or ()):
        errors.invalid("spec.scopes", spec.get("scopes"), "field is immutable")


def quota_status_update(errors: Errors, obj: JSON, old: JSON) -> None:
    del old
    for name in ("hard", "used"):
        _amounts_by_name(errors, f"status.{name}", obj.get("status", {}).get(name) or {})
