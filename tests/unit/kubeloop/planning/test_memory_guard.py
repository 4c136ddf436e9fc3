"""kubeloop/planning/memory_guard.py: a plan or replay that grows ends before the memory does."""

from __future__ import annotations

import asyncio

import pytest

from kubeloop.kube.objects.resources import PODS
from kubeloop.kube.user_error import UserError
from kubeloop.planning.memory_guard import PODS_PER_CHECK, RESERVE_BYTES, memory_guard
from kubeloop.testing import memory_cluster

pytestmark = pytest.mark.virtual_time


@pytest.mark.parametrize(
    ("pods", "available", "ends"),
    [
        pytest.param(PODS_PER_CHECK, RESERVE_BYTES - 1, True, id="no memory"),
        pytest.param(PODS_PER_CHECK - 1, RESERVE_BYTES - 1, False, id="few pods"),
        pytest.param(3 * PODS_PER_CHECK, RESERVE_BYTES, False, id="memory"),
    ],
)
async def test_context_ends_without_memory_after_some_pods(monkeypatch, clock, pods, available, ends):
    monkeypatch.setattr("kubeloop.recording.memory.available_memory", lambda: available)
    problem = None
    async with memory_cluster(clock=clock, nodes=1) as cluster:
        try:
            async with memory_guard(cluster.api.store, "day.kubeloop"):
                for number in range(pods):
                    body = {"kind": "Pod", "metadata": {"name": f"p-{number}", "namespace": "default"}, "spec": {}}
                    cluster.api.store.create(PODS, body)
                await asyncio.sleep(5.0)
        except* UserError as group:
            problem = str(group.exceptions[0])
    assert (problem is not None) == ends
    if problem is not None:
        assert "day.kubeloop: no memory is left after" in problem
        assert f"with {pods} pods: 0.06 GiB are available" in problem
