"""The examples of docs/scheduler-plugins.md work as described."""

from __future__ import annotations

import asyncio
import re
import sys
import types
from collections.abc import Iterator
from pathlib import Path

import pytest

from kubeloop.scheduler.config.load import load_configuration

pytestmark = pytest.mark.virtual_time

PAGE = Path(__file__).resolve().parents[3] / "docs" / "scheduler-plugins.md"


def blocks(language: str) -> list[str]:
    return re.findall(rf"^```{language}\n(.*?)^```", PAGE.read_text(), re.MULTILINE | re.DOTALL)


@pytest.fixture(autouse=True)
def my_plugins() -> Iterator[None]:
    module = types.ModuleType("my_plugins")
    sys.modules["my_plugins"] = module
    for block in blocks("python"):
        exec(block, module.__dict__)
    yield
    del sys.modules["my_plugins"]


async def test_examples_filter_and_score(cluster, scheduling):
    (text,) = blocks("yaml")
    config = load_configuration(text)
    cluster.node("large-a", cpu="16", labels={"example.com/rack": "a"})
    cluster.node("small-b", cpu="2", labels={"example.com/rack": "b"})
    cluster.node("large-b", cpu="16", labels={"example.com/rack": "b"})
    async with scheduling(profiles=config.profiles) as scheduler:
        cluster.pod("anywhere")
        cluster.pod("in-b", metadata={"annotations": {"rack": "b"}})
        cluster.pod("in-c", metadata={"annotations": {"rack": "c"}})
        await asyncio.sleep(0.5)
        assert sorted(cluster.bindings) == [("default/anywhere", "small-b"), ("default/in-b", "small-b")]
        (message,) = (message for key, _, message in cluster.events if key == "default/in-c")
        assert message.startswith("0/3 nodes are available: 3 node(s) were in another rack.")
        cluster.node("other", labels={"example.com/rack": "x"})
        await asyncio.sleep(3)
        assert scheduler.queue.get("default/in-c")[0] == "unschedulable"
        cluster.node("right", labels={"example.com/rack": "c"})
        await asyncio.sleep(3)
        assert cluster.node_of("default/in-c") == "right"
