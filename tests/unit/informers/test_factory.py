"""Informer factory: sharing, the end of released informers, and the first object of a resource."""

import asyncio
import random
from typing import Any

import pytest

from kubeloop.informers.factory import InformerFactory
from kubeloop.kube.clock import SystemClock
from kubeloop.kube.objects.api_types import to_json
from kubeloop.kube.objects.resources import NAMESPACES, NODES, PODS, REPLICA_SETS, SECRETS
from support.apiserver.fake_apiserver import FakeApiServer


def factory() -> InformerFactory:
    return InformerFactory(None, clock=SystemClock(), rng=random.Random(0))  # type: ignore[arg-type] # sends no request


def test_same_resource_shares_one_informer():
    informers = factory()
    pods = informers.informer(PODS)
    assert informers.informer(PODS) is pods
    assert informers.informer(NODES) is not pods
    assert len(informers.informers) == 2


def test_acquired_informer_reuses_an_existing_one():
    informers = factory()
    pods = informers.informer(PODS)
    assert informers.acquire_informer(PODS) is pods


def test_released_informer_ends_unless_it_is_used_otherwise():
    informers = factory()
    acquired = informers.acquire_informer(PODS)
    informers.release(acquired.add_handler(object()))
    assert informers.informers == []

    acquired = informers.acquire_informer(NODES)
    assert informers.informer(NODES) is acquired
    informers.release(acquired.add_handler(object()))
    assert informers.informers == [acquired]


@pytest.mark.virtual_time
async def test_wait_for_object_returns_at_the_first_object_and_releases_informers():
    server = FakeApiServer()
    server.add(NAMESPACES, "ns")

    def has_label(obj: Any) -> bool:
        return bool((obj if isinstance(obj, dict) else to_json(obj))["metadata"].get("labels"))

    informers_task = asyncio.ensure_future(server.informers.run())
    waiting = asyncio.ensure_future(server.informers.wait_for_object([REPLICA_SETS, SECRETS], has_label))
    await asyncio.sleep(1)
    server.add(SECRETS, "ignored")
    await asyncio.sleep(1)
    assert not waiting.done()
    assert len(server.informers.informers) == 2
    assert server.api("PATCH", SECRETS.path("ns", "ignored"), {"metadata": {"labels": {"a": "b"}}})[0] == 200
    await waiting
    assert server.informers.informers == []
    server.informers.informer(SECRETS)
    await server.informers.wait_for_object([SECRETS])  # objects of the first list count, too
    assert len(server.informers.informers) == 1
    informers_task.cancel()
