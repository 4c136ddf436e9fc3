"""Events that enqueue Services."""

from __future__ import annotations

import asyncio

import pytest

from kubeloop.controllers.runtime.queue.work_queue import WorkQueue
from kubeloop.controllers.runtime.services.service_events import add_service_handlers
from kubeloop.kube.objects.resources import PODS, SERVICES

pytestmark = pytest.mark.virtual_time


@pytest.mark.parametrize("batch_seconds", [0.0, 10.0])
async def test_service_is_enqueued_at_once_and_for_its_pods_after_the_batch_period(
    fake_apiserver, start, batch_seconds
):
    queue = WorkQueue()
    add_service_handlers(fake_apiserver.informers, queue, batch_seconds)
    await start(fake_apiserver.informers)
    spec = {"selector": {"app": "web"}, "ports": [{"port": 80}]}
    fake_apiserver.api.create(SERVICES.path("ns"), {"metadata": {"name": "web"}, "spec": spec})
    await asyncio.sleep(1)
    assert [await queue.get() for _ in range(2)] == ["default/kubernetes", "ns/web"]
    queue.done("ns/web")
    fake_apiserver.add(PODS, "other", labels={"app": "other"})
    fake_apiserver.add(PODS, "pod", labels={"app": "web"})
    await asyncio.sleep(5)
    assert len(queue) == (0 if batch_seconds else 1)
    await asyncio.sleep(6)
    assert len(queue) == 1
