"""What the scheduler writes of a pod, in which order, when the API server takes its time."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from kubeloop.scheduler.status_patches import StatusPatches

pytestmark = pytest.mark.virtual_time


@pytest.fixture
def slow(cluster: Any) -> list[str]:
    """Patches of status take five seconds. The story of patches and bindings."""
    story: list[str] = []

    async def patch(resource: Any, name: str, body: Any, patch_type: Any, namespace: str, **_: Any) -> None:
        said = " ".join(each["message"] for each in body["status"].get("conditions", ()))
        story.append(f"{name}: {said} ...")
        await asyncio.sleep(5)
        story.append(f"{name}: {said}")

    cluster.patch = patch
    cluster.before_bind = lambda key, node: story.append(f"{key} bound")
    return story


async def test_a_pod_is_bound_when_what_was_said_of_it_is_written(cluster: Any, scheduling: Any, slow: list[str]):
    cluster.pod("web")
    async with scheduling():
        await asyncio.sleep(1)
        cluster.node("a")
        await asyncio.sleep(20)
        assert cluster.node_of("default/web") == "a"
    said = "web: no nodes available to schedule pods"
    assert slow == [f"{said} ...", said, "default/web bound"]


async def test_what_is_not_yet_sent_when_a_pod_is_bound_never_is(cluster: Any, slow: list[str]):
    patches = StatusPatches(cluster, cluster.clock)
    web = cluster.pod("web")
    patches.set(web, reason="Unschedulable", message="no room")
    await patches.settle(web.metadata.uid)
    assert len(patches) == 0


async def test_the_last_word_on_a_pod_is_the_newest_and_others_need_not_wait_for_it(cluster: Any, slow: list[str]):
    patches = StatusPatches(cluster, cluster.clock)
    web, other = cluster.pod("web"), cluster.pod("other")
    async with asyncio.TaskGroup() as tasks:
        running = tasks.create_task(patches.run())
        for message in ("first", "second", "third"):
            patches.set(web, reason="Unschedulable", message=message)
            await asyncio.sleep(1)
        patches.set(other, reason="Unschedulable", message="no room")
        await asyncio.sleep(20)
        running.cancel()
    assert slow == [
        "web: first ...",
        "other: no room ...",
        "web: first",
        "web: third ...",
        "other: no room",
        "web: third",
    ]
