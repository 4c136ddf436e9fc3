"""Node lifecycle controller: nodes without heartbeats get conditions and taints, and their pods are not ready.

    Lease renewed, or status reported ----> healthy
    nothing for the grace period ---------> Ready=Unknown, its pods Ready=False, taint unreachable:NoSchedule
    in the same check --------------------> in its zone's queue --rate--> taint unreachable:NoExecute
    Ready=False (reported by kubelet) ----> likewise with the taint not-ready
    Ready=True ---------------------------> both taints removed, out of the queue

Evictions themselves are the work of the taint eviction controller. Source: v1.36
pkg/controller/nodelifecycle/node_lifecycle_controller.go.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Iterable
from datetime import datetime

from kubeloop.controllers.nodelifecycle.evictions import Evictions
from kubeloop.controllers.nodelifecycle.node_health import NodeHealth, unknown_conditions
from kubeloop.controllers.nodelifecycle.node_taints import (
    eviction_taint_key,
    has_eviction_taint,
    has_taint,
    missing_labels,
    with_condition_taints,
)
from kubeloop.controllers.nodelifecycle.node_writes import guarded, patch_node, taints_patch
from kubeloop.controllers.nodelifecycle.not_ready_pods import NotReadyPods
from kubeloop.controllers.runtime.controller import ReconcileLoop
from kubeloop.controllers.runtime.controller_context import ControllerContext
from kubeloop.kube.clock import pause
from kubeloop.kube.objects.api_types import JSONValue, Lease, Node, ObjectReference
from kubeloop.kube.objects.object_fields import condition_of
from kubeloop.kube.objects.resources import LEASES, NODES
from kubeloop.kube.objects.taints_and_tolerations import NO_EXECUTE

log = logging.getLogger(__name__)

_NODE_WORKERS = 8
_BATCH = 200  # settled nodes per turn of the event loop: about 1 ms
_LEASE_NAMESPACE = "kube-node-lease"


class NodeLifecycleController:
    """Checks the heartbeats of Nodes every monitor period; `run()` works until cancelled."""

    def __init__(self, context: ControllerContext) -> None:
        self._client = context.client
        self._clock = context.clock
        self._events = context.events
        self._seconds = context.seconds
        options = context.options
        self._period: float = options["node_monitor_period"]
        self._grace: float = options["node_monitor_grace_period"]
        self._startup_grace: float = options["node_startup_grace_period"]
        self._node_seconds = context.metrics.histogram(
            "node_collector_update_node_health_duration_seconds",
            "Duration in seconds for NodeController to update the health of a single node.",
            buckets=[0.001 * 4**power for power in range(8)],
        ).labels()
        self._all_nodes_seconds = context.metrics.histogram(
            "node_collector_update_all_nodes_health_duration_seconds",
            "Duration in seconds for NodeController to update the health of all nodes.",
            buckets=[0.01 * 4**power for power in range(8)],
        ).labels()
        self._evictions = Evictions(context)
        nodes, leases = context.informers.informer(NODES), context.informers.informer(LEASES)
        self._nodes, self._leases = nodes.store, leases.store
        self._known: dict[str, str] = {}  # name of each Node of the last check -> its UID
        self._health: dict[str, NodeHealth] = {}
        self._unchecked: set[str] = set()  # Nodes that have changed since their last check, or were not settled
        self._lost_at: dict[str, float] = {}  # loop time from which each settled Node counts as lost
        node_queue = context.new_queue("node_lifecycle_controller")
        self._pods = NotReadyPods(context, self._is_known_not_ready)
        self._node_controller = ReconcileLoop("node-lifecycle", self.reconcile, node_queue, _NODE_WORKERS, context)
        self._node_registration = nodes.on_latest(self._on_node, deleted=self._on_node_deleted)
        self._node_queue = node_queue
        leases.on_latest(self._on_lease, deleted=self._on_lease)
        self._lease_informer = leases

    async def run(self) -> None:
        """Check and taint nodes until cancelled."""
        await self._lease_informer.wait_synced()
        await self._pods.registration.wait_synced()
        await self._node_registration.wait_synced()
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(self._node_controller.run(), name="node-lifecycle/nodes")
            tasks.create_task(self._pods.controller.run(), name="node-lifecycle/pods")
            tasks.create_task(self._evictions.run(), name="node-lifecycle/taints")
            tasks.create_task(self._monitor(), name="node-lifecycle/monitor")

    # --- taints and labels by condition ----------------------------------------------------------------------------

    async def reconcile(self, name: str) -> None:
        """Write the NoSchedule taints and the labels of a Node. An exception means: retry with backoff."""
        node = self._nodes.get(name)
        if node is None:
            return
        node = await patch_node(self._client, node, self._condition_taints_patch)
        await patch_node(self._client, node, _labels_patch)

    def _condition_taints_patch(self, node: Node) -> JSONValue:
        taints = with_condition_taints(node, self._now())
        return None if taints is None else taints_patch(node, taints)

    # --- heartbeats ------------------------------------------------------------------------------------------------

    async def _monitor(self) -> None:
        while True:
            await self.check_nodes()
            late = await pause(self._period, due=0.0 if self._unchecked else min(self._lost_at.values(), default=None))
            if late > self._grace / 4:
                # This process was suspended. The heartbeats of that time have not been read yet.
                for health in self._health.values():
                    health.probed_at += late
                self._unchecked |= self._health.keys()

    def _on_node(self, node: Node) -> None:
        self._unchecked.add(node.metadata.name)
        self._node_queue.add(node.metadata.name)

    def _on_node_deleted(self, node: Node) -> None:
        self._unchecked.add(node.metadata.name)
        self._pods.failed.discard(node.metadata.name)

    def _on_lease(self, lease: Lease) -> None:
        if lease.metadata.namespace == _LEASE_NAMESPACE:
            self._unchecked.add(lease.metadata.name)

    async def check_nodes(self) -> None:
        """Check the heartbeats of the nodes that have changed, are not settled or may be lost, and the states of zones.

        Failures are logged.
        """
        started_at, now = self._seconds(), asyncio.get_running_loop().time()
        names = self._unchecked.union(name for name, lost_at in self._lost_at.items() if lost_at < now)
        self._unchecked = set()
        nodes = [node for name in sorted(names) if (node := self._nodes.get(name)) is not None]
        await self._register(nodes)
        self._forget_deleted(names)
        unsettled = []
        for number, node in enumerate(nodes, 1):
            node_started_at = self._seconds()
            self._forget_check(node.metadata.name)
            try:
                health = self._observe(node)
                is_settled = self._is_settled(node, health)
            except Exception:  # as in guarded()
                log.exception("could not check node %s", node.metadata.name)
                self._unchecked.add(node.metadata.name)
                continue
            if is_settled:
                self._evictions.count(node)
                if not health.is_alive and not health.is_unknown:
                    self._lost_at[node.metadata.name] = self._grace_ends_at(health)
                self._node_seconds.observe(self._seconds() - node_started_at)
            else:
                unsettled.append(node)
            if number % _BATCH == 0:
                await asyncio.sleep(0)
        self._unchecked.update(node.metadata.name for node in unsettled)
        remaining = iter(unsettled)
        async with asyncio.TaskGroup() as tasks:
            for _ in range(min(_NODE_WORKERS, len(unsettled))):
                tasks.create_task(self._check_unsettled(remaining))
        if names and await self._evictions.update_zones():
            # The other nodes get a full grace period after the first heartbeat.
            for health in self._health.values():
                health.probed_at = asyncio.get_running_loop().time()
            self._unchecked |= self._health.keys()
        self._all_nodes_seconds.observe(self._seconds() - started_at)

    async def _register(self, nodes: list[Node]) -> None:
        """Record new nodes. The eviction of a new node starts anew."""
        for node in nodes:
            name, uid = node.metadata.name, node.metadata.uid
            if name not in self._known:
                self._node_event(name, uid, "RegisteredNode", f"event: Registered Node {name} in Controller")
                await guarded(node, self._evictions.mark_reachable(node))
                self._known[name] = uid

    def _forget_deleted(self, names: set[str]) -> None:
        for name in sorted(names - self._nodes.keys()):
            self._forget_check(name)
            self._health.pop(name, None)
            if (uid := self._known.pop(name, None)) is not None:
                self._node_event(name, uid, "RemovingNode", f"event: Removing Node {name} from Controller")

    def _forget_check(self, name: str) -> None:
        self._lost_at.pop(name, None)
        self._evictions.stop_counting(name)

    def _is_settled(self, node: Node, health: NodeHealth) -> bool:
        """Return True if there is nothing to write until the node, its Lease or the state of a zone changes."""
        if health.ready is None or node.metadata.name in self._pods.failed or self._evictions.is_queued(node):
            return False
        if self._is_lost(health) and not health.is_unknown:
            return False
        key = eviction_taint_key(health.ready.status)
        return not has_eviction_taint(node) if key is None else has_taint(node, key, NO_EXECUTE)

    def _is_known_not_ready(self, name: str) -> bool:
        health = self._health.get(name)
        return health is not None and health.ready is not None and health.ready.status != "True"

    def _observe(self, node: Node) -> NodeHealth:
        name, now = node.metadata.name, asyncio.get_running_loop().time()
        health = self._health.get(name)
        if health is None or health.uid != node.metadata.uid:
            health = self._health[name] = NodeHealth(node, now, self._clock.now())
        health.observe(node, self._leases.get(f"{_LEASE_NAMESPACE}/{name}"), now, self._clock.now())
        return health

    def _is_lost(self, health: NodeHealth) -> bool:
        return asyncio.get_running_loop().time() > self._grace_ends_at(health)

    def _grace_ends_at(self, health: NodeHealth) -> float:
        return health.lost_at(grace=self._grace, startup_grace=self._startup_grace)

    async def _check_unsettled(self, nodes: Iterable[Node]) -> None:
        for node in nodes:
            started_at = self._seconds()
            await guarded(node, self._check_node(node))
            self._node_seconds.observe(self._seconds() - started_at)

    async def _check_node(self, node: Node) -> None:
        was_ready = _is_ready(node)
        node = await patch_node(self._client, node, self._unknown_conditions_patch, subresource="status")
        health = self._observe_own_write(node)
        self._evictions.count(node)
        if health.ready is None:
            return
        name, is_ready = node.metadata.name, health.ready.status == "True"
        await self._evictions.plan(node, health.ready.status)
        if is_ready:
            self._pods.failed.discard(name)
            return
        if was_ready:
            self._node_event(name, node.metadata.uid, "NodeNotReady", "status is now: NodeNotReady")
        if was_ready or name in self._pods.failed:
            await self._pods.mark_pods_of(name)

    def _unknown_conditions_patch(self, node: Node) -> JSONValue:
        """Return the patch of a node whose grace period is over. Another version may have a new heartbeat."""
        if not self._is_lost(self._observe(node)):
            return None
        conditions = unknown_conditions(node, self._clock.now())
        if not conditions:
            return None
        return {
            "metadata": {"resourceVersion": node.metadata.resource_version},
            "status": {"conditions": conditions},
        }

    def _observe_own_write(self, node: Node) -> NodeHealth:
        """Return the health with the condition Ready of this version, which is no heartbeat."""
        health = self._health[node.metadata.name]
        health.ready = condition_of(node.status.conditions, "Ready")
        return health

    # --- requests --------------------------------------------------------------------------------------------------

    def _now(self) -> datetime:
        return self._clock.now().replace(microsecond=0)

    def _node_event(self, name: str, uid: str, reason: str, message: str) -> None:
        reference = ObjectReference(api_version="v1", kind="Node", name=name, uid=uid)
        self._events.event(reference, "Normal", reason, f"Node {name} {message}")


def _is_ready(node: Node) -> bool:
    ready = condition_of(node.status.conditions, "Ready")
    return ready is not None and ready.status == "True"


def _labels_patch(node: Node) -> JSONValue:
    labels = missing_labels(node.metadata.labels)
    return {"metadata": {"labels": labels}} if labels else None
