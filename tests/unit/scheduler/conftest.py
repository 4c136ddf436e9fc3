"""Fixtures: a running scheduler on an in-memory cluster, and a cluster for calling plugins directly."""

from __future__ import annotations

import asyncio
import contextlib
import random
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any

import pytest

from kubeloop.kube.objects.api_types import Node, Pod
from kubeloop.scheduler.config.types import SchedulerConfiguration
from kubeloop.scheduler.scheduler import Scheduler
from support.disabled_recorders import DisabledPodRecorder
from support.plugin_cluster import PluginCluster, make_node, make_pod
from support.scheduler_cluster import InMemoryCluster


@pytest.fixture
def cluster(clock: Any) -> InMemoryCluster:
    return InMemoryCluster(clock)


@pytest.fixture
def scheduling(cluster: InMemoryCluster, clock: Any) -> Callable[..., Any]:
    """`async with scheduling(profiles=...) as scheduler:` runs a scheduler on the cluster."""

    @asynccontextmanager
    async def running(*, metrics: Any = None, traces: Any = None, **config: Any) -> AsyncIterator[Scheduler]:
        scheduler = Scheduler(
            cluster,  # type: ignore[arg-type]
            cluster,  # type: ignore[arg-type]
            config=SchedulerConfiguration(**config),
            clock=clock,
            rng=random.Random(1),
            recorder=cluster,
            traces=traces or DisabledPodRecorder(),
            metrics=metrics,
        )
        task = asyncio.get_running_loop().create_task(scheduler.run())
        try:
            yield scheduler
        finally:
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
