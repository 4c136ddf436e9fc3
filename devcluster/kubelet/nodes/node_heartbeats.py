"""Leases and status reports of simulated nodes."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from kubeloop.devcluster.kubelet.pods.simulated_node import SimulatedNode
from kubeloop.devcluster.simulation import node_objects
from kubeloop.devcluster.simulation.node_objects import LEASE_NAMESPACE
from kubeloop.devcluster.simulation.simulation import Simulation, guarded
from kubeloop.kube.clock import rfc3339, rfc3339_micro
from kubeloop.kube.objects.resources import LEASES, NODES
from kubeloop.kube.uids import new_uid

_MAX_SLICES = 100  # leases and reports of all nodes are spread over this many points of their period


class NodeHeartbeats:
    """Renews the leases of `nodes`, and reports their conditions unless `reports` is False (stages do that)."""

    def __init__(self, simulation: Simulation, nodes: Mapping[str, SimulatedNode], *, reports: bool) -> None:
        self._simulation = simulation
        self._nodes = nodes
        self._reports = reports

    def start(self) -> None:
        """Set the timers of all nodes."""
        settings = self._simulation.settings
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
        if node.is_unreachable:
            return
        store, now = self._simulation.store, self._simulation.clock.now()
        lease = store.get(LEASES, LEASE_NAMESPACE, node.name)
        if lease is None:
            uid = new_uid(self._simulation.rng)
            times = {"now": rfc3339(now), "now_micro": rfc3339_micro(now)}
            store.create(LEASES, node_objects.lease_object(node.object, **times, uid=uid))
        else:
            store.update(LEASES, {**lease, "spec": {**lease["spec"], "renewTime": rfc3339_micro(now)}})

    def _report(self, node: SimulatedNode) -> None:
        stored = self._simulation.store.get(NODES, "", node.name)
        if stored is not None and not node.is_unreachable:
            reported = node_objects.with_reported_conditions(stored, self._simulation.wall())
            node.refresh(self._simulation.update(NODES, reported))
