"""Extenders over HTTP, against a small server: filter, prioritize, bind, failures, and who is asked at all."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from typing import Any

import pytest
from aiohttp import web

from kubeloop.kube.objects import Pod, convert
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


async def until(condition: Callable[[], bool]) -> None:
    async with asyncio.timeout(5):
        while not condition():
            await asyncio.sleep(0.005)


async def test_an_extender_confines_and_ranks_nodes(server, cluster, scheduling):
    url, answers, asked = server
    for name in ("a", "b", "c"):
        cluster.node(name)
    answers["filter"] = lambda body: {
        "nodes": {"items": [item for item in body["nodes"]["items"] if item["metadata"]["name"] != "c"]},
        "failedNodes": {"c": "not today"},
    }
    answers["prioritize"] = lambda body: [{"host": "a", "score": 0}, {"host": "b", "score": 10}]
    config = ExtenderConfiguration(url, filter_verb="filter", prioritize_verb="prioritize", weight=100)
    async with scheduling(extenders=(config,)):
        cluster.pod("p")
        await until(lambda: bool(cluster.bindings))
    assert cluster.bindings == [("default/p", "b")]
    assert [verb for verb, _ in asked] == ["filter", "prioritize"]
    assert asked[0][1]["pod"]["metadata"]["name"] == "p"


async def test_a_node_cache_capable_extender_is_sent_names(server, cluster, scheduling):
    url, answers, asked = server
    cluster.node("a")
    cluster.node("b")
    answers["filter"] = lambda body: {"nodenames": ["b"], "failedNodes": {"a": "full"}}
    async with scheduling(extenders=(ExtenderConfiguration(url, filter_verb="filter", node_cache_capable=True),)):
        cluster.pod("p")
        await until(lambda: bool(cluster.bindings))
    assert cluster.bindings == [("default/p", "b")]
    assert sorted(asked[0][1]["nodenames"]) == ["a", "b"]


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
        cluster.change_pod(f"{body['podNamespace']}/{body['podName']}", node_name=body["node"])
        return {}

    answers["bind"] = bind
    async with scheduling(extenders=(ExtenderConfiguration(url, bind_verb="bind"),)):
        cluster.pod("p")
        await until(lambda: cluster.node_of("default/p") == "a")
        await until(lambda: bool(cluster.events))
    assert cluster.bindings == []
    assert asked == [
        ("bind", {"podName": "p", "podNamespace": "default", "podUID": asked[0][1]["podUID"], "node": "a"})
    ]
    assert cluster.events[0][1] == "Scheduled"


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
