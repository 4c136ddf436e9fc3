"""PreFilter and Filter of the default profile over a snapshot."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from kubeloop.kube.objects.api_types import Pod
from kubeloop.scheduler.api.cycle_state import CycleState
from kubeloop.scheduler.api.extension_points import PostFilterResult, PreFilterResult, RowFilterResult
from kubeloop.scheduler.api.status import Code, Status
from kubeloop.scheduler.cache.node_info import NodeInfo, PodInfo
from kubeloop.scheduler.framework.class_cache import ClassCache
from kubeloop.scheduler.framework.fit_error import Diagnosis, NodeToStatus
from kubeloop.scheduler.framework.node_filters import NodeFilters
from kubeloop.scheduler.framework.plugin_calls import SchedulingError
from kubeloop.scheduler.framework.points.filter_points import FilterPoints
from kubeloop.scheduler.framework.timing import Timing
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


# --- every form of running the same filters --------------------------------------------------------------------------

CODES = {"no": Code.UNSCHEDULABLE, "never": Code.UNSCHEDULABLE_AND_UNRESOLVABLE, "wait": Code.PENDING}


class PerNode:
    """A filter that rejects a node with the code that the node's label of the filter's name has; calls: node names."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.calls: list[str] = []

    def filter(self, state: CycleState, pod: PodInfo, node: NodeInfo) -> Status | None:
        self.calls.append(node.name)
        assert node.node is not None
        value = node.node.metadata.labels.get(self.name, "")
        if value == "error":
            return Status(Code.ERROR, ("broken",))
        if value == "success":
            return Status(Code.SUCCESS)
        return Status(CODES[value], (f"{self.name} {value}",)) if value else None


class ByRows(PerNode):
    """The same filter in array form."""

    def filter_rows(self, state: CycleState, pod: PodInfo, snapshot: Any, rows: Any) -> RowFilterResult:
        statuses = [self.filter(state, pod, snapshot.node_infos[row]) for row in rows.tolist()]
        passed = [status is None or status.code is Code.SUCCESS for status in statuses]
        return RowFilterResult(np.array(passed, np.bool_), lambda index: statuses[index] or Status(Code.SUCCESS))


class RowLocal(ByRows):
    """The same filter, whose results are cached per class of pods."""

    row_local = True


class Filters:
    """The filters A, B and C over nodes. labels: what each filter says of a node, such as {"A": "no"}."""

    def __init__(
        self, plugins: str, nodes: dict[str, dict[str, str]], *, cached: bool, check_all: bool = False
    ) -> None:
        """plugins: a letter for each filter: n for PerNode, r for ByRows, l for RowLocal."""
        self.cluster = PluginCluster([make_node(name, labels=labels) for name, labels in nodes.items()])
        kinds = {"n": PerNode, "r": ByRows, "l": RowLocal}
        self.plugins: list[Any] = [kinds[kind](name) for name, kind in zip("ABC", plugins, strict=False)]
        points: dict[str, Any] = {"preFilter": [], "filter": self.plugins, "postFilter": []}
        timing = Timing(self.cluster.metrics, "default-scheduler", self.cluster.clock.time_ns)
        node_filters = NodeFilters(timing, self.plugins, [], self.cluster.nominator)
        cache = ClassCache() if cached else None
        self.filters = FilterPoints(
            timing, points, node_filters, self.cluster.nominator, cache, check_all_filters=check_all
        )
        self.pod = PodInfo(make_pod("p"))

    def run(
        self, rows: list[int] | None = None, *, skipped: str = "", measured: bool = False
    ) -> tuple[list[str], Diagnosis]:
        """Filter these rows, or all nodes; return the feasible nodes and the diagnosis."""
        snapshot, state = self.cluster.refresh(), CycleState(measured=measured)
        state.skip_filter.update(skipped)
        for plugin in self.plugins:
            plugin.calls.clear()
        diagnosis = Diagnosis(NodeToStatus(snapshot))
        chosen = snapshot.all_rows if rows is None else np.array(rows, np.intp)
        left = self.filters.run_filters(state, self.pod, snapshot, chosen, diagnosis)
        return [snapshot.node_infos[row].name for row in left], diagnosis

    def calls(self) -> list[list[str]]:
        return [plugin.calls for plugin in self.plugins]


