"""Fixtures: a running scheduler on an in-memory cluster, and a cluster for calling plugins directly."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any

import pytest

from kubeloop.kube.objects.api_types import Node, Pod
from kubeloop.scheduler.config.types import SchedulerConfiguration
from kubeloop.scheduler.scheduler import Scheduler
from support.plugin_cluster import PluginCluster, make_node, make_pod
from support.scheduler_cluster import InMemoryCluster, new_scheduler


@pytest.fixture
def cluster(clock: Any) -> InMemoryCluster:
    return InMemoryCluster(clock)


@pytest.fixture
def scheduling(cluster: InMemoryCluster, clock: Any) -> Callable[..., Any]:
    """`async with scheduling(profiles=...) as scheduler:` runs a scheduler on the cluster."""

    @asynccontextmanager
    async def running(*, metrics: Any = None, traces: Any = None, **config: Any) -> AsyncIterator[Scheduler]:
        context = {"metrics": metrics} | ({} if traces is None else {"traces": traces})
        scheduler = new_scheduler(cluster, SchedulerConfiguration(**config), clock, **context)
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
