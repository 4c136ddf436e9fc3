"""HorizontalPodAutoscaler controller: when an autoscaler is synced, and the write of its status.

Each autoscaler is synced once per sync period, never sooner. Source: v1.36
pkg/controller/podautoscaler/horizontal.go.
"""

from __future__ import annotations

from kubeloop.controllers.podautoscaler.autoscaler_sync import AutoscalerRules, AutoscalerSync
from kubeloop.controllers.podautoscaler.metric_evaluation import MetricEvaluator
from kubeloop.controllers.podautoscaler.metrics import AutoscalerMetrics
from kubeloop.controllers.podautoscaler.metrics_client import MetricsClient
from kubeloop.controllers.podautoscaler.replica_calculation import ReadinessRules
from kubeloop.controllers.podautoscaler.scale_target import ScaleTargets
from kubeloop.controllers.podautoscaler.scaling_behavior import ScaleHistory
from kubeloop.controllers.runtime.cached_reconcile import CachedReconcile
from kubeloop.controllers.runtime.controller import EventDrivenController, ReconcileError
from kubeloop.controllers.runtime.controller_context import ControllerContext
from kubeloop.controllers.runtime.writes.object_patch import changed_fields, patch_status
from kubeloop.kube.errors import ApiError, ServerUnreachable
from kubeloop.kube.objects.api_types import HorizontalPodAutoscaler, Pod
from kubeloop.kube.objects.resources import HORIZONTAL_POD_AUTOSCALERS, PODS
from kubeloop.kube.selectors.selectors import NOTHING, Selector
from kubeloop.tracing.recording.reconcile_recorder import Reconcile

_OPTION = "horizontal_pod_autoscaler_"


class FixedInterval:
    """Rate limiter of the queue: every retry follows after the sync period."""

    def __init__(self, seconds: float) -> None:
        self._seconds = seconds

    def when(self, key: str) -> float:
        del key
        return self._seconds

    def forget(self, key: str) -> None:
        """Do nothing: failures are not counted."""

    def num_requeues(self, key: str) -> int:
        del key
        return 0


class HorizontalController(EventDrivenController):
    """Reconciles HorizontalPodAutoscalers; `run()` works until cancelled."""

    def __init__(self, context: ControllerContext) -> None:
        options, gates = context.options, context.feature_gates
        self._sync_seconds: float = options[_OPTION + "sync_period"]
        limiter = FixedInterval(self._sync_seconds)
        super().__init__(context, "horizontalpodautoscaling", "horizontalpodautoscaler", limiter)
        self._context = context
        self._rules = AutoscalerRules(
            tolerance=options[_OPTION + "tolerance"],
            stabilization_seconds=options[_OPTION + "downscale_stabilization"],
            configurable_tolerance=gates.enabled("HPAConfigurableTolerance"),
            scale_to_zero=gates.enabled("HPAScaleToZero"),
        )
        readiness = ReadinessRules(
            options[_OPTION + "cpu_initialization_period"],
            options[_OPTION + "initial_readiness_delay"],
        )
        self._metrics = AutoscalerMetrics(context.metrics)
        self._seconds = context.seconds
        self._evaluator = MetricEvaluator(
            MetricsClient(context.client),
            ScaleTargets(context.client),
            readiness,
            self._metrics,
            context.seconds,
            pod_level=gates.enabled("PodLevelResources"),
        )
        autoscalers, pods = (
            context.informers.informer(HORIZONTAL_POD_AUTOSCALERS),
            context.informers.informer(PODS),
        )
        self._autoscalers, self._pods = autoscalers.store, pods.store
        self._pods.add_index("namespace")
        self._pods_informer = pods
        self._selectors: dict[str, dict[str, Selector]] = {}  # namespace -> name of an autoscaler -> its pods
        self._histories: dict[str, ScaleHistory] = {}
        self._reconciles = CachedReconcile[HorizontalPodAutoscaler](
            "horizontalpodautoscaling", self._autoscalers, self.queue, context.traces
        )
        self._registrations = (autoscalers.on_latest(self._on_autoscaler, deleted=self._on_delete),)

    async def run(self) -> None:
        """Reconcile until cancelled, once the caches are synced."""
        await self._pods_informer.wait_synced()
        await self._controller.run(self._registrations)

    def _on_autoscaler(self, autoscaler: HorizontalPodAutoscaler) -> None:
        self.queue.add_after(autoscaler.key, self._sync_seconds)
        metadata = autoscaler.metadata
        self._selectors.setdefault(metadata.namespace, {}).setdefault(metadata.name, NOTHING)
        self._metrics.set_autoscalers(len(self._autoscalers))

    def _on_delete(self, autoscaler: HorizontalPodAutoscaler) -> None:
        metadata = autoscaler.metadata
        selectors = self._selectors.get(metadata.namespace, {})
        selectors.pop(metadata.name, None)
        if not selectors:
            self._selectors.pop(metadata.namespace, None)
        self._histories.pop(autoscaler.key, None)
        self._metrics.set_autoscalers(len(self._autoscalers))

    async def reconcile(self, key: str) -> float | None:
        """Scale the target of autoscaler `key` and write its status. Returns the sync period.

        An exception means: retry after the sync period.
        """
        return await self._reconciles.run(key, self._sync)

    async def _sync(self, autoscaler: HorizontalPodAutoscaler, reconcile: Reconcile) -> float:
        key = autoscaler.key
        sync = AutoscalerSync(
            autoscaler,
            self._histories.get(key, ScaleHistory()),
            context=self._context,
            rules=self._rules,
            evaluator=self._evaluator,
            select_pods=lambda selector: self._select(autoscaler, selector),
            reconcile=reconcile,
        )
        started_at = self._seconds()
        await sync.run()
        if key in self._autoscalers:
            self._histories[key] = sync.history
        error_source = sync.error_source
        try:
            await self._write_status(autoscaler, sync)
        except (ApiError, ServerUnreachable):
            error_source = "internal"
            raise
        finally:
            self._metrics.reconciled(sync.scaled_by, error_source, max(0.0, self._seconds() - started_at))
        if sync.failure:
            raise ReconcileError(sync.failure)
        metadata = autoscaler.metadata
        self._metrics.set_desired_replicas(metadata.namespace, metadata.name, sync.status.desired_replicas)
        return self._sync_seconds

    def _select(self, autoscaler: HorizontalPodAutoscaler, selector: Selector) -> tuple[list[Pod], list[str]]:
        """Return the pods that the target of `autoscaler` selects, and the autoscalers that select any of them."""
        metadata = autoscaler.metadata
        selectors = self._selectors.get(metadata.namespace, {})
        if metadata.name in selectors:
            selectors[metadata.name] = selector
        pods = [
            pod for pod in self._pods.by_index("namespace", metadata.namespace) if selector.matches(pod.metadata.labels)
        ]
        names = [name for name, other in selectors.items() if any(other.matches(pod.metadata.labels) for pod in pods)]
        return pods, sorted(names)

    async def _write_status(self, autoscaler: HorizontalPodAutoscaler, sync: AutoscalerSync) -> None:
        if sync.status == autoscaler.status:
            return
        always = {"desiredReplicas": 0, "currentMetrics": None}
        changes = changed_fields(autoscaler.status, sync.status, always=always)
        try:
            await patch_status(self._client, HORIZONTAL_POD_AUTOSCALERS, autoscaler, changes)
        except (ApiError, ServerUnreachable) as error:
            self._events.event(autoscaler, "Warning", "FailedUpdateStatus", str(error))
            raise
