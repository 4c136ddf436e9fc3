"""Evaluation of one metric of a HorizontalPodAutoscaler: proposed replicas and the entry in status.currentMetrics.

Errors have the texts of kube-controller-manager. Source: computeReplicasForMetric in
pkg/controller/podautoscaler/horizontal.go.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from datetime import datetime
from typing import NamedTuple

from kubeloop.controllers.podautoscaler.autoscaler_spec import MetricSpec, NamedMetric, ResourceMetric
from kubeloop.controllers.podautoscaler.metrics import AutoscalerMetrics, ErrorSource
from kubeloop.controllers.podautoscaler.metrics_client import MetricsClient
from kubeloop.controllers.podautoscaler.replica_calculation import (
    MetricError,
    PodMetric,
    Proposal,
    ReadinessRules,
    Tolerances,
    average_value_proposal,
    counted_values,
    group_pods,
    pod_requests,
    utilization_proposal,
    value_per_pod_proposal,
    value_proposal,
)
from kubeloop.controllers.podautoscaler.scale_target import ScaleTargets
from kubeloop.kube.objects.api_types import JSONValue, Pod
from kubeloop.kube.selectors.selectors import selector_text
from kubeloop.kube.values.quantities import Format, Quantity

_UNKNOWN_TYPE = "InvalidMetricSourceType"


class MetricEvaluation(NamedTuple):
    """Result of one metric. name: in messages. status: its entry in status.currentMetrics."""

    replicas: int
    name: str
    status: JSONValue


class InvalidMetric(MetricError):
    """A metric cannot be evaluated. event_reason, event_message: of its event; the text is that of the sync.

    source: label of the error in metrics.
    """

    def __init__(self, event_reason: str, event_message: str, prefix: str) -> None:
        super().__init__(f"{prefix}: {event_message}" if prefix else event_message)
        self.event_reason = event_reason
        self.event_message = event_message
        self.source: ErrorSource = "spec" if event_reason == _UNKNOWN_TYPE else "internal"


class ScaledPods(NamedTuple):
    """The pods of a scale target, their selector as text, and the replicas of its scale.

    reported_replicas: of the autoscaler's status.
    """

    namespace: str
    pods: Sequence[Pod]
    selector: str
    spec_replicas: int
    status_replicas: int
    reported_replicas: int


class MetricEvaluator:
    """Evaluates the metrics of autoscalers."""

    def __init__(
        self,
        client: MetricsClient,
        targets: ScaleTargets,
        readiness: ReadinessRules,
        metrics: AutoscalerMetrics,
        seconds: Callable[[], float],
        *,
        pod_level: bool,
    ) -> None:
        """seconds: a clock, for metrics. pod_level: value of the feature gate PodLevelResources."""
        self._metrics = metrics
        self._seconds = seconds
        self._client = client
        self.targets = targets
        self._readiness = readiness
        self._pod_level = pod_level

    async def evaluate(
        self, spec: MetricSpec, body: JSONValue, scaled: ScaledPods, tolerances: Tolerances, now: datetime
    ) -> MetricEvaluation:
        """Evaluate a metric; body: its JSON. Raises InvalidMetric."""
        started_at = self._seconds()
        scaled_by = 0
        source: ErrorSource = "internal"
        try:
            evaluation = await self._evaluate(spec, body, scaled, tolerances, now)
            scaled_by, source = evaluation.replicas - scaled.reported_replicas, "none"
        except InvalidMetric as error:
            source = error.source
            raise
        finally:
            self._metrics.computed(spec.type, scaled_by, source, max(0.0, self._seconds() - started_at))
        return evaluation

    async def _evaluate(
        self, spec: MetricSpec, body: JSONValue, scaled: ScaledPods, tolerances: Tolerances, now: datetime
    ) -> MetricEvaluation:
        reason, prefix = f"FailedGet{spec.type}Metric", ""
        try:
            match spec:
                case MetricSpec(type="Resource", resource=ResourceMetric() as metric):
                    prefix = f"failed to get {metric.name} resource metric value"
                    return await self._resource(metric, scaled, tolerances, now)
                case MetricSpec(type="ContainerResource", container_resource=ResourceMetric() as metric):
                    prefix = f"failed to get {metric.container} container metric value"
                    return await self._resource(metric, scaled, tolerances, now)
                case MetricSpec(type="Pods", pods=NamedMetric() as named):
                    prefix = "failed to get pods metric value"
                    return await self._pods(named, body["pods"], scaled, tolerances, now)
                case MetricSpec(type="Object", object=NamedMetric() as named):
                    prefix = "failed to get object metric value"
                    if named.target.type == "AverageValue":
                        prefix += f": failed to get {named.metric.name} object metric"
                    return await self._object(named, body["object"], scaled, tolerances)
                case MetricSpec(type="External", external=NamedMetric() as named):
                    name, is_average = named.metric.name, named.target.average_value is not None
                    prefix = f"failed to get {name} external metric value: failed to get "
                    prefix += f"{name} external metric" if is_average else f"external metric {name}"
                    return await self._external(named, body["external"], scaled, tolerances)
            reason = _UNKNOWN_TYPE
            raise MetricError(f'unknown metric source type "{spec.type}"')
        except MetricError as error:
            raise InvalidMetric(reason, str(error), prefix) from error

    # --- Resource, ContainerResource, Pods --------------------------------------------------------------------------

    async def _resource(
        self, metric: ResourceMetric, scaled: ScaledPods, tolerances: Tolerances, now: datetime
    ) -> MetricEvaluation:
        is_container = bool(metric.container)
        target, name = metric.target, metric.name
        average_target, percent = target.average_value_milli, target.average_utilization
        if average_target is None and percent is None:
            raise MetricError(
                "invalid resource metric source: neither an average utilization target nor an average value (usage) "
                "target was set"
            )
        try:
            try:
                metrics = await self._client.resource(name, scaled.namespace, scaled.selector, metric.container)
            except MetricError as error:
                raise MetricError(f"unable to get metrics for resource {name}: {error}") from error
            if average_target is not None:
                proposal = self._average_value(average_target, metrics, name, scaled, tolerances, now)
            else:
                assert percent is not None
                proposal = self._utilization(percent, metrics, metric, scaled, tolerances, now)
        except MetricError as error:
            what = "usage" if average_target is not None else "utilization"
            raise MetricError(f"failed to get {name} {what}: {error}") from error
        current: dict[str, JSONValue] = {"averageValue": _quantity(proposal.value, binary=name == "memory")}
        if proposal.utilization is not None:
            current["averageUtilization"] = proposal.utilization
        status: dict[str, JSONValue] = {"name": name, "current": current}
        description = f"{name} resource"
        if average_target is None:
            description = f"{name} {'container ' if is_container else ''}resource utilization (percentage of request)"
        if is_container:
            status["container"] = metric.container
            return MetricEvaluation(
                proposal.replicas, description, {"type": "ContainerResource", "containerResource": status}
            )
        return MetricEvaluation(proposal.replicas, description, {"type": "Resource", "resource": status})

    def _utilization(
        self,
        percent: int,
        metrics: Mapping[str, PodMetric],
        metric: ResourceMetric,
        scaled: ScaledPods,
        tolerances: Tolerances,
        now: datetime,
    ) -> Proposal:
        _check_pods(scaled)
        groups = group_pods(scaled.pods, metrics, metric.name, self._readiness, now)
        values = counted_values(metrics, groups)
        requests = pod_requests(scaled.pods, metric.name, metric.container, pod_level=self._pod_level)
        return utilization_proposal(scaled.spec_replicas, percent, values, requests, groups, tolerances)

    def _average_value(
        self,
        target: int,
        metrics: Mapping[str, PodMetric],
        resource: str,
        scaled: ScaledPods,
        tolerances: Tolerances,
        now: datetime,
    ) -> Proposal:
        _check_pods(scaled)
        groups = group_pods(scaled.pods, metrics, resource, self._readiness, now)
        return average_value_proposal(scaled.spec_replicas, target, counted_values(metrics, groups), groups, tolerances)

    async def _pods(
        self, named: NamedMetric, body: JSONValue, scaled: ScaledPods, tolerances: Tolerances, now: datetime
    ) -> MetricEvaluation:
        metric, target = named.metric, named.target.average_value_milli
        assert target is not None  # required by validation
        try:
            metrics = await self._client.of_pods(metric.name, scaled.namespace, scaled.selector, metric.selector)
        except MetricError as error:
            raise MetricError(f"unable to get metric {metric.name}: {error}") from error
        proposal = self._average_value(target, metrics, "", scaled, tolerances, now)
        status = {"metric": body["metric"], "current": {"averageValue": _quantity(proposal.value)}}
        return MetricEvaluation(proposal.replicas, f"pods metric {metric.name}", {"type": "Pods", "pods": status})

    # --- Object, External -------------------------------------------------------------------------------------------

    async def _object(
        self, named: NamedMetric, body: JSONValue, scaled: ScaledPods, tolerances: Tolerances
    ) -> MetricEvaluation:
        metric, described, target = named.metric, named.described_object, named.target
        is_average = target.type == "AverageValue"
        try:
            resource = await self.targets.resource(described)
            usage = await self._client.of_object(
                metric.name, scaled.namespace, resource.group_resource, described.name, metric.selector
            )
        except MetricError as error:
            # upstream's arguments are in this order
            place = f"{described.kind} on {scaled.namespace} {described.name}/{error}"
            raise MetricError(f"unable to get metric {metric.name}: {place}") from error
        proposal, current = _of_one_value(named, usage, scaled, tolerances, "object", is_average=is_average)
        status = {"metric": body["metric"], "current": current, "describedObject": body["describedObject"]}
        name = f"external metric {metric.name}({selector_text(metric.selector)})"
        return MetricEvaluation(
            proposal.replicas,
            name if is_average else f"{described.kind} metric {metric.name}",
            {"type": "Object", "object": status},
        )

    async def _external(
        self, named: NamedMetric, body: JSONValue, scaled: ScaledPods, tolerances: Tolerances
    ) -> MetricEvaluation:
        metric = named.metric
        text = selector_text(metric.selector)
        is_average = named.target.average_value is not None
        try:
            usage = await self._client.external(metric.name, scaled.namespace, metric.selector)
        except MetricError as error:
            place = f"{scaled.namespace}/{metric.name}/{text}"
            raise MetricError(f"unable to get external metric {place}: {error}") from error
        proposal, current = _of_one_value(named, usage, scaled, tolerances, "external", is_average=is_average)
        status = {"metric": body["metric"], "current": current}
        return MetricEvaluation(
            proposal.replicas, f"external metric {metric.name}({text})", {"type": "External", "external": status}
        )


def _of_one_value(
    named: NamedMetric, usage: int, scaled: ScaledPods, tolerances: Tolerances, source: str, *, is_average: bool
) -> tuple[Proposal, JSONValue]:
    """Return the proposal for a value that all pods share, and `current` of its status."""
    value, average = named.target.value_milli, named.target.average_value_milli
    if is_average and average is not None:
        proposal = value_per_pod_proposal(scaled.status_replicas, average, usage, tolerances)
        return proposal, {"averageValue": _quantity(proposal.value)}
    if value is not None:
        proposal = value_proposal(scaled.spec_replicas, value, usage, scaled.pods, tolerances)
        return proposal, {"value": _quantity(usage)}
    raise MetricError(f"invalid {source} metric source: neither a value target nor an average value target was set")


def _check_pods(scaled: ScaledPods) -> None:
    if not scaled.pods:
        raise MetricError("no pods returned by selector while calculating replica count")


def _quantity(milli: int, *, binary: bool = False) -> str:
    return Quantity(milli, -3, Format.BINARY_SI if binary else Format.DECIMAL_SI).canonical()
