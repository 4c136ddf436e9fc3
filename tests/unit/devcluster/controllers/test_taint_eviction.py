"""Taint eviction controller: pods are evicted by NoExecute taints that they do not tolerate."""

from __future__ import annotations

import asyncio

import pytest

from kubeloop.devcluster.controllers.taint_eviction import stay_seconds
from support.simulated_cluster import SimulatedCluster

pytestmark = pytest.mark.virtual_time
TAINT = {"key": "maintenance", "value": "soon", "effect": "NoExecute"}


async def test_no_execute_taint_evicts_pods_after_toleration_seconds():
    async with SimulatedCluster().running() as cluster:
        cluster.bind("intolerant")
        cluster.bind("tolerant", tolerations=[{"key": "maintenance", "operator": "Exists"}])
        toleration = {"key": "maintenance", "operator": "Exists", "tolerationSeconds": 60}
        cluster.bind("tolerant-60s", tolerations=[toleration])
        cluster.bind("other-node", node="node-1")
        await asyncio.sleep(5)
        cluster.change_node("node-0", taints=[TAINT])
        await asyncio.sleep(1)
        assert cluster.pod("intolerant") is None
        assert cluster.pod("tolerant-60s") is not None
        await asyncio.sleep(60)
        assert cluster.pod("tolerant-60s") is None
        assert cluster.ready("tolerant")
        assert cluster.ready("other-node")
        assert ("TaintManagerEviction", "Marking for deletion Pod default/tolerant-60s") in cluster.events()


async def test_eviction_is_cancelled_when_taint_is_removed():
    async with SimulatedCluster().running() as cluster:
        cluster.bind(tolerations=[{"operator": "Exists", "tolerationSeconds": 60}])
        await asyncio.sleep(5)
        cluster.change_node("node-0", taints=[TAINT])
        await asyncio.sleep(30)
        cluster.change_node("node-0", taints=[])
        await asyncio.sleep(300)
        assert cluster.ready()
        assert ("TaintManagerEviction", "Cancelling deletion of Pod default/web") in cluster.events()


@pytest.mark.parametrize(
    ("tolerations", "seconds"),
    [
        pytest.param([], 0.0, id="no toleration"),
        pytest.param([{"key": "maintenance", "operator": "Equal", "value": "other"}], 0.0, id="another value"),
        pytest.param([{"key": "maintenance", "value": "soon"}], None, id="Equal is the default operator"),
        pytest.param([{"operator": "Exists", "tolerationSeconds": -5}], 0.0, id="negative seconds count as 0"),
        pytest.param([{"operator": "Exists", "effect": "NoSchedule"}], 0.0, id="another effect"),
        pytest.param([{"operator": "Exists", "tolerationSeconds": 7}], 7.0, id="tolerationSeconds"),
    ],
)
def test_stay_seconds(tolerations, seconds):
    assert stay_seconds([TAINT], tolerations) == seconds
