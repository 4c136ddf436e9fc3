"""Node lifecycle controller: nodes without heartbeats get conditions and taints, and their pods are evicted.

    Lease renewed, or status reported ----> healthy
    nothing for the grace period ---------> Ready=Unknown, its pods Ready=False, taint unreachable:NoSchedule
    still so at the next check -----------> in its zone's queue --rate--> taint unreachable:NoExecute
    Ready=False (reported by kubelet) ----> likewise with the taint not-ready
    Ready=True ---------------------------> both taints removed, out of the queue

A zone's rate depends on its share of unhealthy nodes; if no node of any zone is healthy, the control plane is assumed
to be at fault and no pod is evicted. Source: kube-controller-manager, node lifecycle controller, and its v1.36
defaults.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Literal

from kubeloop.devcluster.api.conditions import condition_of, is_true
from kubeloop.devcluster.simulation import node_objects
from kubeloop.devcluster.simulation.node_objects import LEASE_NAMESPACE
from kubeloop.devcluster.simulation.simulation import Simulation
from kubeloop.kube.json_object import JSON
from kubeloop.kube.objects.object_fields import zone_key
from kubeloop.kube.objects.resources import LEASES, NODES, PODS

ZoneState = Literal["initial", "normal", "partial disruption", "full disruption"]

MONITOR_SECONDS = 5.0  # between two checks of a node: kube-controller-manager's --node-monitor-period
_EVICTIONS_PER_SECOND, _REDUCED_EVICTIONS_PER_SECOND = 0.1, 0.01  # nodes, per zone
_LARGE_ZONE = 50  # nodes; smaller ones get no evictions at all under partial disruption
_UNHEALTHY_SHARE = 0.55
_STARTUP_GRACE_SECONDS = 60.0  # of nodes that have never reported
_EXCLUDED = "node.kubernetes.io/exclude-disruption"


def zone_state(ready: int, not_ready: int) -> ZoneState:
    """Return the state of a zone by its number of nodes. Source: ComputeZoneState."""
    if ready == 0 and not_ready > 0:
        return "full disruption"
    if not_ready > 2 and not_ready / (ready + not_ready) >= _UNHEALTHY_SHARE:
        return "partial disruption"
    return "normal"


def evictions_per_second(state: ZoneState, zone_size: int) -> float:
    """Return how many nodes of a zone may get their NoExecute taint per second. Source: setLimiterInZone."""
    if state == "partial disruption":
        return _REDUCED_EVICTIONS_PER_SECOND if zone_size > _LARGE_ZONE else 0.0
    return _EVICTIONS_PER_SECOND


class _Health:
    """Heartbeats of one node. probed_at: loop time at which the last one was observed."""

    __slots__ = ("counted", "heartbeat", "probed_at", "ready", "renewed", "zone")

    def __init__(self, now: float) -> None:
        self.zone = ""
        self.ready: str | None = None  # of the condition; None: there is none
        self.counted = False  # among the nodes of its zone
        self.heartbeat = ""
        self.renewed = ""
        self.probed_at = now


class _Zone:
    """Nodes of one zone, and the queue of those that wait for their NoExecute taint."""

    def __init__(self) -> None:
        self.ready = self.not_ready = 0
        self.state: ZoneState = "initial"
        self.rate = _EVICTIONS_PER_SECOND
        self.waiting: dict[str, None] = {}
        self.next_taint_at = 0.0  # loop time from which the next node may be tainted
        self.has_timer = False


class NodeLifecycle:
    """Checks heartbeats, sets conditions and taints. `pods_on`: returns the stored pods that are bound to a node."""

    def __init__(self, simulation: Simulation, pods_on: Callable[[str], Iterable[JSON]]) -> None:
        self._simulation = simulation
        self._pods_on = pods_on
        self._health: dict[str, _Health] = {}
        self._zones: dict[str, _Zone] = {}
        self._changed = False  # a zone's health, since zones were last evaluated
        self._last_check = 0.0  # loop time of the last check of any node

    def observe(self, node: JSON) -> JSON:
        """Taint a new or changed node by its conditions; return its current version."""
        name = node["metadata"]["name"]
        changed = node_objects.with_condition_taints(node, self._simulation.wall())
        if changed is not None:
            node = self._simulation.update(NODES, changed, quiet=True)
        health = self._health.get(name)
        if health is None:
            health = self._health[name] = _Health(self._simulation.now())
        condition = condition_of(node, "Ready")
        ready = None if condition is None else condition.get("status")
        labels = node["metadata"].get("labels") or {}
        zone = zone_key(labels)
        counted = _EXCLUDED not in labels
        if (health.ready, health.zone, health.counted) != (ready, zone, counted):
            self._count(health, -1)
            health.ready, health.zone, health.counted = ready, zone, counted
            self._count(health, +1)
            self._changed = True
        if ready == "True":
            node = self._cancel_eviction(node)
        return node

    def taint_external(self, node: JSON) -> None:
        """Taint a node of a cluster without node controllers by its conditions; its heartbeats are not checked.

        Without the condition Ready a node keeps the taint not-ready of its creation: no kubelet has reported.
        """
        if condition_of(node, "Ready") is None:
            return
        changed = node_objects.with_condition_taints(node, self._simulation.wall()) or node
        if is_true(node, "Ready"):
            changed = node_objects.without_eviction_taints(changed) or changed
        if changed is not node:
            self._simulation.update(NODES, changed, quiet=True)

    def forget(self, name: str) -> None:
        """Remove the state of a deleted node."""
        health = self._health.pop(name, None)
        if health is not None:
            self._count(health, -1)
            self._zone(health).waiting.pop(name, None)
            self._changed = True

    def check(self, name: str) -> None:
        """Check a node's heartbeats; called every monitor period."""
        node = self._simulation.store.get(NODES, "", name)
        health = self._health.get(name)
        if node is None or health is None:
            return
        now = self._simulation.now()
        self._discount_suspended_time(now)
        condition = condition_of(node, "Ready")
        heartbeat = "" if condition is None else condition.get("lastHeartbeatTime") or ""
        lease = self._simulation.store.get(LEASES, LEASE_NAMESPACE, name)
        renewed = "" if lease is None else (lease.get("spec") or {}).get("renewTime") or ""
        if heartbeat != health.heartbeat or renewed > health.renewed:
            health.heartbeat, health.renewed, health.probed_at = heartbeat, max(renewed, health.renewed), now
        grace = _STARTUP_GRACE_SECONDS if condition is None else self._simulation.settings.monitor_grace_seconds
        if now > health.probed_at + grace:
            self._mark_lost(node)
        if self._changed:
            self._evaluate_zones()
        if condition is not None:
            self._evict(name, condition.get("status"))

    def _discount_suspended_time(self, now: float) -> None:
        """Do not count time in which this process did not run (stopped, suspended) against its kubelets."""
        gap, self._last_check = now - self._last_check, now
        if gap > self._simulation.settings.monitor_grace_seconds / 4:  # checks run ten times per grace period
            for health in self._health.values():
                health.probed_at = min(now, health.probed_at + gap)

    def _mark_lost(self, node: JSON) -> None:
        """Mark a node whose grace period is over."""
        name, wall = node["metadata"]["name"], self._simulation.wall()
        was_ready = is_true(node, "Ready")
        unknown = node_objects.with_unknown_conditions(node, wall)
        if unknown is None:
            return
        changed = self._simulation.update(NODES, unknown)
        if was_ready:
            text = f"Node {name} status is now: NodeNotReady"
            self._simulation.event(changed, "Normal", "NodeNotReady", text, component="node-controller")
            for pod in list(self._pods_on(name)):
                self._mark_not_ready(pod, wall)

    def _mark_not_ready(self, pod: JSON, wall: str) -> None:
        status = pod.get("status") or {}
        conditions = status.get("conditions") or ()
        if not any(condition.get("type") == "Ready" and condition.get("status") != "False" for condition in conditions):
            return
        not_ready = {"status": "False", "lastTransitionTime": wall}
        changed = [
            {**condition, **not_ready} if condition.get("type") == "Ready" else condition for condition in conditions
        ]
        pod = self._simulation.update(PODS, {**pod, "status": {**status, "conditions": changed}})
        self._simulation.event(pod, "Warning", "NodeNotReady", "Node is not ready", component="node-controller")

    # --- zones and their evictions ------------------------------------------------------------------

    def _zone(self, health: _Health) -> _Zone:
        return self._zones.setdefault(health.zone, _Zone())

    def _count(self, health: _Health, change: int) -> None:
        if health.counted:
            zone = self._zone(health)
            if health.ready == "True":
                zone.ready += change
            else:
                zone.not_ready += change

    def _evaluate_zones(self) -> None:
        """Set each zone's rate by its state. Source: handleDisruption."""
        self._changed = False
        zones = {key: zone for key, zone in self._zones.items() if zone.ready or zone.not_ready}
        states = {key: zone_state(zone.ready, zone.not_ready) for key, zone in zones.items()}
        all_lost = all(state == "full disruption" for state in states.values())
        were_all_lost = all(zone.state == "full disruption" for zone in zones.values())
        if all_lost and were_all_lost:
            return
        if all_lost:  # a failure of the control plane is more likely than one of all nodes
            for name in self._health:
                node = self._simulation.store.get(NODES, "", name)
                if node is not None:
                    self._cancel_eviction(node)
        elif were_all_lost:  # other nodes get a full grace period after the first heartbeat
            for health in self._health.values():
                health.probed_at = self._simulation.now()
        for key, zone in zones.items():
            if zone.state != states[key] or all_lost or were_all_lost:
                zone.state = states[key]
                zone.rate = 0.0 if all_lost else evictions_per_second(zone.state, zone.ready + zone.not_ready)
                self._taint_waiting(zone)

    def _evict(self, name: str, ready: str | None) -> None:
        """Reconcile the NoExecute taint of a node with its condition; a new one waits in the zone's queue."""
        node = self._simulation.store.get(NODES, "", name)
        if node is None or ready not in ("False", "Unknown"):
            return
        key = node_objects.NOT_READY if ready == "False" else node_objects.UNREACHABLE
        present = {
            taint.get("key")
            for taint in (node.get("spec") or {}).get("taints") or ()
            if taint.get("effect") == "NoExecute"
        } & {node_objects.NOT_READY, node_objects.UNREACHABLE}
        if key in present:
            return
        if present:
            self._taint(node, key)
            return
        zone = self._zone(self._health[name])
        zone.waiting.setdefault(name)
        self._taint_waiting(zone)

    def _taint_waiting(self, zone: _Zone) -> None:
        """Taint queued nodes at the zone's rate, and set a timer for the others."""
        now = self._simulation.now()
        while zone.waiting and zone.rate and now >= zone.next_taint_at:
            name = next(iter(zone.waiting))
            del zone.waiting[name]
            node = self._simulation.store.get(NODES, "", name)
            ready = ((node and condition_of(node, "Ready")) or {}).get("status")
            if node is not None and ready in ("False", "Unknown"):
                self._taint(node, node_objects.NOT_READY if ready == "False" else node_objects.UNREACHABLE)
                zone.next_taint_at = now + 1 / zone.rate
        if zone.waiting and zone.rate and not zone.has_timer:
            zone.has_timer = True
            self._simulation.timers.at(zone.next_taint_at, self._on_timer, zone)

    def _on_timer(self, zone: _Zone) -> None:
        zone.has_timer = False
        self._taint_waiting(zone)

    def _taint(self, node: JSON, key: str) -> None:
        self._simulation.update(NODES, node_objects.with_eviction_taint(node, key, self._simulation.wall()))

    def _cancel_eviction(self, node: JSON) -> JSON:
        """Remove the node from the queue, and its eviction taints."""
        name = node["metadata"]["name"]
        self._zone(self._health[name]).waiting.pop(name, None)
        untainted = node_objects.without_eviction_taints(node)
        return node if untainted is None else self._simulation.update(NODES, untainted)
