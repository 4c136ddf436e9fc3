"""PreFilter and Filter of the default profile over a snapshot."""

from __future__ import annotations

import numpy as np
import pytest

from kubeloop.kube.objects.api_types import Pod
from kubeloop.scheduler.api.cycle_state import CycleState
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
