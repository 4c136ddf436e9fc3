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
from collections.abc import Callable, Iterable
from datetime import datetime
from typing import Any

from kubeloop.controllers.nodelifecycle.node_health import NodeHealth, unknown_conditions
from kubeloop.controllers.nodelifecycle.node_taints import (
    eviction_taint_key,
    has_eviction_taint,
    has_taint,
    missing_labels,
    with_condition_taints,
    with_eviction_taint,
    without_eviction_taints,
)
from kubeloop.controllers.nodelifecycle.not_ready_pods import NotReadyPods
from kubeloop.controllers.nodelifecycle.zones import EvictionRates, TaintQueue, ZoneState, count_ready, plan_disruption
from kubeloop.controllers.runtime.controller import Controller
from kubeloop.controllers.runtime.controller_context import ControllerContext
from kubeloop.kube.client.api_client import PatchType
from kubeloop.kube.clock import pause
from kubeloop.kube.errors import ApiError, Conflict, NotFound, ServerUnreachable
from kubeloop.kube.objects.api_types import Condition, JSONValue, Lease, Node, ObjectReference, Taint, to_json
from kubeloop.kube.objects.object_fields import condition_of, zone_key
from kubeloop.kube.objects.resources import LEASES, NODES
from kubeloop.kube.objects.taints_and_tolerations import NO_EXECUTE

log = logging.getLogger(__name__)

_NODE_WORKERS = 8
_TRIES = 5  # of a write that conflicts
_BATCH = 200  # healthy nodes per turn of the event loop: about 1 ms
_EXCLUDED = "node.kubernetes.io/exclude-disruption"
_LEASE_NAMESPACE = "kube-node-lease"

