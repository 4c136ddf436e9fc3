"""Status patches of pods: order and deduplication with slow requests."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import pytest

from kubeloop.kube.clock import rfc3339
from kubeloop.kube.objects.api_types import Pod
from kubeloop.scheduler.api_calls.background_calls import BackgroundCalls
from kubeloop.scheduler.api_calls.status_patches import StatusPatches
from support.apiserver.faulty_transport import SentRequest
from support.scheduling.plugin_cluster import PluginCluster

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


@pytest.mark.parametrize("enabled", [False, True])
async def test_no_pod_waits_for_the_status_patch_of_the_one_before(
    enabled: bool, cluster: Any, scheduling: Any, slow_patches: list[str]
):
    """The next pod is scheduled while the victim of the first one exists, so that it gets the other node."""
    cluster.node("a", cpu="5")
    cluster.node("b", cpu="2")
    cluster.pod("victim", cpu="3", nodeName="a")
    cluster.pod("preemptor", cpu="3", priority=100)
    cluster.pod("next", cpu="2", priority=10)
    async with scheduling(gates={"SchedulerAsyncAPICalls": enabled}):
        await asyncio.sleep(1)
        assert cluster.node_of("default/next") == "b"
        assert cluster.stored_pod("default/victim") is not None
        await asyncio.sleep(30)
        assert cluster.node_of("default/preemptor") == "a"
        assert cluster.stored_pod("default/victim") is None


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


def new_patches(cluster: Any) -> StatusPatches:
    return StatusPatches(cluster.server.client, cluster.clock, BackgroundCalls(PluginCluster()))


def stored(cluster: Any) -> Pod:
    return next(pod for pod in cluster.pods() if pod.key == "default/web")


async def sent(cluster: Any, patches: StatusPatches) -> list[Any]:
    """Send the pending patches and return their statuses."""
    async with asyncio.TaskGroup() as tasks:
        running = tasks.create_task(patches.run())
        await asyncio.sleep(20)
        running.cancel()
    return [status for _, status in cluster.patches]


async def test_later_patch_without_effect_replaces_the_pending_one(cluster: Any):
    patches, condition = new_patches(cluster), {"type": "PodScheduled", "status": "False"}
    cluster.pod("web")
    cluster.change_pod("default/web", status={"conditions": [{**condition, "reason": "Unschedulable", "message": "a"}]})
    web = stored(cluster)
    patches.set(web, reason="Unschedulable", message="b")
    patches.set(web, reason="Unschedulable", message="a")
    assert len(patches) == 0
    patches.set(web, nominated_node_name="a")
    patches.set(web, reason="Unschedulable", message="c")
    (status,) = await sent(cluster, patches)
    assert (status["nominatedNodeName"], status["conditions"][0]["message"]) == ("a", "c")


async def test_patches_of_condition_and_nomination_are_merged(cluster: Any):
    patches = new_patches(cluster)
    web = cluster.pod("web")
    patches.set(web, reason="Unschedulable", message="no room")
    patches.set(web, nominated_node_name="a")
    (status,) = await sent(cluster, patches)
    assert (status["nominatedNodeName"], status["conditions"][0]["message"]) == ("a", "no room")


@pytest.mark.parametrize(("status", "kept"), [("False", True), ("True", False)])
async def test_transition_time_is_that_of_the_status(cluster: Any, status: str, kept: bool):
    patches, since = new_patches(cluster), "2025-12-24T00:00:00Z"
    condition = {"type": "PodScheduled", "status": status, "reason": "a", "lastTransitionTime": since}
    cluster.pod("web")
    cluster.change_pod("default/web", status={"conditions": [condition]})
    now = rfc3339(cluster.clock.now())
    patches.set(stored(cluster), reason="Unschedulable", message="no room")
    (patch,) = await sent(cluster, patches)
    assert patch["conditions"][0]["lastTransitionTime"] == (since if kept else now)


async def test_sync_drops_a_patch_that_has_no_effect_any_more(cluster: Any):
    patches = new_patches(cluster)
    web = cluster.pod("web")
    patches.set(web, nominated_node_name="a")
    cluster.change_pod("default/web", status={"nominatedNodeName": "b"})
    patches.sync(stored(cluster))
    assert len(patches) == 1
    cluster.change_pod("default/web", status={"nominatedNodeName": "a"})
    patches.sync(stored(cluster))
    assert len(patches) == 0


async def test_patch_is_the_difference_from_the_synced_status(cluster: Any):
    patches = new_patches(cluster)
    web = cluster.pod("web")
    patches.set(web, reason="Unschedulable", message="no room", nominated_node_name="a")
    cluster.change_pod("default/web", status={"nominatedNodeName": "a"})
    patches.sync(stored(cluster))
    (status,) = await sent(cluster, patches)
    assert "nominatedNodeName" not in status
    assert status["conditions"][0]["message"] == "no room"


async def test_patches_of_a_superseded_pod_are_ignored(cluster: Any):
    patches = new_patches(cluster)
    web = cluster.pod("web")
    with patches.superseded(web.metadata.uid):
        patches.set(web, nominated_node_name="a")
    assert len(patches) == 0
    patches.set(web, nominated_node_name="a")
    assert len(patches) == 1
