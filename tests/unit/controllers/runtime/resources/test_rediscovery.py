"""Rediscovery, in virtual time."""

from __future__ import annotations

import asyncio

import pytest

from kubeloop.controllers.runtime.resources.rediscovery import CRD_SETTLE_SECONDS, REFRESH_SECONDS, Rediscovery

pytestmark = pytest.mark.virtual_time


async def seconds_of_wait(rediscovery: Rediscovery, *, periodic: bool = True) -> float:
    loop = asyncio.get_running_loop()
    started_at = loop.time()
    await rediscovery.wait(periodic=periodic)
    return loop.time() - started_at


async def test_discovery_is_due_after_a_request_or_the_interval():
    rediscovery = Rediscovery()
    rediscovery.request()
    assert await seconds_of_wait(rediscovery) == pytest.approx(CRD_SETTLE_SECONDS, abs=0.01)
    assert await seconds_of_wait(rediscovery) == pytest.approx(REFRESH_SECONDS, abs=0.01)


async def test_without_interval_only_a_request_makes_discovery_due():
    rediscovery = Rediscovery()
    asyncio.get_running_loop().call_later(500, rediscovery.request)
    assert await seconds_of_wait(rediscovery, periodic=False) == pytest.approx(500 + CRD_SETTLE_SECONDS, abs=0.01)
