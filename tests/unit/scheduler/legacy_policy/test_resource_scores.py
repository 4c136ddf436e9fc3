"""Scores by resource utilization, by the formulas of v1.20."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from kubeloop.scheduler.api.cycle_state import CycleState
from kubeloop.scheduler.cache.node_info import PodInfo
from kubeloop.scheduler.config.plugin_args import (
    CPU_AND_MEMORY,
    NoArgs,
    RequestedToCapacityRatioArgs,
    ResourcesArgs,
    ResourceSpec,
    UtilizationShapePoint,
)
from kubeloop.scheduler.legacy_policy.resource_scores import (
    BalancedResourceAllocation,
    NodeResourcesLeastAllocated,
    NodeResourcesMostAllocated,
    RequestedToCapacityRatioPriority,
)

GPU = ResourceSpec(name="example.com/gpu", weight=2)
LINEAR = (UtilizationShapePoint(), UtilizationShapePoint(utilization=100, score=10))


def score(plugin: Any, cluster: Any, incoming: Any) -> int:
    """Return the score of the cluster's only node, the same per node and for arrays."""
    snapshot, info = cluster.snapshot, PodInfo(incoming)
    per_node = plugin.score(CycleState(), info, snapshot.node_infos[0])
    rows = plugin.score_rows(CycleState(), info, snapshot, snapshot.all_rows)
    assert (rows.tolist(), rows.dtype) == ([per_node], np.int64)
    return int(per_node)


@pytest.mark.parametrize(
    ("allocatable", "cpu", "memory", "expected"),
    [
        pytest.param({"cpu": "4", "memory": "4Gi"}, "1", "1Gi", 100, id="equal utilization"),
        pytest.param({"cpu": "4", "memory": "4Gi"}, "3", "1Gi", 50, id="difference of one half"),
        pytest.param({"cpu": "4", "memory": "4Gi"}, "4", "4Gi", 0, id="full"),
        pytest.param({"cpu": "0", "memory": "4Gi"}, "1", "1Gi", 0, id="no CPU at all"),
        pytest.param({"cpu": "1m", "memory": "4Gi"}, "1m", "2Gi", 0, id="a millicore is full"),
        pytest.param({"cpu": "1", "memory": "1000Mi"}, None, None, 90, id="default requests of 100m and 200Mi"),
    ],
)
def test_balanced_allocation(plugin_cluster, node, pod, allocatable, cpu, memory, expected):
    requests = {name: amount for name, amount in (("cpu", cpu), ("memory", memory)) if amount is not None}
    cluster = plugin_cluster([node("n", allocatable=allocatable)])
    assert score(BalancedResourceAllocation(NoArgs(), cluster), cluster, pod("p", **requests)) == expected


@pytest.mark.parametrize(
    ("allocatable", "cpu", "memory", "least", "most", "ratio"),
    [
        pytest.param({"cpu": "4", "memory": "4Gi"}, "1", "2Gi", 62, 37, 38, id="mean rounded down, ratio rounded"),
        pytest.param({"cpu": "3", "memory": "3Gi"}, "1", "1Gi", 66, 33, 34, id="utilization of the ratio rounded up"),
        pytest.param({"cpu": "4", "memory": "4Gi"}, "5", "2Gi", 25, 25, 75, id="overcommitted CPU scores 0"),
        pytest.param({"cpu": "4", "memory": "0"}, "1", "1Gi", 37, 12, 63, id="memory that the node lacks counts"),
    ],
)
def test_utilization_scores(plugin_cluster, node, pod, allocatable, cpu, memory, least, most, ratio):
    cluster, incoming = plugin_cluster([node("n", allocatable=allocatable)]), pod("p", cpu=cpu, memory=memory)
    resources = ResourcesArgs(resources=CPU_AND_MEMORY)
    assert score(NodeResourcesLeastAllocated(resources, cluster), cluster, incoming) == least
    assert score(NodeResourcesMostAllocated(resources, cluster), cluster, incoming) == most
    by_shape = RequestedToCapacityRatioArgs(shape=LINEAR)
    assert score(RequestedToCapacityRatioPriority(by_shape, cluster), cluster, incoming) == ratio


def test_resource_that_the_pod_does_not_request_counts(plugin_cluster, node, pod):
    allocatable = {"cpu": "4", "memory": "4Gi", GPU.name: "4"}
    cluster = plugin_cluster([node("n", allocatable=allocatable)], [pod("other", "n", overhead={GPU.name: "1"})])
    args = RequestedToCapacityRatioArgs(shape=LINEAR, resources=(GPU,))
    assert score(RequestedToCapacityRatioPriority(args, cluster), cluster, pod("p", cpu="1")) == 25


def test_resources_with_a_score_of_0_have_no_weight_in_the_ratio(plugin_cluster, node, pod):
    """The weight of a resource counts if its score is above 0: 1 of 100 GPUs, and none of the other resource."""
    allocatable = {GPU.name: "100", "example.com/nic": "100"}
    cluster = plugin_cluster([node("n", allocatable=allocatable)], [pod("other", "n", overhead={GPU.name: "1"})])
    resources = (GPU, ResourceSpec(name="example.com/nic", weight=6))
    args = RequestedToCapacityRatioArgs(shape=LINEAR, resources=resources)
    assert score(RequestedToCapacityRatioPriority(args, cluster), cluster, pod("p")) == 1
