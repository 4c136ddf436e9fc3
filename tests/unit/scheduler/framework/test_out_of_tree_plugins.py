"""Out-of-tree plugins: per-node and array forms, arguments, queueing hints, Permit, PostFilter, and errors."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest

from kubeloop.kube.objects.api_types import Struct
from kubeloop.scheduler.api.events import (
    ASSIGNED_POD_DELETE,
    NODE,
    ActionType,
    ClusterEventWithHint,
    Hint,
    cluster_event,
)
from kubeloop.scheduler.api.extension_points import PostFilterResult, PostFilterReturn, RowFilterResult
from kubeloop.scheduler.api.status import Code, Status
from kubeloop.scheduler.config import out_of_tree_plugins
from kubeloop.scheduler.config.defaults import DEFAULT_PLUGINS
from kubeloop.scheduler.config.plugin_sets import PluginRef, PluginSet
from kubeloop.scheduler.config.types import Profile

pytestmark = pytest.mark.virtual_time


REJECTED = Status(Code.UNSCHEDULABLE, ("node(s) were in the wrong rack",))


# The end of a nomination would wake pods, too.
WITHOUT_NOMINATION = {"NominatedNodeNameForExpectation": False}


class RackArgs(Struct):
    rack: str = "a"


class Rack:
    """Per-node filter: pods go to nodes of one rack only."""

    name = "Rack"
    args_type = RackArgs

    def __init__(self, args: RackArgs, handle: Any) -> None:
        self._rack = args.rack

    def filter(self, state: Any, pod: Any, node: Any) -> Status | None:
        return None if node.node.metadata.labels.get("rack") == self._rack else REJECTED

    def events_to_register(self) -> Sequence[ClusterEventWithHint]:
        return (ClusterEventWithHint(cluster_event(NODE, ActionType.ADD), self._helps),)

    def _helps(self, pod: Any, old: Any, new: Any) -> Hint:
        return Hint.QUEUE if new.metadata.labels.get("rack") == self._rack else Hint.SKIP


class LastNode:
    """Array form: accepts all nodes and scores the node with the highest row best."""

    name = "LastNode"

    def __init__(self, args: Any, handle: Any) -> None: ...

    def filter(self, state: Any, pod: Any, node: Any) -> Status | None:
        return None

    def filter_rows(self, state: Any, pod: Any, snapshot: Any, rows: Any) -> RowFilterResult:
        return RowFilterResult(np.ones(len(rows), np.bool_), lambda index: REJECTED)

    def score(self, state: Any, pod: Any, node: Any) -> int:
        return 0

    def score_rows(self, state: Any, pod: Any, snapshot: Any, rows: Any) -> Any:
        return np.where(rows == rows.max(), 100, 0)


class Raising:
    """Raises at the extension point in its argument `at`."""

    name = "Raising"

    def __init__(self, args: Any, handle: Any) -> None:
        self._point = args["at"]

    def _raise_at(self, point: str) -> None:
        if point == self._point:
            raise RuntimeError(f"broken {point}")

    def pre_filter(self, state: Any, pod: Any, snapshot: Any) -> Any:
        self._raise_at("pre_filter")
        return None, None

    def filter(self, state: Any, pod: Any, node: Any) -> Status | None:
        self._raise_at("filter")
        return None

    def pre_score(self, state: Any, pod: Any, snapshot: Any, rows: Any) -> Status | None:
        self._raise_at("pre_score")
        return None

    def score(self, state: Any, pod: Any, node: Any) -> int:
        self._raise_at("score")
        return 1000 if self._point == "range" else 0

    def reserve(self, state: Any, pod: Any, node_name: str) -> Status | None:
        self._raise_at("reserve")
        return None

    def unreserve(self, state: Any, pod: Any, node_name: str) -> None:
        raise RuntimeError("broken unreserve")

    def permit(self, state: Any, pod: Any, node_name: str) -> tuple[Status | None, float]:
        self._raise_at("permit")
        return None, 0.0

    def pre_bind_pre_flight(self, state: Any, pod: Any, node_name: str) -> Status | None:
        return None

    async def pre_bind(self, state: Any, pod: Any, node_name: str) -> Status | None:
        self._raise_at("pre_bind")
        return None

    def post_bind(self, state: Any, pod: Any, node_name: str) -> None:
        self._raise_at("post_bind")


class ManualPermit:
    """Permit plugin: the pod waits at most 10 seconds to be allowed."""

    name = "ManualPermit"

    def __init__(self, args: Any, handle: Any) -> None:
        self.handle = handle

    def permit(self, state: Any, pod: Any, node_name: str) -> tuple[Status | None, float]:
        return Status(Code.WAIT), 10.0

    def events_to_register(self) -> Sequence[ClusterEventWithHint]:
        return (ClusterEventWithHint(ASSIGNED_POD_DELETE),)


class FreesNode:
    """Asynchronous PostFilter plugin that nominates node "n"."""

    name = "FreesNode"

    def __init__(self, args: Any, handle: Any) -> None: ...

    async def post_filter(self, state: Any, pod: Any, snapshot: Any, statuses: Any) -> PostFilterReturn:
        await asyncio.sleep(0.1)
        if pod.pod.metadata.name == "failing":
            raise RuntimeError("no response")
        return PostFilterResult("n"), None


@pytest.fixture(autouse=True)
def installed_plugins(monkeypatch: pytest.MonkeyPatch) -> None:
    """Install the plugins as if they were registered under the entry point group."""
    plugins = {plugin.name: plugin for plugin in (Rack, LastNode, Raising, ManualPermit, FreesNode)}
    installed = out_of_tree_plugins.load_plugin_class
    monkeypatch.setattr(
        out_of_tree_plugins, "load_plugin_class", lambda name: plugins[name] if name in plugins else installed(name)
    )


def with_plugin(name: str, weight: int = 0, **fields: Any) -> dict[str, Any]:
    multi_point = PluginSet((*DEFAULT_PLUGINS, PluginRef(name, weight)))
    return {"profiles": (Profile(multi_point=multi_point, **fields),)}


async def test_per_node_filter_and_queueing_hint(cluster, scheduling):
    cluster.node("n", labels={"rack": "a"})
    async with scheduling(**with_plugin("Rack", args={"Rack": RackArgs(rack="b")})) as scheduler:
        cluster.pod("p")
        await asyncio.sleep(0.5)
        assert cluster.events[0][2].startswith("0/1 nodes are available: 1 node(s) were in the wrong rack.")
        cluster.node("m", labels={"rack": "c"})
        await asyncio.sleep(3)
        assert scheduler.queue.get("default/p")[0] == "unschedulable"
        cluster.node("right", labels={"rack": "b"})
        await asyncio.sleep(3)
        assert cluster.bindings == [("default/p", "right")]


async def test_post_filter_may_be_asynchronous(cluster, scheduling):
    cluster.node("n", cpu="1")
    post_filter_only = {"postFilter": PluginSet((PluginRef("FreesNode"),), ("*",))}
    async with scheduling(profiles=(Profile(points=post_filter_only),)) as scheduler:
        cluster.pod("p", cpu="2")
        cluster.pod("failing", cpu="2")
        await asyncio.sleep(0.05)
        assert cluster.events == []
        await asyncio.sleep(0.5)
        assert [pod.key for pod in scheduler.queue.nominator.pods_on("n")] == ["default/p"]
    assert [message for _, _, message in cluster.events] == [
        "0/1 nodes are available: 1 Insufficient cpu.",
        '0/1 nodes are available: 1 Insufficient cpu. running PostFilter plugin "FreesNode": no response',
    ]


async def test_array_form_of_score(cluster, scheduling):
    for name in ("a", "b", "c"):
        cluster.node(name)
    async with scheduling(**with_plugin("LastNode", weight=100)):
        for number in range(3):
            cluster.pod(f"p{number}")
        await asyncio.sleep(0.5)
    assert [node for _, node in cluster.bindings] == ["c"] * 3


@pytest.mark.parametrize(
    ("point", "message"),
    [
        ("pre_filter", 'running PreFilter plugin "Raising": broken pre_filter'),
        ("filter", 'running "Raising" filter plugin: broken filter'),
        ("pre_score", 'running PreScore plugin "Raising": broken pre_score'),
        ("score", 'running Score plugin "Raising": broken score'),
        (
            "range",
            'plugin "Raising" returns an invalid score 1000, it should in the range of [0, 100] after normalizing',
        ),
        ("reserve", 'running Reserve plugin "Raising": broken reserve'),
        ("permit", 'running Permit plugin "Raising": broken permit'),
        ("pre_bind", 'running PreBind plugin "Raising": broken pre_bind'),
    ],
)
async def test_plugin_error_fails_only_the_attempt(cluster, scheduling, point, message):
    cluster.node("a")
    cluster.node("b")
    async with scheduling(**with_plugin("Raising", args={"Raising": {"at": point}})) as scheduler:
        cluster.pod("p")
        await asyncio.sleep(0.5)
        assert cluster.events[0] == ("default/p", "FailedScheduling", message)
        assert cluster.bindings == []
        assert scheduler.cache.pods() == {}
        assert scheduler.queue.get("default/p")[0] == "backoff"
        scheduler.cache.check()
        scheduler.queue.check()


async def test_post_bind_error_is_ignored(cluster, scheduling):
    cluster.node("a")
    async with scheduling(**with_plugin("Raising", args={"Raising": {"at": "post_bind"}})):
        cluster.pod("p")
        await asyncio.sleep(0.5)
    assert cluster.bindings == [("default/p", "a")]
    assert [reason for _, reason, _ in cluster.events] == ["Scheduled"]


async def test_pod_waits_for_permit(cluster, scheduling):
    cluster.node("a")
    async with scheduling(**with_plugin("ManualPermit")) as scheduler:
        cluster.pod("allowed")
        cluster.pod("not-allowed")
        await asyncio.sleep(1)
        assert cluster.bindings == []
        assert len(scheduler.cache.assumed_pods()) == 2
        uid = next(pod.metadata.uid for pod in scheduler.cache.assumed_pods() if pod.metadata.name == "allowed")
        handle = scheduler.frameworks["default-scheduler"].plugins["ManualPermit"].handle
        handle.waiting_pod(uid).allow("ManualPermit")
        await asyncio.sleep(1)
        assert cluster.bindings == [("default/allowed", "a")]
        await asyncio.sleep(8.5)
        failure = next(event for event in cluster.events if event[1] == "FailedScheduling")
        assert failure[0] == "default/not-allowed"
        assert "rejected due to timeout after waiting" in failure[2]


async def test_rejected_waiting_pod_wakes_the_pods_that_it_blocked(cluster, scheduling):
    cluster.node("a", cpu="1")
    async with scheduling(gates=WITHOUT_NOMINATION, **with_plugin("ManualPermit")) as scheduler:
        cluster.pod("first", cpu="1")
        await asyncio.sleep(1)
        cluster.pod("second", cpu="1")
        await asyncio.sleep(5)
        assert scheduler.queue.get("default/second")[0] == "unschedulable"
        await asyncio.sleep(5)
        assert [pod.key for pod in scheduler.cache.assumed_pods()] == ["default/second"]


async def test_rejected_waiting_pod_is_not_woken_by_its_own_removal(cluster, scheduling):
    cluster.node("a")
    async with scheduling(gates=WITHOUT_NOMINATION, **with_plugin("ManualPermit")) as scheduler:
        cluster.pod("p")
        await asyncio.sleep(11)
        assert scheduler.cache.pods() == {}
        assert scheduler.queue.get("default/p")[0] == "unschedulable"


async def test_preempted_waiting_pod_is_scheduled_elsewhere(cluster, scheduling):
    cluster.node("large", cpu="2")
    async with scheduling(**with_plugin("ManualPermit")) as scheduler:
        cluster.pod("victim", cpu="1")
        await asyncio.sleep(1)
        cluster.node("small", cpu="1")
        cluster.pod("preemptor", cpu="1500m", priority=10)
        await asyncio.sleep(5)
        nodes = {pod.metadata.name: pod.spec.node_name for pod in scheduler.cache.assumed_pods()}
        assert nodes == {"victim": "small", "preemptor": "large"}


async def test_plugin_allows_a_waiting_pod_of_another_profile(cluster, scheduling):
    cluster.node("a")
    (waiting,) = with_plugin("ManualPermit")["profiles"]
    (other,) = with_plugin("ManualPermit", scheduler_name="other")["profiles"]
    async with scheduling(profiles=(waiting, other)) as scheduler:
        pod = cluster.pod("p")
        await asyncio.sleep(1)
        assert cluster.bindings == []
        scheduler.frameworks["other"].plugins["ManualPermit"].handle.waiting_pod(pod.metadata.uid).allow("ManualPermit")
        await asyncio.sleep(1)
        assert cluster.bindings == [("default/p", "a")]


async def test_pod_deleted_while_waiting_for_permit(cluster, scheduling):
    cluster.node("a")
    async with scheduling(**with_plugin("ManualPermit")) as scheduler:
        cluster.pod("p")
        await asyncio.sleep(1)
        cluster.delete_pod("default/p")
        await asyncio.sleep(1)
        assert scheduler.cache.pods() == {}
        assert scheduler.queue.in_flight.keys() == []
