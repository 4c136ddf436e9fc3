"""Conversion of HorizontalPodAutoscalers between autoscaling/v1 and v2, in which they are stored.

v1 has a single CPU metric and keeps everything else in annotations. Source: pkg/apis/autoscaling/v1/conversion.go.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import msgspec

from kubeloop.devcluster.api import errors
from kubeloop.devcluster.api.served_resources import HORIZONTAL_POD_AUTOSCALERS_V1
from kubeloop.devcluster.serializer.decoding import DecodeError, normalize
from kubeloop.kube.json_object import JSON
from kubeloop.kube.objects.resources import HORIZONTAL_POD_AUTOSCALERS

_PREFIX = "autoscaling.alpha.kubernetes.io/"

_METRICS, _CURRENT = f"{_PREFIX}metrics", f"{_PREFIX}current-metrics"

_CONDITIONS, _BEHAVIOR = f"{_PREFIX}conditions", f"{_PREFIX}behavior"

_DEFAULT_CPU_PERCENT = 80

_V1_METRIC_ORDER = (
    "target", "metricName", "name", "metricSelector", "targetValue", "currentValue", "targetAverageUtilization",
    "currentAverageUtilization", "targetAverageValue", "currentAverageValue", "container", "selector", "averageValue",
)  # fmt: skip
"""Field order of Go's encoding of v1 metrics, for all sources; the orders of nested types follow."""

_REFERENCE_ORDER = ("kind", "name", "apiVersion")

_CONDITION_ORDER = ("type", "status", "lastTransitionTime", "reason", "message")

_RULES_ORDER = ("stabilizationWindowSeconds", "selectPolicy", "policies", "tolerance")

_POLICY_ORDER = ("type", "value", "periodSeconds")

_SOURCES = ("resource", "containerResource", "pods", "object", "external")

_RESOURCE_SOURCES = ("resource", "containerResource")


def _metric_to_v1(metric: JSON, role: str) -> JSON:
    """Convert a v2 metric to v1. `role`: "target" for spec.metrics, "current" for status.currentMetrics."""
    result: JSON = {"type": metric["type"]}
    for source in _SOURCES:
        source_metric = metric.get(source)
        if source_metric is None:
            continue
        target = source_metric.get(role) or {}
        old: JSON = {name: source_metric[name] for name in ("name", "container") if name in source_metric}
        if "metric" in source_metric:
            old["metricName"] = source_metric["metric"].get("name", "")
            if selector := source_metric["metric"].get("selector"):
                old["metricSelector" if source == "external" else "selector"] = selector
        if "describedObject" in source_metric:
            old["target"] = _ordered_fields(source_metric["describedObject"], _REFERENCE_ORDER)
        average = "averageValue" if source == "object" else f"{role}AverageValue"
        for name, old_name in (
            ("averageUtilization", f"{role}AverageUtilization"),
            ("averageValue", average),
            ("value", f"{role}Value"),
        ):
            if name in target:
                old[old_name] = target[name]
        if source == "object" or (source == "external" and role == "current"):
            old.setdefault(f"{role}Value", "0")
        result[source] = _ordered_fields(old, _V1_METRIC_ORDER)
    return result


def _metric_from_v1(metric: JSON, role: str) -> JSON:
    """Convert a v1 metric to v2."""
    result: JSON = {"type": metric.get("type", "")}
    for source in _SOURCES:
        source_metric = metric.get(source)
        if source_metric is None:
            continue
        new: JSON = {name: source_metric[name] for name in ("name", "container") if name in source_metric}
        if source not in _RESOURCE_SOURCES:
            new["metric"] = {"name": source_metric.get("metricName", "")}
            if selector := source_metric.get("metricSelector") or source_metric.get("selector"):
                new["metric"]["selector"] = selector
        if source == "object":
            new["describedObject"] = source_metric.get("target") or {}
        average = "averageValue" if source == "object" else f"{role}AverageValue"
        values = {
            name: source_metric[old_name]
            for name, old_name in (
                ("averageUtilization", f"{role}AverageUtilization"),
                ("averageValue", average),
                ("value", f"{role}Value"),
            )
            if source_metric.get(old_name) is not None
        }
        if source == "object" and "averageValue" in values and values.get("value") == "0":
            del values["value"]
        new[role] = _with_target_type(values) if role == "target" else values
        result[source] = new
    return result


def _with_target_type(values: JSON) -> JSON:
    names = {"averageUtilization": "Utilization", "averageValue": "AverageValue", "value": "Value"}
    return {"type": next((type_ for name, type_ in names.items() if name in values), "AverageValue"), **values}


def _cpu_source(metric: JSON) -> JSON | None:
    resource = metric.get("resource") or {}
    return resource if metric.get("type") == "Resource" and resource.get("name") == "cpu" else None


def _cpu_metric(role: str, percent: int) -> JSON:
    target: JSON = {"averageUtilization": percent}
    if role == "target":
        target = {"type": "Utilization", **target}
    return {"type": "Resource", "resource": {"name": "cpu", role: target}}


def _ordered_fields(value: JSON, order: Iterable[str]) -> JSON:
    return {name: value[name] for name in order if name in value}


