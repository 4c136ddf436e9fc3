"""Pods waiting on Permit: allowed by all plugins, rejected by one, or timed out."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from kubeloop.scheduler.api.status import Code
from kubeloop.scheduler.cache.node_info import PodInfo
from kubeloop.scheduler.framework.waiting_pods import PodWaitingOnPermit, WaitingPods

pytestmark = pytest.mark.virtual_time


async def test_pod_is_allowed_by_all_plugins(pod: Any) -> None:
    waiting = PodWaitingOnPermit(PodInfo(pod("p")), {"A": 10.0, "B": 10.0})
    waiting.allow("A")
    assert waiting.pending_plugins == {"B"}
    waiting.allow("B")
    assert await waiting.decision() is None


async def test_first_rejection_decides(pod: Any) -> None:
    waiting = PodWaitingOnPermit(PodInfo(pod("p")), {"A": 10.0, "B": 10.0})
    waiting.allow("A")
    waiting.reject("B", "full")
    waiting.allow("B")
    status = await waiting.decision()
    assert status is not None
    assert (status.code, status.plugin) == (Code.UNSCHEDULABLE, "B")
    assert status.reasons == ("full",)


async def test_shortest_timeout_rejects(pod: Any) -> None:
    waiting = PodWaitingOnPermit(PodInfo(pod("p")), {"A": 10.0, "B": 5.0})
    loop = asyncio.get_running_loop()
    start = loop.time()
    status = await waiting.decision()
    assert status is not None
    assert status.plugin == "B"
    assert status.reasons == ("rejected due to timeout after waiting 5s at plugin B",)
    assert loop.time() - start == pytest.approx(5.0)


async def test_removed_pod_stops_waiting(pod: Any) -> None:
    waiting_pods = WaitingPods()
    assert not waiting_pods.reject_removed("p")
    assert await waiting_pods.decision("p") is None
    waiting_pods.add(PodInfo(pod("p")), {"A": 10.0})
    assert waiting_pods.reject_removed("p")
    status = await waiting_pods.decision("p")
    assert status is not None
    assert "removed" in status.message
    assert waiting_pods.get("p") is None


async def test_preempted_waiting_pod_is_an_error_not_a_rejection(pod: Any) -> None:
    waiting_pods = WaitingPods()
    waiting_pods.add(PodInfo(pod("p")), {"A": 10.0})
    assert waiting_pods.preempt("p", "DefaultPreemption")
    assert not waiting_pods.preempt("p", "DefaultPreemption"), "decided already"
    status = await waiting_pods.decision("p")
    assert status is not None
    assert (status.code, status.reasons) == (Code.ERROR, ("waiting on permit for pod: preempted",))
    assert not waiting_pods.preempt("p", "DefaultPreemption"), "no longer waiting"


async def test_preemption_cancels_pre_bind_until_it_ends() -> None:
    waiting_pods = WaitingPods()
    ends = []

    async def plugins() -> None:
        try:
            await asyncio.sleep(60)
        finally:
            ends.append(asyncio.get_running_loop().time())

    start = asyncio.get_running_loop().time()
    running = asyncio.create_task(waiting_pods.run_pre_bind("p", plugins()))
    await asyncio.sleep(1)
    assert waiting_pods.preempt("p", "DefaultPreemption")
    assert waiting_pods.preempt("p", "DefaultPreemption"), "by another preemptor, too"
    status = await running
    assert status is not None
    assert (status.code, status.reasons) == (Code.ERROR, ("preempted by DefaultPreemption",))
    assert [end - start for end in ends] == [pytest.approx(1.0)]
    assert not waiting_pods.preempt("p", "DefaultPreemption"), "the phase has ended"
