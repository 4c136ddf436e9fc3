"""Fixtures for the volume controllers of the development cluster."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import pytest


@pytest.fixture
async def start() -> AsyncIterator[Any]:
    """`await start(cluster)` runs the provisioner of a cluster until the end of the test, and returns the cluster."""
    tasks = []

    async def start(cluster: Any) -> Any:
        cluster.provisioner.register()
        tasks.append(asyncio.ensure_future(cluster.provisioner.run()))
        await asyncio.sleep(1)
        return cluster

    yield start
    for task in tasks:
        task.cancel()
