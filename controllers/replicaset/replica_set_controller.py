"""ReplicaSet controller, also for ReplicationControllers: the events that enqueue an object, and its reconcile.

Reads the informers' stores, decides with `replica_plan` and `replica_set_status`, and sends the writes. Source: v1.36
pkg/controller/replicaset/replica_set.go.
"""

from __future__ import annotations

import itertools
import logging
from collections.abc import Mapping
from typing import Any

from kubeloop.controllers.replicaset.pod_deletion_order import deletion_age_ratios
from kubeloop.controllers.replicaset.pod_groups import OwnerPodGroups, PodGroupKey, PodsByGroup, pod_group_key
from kubeloop.controllers.replicaset.related_pods import (
    HASH_INDEX,
    PodsPerNode,
    active_pods_per_node,
    by_template_hash,
    related_pods,
)
from kubeloop.controllers.replicaset.replica_plan import ReplicaPlan, plan_replicas
from kubeloop.controllers.replicaset.replica_set_status import (
    only_counts_changed,
    replica_set_status,
    turns,
)
from kubeloop.controllers.replicaset.replication_controllers import (
    REPLICA_SET,
    REPLICATION_CONTROLLER,
    ControllerVariant,
)
from kubeloop.controllers.runtime.cached_reconcile import CachedReconcile, valid_selector
from kubeloop.controllers.runtime.controller import RESYNC_SECONDS, EventDrivenController
from kubeloop.controllers.runtime.controller_context import ControllerContext
from kubeloop.controllers.runtime.owners.adoption import Claim, claim_cached, decide_claim
from kubeloop.controllers.runtime.owners.owner_queue import OwnerQueue
from kubeloop.controllers.runtime.owners.owner_references import (
    controller_index_key,
    orphan_index_key,
)
from kubeloop.controllers.runtime.pods.expected_pods import ExpectedPods
from kubeloop.controllers.runtime.pods.pod_availability import next_availability_seconds
from kubeloop.controllers.runtime.pods.pod_template import pod_from_template
from kubeloop.controllers.runtime.writes.consistency import ConsistencyStore
from kubeloop.controllers.runtime.writes.object_patch import changed_fields
from kubeloop.controllers.runtime.writes.status_delay import StatusDelay
from kubeloop.controllers.runtime.writes.status_write import write_status
from kubeloop.kube.objects.api_types import Object, Pod, ReplicaSet, ReplicaSetStatus
from kubeloop.kube.objects.object_fields import controller_of, is_ready, replicas_of
from kubeloop.kube.objects.resources import PODS
from kubeloop.kube.selectors.selectors import Selector
from kubeloop.tracing.recording.reconcile_recorder import Reconcile

log = logging.getLogger(__name__)

BURST_REPLICAS = 500
# Source: pkg/controller/replicaset/metrics: ExponentialBuckets(0.25, 2, 6)
_DELETION_AGE_RATIO_BUCKETS = (0.25, 0.5, 1.0, 2.0, 4.0, 8.0)