_Plan = Callable[[Node], JSONValue]
"""Returns the patch of a version of a Node; None if there is nothing to write."""


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
        self._rates = EvictionRates(
            options["node_eviction_rate"],
            options["secondary_node_eviction_rate"],
            options["large_cluster_size_threshold"],
            options["unhealthy_zone_threshold"],
        )
        self._metrics = _Metrics(context)
        nodes, leases = context.informers.informer(NODES), context.informers.informer(LEASES)
        self._nodes, self._leases = nodes.store, leases.store
        self._known: dict[str, str] = {}  # name of each Node of the last check -> its UID
        self._health: dict[str, NodeHealth] = {}
        self._unchecked: set[str] = set()  # Nodes that have changed since their last check, or were not healthy
        self._lost_at: dict[str, float] = {}  # loop time from which each healthy Node counts as lost
        self._ready_by_zone: dict[str, dict[str, Condition | None]] = {}  # conditions Ready by name
        self._zone_of: dict[str, str] = {}  # of the Nodes in there
        self._zone_states: dict[str, ZoneState] = {}
        self._taint_queues: dict[str, TaintQueue] = {}  # by zone
        self._taint_queued = asyncio.Event()
        node_queue = context.new_queue("node_lifecycle_controller")
        self._pods = NotReadyPods(context, self._is_known_not_ready)
        self._node_controller = Controller("node-lifecycle", self.reconcile, node_queue, _NODE_WORKERS, context)
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
            tasks.create_task(self._taint_queued_nodes(), name="node-lifecycle/taints")
            tasks.create_task(self._monitor(), name="node-lifecycle/monitor")

    # --- taints and labels by condition ----------------------------------------------------------------------------

    async def reconcile(self, name: str) -> None:
        """Write the NoSchedule taints and the labels of a Node. An exception means: retry with backoff."""
        node = self._nodes.get(name)
        if node is None:
            return
        node = await self._patch(node, self._condition_taints_patch)
        await self._patch(node, _labels_patch)

    def _condition_taints_patch(self, node: Node) -> JSONValue:
        taints = with_condition_taints(node, self._now())
        return None if taints is None else _taints_patch(node, taints)

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
        """Check the heartbeats of the nodes that have changed, are not healthy or may be lost, and the states of zones.

        Failures are logged.
        """
        started_at, now = self._seconds(), asyncio.get_running_loop().time()
        names = self._unchecked.union(name for name, lost_at in self._lost_at.items() if lost_at < now)
        self._unchecked = set()
        nodes = [node for name in sorted(names) if (node := self._nodes.get(name)) is not None]
        await self._register(nodes)
        self._forget_deleted(names)
        unhealthy = []
        for number, node in enumerate(nodes, 1):
            node_started_at = self._seconds()
            self._stop_counting(node.metadata.name)
            try:
                health = self._observe(node)
                is_healthy = self._is_healthy(node, health)
            except Exception:  # as in _guarded()
                log.exception("could not check node %s", node.metadata.name)
                self._unchecked.add(node.metadata.name)
                continue
            if is_healthy:
                self._count(node)
                if not health.is_alive:
                    self._lost_at[node.metadata.name] = self._grace_ends_at(health)
                self._metrics.node_seconds.observe(self._seconds() - node_started_at)
            else:
                unhealthy.append(node)
            if number % _BATCH == 0:
                await asyncio.sleep(0)
        self._unchecked.update(node.metadata.name for node in unhealthy)
        remaining = iter(unhealthy)
        async with asyncio.TaskGroup() as tasks:
            for _ in range(min(_NODE_WORKERS, len(unhealthy))):
                tasks.create_task(self._check_unhealthy(remaining))
        if names:
            await self._handle_disruption()
        self._metrics.all_nodes_seconds.observe(self._seconds() - started_at)

    async def _register(self, nodes: list[Node]) -> None:
        """Record new nodes. The eviction of a new node starts anew."""
        for node in nodes:
            name, uid = node.metadata.name, node.metadata.uid
            if name not in self._known:
                self._node_event(name, uid, "RegisteredNode", f"event: Registered Node {name} in Controller")
                await self._guarded(node, self._mark_reachable(node))
                self._known[name] = uid

    def _forget_deleted(self, names: set[str]) -> None:
        for name in sorted(names - self._nodes.keys()):
            self._stop_counting(name)
            self._health.pop(name, None)
            if (uid := self._known.pop(name, None)) is not None:
                self._node_event(name, uid, "RemovingNode", f"event: Removing Node {name} from Controller")

    def _count(self, node: Node) -> None:
        """Count the node's condition Ready in its zone, unless a label excludes it."""
        name, labels = node.metadata.name, node.metadata.labels
        if _EXCLUDED not in labels:
            zone = self._zone_of[name] = zone_key(labels)
            self._ready_by_zone.setdefault(zone, {})[name] = condition_of(node.status.conditions, "Ready")

    def _stop_counting(self, name: str) -> None:
        """Remove what the last check of the node has recorded."""
        self._lost_at.pop(name, None)
        if (zone := self._zone_of.pop(name, None)) is not None:
            del self._ready_by_zone[zone][name]
            if not self._ready_by_zone[zone]:
                del self._ready_by_zone[zone]

    def _is_healthy(self, node: Node, health: NodeHealth) -> bool:
        """Return True if the node is ready, and there is nothing to write."""
        return (
            health.ready is not None
            and health.ready.status == "True"
            and not self._is_lost(health)
            and not has_eviction_taint(node)
            and node.metadata.name not in self._pods.failed
            and not self._queue_of(node).contains(node.metadata.name)
        )

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

    async def _check_unhealthy(self, nodes: Iterable[Node]) -> None:
        for node in nodes:
            started_at = self._seconds()
            await self._guarded(node, self._check_node(node))
            self._metrics.node_seconds.observe(self._seconds() - started_at)

    async def _check_node(self, node: Node) -> None:
        was_ready = _is_ready(node)
        node = await self._patch(node, self._unknown_conditions_patch, subresource="status")
        health = self._observe_own_write(node)
        self._count(node)
        if health.ready is None:
            return
        name, is_ready = node.metadata.name, health.ready.status == "True"
        await self._plan_eviction(node, health.ready.status)
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

    # --- evictions -------------------------------------------------------------------------------------------------

    async def _plan_eviction(self, node: Node, ready: str) -> None:
        """Queue a node for the NoExecute taint of its condition Ready, replace the taint, or remove it."""
        key = eviction_taint_key(ready)
        if key is None:
            await self._mark_reachable(node)
        elif has_taint(node, key, NO_EXECUTE):
            self._queue_of(node).remove(node.metadata.name)
        elif has_eviction_taint(node):
            await self._patch(node, self._eviction_taint_patch)
        else:
            self._queue_of(node).add(node.metadata.name)  # taken once the state of the zone is known

    def _queue_of(self, node: Node) -> TaintQueue:
        zone = zone_key(node.metadata.labels)
        if zone not in self._taint_queues:
            self._taint_queues[zone] = TaintQueue(self._rates.normal)
            self._metrics.evictions.labels(zone)
        return self._taint_queues[zone]

    async def _mark_reachable(self, node: Node) -> None:
        """Remove the NoExecute taints of a node, and take it out of the queue."""
        self._queue_of(node).remove(node.metadata.name)
        await self._patch(node, _reachable_patch)

    def _eviction_taint_patch(self, node: Node) -> JSONValue:
        ready = condition_of(node.status.conditions, "Ready")
        key = None if ready is None else eviction_taint_key(ready.status)
        if key is None or has_taint(node, key, NO_EXECUTE):
            return None
        return _taints_patch(node, with_eviction_taint(node.spec.taints, key, self._now()))

    async def _taint_queued_nodes(self) -> None:
        """Taint the queued nodes of all zones at the rates of their zones, until cancelled."""
        loop = asyncio.get_running_loop()
        while True:
            self._taint_queued.clear()
            for zone, queue in list(self._taint_queues.items()):
                while (name := queue.pop(loop.time())) is not None:
                    await self._taint(name, zone, queue)
            seconds = [queue.seconds_until_next(loop.time()) for queue in self._taint_queues.values()]
            try:
                async with asyncio.timeout(min((it for it in seconds if it is not None), default=None)):
                    await self._taint_queued.wait()
            except TimeoutError:
                continue

    async def _taint(self, name: str, zone: str, queue: TaintQueue) -> None:
        node = self._nodes.get(name)
        if node is None:
            return
        try:
            tainted = await self._patch(node, self._eviction_taint_patch)
        except NotFound:
            return
        except (ApiError, ServerUnreachable) as error:
            log.warning("could not taint node %s: %s", name, error)
            queue.add(name)
            return
        if tainted is not node:
            self._metrics.evictions.labels(zone).inc()

    async def _handle_disruption(self) -> None:
        """Set the rate of each zone by its state."""
        ready_by_zone = {zone: [*conditions.values()] for zone, conditions in self._ready_by_zone.items()}
        for zone in self._zone_states.keys() - ready_by_zone.keys():
            self._metrics.set_zone(zone, 0, 0)
        for zone, conditions in ready_by_zone.items():
            self._metrics.set_zone(zone, len(conditions), count_ready(conditions))
        plan = plan_disruption(self._zone_states, ready_by_zone, self._rates)
        self._zone_states = dict(plan.states)
        now = asyncio.get_running_loop().time()
        if plan.enters_full:
            log.warning("no node of any zone is ready: evictions stop")
            for node in self._nodes.list():
                await self._guarded(node, self._mark_reachable(node))
        if plan.leaves_full:  # the other nodes get a full grace period after the first heartbeat
            log.warning("a node is ready again: evictions resume")
            for health in self._health.values():
                health.probed_at = now
            self._unchecked |= self._health.keys()
        for zone, rate in plan.rates.items():
            self._taint_queues[zone].set_rate(rate, now)
        self._taint_queued.set()

    # --- requests --------------------------------------------------------------------------------------------------

    def _now(self) -> datetime:
        return self._clock.now().replace(microsecond=0)

    async def _guarded(self, node: Node, work: Any) -> None:
        """Await the work on one node. A failure is logged, and must not stop the check of the others."""
        try:
            await work
        except NotFound:
            return
        except (ApiError, ServerUnreachable) as error:
            log.warning("could not update node %s: %s", node.metadata.name, error)
        except Exception:
            log.exception("could not check node %s", node.metadata.name)

    async def _patch(self, node: Node, plan: _Plan, *, subresource: str = "") -> Node:
        """Patch a Node as planned, after a conflict its current version. Return the version that the plan holds for."""
        name, uid = node.metadata.name, node.metadata.uid
        for tries_left in reversed(range(_TRIES)):
            patch = plan(node)
            if patch is None or node.metadata.uid != uid:
                return node
            patch_type = PatchType.STRATEGIC if subresource else PatchType.MERGE
            try:
                return await self._client.patch(NODES, name, patch, patch_type, subresource=subresource)
            except Conflict:
                if not tries_left:
                    raise
                node = await self._client.get(NODES, name)
        raise AssertionError("unreachable: the last conflict is raised")

    def _node_event(self, name: str, uid: str, reason: str, message: str) -> None:
        reference = ObjectReference(api_version="v1", kind="Node", name=name, uid=uid)
        self._events.event(reference, "Normal", reason, f"Node {name} {message}")


