"""Leases and status reports of simulated nodes.

With `NodeSettings.heartbeats_on_read`, the heartbeats of a healthy node are written when a client reads its Lease or
Node, with the time that they would have had, so that an idle node costs nothing. Its Lease has the annotation
RENEWED_ON_READ, from which the node lifecycle controller concludes that the node is alive until its Lease changes.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from functools import partial

from kubeloop.devcluster.kubelet.pods.simulated_node import SimulatedNode
from kubeloop.devcluster.simulation import node_objects
from kubeloop.devcluster.simulation.node_objects import LEASE_NAMESPACE
from kubeloop.devcluster.simulation.simulation import Simulation, guarded
from kubeloop.kube.clock import rfc3339, rfc3339_micro
from kubeloop.kube.json_object import JSON
from kubeloop.kube.objects.object_fields import RENEWED_ON_READ
from kubeloop.kube.objects.resources import LEASES, NODES
from kubeloop.kube.uids import new_uid
from kubeloop.kube.values.times import time_plus

_MAX_SLICES = 100  # leases and reports of all nodes are spread over this many points of their period


class NodeHeartbeats:
    """Renews the leases of `nodes`, and reports their conditions unless `reports` is False (stages do that)."""

    def __init__(self, simulation: Simulation, nodes: Mapping[str, SimulatedNode], *, reports: bool) -> None:
        self._simulation = simulation
        self._nodes = nodes
        self._reports = reports
        self._on_read = simulation.settings.heartbeats_on_read
        self._began_at = 0.0  # loop time, as the following times of the newest heartbeats by node
        self._renewed_at: dict[str, float] = {}
        self._reported_at: dict[str, float] = {}
        self._report_planned: set[str] = set()

    def start(self) -> None:
        """Set the timers of all nodes, or write their heartbeats before they are read."""
        settings = self._simulation.settings
        if self._on_read:
            self._began_at = self._simulation.now()
            store = self._simulation.store
            store.refresh_before_reads(LEASES, partial(self._refresh, self._catch_up_lease))
            if self._reports:
                store.refresh_before_reads(NODES, partial(self._refresh, self._catch_up_report))
            return
        self._run_slice((0, settings.lease_renew_seconds, self.renew_lease))
        if self._reports:
            self._run_slice((0, settings.status_report_seconds, self._report))

    def _run_slice(self, beat: tuple[int, float, Callable[[SimulatedNode], None]]) -> None:
        """Call `act` for one slice of the nodes and set a timer for the next: all nodes once per period (seconds)."""
        number, period, act = beat
        slices = max(1, min(_MAX_SLICES, len(self._nodes)))
        for name in list(self._nodes)[number % slices :: slices]:
            guarded(act, self._nodes[name])
        when = self._simulation.now() + period / slices
        self._simulation.timers.at(when, self._run_slice, ((number + 1) % slices, period, act))

    def renew_lease(self, node: SimulatedNode) -> None:
        """Renew the lease of a node, unless it is unreachable; create it if it does not exist."""
        if not node.is_unreachable:
            self._write_lease(node, self._simulation.now(), on_read=self._on_read)

    def _write_lease(self, node: SimulatedNode, renewed_at: float, *, on_read: bool) -> None:
        """Write a lease that was renewed at that loop time. on_read: later renewals are written when it is read."""
        simulation = self._simulation
        now = time_plus(simulation.clock.now(), renewed_at - simulation.now())
        lease = simulation.store.get(LEASES, LEASE_NAMESPACE, node.name)
        if lease is None:
            uid = new_uid(simulation.rng)
            times = {"now": rfc3339(now), "now_micro": rfc3339_micro(now)}
            lease = node_objects.lease_object(node.object, **times, uid=uid)
            simulation.create(LEASES, _annotated(lease, on_read), quiet=True)
        else:
            renewed = {**lease, "spec": {**lease["spec"], "renewTime": rfc3339_micro(now)}}
            simulation.update(LEASES, _annotated(renewed, on_read), quiet=True)
        if on_read:
            self._renewed_at[node.name] = renewed_at

    def _report(self, node: SimulatedNode) -> None:
        if not node.is_unreachable:
            self._write_report(node, self._simulation.now())

    def _write_report(self, node: SimulatedNode, reported_at: float) -> None:
        """Report the conditions of a node at that loop time."""
        simulation = self._simulation
        stored = simulation.store.get(NODES, "", node.name)
        if stored is not None:
            wall = time_plus(simulation.clock.now(), reported_at - simulation.now())
            reported = node_objects.with_reported_conditions(stored, rfc3339(wall))
            node.refresh(simulation.update(NODES, reported))
            self._reported_at[node.name] = reported_at

    # --- heartbeats on read --------------------------------------------------------------------------

    def _last_beat(self, node: SimulatedNode, period: float, *, after: float = 0.0) -> float:
        """Return the time of the node's last heartbeat up to now, or that many seconds after now."""
        first = self._began_at + node.index % _MAX_SLICES * period / _MAX_SLICES
        return first + math.floor((self._simulation.now() + after - first) / period) * period

    def _refresh(self, catch_up: Callable[[SimulatedNode], None], key: str) -> None:
        """Call `catch_up` for the node whose object has this key, or for all nodes."""
        for name in [key.rpartition("/")[2]] if key else [*self._nodes]:
            node = self._nodes.get(name)
            if node is not None and not node.is_unreachable:
                guarded(catch_up, node)

    def _catch_up_lease(self, node: SimulatedNode, *, on_read: bool = True) -> None:
        beat = self._last_beat(node, self._simulation.settings.lease_renew_seconds)
        before = self._renewed_at.get(node.name, -math.inf)
        if beat > before or not on_read:
            self._write_lease(node, max(beat, before), on_read=on_read)

    def _catch_up_report(self, node: SimulatedNode) -> None:
        beat = self._last_beat(node, self._simulation.settings.status_report_seconds)
        if beat > self._reported_at.get(node.name, self._began_at):
            self._write_report(node, beat)

    def node_changed(self, node: SimulatedNode) -> None:
        """Plan a report if it changes more than the time of the last one: another writer has changed conditions."""
        if not self._on_read or not self._reports or node.name in self._report_planned:
            return
        reported = node_objects.with_reported_conditions(node.object, "")
        if _without_heartbeats(reported) != _without_heartbeats(node.object):
            period = self._simulation.settings.status_report_seconds
            self._report_planned.add(node.name)
            self._simulation.timers.at(self._last_beat(node, period, after=period), self._report_as_planned, node)

    def _report_as_planned(self, node: SimulatedNode) -> None:
        self._report_planned.discard(node.name)
        if self._nodes.get(node.name) is node:
            self._report(node)

    def lease_changed(self, name: str) -> None:
        """Plan the renewal of a lease that another writer has changed or deleted."""
        if (node := self._nodes.get(name)) is not None:
            period = self._simulation.settings.lease_renew_seconds
            self._simulation.timers.at(self._last_beat(node, period, after=period), self._renew_as_planned, node)

    def _renew_as_planned(self, node: SimulatedNode) -> None:
        if self._nodes.get(node.name) is node:
            self.renew_lease(node)

    def stopped(self, node: SimulatedNode) -> None:
        """Write the last heartbeats of a node that has become unreachable, or is no longer simulated."""
        if self._on_read and node.name in self._renewed_at:
            if self._reports:
                self._catch_up_report(node)
            if self._simulation.store.get(LEASES, LEASE_NAMESPACE, node.name) is not None:
                self._catch_up_lease(node, on_read=False)
            del self._renewed_at[node.name]

    def forget(self, node: SimulatedNode) -> None:
        """Remove the state of a node that is deleted."""
        self._renewed_at.pop(node.name, None)
        self._reported_at.pop(node.name, None)


def _annotated(lease: JSON, on_read: bool) -> JSON:
    """Return the lease with the annotation RENEWED_ON_READ, or without it."""
    annotations = lease["metadata"].get("annotations") or {}
    if on_read == (RENEWED_ON_READ in annotations):
        return lease
    annotations = {name: value for name, value in annotations.items() if name != RENEWED_ON_READ}
    if on_read:
        annotations[RENEWED_ON_READ] = "true"
    return {**lease, "metadata": {**lease["metadata"], "annotations": annotations}}


def _without_heartbeats(node: JSON) -> list[JSON]:
    """Return the conditions without the times of their reports."""
    conditions = (node.get("status") or {}).get("conditions") or ()
    return [{**condition, "lastHeartbeatTime": ""} for condition in conditions]
