"""Kinds that are served under two group versions: objects are stored in one form and seen in both.

Events are core/v1's and seen as events.k8s.io/v1 (`events_api`); autoscalers are autoscaling/v2's and seen as v1, which
knows one metric, the use of CPU, and carries all else in annotations. Source: pkg/apis/autoscaling/v1/conversion.go.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import msgspec

from kubeloop.devcluster.api import errors
from kubeloop.devcluster.api.served_resources import (
    EVENTS_V1,
    HORIZONTAL_POD_AUTOSCALERS,
    HORIZONTAL_POD_AUTOSCALERS_V1,
    Served,
)
from kubeloop.devcluster.serializer.decoding import DecodeError, normalize
from kubeloop.devcluster.serializer.events_conversion import event_from_core, event_to_core
from kubeloop.kube.json_object import JSON

Convert = Callable[[JSON], JSON]

_PREFIX = "autoscaling.alpha.kubernetes.io/"
_METRICS, _CURRENT = f"{_PREFIX}metrics", f"{_PREFIX}current-metrics"
_CONDITIONS, _BEHAVIOR = f"{_PREFIX}conditions", f"{_PREFIX}behavior"
_DEFAULT_CPU_PERCENT = 80

_OLD_ORDER = (
    "target", "metricName", "name", "metricSelector", "targetValue", "currentValue", "targetAverageUtilization",
    "currentAverageUtilization", "targetAverageValue", "currentAverageValue", "container", "selector", "averageValue",
)  # fmt: skip
"""How Go writes the fields of v1's metrics, whichever their source; and those of what they hold."""
_REFERENCE_ORDER = ("kind", "name", "apiVersion")
_CONDITION_ORDER = ("type", "status", "lastTransitionTime", "reason", "message")
_RULES_ORDER = ("stabilizationWindowSeconds", "selectPolicy", "policies", "tolerance")
_POLICY_ORDER = ("type", "value", "periodSeconds")

_SOURCES = ("resource", "containerResource", "pods", "object", "external")
_NAMED = ("resource", "containerResource")


# --- metrics: v2 has a target with a type, v1 a field per kind of target ----------------------------------------------


def _old_metric(metric: JSON, which: str) -> JSON:
    """A v2 metric in v1's form. `which` is "target" for what is wished, "current" for what is."""
    result: JSON = {"type": metric["type"]}
    for source in _SOURCES:
        given = metric.get(source)
        if given is None:
            continue
        values = given.get(which) or {}
        old: JSON = {name: given[name] for name in ("name", "container") if name in given}
        if "metric" in given:
            old["metricName"] = given["metric"].get("name", "")
            if selector := given["metric"].get("selector"):
                old["metricSelector" if source == "external" else "selector"] = selector
        if "describedObject" in given:
            old["target"] = _in_order(given["describedObject"], _REFERENCE_ORDER)
        average = "averageValue" if source == "object" else f"{which}AverageValue"
        for name, old_name in (
            ("averageUtilization", f"{which}AverageUtilization"),
            ("averageValue", average),
            ("value", f"{which}Value"),
        ):
            if name in values:
                old[old_name] = values[name]
        if source == "object" or (source == "external" and which == "current"):
            old.setdefault(f"{which}Value", "0")
        result[source] = _in_order(old, _OLD_ORDER)
    return result


def _new_metric(metric: JSON, which: str) -> JSON:
    """A v1 metric in v2's form."""
    result: JSON = {"type": metric.get("type", "")}
    for source in _SOURCES:
        given = metric.get(source)
        if given is None:
            continue
        new: JSON = {name: given[name] for name in ("name", "container") if name in given}
        if source not in _NAMED:
            new["metric"] = {"name": given.get("metricName", "")}
            if selector := given.get("metricSelector") or given.get("selector"):
                new["metric"]["selector"] = selector
        if source == "object":
            new["describedObject"] = given.get("target") or {}
        average = "averageValue" if source == "object" else f"{which}AverageValue"
        values = {
            name: given[old_name]
            for name, old_name in (
                ("averageUtilization", f"{which}AverageUtilization"),
                ("averageValue", average),
                ("value", f"{which}Value"),
            )
            if given.get(old_name) is not None
        }
        if source == "object" and "averageValue" in values and values.get("value") == "0":
            del values["value"]
        new[which] = _typed(values) if which == "target" else values
        result[source] = new
    return result


def _typed(values: JSON) -> JSON:
    names = {"averageUtilization": "Utilization", "averageValue": "AverageValue", "value": "Value"}
    return {"type": next((type_ for name, type_ in names.items() if name in values), "AverageValue"), **values}


def _cpu(metric: JSON) -> JSON | None:
    resource = metric.get("resource") or {}
    return resource if metric.get("type") == "Resource" and resource.get("name") == "cpu" else None


def _cpu_metric(which: str, percent: int) -> JSON:
    target: JSON = {"averageUtilization": percent}
    if which == "target":
        target = {"type": "Utilization", **target}
    return {"type": "Resource", "resource": {"name": "cpu", which: target}}


def _in_order(value: JSON, order: Iterable[str]) -> JSON:
    return {name: value[name] for name in order if name in value}


def _in_go(rules: JSON | None) -> JSON | None:
    """Rules of scaling as their annotation has them: all fields, set or not, under Go's names."""
    if rules is None:
        return None
    result = {_capital(name): rules.get(name) for name in _RULES_ORDER}
    if rules.get("policies") is not None:
        result["Policies"] = [{_capital(name): each.get(name) for name in _POLICY_ORDER} for each in rules["policies"]]
    return result


def _capital(name: str) -> str:
    return name[:1].upper() + name[1:]


