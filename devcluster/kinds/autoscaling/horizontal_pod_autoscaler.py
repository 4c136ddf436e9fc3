"""HorizontalPodAutoscalers, in the form of autoscaling/v2. Source: pkg/apis/autoscaling/validation of v1.36."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from datetime import datetime
from typing import Any

from kubeloop.devcluster.api.strategy import Strategy
from kubeloop.devcluster.kinds.autoscaling.version_conversion import autoscaler_from_v1, autoscaler_to_v1
from kubeloop.devcluster.printers.columns import AGE, number_of, row, text_of
from kubeloop.devcluster.printers.formatting import (
    NONE,
    UNKNOWN,
    UNSET,
    spec_of,
    status_of,
)
from kubeloop.devcluster.registry.disabled_fields import drop_fields
from kubeloop.devcluster.validation.common.error_list import ErrorList
from kubeloop.devcluster.validation.common.object_meta import path_segment
from kubeloop.devcluster.validation.pod.containers import validate_container_resource_name
from kubeloop.kube.json_object import JSON
from kubeloop.kube.validation.name_checks import dns_label
from kubeloop.kube.values.quantities import parse_quantity

_MAX_PERIOD_SECONDS, _MAX_STABILIZATION_SECONDS = 1800, 3600
_SELECTIONS, _POLICIES = ("Disabled", "Max", "Min"), ("Percent", "Pods")
_TARGETS = ("Utilization", "Value", "AverageValue")
_SOURCES = {
    "Object": "object", "External": "external", "Pods": "pods", "Resource": "resource",
    "ContainerResource": "containerResource",
}  # fmt: skip
_VALUE_AND_UTILIZATION = "may not set both a target raw value and a target utilization"


def validate_horizontal_pod_autoscaler(errors: ErrorList, obj: JSON) -> None:
    _validate_autoscaler_spec(errors, obj.get("spec", {}), allow_core_group=False, allow_zero=False)


def _validate_autoscaler_spec(errors: ErrorList, spec: JSON, *, allow_core_group: bool, allow_zero: bool) -> None:
    """allow_zero: also without the feature gate, because the stored object has 0."""
    min_replicas, max_replicas = spec.get("minReplicas"), spec.get("maxReplicas", 0)
    least = 0 if allow_zero or errors.gates.enabled("HPAScaleToZero") else 1
    if min_replicas is not None and min_replicas < least:
        errors.invalid("spec.minReplicas", min_replicas, f"must be greater than or equal to {least}")
    if max_replicas == 0:
        errors.required("spec.maxReplicas", "must be set and greater than 0")
    elif max_replicas < 0:
        errors.invalid("spec.maxReplicas", max_replicas, "must be greater than or equal to 1")
    if min_replicas is not None and max_replicas < min_replicas:
        errors.invalid("spec.maxReplicas", max_replicas, "must be greater than or equal to `minReplicas`")
    reference = spec.get("scaleTargetRef") or {}
    _validate_object_reference(errors, "spec.scaleTargetRef", reference, allow_core_group=allow_core_group)
    metrics = spec.get("metrics") or ()
    for i, metric in enumerate(metrics):
        _validate_metric(errors, f"spec.metrics[{i}]", metric)
    if min_replicas == 0 and not any(entry.get("type") in ("Object", "External") for entry in metrics):
        detail = "must specify at least one Object or External metric to support scaling to zero replicas"
        errors.forbidden("spec.metrics", detail)
    behavior = spec.get("behavior") or {}
    for direction in ("scaleUp", "scaleDown"):
        if behavior.get(direction) is not None:
            _validate_scaling_rules(errors, f"spec.behavior.{direction}", behavior[direction])


def validate_horizontal_pod_autoscaler_update(errors: ErrorList, obj: JSON, old: JSON) -> None:
    spec, before = obj.get("spec", {}), old.get("spec", {})
    if spec != before:
        version = (before.get("scaleTargetRef") or {}).get("apiVersion", "")
        _validate_autoscaler_spec(
            errors, spec, allow_core_group="/" not in version, allow_zero=before.get("minReplicas") == 0
        )


def validate_horizontal_pod_autoscaler_status_update(errors: ErrorList, obj: JSON, _old: JSON) -> None:
    errors.not_negative_fields("status", obj.get("status", {}), "currentReplicas", "desiredReplicas")


def _validate_object_reference(errors: ErrorList, path: str, reference: JSON, *, allow_core_group: bool) -> None:
    for name in ("kind", "name"):
        text = reference.get(name, "")
        errors.check_required(f"{path}.{name}", text, path_segment)
    version = reference.get("apiVersion", "")
    if version.count("/") > 1:
        errors.invalid(f"{path}.apiVersion", version, f"unexpected GroupVersion string: {version}")
    elif not allow_core_group and not version.rpartition("/")[0]:
        errors.invalid(f"{path}.apiVersion", version, "apiVersion must specify API group")


def _validate_metric(errors: ErrorList, path: str, metric: JSON) -> None:
    kind = metric.get("type", "")
    errors.require(f"{path}.type", kind, "must specify a metric source type")
    supported = sorted(_SOURCES)
    errors.one_of(f"{path}.type", kind, supported)
    sources = [name for name in _SOURCES.values() if metric.get(name) is not None]
    if sources:
        _SOURCE_VALIDATORS[sources[0]](errors, f"{path}.{sources[0]}", metric[sources[0]])
    expected = _SOURCES.get(kind, "")
    if expected and expected not in sources:
        errors.required(f"{path}.{expected}", "must populate information for the given metric source")
    elif not expected:
        errors.not_supported(f"{path}.type", kind, supported)
    if len(sources) != 1:
        for name in sources:
            if name != expected:
                errors.forbidden(f"{path}.{name}", "must populate the given metric source only")


def _validate_identifier(errors: ErrorList, path: str, identifier: JSON) -> None:
    name = identifier.get("name", "")
    errors.check_required(f"{path}.name", name, path_segment, "must specify a metric name")


def _validate_target(errors: ErrorList, path: str, target: JSON) -> None:
    kind = target.get("type", "")
    errors.require(f"{path}.type", kind, "must specify a metric target type")
    if kind not in _TARGETS:
        errors.invalid(f"{path}.type", kind, "must be either Utilization, Value, or AverageValue")
    for name in ("value", "averageValue"):
        if name in target and parse_quantity(target[name]).nano() <= 0:
            errors.invalid(f"{path}.{name}", target[name], "must be positive")
    utilization = target.get("averageUtilization")
    if utilization is not None and utilization < 1:
        errors.invalid(f"{path}.averageUtilization", utilization, "must be greater than 0")


def _validate_metric_and_target(errors: ErrorList, path: str, source: JSON) -> JSON:
    target: JSON = source.get("target") or {}
    _validate_identifier(errors, f"{path}.metric", source.get("metric") or {})
    _validate_target(errors, f"{path}.target", target)
    return target


def _validate_object_metric(errors: ErrorList, path: str, source: JSON) -> None:
    described = source.get("describedObject") or {}
    _validate_object_reference(errors, f"{path}.describedObject", described, allow_core_group=True)
    target = _validate_metric_and_target(errors, path, source)
    if "value" not in target and "averageValue" not in target:
        errors.required(f"{path}.target.averageValue", "must set either a target value or averageValue")


def _validate_external_metric(errors: ErrorList, path: str, source: JSON) -> None:
    target = _validate_metric_and_target(errors, path, source)
    if "value" not in target and "averageValue" not in target:
        detail = "must set either a target value for metric or a per-pod target"
        errors.required(f"{path}.target.averageValue", detail)
    if "value" in target and "averageValue" in target:
        errors.forbidden(f"{path}.target.value", "may not set both a target value for metric and a per-pod target")


def _validate_pods_metric(errors: ErrorList, path: str, source: JSON) -> None:
    target = _validate_metric_and_target(errors, path, source)
    if "averageValue" not in target:
        errors.required(f"{path}.target.averageValue", "must specify a positive target averageValue")


def _validate_resource_metric(errors: ErrorList, path: str, source: JSON) -> None:
    errors.require(f"{path}.name", source.get("name"), "must specify a resource name")
    _validate_utilization_or_value(errors, f"{path}.target", source.get("target") or {})


def _validate_container_resource_metric(errors: ErrorList, path: str, source: JSON) -> None:
    name, container = source.get("name", ""), source.get("container", "")
    if name:
        validate_container_resource_name(errors, f"{path}.name", name)
    else:
        errors.required(f"{path}.name", "must specify a resource name")
    errors.check_required(f"{path}.container", container, dns_label, "must specify a container")
    _validate_utilization_or_value(errors, f"{path}.target", source.get("target") or {})


def _validate_utilization_or_value(errors: ErrorList, path: str, target: JSON) -> None:
    _validate_target(errors, path, target)
    if "averageUtilization" not in target and "averageValue" not in target:
        errors.required(f"{path}.averageUtilization", "must set either a target raw value or a target utilization")
    if "averageUtilization" in target and "averageValue" in target:
        errors.forbidden(f"{path}.averageValue", _VALUE_AND_UTILIZATION)


_SOURCE_VALIDATORS: dict[str, Callable[[ErrorList, str, JSON], None]] = {
    "object": _validate_object_metric,
    "external": _validate_external_metric,
    "pods": _validate_pods_metric,
    "resource": _validate_resource_metric,
    "containerResource": _validate_container_resource_metric,
}


def _validate_scaling_rules(errors: ErrorList, path: str, rules: JSON) -> None:
    seconds, selection, policies = (
        rules.get(name) for name in ("stabilizationWindowSeconds", "selectPolicy", "policies")
    )
    if seconds is not None and seconds < 0:
        errors.invalid(f"{path}.stabilizationWindowSeconds", seconds, "must be greater than or equal to zero")
    if seconds is not None and seconds > _MAX_STABILIZATION_SECONDS:
        detail = f"must be less than or equal to {_MAX_STABILIZATION_SECONDS}"
        errors.invalid(f"{path}.stabilizationWindowSeconds", seconds, detail)
    errors.one_of(f"{path}.selectPolicy", selection, _SELECTIONS)
    errors.require(f"{path}.policies", policies, "must specify at least one Policy")
    for i, policy in enumerate(policies or ()):
        where, kind, period = f"{path}.policies[{i}]", policy.get("type", ""), policy.get("periodSeconds", 0)
        errors.one_of(f"{where}.type", kind, _POLICIES)
        if policy.get("value", 0) <= 0:
            errors.invalid(f"{where}.value", policy.get("value", 0), "must be greater than zero")
        if period <= 0:
            errors.invalid(f"{where}.periodSeconds", period, "must be greater than zero")
        if period > _MAX_PERIOD_SECONDS:
            errors.invalid(f"{where}.periodSeconds", period, f"must be less than or equal to {_MAX_PERIOD_SECONDS}")
    tolerance = rules.get("tolerance")
    if tolerance is not None and parse_quantity(tolerance).nano() < 0:
        errors.invalid(f"{path}.tolerance", tolerance, "must be greater than or equal to 0")


def _default(obj: JSON) -> None:
    spec = obj["spec"]
    spec.setdefault("minReplicas", 1)
    if obj.get("apiVersion") == "autoscaling/v1":  # has one metric, in a field of its own
        return
    if not spec.get("metrics"):
        target = {"type": "Utilization", "averageUtilization": 80}
        spec["metrics"] = [{"type": "Resource", "resource": {"name": "cpu", "target": target}}]
    behavior = spec.get("behavior")
    if behavior is not None:
        up = [{"type": "Pods", "value": 4, "periodSeconds": 15}, {"type": "Percent", "value": 100, "periodSeconds": 15}]
        down = [{"type": "Percent", "value": 100, "periodSeconds": 15}]
        for direction, policies in (("scaleUp", up), ("scaleDown", down)):
            rules = behavior.setdefault(direction, {})
            if direction == "scaleUp":
                rules.setdefault("stabilizationWindowSeconds", 0)
            rules.setdefault("selectPolicy", "Max")
            rules.setdefault("policies", policies)


def _metric_value(metric: JSON, which: str, field: str) -> Any:
    return (metric.get(which) or {}).get(field)


def _metric_target_text(spec: JSON, status: JSON | None) -> str:
    source = spec.get("type", "")
    key = source[:1].lower() + source[1:]
    target = spec.get(key)
    if target is None:
        return "<unknown type>"
    current = (status or {}).get(key)

    def current_value(field: str) -> str:
        value = _metric_value(current, "current", field) if current else None
        return UNKNOWN if value is None else f"{value}%" if field == "averageUtilization" else str(value)

    average = _metric_value(target, "target", "averageValue")
    if source in ("Resource", "ContainerResource"):
        if average is not None:
            return f"{target.get('name', '')}: {current_value('averageValue')}/{average}"
        utilization = _metric_value(target, "target", "averageUtilization")
        target_utilization = "<auto>" if utilization is None else f"{utilization}%"
        return f"{target.get('name', '')}: {current_value('averageUtilization')}/{target_utilization}"
    if source == "Pods":
        return f"{current_value('averageValue')}/{average}"
    if average is not None:
        return f"{current_value('averageValue')}/{average} (avg)"
    return f"{current_value('value')}/{_metric_value(target, 'target', 'value')}"


def _reference(obj: JSON, _now: datetime) -> str:
    reference = spec_of(obj).get("scaleTargetRef") or {}
    return f"{reference.get('kind', '')}/{reference.get('name', '')}"


def _targets(obj: JSON, _now: datetime) -> str:
    current = status_of(obj).get("currentMetrics") or ()
    targets = [
        _metric_target_text(metric, current[index] if index < len(current) else None)
        for index, metric in enumerate(spec_of(obj).get("metrics") or ())
    ]
    first_targets = ", ".join(targets[:2]) or NONE
    return f"{first_targets} + {len(targets) - 2} more..." if len(targets) > 2 else first_targets


def _scaling_rules(autoscaler: JSON) -> Iterator[JSON]:
    behavior = autoscaler.get("spec", {}).get("behavior") or {}
    for name in ("scaleDown", "scaleUp"):
        yield behavior.get(name) or {}


STRATEGY = Strategy(
    converters=(autoscaler_from_v1, autoscaler_to_v1),
    default=_default,
    gated_fields=(("HPAConfigurableTolerance", drop_fields((_scaling_rules, ("tolerance",)))),),
    validate=validate_horizontal_pod_autoscaler,
    validate_update=validate_horizontal_pod_autoscaler_update,
    validate_subresources={"status": validate_horizontal_pod_autoscaler_status_update},
    cells=row(
        _reference,
        _targets,
        text_of("spec.minReplicas", UNSET),
        number_of("spec.maxReplicas"),
        number_of("status.currentReplicas"),
        AGE,
    ),
)
