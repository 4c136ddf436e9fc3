"""The controller loop, in virtual time."""

from __future__ import annotations

import asyncio
import itertools
import logging
import weakref
from collections import Counter
from typing import Any

import pytest

from kubeloop.controllers.runtime.controller import ReconcileLoop, StaleCache
from kubeloop.controllers.runtime.controller_context import ControllerContext
from kubeloop.controllers.runtime.queue.reconcile_pace import FEWEST, MAX_WAIT_SECONDS, ReconcilePace
from kubeloop.controllers.runtime.queue.work_queue import WorkQueue
from kubeloop.kube.errors import Conflict
from kubeloop.kube.metric_families import NO_FAMILIES, MetricFamilies
from kubeloop.kube.objects.api_types import ApiStatus
from kubeloop.testing.virtual_time import VirtualClock
from support.simulation.metric_values import RecordedMetrics

pytestmark = pytest.mark.virtual_time


def context(metrics: MetricFamilies = NO_FAMILIES, **fields: Any) -> ControllerContext:
    unused: Any = None
    return ControllerContext(
        client=unused,
        informers=unused,
        clock=VirtualClock(),
        traces=unused,
        pod_traces=unused,
        events=unused,
        metrics=metrics,
        **fields,
    )


async def run_for(controller: ReconcileLoop, seconds: float) -> None:
    async with asyncio.TaskGroup() as tasks:
        task = tasks.create_task(controller.run())
        await asyncio.sleep(seconds)
        task.cancel()


async def test_reconciles_of_all_controllers_share_the_pace():
    pace = ReconcilePace(server_is_busy=lambda: True)
    running: set[str] = set()
    most = 0

    async def reconcile(key: str) -> float | None:
        nonlocal most
        running.add(key)
        most = max(most, len(running))
        await asyncio.sleep(MAX_WAIT_SECONDS / 5)
        running.remove(key)
        if key.endswith("0"):
            raise RuntimeError("broken")
        return None

    queues = [WorkQueue(), WorkQueue()]
    for number in range(10):
        for name, queue in zip("ab", queues, strict=True):
            queue.add(f"{name}/{number}")
    async with asyncio.TaskGroup() as group:
        for queue in queues:
            group.create_task(run_for(ReconcileLoop("demo", reconcile, queue, 5, context(pace=pace)), 1.0))
    assert most == FEWEST
    assert [len(queue) for queue in queues] == [0, 0]


async def test_failing_key_is_logged_and_does_not_block_others(caplog):
    queue = WorkQueue()
    reconciles: Counter[str] = Counter()

    async def reconcile(key: str) -> float | None:
        reconciles[key] += 1
        if key == "ns/poisoned":
            raise RuntimeError("broken")
        return None

    for key in ("ns/poisoned", "ns/a", "ns/b"):
        queue.add(key)
    with caplog.at_level(logging.ERROR):
        await run_for(ReconcileLoop("demo", reconcile, queue, 1, context()), 10.0)
    assert reconciles["ns/a"] == reconciles["ns/b"] == 1
    assert reconciles["ns/poisoned"] > 5
    assert "ns/poisoned" in caplog.text
    assert "broken" in caplog.text


async def test_workers_run_concurrently_but_never_on_the_same_key():
    queue = WorkQueue()
    active_workers: Counter[str] = Counter()
    max_active = 0

    async def reconcile(key: str) -> float | None:
        nonlocal max_active
        active_workers[key] += 1
        assert active_workers[key] == 1
        max_active = max(max_active, sum(active_workers.values()))
        queue.add("a")
        await asyncio.sleep(1.0)
        active_workers[key] -= 1
        return None

    for key in ("a", "b", "c"):
        queue.add(key)
    await run_for(ReconcileLoop("demo", reconcile, queue, 3, context()), 5.0)
    assert max_active == 3


async def test_returned_seconds_requeue_key_after_that_time():
    queue = WorkQueue()
    times: list[float] = []

    async def reconcile(key: str) -> float | None:
        times.append(asyncio.get_running_loop().time())
        return 30.0 if len(times) < 3 else None

    queue.add("a")
    await run_for(ReconcileLoop("demo", reconcile, queue, 1, context()), 300.0)
    assert [round(later - earlier) for earlier, later in itertools.pairwise(times)] == [30, 30]


async def test_key_is_dropped_after_max_requeues():
    queue = WorkQueue()
    tries = 0

    async def reconcile(key: str) -> float | None:
        nonlocal tries
        tries += 1
        raise Conflict(ApiStatus(code=409, reason="Conflict", message="changed"))

    queue.add("a")
    await run_for(ReconcileLoop("demo", reconcile, queue, 1, context(), max_requeues=3), 600.0)
    assert tries == 4
    assert queue.num_requeues("a") == 0


async def test_terminal_error_is_not_retried():
    queue = WorkQueue()
    tries = 0

    async def reconcile(key: str) -> float | None:
        nonlocal tries
        tries += 1
        raise ValueError("for good")

    queue.add("a")
    controller = ReconcileLoop(
        "demo", reconcile, queue, 1, context(), is_terminal=lambda error: isinstance(error, ValueError)
    )
    await run_for(controller, 600.0)
    assert tries == 1


async def test_stale_cache_is_retried_without_counting_as_failure():
    queue = WorkQueue()
    tries = 0

    async def reconcile(key: str) -> float | None:
        nonlocal tries
        tries += 1
        if tries < 4:
            raise StaleCache("behind", "pods")
        return None

    queue.add("a")
    await run_for(ReconcileLoop("demo", reconcile, queue, 1, context()), 1.0)
    assert tries == 4
    assert queue.num_requeues("a") == 0


@pytest.mark.parametrize(
    ("controller", "group_resource", "postponed"),
    [
        ("replicaset", "pods", {"replicaset_controller_stale_sync_skips_total,,pods": 1}),
        ("replicationmanager", "pods", {"replicationcontroller_controller_stale_sync_skips_total,,pods": 1}),
        ("statefulset", "pods", {"statefulset_controller_stale_sync_skips_total,,pods": 1}),
        ("daemonset", "daemonsets.apps", {"daemonset_controller_stale_sync_skips_total,apps,daemonsets": 1}),
        ("job", "jobs.batch", {"job_controller_stale_sync_skips_total,batch,jobs": 1}),
        ("endpoint", "pods", {}),
    ],
)
async def test_postponed_sync_is_counted_and_not_as_error(controller, group_resource, postponed):
    metrics = RecordedMetrics()
    failures = iter([StaleCache("behind", group_resource), RuntimeError("broken"), None])

    async def reconcile(key: str) -> float | None:
        failure = next(failures)
        if failure is not None:
            raise failure
        return None

    worker = ReconcileLoop(controller, reconcile, WorkQueue(), 1, context(metrics))
    for _ in range(3):
        await worker.process("a")
    assert metrics.values("") == {
        f"kubeloop_reconcile_duration_seconds_count,{controller}": 3,
        f"kubeloop_reconcile_errors_total,{controller}": 1,
        **postponed,
    }


async def test_failure_is_freed_without_garbage_collection(caplog):
    class Broken(Exception):
        pass

    async def reconcile(key: str) -> float | None:
        raise Broken

    caplog.set_level(logging.CRITICAL)  # a log record refers to its exception
    controller = ReconcileLoop("demo", reconcile, WorkQueue(), 1, context())
    failure = weakref.ref(await controller.process("a"))
    assert failure() is None
