"""NoExecute taints of nodes that are not ready, at the rates of their zones."""

from __future__ import annotations

import asyncio
import logging

from kubeloop.controllers.nodelifecycle.node_taints import (
    eviction_taint_key,
    has_eviction_taint,
    has_taint,
    with_eviction_taint,
    without_eviction_taints,
)
from kubeloop.controllers.nodelifecycle.node_writes import guarded, patch_node, taints_patch
from kubeloop.controllers.nodelifecycle.zones import EvictionRates, TaintQueue, ZoneState, count_ready, plan_disruption
from kubeloop.controllers.runtime.controller_context import ControllerContext
from kubeloop.kube.errors import ApiError, NotFound, ServerUnreachable
from kubeloop.kube.objects.api_types import Condition, JSONValue, Node
from kubeloop.kube.objects.object_fields import condition_of, zone_key
from kubeloop.kube.objects.resources import NODES
from kubeloop.kube.objects.taints_and_tolerations import NO_EXECUTE

log = logging.getLogger(__name__)

_EXCLUDED = "node.kubernetes.io/exclude-disruption"


class Evictions:
    """Queues of nodes that get a NoExecute taint, by zone, and the states of the zones.

    Metrics: node_collector_zone_*, _unhealthy_nodes_in_zone and _evictions_total, as in
    pkg/controller/nodelifecycle/metrics.go.
    """

    def __init__(self, context: ControllerContext) -> None:
        self._client = context.client
        self._clock = context.clock
        options = context.options
        self._rates = EvictionRates(
            options["node_eviction_rate"],
            options["secondary_node_eviction_rate"],
            options["large_cluster_size_threshold"],
            options["unhealthy_zone_threshold"],
        )
        self._nodes = context.informers.informer(NODES).store
        self._ready_by_zone: dict[str, dict[str, Condition | None]] = {}  # conditions Ready by name
        self._zone_of: dict[str, str] = {}  # of the Nodes in there
        self._zone_states: dict[str, ZoneState] = {}
        self._queues: dict[str, TaintQueue] = {}  # by zone
        self._queued = asyncio.Event()
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
        self._evictions = metrics.counter(
            "node_collector_evictions_total",
            "Number of Node evictions that happened since current instance of NodeController started.",
            ("zone",),
        )

    def count(self, node: Node) -> None:
        """Count the node's condition Ready in its zone, unless a label excludes it."""
        name, labels = node.metadata.name, node.metadata.labels
        if _EXCLUDED not in labels:
            zone = self._zone_of[name] = zone_key(labels)
            self._ready_by_zone.setdefault(zone, {})[name] = condition_of(node.status.conditions, "Ready")

    def stop_counting(self, name: str) -> None:
        """Remove what count() has recorded of the node."""
        if (zone := self._zone_of.pop(name, None)) is not None:
            del self._ready_by_zone[zone][name]
            if not self._ready_by_zone[zone]:
                del self._ready_by_zone[zone]

    def is_queued(self, node: Node) -> bool:
        return self._queue_of(node).contains(node.metadata.name)

    async def plan(self, node: Node, ready: str) -> None:
        """Queue a node for the NoExecute taint of its condition Ready, replace the taint, or remove it."""
        key = eviction_taint_key(ready)
        if key is None:
            await self.mark_reachable(node)
        elif has_taint(node, key, NO_EXECUTE):
            self._queue_of(node).remove(node.metadata.name)
        elif has_eviction_taint(node):
            await patch_node(self._client, node, self._taint_patch)
        else:
            self._queue_of(node).add(node.metadata.name)  # taken once the state of the zone is known

    def _queue_of(self, node: Node) -> TaintQueue:
        zone = zone_key(node.metadata.labels)
        if zone not in self._queues:
            self._queues[zone] = TaintQueue(self._rates.normal)
            self._evictions.labels(zone)
        return self._queues[zone]

    async def mark_reachable(self, node: Node) -> None:
        """Remove the NoExecute taints of a node, and take it out of the queue."""
        self._queue_of(node).remove(node.metadata.name)
        await patch_node(self._client, node, _reachable_patch)

    def _taint_patch(self, node: Node) -> JSONValue:
        ready = condition_of(node.status.conditions, "Ready")
        key = None if ready is None else eviction_taint_key(ready.status)
        if key is None or has_taint(node, key, NO_EXECUTE):
            return None
        return taints_patch(node, with_eviction_taint(node.spec.taints, key, self._clock.now().replace(microsecond=0)))

    async def run(self) -> None:
        """Taint the queued nodes of all zones at the rates of their zones, until cancelled."""
        loop = asyncio.get_running_loop()
        while True:
            self._queued.clear()
            for zone, queue in list(self._queues.items()):
                while (name := queue.pop(loop.time())) is not None:
                    await self._taint(name, zone, queue)
            seconds = [queue.seconds_until_next(loop.time()) for queue in self._queues.values()]
            try:
                async with asyncio.timeout(min((it for it in seconds if it is not None), default=None)):
                    await self._queued.wait()
            except TimeoutError:
                continue

    async def _taint(self, name: str, zone: str, queue: TaintQueue) -> None:
        node = self._nodes.get(name)
        if node is None:
            return
        try:
            tainted = await patch_node(self._client, node, self._taint_patch)
        except NotFound:
            return
        except (ApiError, ServerUnreachable) as error:
            log.warning("could not taint node %s: %s", name, error)
            queue.add(name)
            return
        if tainted is not node:
            self._evictions.labels(zone).inc()

    async def update_zones(self) -> bool:
        """Set the rate of each zone by its state. Return True if evictions resume: a node is ready again."""
        ready_by_zone = {zone: [*conditions.values()] for zone, conditions in self._ready_by_zone.items()}
        for zone in self._zone_states.keys() - ready_by_zone.keys():
            self._set_zone(zone, 0, 0)
        for zone, conditions in ready_by_zone.items():
            self._set_zone(zone, len(conditions), count_ready(conditions))
        plan = plan_disruption(self._zone_states, ready_by_zone, self._rates)
        self._zone_states = dict(plan.states)
        if plan.enters_full:
            log.warning("no node of any zone is ready: evictions stop")
            for node in self._nodes.list():
                await guarded(node, self.mark_reachable(node))
        if plan.leaves_full:
            log.warning("a node is ready again: evictions resume")
        for zone, rate in plan.rates.items():
            self._queues[zone].set_rate(rate, asyncio.get_running_loop().time())
        self._queued.set()
        return plan.leaves_full

    def _set_zone(self, zone: str, size: int, ready: int) -> None:
        self._size.labels(zone).set(size)
        self._health.labels(zone).set(100 * ready / size if size else 100)
        self._unhealthy.labels(zone).set(size - ready)


def _reachable_patch(node: Node) -> JSONValue:
    return taints_patch(node, without_eviction_taints(node.spec.taints)) if has_eviction_taint(node) else None