class _Metrics:
    """node_collector_*. Source: pkg/controller/nodelifecycle/metrics.go."""

    def __init__(self, context: ControllerContext) -> None:
        metrics = context.metrics
        self._health = metrics.gauge(
            "node_collector_zone_health", "Gauge measuring percentage of healthy nodes per zone.", ("zone",)
        )
        self._size = metrics.gauge(
            "node_collector_zone_size", "Gauge measuring number of registered Nodes per zones.", ("zone",)
        )
        self._unhealthy = metrics.gauge(
            "node_collector_unhealthy_nodes_in_zone", "Gauge measuring number of not Ready Nodes per zones.", ("zone",)
        )
        self.evictions = metrics.counter(
            "node_collector_evictions_total",
            "Number of Node evictions that happened since current instance of NodeController started.",
            ("zone",),
        )
        self.node_seconds = metrics.histogram(
            "node_collector_update_node_health_duration_seconds",
            "Duration in seconds for NodeController to update the health of a single node.",
            buckets=[0.001 * 4**power for power in range(8)],
        ).labels()
        self.all_nodes_seconds = metrics.histogram(
            "node_collector_update_all_nodes_health_duration_seconds",
            "Duration in seconds for NodeController to update the health of all nodes.",
            buckets=[0.01 * 4**power for power in range(8)],
        ).labels()

    def set_zone(self, zone: str, size: int, ready: int) -> None:
        self._size.labels(zone).set(size)
        self._health.labels(zone).set(100 * ready / size if size else 100)
        self._unhealthy.labels(zone).set(size - ready)


def _is_ready(node: Node) -> bool:
    ready = condition_of(node.status.conditions, "Ready")
    return ready is not None and ready.status == "True"


def _taints_patch(node: Node, taints: Iterable[Taint]) -> JSONValue:
    values = [to_json(taint) for taint in taints]
    return {"metadata": {"resourceVersion": node.metadata.resource_version}, "spec": {"taints": values or None}}


def _reachable_patch(node: Node) -> JSONValue:
    return _taints_patch(node, without_eviction_taints(node.spec.taints)) if has_eviction_taint(node) else None


def _labels_patch(node: Node) -> JSONValue:
    labels = missing_labels(node.metadata.labels)
    return {"metadata": {"labels": labels}} if labels else None
