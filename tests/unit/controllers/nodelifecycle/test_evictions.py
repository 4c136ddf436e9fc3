"""Queues of nodes for NoExecute taints, and the states of zones."""

from __future__ import annotations

from typing import Any

import pytest
from msgspec import structs

from kubeloop.controllers.nodelifecycle.evictions import Evictions
from kubeloop.kube.objects.api_types import Node, convert
from kubeloop.process.control_plane.controller_table import default_options

pytestmark = pytest.mark.virtual_time


def node(name: str, ready: str, **labels: str) -> Node:
    conditions = [{"type": "Ready", "status": ready}]
    return convert(Node, {"metadata": {"name": name, "labels": labels}, "status": {"conditions": conditions}})


@pytest.fixture
def evictions(fake_apiserver: Any) -> Evictions:
    return Evictions(structs.replace(fake_apiserver.context, options=default_options()))


async def test_node_is_queued_until_it_is_ready(evictions):
    for ready, queued in (("Unknown", True), ("False", True), ("True", False)):
        await evictions.plan(node("a", ready), ready)
        assert evictions.is_queued(node("a", ready)) is queued


async def test_evictions_resume_with_the_first_ready_node(evictions):
    for name in ("a", "b"):
        evictions.count(node(name, "Unknown"))
        await evictions.plan(node(name, "Unknown"), "Unknown")
    assert not await evictions.update_zones()
    evictions.stop_counting("a")
    evictions.count(node("a", "True"))
    assert await evictions.update_zones()
    assert not await evictions.update_zones()


async def test_excluded_node_does_not_count(evictions, fake_apiserver):
    evictions.count(node("a", "True"))
    evictions.count(node("b", "Unknown", **{"node.kubernetes.io/exclude-disruption": ""}))
    await evictions.plan(node("a", "True"), "True")
    await evictions.update_zones()
    assert fake_apiserver.metrics.values("node_collector_zone_size") == {",": 1}
