"""One sync of a HorizontalPodAutoscaler: reads the scale of its target, evaluates its metrics and scales.

Source: reconcileAutoscaler in pkg/controller/podautoscaler/horizontal.go.
"""

from __future__ import annotations

from collections.abc import Callable

import msgspec
from msgspec.structs import replace

from kubeloop.controllers.podautoscaler.autoscaler_spec import (
    DEFAULT_MIN_REPLICAS,
    behavior_of,
    metric_specs,
    tolerances_of,
)
from kubeloop.controllers.podautoscaler.metric_evaluation import InvalidMetric, MetricEvaluator, ScaledPods
from kubeloop.controllers.podautoscaler.metrics import ErrorSource
from kubeloop.controllers.podautoscaler.scale_target import InvalidReference, Scale, ScaleError
from kubeloop.controllers.podautoscaler.scaling_behavior import (
    SCALE_DOWN_STABILIZED,
    SCALE_UP_STABILIZED,
    ScaleHistory,
    limited,
    limited_by_behavior,
    stabilized,
    stabilized_by_behavior,
)
from kubeloop.controllers.runtime.controller import ReconcileError
from kubeloop.controllers.runtime.controller_context import ControllerContext
from kubeloop.kube.errors import ApiError, ServerUnreachable
from kubeloop.kube.events.event_recorder import EventType
from kubeloop.kube.objects.api_types import Condition, HorizontalPodAutoscaler, JSONValue, Pod
from kubeloop.kube.objects.object_fields import condition_of, replace_condition
from kubeloop.kube.selectors.selectors import Selector, SelectorError, parse_label_selector
from kubeloop.tracing.recording.reconcile_recorder import Reconcile

ABLE_TO_SCALE, SCALING_ACTIVE = "AbleToScale", "ScalingActive"
SCALING_LIMITED, SCALED_TO_ZERO = "ScalingLimited", "ScaledToZero"

_READY_FOR_NEW_SCALE = ("ReadyForNewScale", "recommended size matches current size")
_BELOW_MINIMUM = "Current number of replicas below Spec.MinReplicas"
_ABOVE_MAXIMUM = "Current number of replicas above Spec.MaxReplicas"


class AutoscalerRules(msgspec.Struct, frozen=True):
    """Settings of the controller. stabilization_seconds: --horizontal-pod-autoscaler-downscale-stabilization."""

    tolerance: float
    stabilization_seconds: float
    configurable_tolerance: bool
    scale_to_zero: bool


