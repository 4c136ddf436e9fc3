"""StatefulSet controller: the events that enqueue a StatefulSet, and its reconcile.

Reads the informers' stores, decides with `stateful_set_plan`, `stateful_set_revisions` and `stateful_set_status`, and
sends the writes. Source: v1.36 pkg/controller/statefulset/stateful_set.go and stateful_set_control.go.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Sequence

from kubeloop.controllers.runtime.cached_reconcile import CachedReconcile, valid_selector
from kubeloop.controllers.runtime.controller import EventDrivenController
from kubeloop.controllers.runtime.controller_context import ControllerContext
from kubeloop.controllers.runtime.owners.adoption import check_can_adopt, claim_cached
from kubeloop.controllers.runtime.owners.owner_queue import OwnerQueue
from kubeloop.controllers.runtime.owners.owner_references import (
    CONTROLLER_INDEX,
    controller_index_key,
    index_by_controller,
    orphan_index_key,
)
from kubeloop.controllers.runtime.pods.pod_availability import affects_owner, next_availability_seconds
from kubeloop.controllers.runtime.pods.slow_start import slow_start_batch
from kubeloop.controllers.runtime.revisions.controller_history import ControllerHistory
from kubeloop.controllers.runtime.writes.consistency import ConsistencyStore
from kubeloop.controllers.runtime.writes.object_patch import changed_fields, patch_status
from kubeloop.controllers.statefulset.stateful_pod_control import StatefulPodControl
from kubeloop.controllers.statefulset.stateful_pods import SYNCED_LABELS, is_member
from kubeloop.controllers.statefulset.stateful_set_plan import (
    PodActions,
    StatefulSetPlan,
    by_ordinal,
    max_unavailable,
    plan_pods,
)
from kubeloop.controllers.statefulset.stateful_set_revisions import RevisionSync
from kubeloop.controllers.statefulset.stateful_set_status import (
    after_update_deletions,
    needs_status_write,
    stateful_set_status,
)
from kubeloop.kube.errors import Conflict
from kubeloop.kube.objects.api_types import ControllerRevision, Pod, StatefulSet, StatefulSetStatus
from kubeloop.kube.objects.object_fields import controller_of, is_ready
from kubeloop.kube.objects.resources import (
    CONTROLLER_REVISIONS,
    PERSISTENT_VOLUME_CLAIMS,
    PODS,
    STATEFUL_SETS,
)
from kubeloop.kube.selectors.selectors import Selector
from kubeloop.tracing.recording.reconcile_recorder import Reconcile

log = logging.getLogger(__name__)

_NAME = "statefulset"
_MAX_BATCH = 500  # Pods that are created or deleted concurrently
_STATUS_TRIES, _STATUS_RETRY_SECONDS = 5, 0.01
_WRITTEN_COUNTS = {"replicas": 0, "availableReplicas": 0}  # without omitempty in the API


class StatefulSetController(EventDrivenController):
    """Reconciles StatefulSets: their Pods, volume claims, revisions and status."""

    def __init__(self, context: ControllerContext) -> None:
        super().__init__(context, _NAME, creates_pods=True)
        labels = "statefulset_namespace", "statefulset_name", "pod_management_policy"
        self._max_unavailable_gauge = context.metrics.gauge(
            "statefulset_controller_statefulset_max_unavailable",
            "Maximum number of unavailable pods allowed during StatefulSet rolling updates",
            labels,
        )
        self._unavailable_gauge = context.metrics.gauge(
            "statefulset_controller_statefulset_unavailable_replicas",
            "Current number of unavailable pods in StatefulSet",
            labels,
        )
        self._limits_unavailable = context.feature_gates.enabled("MaxUnavailableStatefulSet")
        sets, pods, claims, _ = self._informers = (
            context.informers.informer(STATEFUL_SETS),
            context.informers.informer(PODS),
            context.informers.informer(PERSISTENT_VOLUME_CLAIMS),
            context.informers.informer(CONTROLLER_REVISIONS),
        )
        self._sets, self._pods = sets.store, pods.store
        self._pods.add_index(CONTROLLER_INDEX, index_by_controller)
        self._history = ControllerHistory(context)
        self._revisions = RevisionSync(context, self._history)
        self.consistency = ConsistencyStore.of(
            sets, pods, claims, enabled=context.feature_gates.enabled("StaleControllerConsistencyStatefulSet")
        )
        self._pod_control = StatefulPodControl(context, self.consistency)
        self._owners = OwnerQueue[StatefulSet](
            self._sets, STATEFUL_SETS.kind, self.queue, lambda sts: sts.spec.selector
        )
        self._reconciles = CachedReconcile[StatefulSet](
            _NAME, self._sets, self.queue, context.traces, consistency=self.consistency
        )
        self._registrations = (
            sets.add_handler(self._owners),
            pods.on_events(
                added=lambda pod: self._owners.add_after_creation(pod, "pod"),
                updated=self._on_pod_update,
                deleted=lambda pod: self._owners.add_owner(pod, "pod deleted"),
            ),
        )

    async def run(self) -> None:
        """Reconcile until cancelled, once the caches are synced."""
        for informer in self._informers:
            await informer.wait_synced()
        await self._controller.run(self._registrations)

    # --- event handlers --------------------------------------------------------------------------------------------

    def _on_pod_update(self, old: Pod, new: Pod) -> None:
        if old.metadata.resource_version == new.metadata.resource_version:
            return  # a resync
        sts = self._owners.add_after_change(
            old, new, "pod", lambda sts: affects_owner(old, new, sts.spec.selector, SYNCED_LABELS)
        )
        if sts is not None and sts.spec.min_ready_seconds > 0 and is_ready(new) and not is_ready(old):
            self.queue.add_after(sts.key, sts.spec.min_ready_seconds)

    # --- reconcile -------------------------------------------------------------------------------------------------

    async def reconcile(self, key: str) -> float | None:
        """Bring Pods, claims, revisions and status of StatefulSet `key` up to date.

        Level-based. Returns the seconds until a ready Pod becomes available, else None. An exception means: retry with
        backoff; StaleCache: the caches are older than our last writes.
        """
        return await self._reconciles.run(key, self._sync)

    async def _sync(self, sts: StatefulSet, reconcile: Reconcile) -> float | None:
        selector = valid_selector(STATEFUL_SETS.kind, sts.key, sts.spec.selector)
        if selector is None:
            return None
        now = self._clock.now()
        listed = self._history.list(sts, selector)
        await self._adopt_revisions(sts, listed, reconcile)
        pods = await self._claim_pods(sts, selector, reconcile)
        revisions, collision_count = await self._revisions.sync(sts, listed, reconcile)
        status = stateful_set_status(sts, pods, revisions, collision_count, now)
        plan = plan_pods(
            sts,
            by_ordinal(sts, pods),
            revisions,
            lambda name: self._pod_control.cached_claim(sts, name),
            now,
            limits_unavailable=self._limits_unavailable,
        )
        self._set_gauges(sts, plan)
        deleted, failure = await self._apply(sts, plan, reconcile)
        status = after_update_deletions(sts, status, deleted)
        try:
            await self._write_status(sts, status, reconcile)
        except Exception as error:
            failure = failure or error
        await self._revisions.truncate(sts, listed, revisions, pods, reconcile)
        if failure is not None:
            raise failure
        min_ready_seconds = sts.spec.min_ready_seconds
        if min_ready_seconds > 0 and status.ready_replicas != status.available_replicas:
            # Each Pod that becomes ready enqueues the key for the time it becomes available. This covers clock skew.
            seconds = next_availability_seconds(pods, min_ready_seconds, now)
            return float(min_ready_seconds) if seconds is None else seconds
        return None

    def _set_gauges(self, sts: StatefulSet, plan: StatefulSetPlan) -> None:
        labels = sts.metadata.namespace, sts.metadata.name, sts.spec.pod_management_policy
        if self._limits_unavailable:
            self._max_unavailable_gauge.labels(*labels).set(max_unavailable(sts))
        if plan.unavailable is not None:
            self._unavailable_gauge.labels(*labels).set(plan.unavailable)

    async def _adopt_revisions(
        self, sts: StatefulSet, listed: Sequence[ControllerRevision], reconcile: Reconcile
    ) -> None:
        orphans = [revision for revision in listed if controller_of(revision.metadata) is None]
        if orphans:
            fresh = await self._client.get(STATEFUL_SETS, sts.metadata.name, sts.metadata.namespace)
            check_can_adopt(sts, fresh)
        for revision in orphans:
            with reconcile.action_span(f"adopt controllerrevision {revision.metadata.name}"):
                await self._history.adopt(sts, revision)

    async def _claim_pods(self, sts: StatefulSet, selector: Selector, reconcile: Reconcile) -> list[Pod]:
        """Adopt and release Pods as needed, and return those of the StatefulSet. Raises ClaimErrors."""
        index_keys = (controller_index_key(sts), orphan_index_key(sts.metadata.namespace))
        return await claim_cached(
            self._client,
            STATEFUL_SETS,
            sts,
            PODS,
            [pod for index_key in index_keys for pod in self._pods.by_index(CONTROLLER_INDEX, index_key)],
            selector,
            reconcile,
            wrote=lambda written, _claim: self.consistency.wrote(sts, PODS, written),
            is_member=lambda pod: is_member(sts, pod),
        )

    # --- writes ----------------------------------------------------------------------------------------------------

    async def _apply(
        self, sts: StatefulSet, plan: StatefulSetPlan, reconcile: Reconcile
    ) -> tuple[int, Exception | None]:
        """Carry out the plan up to the first failure.

        Returns the number of Pods deleted for a rolling update, and the failure, since the status follows.
        """
        deleted = 0
        try:
            for phase in plan.phases:
                await self._apply_phase(sts, phase, reconcile)
            for pod in plan.update_deletions:
                await self._pod_control.delete(sts, pod, reconcile)
                deleted += 1
        except Exception as error:
            return deleted, error
        return deleted, None

    async def _apply_phase(self, sts: StatefulSet, phase: Sequence[PodActions], reconcile: Reconcile) -> None:
        pending = iter(phase)

        async def apply_next() -> None:
            for action in next(pending):
                await self._pod_control.apply(sts, action, reconcile)

        if sts.spec.pod_management_policy == "Parallel":
            _, failure = await slow_start_batch(len(phase), apply_next, max_batch_size=_MAX_BATCH)
            if failure is not None:
                raise failure
        else:
            for _ in phase:
                await apply_next()

    async def _write_status(self, sts: StatefulSet, status: StatefulSetStatus, reconcile: Reconcile) -> None:
        """Write the status if it changed. A conflict is retried from the cache, as client-go's RetryOnConflict."""
        if not needs_status_write(sts.status, status):
            return
        based_on = sts
        for tries_left in range(_STATUS_TRIES - 1, -1, -1):
            changes = changed_fields(based_on.status, status, always=_WRITTEN_COUNTS)
            try:
                with reconcile.action_span("update status"):
                    written = await patch_status(self._client, STATEFUL_SETS, based_on, changes)
            except Conflict:
                if not tries_left:
                    raise
                await asyncio.sleep(_STATUS_RETRY_SECONDS)
                based_on = self._sets.get(sts.key) or based_on
            else:
                self.consistency.wrote(sts, STATEFUL_SETS, written)
                return