def _scaling_rules_to_go(rules: JSON | None) -> JSON | None:
    """Return scaling rules as in the annotation: all fields, set or not, with Go's names."""
    if rules is None:
        return None
    result = {_capital(name): rules.get(name) for name in _RULES_ORDER}
    if rules.get("policies") is not None:
        result["Policies"] = [
            {_capital(name): policy.get(name) for name in _POLICY_ORDER} for policy in rules["policies"]
        ]
    return result


def _capital(name: str) -> str:
    return name[:1].upper() + name[1:]


def _behavior_from_go(value: Any) -> Any:
    """Convert a value of the behavior annotation back from Go's names."""
    if isinstance(value, dict):
        return {
            name[:1].lower() + name[1:]: _behavior_from_go(item) for name, item in value.items() if item is not None
        }
    return [_behavior_from_go(item) for item in value] if isinstance(value, list) else value


def _go_json(value: Any) -> str:
    """Encode JSON like Go, with HTML characters escaped."""
    text = msgspec.json.encode(value).decode()
    return text.replace("&", "\\u0026").replace("<", "\\u003c").replace(">", "\\u003e")


def autoscaler_to_v1(obj: JSON) -> JSON:
    """Convert an autoscaling/v2 HorizontalPodAutoscaler to v1."""
    spec, status = dict(obj.get("spec") or {}), dict(obj.get("status") or {})
    metrics, current = spec.pop("metrics", None) or [], status.pop("currentMetrics", None) or []
    conditions, behavior = status.pop("conditions", None), spec.pop("behavior", None)
    annotations_: dict[str, str] = {}
    other_metrics = []
    for metric in metrics:
        percent = ((_cpu_source(metric) or {}).get("target") or {}).get("averageUtilization")
        if percent is None:
            other_metrics.append(_metric_to_v1(metric, "target"))
        else:
            spec.setdefault("targetCPUUtilizationPercentage", percent)
    for metric in current:
        percent = ((_cpu_source(metric) or {}).get("current") or {}).get("averageUtilization")
        if percent is not None:
            status["currentCPUUtilizationPercentage"] = percent
    if other_metrics:
        annotations_[_METRICS] = _go_json(other_metrics)
    if current:
        annotations_[_CURRENT] = _go_json([_metric_to_v1(metric, "current") for metric in current])
    if conditions:
        annotations_[_CONDITIONS] = _go_json([_ordered_fields(condition, _CONDITION_ORDER) for condition in conditions])
    if behavior:
        annotations_[_BEHAVIOR] = _go_json(
            {_capital(name): _scaling_rules_to_go(behavior.get(name)) for name in ("scaleUp", "scaleDown")}
        )
    metadata = dict(obj["metadata"])
    if annotations_:
        metadata["annotations"] = {**(metadata.get("annotations") or {}), **annotations_}
    converted = {**obj, "metadata": metadata, "spec": spec, "status": status}
    converted["apiVersion"] = HORIZONTAL_POD_AUTOSCALERS_V1.api_version
    return normalize(HORIZONTAL_POD_AUTOSCALERS_V1, converted)


def autoscaler_from_v1(obj: JSON) -> JSON:
    """Convert an autoscaling/v1 HorizontalPodAutoscaler to v2. Raises StatusError 400 for invalid annotations."""
    spec, status = dict(obj.get("spec") or {}), dict(obj.get("status") or {})
    metadata = dict(obj["metadata"])
    annotations = dict(metadata.get("annotations") or {})
    try:
        decoded = {
            name: msgspec.json.decode(annotations.pop(name))
            for name in (_METRICS, _CURRENT, _CONDITIONS, _BEHAVIOR)
            if name in annotations
        }
        percent, current = (
            spec.pop("targetCPUUtilizationPercentage", None),
            status.pop("currentCPUUtilizationPercentage", None),
        )
        metrics = [] if percent is None else [_cpu_metric("target", percent)]
        metrics += [_metric_from_v1(metric, "target") for metric in decoded.get(_METRICS) or ()]
        spec["metrics"] = metrics or [_cpu_metric("target", _DEFAULT_CPU_PERCENT)]
        if _CURRENT in decoded:
            status["currentMetrics"] = [_metric_from_v1(metric, "current") for metric in decoded[_CURRENT] or ()]
        elif current is not None:
            status["currentMetrics"] = [_cpu_metric("current", current)]
        if decoded.get(_CONDITIONS):
            status["conditions"] = decoded[_CONDITIONS]
        if decoded.get(_BEHAVIOR):
            spec["behavior"] = _behavior_from_go(decoded[_BEHAVIOR])
        if annotations:
            metadata["annotations"] = annotations
        else:
            metadata.pop("annotations", None)
        converted = {**obj, "metadata": metadata, "spec": spec, "status": status}
        converted["apiVersion"] = HORIZONTAL_POD_AUTOSCALERS.api_version
        return normalize(HORIZONTAL_POD_AUTOSCALERS, converted)
    except (msgspec.DecodeError, DecodeError, AttributeError, TypeError) as error:
        raise errors.bad_request(f"annotations of {_PREFIX} cannot be converted to autoscaling/v2: {error}") from error