class AutoscalerSync:
    """One sync. Afterwards, `status` is to be written, `history` is that for the next sync, and `failure` its error.

    error_source: label of the failure in metrics. scaled_by: change of the target's replicas.
    """

    def __init__(
        self,
        autoscaler: HorizontalPodAutoscaler,
        history: ScaleHistory,
        *,
        context: ControllerContext,
        rules: AutoscalerRules,
        evaluator: MetricEvaluator,
        select_pods: Callable[[Selector], tuple[list[Pod], list[str]]],
        reconcile: Reconcile,
    ) -> None:
        """select_pods: returns the pods of a selector, and the names of the autoscalers that select any of them."""
        self.status = autoscaler.status
        self.history = history
        self.failure = ""
        self.error_source: ErrorSource = "none"
        self.scaled_by = 0
        self._autoscaler = autoscaler
        self._behavior = behavior_of(autoscaler)
        self._rules = rules
        self._targets = evaluator.targets
        self._evaluator = evaluator
        self._select_pods = select_pods
        self._events = context.events
        self._reconcile = reconcile
        self._now = context.clock.now()
        self._min_replicas = (
            DEFAULT_MIN_REPLICAS if autoscaler.spec.min_replicas is None else autoscaler.spec.min_replicas
        )
        self._rescale_reason = ""

    async def run(self) -> None:
        """Sync once. `failure` is set if the target cannot be scaled, or a metric cannot be evaluated."""
        try:
            await self._scale()
        except ReconcileError as error:
            self.failure = str(error)
        if self.failure and self.error_source == "none":
            self.error_source = "internal"

    async def _scale(self) -> None:
        """Scale the target. Raises ReconcileError if it cannot be scaled, or too few metrics can be evaluated."""
        spec, namespace = self._autoscaler.spec, self._autoscaler.metadata.namespace
        reference = spec.scale_target_ref
        try:
            resource = await self._targets.resource(reference)
            scale = await self._targets.read(resource, namespace, reference.name)
        except ScaleError as error:
            if isinstance(error, InvalidReference):
                self.error_source = "spec"
            self._event("Warning", "FailedGetScale", str(error))
            message = f"the HPA controller was unable to get the target's current scale: {error}"
            self._set(ABLE_TO_SCALE, False, "FailedGetScale", message)
            raise ReconcileError(
                f"failed to query scale subresource for {reference.kind}/{namespace}/{reference.name}: {error}"
            ) from error
        message = "the HPA controller was able to get the target's current scale"
        self._set(ABLE_TO_SCALE, True, "SucceededGetScale", message)
        current = scale.spec_replicas
        if not self.history.recommendations:
            self._recommend(current)
        metrics: tuple[JSONValue, ...] | None = None
        if current == 0 and not self._scales_from_zero():
            desired = 0
            message = "scaling is disabled since the replica count of the target is zero"
            self._set(SCALING_ACTIVE, False, "ScalingDisabled", message)
            if not self._rules.scale_to_zero:
                self._remove(SCALED_TO_ZERO)
        elif current > spec.max_replicas:
            desired, self._rescale_reason = spec.max_replicas, _ABOVE_MAXIMUM
        elif 0 < current < self._min_replicas:
            desired, self._rescale_reason = self._min_replicas, _BELOW_MINIMUM
        else:
            desired, metrics = await self._desired_by_metrics(scale)
        if desired != current:
            await self._rescale(scale, desired, metrics)
        self._set_replicas(current, desired, metrics, rescaled=desired != current)

    def _scales_from_zero(self) -> bool:
        """Return True if this controller has scaled the target to zero, and may scale it up again."""
        if not self._rules.scale_to_zero:
            return False
        condition = condition_of(self.status.conditions, SCALED_TO_ZERO)
        scaled_to_zero = condition is not None and condition.status == "True"
        return scaled_to_zero and (self._min_replicas != 0 or self._has_external_metrics())

    def _has_external_metrics(self) -> bool:
        """Return True if a metric exists without pods."""
        return any(metric.get("type") in ("Object", "External") for metric in self._autoscaler.spec.metrics)

    # --- metrics ----------------------------------------------------------------------------------------------------

    async def _desired_by_metrics(self, scale: Scale) -> tuple[int, tuple[JSONValue, ...] | None]:
        """Return the replicas that the metrics call for, within all limits, and status.currentMetrics."""
        current = scale.spec_replicas
        proposed, metric_name, metrics = await self._evaluate(scale)
        if proposed > current:
            self._rescale_reason = f"{metric_name} above target"
        elif proposed < current:
            self._rescale_reason = "All metrics below target"
        desired = self._normalized(current, proposed)
        if current == 0 and desired < self._min_replicas:  # the policies of spec.behavior may limit it further
            desired = self._min_replicas
            self._rescale_reason = self._rescale_reason or _BELOW_MINIMUM
        return desired, metrics

    async def _evaluate(self, scale: Scale) -> tuple[int, str, tuple[JSONValue, ...]]:
        """Return the highest proposal, the metric that made it, and status.currentMetrics.

        Metrics that cannot be evaluated prevent a scale-down, and any scaling if there are no others.
        """
        selector, pods = self._selected_pods(scale)
        namespace = self._autoscaler.metadata.namespace
        scaled = ScaledPods(
            namespace,
            pods,
            str(selector),
            scale.spec_replicas,
            scale.status_replicas,
            self._autoscaler.status.current_replicas,
        )
        tolerances = tolerances_of(
            self._behavior, self._rules.tolerance, configurable=self._rules.configurable_tolerance
        )
        replicas, name, statuses = 0, "", list[JSONValue]()
        errors: list[InvalidMetric] = []
        specs = metric_specs(self._autoscaler)
        for metric, body in specs:
            try:
                evaluation = await self._evaluator.evaluate(metric, body, scaled, tolerances, self._now)
            except InvalidMetric as error:
                self._event("Warning", error.event_reason, error.event_message)
                errors.append(error)
                statuses.append({"type": ""})  # as upstream writes an empty MetricStatus
                continue
            statuses.append(evaluation.status)
            if replicas == 0 or evaluation.replicas > replicas:
                replicas, name = evaluation.replicas, evaluation.name
        if errors:
            self.error_source = errors[0].source
            self.failure = f"invalid metrics ({len(errors)} invalid out of {len(specs)}), first error is: {errors[0]}"
        if errors and (len(errors) == len(specs) or replicas < scale.spec_replicas):
            message = f"the HPA was unable to compute the replica count: {errors[0].event_message}"
            self._set(SCALING_ACTIVE, False, errors[0].event_reason, message)
            raise self._no_replica_count(scale, self.failure, tuple(statuses))
        message = f"the HPA was able to successfully calculate a replica count from {name}"
        self._set(SCALING_ACTIVE, True, "ValidMetricFound", message)
        return replicas, name, tuple(statuses)

    def _selected_pods(self, scale: Scale) -> tuple[Selector, list[Pod]]:
        """Return the selector of the target's pods and these. Raises ReconcileError if another autoscaler has them."""
        if not scale.selector:
            message = "the HPA target's scale is missing a selector"
            raise self._unusable_selector(scale, "SelectorRequired", "selector is required", message)
        try:
            selector = parse_label_selector(scale.selector)
        except SelectorError as error:
            message = f"couldn't convert selector into a corresponding internal selector object: {error}"
            raise self._unusable_selector(scale, "InvalidSelector", message, message) from error
        pods, autoscalers = self._select_pods(selector)
        if len(autoscalers) > 1:
            keys = " ".join(f"{self._autoscaler.metadata.namespace}/{name}" for name in autoscalers)
            message = f"pods by selector {scale.selector} are controlled by multiple HPAs: [{keys}]"
            raise self._unusable_selector(scale, "AmbiguousSelector", message, message)
        return selector, pods

    def _unusable_selector(self, scale: Scale, reason: str, error: str, message: str) -> ReconcileError:
        self._event("Warning", reason, error)
        self._set(SCALING_ACTIVE, False, "InvalidSelector" if reason == "SelectorRequired" else reason, message)
        return self._no_replica_count(scale, error, None)

    def _no_replica_count(self, scale: Scale, problem: str, metrics: tuple[JSONValue, ...] | None) -> ReconcileError:
        self._set_replicas(scale.spec_replicas, self.status.desired_replicas, metrics, rescaled=False)
        self._event("Warning", "FailedComputeMetricsReplicas", problem)
        reference, namespace = self._autoscaler.spec.scale_target_ref, self._autoscaler.metadata.namespace
        return ReconcileError(
            "failed to compute desired number of replicas based on listed metrics for "
            f"{reference.kind}/{namespace}/{reference.name}: {problem}"
        )

    # --- limits -----------------------------------------------------------------------------------------------------

    def _normalized(self, current: int, proposed: int) -> int:
        """Return the proposed replicas after stabilization and within the limits; sets their conditions."""
        behavior, history, now = self._behavior, self.history, self._now
        minimum, maximum = self._min_replicas, self._autoscaler.spec.max_replicas
        if behavior is None:
            stable = stabilized(history.recommendations, proposed, self._rules.stabilization_seconds, now)
            limit, stabilization = limited(current, stable, minimum, maximum), SCALE_DOWN_STABILIZED
        else:
            up_seconds, down_seconds = self._windows()
            stable = stabilized_by_behavior(history.recommendations, current, proposed, up_seconds, down_seconds, now)
            limit = limited_by_behavior(current, stable, minimum, maximum, behavior, history, now)
            stabilization = SCALE_UP_STABILIZED if proposed >= current else SCALE_DOWN_STABILIZED
        self._recommend(proposed)
        self._set(ABLE_TO_SCALE, True, *(stabilization if stable != proposed else _READY_FOR_NEW_SCALE))
        self._set(SCALING_LIMITED, limit.replicas != stable, limit.reason, limit.message)
        return limit.replicas

    def _windows(self) -> tuple[float, float]:
        """Return the stabilization windows for scaling up and down, in seconds."""
        if self._behavior is None:
            return 0, self._rules.stabilization_seconds
        up, down = self._behavior.scale_up, self._behavior.scale_down
        down_seconds = down.stabilization_window_seconds
        return (
            up.stabilization_window_seconds or 0,
            self._rules.stabilization_seconds if down_seconds is None else down_seconds,
        )

    def _recommend(self, replicas: int) -> None:
        self.history = self.history.with_recommendation(replicas, self._now, max(self._windows()))

    # --- writes -----------------------------------------------------------------------------------------------------

    async def _rescale(self, scale: Scale, desired: int, metrics: tuple[JSONValue, ...] | None) -> None:
        current = scale.spec_replicas
        try:
            with self._reconcile.action_span(f"scale to {desired}"):
                await self._targets.write(scale, desired)
        except (ApiError, ServerUnreachable) as error:
            size = f"New size: {desired}; reason: {self._rescale_reason}; error: {error}"
            self._event("Warning", "FailedRescale", size)
            message = f"the HPA controller was unable to update the target scale: {error}"
            self._set(ABLE_TO_SCALE, False, "FailedUpdateScale", message)
            self._set_replicas(current, self.status.desired_replicas, metrics, rescaled=False)
            raise ReconcileError(f"failed to rescale: {error}") from error
        self.scaled_by = desired - current
        message = f"the HPA controller was able to update the target scale to {desired}"
        self._set(ABLE_TO_SCALE, True, "SucceededRescale", message)
        self._event("Normal", "SuccessfulRescale", f"New size: {desired}; reason: {self._rescale_reason}")
        if self._behavior is not None:
            self.history = self.history.with_scaling(current, desired, self._behavior, self._now)
        if not self._rules.scale_to_zero:
            self._remove(SCALED_TO_ZERO)
        elif desired == 0 and self._min_replicas == 0 and self._has_external_metrics():
            message = "the HPA controller scaled the workload to zero"
            self._set(SCALED_TO_ZERO, True, "ScaledToZero", message)
        else:
            message = "the HPA controller did not scale the workload to zero"
            self._set(SCALED_TO_ZERO, False, "NotScaledToZero", message)

    def _set_replicas(
        self, current: int, desired: int, metrics: tuple[JSONValue, ...] | None, *, rescaled: bool
    ) -> None:
        self.status = replace(
            self.status,
            observed_generation=None,
            current_replicas=current,
            desired_replicas=desired,
            current_metrics=metrics or None,
            last_scale_time=self._now.replace(microsecond=0) if rescaled else self.status.last_scale_time,
        )

    def _set(self, type_: str, holds: bool, reason: str, message: str) -> None:
        status = "True" if holds else "False"
        old = condition_of(self.status.conditions, type_)
        changed = self._now.replace(microsecond=0)
        if old is not None and old.status == status and old.last_transition_time is not None:
            changed = old.last_transition_time
        new = Condition(type=type_, status=status, last_transition_time=changed, reason=reason, message=message)
        self.status = replace(self.status, conditions=replace_condition(self.status.conditions, new))

    def _remove(self, type_: str) -> None:
        conditions = tuple(condition for condition in self.status.conditions if condition.type != type_)
        self.status = replace(self.status, conditions=conditions)

    def _event(self, type_: EventType, reason: str, message: str) -> None:
        self._events.event(self._autoscaler, type_, reason, message)
