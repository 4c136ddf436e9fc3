"""Filters on a single node, with and without nominated pods."""

from __future__ import annotations

from typing import Any

import pytest

from kubeloop.scheduler.api.cycle_state import CycleState
from kubeloop.scheduler.api.results import unschedulable
from kubeloop.scheduler.api.status import Code, Status
from kubeloop.scheduler.cache.node_info import NodeInfo, PodInfo
from kubeloop.scheduler.framework.node_filters import NodeFilters
from kubeloop.scheduler.framework.timing import Timing
from kubeloop.scheduler.metrics import NO_METRICS
from kubeloop.scheduler.queue.nominator import Nominator
from support.scheduling.plugin_cluster import make_node, make_pod


class MaxPods:
    """Rejects nodes with more than `limit` pods, and records the extensions' calls."""

    name = "MaxPods"

    def __init__(self, limit: int) -> None:
        self.limit = limit
        self.added: list[str] = []
        self.result: Any = None

    def pre_filter(self, state: CycleState, pod: PodInfo, snapshot: Any) -> tuple[None, None]:
        return None, None

    def filter(self, state: CycleState, pod: PodInfo, node: NodeInfo) -> Status | None:
        return unschedulable(self.name, "too many") if len(node.pods) > self.limit else None

    def add_pod(self, state: CycleState, pod: PodInfo, added: PodInfo, node: NodeInfo) -> Any:
        self.added.append(added.uid)
        return self.result

    def remove_pod(self, state: CycleState, pod: PodInfo, removed: PodInfo, node: NodeInfo) -> Any:
        return self.result


def info(name: str, priority: int = 0) -> PodInfo:
    return PodInfo(make_pod(name, priority=priority))


@pytest.fixture
def plugin() -> MaxPods:
    return MaxPods(limit=0)


@pytest.fixture
def filters(plugin: MaxPods) -> NodeFilters:
    """Filters with the pods "low", "high" and "p" nominated to node "n"."""
    pods = {pod.key: pod for pod in (info("low"), info("high", 10), info("p", 5))}
    nominator = Nominator(lambda key: pods[key].pod)
    for pod in pods.values():
        nominator.add(pod, "n")
    return NodeFilters(Timing(NO_METRICS, "profile", lambda: 0), [plugin], [plugin], nominator)


@pytest.mark.parametrize(
    ("name", "priority", "nominated"),
    [
        pytest.param("p", 5, ["high"], id="lower priority and the pod itself do not count"),
        pytest.param("q", 10, ["high"], id="equal priority counts"),
        pytest.param("q", 0, ["low", "high", "p"], id="all"),
        pytest.param("q", 11, [], id="none"),
    ],
)
def test_nominated_pods_have_at_least_the_priority(
    filters: NodeFilters, name: str, priority: int, nominated: list[str]
) -> None:
    assert [pod.uid for pod in filters.nominated_pods(info(name, priority), "n")] == nominated


def test_pod_must_fit_with_nominated_pods(filters: NodeFilters, plugin: MaxPods) -> None:
    node, state = NodeInfo.of(make_node("n")), CycleState()
    status = filters.run_filters_with_nominated_pods(state, info("q", 6), node)
    assert status == unschedulable("MaxPods", "too many")
    assert plugin.added == ["high"]
    assert filters.run_filters_on_node(state, info("q", 6), node) is None
    assert filters.run_filters_with_nominated_pods(state, info("q", 11), node) is None
    assert len(node.pods) == 0


def test_skipped_plugin_neither_filters_nor_extends(filters: NodeFilters, plugin: MaxPods) -> None:
    state, node = CycleState(), NodeInfo.of(make_node("n"), make_pod("placed", "n"))
    assert filters.run_filters_on_node(state, info("q"), node) is not None
    assert filters.has_pre_filter_extensions(state)
    state.skip_filter.add("MaxPods")
    assert filters.run_filters_on_node(state, info("q"), node) is None
    assert not filters.has_pre_filter_extensions(state)
    filters.run_add_pod(state, info("q"), info("low"), node)
    assert plugin.added == []


@pytest.mark.parametrize(
    ("method", "call"),
    [pytest.param("run_add_pod", "AddPod", id="add"), pytest.param("run_remove_pod", "RemovePod", id="remove")],
)
def test_failed_extension_is_an_error(filters: NodeFilters, plugin: MaxPods, method: str, call: str) -> None:
    plugin.result = unschedulable("", "no")
    status = getattr(filters, method)(CycleState(), info("q"), info("low"), NodeInfo.of(make_node("n")))
    assert status == Status(Code.ERROR, (f'running {call} on PreFilter plugin "MaxPods": no',), "MaxPods")


@pytest.mark.parametrize(
    ("result", "reasons"),
    [
        pytest.param(None, None, id="added"),
        pytest.param(
            Status(Code.ERROR, ("broken",)), ('running AddPod on PreFilter plugin "MaxPods": broken',), id="failed"
        ),
    ],
)
def test_nominated_pod_that_cannot_be_added_rejects_the_node(result, reasons, plugin, filters, plugin_cluster):
    plugin.limit, plugin.result = 9, result
    (node,) = plugin_cluster([make_node("n")]).snapshot.node_infos
    status = filters.run_filters_with_nominated_pods(CycleState(), info("p", 5), node)
    assert (None if status is None else status.reasons) == reasons
    assert plugin.added == ["high"]