NODES = {
    "n0": {},
    "n1": {"A": "no", "B": "never"},
    "n2": {"B": "no"},
    "n3": {"C": "never"},
    "n4": {"A": "success", "B": "success", "C": "success"},
    "n5": {"B": "never", "C": "no"},
    "n6": {"A": "never"},
}
REJECTIONS = {
    "n1": ("A", Code.UNSCHEDULABLE, "A no"),
    "n2": ("B", Code.UNSCHEDULABLE, "B no"),
    "n3": ("C", Code.UNSCHEDULABLE_AND_UNRESOLVABLE, "C never"),
    "n5": ("B", Code.UNSCHEDULABLE_AND_UNRESOLVABLE, "B never"),
    "n6": ("A", Code.UNSCHEDULABLE_AND_UNRESOLVABLE, "A never"),
}


def rejections(diagnosis: Diagnosis) -> dict[str, tuple[str, Code, str]]:
    return {name: (status.plugin, status.code, status.message) for name, status in diagnosis.node_to_status.items()}


@pytest.mark.parametrize("measured", [False, True])
@pytest.mark.parametrize("cached", [False, True])
@pytest.mark.parametrize("plugins", ["nnn", "rrr", "lll", "nrl", "lnr", "rln", "lln", "nll"])
@pytest.mark.parametrize("rows", [None, [0, 1, 2, 5, 6], [1, 3, 4, 5], [1], [4], []], ids=str)
def test_first_filter_that_rejects_a_node_explains_it_in_every_form(plugins, cached, rows, measured):
    filters = Filters(plugins, NODES, cached=cached)
    names = list(NODES) if rows is None else [f"n{row}" for row in rows]
    for _ in range(2):  # the second time from the cache
        feasible, diagnosis = filters.run(rows, measured=measured)
        assert feasible == [name for name in names if name not in REJECTIONS]
        expected = {name: REJECTIONS[name] for name in names if name in REJECTIONS}
        assert rejections(diagnosis) == expected
        assert diagnosis.unschedulable_plugins == {plugin for plugin, _, _ in expected.values()}
        assert diagnosis.pending_plugins == set()


@pytest.mark.parametrize("cached", [False, True])
@pytest.mark.parametrize("plugins", ["n", "r", "l"])
@pytest.mark.parametrize("rows", [None, [0, 1]], ids=str)
def test_plugins_of_pending_nodes_are_recorded_in_every_form(plugins, cached, rows):
    filters = Filters(plugins, {f"n{number}": {"A": "wait"} for number in range(6)}, cached=cached)
    feasible, diagnosis = filters.run(rows)
    assert (feasible, diagnosis.pending_plugins, diagnosis.unschedulable_plugins) == ([], {"A"}, {"A"})


@pytest.mark.parametrize("cached", [False, True])
@pytest.mark.parametrize("plugins", ["nnn", "rrr", "lll", "nrl"])
@pytest.mark.parametrize(
    ("skipped", "feasible"),
    [
        ("A", ["n0", "n4", "n6"]),
        ("B", ["n0", "n2", "n4"]),
        ("C", ["n0", "n3", "n4"]),
        ("AB", ["n0", "n1", "n2", "n4", "n6"]),
        ("ABC", list(NODES)),
    ],
)
def test_skipped_filters_reject_nothing_in_any_form(plugins, cached, skipped, feasible):
    filters = Filters(plugins, NODES, cached=cached)
    assert filters.run(skipped=skipped)[0] == feasible
    assert [plugin.name for plugin in filters.plugins if plugin.calls] == [
        name for name in "ABC" if name not in skipped
    ]
    few = [int(name[1]) for name in feasible[:2]]
    assert filters.run([0, *few[1:]], skipped=skipped)[0] == ["n0", *feasible[1:2]]


@pytest.mark.parametrize("cached", [False, True])
@pytest.mark.parametrize("plugins", ["nnn", "rrr", "lll"])
def test_filters_after_the_first_that_rejects_all_nodes_do_not_run(plugins, cached):
    filters = Filters(plugins, {name: {"B": "no"} for name in ("x", "y", "z", "u", "v")}, cached=cached)
    assert filters.run()[0] == []
    assert [bool(calls) for calls in filters.calls()] == [True, True, False]


@pytest.mark.parametrize("changed", [1, 4, 5])
def test_only_changed_nodes_are_filtered_again_by_row_local_filters(changed):
    names = [f"n{number}" for number in range(7)]
    filters = Filters("ln", {name: {} for name in names}, cached=True)
    filters.run()
    assert filters.calls() == [names, names]
    assert filters.run()[0] == names
    assert filters.calls() == [[], names], "no node has changed"
    for name in names[:changed]:
        filters.cluster.cache.update_node(make_node(name), make_node(name, labels={"A": "no"}))
    feasible, diagnosis = filters.run()
    assert feasible == names[changed:]
    assert set(filters.plugins[0].calls) == set(names[:changed])
    assert filters.plugins[1].calls == names[changed:]
    assert set(rejections(diagnosis)) == set(names[:changed])
    for name in names[:changed]:
        filters.cluster.cache.update_node(make_node(name), make_node(name, labels={"A": "never"}))
    _, diagnosis = filters.run()
    assert {message for _, _, message in rejections(diagnosis).values()} == {"A never"}, "the reason is not cached"