class ReplicaSetController(EventDrivenController):
    """Reconciles ReplicaSets (or, by `variant`, ReplicationControllers): creates and deletes their Pods."""

    def __init__(self, context: ControllerContext, variant: ControllerVariant = REPLICA_SET) -> None:
        super().__init__(context, variant.name, creates_pods=True)
        self._age_ratio = context.metrics.histogram(
            "replicaset_controller_sorting_deletion_age_ratio",
            "The ratio of chosen deleted pod's ages to the current youngest pod's age (at the time).",
            buckets=_DELETION_AGE_RATIO_BUCKETS,
        ).labels()
        self._variant = variant
        owners, pods = context.informers.informer(variant.resource), context.informers.informer(PODS)
        self._owners, self._pods = owners.store, pods.store
        self._pods.add_index(HASH_INDEX, by_template_hash)
        self._pods.add_index("namespace")
        self._owners.add_index("owner")
        self._groups = OwnerPodGroups(variant.kind)
        gates = context.feature_gates
        self.consistency = ConsistencyStore.of(
            owners, pods, enabled=gates.enabled("StaleControllerConsistencyReplicaSet")
        )
        self._pod_writes = ExpectedPods(context, self.consistency)
        self.expectations = self._pod_writes.expectations
        self._by_cost = gates.enabled("PodDeletionCost")
        self._counts_terminating = variant.has_terminating_replicas and gates.enabled(
            "DeploymentReplicaSetTerminatingReplicas"
        )
        self._owner_queue = OwnerQueue[Any](
            self._owners,
            variant.kind,
            self.queue,
            lambda owner: variant.to_replica_set(owner).spec.selector,
            lambda owner: self.expectations.forget(owner.key),
            lambda owner: self.consistency.forget(owner.key, owner.metadata.uid),
        )
        self._status_delay = StatusDelay[tuple[str, ReplicaSetStatus]](self.queue, context.status_delay_seconds)
        self._reconciles = CachedReconcile[Any](
            variant.name,
            self._owners,
            self.queue,
            context.traces,
            self.expectations.forget,
            self._status_delay.forget,
            consistency=self.consistency,
        )
        self._registrations = (
            owners.add_handler(self._owner_queue, resync_seconds=RESYNC_SECONDS),
            pods.on_events(added=self._on_pod_add, updated=self._on_pod_update, deleted=self._on_pod_delete),
        )

    def check(self) -> None:
        """Assert that the groups that events update agree with the stores."""
        self._groups.check(self._pods.values())

    # --- event handlers --------------------------------------------------------------------------------------------

    def _on_pod_add(self, pod: Pod) -> None:
        self._groups.add(pod)
        if pod.metadata.deletion_timestamp is not None:
            # First seen while terminating, after a restart: counts as a deletion, never as an expected creation.
            self._observe_deletion(pod)
        elif (owner := self._owner_queue.add_after_creation(pod, "pod")) is not None:
            self.expectations.creation_observed(owner.key)

    def _on_pod_update(self, old: Pod, new: Pod) -> None:
        self._groups.update(old, new)
        if old.metadata.resource_version == new.metadata.resource_version:
            return  # a resync
        if new.metadata.deletion_timestamp is not None:
            # A Pod stops counting when it is marked for deletion, not when the kubelet has terminated it.
            self._observe_deletion(new)
            if new.metadata.labels != old.metadata.labels:
                self._observe_deletion(old)
            return
        owner = self._owner_queue.add_after_change(old, new, "pod")
        if owner is not None:
            min_ready_seconds = self._variant.to_replica_set(owner).spec.min_ready_seconds
            if min_ready_seconds > 0 and is_ready(new) and not is_ready(old):
                self.queue.add_after(owner.key, min_ready_seconds)

    def _on_pod_delete(self, pod: Pod) -> None:
        self._groups.remove(pod)
        self._observe_deletion(pod)

    def _observe_deletion(self, pod: Pod) -> None:
        owner = self._owner_queue.add_owner(pod, "pod deleted")
        if owner is not None:
            self.expectations.deletion_observed(owner.key, pod.key)

    # --- reconcile -------------------------------------------------------------------------------------------------

    async def reconcile(self, key: str) -> float | None:
        """Bring the Pods of `key` to spec.replicas.

        Level-based: reads the caches, never the event that enqueued the key; may be cancelled and run again. Returns
        the seconds after which time alone may change the result, else None. An exception means: retry with backoff;
        StaleCache: the caches are older than our last writes.
        """
        return await self._reconciles.run(key, self._sync)

    async def _sync(self, owner: Object, reconcile: Reconcile) -> float | None:
        key, rs = owner.key, self._variant.to_replica_set(owner)
        selector = valid_selector(self._variant.kind, key, rs.spec.selector)
        if selector is None:
            return None
        now = self._clock.now()
        caught_up = self.expectations.met(key)  # True if the caches show our last creations and deletions
        new_spec = caught_up and rs.metadata.generation != rs.status.observed_generation
        reconcile.handled_cause = new_spec
        plan = ReplicaPlan()
        active, terminating = await self._claim_pods(rs, selector, reconcile)
        failure: Exception | None = None
        if caught_up and rs.metadata.deletion_timestamp is None:
            plan = plan_replicas(
                rs,
                active,
                lambda: self.related_pods_per_node(rs),
                now,
                burst=BURST_REPLICAS,
                by_cost=self._by_cost,
            )
            reconcile.handled_cause = new_spec or plan.has_changes
            if plan.delete:
                self._record_deletion_ages(active, plan)
            if plan.has_changes:
                bodies = [pod_from_template(rs, rs.spec.template)] * plan.create
                failure = await self._pod_writes.apply(rs, bodies, plan.delete, reconcile)
        terminating_count = terminating if self._counts_terminating else None
        status = replica_set_status(rs, active, terminating_count, str(failure) if failure is not None else None, now)
        rs = await self._write_pending_turn(rs, status, reconcile)
        # Pods are missing in the counts: created or deleted above, or by an earlier reconcile. Their events follow.
        incomplete = plan.has_changes or not caught_up
        if not (
            incomplete
            and failure is None
            and only_counts_changed(rs.status, status)
            and not turns(rs.status, status, replicas_of(rs))
            and self._status_delay.postpone(key, (rs.metadata.uid, status))
        ):
            await self._write_status(rs, status, reconcile)
            self._status_delay.forget(key)
        if failure is not None:
            raise failure
        if rs.spec.min_ready_seconds > 0 and status.ready_replicas != status.available_replicas:
            # Each Pod that becomes ready enqueues the key for the time it becomes available. This covers clock skew.
            ready = itertools.chain.from_iterable(
                pods.values() for group_key, pods in active.items() if group_key.ready
            )
            seconds = next_availability_seconds(ready, rs.spec.min_ready_seconds, now)
            return float(rs.spec.min_ready_seconds) if seconds is None else seconds
        return None

    async def _claim_pods(self, rs: ReplicaSet, selector: Selector, reconcile: Reconcile) -> tuple[PodsByGroup, int]:
        """Adopt and release Pods as needed. Returns the owned active Pods, and the number of owned terminating ones.

        Raises ClaimErrors.
        """
        active: dict[PodGroupKey, Mapping[str, Pod]] = {}
        to_claim: list[Pod] = []
        terminating = 0
        for index_key in (controller_index_key(rs), orphan_index_key(rs.metadata.namespace)):
            for group_key, pods in self._groups.get(index_key).items():
                # All Pods of a group have the same labels, state and owner, so the claim of one applies to all.
                claim = decide_claim(rs, next(iter(pods.values())), selector)
                if group_key.state == "terminating":
                    terminating += len(pods) if claim is Claim.OWNED else 0
                elif group_key.state == "active" and claim is Claim.OWNED:
                    active[group_key] = pods
                elif group_key.state == "active" and claim is not Claim.IGNORE:
                    to_claim += pods.values()
        # The groups change during awaits; the reconcile works on a copy.
        snapshot = {group_key: dict(pods) for group_key, pods in active.items()}
        if not to_claim:
            return snapshot, terminating

        def record_adoption(written: Pod, claim: Claim) -> None:
            if claim is Claim.ADOPT:
                self.consistency.wrote(rs, PODS, written)

        for pod in await claim_cached(
            self._client, self._variant.resource, rs, PODS, to_claim, selector, reconcile, wrote=record_adoption
        ):
            snapshot.setdefault(pod_group_key(pod), {})[pod.key] = pod
        return snapshot, terminating

    def related_pods_per_node(self, rs: ReplicaSet) -> PodsPerNode:
        """Return the active Pods per node of all ReplicaSets that have the owner of `rs`, such as a Deployment."""
        owner = controller_of(rs.metadata)
        if owner is None:
            return {}
        siblings = (
            self._variant.to_replica_set(replica_set) for replica_set in self._owners.by_index("owner", owner.uid)
        )
        selectors = [sibling.spec.selector for sibling in siblings]
        return active_pods_per_node(related_pods(self._pods, rs.metadata.namespace, selectors))

    def _record_deletion_ages(self, active: PodsByGroup, plan: ReplicaPlan) -> None:
        pods = [pod for group in active.values() for pod in group.values()]
        if len(plan.delete) < len(pods):
            for ratio in deletion_age_ratios(pods, plan.delete, self._clock.now()):
                self._age_ratio.observe(ratio)

    # --- writes ----------------------------------------------------------------------------------------------------

    async def _write_pending_turn(self, rs: ReplicaSet, status: ReplicaSetStatus, reconcile: Reconcile) -> ReplicaSet:
        """Write the postponed status if `status` does not follow from it in one direction. Returns `rs` after that."""
        uid, pending = self._status_delay.pending(rs.key) or ("", rs.status)
        if uid != rs.metadata.uid or not turns(rs.status, pending, status.replicas):
            return rs
        return self._variant.to_replica_set(await self._write_status(rs, pending, reconcile))

    async def _write_status(self, rs: ReplicaSet, status: ReplicaSetStatus, reconcile: Reconcile) -> Any:
        """Write the status if it changed; see `write_status`. Returns the object after that."""
        resource = self._variant.resource
        written = rs
        if status != rs.status:
            written = await write_status(
                self._client,
                resource,
                rs,
                lambda based_on: changed_fields(based_on.status, status, always={"replicas": 0}),
                reconcile,
            )
        self.consistency.wrote(rs, resource, written)
        return written


def new_replication_controller(context: ControllerContext) -> ReplicaSetController:
    """Return the controller of ReplicationControllers."""
    return ReplicaSetController(context, REPLICATION_CONTROLLER)
