"""Validation of LimitRanges. Source: pkg/apis/core/validation/validation.go of Kubernetes v1.36."""

from __future__ import annotations

import math

from kubeloop.devcluster.api.name_checks import qualified_name
from kubeloop.devcluster.validation.common.error_list import ErrorList
from kubeloop.devcluster.validation.pod.containers import (
    may_be_overcommitted,
    validate_container_resource_name,
    validate_resource_name,
)
from kubeloop.kube.json_object import JSON
from kubeloop.kube.quantities import parse_quantity

_POD = "may not be specified when `type` is 'Pod'"


def validate_limit_range(errors: ErrorList, obj: JSON) -> None:
    kinds = set()
    for i, item in enumerate(obj["spec"].get("limits") or ()):
        where, kind = f"spec.limits[{i}]", item.get("type", "")
        problems = qualified_name(kind)
        errors.invalid_each(f"{where}.type", kind, problems)
        if not problems and "/" not in kind and kind not in ("Pod", "Container", "PersistentVolumeClaim"):
            errors.invalid(f"{where}.type", kind, "must be a standard limit type or fully qualified")
        if kind in kinds:
            errors.duplicate(f"{where}.type", kind)
        kinds.add(kind)
        _validate_limit_range_item(errors, where, kind, item)


def _validate_limit_range_item(errors: ErrorList, where: str, kind: str, item: JSON) -> None:
    check = validate_container_resource_name if kind in ("Pod", "Container") else validate_resource_name
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
        _validate_resource_limits(
            errors, where, name, {field: each[name] for field, each in amounts.items() if name in each}
        )


def _above(one: str | None, other: str | None) -> bool:
    return one is not None and other is not None and parse_quantity(one).compare(parse_quantity(other)) > 0


def _validate_resource_limits(errors: ErrorList, where: str, name: str, of: dict[str, str]) -> None:
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
            _validate_ratio(errors, path, ratio, low, high)
    if not may_be_overcommitted(name) and (_above(limit, request) or _above(request, limit)):
        detail = f"default value {limit} must equal to defaultRequest value {request} in {name}"
        errors.invalid(asked, request, detail)


def _validate_ratio(errors: ErrorList, path: str, ratio: str, low: str, high: str) -> None:
    """In thousandths where those do not overflow. What is there against nothing, Go counts as infinite."""
    amounts = [parse_quantity(each) for each in (ratio, low, high)]
    exact = all(amount.value() < _MAX_MILLI_VALUE for amount in amounts)
    asked, least, most = (amount.milli_value() if exact else amount.value() for amount in amounts)
    if not least and most >= 0:
        return
    limit = most / least if least else -math.inf
    if (asked / 1000 if exact else asked) > limit:
        detail = f"{limit:f}" if least else "-Inf"
        errors.invalid(path, ratio, f"ratio {ratio} is greater than max/min = {detail}")


_MAX_MILLI_VALUE = ((1 << 63) - 1) // 1000