def _from_go(value: Any) -> Any:
    """Behaviour from its annotation."""
    if isinstance(value, dict):
        return {name[:1].lower() + name[1:]: _from_go(each) for name, each in value.items() if each is not None}
    return [_from_go(each) for each in value] if isinstance(value, list) else value


def _text(value: Any) -> str:
    """JSON as Go writes it: with what HTML reads as markup escaped."""
    text = msgspec.json.encode(value).decode()
    return text.replace("&", "\\u0026").replace("<", "\\u003c").replace(">", "\\u003e")


# --- autoscalers ------------------------------------------------------------------------------------------------------


def autoscaler_to_v1(obj: JSON) -> JSON:
    """The autoscaling/v1 HorizontalPodAutoscaler of a v2 one."""
    spec, status = dict(obj.get("spec") or {}), dict(obj.get("status") or {})
    metrics, current = spec.pop("metrics", None) or [], status.pop("currentMetrics", None) or []
    conditions, behavior = status.pop("conditions", None), spec.pop("behavior", None)
    kept: dict[str, str] = {}
    others = []
    for metric in metrics:
        percent = ((_cpu(metric) or {}).get("target") or {}).get("averageUtilization")
        if percent is None:
            others.append(_old_metric(metric, "target"))
        else:
            spec.setdefault("targetCPUUtilizationPercentage", percent)
    for metric in current:
        percent = ((_cpu(metric) or {}).get("current") or {}).get("averageUtilization")
        if percent is not None:
            status["currentCPUUtilizationPercentage"] = percent
    if others:
        kept[_METRICS] = _text(others)
    if current:
        kept[_CURRENT] = _text([_old_metric(metric, "current") for metric in current])
    if conditions:
        kept[_CONDITIONS] = _text([_in_order(each, _CONDITION_ORDER) for each in conditions])
    if behavior:
        kept[_BEHAVIOR] = _text({_capital(name): _in_go(behavior.get(name)) for name in ("scaleUp", "scaleDown")})
    metadata = dict(obj["metadata"])
    if kept:
        metadata["annotations"] = {**(metadata.get("annotations") or {}), **kept}
    converted = {**obj, "metadata": metadata, "spec": spec, "status": status}
    converted["apiVersion"] = HORIZONTAL_POD_AUTOSCALERS_V1.api_version
    return normalize(HORIZONTAL_POD_AUTOSCALERS_V1, converted)


def autoscaler_from_v1(obj: JSON) -> JSON:
    """The autoscaling/v2 HorizontalPodAutoscaler of a v1 one. Raises StatusError 400 for annotations it cannot read."""
    spec, status = dict(obj.get("spec") or {}), dict(obj.get("status") or {})
    metadata = dict(obj["metadata"])
    annotations = dict(metadata.get("annotations") or {})
    try:
        kept = {
            name: msgspec.json.decode(annotations.pop(name))
            for name in (_METRICS, _CURRENT, _CONDITIONS, _BEHAVIOR)
            if name in annotations
        }
        percent, current = (
            spec.pop("targetCPUUtilizationPercentage", None),
            status.pop("currentCPUUtilizationPercentage", None),
        )
        metrics = [] if percent is None else [_cpu_metric("target", percent)]
        metrics += [_new_metric(metric, "target") for metric in kept.get(_METRICS) or ()]
        spec["metrics"] = metrics or [_cpu_metric("target", _DEFAULT_CPU_PERCENT)]
        if _CURRENT in kept:
            status["currentMetrics"] = [_new_metric(metric, "current") for metric in kept[_CURRENT] or ()]
        elif current is not None:
            status["currentMetrics"] = [_cpu_metric("current", current)]
        if kept.get(_CONDITIONS):
            status["conditions"] = kept[_CONDITIONS]
        if kept.get(_BEHAVIOR):
            spec["behavior"] = _from_go(kept[_BEHAVIOR])
        if annotations:
            metadata["annotations"] = annotations
        else:
            metadata.pop("annotations", None)
        converted = {**obj, "metadata": metadata, "spec": spec, "status": status}
        converted["apiVersion"] = HORIZONTAL_POD_AUTOSCALERS.api_version
        return normalize(HORIZONTAL_POD_AUTOSCALERS, converted)
    except (msgspec.DecodeError, DecodeError, AttributeError, TypeError) as error:
        raise errors.bad_request(f"annotations of {_PREFIX} cannot be converted to autoscaling/v2: {error}") from error


# --- by resource ------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Conversion:
    """To the stored form of a resource and from it."""

    stored: Convert
    shown: Convert


_CONVERSIONS: dict[str, Conversion] = {
    EVENTS_V1.path(): Conversion(event_to_core, event_from_core),
    HORIZONTAL_POD_AUTOSCALERS_V1.path(): Conversion(autoscaler_from_v1, autoscaler_to_v1),
}


def to_stored(target: Served, obj: JSON) -> JSON:
    """`obj`, in the form of `target`, as it is stored; itself for all but second versions of Kubernetes' own kinds."""
    return obj if target.stored_as is None else _CONVERSIONS[target.resource.path()].stored(obj)


def from_stored(target: Served, obj: JSON) -> JSON:
    """A stored object in the form of `target`."""
    if target.custom is not None:
        return target.custom.shown(obj)
    return obj if target.stored_as is None else _CONVERSIONS[target.resource.path()].shown(obj)


def all_from_stored(target: Served, objects: Sequence[JSON]) -> list[JSON]:
    """As from_stored(), with one call where a webhook converts."""
    if target.custom is not None:
        target.custom.prepare(objects)
    return [from_stored(target, each) for each in objects]
