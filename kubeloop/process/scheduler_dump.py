"""What the scheduler holds, and whether it is what the API server has: at /debug/scheduler, and in the log on SIGUSR2.

Source: pkg/scheduler/backend/cache/debugger of v1.36, which compares with its informers; here the API server is asked.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Iterable, Mapping
from typing import TYPE_CHECKING, Any, TypeVar

import msgspec

from kubeloop.kube.errors import ApiError, ServerUnreachable
from kubeloop.kube.objects.api_types import Pod
from kubeloop.kube.objects.resources import NODES, PODS
from kubeloop.process.endpoint.server import File

if TYPE_CHECKING:
    from kubeloop.process.control_plane import ControlPlane
    from kubeloop.process.endpoint.server import Endpoint
    from kubeloop.scheduler.explain.cache_debugger import Differences
    from kubeloop.scheduler.scheduler import Scheduler

log = logging.getLogger(__name__)

_SETTLE_SECONDS = 1.0
_LINES_IN_A_RECORD, _NODES_IN_A_SLICE, _PODS_IN_A_SLICE = 2000, 200, 2000  # some 5 ms each

T = TypeVar("T")


async def compared(plane: ControlPlane, scheduler: Scheduler) -> Differences:
    """Cache and queue against the API server. A difference counts if it is still there a second later: until then it
    may be nothing but an event on its way. Raises ApiError, ServerUnreachable."""
    differences = await _compared_now(plane, scheduler)
    if differences:
        await asyncio.sleep(_SETTLE_SECONDS)
        differences = differences.persisting(await _compared_now(plane, scheduler))
    return differences


async def _compared_now(plane: ControlPlane, scheduler: Scheduler) -> Differences:
    from kubeloop.scheduler.event_handlers import is_terminated
    from kubeloop.scheduler.explain.cache_debugger import compare_with

    nodes = {node.metadata.name for node in (await plane.client.list_all(NODES)).items}
    pods: dict[str, Pod] = {}
    async for pod in in_slices((await plane.client.list_all(PODS)).items, 10_000):
        if not is_terminated(pod):
            pods[pod.metadata.uid] = pod
    return compare_with(scheduler.cache, scheduler.queue, nodes, pods)


async def in_slices(things: Iterable[T], size: int) -> AsyncIterator[T]:
    """`things`, with a chance for others to run after each `size` of them."""
    for number, each in enumerate(things, start=1):
        yield each
        if number % size == 0:
            await asyncio.sleep(0)


async def dump_on_request(plane: ControlPlane) -> None:
    """Write the dump and the comparison to the log whenever `plane.dump_wanted` is set. Runs until cancelled.

    A long dump comes as several records, and other work goes on between them; it is what was held at one moment.
    """
    while True:
        await plane.dump_wanted.wait()
        plane.dump_wanted.clear()
        if plane.scheduler is None:
            log.info("there is nothing to dump: this process runs no scheduler, or has not started it yet")
            continue
        from kubeloop.scheduler.explain.cache_debugger import Held, comparison_text

        lines: list[str] = []
        for line in Held(plane.scheduler.cache, plane.scheduler.queue).lines():
            lines.append(line)
            if len(lines) == _LINES_IN_A_RECORD:
                log.info("%s", "\n".join(lines))
                lines.clear()
                await asyncio.sleep(0)
        log.info("%s", "\n".join(lines))
        try:
            log.info("%s", comparison_text(await compared(plane, plane.scheduler)))
        except (ApiError, ServerUnreachable) as error:
            log.info("no comparison with the API server: %s", error)


def dump_pages(endpoint: Endpoint, plane: ControlPlane) -> None:
    """Let the endpoint answer /debug/scheduler: {"nodes", "queue", "differences" or "comparisonError"}."""

    async def answer(_: Mapping[str, str]) -> File:
        if plane.scheduler is None:
            raise KeyError("this process runs no scheduler, or has not started it yet")
        from kubeloop.scheduler.explain.cache_debugger import Held

        held = Held(plane.scheduler.cache, plane.scheduler.queue)
        nodes = [msgspec.json.encode(node) async for node in in_slices(held.nodes(), _NODES_IN_A_SLICE)]
        queued = [each async for each in in_slices(held.queued(), _PODS_IN_A_SLICE)]
        end: dict[str, Any] = {"queue": held.queue_document(queued)}
        try:
            end["differences"] = (await compared(plane, plane.scheduler)).to_json()
        except (ApiError, ServerUnreachable) as error:
            end["comparisonError"] = str(error)
        body = b'{"nodes":[' + b",".join(nodes) + b"]," + msgspec.json.encode(end)[1:]
        return File(body, "application/json")

    endpoint.add_page("/debug/scheduler", answer)
