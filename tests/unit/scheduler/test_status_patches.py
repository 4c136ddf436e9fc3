"""Status patches of pods: order and deduplication with slow requests."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import pytest

from kubeloop.scheduler.background_calls import BackgroundCalls
from kubeloop.scheduler.status_patches import StatusPatches
from support.faulty_transport import SentRequest
from support.plugin_cluster import PluginCluster

pytestmark = pytest.mark.virtual_time


@pytest.fixture
def slow_patches(cluster: Any) -> list[str]:
    """Make status patches take five seconds. Returns the log of patches and bindings."""
    log: list[str] = []

    async def before_request(request: SentRequest) -> None:
        *_, name, subresource = request.path.split("/")
        if subresource == "binding":
            log.append(f"{name} bound")
        elif subresource == "status":
            conditions = json.loads(request.body)["status"].get("conditions", ())
            message = " ".join(condition["message"] for condition in conditions)
            log.append(f"{name}: {message} ...")
            await asyncio.sleep(5)
            log.append(f"{name}: {message}")

    cluster.server.transport.before_request = before_request
    return log


async def test_pod_is_bound_after_its_status_patch(cluster: Any, scheduling: Any, slow_patches: list[str]):
    cluster.pod("web")
    async with scheduling():
        await asyncio.sleep(1)
        cluster.node("a")
        await asyncio.sleep(20)
        assert cluster.node_of("default/web") == "a"
    message = "web: no nodes available to schedule pods"
    assert slow_patches == [f"{message} ...", message, "web bound"]


async def test_settle_drops_unsent_patches(cluster: Any, slow_patches: list[str]):
    patches = StatusPatches(cluster.server.client, cluster.clock, BackgroundCalls(PluginCluster()))
    web = cluster.pod("web")
    patches.set(web, reason="Unschedulable", message="no room")
    await patches.settle(web.metadata.uid)
    assert len(patches) == 0


async def test_newest_patch_of_each_pod_is_sent_concurrently(cluster: Any, slow_patches: list[str]):
    patches = StatusPatches(cluster.server.client, cluster.clock, BackgroundCalls(PluginCluster()))
    web, other = cluster.pod("web"), cluster.pod("other")
    async with asyncio.TaskGroup() as tasks:
        running = tasks.create_task(patches.run())
        for message in ("first", "second", "third"):
            patches.set(web, reason="Unschedulable", message=message)
            await asyncio.sleep(1)
        patches.set(other, reason="Unschedulable", message="no room")
        await asyncio.sleep(20)
        running.cancel()
    assert slow_patches == [
        "web: first ...",
        "other: no room ...",
        "web: first",
        "web: third ...",
        "other: no room",
        "web: third",
    ]
