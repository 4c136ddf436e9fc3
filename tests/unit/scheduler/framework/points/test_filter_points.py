"""PreFilter and Filter of the default profile over a snapshot."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from kubeloop.kube.objects.api_types import Pod
from kubeloop.scheduler.api.cycle_state import CycleState
from kubeloop.scheduler.api.extension_points import PostFilterResult, PreFilterResult
from kubeloop.scheduler.api.status import Code, Status
from kubeloop.scheduler.cache.node_info import NodeInfo, PodInfo
from kubeloop.scheduler.framework.fit_error import Diagnosis, NodeToStatus
from kubeloop.scheduler.framework.plugin_calls import SchedulingError
from kubeloop.scheduler.framework.points.filter_points import FilterPoints
from support.scheduling.plugin_cluster import PluginCluster, make_node, make_pod

GPU = "example.com/gpu"


def cluster() -> PluginCluster:
    nodes = [make_node("a"), make_node("b", allocatable={GPU: "1"}), make_node("c", allocatable={GPU: "2"})]
    return PluginCluster(nodes)


def filtered(cluster: PluginCluster, filters: FilterPoints, pod: PodInfo, *, all_rows: bool) -> list[str]:
    state, snapshot = CycleState(), cluster.snapshot
    filters.run_pre_filter(state, pod, snapshot)
    rows = snapshot.all_rows if all_rows else np.array([0, 1], np.intp)
    diagnosis = Diagnosis(NodeToStatus(snapshot))
    return [snapshot.node_infos[row].name for row in filters.run_filters(state, pod, snapshot, rows, diagnosis)]


@pytest.mark.parametrize("class_cache", [True, False])
def test_filters_return_the_feasible_rows(class_cache):
    nodes = cluster()
    filters = nodes.make_framework(class_cache=class_cache).filters
    pod = PodInfo(make_pod("web", containers=[{"name": "c", "resources": {"requests": {GPU: "1"}}}]))
    assert filtered(nodes, filters, pod, all_rows=True) == ["b", "c"]
    assert filtered(nodes, filters, pod, all_rows=False) == ["b"]


def spread_pod(name: str, cpu: str = "1", node_name: str = "") -> Pod:
    constraint = {
        "maxSkew": 1,
        "topologyKey": "kubernetes.io/hostname",
        "whenUnsatisfiable": "DoNotSchedule",
        "labelSelector": {"matchLabels": {"app": "web"}},
    }
    return make_pod(name, node_name, cpu=cpu, labels={"app": "web"}, topologySpreadConstraints=[constraint])


def diagnosed(cluster: PluginCluster, filters: FilterPoints, pod: Pod) -> Diagnosis:
    """Return the diagnosis of an attempt that no node passes."""
    state, snapshot, info = CycleState(), cluster.snapshot, PodInfo(pod)
    filters.run_pre_filter(state, info, snapshot)
    diagnosis = Diagnosis(NodeToStatus(snapshot))
    assert len(filters.run_filters(state, info, snapshot, snapshot.all_rows, diagnosis)) == 0
    return diagnosis


@pytest.mark.parametrize("class_cache", [True, False])
@pytest.mark.parametrize("nominated", [True, False])
def test_plugins_of_unrecorded_rejections_are_not_unschedulable_plugins(class_cache, nominated):
    nodes = [make_node("a"), make_node("b", allocatable={"cpu": "500m"}), make_node("c", allocatable={"cpu": "500m"})]
    cluster = PluginCluster(nodes, [spread_pod("first", "1m" if nominated else "3500m", "a")])
    filters = cluster.make_framework(class_cache=class_cache).filters
    if nominated:
        preemptor = make_pod("preemptor", cpu="3500m", priority=10)
        cluster.pods.put(preemptor.key, preemptor)
        cluster.nominator.add(PodInfo(preemptor), "a")
    diagnosis = diagnosed(cluster, filters, spread_pod("second"))
    assert diagnosis.unschedulable_plugins == {"NodeResourcesFit"}
    assert [status.code for _, status in diagnosis.node_to_status.items()] == [
        Code.UNSCHEDULABLE,
        Code.UNSCHEDULABLE_AND_UNRESOLVABLE,
        Code.UNSCHEDULABLE_AND_UNRESOLVABLE,
    ]


@pytest.mark.parametrize("measured", [True, False])
def test_array_and_per_node_form_reject_a_few_rows_alike(measured):
    cordoned = make_node("cordoned", unschedulable=True)
    small = make_node("small", allocatable={"cpu": "500m"})
    cluster = PluginCluster([make_node("a"), cordoned, small, make_node("b")])
    state, snapshot, pod = CycleState(measured=measured), cluster.snapshot, PodInfo(make_pod("p", cpu="1"))
    filters = cluster.framework.filters
    filters.run_pre_filter(state, pod, snapshot)
    rows = np.array(sorted(snapshot.row_of[name] for name in ("a", "cordoned", "small")), np.intp)
    diagnosis = Diagnosis(NodeToStatus(snapshot))
    feasible = filters.run_filters(state, pod, snapshot, rows, diagnosis)
    assert [snapshot.node_infos[row].name for row in feasible] == ["a"]
    assert {name: (status.plugin, status.code) for name, status in diagnosis.node_to_status.items()} == {
        "cordoned": ("NodeUnschedulable", Code.UNSCHEDULABLE_AND_UNRESOLVABLE),
        "small": ("NodeResourcesFit", Code.UNSCHEDULABLE_AND_UNRESOLVABLE),
    }
    assert diagnosis.node_to_status.plugins() == {"NodeUnschedulable": 1, "NodeResourcesFit": 1}
    assert diagnosis.unschedulable_plugins == {"NodeUnschedulable", "NodeResourcesFit"}


class FailingFilter:
    """Fails on each node with the message that its label "error" has."""

    name = "NodeName"

    def filter(self, state: CycleState, pod: PodInfo, node: NodeInfo) -> Status | None:
        assert node.node is not None
        message = node.node.metadata.labels.get("error")
        return Status(Code.ERROR, (message,)) if message else None


@pytest.mark.parametrize("class_cache", [True, False])
@pytest.mark.parametrize(
    ("errors", "message"),
    [
        (["x"], 'running "NodeName" filter plugin: x'),
        (["x", "x"], 'running "NodeName" filter plugin: x'),
        (["x", "", "y", "x"], '[running "NodeName" filter plugin: x, running "NodeName" filter plugin: y]'),
        (["x"] * 15 + ["y", "z"], '[running "NodeName" filter plugin: x, running "NodeName" filter plugin: y]'),
    ],
)
def test_different_errors_of_filters_are_aggregated_up_to_a_limit(class_cache, errors, message):
    nodes = [make_node(f"n{number:02}", labels={"error": error}) for number, error in enumerate(errors)]
    cluster = PluginCluster(nodes)
    framework = cluster.make_framework(class_cache=class_cache)
    filters = framework.filters
    index = [plugin.name for plugin in filters.filter].index("NodeName")
    filters.filter[index] = FailingFilter()
    filters._by_rows[index] = False
    filters._row_local.discard("NodeName")
    with pytest.raises(SchedulingError) as error:
        diagnosed(cluster, filters, make_pod("p"))
    assert str(error.value) == message
    assert error.value.plugin == "NodeName"


class Preparing:
    """A plugin whose PreFilter and PostFilter return `result`, or raise it."""

    def __init__(self, name: str, result: Any) -> None:
        self.name = name
        self.runs = 0
        self._result = result

    def pre_filter(self, *_: Any) -> Any:
        self.runs += 1
        if isinstance(self._result, Exception):
            raise self._result
        return self._result

    post_filter = pre_filter


def only(*names: str) -> tuple[PreFilterResult, None]:
    return PreFilterResult(frozenset(names)), None


def rejects(code: Code, reason: str = "no", result: Any = None) -> tuple[Any, Status]:
    return result, Status(code, (reason,))


ALL, SKIPPED = (None, None), (None, Status(Code.SKIP))
REJECTED, UNRESOLVABLE = Code.UNSCHEDULABLE, Code.UNSCHEDULABLE_AND_UNRESOLVABLE


@pytest.mark.parametrize("measured", [False, True])
@pytest.mark.parametrize(
    ("results", "names", "rejection", "confining", "runs"),
    [
        pytest.param([], None, None, "", [], id="no plugin"),
        pytest.param([ALL, ALL], None, None, "", [1, 1], id="all nodes"),
        pytest.param([only("a", "b"), ALL], {"a", "b"}, None, "A", [1, 1], id="one confines"),
        pytest.param([ALL, only("a")], {"a"}, None, "B", [1, 1], id="the second confines"),
        pytest.param([only("a", "b"), only("b", "c")], {"b"}, None, "AB", [1, 1], id="nodes of both"),
        pytest.param([SKIPPED, only("a")], {"a"}, None, "B", [1, 1], id="skipped"),
        pytest.param([(PreFilterResult(None), None), only("a")], {"a"}, None, "B", [1, 1], id="result for all nodes"),
        pytest.param(
            [only()], set(), ("node(s) didn't satisfy plugin A", UNRESOLVABLE, ""), "A", [1], id="one allows no node"
        ),
        pytest.param(
            [only("b"), only("a"), ALL],
            set(),
            ("node(s) didn't satisfy plugin(s) [A B] simultaneously", UNRESOLVABLE, ""),
            "AB",
            [1, 1, 0],
            id="no node for both",
        ),
        pytest.param(
            [rejects(REJECTED), only("a")], {"a"}, ("no", REJECTED, "A"), "B", [1, 1], id="rejected: the others run"
        ),
        pytest.param(
            [rejects(REJECTED, "x"), rejects(REJECTED, "y")],
            None,
            ("y", REJECTED, "B"),
            "",
            [1, 1],
            id="both",
        ),
        pytest.param(
            [only("a"), rejects(UNRESOLVABLE), ALL],
            None,
            ("no", UNRESOLVABLE, "B"),
            "",
            [1, 1, 0],
            id="unresolvable ends it",
        ),
    ],
)
def test_pre_filter_results_are_combined(measured, results, names, rejection, confining, runs):
    nodes = cluster()
    filters, state = nodes.make_framework().filters, CycleState(measured=measured)
    plugins = [Preparing(name, result) for name, result in zip("ABC", results, strict=False)]
    filters.pre_filter = plugins
    found, status, limiting = filters.run_pre_filter(state, PodInfo(make_pod("p")), nodes.snapshot)
    assert found == names
    assert (status and (status.message, status.code, status.plugin)) == rejection
    assert "".join(limiting) == confining
    assert [plugin.runs for plugin in plugins] == runs
    assert state.skip_filter == {
        plugin.name for plugin, result in zip(plugins, results, strict=True) if result is SKIPPED
    }


@pytest.mark.parametrize(
    "result",
    [
        pytest.param(rejects(Code.ERROR, "broken"), id="error"),
        pytest.param(ValueError("broken"), id="exception"),
        pytest.param((None, "broken"), id="no status"),
    ],
)
def test_failed_pre_filter_ends_the_attempt(result):
    nodes = cluster()
    filters, last = nodes.make_framework().filters, Preparing("B", ALL)
    filters.pre_filter = [Preparing("A", result), last]
    with pytest.raises(SchedulingError, match='running PreFilter plugin "A": ') as error:
        filters.run_pre_filter(CycleState(), PodInfo(make_pod("p")), nodes.snapshot)
    assert (error.value.plugin, last.runs) == ("A", 0)


FIRST, SECOND = PostFilterResult("a", 1), PostFilterResult("b", 2)


@pytest.mark.parametrize(
    ("results", "result", "status", "runs"),
    [
        pytest.param([], None, (REJECTED, (), ""), [], id="no plugin"),
        pytest.param([(FIRST, None), ALL], FIRST, (Code.SUCCESS, (), "A"), [1, 0], id="success ends it"),
        pytest.param(
            [rejects(REJECTED, "x"), (SECOND, None)], SECOND, (Code.SUCCESS, (), "B"), [1, 1], id="the second succeeds"
        ),
        pytest.param(
            [rejects(REJECTED, "x"), rejects(REJECTED, "y")],
            None,
            (REJECTED, ("x", "y"), "A"),
            [1, 1],
            id="both",
        ),
        pytest.param(
            [rejects(REJECTED, "x", FIRST), rejects(REJECTED, "y")],
            FIRST,
            (REJECTED, ("x", "y"), "A"),
            [1, 1],
            id="the result of the first",
        ),
        pytest.param(
            [rejects(REJECTED, "x", FIRST), rejects(REJECTED, "y", SECOND)],
            SECOND,
            (REJECTED, ("x", "y"), "A"),
            [1, 1],
            id="the last result",
        ),
        pytest.param(
            [rejects(UNRESOLVABLE, "x", FIRST), ALL], FIRST, (UNRESOLVABLE, ("x",), "A"), [1, 0], id="unresolvable"
        ),
        pytest.param([rejects(Code.ERROR, "x"), ALL], None, (Code.ERROR, ("x",), "A"), [1, 0], id="error"),
        pytest.param(
            [rejects(REJECTED, "x"), ValueError("y")],
            None,
            (Code.ERROR, ('running PostFilter plugin "B": y',), "B"),
            [1, 1],
            id="exception",
        ),
    ],
)
async def test_post_filter_results_are_combined(results, result, status, runs):
    nodes = cluster()
    filters = nodes.make_framework().filters
    plugins = [Preparing(name, outcome) for name, outcome in zip("AB", results, strict=False)]
    filters.post_filter = plugins
    statuses = NodeToStatus(nodes.snapshot)
    returned, combined = await filters.run_post_filter(CycleState(), PodInfo(make_pod("p")), nodes.snapshot, statuses)
    assert returned == result
    assert (combined.code, combined.reasons, combined.plugin) == status
    assert [plugin.runs for plugin in plugins] == runs


async def test_post_filter_with_an_invalid_status_is_an_error():
    nodes = cluster()
    filters = nodes.make_framework().filters
    filters.post_filter = [Preparing("A", (FIRST, "no status"))]
    statuses = NodeToStatus(nodes.snapshot)
    _, status = await filters.run_post_filter(CycleState(), PodInfo(make_pod("p")), nodes.snapshot, statuses)
    assert (status.code, status.plugin) == (Code.ERROR, "A")
    assert status.message.startswith('running PostFilter plugin "A": ')
