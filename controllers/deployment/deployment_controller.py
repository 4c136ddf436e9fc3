"""Deployment controller: the events that enqueue a Deployment, and its reconcile.

Reads the informers' stores; `sync` decides and writes. Source: v1.36
pkg/controller/deployment/deployment_controller.go.
"""

from __future__ import annotations

import logging

from msgspec.structs import replace

from kubeloop.controllers.deployment.pending_status import PendingStatus
from kubeloop.controllers.deployment.replica_sets import pods_by_replica_set
from kubeloop.controllers.deployment.rolling_update import RECREATE
from kubeloop.controllers.deployment.sync import DeploymentSync
from kubeloop.controllers.runtime.cached_reconcile import CachedReconcile
from kubeloop.controllers.runtime.controller import (
    RESYNC_SECONDS,
    EventDrivenController,
    ReconcileError,
    StaleCache,
)
from kubeloop.controllers.runtime.controller_context import ControllerContext
from kubeloop.controllers.runtime.owners.adoption import claim_cached
from kubeloop.controllers.runtime.owners.owner_queue import OwnerQueue
from kubeloop.controllers.runtime.owners.owner_references import (
    CONTROLLER_INDEX,
    cached_controller,
    controller_index_key,
    index_by_controller,
    orphan_index_key,
)
from kubeloop.controllers.runtime.writes.consistency import ConsistencyStore
from kubeloop.controllers.runtime.writes.object_patch import changed_fields, patch_status
from kubeloop.controllers.runtime.writes.status_delay import StatusDelay
from kubeloop.kube.errors import ApiError, ServerUnreachable, is_namespace_terminating
from kubeloop.kube.objects.api_types import Deployment, LabelSelector, Pod, ReplicaSet
from kubeloop.kube.objects.resources import DEPLOYMENTS, PODS, REPLICA_SETS
from kubeloop.kube.selectors.selectors import Selector, SelectorError, selector_from
from kubeloop.tracing.recording.reconcile_recorder import Reconcile

log = logging.getLogger(__name__)

MAX_REQUEUES = 15  # failures in a row after which a key is dropped; the last delay is 82 s
STALE_RECHECK_SECONDS = 1.0
_PASSED_RECHECK_SECONDS = 60.0


class InvalidSelector(ReconcileError):
    """spec.selector of a Deployment is invalid."""


