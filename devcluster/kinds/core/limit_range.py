"""LimitRanges. Source: pkg/apis/core/validation/validation.go of Kubernetes v1.36."""

from __future__ import annotations

import math

from kubeloop.devcluster.api.strategy import Strategy, Write, update_as_create
from kubeloop.devcluster.validation.common.error_list import ErrorList
from kubeloop.devcluster.validation.pod.containers import (
    may_be_overcommitted,
    validate_container_resource_name,
    validate_resource_name,
)
from kubeloop.kube.json_object import JSON
from kubeloop.kube.validation.name_checks import qualified_name
from kubeloop.kube.values.quantities import parse_quantity

_NOT_FOR_PODS = "may not be specified when `type` is 'Pod'"


def validate_limit_range(errors: ErrorList, obj: JSON) -> None:
    kinds: set[str] = set()
    for i, item in enumerate(obj["spec"].get("limits") or ()):
        where, kind = f"spec.limits[{i}]", item.get("type", "")
        problems = qualified_name(kind)
        errors.invalid_each(f"{where}.type", kind, problems)
        if not problems and "/" not in kind and kind not in ("Pod", "Container", "PersistentVolumeClaim"):
            errors.invalid(f"{where}.type", kind, "must be a standard limit type or fully qualified")
        errors.unique(f"{where}.type", kind, kinds)
        _validate_limit_range_item(errors, where, kind, item)


def _validate_limit_range_item(errors: ErrorList, where: str, kind: str, item: JSON) -> None:
    check = validate_container_resource_name if kind in ("Pod", "Container") else validate_resource_name
    for field in ("max", "min"):
        for name in sorted(item.get(field, {})):
            check(errors, f"{where}.{field}[{name}]", name)
    for field in ("default", "defaultRequest"):
        if kind == "Pod":
            if item.get(field):
                errors.forbidden(f"{where}.{field}", _NOT_FOR_PODS)
            continue
        for name in sorted(item.get(field, {})):
            check(errors, f"{where}.{field}[{name}]", name)
    if kind == "PersistentVolumeClaim" and "storage" not in {**item.get("min", {}), **item.get("max", {})}:
        detail = "either minimum or maximum storage value is required, but neither was provided"
        errors.required(f"{where}.limits", detail)
    for name in sorted(item.get("maxLimitRequestRatio", {})):
        check(errors, f"{where}.maxLimitRequestRatio[{name}]", name)
    fields = ("max", "min", "maxLimitRequestRatio", *(() if kind == "Pod" else ("default", "defaultRequest")))
    amounts = {field: item.get(field, {}) for field in fields}
    for name in sorted(set().union(*amounts.values())):
        _validate_resource_limits(
            errors, where, name, {field: values[name] for field, values in amounts.items() if name in values}
        )


def _is_greater(one: str | None, other: str | None) -> bool:
    return one is not None and other is not None and parse_quantity(one).compare(parse_quantity(other)) > 0


def _validate_resource_limits(errors: ErrorList, where: str, name: str, values: dict[str, str]) -> None:
    """Validate the relations between the limits of one resource."""
    minimum, maximum, ratio = values.get("min"), values.get("max"), values.get("maxLimitRequestRatio")
    limit, request = values.get("default"), values.get("defaultRequest")
    if _is_greater(minimum, maximum):
        errors.invalid(f"{where}.min[{name}]", minimum, f"min value {minimum} is greater than max value {maximum}")
    request_path, default_path = f"{where}.defaultRequest[{name}]", f"{where}.default[{name}]"
    if _is_greater(minimum, request):
        errors.invalid(request_path, request, f"min value {minimum} is greater than default request value {request}")
    if _is_greater(request, maximum):
        errors.invalid(request_path, request, f"default request value {request} is greater than max value {maximum}")
    if _is_greater(request, limit):
        errors.invalid(
            request_path, request, f"default request value {request} is greater than default limit value {limit}"
        )
    if _is_greater(minimum, limit):
        errors.invalid(default_path, minimum, f"min value {minimum} is greater than default value {limit}")
    if _is_greater(limit, maximum):
        errors.invalid(default_path, maximum, f"default value {limit} is greater than max value {maximum}")
    if ratio is not None:
        path = f"{where}.maxLimitRequestRatio[{name}]"
        if _is_greater("1", ratio):
            errors.invalid(path, ratio, f"ratio {ratio} is less than 1")
        if minimum is not None and maximum is not None:
            _validate_ratio(errors, path, ratio, minimum, maximum)
    if not may_be_overcommitted(name) and (_is_greater(limit, request) or _is_greater(request, limit)):
        detail = f"default value {limit} must equal to defaultRequest value {request} in {name}"
        errors.invalid(request_path, request, detail)


def _validate_ratio(errors: ErrorList, path: str, ratio: str, minimum: str, maximum: str) -> None:
    """Validate a limit/request ratio, in thousandths unless they overflow; max/min is infinite if min is zero."""
    amounts = [parse_quantity(text) for text in (ratio, minimum, maximum)]
    exact = all(amount.value() < _MAX_MILLI_VALUE for amount in amounts)
    ratio_value, min_value, max_value = (amount.milli_value() if exact else amount.value() for amount in amounts)
    if not min_value and max_value >= 0:
        return
    limit = max_value / min_value if min_value else -math.inf
    if (ratio_value / 1000 if exact else ratio_value) > limit:
        detail = f"{limit:f}" if min_value else "-Inf"
        errors.invalid(path, ratio, f"ratio {ratio} is greater than max/min = {detail}")


_MAX_MILLI_VALUE = ((1 << 63) - 1) // 1000


def _default(obj: JSON) -> None:
    for item in obj["spec"].get("limits") or ():
        if item.get("type") == "Container":
            limits = {**item.get("max", {}), **item.get("default", {})}
            requests = {**item.get("min", {}), **limits, **item.get("defaultRequest", {})}
            for name, value in (("default", limits), ("defaultRequest", requests)):
                if value:
                    item[name] = value


def _prepare_create(limit_range: JSON, write: Write) -> None:
    metadata = limit_range["metadata"]
    metadata["name"] = metadata.get("name") or write.new_uid()


STRATEGY = Strategy(
    default=_default,
    prepare_create=_prepare_create,
    validate=validate_limit_range,
    validate_update=update_as_create(validate_limit_range),
    update_steps="ws",
)
