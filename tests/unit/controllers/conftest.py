"""Fixtures of controller tests: a fake API server, an event sink, and controllers that run during a test."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any

import pytest

from kubeloop.kube.feature_gates import GANG_SCHEDULING_GATES, FeatureGates
from kubeloop.kube.objects.resources import NAMESPACES
from support.apiserver.fake_apiserver import FakeApiServer
from support.simulation.recorded_events import RecordedEvents


@pytest.fixture
async def fake_apiserver() -> FakeApiServer:
    """Return an API server with the namespaces "ns" and "other" and the custom resource WIDGETS."""
    return _new_server()


@pytest.fixture
async def gang_apiserver() -> FakeApiServer:
    """Return such a server with the feature gates of gang scheduling."""
    return _new_server(gates=FeatureGates(dict.fromkeys(GANG_SCHEDULING_GATES, True)))


def _new_server(**options: Any) -> FakeApiServer:
    server = FakeApiServer(**options)
    server.define_widgets()
    for name in ("ns", "other"):
        server.add(NAMESPACES, name)
    return server


@pytest.fixture
def recorded_events() -> RecordedEvents:
    return RecordedEvents()


@pytest.fixture
async def start() -> AsyncIterator[Callable[..., Awaitable[None]]]:
    """Start components. They are cancelled after the test, and must not have failed."""
    tasks: list[asyncio.Task[None]] = []

    async def start(*components: Any) -> None:
        tasks.extend(asyncio.ensure_future(component.run()) for component in components)
        await asyncio.sleep(1)

    yield start
    for task in reversed(tasks):
        task.cancel()
    results = await asyncio.gather(*tasks, return_exceptions=True)
    assert all(isinstance(result, asyncio.CancelledError) for result in results), results
