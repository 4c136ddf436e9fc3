"""NodeResourcesFit with arguments other than the defaults, which the oracle tests cover; extreme requests."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from kubeloop.kube.objects.api_types import Node, Pod, convert
from kubeloop.kube.user_error import UserError
from kubeloop.scheduler.api.cycle_state import CycleState, PodGroupCycleState
from kubeloop.scheduler.api.events import Hint
from kubeloop.scheduler.api.extension_points import Placement, PodGroupAssignments, PodGroupInfo
from kubeloop.scheduler.api.status import Code
from kubeloop.scheduler.cache.node_info import PodInfo
from kubeloop.scheduler.cache.pod_groups import PodGroupState
from kubeloop.scheduler.config import plugin_args
from kubeloop.scheduler.framework.fit_error import Diagnosis, NodeToStatus
from kubeloop.scheduler.plugins.node_resources.fit import NodeResourcesFit
from support.objects.devices import FilledDevices, allocated, claim, device, device_class, device_slice, typed
from support.scheduling.plugin_cluster import PluginCluster, make_member, make_node, make_pod, raw_scores, rejections


def fit_args(**strategy: Any) -> plugin_args.NodeResourcesFitArgs:
    return convert(plugin_args.NodeResourcesFitArgs, {"scoringStrategy": strategy})


CPU = [{"name": "cpu", "weight": 1}]


@pytest.mark.parametrize(
    ("strategy", "scores"),
    [
        pytest.param({"type": "LeastAllocated", "resources": CPU}, [75, 50, 0, 75, 75, 75], id="LeastAllocated"),
        pytest.param({"type": "MostAllocated", "resources": CPU}, [25, 50, 100, 25, 25, 25], id="MostAllocated"),
        pytest.param(
            {
                "type": "RequestedToCapacityRatio",
                "resources": CPU,
                "requestedToCapacityRatio": {
                    "shape": [{"utilization": 0, "score": 0}, {"utilization": 50, "score": 10}, {"utilization": 100}]
                },
            },
            [50, 100, 0, 50, 50, 50],
            id="RequestedToCapacityRatio",
        ),
    ],
)
def test_scoring_strategies(
    strategy: dict[str, Any], scores: list[int], plugin_cluster: Any, node: Any, pod: Any
) -> None:
    cluster = plugin_cluster(
        [node(f"n{number}") for number in range(6)], [pod("one", "n1", cpu="1"), pod("full", "n2", cpu="4")]
    )
    plugin = NodeResourcesFit(fit_args(**strategy), cluster)
    assert raw_scores(plugin, cluster, PodInfo(pod("new", cpu="1"))) == scores


def test_unknown_scoring_strategy_raises_user_error(plugin_cluster: Any) -> None:
    with pytest.raises(UserError, match="scoring strategy Fullest is not supported"):
        NodeResourcesFit(fit_args(type="Fullest"), plugin_cluster())


def test_ignored_extended_resources_are_not_filtered(plugin_cluster: Any, node: Any, pod: Any) -> None:
    cluster = plugin_cluster([node("n")])
    requested = {"limits": {}, "requests": {"example.com/gpu": "1", "other.io/nic": "1", "cpu": "100"}}
    new = pod("new", containers=[{"name": "c", "resources": requested}])
    args = plugin_args.NodeResourcesFitArgs(
        ignored_resources=("example.com/gpu",), ignored_resource_groups=("other.io",)
    )
    plugin = NodeResourcesFit(args, cluster)
    status = plugin.filter(CycleState(), PodInfo(new), cluster.snapshot.node_infos[0])
    assert status is not None
    assert status.reasons == ("Insufficient cpu",)


def test_extreme_requests_do_not_overflow(plugin_cluster: Any, node: Any, pod: Any) -> None:
    placed = [pod(name, "full", cpu="9e15", memory="9e18") for name in ("x", "y")]
    cluster = plugin_cluster(
        [node("full"), *[node(f"n{number}", allocatable={"memory": "9E"}) for number in range(6)]], placed
    )
    for incoming in (pod("p", cpu="1"), pod("q", memory="1e30"), pod("r")):
        state, info = CycleState(), PodInfo(incoming)
        cluster.framework.filters.run_pre_filter(state, info, cluster.snapshot)
        diagnosis = Diagnosis(NodeToStatus(cluster.snapshot))
        rows = cluster.framework.filters.run_filters(
            state, info, cluster.snapshot, cluster.snapshot.all_rows, diagnosis
        )
        names = {cluster.snapshot.node_infos[row].name for row in rows}
        assert names == ({f"n{number}" for number in range(6)} if incoming.metadata.name != "q" else set()) | (
            {"full"} if incoming.metadata.name == "r" else set()
        )
        if names:
            cluster.framework.scores.run_pre_score(state, info, cluster.snapshot, rows)
            assert cluster.framework.scores.run_scores(state, info, cluster.snapshot, rows).min() >= 0


@pytest.mark.parametrize(("enabled", "rejected"), [(True, ["a"]), (False, [])])
def test_pod_level_resources_need_their_feature_gate(
    enabled: bool, rejected: list[str], plugin_cluster: Any, node: Any, pod: Any
) -> None:
    cluster = plugin_cluster([node("a")], feature_gates={"PodLevelResources": enabled})
    plugin = NodeResourcesFit(plugin_args.NodeResourcesFitArgs(), cluster)
    # a status with resources, so that the plugin computes the requests of the pending pod itself
    incoming = pod("p", cpu="1", resources={"requests": {"cpu": "5"}}, status={"resources": {"requests": {"cpu": "9"}}})
    assert list(rejections(plugin, cluster, incoming)) == rejected
    (hint,) = [entry.hint for entry in plugin.events_to_register() if entry.event.resource == "Node"]
    assert hint is not None
    assert hint(incoming, None, node("new")) is (Hint.SKIP if enabled else Hint.QUEUE)


@pytest.mark.parametrize("enabled", [True, False])
def test_pod_level_resize_helps_if_its_feature_gate_is_on(
    enabled: bool, plugin_cluster: Any, node: Any, pod: Any
) -> None:
    cluster = plugin_cluster([node("a")], feature_gates={"InPlacePodLevelResourcesVerticalScaling": enabled})
    plugin = NodeResourcesFit(plugin_args.NodeResourcesFitArgs(), cluster)
    (hint,) = [entry.hint for entry in plugin.events_to_register() if entry.event.resource == "Pod"]
    assert hint is not None
    old, new = (
        pod("other", "a", resources={"requests": {"cpu": "1"}}, status={"resources": {"requests": {"cpu": cpu}}})
        for cpu in ("3", "1")
    )
    assert hint(pod("p", cpu="1"), old, new) is (Hint.QUEUE if enabled else Hint.SKIP)


def test_pod_is_tried_again_after_events_that_free_or_add_what_it_requests(
    plugin_cluster: Any, node: Any, pod: Any
) -> None:
    plugin = NodeResourcesFit(plugin_args.NodeResourcesFitArgs(), plugin_cluster([node("a")]))
    hints = {entry.event.resource: entry.hint for entry in plugin.events_to_register()}
    incoming, bound, waiting = pod("p", cpu="2"), pod("q", "a", cpu="2"), pod("q", cpu="2")
    small, large = (node("b", allocatable={"cpu": cpu}) for cpu in ("1", "4"))
    queued = {
        "a bound pod is deleted": hints["Pod"](incoming, bound, None),
        "a node is added": hints["Node"](incoming, None, large),
        "a node has grown": hints["Node"](incoming, small, large),
    }
    skipped = {
        "a pod that waits is deleted": hints["Pod"](incoming, waiting, None),
        "a pod is created": hints["Pod"](incoming, None, bound),
        "a pod that waits is scaled down": hints["Pod"](incoming, pod("q", cpu="3"), waiting),
        "a node is deleted": hints["Node"](incoming, large, None),
        "a node that is too small is added": hints["Node"](incoming, None, small),
        "a node has not changed": hints["Node"](incoming, large, large),
        "a class serves another resource": hints["resource.k8s.io/DeviceClass"](incoming, None, typed(device_class())),
    }
    assert queued == dict.fromkeys(queued, Hint.QUEUE)
    assert skipped == dict.fromkeys(skipped, Hint.SKIP)


def test_node_without_the_resource_pods_takes_no_pod(plugin_cluster: Any, pod: Any) -> None:
    node = convert(Node, {"metadata": {"name": "a", "uid": "a"}, "status": {"allocatable": {"cpu": "4"}}})
    plugin = NodeResourcesFit(plugin_args.NodeResourcesFitArgs(), plugin_cluster([node]))
    assert rejections(plugin, plugin_cluster([node]), pod("p")) == {"a": ("Too many pods",)}


@pytest.mark.parametrize(
    ("resources", "nodes", "bound", "members", "score"),
    [
        # per resource: 100 * (requested on the nodes + by the members) // allocatable of the nodes
        pytest.param("cpu", "ab", ["a", "a"], 2, 50, id="sums over the nodes"),  # (2 + 2) / 8 CPUs
        pytest.param("cpu", "b", ["a", "a"], 2, 50, id="other nodes do not count"),  # 2 / 4
        pytest.param("cpu memory", "ab", [], 2, 13, id="mean of the resources"),  # 2 / 8, and 2 * 200Mi / 16Gi
        pytest.param("cpu", "b", ["b"] * 3, 2, 100, id="at most 100"),
        pytest.param("cpu example.com/gpu", "ab", [], 2, 25, id="a resource without requests"),
        pytest.param("cpu", "", [], 2, 0, id="no nodes"),
    ],
)
def test_placement_that_the_group_fills_up_scores_higher(resources, nodes, bound, members, score):
    args = fit_args(type="LeastAllocated", resources=[{"name": name, "weight": 1} for name in resources.split()])
    cluster = PluginCluster(
        [make_node(name, allocatable={"example.com/gpu": "8"}) for name in "ab"],
        [make_pod(f"p{number}", node, cpu="1") for number, node in enumerate(bound)],
    )
    snapshot = cluster.snapshot
    rows = np.array([snapshot.row_of[name] for name in nodes], np.intp)
    assignments = tuple((PodInfo(make_member(f"m{number}", cpu="1")), "b") for number in range(members))
    plugin = NodeResourcesFit(args, cluster)
    state = PodGroupCycleState(PodGroupState())
    proposed = PodGroupAssignments(Placement("rack", rows), assignments)
    assert plugin.score_placement(state, PodGroupInfo("default", "g"), snapshot, proposed) == score


# --- extended resources that devices provide -------------------------------------------------------------------------

GPU = "example.com/gpu"


@pytest.fixture
def devices_cluster(plugin_cluster: Any, node: Any) -> Any:
    """Return a function that returns a cluster: plugin has two GPUs by its device plugin, devices two as devices."""

    def create(many: bool = False, **gates: bool) -> Any:
        names = [f"n{number}" for number in range(20)] if many else []
        nodes = [node("plugin", allocatable={GPU: "2"}), node("devices"), node("none"), *map(node, names)]
        cluster = plugin_cluster(nodes, feature_gates=gates)
        cluster.devices = FilledDevices(
            device_class(extendedResourceName=GPU),
            device_slice("devices", device("d"), device("e")),
            claim("c", status=allocated(("devices", "e"))),
            gates=gates,
        )
        return cluster

    return create


def with_gpus(pod: Any, name: str = "p", count: int = 1, resource: str = GPU, **fields: Any) -> Pod:
    result: Pod = pod(name, containers=[{"name": "c", "resources": {"requests": {resource: str(count)}}}], **fields)
    return result


@pytest.mark.parametrize("many", [False, True])
def test_devices_are_left_to_dynamic_resources(many: bool, devices_cluster: Any, pod: Any) -> None:
    cluster = devices_cluster(many)
    plugin = NodeResourcesFit(fit_args(type="LeastAllocated", resources=CPU), cluster)
    assert rejections(plugin, cluster, with_gpus(pod, count=3)) == {"plugin": (f"Insufficient {GPU}",)}
    statuses = explained(plugin, cluster, with_gpus(pod, count=3), [0])
    assert [(status.reasons, status.code.name) for status in statuses] == [
        ((f"Insufficient {GPU}",), "UNSCHEDULABLE_AND_UNRESOLVABLE")
    ]
    assert rejections(plugin, cluster, with_gpus(pod)) == {}
    unknown = rejections(plugin, cluster, with_gpus(pod, resource="example.com/none"))
    assert unknown.keys() == {info.name for info in cluster.snapshot.node_infos}


def explained(plugin: NodeResourcesFit, cluster: Any, pod: Pod, rows: list[int]) -> list[Any]:
    state, info, snapshot = CycleState(), PodInfo(pod), cluster.snapshot
    plugin.pre_filter(state, info, snapshot)
    statuses = plugin.explain_rows(state, info, snapshot, np.array(rows))
    return [statuses.statuses[code] for code in statuses.codes]


def test_devices_need_their_feature_gate(devices_cluster: Any, pod: Any) -> None:
    cluster = devices_cluster(DRAExtendedResource=False)
    plugin = NodeResourcesFit(fit_args(type="LeastAllocated", resources=CPU), cluster)
    assert rejections(plugin, cluster, with_gpus(pod)).keys() == {"devices", "none"}
    assert [entry.event.resource for entry in plugin.events_to_register()] == ["Pod", "Node"]


def test_change_of_a_class_is_seen_by_cached_filters(devices_cluster: Any, pod: Any) -> None:
    cluster = devices_cluster()
    framework, snapshot = cluster.framework, cluster.snapshot
    cluster.devices.extended_resources._changed = snapshot.classes.clear

    def fitting() -> list[str]:
        state, info, diagnosis = CycleState(), PodInfo(with_gpus(pod)), Diagnosis(NodeToStatus(snapshot))
        framework.filters.run_pre_filter(state, info, snapshot)
        rows = framework.filters.run_filters(state, info, snapshot, snapshot.all_rows, diagnosis)
        return [snapshot.node_infos[row].name for row in rows]

    assert fitting() == ["plugin", "devices"]
    cluster.devices.delete(device_class(extendedResourceName=GPU))
    assert fitting() == ["plugin"]


@pytest.mark.parametrize(
    ("old", "new", "queued"),
    [
        pytest.param(None, {"extendedResourceName": GPU}, True, id="added"),
        pytest.param(None, {"extendedResourceName": "example.com/other"}, False, id="another resource"),
        pytest.param({}, {"extendedResourceName": GPU}, True, id="named"),
        pytest.param({"extendedResourceName": GPU}, {"extendedResourceName": GPU}, False, id="unchanged"),
        pytest.param({"extendedResourceName": GPU}, {}, False, id="no name any more"),
    ],
)
def test_hint_after_a_class_changes(old: Any, new: Any, queued: bool, devices_cluster: Any, pod: Any) -> None:
    plugin = NodeResourcesFit(fit_args(type="LeastAllocated", resources=CPU), devices_cluster())
    (hint,) = [entry.hint for entry in plugin.events_to_register() if "DeviceClass" in entry.event.resource]
    assert hint is not None
    before = None if old is None else typed(device_class(**old))
    result = hint(with_gpus(pod), before, typed(device_class(**new)))
    assert result is (Hint.QUEUE if queued else Hint.SKIP)


def test_hint_after_the_class_of_an_implicit_resource_is_added(devices_cluster: Any, pod: Any) -> None:
    plugin = NodeResourcesFit(fit_args(type="LeastAllocated", resources=CPU), devices_cluster())
    (hint,) = [entry.hint for entry in plugin.events_to_register() if "DeviceClass" in entry.event.resource]
    assert hint is not None
    incoming = with_gpus(pod, resource="deviceclass.resource.kubernetes.io/gpu")
    assert hint(incoming, None, typed(device_class())) is Hint.QUEUE
    assert hint(incoming, typed(device_class()), typed(device_class(extendedResourceName=GPU))) is Hint.SKIP


@pytest.mark.parametrize(("resource", "queued"), [(GPU, True), ("example.com/none", False)], ids=["devices", "neither"])
def test_hint_after_a_node_without_the_resource_changes(
    resource: str, queued: bool, devices_cluster: Any, node: Any, pod: Any
) -> None:
    plugin = NodeResourcesFit(fit_args(type="LeastAllocated", resources=CPU), devices_cluster())
    (hint,) = [entry.hint for entry in plugin.events_to_register() if entry.event.resource == "Node"]
    assert hint is not None
    expected = Hint.QUEUE if queued else Hint.SKIP
    assert hint(with_gpus(pod, resource=resource), None, node("new")) is expected
    assert hint(with_gpus(pod, resource=resource), node("a"), node("a", allocatable={"cpu": "1"})) is expected


@pytest.mark.parametrize("many", [False, True])
def test_devices_count_in_scores(many: bool, devices_cluster: Any, pod: Any) -> None:
    cluster = devices_cluster(many)
    plugin = NodeResourcesFit(fit_args(type="MostAllocated", resources=[{"name": GPU, "weight": 1}]), cluster)
    assert not plugin.row_local  # changes of devices change no row
    scores = raw_scores(plugin, cluster, PodInfo(with_gpus(pod)))
    assert scores[:3] == [50, 100, 0]  # one of two; one of two devices is in use; no devices
    assert set(scores[3:]) <= {0}


@pytest.mark.parametrize(
    ("old", "new", "expected"),
    [
        pytest.param(None, {"pods": "1"}, Hint.QUEUE, id="new, room for one pod"),
        pytest.param(None, {"pods": "0"}, Hint.SKIP, id="new, room for no pod"),
        pytest.param(None, {"cpu": "2"}, Hint.QUEUE, id="new, exactly the request"),
        pytest.param(None, {"cpu": "1999m"}, Hint.SKIP, id="new, too small"),
        pytest.param({"cpu": "2"}, {"cpu": "2001m"}, Hint.QUEUE, id="more CPUs"),
        pytest.param({"cpu": "3"}, {"cpu": "2"}, Hint.SKIP, id="fewer CPUs, still enough"),
        pytest.param({"pods": "1"}, {"pods": "2"}, Hint.QUEUE, id="more pods"),
        pytest.param({"memory": "1Gi"}, {"memory": "2Gi"}, Hint.SKIP, id="more of what it does not request"),
        pytest.param({"cpu": "1", "pods": "9"}, {"cpu": "1", "pods": "10"}, Hint.SKIP, id="more pods, too few CPUs"),
    ],
)
def test_node_change_wakes_pods_that_it_may_fit(
    old: dict[str, str] | None, new: dict[str, str], expected: Hint, plugin_cluster: Any, node: Any, pod: Any
) -> None:
    plugin = NodeResourcesFit(plugin_args.NodeResourcesFitArgs(), plugin_cluster([node("a")]))
    (hint,) = [entry.hint for entry in plugin.events_to_register() if entry.event.resource == "Node"]
    assert hint is not None
    before, after = (
        None if amounts is None else node("b", allocatable={"cpu": "4", "memory": "8Gi", "pods": "9"} | amounts)
        for amounts in (old, new)
    )
    assert hint(pod("p", cpu="2"), before, after) is expected


@pytest.mark.parametrize(
    ("spec", "reasons", "unresolvable"),
    [
        pytest.param({"cpu": "3", "memory": "6Gi"}, (), False, id="exactly what is free"),
        pytest.param({"cpu": "3001m", "memory": "6Gi"}, ("Insufficient cpu",), False, id="too much CPU"),
        pytest.param({"cpu": "3", "memory": "7Gi"}, ("Insufficient memory",), False, id="too much memory"),
        pytest.param({"cpu": "4", "memory": "8Gi"}, ("Insufficient cpu", "Insufficient memory"), False, id="both"),
        pytest.param({"cpu": "4001m"}, ("Insufficient cpu",), True, id="more than the node has"),
        pytest.param({"cpu": "4", "memory": "9Gi"}, ("Insufficient cpu", "Insufficient memory"), True, id="one never"),
        pytest.param({"cpu": "3", "memory": "9Gi"}, ("Insufficient memory",), True, id="one exactly, one never"),
        pytest.param({"overhead": {"cpu": "3001m"}}, ("Insufficient cpu",), False, id="overhead"),
    ],
)
def test_reasons_of_insufficient_resources(spec, reasons, unresolvable):
    """The node has 4 CPUs and 8Gi, of which 1 CPU and 2Gi are used."""
    cluster = PluginCluster([make_node("a")], [make_pod("old", "a", cpu="1", memory="2Gi")])
    plugin, pod = NodeResourcesFit(plugin_args.NodeResourcesFitArgs(), cluster), make_pod("new", **spec)
    assert rejections(plugin, cluster, pod) == ({"a": reasons} if reasons else {})
    if not reasons:
        return
    state, snapshot, info = CycleState(), cluster.snapshot, PodInfo(pod)
    plugin.pre_filter(state, info, snapshot)
    status = plugin.filter(state, info, snapshot.node_infos[0])
    assert (status.code is Code.UNSCHEDULABLE_AND_UNRESOLVABLE) is unresolvable
    explained = plugin.explain_rows(state, info, snapshot, snapshot.all_rows)
    assert explained.statuses[explained.codes[0]] == status


@pytest.mark.parametrize(("allowed", "reasons"), [("2", ()), ("1", ("Too many pods",)), ("0", ("Too many pods",))])
def test_reason_of_too_many_pods(allowed, reasons):
    cluster = PluginCluster([make_node("a", allocatable={"pods": allowed})], [make_pod("old", "a")])
    plugin = NodeResourcesFit(plugin_args.NodeResourcesFitArgs(), cluster)
    assert rejections(plugin, cluster, make_pod("new", cpu="4")) == ({"a": reasons} if reasons else {})
    too_big = ("Too many pods", "Insufficient cpu") if reasons else ("Insufficient cpu",)
    assert rejections(plugin, cluster, make_pod("new", cpu="5")) == {"a": too_big}


@pytest.mark.parametrize(
    ("strategy", "expected"),
    [
        pytest.param("LeastAllocated", [95, 97], id="LeastAllocated"),
        pytest.param("MostAllocated", [5, 2], id="MostAllocated"),
    ],
)
def test_pods_without_requests_count_as_100m_and_200mi(strategy, expected, plugin_cluster, node, pod):
    """n0 has such a pod, and the new pod is another one: 200m of 4 CPUs are 5 percent."""
    cluster = plugin_cluster([node("n0"), node("n1")], [pod("old", "n0")])
    plugin = NodeResourcesFit(fit_args(type=strategy, resources=CPU), cluster)
    assert raw_scores(plugin, cluster, PodInfo(pod("new"))) == expected


@pytest.mark.parametrize("spec", [{}, {"resources": {"requests": {"cpu": "3"}}}], ids=["containers", "pod level"])
def test_scores_of_the_incoming_pod_ignore_pod_level_requests(spec, plugin_cluster, node, pod):
    cluster = plugin_cluster([node("n")])
    plugin = NodeResourcesFit(fit_args(type="LeastAllocated", resources=CPU), cluster)
    assert raw_scores(plugin, cluster, PodInfo(pod("new", cpu="1", **spec))) == [75]


def test_requests_are_computed_once_per_attempt(plugin_cluster, node, pod):
    """Filter and Score use the requests that PreFilter and PreScore have computed."""
    cluster = plugin_cluster([node("n")])
    plugin, snapshot = NodeResourcesFit(fit_args(type="LeastAllocated", resources=CPU), cluster), cluster.snapshot
    small, large, state = PodInfo(pod("small", cpu="1")), PodInfo(pod("large", cpu="5")), CycleState()
    plugin.pre_filter(state, large, snapshot)
    plugin.pre_score(state, small, snapshot, snapshot.all_rows)
    assert plugin.filter(state, small, snapshot.node_infos[0]).reasons == ("Insufficient cpu",)
    assert plugin.score(state, large, snapshot.node_infos[0]) == 75


def test_resource_of_devices_does_not_hide_the_next_reason(devices_cluster: Any) -> None:
    cluster = devices_cluster()
    plugin = NodeResourcesFit(fit_args(type="LeastAllocated", resources=CPU), cluster)
    containers = [{"name": "c", "resources": {"requests": {GPU: "1", "cpu": "5", "memory": "9Gi"}}}]
    (status,) = explained(plugin, cluster, make_pod("p", containers=containers), [1])
    assert status.reasons == ("Insufficient cpu", "Insufficient memory")


def test_ignored_groups_are_of_extended_resources_only(plugin_cluster: Any, node: Any, pod: Any) -> None:
    args = plugin_args.NodeResourcesFitArgs(
        ignored_resources=("cpu", "hugepages-2Mi"), ignored_resource_groups=("cpu", "example.com")
    )
    plugin = NodeResourcesFit(args, cluster := plugin_cluster([node("n")]))
    requests = {"cpu": "5", "hugepages-2Mi": "2Mi", "example.com/gpu": "1", "example.org/gpu": "1"}
    incoming = pod("p", containers=[{"name": "c", "resources": {"requests": requests}}])
    expected = ("Insufficient cpu", "Insufficient hugepages-2Mi", "Insufficient example.org/gpu")
    assert rejections(plugin, cluster, incoming) == {"n": expected}
