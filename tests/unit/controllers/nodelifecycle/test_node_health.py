"""Heartbeats of a node: what counts as one, and the conditions of a node without them."""

from __future__ import annotations

import math
from datetime import UTC, datetime, timedelta

import pytest

from kubeloop.controllers.nodelifecycle.node_health import NodeHealth, unknown_conditions
from kubeloop.kube.objects.api_types import Condition, Lease, LeaseSpec, Node, NodeStatus, ObjectMeta
from kubeloop.kube.objects.object_fields import RENEWED_ON_READ

WALL = datetime(2026, 1, 1, tzinfo=UTC)
NOW = 1000.0  # loop time


def node(*conditions: Condition, age: float = 0.0) -> Node:
    metadata = ObjectMeta(name="node-0", uid="u", creation_timestamp=WALL - timedelta(seconds=age))
    return Node(metadata=metadata, status=NodeStatus(conditions=conditions))


def ready(status: str = "True", heartbeat: float = 0.0) -> Condition:
    return Condition(type="Ready", status=status, last_heartbeat_time=WALL + timedelta(seconds=heartbeat))


def lease(renewed: float) -> Lease:
    return Lease(spec=LeaseSpec(renew_time=WALL + timedelta(seconds=renewed)))


def lost_after(health: NodeHealth) -> float:
    """Return the seconds from NOW after which the node is lost, with grace periods of 50 and 60 s."""
    return health.lost_at(grace=50.0, startup_grace=60.0) - NOW


def test_node_that_never_reported_is_lost_startup_grace_after_its_creation():
    assert lost_after(NodeHealth(node(age=20.0), NOW, WALL)) == 40


def test_node_that_has_reported_is_lost_grace_after_it_was_first_seen():
    assert lost_after(NodeHealth(node(ready(heartbeat=-500.0)), NOW, WALL)) == 50


@pytest.mark.parametrize(
    ("changed", "renewed", "lost"),
    [
        pytest.param(node(ready()), None, 50, id="same version"),
        pytest.param(node(ready(heartbeat=10.0)), None, 80, id="status report"),
        pytest.param(node(ready("False")), None, 50, id="status without new heartbeat"),
        pytest.param(node(ready()), 10.0, 80, id="renewed Lease"),
        pytest.param(node(), None, 90, id="removed condition, with the startup grace period"),
    ],
)
def test_heartbeat_is_a_report_or_a_renewal(changed: Node, renewed: float | None, lost: float):
    health = NodeHealth(node(ready()), NOW, WALL)
    health.observe(changed, None if renewed is None else lease(renewed), NOW + 30, WALL)
    assert lost_after(health) == lost


@pytest.mark.parametrize(("renewed", "lost"), [(10.0, 50), (9.0, 50), (11.0, 80)], ids=["same", "older", "newer"])
def test_only_a_newer_renewal_counts(renewed: float, lost: float):
    health = NodeHealth(node(ready()), NOW, WALL)
    health.observe(node(ready()), lease(10.0), NOW, WALL)
    health.observe(node(ready()), lease(renewed), NOW + 30, WALL)
    assert lost_after(health) == lost


def test_kubelet_conditions_become_unknown_and_others_stay():
    network = Condition(type="NetworkUnavailable", status="False")
    pressure = Condition(type="DiskPressure", status="Unknown")
    conditions = unknown_conditions(node(ready(), network, pressure, age=5.0), WALL)
    stopped = {
        "type": "Ready",
        "status": "Unknown",
        "lastTransitionTime": "2026-01-01T00:00:00Z",
        "reason": "NodeStatusUnknown",
        "message": "Kubelet stopped posting node status.",
    }
    never = {
        "status": "Unknown",
        "lastTransitionTime": "2026-01-01T00:00:00Z",
        "lastHeartbeatTime": "2025-12-31T23:59:55Z",
        "reason": "NodeStatusNeverUpdated",
        "message": "Kubelet never posted node status.",
    }
    assert conditions == [
        stopped,
        {"type": "NetworkUnavailable"},
        {"type": "DiskPressure"},
        {"type": "MemoryPressure", **never},
        {"type": "PIDPressure", **never},
    ]


def test_node_with_unknown_ready_is_not_written_again():
    assert unknown_conditions(node(ready("Unknown")), WALL) == []


def test_node_with_lease_that_is_renewed_on_read_is_lost_grace_after_its_last_renewal():
    health = NodeHealth(node(ready()), NOW, WALL)
    on_read = Lease(metadata=ObjectMeta(annotations={RENEWED_ON_READ: "true"}), spec=LeaseSpec(renew_time=WALL))
    health.observe(node(ready()), on_read, NOW, WALL)
    assert lost_after(health) == math.inf
    health.observe(node(ready()), lease(90.0), NOW + 100, WALL + timedelta(seconds=100))
    assert lost_after(health) == 140
