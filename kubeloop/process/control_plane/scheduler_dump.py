"""Dump of the scheduler's cache and queue, and their comparison with the API server; written to the log on SIGUSR2.

Source: pkg/scheduler/backend/cache/debugger of v1.36, which compares with informers instead of the API server.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Callable, Iterable
from typing import TYPE_CHECKING, TypeVar

from kubeloop.kube.client.api_client import ApiClient
from kubeloop.kube.errors import ApiError, ServerUnreachable
from kubeloop.kube.objects.api_types import Pod
from kubeloop.kube.objects.resources import NODES, PODS

if TYPE_CHECKING:
    from kubeloop.scheduler.explain.cache_debugger import Differences
    from kubeloop.scheduler.scheduler import Scheduler

log = logging.getLogger(__name__)

_SETTLE_SECONDS = 1.0
_LINES_PER_RECORD = 2000  # about 5 ms

T = TypeVar("T")


async def compare_with_api_server(client: ApiClient, scheduler: Scheduler) -> Differences:
    """Compare cache and queue with the API server. Only differences that persist for a second count: others may be
    events that have not arrived yet. Raises ApiError, ServerUnreachable."""
    differences = await _compare_once(client, scheduler)
    if differences:
        await asyncio.sleep(_SETTLE_SECONDS)
        differences = differences.persisting(await _compare_once(client, scheduler))
    return differences


async def _compare_once(client: ApiClient, scheduler: Scheduler) -> Differences:
    from kubeloop.scheduler.event_handlers import is_terminated
    from kubeloop.scheduler.explain.cache_debugger import compare

    nodes = {node.metadata.name for node in (await client.list_all(NODES)).items}
    pods: dict[str, Pod] = {}
    async for pod in in_batches((await client.list_all(PODS)).items, 10_000):
        if not is_terminated(pod):
            pods[pod.metadata.uid] = pod
    return compare(scheduler.cache, scheduler.queue, nodes, pods)


async def in_batches(items: Iterable[T], size: int) -> AsyncIterator[T]:
    """Yield `items`, with a turn for other tasks after every `size` items."""
    for number, item in enumerate(items, start=1):
        yield item
        if number % size == 0:
            await asyncio.sleep(0)


async def dump_on_request(
    client: ApiClient, requested: asyncio.Event, current_scheduler: Callable[[], Scheduler | None]
) -> None:
    """Write the dump and the comparison to the log whenever `requested` is set. Runs until cancelled.

    A long dump is split into several records, with turns for other tasks in between; its content is of one moment.
    """
    while True:
        await requested.wait()
        requested.clear()
        scheduler = current_scheduler()
        if scheduler is None:
            log.info("nothing to dump: this process runs no scheduler, or has not started it yet")
            continue
        from kubeloop.scheduler.explain.cache_debugger import CacheDump, comparison_text

        lines: list[str] = []
        for line in CacheDump(scheduler.cache, scheduler.queue).lines():
            lines.append(line)
            if len(lines) == _LINES_PER_RECORD:
                log.info("%s", "\n".join(lines))
                lines.clear()
                await asyncio.sleep(0)
        log.info("%s", "\n".join(lines))
        try:
            log.info("%s", comparison_text(await compare_with_api_server(client, scheduler)))
        except (ApiError, ServerUnreachable) as error:
            log.info("cannot compare the scheduler's cache with the API server", extra={"error": str(error)})