@pytest.mark.parametrize("cached", [False, True])
@pytest.mark.parametrize("plugins", ["n", "r", "l", "nn", "rr", "ll", "ln"])
def test_errors_of_filters_name_the_plugin_in_every_form(plugins, cached):
    name = "AB"[len(plugins) - 1]
    nodes = {"n0": {}, "n1": {name: "error"}, "n2": {name: "no"}, "n3": {}, "n4": {}, "n5": {}}
    filters = Filters(plugins, nodes, cached=cached)
    for rows in (None, [0, 1], [0, 1, 2, 3, 4, 5]):
        with pytest.raises(SchedulingError, match=f'^running "{name}" filter plugin: broken$') as error:
            filters.run(rows)
        assert error.value.plugin == name


@pytest.mark.parametrize(
    ("labels", "status"),
    [
        ({}, None),
        ({"A": "no"}, ("A", Code.UNSCHEDULABLE, "A no")),
        ({"A": "no", "B": "no"}, ("A", Code.UNSCHEDULABLE, "A no, B no")),
        ({"A": "no", "C": "never"}, ("A", Code.UNSCHEDULABLE_AND_UNRESOLVABLE, "A no, C never")),
        ({"B": "never", "C": "no"}, ("B", Code.UNSCHEDULABLE_AND_UNRESOLVABLE, "B never, C no")),
        ({"C": "no"}, ("C", Code.UNSCHEDULABLE, "C no")),
    ],
)
def test_all_reasons_of_a_node_are_reported_if_all_filters_are_checked(labels, status):
    filters = Filters("nrl", {"n0": labels, "n1": {}}, cached=False, check_all=True)
    feasible, diagnosis = filters.run()
    assert feasible == (["n0", "n1"] if status is None else ["n1"])
    assert rejections(diagnosis) == ({} if status is None else {"n0": status})
    assert diagnosis.unschedulable_plugins == set(labels)
    assert filters.calls() == [["n0", "n1"]] * 3


def test_error_is_raised_after_all_filters_were_checked():
    filters = Filters("nn", {"n0": {"A": "error", "B": "no"}, "n1": {"B": "error"}}, cached=False, check_all=True)
    with pytest.raises(
        SchedulingError, match=r'^\[running "A" filter plugin: broken, running "B" filter plugin'
    ) as error:
        filters.run()
    assert error.value.plugin == "A"
    assert filters.calls() == [["n0", "n1"]] * 2


class RowsOnly:
    """A filter without a per-node form that rejects the nodes with the label of its name."""

    def __init__(self, name: str) -> None:
        self.name = name

    def filter_rows(self, state: CycleState, pod: PodInfo, snapshot: Any, rows: Any) -> RowFilterResult:
        nodes = [snapshot.node_infos[row].node for row in rows.tolist()]
        passed = np.array([self.name not in node.metadata.labels for node in nodes], np.bool_)
        return RowFilterResult(passed, lambda _: Status(Code.UNSCHEDULABLE, ("no",)))


@pytest.mark.parametrize("cached", [False, True])
@pytest.mark.parametrize("rows", [None, [0, 1], [0, 1, 2, 3, 4, 5]], ids=str)
def test_filter_without_a_per_node_form_runs_by_rows(cached, rows):
    filters = Filters("n", {f"n{number}": {"A": "no"} if number % 2 else {} for number in range(6)}, cached=cached)
    timing = filters.filters.timing
    points = FilterPoints(
        timing,
        {"preFilter": [], "filter": [RowsOnly("A")], "postFilter": []},
        NodeFilters(timing, [RowsOnly("A")], [], filters.cluster.nominator),
        filters.cluster.nominator,
        ClassCache() if cached else None,
        check_all_filters=False,
    )
    snapshot = filters.cluster.refresh()
    diagnosis = Diagnosis(NodeToStatus(snapshot))
    chosen = snapshot.all_rows if rows is None else np.array(rows, np.intp)
    left = points.run_filters(CycleState(), filters.pod, snapshot, chosen, diagnosis)
    assert left.tolist() == [row for row in chosen.tolist() if row % 2 == 0]
    assert diagnosis.errors == []


# --- nominated pods ---------------------------------------------------------------------------------------------------


