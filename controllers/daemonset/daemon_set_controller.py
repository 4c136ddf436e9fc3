"""DaemonSet controller: the events that enqueue a DaemonSet, and its reconcile.

Reads the informers' stores, decides with `pod_plan`, `rolling_update` and `daemon_set_status`, and sends the writes.
Source: v1.36 pkg/controller/daemon/daemon_controller.go.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator, Sequence
from datetime import datetime
from typing import NamedTuple

from msgspec.structs import replace

from kubeloop.controllers.daemonset.daemon_pods import (
    REVISION_LABEL,
    SYNCED_LABELS,
    Eligibility,
    PodPlacement,
    daemon_pod_body,
    for_node,
    target_node,
)
from kubeloop.controllers.daemonset.daemon_set_history import DaemonSetHistory, DaemonSetRevisions, revisions_to_delete
from kubeloop.controllers.daemonset.daemon_set_status import ALWAYS_SET, daemon_set_status
from kubeloop.controllers.daemonset.failed_pod_backoff import FailedPodBackoff
from kubeloop.controllers.daemonset.node_states import NodeState, NodeStates, NodeTracker, PodsByNode, Revision
from kubeloop.controllers.daemonset.pod_plan import plan_pods
from kubeloop.controllers.daemonset.rolling_update import allows_surge, plan_rolling_update, rolling_update_limits
from kubeloop.controllers.runtime.cached_reconcile import CachedReconcile, valid_selector
from kubeloop.controllers.runtime.controller import RESYNC_SECONDS, EventDrivenController
from kubeloop.controllers.runtime.controller_context import ControllerContext
from kubeloop.controllers.runtime.owners.adoption import Claim, claim_cached
from kubeloop.controllers.runtime.owners.owner_queue import OwnerQueue
from kubeloop.controllers.runtime.owners.owner_references import (
    CONTROLLER_INDEX,
    controller_index_key,
    index_by_controller,
    orphan_index_key,
)
from kubeloop.controllers.runtime.pods.expected_pods import ExpectedPods
from kubeloop.controllers.runtime.pods.pod_availability import affects_owner, next_availability_seconds
from kubeloop.controllers.runtime.writes.consistency import ConsistencyStore
from kubeloop.controllers.runtime.writes.object_patch import changed_fields
from kubeloop.controllers.runtime.writes.status_write import write_status
from kubeloop.kube.objects.api_types import (
    ControllerRevision,
    DaemonSet,
    DaemonSetStatus,
    JSONValue,
    Node,
    Pod,
)
from kubeloop.kube.objects.object_fields import controller_of, is_finished
from kubeloop.kube.objects.resources import CONTROLLER_REVISIONS, DAEMON_SETS, NODES, PODS
from kubeloop.kube.selectors.selectors import Selector
from kubeloop.tracing.recording.reconcile_recorder import Reconcile

log = logging.getLogger(__name__)

NAME = "daemonset"
BURST_REPLICAS = 250


class _Sync(NamedTuple):
    """One reconcile. adopted: pods by node that the caches do not yet show as owned.

    now: the time of all its decisions. A pod that becomes available after it has no part in any of them, so the time
    until then is always returned.
    """

    daemon_set: DaemonSet
    selector: Selector
    revision: Revision
    tracker: NodeTracker
    adopted: dict[str, list[Pod]]
    reconcile: Reconcile
    now: datetime


class DaemonSetController(EventDrivenController):
    """Reconciles DaemonSets: creates, replaces and deletes the pod of each node."""

    def __init__(self, context: ControllerContext) -> None:
        super().__init__(context, NAME, creates_pods=True)
        self._history = DaemonSetHistory(context)
        self._comparison_operators = context.feature_gates.enabled("TaintTolerationComparisonOperators")
        informers = context.informers
        daemon_sets, pods, nodes = (informers.informer(resource) for resource in (DAEMON_SETS, PODS, NODES))
        revisions = informers.informer(CONTROLLER_REVISIONS)
        self._daemon_sets, self._pods, self._nodes = daemon_sets.store, pods.store, nodes.store
        self._pods.add_index(CONTROLLER_INDEX, index_by_controller)
        self._pods_by_node = PodsByNode()
        self._trackers: dict[str, NodeTracker] = {}  # by controller_index_key
        self._backoff = FailedPodBackoff()
        self.consistency = ConsistencyStore.of(
            daemon_sets, pods, enabled=context.feature_gates.enabled("StaleControllerConsistencyDaemonSet")
        )
        self._pod_writes = ExpectedPods(context, self.consistency)
        self.expectations = self._pod_writes.expectations
        self._owners = OwnerQueue[DaemonSet](
            self._daemon_sets,
            DAEMON_SETS.kind,
            self.queue,
            lambda daemon_set: daemon_set.spec.selector,
            self._forget,
        )
        self._reconciles = CachedReconcile[DaemonSet](
            NAME,
            self._daemon_sets,
            self.queue,
            context.traces,
            self.expectations.forget,
            consistency=self.consistency,
        )
        self._registrations = (
            daemon_sets.add_handler(self._owners, resync_seconds=RESYNC_SECONDS),
            revisions.on_events(
                added=self._on_revision_add,
                updated=lambda old, new: self._owners.add_after_change(old, new, "revision"),
                deleted=lambda revision: self._owners.add_owner(revision, "revision deleted"),
            ),
            pods.on_events(added=self._on_pod_add, updated=self._on_pod_update, deleted=self._on_pod_delete),
            nodes.on_events(
                added=lambda node: self._node_changed(node, "node added"),
                updated=self._on_node_update,
                deleted=self._on_node_delete,
            ),
        )

    def check(self) -> None:
        """Assert that the pods by node agree with the store."""
        self._pods_by_node.check(self._pods.values())

    # --- event handlers: DaemonSets and revisions -------------------------------------------------------------------

    def _forget(self, daemon_set: DaemonSet) -> None:
        key, uid = daemon_set.key, daemon_set.metadata.uid
        self._trackers.pop(controller_index_key(daemon_set), None)
        self._backoff.forget(uid)
        self.expectations.forget(key)
        self.consistency.forget(key, uid)

    def _on_revision_add(self, revision: ControllerRevision) -> None:
        if controller_of(revision.metadata) is None and revision.metadata.deletion_timestamp is None:
            self._owners.add_possible_owners(revision, "orphaned revision added")

    # --- event handlers: pods ---------------------------------------------------------------------------------------

    def _on_pod_add(self, pod: Pod) -> None:
        self._track(self._pods_by_node.add(pod))
        if pod.metadata.deletion_timestamp is not None:
            # First seen while terminating, after a restart: counts as a deletion, never as an expected creation.
            self._observe_deletion(pod)
        elif (owner := self._owners.add_after_creation(pod, "pod")) is not None:
            self.expectations.creation_observed(owner.key)

    def _on_pod_update(self, old: Pod, new: Pod) -> None:
        old_place, place = self._pods_by_node.remove(old), self._pods_by_node.add(new)
        self._track(old_place)
        if place != old_place:
            self._track(place)
        if old.metadata.resource_version == new.metadata.resource_version:
            return  # a resync
        if new.metadata.deletion_timestamp is not None:
            # A pod stops counting when it is marked for deletion, not when the kubelet has terminated it.
            self._observe_deletion(new)
            return
        self._owners.add_after_change(
            old,
            new,
            "pod",
            lambda owner: place != old_place or affects_owner(old, new, owner.spec.selector, SYNCED_LABELS),
        )

    def _on_pod_delete(self, pod: Pod) -> None:
        self._track(self._pods_by_node.remove(pod))
        self._observe_deletion(pod)

    def _track(self, place: tuple[str, str] | None) -> None:
        if place is not None:
            owner, node = place
            tracker = self._trackers.get(owner)
            if tracker is not None:
                tracker.pods_changed(node)

    def _observe_deletion(self, pod: Pod) -> None:
        owner = self._owners.add_owner(pod, "pod deleted")
        if owner is not None:
            self.expectations.deletion_observed(owner.key, pod.key)

    # --- event handlers: nodes --------------------------------------------------------------------------------------

    def _on_node_update(self, old: Node, new: Node) -> None:
        if old.metadata.labels != new.metadata.labels or old.spec.taints != new.spec.taints:
            self._node_changed(new, "node changed")

    def _on_node_delete(self, node: Node) -> None:
        name = node.metadata.name
        for daemon_set, tracker in self._tracked_daemon_sets():
            pods = self._pods_by_node.nodes(controller_index_key(daemon_set)).get(name)
            should_run = tracker.eligibility(node).should_run
            tracker.node_changed(name)
            if should_run or pods:
                self.queue.add(daemon_set.key, "node deleted")

    def _node_changed(self, node: Node, reason: str) -> None:
        """Enqueue the DaemonSets with a pod too many or too few on the node, or with pods on wrong nodes."""
        name = node.metadata.name
        for daemon_set, tracker in self._tracked_daemon_sets():
            tracker.node_changed(name)
            eligibility = tracker.eligibility(node)
            if self._pods_by_node.nodes(controller_index_key(daemon_set)).get(name):
                changed = not eligibility.should_continue or daemon_set.status.number_misscheduled > 0
            else:
                changed = eligibility.should_run
            if changed:
                self.queue.add(daemon_set.key, reason)

    def _tracked_daemon_sets(self) -> Iterator[tuple[DaemonSet, NodeTracker]]:
        """Yield the DaemonSets that were synced before. The first sync considers all nodes."""
        for daemon_set in self._daemon_sets.values():
            tracker = self._trackers.get(controller_index_key(daemon_set))
            if tracker is not None:
                yield daemon_set, tracker

    # --- reconcile --------------------------------------------------------------------------------------------------

    async def reconcile(self, key: str) -> float | None:
        """Bring the pods of DaemonSet `key` to one per node, or to the next step of an update.

        Level-based: reads the caches, never the event that enqueued the key; may be cancelled and run again. Returns
        the seconds after which time alone may change the result, else None. An exception means: retry with backoff;
        StaleCache: the caches are older than our last writes.
        """
        return await self._reconciles.run(key, self._sync)

    async def _sync(self, daemon_set: DaemonSet, reconcile: Reconcile) -> float | None:
        selector = valid_selector(DAEMON_SETS.kind, daemon_set.key, daemon_set.spec.selector)
        if selector is None:
            return None
        if selector.empty:
            message = "This daemon set is selecting all pods. A non-empty selector is required."
            self._events.event(daemon_set, "Warning", "SelectingAll", message)
            return None
        if daemon_set.metadata.deletion_timestamp is not None:
            return None  # its revisions may be deleted already, and then its status cannot be computed
        owner = controller_index_key(daemon_set)
        revisions = await self._history.sync(daemon_set, selector, lambda: self._owned_pods(owner), reconcile)
        cached = self._daemon_sets.get(daemon_set.key)
        if cached is None or cached.metadata.uid != daemon_set.metadata.uid:
            return None  # deleted meanwhile: nothing would forget its tracker
        (current,) = revisions.current
        revision = Revision.of(daemon_set, current.metadata.labels[REVISION_LABEL])
        tracker = self._trackers.setdefault(owner, NodeTracker())
        tracker.update(
            (daemon_set.metadata.generation, revision),
            lambda: PodPlacement(daemon_set, comparison_operators=self._comparison_operators),
            (*self._nodes.keys(), *(name for name in self._pods_by_node.nodes(owner) if name not in self._nodes)),
        )
        sync = _Sync(daemon_set, selector, revision, tracker, {}, reconcile, self._clock.now())
        try:
            await self._claim_pods(sync)
            return await self._sync_pods(sync, revisions)
        finally:
            for node in sync.adopted:  # the caches do not show an adopted pod if it is deleted soon
                tracker.pods_changed(node)

    async def _sync_pods(self, sync: _Sync, revisions: DaemonSetRevisions) -> float | None:
        daemon_set, revision = sync.daemon_set, sync.revision
        retry_seconds: float | None = None
        failure: Exception | None = None
        caught_up = self.expectations.met(daemon_set.key)  # True if the caches show our last creations and deletions
        if caught_up:
            try:
                retry_seconds = await self._update_pods(sync)
                await self._history.delete(self._surplus_revisions(sync, revisions), sync.reconcile)
            except Exception as error:
                failure = error  # the status is written first
        nodes = self._node_states(sync)
        status = daemon_set_status(daemon_set.status, nodes, revision, sync.now)
        if caught_up:
            status = replace(status, observed_generation=daemon_set.metadata.generation)
        try:
            await self._write_status(sync, status)
        except Exception as error:
            if failure is None:
                raise
            log.warning("cannot write the status after a failed sync: %s: %s", daemon_set.key, error)
        if failure is not None:
            raise failure
        # The pods of the status are not enough: of a node that surges, it counts the old one.
        pods = (pod for state in nodes.states for pod in state.pods)
        available_seconds = next_availability_seconds(pods, revision.min_ready_seconds, sync.now)
        waits = [seconds for seconds in (retry_seconds, available_seconds) if seconds is not None]
        return min(waits, default=None)

    def _owned_pods(self, owner: str) -> list[Pod]:
        return [pod for pods in self._pods_by_node.nodes(owner).values() for pod in pods.values()]

    def _surplus_revisions(self, sync: _Sync, revisions: DaemonSetRevisions) -> list[ControllerRevision]:
        limit = sync.daemon_set.spec.revision_history_limit
        if limit is not None and len(revisions.old) <= limit:
            return []
        pods = self._owned_pods(controller_index_key(sync.daemon_set))
        live_hashes = {pod.metadata.labels.get(REVISION_LABEL, "") for pod in pods}
        return revisions_to_delete(sync.daemon_set, revisions.old, live_hashes)

    def _node_states(self, sync: _Sync) -> NodeStates:
        pods_by_node = self._pods_by_node.nodes(controller_index_key(sync.daemon_set))

        def state_of(name: str) -> NodeState:
            node = self._nodes.get(name)
            eligibility = sync.tracker.eligibility(node) if node is not None else Eligibility(False, False)
            owned = pods_by_node.get(name, {})
            pods = [
                pod
                for pod in owned.values()
                if sync.selector.matches(pod.metadata.labels)
                and not (is_finished(pod) and pod.metadata.deletion_timestamp is not None)
            ]
            pods += (pod for pod in sync.adopted.get(name, ()) if pod.key not in owned)
            return NodeState(name, eligibility, tuple(pods), exists=node is not None)

        return sync.tracker.states(state_of, sync.revision, sync.now)

    async def _claim_pods(self, sync: _Sync) -> None:
        """Adopt and release pods as needed. Raises ClaimErrors."""
        daemon_set = sync.daemon_set
        pods_by_node = self._pods_by_node.nodes(controller_index_key(daemon_set))
        owned = (pod for name in sync.tracker.unsettled for pod in pods_by_node.get(name, {}).values())
        to_claim = [pod for pod in owned if not sync.selector.matches(pod.metadata.labels)]
        to_claim += self._pods.view(CONTROLLER_INDEX, orphan_index_key(daemon_set.metadata.namespace))
        if not to_claim:
            return

        def record_adoption(written: Pod, claim: Claim) -> None:
            if claim is Claim.ADOPT:
                self.consistency.wrote(daemon_set, PODS, written)

        for pod in await claim_cached(
            self._client,
            DAEMON_SETS,
            daemon_set,
            PODS,
            to_claim,
            sync.selector,
            sync.reconcile,
            wrote=record_adoption,
        ):
            node = target_node(pod)
            if node is not None:
                sync.adopted.setdefault(node, []).append(pod)
                sync.tracker.pods_changed(node)

    # --- writes -----------------------------------------------------------------------------------------------------

    async def _update_pods(self, sync: _Sync) -> float | None:
        """Create and delete pods. Returns the seconds until a failed pod may be deleted, else None."""
        daemon_set, revision = sync.daemon_set, sync.revision
        uid, generation = daemon_set.metadata.uid, daemon_set.status.observed_generation
        plan = plan_pods(
            self._node_states(sync).states,
            revision,
            sync.now,
            surges=allows_surge(daemon_set),
            backoff_seconds=lambda node: self._backoff.seconds(uid, generation, node, sync.now),
        )
        for pod in plan.finished:
            self._report_finished(sync, pod)
        await self._apply(sync, plan.create, plan.delete)
        if daemon_set.spec.update_strategy.type == "RollingUpdate" and self.expectations.met(daemon_set.key):
            nodes = self._node_states(sync)
            limits = rolling_update_limits(daemon_set, nodes.desired)
            update = plan_rolling_update(nodes, revision, limits, sync.now)
            await self._apply(sync, update.create, update.delete)
        return plan.retry_seconds

    def _report_finished(self, sync: _Sync, pod: Pod) -> None:
        daemon_set, node = sync.daemon_set, target_node(pod) or ""
        if pod.status.phase == "Failed":
            uid, generation = daemon_set.metadata.uid, daemon_set.status.observed_generation
            self._backoff.deleted(uid, generation, node, sync.now)
            message = f"Found failed daemon pod {pod.key} on node {node}, will try to kill it"
            self._events.event(daemon_set, "Warning", "FailedDaemonPod", message)
        else:
            message = f"Found succeeded daemon pod {pod.key} on node {node}, will try to delete it"
            self._events.event(daemon_set, "Normal", "SucceededDaemonPod", message)

    async def _apply(self, sync: _Sync, create: Sequence[str], delete: Sequence[Pod]) -> None:
        """Create pods for nodes, given by name, and delete pods; at most BURST_REPLICAS of each.

        Raises the first failure after all were tried.
        """
        daemon_set = sync.daemon_set
        create, delete = create[:BURST_REPLICAS], delete[:BURST_REPLICAS]
        if not create and not delete:
            return
        template = daemon_pod_body(daemon_set, sync.revision.hash)
        bodies = [for_node(template, name) for name in create]
        failure = await self._pod_writes.apply(daemon_set, bodies, delete, sync.reconcile)
        if failure is not None:
            raise failure

    async def _write_status(self, sync: _Sync, status: DaemonSetStatus) -> None:
        """Write the status if it changed; see `write_status`."""
        daemon_set = sync.daemon_set
        if status == daemon_set.status:
            return

        def changes(based_on: DaemonSet) -> JSONValue:
            collisions = based_on.status.collision_count
            return changed_fields(based_on.status, replace(status, collision_count=collisions), always=ALWAYS_SET)

        written = await write_status(self._client, DAEMON_SETS, daemon_set, changes, sync.reconcile)
        self.consistency.wrote(daemon_set, DAEMON_SETS, written)
