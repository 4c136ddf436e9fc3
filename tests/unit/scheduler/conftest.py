"""Fixtures: a running scheduler on a fake API server, and a cluster for calling plugins directly."""

from __future__ import annotations

import asyncio
import contextlib
import random
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any

import pytest

from kubeloop.informers.factory import InformerFactory
from kubeloop.kube.feature_gates import FeatureGates
from kubeloop.kube.objects.api_types import Node, Pod
from kubeloop.scheduler.config.types import SchedulerConfiguration
from kubeloop.scheduler.metrics import NO_METRICS, SchedulerMetrics
from kubeloop.scheduler.scheduler import Scheduler
from kubeloop.testing.virtual_time import VirtualClock
from support.scheduling.plugin_cluster import PluginCluster, make_node, make_pod
from support.scheduling.scheduler_cluster import SchedulerCluster


@pytest.fixture
async def cluster(clock: VirtualClock) -> SchedulerCluster:
    return SchedulerCluster(clock)


@pytest.fixture
def scheduling(cluster: SchedulerCluster) -> Callable[..., Any]:
    """`async with scheduling(profiles=...) as scheduler:` runs a scheduler and its informers on the cluster."""

    @asynccontextmanager
    async def running(
        *,
        metrics: SchedulerMetrics = NO_METRICS,
        traces: Any = None,
        group_traces: Any = None,
        gates: dict[str, bool] | None = None,
        turn_ended: Callable[[], None] = lambda: None,
        **config: Any,
    ) -> AsyncIterator[Scheduler]:
        informers = InformerFactory(cluster.server.client, clock=cluster.clock, rng=random.Random(1))
        context = {"metrics": metrics, "feature_gates": FeatureGates(gates or {})} | (
            {} if traces is None else {"traces": traces}
        )
        context |= {"group_traces": group_traces, "turn_ended": turn_ended}
        scheduler = cluster.scheduler(SchedulerConfiguration(**config), informers, **context)
        tasks = [asyncio.create_task(part.run()) for part in (informers, scheduler)]
        await informers.wait_synced()
        await asyncio.sleep(0)
        try:
            yield scheduler
        finally:
            for task in reversed(tasks):
                task.cancel()
                with contextlib.suppress(asyncio.CancelledError):
                    await task

    return running


@pytest.fixture
def plugin_cluster() -> type[PluginCluster]:
    return PluginCluster


@pytest.fixture(name="node")
def node_fixture() -> Callable[..., Node]:
    return make_node


@pytest.fixture(name="pod")
def pod_fixture() -> Callable[..., Pod]:
    return make_pod