class PodLimit(PerNode):
    """A filter that rejects nodes with two pods or more. A node with the label "error" and two pods is an error."""

    def filter(self, state: CycleState, pod: PodInfo, node: NodeInfo) -> Status | None:
        self.calls.append(node.name)
        assert node.node is not None
        if len(node.pods) < 2:
            return None
        code = Code.ERROR if "error" in node.node.metadata.labels else Code.UNSCHEDULABLE
        return Status(code, ("too many pods",))


class SummedPodLimit(PodLimit):
    """The same, which reads the number of pods only, so that results with nominated pods are cached."""

    reads_only_pod_sums = True


def limited(
    kind: type[PodLimit], nominations: list[tuple[str, int, str]], *, cached: bool, labels: Any = None
) -> Filters:
    """Return filters over the nodes x, y and z with one pod each. nominations: (pod, priority, node)."""
    filters = Filters("n", {name: labels or {} for name in "xyz"}, cached=cached)
    filters.plugins[0] = kind("A")
    filters.filters.filter[0] = filters.plugins[0]
    for name in "xyz":
        filters.cluster.cache.add_pod(make_pod(f"on-{name}", name))
    for name, priority, node in nominations:
        pod = make_pod(name, priority=priority)
        filters.cluster.pods.put(pod.key, pod)
        filters.cluster.nominator.add(PodInfo(pod), node)
    filters.pod = PodInfo(make_pod("p", priority=5))
    return filters


@pytest.mark.parametrize("cached", [False, True])
@pytest.mark.parametrize("kind", [PodLimit, SummedPodLimit])
@pytest.mark.parametrize("rows", [None, [0, 1, 2]], ids=str)
@pytest.mark.parametrize(
    ("nominations", "feasible"),
    [
        pytest.param([], "xyz", id="no nominated pod"),
        pytest.param([("q", 4, "x")], "xyz", id="lower priority"),
        pytest.param([("q", 5, "x")], "yz", id="the same priority"),
        pytest.param([("q", 6, "x")], "yz", id="higher priority"),
        pytest.param([("q", 6, "x"), ("r", 5, "z")], "y", id="two nodes"),
        pytest.param([("q", 4, "x"), ("r", 5, "x")], "yz", id="one of two on a node"),
        pytest.param([("p", 5, "x")], "xyz", id="the pod itself"),
        pytest.param([("p", 5, "x"), ("q", 5, "x")], "yz", id="the pod itself and another one"),
        pytest.param([("p", 5, "y"), ("q", 5, "x")], "yz", id="the pod itself on another node"),
        pytest.param([("q", 6, "gone")], "xyz", id="node that does not exist"),
    ],
)
def test_pod_must_fit_with_nominated_pods_of_at_least_its_priority(kind, cached, rows, nominations, feasible):
    filters = limited(kind, nominations, cached=cached)
    for _ in range(2):  # the second time from the cache
        names, diagnosis = filters.run(rows)
        assert names == list(feasible)
        expected = {name: ("A", Code.UNSCHEDULABLE, "too many pods") for name in "xyz" if name not in feasible}
        assert rejections(diagnosis) == expected
        assert diagnosis.unschedulable_plugins == ({"A"} if expected else set())


@pytest.mark.parametrize("kind", [PodLimit, SummedPodLimit])
@pytest.mark.parametrize(("rows", "feasible"), [([1, 2], "yz"), ([0], ""), ([0, 2], "z"), ([2], "z")])
def test_nominated_pods_count_on_the_filtered_nodes_only(kind, rows, feasible):
    filters = limited(kind, [("q", 5, "x")], cached=True)
    names, diagnosis = filters.run(rows)
    assert names == list(feasible)
    assert set(rejections(diagnosis)) == ({"x"} if 0 in rows else set())


@pytest.mark.parametrize("cached", [False, True])
@pytest.mark.parametrize("kind", [PodLimit, SummedPodLimit])
def test_error_with_nominated_pods_ends_the_attempt(kind, cached):
    filters = limited(kind, [("q", 5, "x")], cached=cached, labels={"error": ""})
    for rows in (None, [0, 1, 2]):
        with pytest.raises(SchedulingError, match='running "A" filter plugin: too many pods'):
            filters.run(rows)


@pytest.mark.parametrize(("priority", "feasible"), [(4, "yz"), (5, "yz"), (6, "xyz"), (7, "xyz")])
def test_results_with_nominated_pods_are_cached_by_priority(priority, feasible):
    filters = limited(SummedPodLimit, [("q", 5, "x")], cached=True)
    assert filters.run()[0] == ["y", "z"]
    filters.pod = PodInfo(make_pod("other", priority=priority))
    assert filters.run()[0] == list(feasible)
    filters.cluster.nominator.remove("q")
    assert filters.run()[0] == ["x", "y", "z"]