class DeploymentController(EventDrivenController):
    """Reconciles Deployments: creates, scales and deletes their ReplicaSets."""

    def __init__(self, context: ControllerContext) -> None:
        super().__init__(
            context, "deployment", "deployment", max_requeues=MAX_REQUEUES, is_terminal=is_namespace_terminating
        )
        self._context = context
        deployments = context.informers.informer(DEPLOYMENTS)
        replica_sets = context.informers.informer(REPLICA_SETS)
        pods = context.informers.informer(PODS)
        self._deployments, self._replica_sets, self._pods = deployments.store, replica_sets.store, pods.store
        self._replica_sets.add_index(CONTROLLER_INDEX, index_by_controller)
        self._pods.add_index(CONTROLLER_INDEX, index_by_controller)
        self._consistency = ConsistencyStore.of(deployments, replica_sets)
        self._owners = OwnerQueue[Deployment](
            self._deployments,
            DEPLOYMENTS.kind,
            self.queue,
            lambda deployment: deployment.spec.selector,
            lambda deployment: self._consistency.forget(deployment.key, deployment.metadata.uid),
        )
        self._status_delay = StatusDelay[PendingStatus](self.queue, context.status_delay_seconds)
        self._reconciles = CachedReconcile[Deployment](
            "deployment",
            self._deployments,
            self.queue,
            context.traces,
            self._status_delay.forget,
            consistency=self._consistency,
        )
        self._registrations = (
            deployments.add_handler(self._owners, resync_seconds=RESYNC_SECONDS),
            replica_sets.on_events(
                added=self._on_replica_set_add,
                updated=self._on_replica_set_update,
                deleted=self._on_replica_set_delete,
            ),
            pods.on_events(deleted=self._on_pod_delete),
        )

    # --- event handlers --------------------------------------------------------------------------------------------

    def _on_replica_set_add(self, rs: ReplicaSet) -> None:
        if rs.metadata.deletion_timestamp is not None:
            self._on_replica_set_delete(rs)
        else:
            self._owners.add_after_creation(rs, "replica set")

    def _on_replica_set_update(self, old: ReplicaSet, new: ReplicaSet) -> None:
        if old.metadata.resource_version == new.metadata.resource_version:
            return  # a resync
        self._owners.add_after_change(old, new, "replica set")

    def _on_replica_set_delete(self, rs: ReplicaSet) -> None:
        self._owners.add_owner(rs, "replica set deleted")

    def _on_pod_delete(self, pod: Pod) -> None:
        """Enqueue a Recreate whose last Pod was deleted; rolling updates are enqueued by their ReplicaSets' status."""
        rs = cached_controller(self._replica_sets, REPLICA_SETS.kind, pod)
        deployment = self._owners.owner(rs) if rs is not None else None
        if deployment is None or deployment.spec.strategy.type != RECREATE:
            return
        selector = _selector_or_none(deployment.spec.selector)
        if selector is None:
            return
        owned = [
            replica_set
            for replica_set in self._replica_sets.by_index(CONTROLLER_INDEX, controller_index_key(deployment))
            if selector.matches(replica_set.metadata.labels)
        ]
        if not any(pods for _, pods in pods_by_replica_set(self._pods, selector, owned)):
            self.queue.add(deployment.key, "last pod deleted")

    # --- reconcile -------------------------------------------------------------------------------------------------

    async def reconcile(self, key: str) -> float | None:
        """Bring the Deployment `key` one step closer to its spec.

        Level-based: reads the caches, never the event that enqueued the key; may be cancelled and run again. Returns
        the seconds after which time alone may change the result, else None. An exception means: retry with backoff.
        """
        try:
            return await self._reconciles.run(key, self._sync)
        except StaleCache as stale:
            # Decisions based on a state before our own last write would only cause conflicts. The cache will receive
            # that write, and enqueue this key.
            log.debug("deployment %s postponed: %s", key, stale)
            return STALE_RECHECK_SECONDS

    async def _sync(self, deployment: Deployment, reconcile: Reconcile) -> float | None:
        if deployment.spec.selector is None or deployment.spec.selector == LabelSelector():
            await self._report_empty_selector(deployment, reconcile)
            return None
        sync = DeploymentSync(
            deployment,
            await self._claim_replica_sets(deployment, reconcile),
            context=self._context,
            consistency=self._consistency,
            status_delay=self._status_delay,
            reconcile=reconcile,
        )
        await sync.run()
        return self._recheck_seconds(deployment.key, sync.seconds_until_deadline)

    def _recheck_seconds(self, key: str, left: float | None) -> float | None:
        """Return the seconds until a rollout is checked for its progress deadline, or None.

        A deadline that has passed without an effect is that of a Deployment which was complete before: only an event
        changes its state. Kubernetes reconciles it 200 times per second, without a write, until all its Pods are
        available.
        """
        if left is None:
            return None
        if left < 1:
            self.queue.add_rate_limited(key, at_least_seconds=left if left >= 0 else _PASSED_RECHECK_SECONDS)
            return None
        return left + 1  # timestamps are truncated to seconds

    async def _report_empty_selector(self, deployment: Deployment, reconcile: Reconcile) -> None:
        message = "This deployment is selecting all pods. A non-empty selector is required."
        self._events.event(deployment, "Warning", "SelectingAll", message)
        status = deployment.status
        if status.observed_generation >= deployment.metadata.generation:
            return
        observed_status = replace(status, observed_generation=deployment.metadata.generation)
        try:
            with reconcile.action_span("update status"):
                await patch_status(self._client, DEPLOYMENTS, deployment, changed_fields(status, observed_status))
        except (ApiError, ServerUnreachable) as error:
            log.info("could not update status.observedGeneration of %s: %s", deployment.key, error)

    async def _claim_replica_sets(self, deployment: Deployment, reconcile: Reconcile) -> list[ReplicaSet]:
        """Adopt and release ReplicaSets as needed, and return those that the Deployment owns. Raises ClaimErrors."""
        selector = _selector(deployment)
        store = self._replica_sets
        candidates = store.by_index(CONTROLLER_INDEX, controller_index_key(deployment))
        candidates += store.by_index(CONTROLLER_INDEX, orphan_index_key(deployment.metadata.namespace))
        return await claim_cached(
            self._client,
            DEPLOYMENTS,
            deployment,
            REPLICA_SETS,
            candidates,
            selector,
            reconcile,
            wrote=lambda written, _claim: self._consistency.wrote(deployment, REPLICA_SETS, written),
        )


def _selector(deployment: Deployment) -> Selector:
    try:
        return selector_from(deployment.spec.selector)
    except SelectorError as error:
        raise InvalidSelector(f"deployment {deployment.key} has invalid label selector: {error}") from error


def _selector_or_none(selector: LabelSelector | None) -> Selector | None:
    try:
        return selector_from(selector)
    except SelectorError:
        return None
