"""Allocations of resources on nodes, and their percentages."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kubeloop.scheduler.config.plugin_args import ResourceSpec, UtilizationShapePoint
from kubeloop.scheduler.plugins.node_resources.scoring import (
    LeastAllocated,
    MostAllocated,
    RequestedToCapacityRatio,
    ResourceAllocations,
    _mean_down_rows,
    _percent,
    balance,
    balance_gained,
    balance_of_node,
    score_by_percent,
)

_DENOMINATORS = st.integers(1, 1 << 10) | st.integers(1, 1 << 40) | st.integers((1 << 46) - 100, (1 << 46) + 100)


@settings(max_examples=300)
@given(data=st.data())
def test_percent_equals_integer_division(data: st.DataObject) -> None:
    denominator = data.draw(_DENOMINATORS)
    percent = data.draw(st.integers(0, 100))
    candidates = [denominator * percent // 100 + off for off in (-1, 0, 1)]
    numerators = [numerator for numerator in candidates if 0 <= numerator <= denominator]
    percents = _percent(np.array([numerators], np.int64), np.full((1, len(numerators)), denominator, np.int64))
    assert percents.dtype == np.int64
    assert percents[0].tolist() == [numerator * 100 // denominator for numerator in numerators]


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        pytest.param("example.com/absent", (0, 0, 0), id="not on the node"),
        pytest.param("example.com/gpu", (0, 0, 0), id="extended, not requested"),
        pytest.param("example.com/fpga", (0, 1, 2), id="extended, requested"),
    ],
)
def test_allocation_of_an_extended_resource(name: str, expected: Any, plugin_cluster: Any, node: Any) -> None:
    cluster = plugin_cluster([node("a", allocatable={"example.com/gpu": "2", "example.com/fpga": "2"})])
    allocations = ResourceAllocations([ResourceSpec(name, 1)], use_requested=False)
    requests = {"example.com/fpga": 1, "example.com/absent": 1}
    assert allocations.of_node(requests, cluster.snapshot.node_infos[0]) == [expected]


def test_resource_that_a_node_lacks_does_not_count_in_its_score() -> None:
    scores, allocatable = np.array([[80, 80], [20, 0]], np.int64), np.array([[1, 1], [1, 0]], np.int64)
    assert _mean_down_rows(scores, allocatable, [1, 3]).tolist() == [35, 80]


def test_scores_beyond_the_points_of_a_shape_are_those_of_its_ends() -> None:
    shape = [UtilizationShapePoint(utilization, score) for utilization, score in ((20, 1), (40, 5), (60, 3))]
    scores = score_by_percent(shape)
    assert [scores[percent] for percent in (0, 20, 30, 40, 60, 61, 100)] == [10, 10, 30, 50, 30, 30, 30]


@pytest.mark.parametrize(
    ("requested", "allocatable", "score"),
    [
        pytest.param([1, 1], [4, 4], 100, id="equal shares"),
        pytest.param([4, 0], [4, 4], 50, id="full and empty"),
        pytest.param([8, 4], [4, 4], 100, id="an overcommitted resource counts as full"),
        pytest.param([3, 1], [4, 4], 75, id="half of the difference"),
        pytest.param([4, 2], [0, 4], 100, id="a resource that the node lacks does not count"),
        pytest.param([0, 3, 3], [4, 4, 4], 64, id="three resources: standard deviation"),
        pytest.param([2, 1, 9], [4, 4, 0], 87, id="two of three resources"),
    ],
)
def test_balance_of_resources(requested: list[int], allocatable: list[int], score: int) -> None:
    assert balance_of_node(requested, allocatable) == score
    columns = (np.array([[value, value] for value in values], np.int64) for values in (requested, allocatable))
    assert balance(*columns).tolist() == [score, score]


@pytest.mark.parametrize(("before", "after", "score"), [(50, 50, 75), (0, 100, 125), (100, 0, 25), (50, 51, 75)])
def test_gained_balance(before: int, after: int, score: int) -> None:
    assert balance_gained(before, after) == score


def test_allocations_follow_the_resources_of_the_configuration(plugin_cluster: Any, node: Any, pod: Any) -> None:
    cluster = plugin_cluster([node("a", allocatable={"cpu": "4", "memory": "1Gi"})], [pod("p", "a", cpu="1")])
    info = cluster.snapshot.node_infos[0]
    names = ("example.com/absent", "memory", "cpu")
    specs = [ResourceSpec(name, 1) for name in names]
    requests = {"cpu": 500, "memory": 1 << 20}
    requested = ResourceAllocations(specs, use_requested=True).of_node(requests, info)
    assert requested == [(0, 0, 0), (0, 1 << 20, 1 << 30), (1000, 1500, 4000)]
    non_zero = ResourceAllocations(specs, use_requested=False).of_node(requests, info)
    assert non_zero == [(0, 0, 0), (200 << 20, 201 << 20, 1 << 30), (1000, 1500, 4000)]


@pytest.mark.parametrize(
    ("requested", "allocatable", "weights", "least", "most", "ratio"),
    [
        pytest.param([0], [3], [1], 100, 0, 0, id="empty"),
        pytest.param([1], [3], [1], 66, 33, 33, id="a third, rounded down"),
        pytest.param([2], [3], [1], 33, 66, 66, id="two thirds, rounded down"),
        pytest.param([3], [3], [1], 0, 100, 100, id="full"),
        pytest.param([4], [3], [1], 0, 100, 100, id="overcommitted"),
        pytest.param([1], [0], [1], 0, 0, 0, id="the node has no such resource"),
        pytest.param([1, 3], [4, 4], [1, 1], 50, 50, 50, id="mean"),
        pytest.param([1, 3], [4, 4], [1, 3], 37, 62, 63, id="weighted mean; the ratio is rounded to the nearest"),
        pytest.param([1, 3], [4, 4], [3, 1], 62, 37, 38, id="other weights"),
        pytest.param([1, 3], [4, 4], [2, 2], 50, 50, 50, id="equal weights"),
        pytest.param([0, 2], [4, 4], [1, 1], 75, 25, 50, id="scores of 0 do not count in the ratio"),
        pytest.param([1, 3], [4, 0], [1, 3], 75, 25, 25, id="a resource that the node lacks does not count"),
        pytest.param([1, 2, 4], [4, 4, 4], [1, 2, 1], 43, 56, 56, id="three resources"),
    ],
)
def test_strategies_score_requested_shares(
    requested: list[int], allocatable: list[int], weights: list[int], least: int, most: int, ratio: int
) -> None:
    resources = [ResourceSpec(f"r{number}", weight) for number, weight in enumerate(weights)]
    shape = [UtilizationShapePoint(0, 0), UtilizationShapePoint(100, 10)]
    rows = [np.array([[value] * 2 for value in values], np.int64) for values in (requested, allocatable)]
    allocations = [(0, used, capacity) for used, capacity in zip(requested, allocatable, strict=True)]
    for scorer, score in (
        (LeastAllocated(resources), least),
        (MostAllocated(resources), most),
        (RequestedToCapacityRatio(resources, shape), ratio),
    ):
        assert scorer.score_node(allocations) == score
        assert scorer.score_rows(rows[0], rows[1]).tolist() == [score, score]


def test_resources_after_one_that_devices_provide_are_scored(plugin_cluster: Any, node: Any, pod: Any) -> None:
    names = ("example.com/gpu", "example.com/nic", "cpu")
    cluster = plugin_cluster([node("a")], [pod("p", "a", cpu="1")])
    devices = {"example.com/gpu": (4, 1), "example.com/nic": (0, 0)}
    allocations = ResourceAllocations(
        [ResourceSpec(name, 1) for name in names],
        use_requested=True,
        count_devices=lambda name, node_name, labels: devices[name],
    )
    requests = {"example.com/gpu": 2, "example.com/nic": 1, "cpu": 500}
    expected = [(1, 3, 4), (0, 0, 0), (1000, 1500, 4000)]
    snapshot = cluster.snapshot
    assert allocations.of_node(requests, snapshot.node_infos[0]) == expected
    incoming, requested, allocatable = allocations.of_rows(requests, snapshot, snapshot.all_rows)
    assert allocatable[:, 0].tolist() == [capacity for _, _, capacity in expected]
    assert requested[[0, 2], 0].tolist() == [1, 1000]
    assert incoming[:, 0].tolist() == [2, 1, 500]
