"""Helpers for results of plugins: statuses, scores and filters by rows."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from kubeloop.scheduler.api import results
from kubeloop.scheduler.api.cycle_state import CycleState
from kubeloop.scheduler.api.status import Code, Status
from kubeloop.scheduler.cache.node_info import PodInfo
from support.scheduling.plugin_cluster import PluginCluster, make_node, make_pod


@pytest.mark.parametrize(
    ("scores", "reverse", "normalized"),
    [
        pytest.param([0, 5, 10], False, [0, 50, 100], id="highest becomes 100"),
        pytest.param([0, 5, 10], True, [100, 50, 0], id="reverse: highest becomes 0"),
        pytest.param([1, 3], False, [33, 100], id="rounded down"),
        pytest.param([1, 3], True, [67, 0], id="reverse: subtracted after rounding"),
        pytest.param([0, 0], False, [0, 0], id="all zero"),
        pytest.param([0, 0], True, [100, 100], id="reverse: all zero"),
        pytest.param([], True, [], id="no rows"),
    ],
)
def test_default_normalize(scores: list[int], reverse: bool, normalized: list[int]) -> None:
    assert results.default_normalize(np.array(scores, np.int64), reverse=reverse).tolist() == normalized


@pytest.mark.parametrize(
    ("status", "code", "reasons"),
    [
        pytest.param(results.unschedulable("P", "a", "b"), Code.UNSCHEDULABLE, ("a", "b"), id="unschedulable"),
        pytest.param(results.unresolvable("P", "a"), Code.UNSCHEDULABLE_AND_UNRESOLVABLE, ("a",), id="unresolvable"),
        pytest.param(results.failed("P", ValueError("a")), Code.ERROR, ("a",), id="exception"),
        pytest.param(results.failed("P", "a"), Code.ERROR, ("a",), id="error text"),
        pytest.param(results.skip("P"), Code.SKIP, (), id="skip"),
    ],
)
def test_status_has_code_reasons_and_plugin(status: Status, code: Code, reasons: tuple[str, ...]) -> None:
    assert status == Status(code, reasons, "P")


def test_failed_status_has_exception_as_error() -> None:
    error = ValueError("a")
    assert results.failed("P", error).error is error
    assert results.failed("P", "a").error is None


def even_only(state: CycleState, pod: PodInfo, node: Any) -> Status | None:
    return None if int(node.name[1:]) % 2 == 0 else results.unschedulable("P", f"{node.name} is odd")


@pytest.fixture
def cluster() -> PluginCluster:
    return PluginCluster([make_node(f"n{number}") for number in range(4)])


def test_rejections_of_array_form_are_explained_per_node(cluster: PluginCluster) -> None:
    passed, rows = np.array([False, False]), np.array([1, 2])
    state, pod = CycleState(), PodInfo(make_pod("p"))
    result = results.explained_per_node(passed, rows, cluster.snapshot, even_only, state, pod)
    assert result.explain(0).reasons == ("n1 is odd",)
    with pytest.raises(AssertionError, match="the per-node form accepts"):
        result.explain(1)


@pytest.mark.parametrize(
    ("node_name", "nominated", "expected"),
    [
        pytest.param("", "", False, id="pending"),
        pytest.param("n", "", True, id="bound"),
        pytest.param("", "n", True, id="nominated"),
    ],
)
def test_is_bound_or_nominated(node_name: str, nominated: str, expected: bool) -> None:
    pod = make_pod("p", node_name, status={"nominatedNodeName": nominated})
    assert results.is_bound_or_nominated(pod) is expected
