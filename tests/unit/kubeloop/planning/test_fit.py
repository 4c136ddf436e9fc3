"""kubeloop/planning/fit.py: the number of nodes, and how many runs find it."""

from __future__ import annotations

import pytest

from kubeloop.planning.fit import MOST_RUNS, fewest_nodes

LIKE = {"metadata": {"name": "a"}, "status": {"allocatable": {"cpu": "4", "pods": "10"}}}


def pod(cpu, **spec):
    return {"spec": {"containers": [{"name": "c", "resources": {"requests": {"cpu": cpu}}}], **spec}}


def searched(pods, placed):
    """Return the result for pods of which `placed(count)` have a node with so many more nodes."""
    return fewest_nodes(LIKE, lambda count: (f"run with {count}", pods[: max(0, len(pods) - placed(count))]))


@pytest.mark.parametrize(
    ("pods", "per_node", "nodes", "runs"),
    [
        pytest.param([], 1, 0, [0], id="nothing is pending"),
        pytest.param([pod("1")] * 12, 4, 3, [0, 3, 2], id="requests fill the nodes"),
        pytest.param([pod("1500m")] * 12, 2, 6, [0, 5, 6], id="requests leave room"),
        pytest.param([pod("1", affinity={})] * 12, 4, 3, [0, 3, 2], id="no relation"),
        pytest.param([pod("1", affinity={"a": 1})] * 100, 1, 100, [0, 1, 100, 99], id="one pod per node"),
        pytest.param([pod("1", affinity={"a": 1})] * 3, 3, 1, [0, 1], id="one node"),
    ],
)
def test_fewest_nodes_follow_from_requests_and_placed_pods(pods, per_node, nodes, runs):
    fit, result = searched(pods, lambda count: per_node * count)
    assert (fit.like, fit.nodes, [run.nodes for run in fit.runs]) == ("a", nodes, runs)
    assert result == f"run with {nodes}"
    assert fit.is_fewest


def test_number_that_is_too_large_is_reduced_in_growing_steps():
    fit, result = searched([pod("1")] * 100, lambda count: 100 if count >= 7 else 0)
    assert (fit.nodes, [run.nodes for run in fit.runs]) == (7, [0, 25, 24, 22, 18, 10, 5, 7, 6])
    assert result == "run with 7"


@pytest.mark.parametrize(
    ("pods", "placed", "runs"),
    [
        pytest.param([pod("5")], lambda count: 0, [0], id="larger than the node"),
        pytest.param([pod("1")] * 8, lambda count: 0, [0, 2], id="no pod fits"),
        pytest.param([pod("1")] * 8, lambda count: min(count, 4), [0, 2, 8], id="some pods fit"),
    ],
)
def test_result_is_that_without_nodes_if_no_number_is_enough(pods, placed, runs):
    fit, result = searched(pods, placed)
    assert (fit.nodes, [run.nodes for run in fit.runs], result) == (None, runs, "run with 0")


def test_number_of_runs_is_limited():
    fit, _ = searched([pod("1", affinity={"a": 1})] * 5_000, lambda count: 5_000 if count >= 4_000 else count // 3 + 1)
    assert len(fit.runs) <= MOST_RUNS
    slow, _ = searched([pod("1")] * 100_000, lambda count: 100_000 if count >= 12_000 else 0)
    assert len(slow.runs) == MOST_RUNS
    assert not slow.is_fewest
