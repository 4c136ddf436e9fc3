"""Shared by all tests: the `virtual_time` mark, under which a test's event loop jumps over every wait."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable, Mapping

import pytest

from kubeloop.testing.virtual_time import VirtualClock, VirtualTimeLoop


def pytest_configure(config: pytest.Config) -> None:
    config.addinivalue_line("markers", "virtual_time: the test's event loop and `clock` run in virtual time")


def pytest_asyncio_loop_factories(
    config: pytest.Config, item: pytest.Item
) -> Mapping[str, Callable[[], asyncio.AbstractEventLoop]]:
    if item.get_closest_marker("virtual_time"):
        return {"virtual": VirtualTimeLoop}
    return {"asyncio": asyncio.SelectorEventLoop}


@pytest.fixture
def clock() -> VirtualClock:
    """Wall time that follows the running loop; virtual only under the `virtual_time` mark."""
    return VirtualClock()


@pytest.fixture
def rng() -> random.Random:
    return random.Random(20260101)
