"""Extenders over HTTP, against a small server: filter, prioritize, bind, failures, and who is asked at all."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from typing import Any

import pytest
from aiohttp import web

from kubeloop.kube.objects import Pod, convert
from kubeloop.kube.resources import PODS
from kubeloop.scheduler.config.types import ExtenderConfiguration, ManagedResource
from kubeloop.scheduler.extender import Extender, ExtenderError

Answers = dict[str, Callable[[Any], Any]]


@pytest.fixture
async def server() -> AsyncIterator[tuple[str, Answers, list[tuple[str, Any]]]]:
    """(URL prefix, answers by verb, what was asked)."""
    answers: Answers = {}
    asked: list[tuple[str, Any]] = []

    async def answer(request: web.Request) -> web.Response:
        verb, body = request.match_info["verb"], await request.json()
        asked.append((verb, body))
        if verb not in answers:
            return web.Response(status=500)
        return web.json_response(answers[verb](body))

    app = web.Application()
    app.router.add_post("/scheduler/{verb}", answer)
    runner = web.AppRunner(app)
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0)
    await site.start()
    port = runner.addresses[0][1]
    yield f"http://127.0.0.1:{port}/scheduler", answers, asked
    await runner.cleanup()


class Told:
    """Metrics that remember how many victims each preemption had."""

    def __init__(self) -> None:
        self.preemptions: list[int] = []

    def preemption(self, victims: int) -> None:
        self.preemptions.append(victims)

    def __getattr__(self, name: str) -> Callable[..., None]:
        return lambda *args, **kwargs: None


async def until(condition: Callable[[], bool]) -> None:
    async with asyncio.timeout(5):
        while not condition():
            await asyncio.sleep(0.005)


async def test_an_extender_confines_and_ranks_nodes(server, cluster, scheduling):
    url, answers, asked = server
    for name in ("a", "b", "c"):
        cluster.node(name)
    answers["filter"] = lambda body: {
        "nodes": {"items": [item for item in body["Nodes"]["items"] if item["metadata"]["name"] != "c"]},
        "failedNodes": {"c": "not today"},
    }
    answers["prioritize"] = lambda body: [{"host": "a", "score": 0}, {"host": "b", "score": 10}]
    config = ExtenderConfiguration(url, filter_verb="filter", prioritize_verb="prioritize", weight=100)
    async with scheduling(extenders=(config,)):
        cluster.pod("p")
        await until(lambda: bool(cluster.bindings))
    assert cluster.bindings == [("default/p", "b")]
    assert [verb for verb, _ in asked] == ["filter", "prioritize"]
    assert asked[0][1]["Pod"]["metadata"]["name"] == "p"


async def test_a_node_cache_capable_extender_is_sent_names(server, cluster, scheduling):
    url, answers, asked = server
    cluster.node("a")
    cluster.node("b")
    answers["filter"] = lambda body: {"nodenames": ["b"], "failedNodes": {"a": "full"}}
    async with scheduling(extenders=(ExtenderConfiguration(url, filter_verb="filter", node_cache_capable=True),)):
        cluster.pod("p")
        await until(lambda: bool(cluster.bindings))
    assert cluster.bindings == [("default/p", "b")]
    assert sorted(asked[0][1]["NodeNames"]) == ["a", "b"]


async def test_its_reasons_stand_in_the_event(server, cluster, scheduling):
    url, answers, _ = server
    cluster.node("a")
    answers["filter"] = lambda body: {"nodes": {"items": []}, "failedNodes": {"a": "no licence"}}
    async with scheduling(extenders=(ExtenderConfiguration(url, filter_verb="filter"),)) as scheduler:
        cluster.pod("p")
        await until(lambda: bool(cluster.events))
        assert cluster.events[0][2].startswith("0/1 nodes are available: 1 no licence.")
        where, queued = scheduler.queue.get("default/p")
        assert where == "unschedulable"
        assert "Extender" in queued.unschedulable_plugins


async def test_an_extender_that_fails_fails_the_attempt_unless_it_is_ignorable(server, cluster, scheduling):
    url, _, _ = server
    cluster.node("a")
    async with scheduling(extenders=(ExtenderConfiguration(url, filter_verb="filter"),)):
        cluster.pod("p")
        await until(lambda: bool(cluster.events))
        assert cluster.events[0][2] == f"failed filter with extender at URL {url}, code 500"
    cluster.delete_pod("default/p")
    async with scheduling(extenders=(ExtenderConfiguration(url, filter_verb="filter", ignorable=True),)):
        cluster.pod("q")
        await until(lambda: bool(cluster.bindings))
    assert cluster.bindings == [("default/q", "a")]


async def test_an_extender_may_bind(server, cluster, scheduling):
    url, answers, asked = server
    cluster.node("a")

    def bind(body: Any) -> Any:
        cluster.change_pod(f"{body['PodNamespace']}/{body['PodName']}", node_name=body["Node"])
        return {}

    answers["bind"] = bind
    async with scheduling(extenders=(ExtenderConfiguration(url, bind_verb="bind"),)):
        cluster.pod("p")
        await until(lambda: cluster.node_of("default/p") == "a")
        await until(lambda: bool(cluster.events))
    assert cluster.bindings == []
    assert asked == [
        ("bind", {"PodName": "p", "PodNamespace": "default", "PodUID": asked[0][1]["PodUID"], "Node": "a"})
    ]
    assert cluster.events[0][1] == "Scheduled"


def victims(body: Any) -> dict[str, list[str]]:
    """Node -> names of the victims that an extender is shown."""
    shown = body["NodeNameToVictims"]
    return {node: [pod["metadata"]["name"] for pod in each["Pods"]] for node, each in shown.items()}


def two_full_nodes(cluster: Any) -> None:
    """A pod of priority 1 on "cheap", of priority 2 on "dear"; without extenders the first would have to go."""
    for number, name in enumerate(("cheap", "dear"), start=1):
        cluster.node(name, cpu="1")
        cluster.pod(f"on-{name}", cpu="1", nodeName=name, priority=number)


def uid_of(cluster: Any, key: str) -> str:
    return cluster.informer(PODS).store.get(key).metadata.uid


async def test_an_extender_chooses_among_the_nodes_that_preemption_would_free(server, cluster, scheduling):
    url, answers, asked = server
    two_full_nodes(cluster)
    uid = uid_of(cluster, "default/on-dear")
    answers["preempt"] = lambda body: {
        "NodeNameToMetaVictims": {"dear": {"Pods": [{"UID": uid}], "NumPDBViolations": 0}}
    }
    told = Told()
    async with scheduling(metrics=told, extenders=(ExtenderConfiguration(url, preempt_verb="preempt"),)) as scheduler:
        cluster.pod("high", cpu="1", priority=10)
        await until(lambda: cluster.node_of("default/high") == "dear")
        assert scheduler.queue.get("default/high") is None
    assert cluster.node_of("default/on-dear") == ""
    assert cluster.node_of("default/on-cheap") == "cheap"
    ((_, body),) = asked
    assert body["Pod"]["metadata"]["name"] == "high"
    assert victims(body) == {"cheap": ["on-cheap"], "dear": ["on-dear"]}
    assert body["NodeNameToMetaVictims"] is None
    assert told.preemptions == [1]


async def test_the_next_extender_sees_what_the_first_has_left(server, cluster, scheduling):
    url, answers, asked = server
    two_full_nodes(cluster)
    uid = uid_of(cluster, "default/on-cheap")
    answers["first"] = answers["second"] = lambda body: {
        "nodeNameToMetaVictims": {"cheap": {"pods": [{"uid": uid}], "numPDBViolations": 3}}
    }
    told = Told()
    extenders = (
        ExtenderConfiguration(url, preempt_verb="first"),
        ExtenderConfiguration(url, preempt_verb="second", node_cache_capable=True),
    )
    async with scheduling(metrics=told, extenders=extenders):
        cluster.pod("high", cpu="1", priority=10)
        await until(lambda: bool(told.preemptions))
    assert [verb for verb, _ in asked] == ["first", "second"]
    assert asked[1][1]["NodeNameToMetaVictims"] == {"cheap": {"Pods": [{"UID": uid}], "NumPDBViolations": 3}}
    assert asked[1][1]["NodeNameToVictims"] is None


@pytest.mark.parametrize(
    ("answer", "ignorable", "message"),
    [
        pytest.param({}, False, "preemption: no candidate node for preemption", id="no node is left"),
        pytest.param(
            {"NodeNameToMetaVictims": None}, False, "preemption: no candidate node for preemption", id="a null of Go"
        ),
        pytest.param(None, False, "preemption: failed preempt with extender at URL {url}, code 500", id="failure"),
        pytest.param(
            {"nodeNameToMetaVictims": {"dear": {"pods": []}}},
            False,
            'preemption: expected at least one victim pod on node "dear"',
            id="nobody has to go",
        ),
        pytest.param(
            {"nodeNameToMetaVictims": {"dear": {"pods": []}}},
            True,
            "preemption: no candidate node for preemption",
            id="nobody has to go, says one that may be ignored",
        ),
        pytest.param(
            {"nodeNameToMetaVictims": {"dear": {"pods": [{"uid": "x"}]}}},
            False,
            "preemption: extender: {url} claims to preempt pod (UID: x) on node: dear, "
            "but the pod is not found on that node",
            id="an unknown victim",
        ),
        pytest.param(
            {"nodeNameToMetaVictims": {"mars": {"pods": [{"uid": "x"}]}}},
            False,
            'preemption: nodeinfo not found for node name "mars"',
            id="an unknown node",
        ),
        pytest.param(
            [],
            False,
            "preemption: an extender answered list where an object was expected",
            id="something else altogether",
        ),
    ],
)
async def test_without_the_consent_of_an_extender_nobody_is_preempted(
    server, cluster, scheduling, answer, ignorable, message
):
    url, answers, _ = server
    two_full_nodes(cluster)
    if answer is not None:
        answers["preempt"] = lambda body: answer
    told = Told()
    config = ExtenderConfiguration(url, preempt_verb="preempt", ignorable=ignorable)
    async with scheduling(metrics=told, extenders=(config,)):
        cluster.pod("high", cpu="1", priority=10)
        await until(lambda: bool(cluster.events))
    assert told.preemptions == [0]
    assert cluster.events[0][2].endswith(message.format(url=url))


async def test_an_ignorable_extender_that_fails_has_no_say_in_preemption(server, cluster, scheduling):
    url, _, _ = server
    two_full_nodes(cluster)
    told = Told()
    config = ExtenderConfiguration(url, preempt_verb="preempt", ignorable=True)
    async with scheduling(metrics=told, extenders=(config,)):
        cluster.pod("high", cpu="1", priority=10)
        await until(lambda: cluster.node_of("default/high") == "cheap")
    assert told.preemptions == [1]


def pod_with(resource: str) -> Pod:
    container = {"name": "c", "resources": {"limits": {resource: "1"}}}
    return convert(Pod, {"metadata": {"name": "p"}, "spec": {"containers": [container]}})


def test_it_is_asked_only_about_resources_it_manages():
    extender = Extender(ExtenderConfiguration("http://x", managed_resources=(ManagedResource("example.com/gpu"),)))
    assert extender.is_interested(pod_with("example.com/gpu"))
    assert not extender.is_interested(pod_with("cpu"))
    assert Extender(ExtenderConfiguration("http://x")).is_interested(pod_with("cpu"))


async def test_an_extender_that_is_not_there_is_an_error():
    extender = Extender(ExtenderConfiguration("http://127.0.0.1:9", filter_verb="filter"))
    with pytest.raises(ExtenderError, match="failed filter with extender at URL"):
        await extender.filter(pod_with("cpu"), [])
    await extender.close()
