"""Informers of other clusters: one connection for all controllers, closed at the end."""

from __future__ import annotations

import asyncio
import random
from typing import Any

import pytest

from kubeloop.controllers.runtime.other_clusters import OtherClusters
from kubeloop.kube.objects.resources import NAMESPACES

pytestmark = pytest.mark.virtual_time


async def test_cluster_is_connected_once_and_closed_at_the_end(fake_apiserver, start, monkeypatch):
    connections: list[tuple[str | None, str | None]] = []
    closed = asyncio.Event()

    async def connect(kubeconfig: str | None, context: str | None) -> Any:
        await asyncio.sleep(1)
        connections.append((kubeconfig, context))
        return fake_apiserver.transport

    async def close() -> None:
        closed.set()

    monkeypatch.setattr(fake_apiserver.transport, "close", close)
    clusters = OtherClusters(fake_apiserver.clock, random.Random(1), connect)
    running = asyncio.ensure_future(clusters.run())
    first, second = await asyncio.gather(clusters.informers("west"), clusters.informers("west"))
    assert first is second
    assert await clusters.informers("west", "/other/kubeconfig") is not first
    informer = first.informer(NAMESPACES)
    await informer.wait_synced()
    assert informer.store.get("ns")
    running.cancel()
    await asyncio.gather(running, return_exceptions=True)
    assert closed.is_set()
    assert connections == [(None, "west"), ("/other/kubeconfig", "west")]
