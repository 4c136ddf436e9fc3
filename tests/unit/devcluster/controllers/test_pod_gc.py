"""Pod garbage collector: pods of missing nodes and of nodes that are out of service."""

from __future__ import annotations

import asyncio
import random
from typing import Any

import pytest

from kubeloop.devcluster.controllers.pod_gc import (
    OUT_OF_SERVICE,
    PodGarbageCollector,
    force_delete,
    out_of_service,
    with_disruption_target,
)
from kubeloop.devcluster.simulation.node_objects import NodeSettings
from kubeloop.devcluster.simulation.simulation import Simulation
from kubeloop.kube.objects.resources import NODES, PODS
from support.simulated_cluster import SimulatedCluster

pytestmark = pytest.mark.virtual_time
JSON = dict[str, Any]


def simulation(cluster: SimulatedCluster) -> Simulation:
    return Simulation(cluster.store, NodeSettings(), clock=cluster.clock, rng=random.Random(1))


async def test_pod_of_deleted_node_is_deleted_after_quarantine():
    async with SimulatedCluster().running() as cluster:
        cluster.bind()
        await asyncio.sleep(5)
        cluster.store.delete(NODES, "", "node-0")
        await asyncio.sleep(39)
        assert cluster.pod() is not None
        await asyncio.sleep(2)
        assert cluster.pod() is None


async def test_orphaned_pod_starts_when_its_node_is_created():
    async with SimulatedCluster().running() as cluster:
        cluster.bind(node="late")
        await asyncio.sleep(5)
        assert cluster.status()["phase"] == "Pending"
        node = {"kind": "Node", "apiVersion": "v1", "metadata": {"name": "late", "uid": "n9"}, "spec": {}, "status": {}}
        cluster.store.create(NODES, node)
        await asyncio.sleep(60)
        assert cluster.ready()


async def test_release_returns_current_pods_and_cancels_their_deletion():
    cluster = SimulatedCluster()
    shared = simulation(cluster)
    collector = PodGarbageCollector(shared)
    collector.add(cluster.bind("web"))
    collector.add(cluster.bind("deleted"))
    collector.add(cluster.bind("other", node="node-1"))
    cluster.store.delete(PODS, "default", "deleted")
    assert [pod["metadata"]["name"] for pod in collector.release("node-0")] == ["web"]
    assert collector.release("node-0") == []
    await asyncio.sleep(41)
    timer = shared.timers.pop(shared.now())
    assert timer is not None
    assert timer.argument == "uid-other"
    assert shared.timers.next_due() is None


async def test_force_delete_keeps_failed_pod_with_finalizer():
    cluster = SimulatedCluster()
    pod = cluster.bind(finalizers=("example.com/hold",))
    assert not force_delete(simulation(cluster), pod, "PodGC: node no longer exists")
    current = cluster.pod()
    assert current is not None
    assert current["metadata"]["deletionGracePeriodSeconds"] == 0
    assert current["status"]["phase"] == "Failed"
    assert cluster.conditions()["DisruptionTarget"] == ("True", "DeletionByPodGC")


async def test_force_delete_ignores_replaced_pod():
    cluster = SimulatedCluster()
    pod = cluster.bind()
    old: JSON = {**pod, "metadata": {**pod["metadata"], "uid": "uid-old"}}
    assert force_delete(simulation(cluster), old, "PodGC: node no longer exists")
    assert cluster.phase() == "Pending"


def test_disruption_target_replaces_earlier_condition():
    conditions = [{"type": "DisruptionTarget", "reason": "Old"}, {"type": "Ready", "status": "True"}]
    pod: JSON = {"metadata": {"generation": 2}, "status": {"phase": "Running", "conditions": conditions}}
    status = with_disruption_target(pod, "DeletionByPodGC", "message", "2026-01-01T00:00:00Z")
    assert status["phase"] == "Running"
    assert [(condition["type"], condition.get("reason")) for condition in status["conditions"]] == [
        ("Ready", None),
        ("DisruptionTarget", "DeletionByPodGC"),
    ]
    assert status["conditions"][1]["observedGeneration"] == 2


@pytest.mark.parametrize(
    ("taints", "ready", "expected"),
    [
        pytest.param([{"key": OUT_OF_SERVICE}], "Unknown", True, id="tainted and not ready"),
        pytest.param([{"key": OUT_OF_SERVICE}], "True", False, id="tainted but ready"),
        pytest.param([], "Unknown", False, id="not tainted"),
    ],
)
async def test_out_of_service(taints, ready, expected):
    cluster = SimulatedCluster()
    node: JSON = {"kind": "Node", "apiVersion": "v1", "metadata": {"name": "node-0", "uid": "n"}}
    conditions = [{"type": "Ready", "status": ready}]
    cluster.store.create(NODES, {**node, "spec": {"taints": taints}, "status": {"conditions": conditions}})
    assert out_of_service(simulation(cluster), "node-0") is expected
    assert not out_of_service(simulation(cluster), "missing")
