"""Out-of-tree plugins that raise or return invalid values: the pod's attempt fails and its event names the plugin.

Other extension points are covered by test_out_of_tree_plugins.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any

import pytest

from kubeloop.kube.objects.api_types import Struct
from kubeloop.kube.user_error import UserError
from kubeloop.scheduler.api.events import NODE, ActionType, ClusterEventWithHint, cluster_event
from kubeloop.scheduler.api.extension_points import RowFilterResult
from kubeloop.scheduler.api.status import Code, Status
from kubeloop.scheduler.config import out_of_tree_plugins
from kubeloop.scheduler.config.defaults import DEFAULT_PLUGINS
from kubeloop.scheduler.config.load import read_configuration
from kubeloop.scheduler.config.plugin_sets import PluginRef, PluginSet
from kubeloop.scheduler.config.types import Profile, SchedulerConfiguration

pytestmark = pytest.mark.virtual_time


class NamedPlugin:
    name = "Mine"

    def __init__(self, args: Any, handle: Any) -> None: ...


def broken(point: str) -> Any:
    raise RuntimeError(f"broken {point}")


class PreEnqueue(NamedPlugin):
    def pre_enqueue(self, pod: Any) -> Status | None:
        return broken("pre_enqueue") if pod.metadata.name.startswith("bad") else None


class QueueSort(NamedPlugin):
    def sort_key(self, queued: Any) -> Any:
        return broken("queue_sort") if queued.pod.metadata.name.startswith("bad") else queued.timestamp_ns


class FilterRows(NamedPlugin):
    def filter(self, state: Any, pod: Any, node: Any) -> Status | None:
        return None

    def filter_rows(self, state: Any, pod: Any, snapshot: Any, rows: Any) -> RowFilterResult:
        return broken("filter_rows")


class FilterExplain(NamedPlugin):
    def filter(self, state: Any, pod: Any, node: Any) -> Status | None:
        return None

    def filter_rows(self, state: Any, pod: Any, snapshot: Any, rows: Any) -> RowFilterResult:
        return RowFilterResult(rows < 0, lambda index: broken("explain"))


class FilterShape(NamedPlugin):
    def filter(self, state: Any, pod: Any, node: Any) -> Status | None:
        return None

    def filter_rows(self, state: Any, pod: Any, snapshot: Any, rows: Any) -> RowFilterResult:
        return RowFilterResult((rows >= 0)[:1], lambda index: Status(Code.UNSCHEDULABLE, ("no",)))


class FilterInvalidStatus(NamedPlugin):
    def filter(self, state: Any, pod: Any, node: Any) -> Any:
        return "no"


class ScoreRows(NamedPlugin):
    def score(self, state: Any, pod: Any, node: Any) -> int:
        return 0

    def score_rows(self, state: Any, pod: Any, snapshot: Any, rows: Any) -> Any:
        return broken("score_rows")


class ScoreShape(ScoreRows):
    def score_rows(self, state: Any, pod: Any, snapshot: Any, rows: Any) -> Any:
        return rows[:1] * 0


class Normalize(NamedPlugin):
    def score(self, state: Any, pod: Any, node: Any) -> int:
        return 1

    def normalize_scores(self, state: Any, pod: Any, snapshot: Any, rows: Any, scores: Any) -> Any:
        return broken("normalize_scores")


class Bind(NamedPlugin):
    async def bind(self, state: Any, pod: Any, node_name: str) -> Status | None:
        return broken("bind")


class PreFlight(NamedPlugin):
    def pre_bind_pre_flight(self, state: Any, pod: Any, node_name: str) -> Status | None:
        return broken("pre_bind_pre_flight")

    async def pre_bind(self, state: Any, pod: Any, node_name: str) -> Status | None:
        return None


class PostFilter(NamedPlugin):
    def post_filter(self, state: Any, pod: Any, snapshot: Any, statuses: Any) -> Any:
        return broken("post_filter")


class NoUse(NamedPlugin):
    def post_filter(self, state: Any, pod: Any, snapshot: Any, statuses: Any) -> Any:
        return None, Status(Code.UNSCHEDULABLE_AND_UNRESOLVABLE, ("preemption is of no use",))


class InvalidStatus(NamedPlugin):
    """Returns a string instead of a status at the extension point `at`."""

    at = ""

    def _result(self, point: str, valid: Any = None) -> Any:
        return "no" if point == self.at else valid

    def pre_filter(self, state: Any, pod: Any, snapshot: Any) -> Any:
        return self._result("pre_filter", (None, None))

    def pre_score(self, state: Any, pod: Any, snapshot: Any, rows: Any) -> Any:
        return self._result("pre_score")

    def score(self, state: Any, pod: Any, node: Any) -> Any:
        return self._result("score", 0)

    def reserve(self, state: Any, pod: Any, node_name: str) -> Any:
        return self._result("reserve")

    def unreserve(self, state: Any, pod: Any, node_name: str) -> Any: ...

    def permit(self, state: Any, pod: Any, node_name: str) -> Any:
        return self._result("permit", (None, 0.0))

    def pre_bind_pre_flight(self, state: Any, pod: Any, node_name: str) -> Any:
        return self._result("pre_bind_pre_flight")

    async def pre_bind(self, state: Any, pod: Any, node_name: str) -> Any:
        return self._result("pre_bind")

    async def bind(self, state: Any, pod: Any, node_name: str) -> Any:
        return self._result("bind", Status(Code.SKIP))


class AddPod(NamedPlugin):
    def pre_filter(self, state: Any, pod: Any, snapshot: Any) -> Any:
        return None, None

    def add_pod(self, state: Any, pod: Any, added: Any, node: Any) -> Status | None:
        return broken("add_pod")

    def remove_pod(self, state: Any, pod: Any, removed: Any, node: Any) -> Status | None:
        return broken("remove_pod")

    def filter(self, state: Any, pod: Any, node: Any) -> Status | None:
        return None


class Hint(NamedPlugin):
    def filter(self, state: Any, pod: Any, node: Any) -> Status | None:
        right = node.name == "right"
        return None if right else Status(Code.UNSCHEDULABLE, ("node(s) were not right",))

    def events_to_register(self) -> Sequence[ClusterEventWithHint]:
        return (ClusterEventWithHint(cluster_event(NODE, ActionType.ADD), lambda pod, old, new: broken("hint")),)


class Registration(NamedPlugin):
    def filter(self, state: Any, pod: Any, node: Any) -> Status | None:
        return None

    def events_to_register(self) -> Sequence[ClusterEventWithHint]:
        return broken("events_to_register")


class Constructor(NamedPlugin):
    def __init__(self, args: Any, handle: Any) -> None:
        broken("constructor")


class SizedArgs(Struct):
    size: int = 0


class Args(NamedPlugin):
    args_type = SizedArgs


class Tracked(NamedPlugin):
    """Records the calls from Reserve on; the one in `failing` returns `result`. waits: Permit waits for 0.1 s."""

    failing = ""
    result = Status(Code.SUCCESS)
    waits = False

    def __init__(self, args: Any, handle: Any) -> None:
        self.handle = handle
        self.calls: list[str] = []

    def _call(self, method: str) -> Status | None:
        self.calls.append(method)
        return self.result if method == self.failing else None

    def reserve(self, state: Any, pod: Any, node_name: str) -> Status | None:
        return self._call("reserve")

    def unreserve(self, state: Any, pod: Any, node_name: str) -> None:
        self._call("unreserve")

    def permit(self, state: Any, pod: Any, node_name: str) -> tuple[Status | None, float]:
        return self._call("permit") or (Status(Code.WAIT) if self.waits else None), 0.1

    def pre_bind_pre_flight(self, state: Any, pod: Any, node_name: str) -> Status | None:
        return self._call("pre_bind_pre_flight")

    async def pre_bind(self, state: Any, pod: Any, node_name: str) -> Status | None:
        return self._call("pre_bind")

    async def bind(self, state: Any, pod: Any, node_name: str) -> Status | None:
        return self._call("bind")


@pytest.fixture
def plugin_profile(monkeypatch: pytest.MonkeyPatch) -> Any:
    """Return a function plugin -> scheduler configuration, with the plugin installed under the name "Mine"."""
    installed = out_of_tree_plugins.load_plugin_class

    def configure(plugin: type, *, without: str = "", first: bool = False) -> dict[str, Any]:
        monkeypatch.setattr(
            out_of_tree_plugins, "load_plugin_class", lambda name: plugin if name == "Mine" else installed(name)
        )
        default = tuple(ref for ref in DEFAULT_PLUGINS if ref.name != without)
        refs = (PluginRef("Mine"), *default) if first else (*default, PluginRef("Mine"))
        return {"profiles": (Profile(multi_point=PluginSet(refs)),)}

    return configure


@pytest.mark.parametrize(
    ("plugin", "message"),
    [
        pytest.param(FilterRows, 'running "Mine" filter plugin: broken filter_rows', id="filter_rows"),
        pytest.param(ScoreRows, 'running Score plugin "Mine": broken score_rows', id="score_rows"),
        pytest.param(
            Normalize, 'running NormalizeScore for plugin "Mine": broken normalize_scores', id="normalize_scores"
        ),
        pytest.param(
            PreFlight, 'running PreBindPreFlight "Mine": broken pre_bind_pre_flight', id="pre_bind_pre_flight"
        ),
    ],
)
async def test_event_names_failed_plugin_and_extension_point(cluster, scheduling, plugin_profile, plugin, message):
    for name in "abcdef":
        cluster.node(name)
    async with scheduling(**plugin_profile(plugin)) as scheduler:
        cluster.pod("p")
        await asyncio.sleep(0.5)
        assert cluster.events[0] == ("default/p", "FailedScheduling", message)
        assert scheduler.queue.get("default/p")[0] == "backoff"
        assert scheduler.cache.pods() == {}
        assert cluster.bindings == []


@pytest.mark.parametrize("plugin", [FilterExplain, FilterShape, FilterInvalidStatus, ScoreShape])
async def test_result_of_wrong_shape_fails_the_attempt(cluster, scheduling, plugin_profile, plugin):
    for name in "abcdef":
        cluster.node(name)
    async with scheduling(**plugin_profile(plugin)) as scheduler:
        cluster.pod("p")
        await asyncio.sleep(0.5)
        ((key, reason, message), *_) = cluster.events
        assert (key, reason) == ("default/p", "FailedScheduling")
        assert "Mine" in message
        assert scheduler.queue.get("default/p")[0] in ("backoff", "unschedulable")
        assert cluster.bindings == []


@pytest.mark.parametrize(
    "point", ["pre_filter", "pre_score", "score", "reserve", "permit", "pre_bind_pre_flight", "pre_bind", "bind"]
)
async def test_result_that_is_no_status_fails_the_attempt(cluster, scheduling, plugin_profile, point):
    cluster.node("a")
    cluster.node("b")
    async with scheduling(
        **plugin_profile(type("InvalidStatusAtPoint", (InvalidStatus,), {"at": point}), first=True)
    ) as scheduler:
        cluster.pod("p")
        await asyncio.sleep(0.5)
        ((key, reason, message), *_) = cluster.events
        assert (key, reason) == ("default/p", "FailedScheduling")
        assert '"Mine"' in message
        assert scheduler.queue.get("default/p")[0] == "backoff"
        assert scheduler.cache.pods() == {}
        assert cluster.bindings == []


async def test_bind_plugin_that_raises_releases_the_node(cluster, scheduling, plugin_profile):
    cluster.node("a")
    async with scheduling(**plugin_profile(Bind, first=True)) as scheduler:
        cluster.pod("p")
        await asyncio.sleep(0.5)
        assert cluster.events[0] == ("default/p", "FailedScheduling", 'running Bind plugin "Mine": broken bind')
        assert scheduler.cache.pods() == {}
        scheduler.cache.check()


@pytest.mark.parametrize("code", [Code.ERROR, Code.UNSCHEDULABLE])
@pytest.mark.parametrize(
    ("failing", "waits"),
    [
        pytest.param("reserve", False, id="reserve"),
        pytest.param("permit", False, id="permit"),
        pytest.param("", True, id="timeout on permit"),
        pytest.param("pre_bind_pre_flight", False, id="pre_bind_pre_flight"),
        pytest.param("pre_bind_pre_flight", True, id="pre_bind_pre_flight of a pod that waits on permit"),
        pytest.param("pre_bind", False, id="pre_bind"),
        pytest.param("bind", False, id="bind"),
    ],
)
async def test_failure_after_reserve_is_undone(cluster, scheduling, plugin_profile, monkeypatch, failing, waits, code):
    monkeypatch.setattr(Tracked, "failing", failing)
    monkeypatch.setattr(Tracked, "result", Status(code, ("no",)))
    monkeypatch.setattr(Tracked, "waits", waits)
    cluster.node("a")
    gates = {"SchedulerPopFromBackoffQ": False}  # no second attempt at once
    async with scheduling(gates=gates, **plugin_profile(Tracked, first=True)) as scheduler:
        pod = cluster.pod("p")
        await asyncio.sleep(0.5)
        plugin = scheduler.frameworks["default-scheduler"].plugins["Mine"]
        assert plugin.calls[-1] == "unreserve"
        assert plugin.calls.count("unreserve") == 1
        assert plugin.calls[-2] == (failing or "pre_bind_pre_flight")
        assert plugin.handle.waiting_pod(pod.metadata.uid) is None
        assert scheduler.cache.pods() == {}
        assert [reason for _, reason, _ in cluster.events] == ["FailedScheduling"]
        assert scheduler.queue.in_flight.keys() == []


async def test_post_filter_error_is_added_to_the_reasons(cluster, scheduling, plugin_profile):
    cluster.node("a", cpu="1")
    async with scheduling(**plugin_profile(PostFilter, without="DefaultPreemption")):
        cluster.pod("p", cpu="2")
        await asyncio.sleep(0.5)
    assert cluster.events[0][2] == (
        '0/1 nodes are available: 1 Insufficient cpu. running PostFilter plugin "Mine": broken post_filter'
    )


async def test_unresolvable_post_filter_ends_the_others(cluster, scheduling, plugin_profile):
    cluster.node("a", cpu="1")
    cluster.pod("low", cpu="1", nodeName="a", priority=1)
    async with scheduling(**plugin_profile(NoUse, first=True)):
        cluster.pod("p", cpu="1", priority=10)
        await asyncio.sleep(0.5)
        assert cluster.stored_pod("default/low") is not None, "DefaultPreemption did not run"
    assert cluster.events[0][2] == "0/1 nodes are available: 1 Insufficient cpu. preemption is of no use"


async def test_prefilter_extension_error_ends_preemption(cluster, scheduling, plugin_profile):
    cluster.node("a", cpu="1")
    cluster.pod("low", cpu="1", nodeName="a", priority=1)
    async with scheduling(**plugin_profile(AddPod)):
        cluster.pod("p", cpu="1", priority=10)
        await asyncio.sleep(0.5)
    ((key, _, message), *_) = cluster.events
    assert key == "default/p"
    assert '"Mine": broken remove_pod' in message
    assert cluster.node_of("default/low") == "a"


async def test_pre_enqueue_error_gates_only_that_pod(cluster, scheduling, plugin_profile):
    cluster.node("a")
    async with scheduling(**plugin_profile(PreEnqueue)) as scheduler:
        cluster.pod("bad")
        cluster.pod("valid")
        await asyncio.sleep(0.5)
        assert cluster.bindings == [("default/valid", "a")]
        assert ("default/bad", "FailedScheduling", 'running PreEnqueue plugin "Mine": broken pre_enqueue') in (
            cluster.events
        )
        assert scheduler.queue.get("default/bad")[0] == "gated"


async def test_queue_sort_error_puts_that_pod_last(cluster, scheduling, plugin_profile):
    cluster.node("a")
    async with scheduling(**plugin_profile(QueueSort, without="PrioritySort")) as scheduler:
        for name in ("bad1", "good1", "bad2", "good2"):
            cluster.pod(name)
        await asyncio.sleep(0.5)
        assert [key for key, _ in cluster.bindings] == [
            f"default/{name}" for name in ("good1", "good2", "bad1", "bad2")
        ]
        scheduler.queue.check()
    assert ("default/bad1", "FailedScheduling", 'running QueueSort plugin "Mine": broken queue_sort') in cluster.events


async def test_queueing_hint_error_queues_the_pod(cluster, scheduling, plugin_profile):
    cluster.node("wrong")
    async with scheduling(**plugin_profile(Hint)):
        cluster.pod("p")
        await asyncio.sleep(0.5)
        cluster.node("right")
        await asyncio.sleep(3)
    assert cluster.bindings == [("default/p", "right")]


@pytest.mark.parametrize(
    ("plugin", "problem"),
    [
        pytest.param(Constructor, "cannot create the scheduler plugin 'Mine': broken constructor", id="constructor"),
        pytest.param(
            Registration,
            "the events of the scheduler plugin 'Mine' cannot be registered: broken events_to_register",
            id="events",
        ),
    ],
)
async def test_constructor_error_is_a_user_error(cluster, plugin_profile, plugin, problem):
    with pytest.raises(UserError) as error:
        cluster.scheduler(SchedulerConfiguration(**plugin_profile(plugin)))
    assert str(error.value) == problem


def test_mistyped_arguments_are_a_user_error(plugin_profile):
    plugin_profile(Args)
    document = {
        "apiVersion": "kubescheduler.config.k8s.io/v1",
        "kind": "KubeSchedulerConfiguration",
        "profiles": [
            {
                "plugins": {"multiPoint": {"enabled": [{"name": "Mine"}]}},
                "pluginConfig": [{"name": "Mine", "args": {"size": "large"}}],
            }
        ],
    }
    with pytest.raises(UserError, match=r"decoding args for plugin Mine: .* at `\$\.size`"):
        read_configuration(document)
