"""Comparison of the scheduler's cache with the API server, and the dump in the log."""

from __future__ import annotations

import asyncio
import logging
from types import SimpleNamespace
from typing import Any

import pytest

from kubeloop.kube.errors import ServerUnreachable
from kubeloop.kube.objects.api_types import Node, convert
from kubeloop.kube.objects.resources import NODES
from kubeloop.process.control_plane.scheduler_dump import compare_with_api_server, dump_on_request
from kubeloop.scheduler.cache.cache import SchedulerCache
from kubeloop.scheduler.queue.pod_queues import PendingPods

pytestmark = pytest.mark.virtual_time


class EmptyQueue:
    nominator = SimpleNamespace(nodes=list, pods_on=lambda name: [])
    scheduling_cycle = 0
    in_flight: dict[str, Any] = {}  # noqa: RUF012 # never written

    def pending_pods(self) -> PendingPods:
        return PendingPods([], [], [], [])


class Server:
    """list_all() of a client: returns the lists of node names in turn, the last one repeatedly; None: unreachable."""

    def __init__(self, *node_lists: list[str] | None) -> None:
        self._node_lists = list(node_lists)

    async def list_all(self, resource: Any) -> Any:
        if resource is not NODES:
            return SimpleNamespace(items=[])
        names = self._node_lists.pop(0) if len(self._node_lists) > 1 else self._node_lists[0]
        if names is None:
            raise ServerUnreachable("nobody there", maybe_applied=False)
        return SimpleNamespace(items=[node(name) for name in names])


def node(name: str) -> Node:
    return convert(Node, {"metadata": {"name": name}})


def plane_over(*node_lists: list[str] | None) -> Any:
    """A control plane whose scheduler cache has the nodes a and b."""
    cache = SchedulerCache(lambda: 0.0)
    cache.add_node(node("a"))
    cache.add_node(node("b"))
    scheduler = SimpleNamespace(cache=cache, queue=EmptyQueue())
    return SimpleNamespace(client=Server(*node_lists), scheduler=scheduler, dump_requested=asyncio.Event())


async def test_transient_difference_is_ignored():
    plane = plane_over(["a"], ["a", "b"])
    assert not await compare_with_api_server(plane.client, plane.scheduler)


async def test_persistent_difference_is_reported():
    plane = plane_over(["a", "c"], ["a", "c", "d"])
    differences = await compare_with_api_server(plane.client, plane.scheduler)
    assert (differences.missed_nodes, differences.redundant_nodes) == (("c",), ("b",))


@pytest.mark.parametrize(
    ("node_lists", "message"),
    [
        pytest.param([["a", "b"]], "The cache agrees with the API server", id="same"),
        pytest.param([["a"]], "The cache does not agree with the API server\n  redundantNodes: b", id="redundant node"),
        pytest.param([None], "cannot compare the scheduler's cache with the API server", id="no response"),
    ],
)
async def test_requested_dump_is_logged(node_lists, message, caplog):
    caplog.set_level(logging.INFO, "kubeloop.process.control_plane.scheduler_dump")
    plane = plane_over(*node_lists)
    async with asyncio.TaskGroup() as group:
        dumping = group.create_task(dump_on_request(plane.client, plane.dump_requested, lambda: plane.scheduler))
        plane.dump_requested.set()
        await asyncio.sleep(2)
        dumping.cancel()
    dump, comparison = [record.getMessage() for record in caplog.records]
    assert "Node name: b, requested {}" in dump
    assert comparison == message


async def test_dump_without_a_scheduler_is_empty(caplog):
    caplog.set_level(logging.INFO, "kubeloop.process.control_plane.scheduler_dump")
    plane = plane_over([])
    plane.scheduler = None
    async with asyncio.TaskGroup() as group:
        dumping = group.create_task(dump_on_request(plane.client, plane.dump_requested, lambda: plane.scheduler))
        plane.dump_requested.set()
        await asyncio.sleep(0.1)
        dumping.cancel()
    assert "runs no scheduler" in caplog.text
