"""Metrics and behavior of a HorizontalPodAutoscaler (autoscaling/v2), decoded from its JSON."""

from __future__ import annotations

from typing import Any

from kubeloop.controllers.podautoscaler.replica_calculation import Tolerances
from kubeloop.kube.objects.api_types import (
    CrossVersionObjectReference,
    HorizontalPodAutoscaler,
    JSONValue,
    LabelSelector,
    Quantity,
    Struct,
    convert,
)
from kubeloop.kube.values.quantities import milli_value, parse_quantity

DEFAULT_MIN_REPLICAS = 1


class MetricTarget(Struct):
    type: str = ""
    value: Quantity | None = None
    average_value: Quantity | None = None
    average_utilization: int | None = None

    @property
    def value_milli(self) -> int | None:
        return None if self.value is None else milli_value(self.value)

    @property
    def average_value_milli(self) -> int | None:
        return None if self.average_value is None else milli_value(self.average_value)


class MetricIdentifier(Struct):
    name: str = ""
    selector: LabelSelector | None = None


class ResourceMetric(Struct):
    """Source of the types Resource and ContainerResource; container: "" for the sum of all containers."""

    name: str = ""
    container: str = ""
    target: MetricTarget = MetricTarget()


class NamedMetric(Struct):
    """Source of the types Pods, Object and External."""

    metric: MetricIdentifier = MetricIdentifier()
    described_object: CrossVersionObjectReference = CrossVersionObjectReference()
    target: MetricTarget = MetricTarget()


class MetricSpec(Struct):
    type: str = ""
    resource: ResourceMetric | None = None
    container_resource: ResourceMetric | None = None
    pods: NamedMetric | None = None
    object: NamedMetric | None = None
    external: NamedMetric | None = None


class ScalingPolicy(Struct):
    type: str = ""
    value: int = 0
    period_seconds: int = 0


class ScalingRules(Struct):
    stabilization_window_seconds: int | None = None
    select_policy: str = "Max"
    policies: tuple[ScalingPolicy, ...] = ()
    tolerance: Quantity | None = None


class Behavior(Struct):
    scale_up: ScalingRules = ScalingRules()
    scale_down: ScalingRules = ScalingRules()


def metric_specs(autoscaler: HorizontalPodAutoscaler) -> list[tuple[MetricSpec, JSONValue]]:
    """Return the metrics, each with its JSON."""
    return [(convert(MetricSpec, metric), metric) for metric in autoscaler.spec.metrics]


def behavior_of(autoscaler: HorizontalPodAutoscaler) -> Behavior | None:
    behavior = autoscaler.spec.behavior
    return None if behavior is None else convert(Behavior, behavior)


def tolerances_of(behavior: Behavior | None, default: float, *, configurable: bool) -> Tolerances:
    """Return the tolerances. configurable: value of the feature gate HPAConfigurableTolerance."""
    if behavior is None or not configurable:
        return Tolerances(default, default)
    down, up = behavior.scale_down.tolerance, behavior.scale_up.tolerance
    return Tolerances(default if down is None else _ratio(down), default if up is None else _ratio(up))


def _ratio(quantity: Any) -> float:
    return parse_quantity(quantity).nano() / 1e9
