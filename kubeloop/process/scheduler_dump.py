"""What the scheduler holds, and whether it is what the API server has: at /debug/scheduler, and in the log on SIGUSR2.

Source: pkg/scheduler/backend/cache/debugger of v1.36, which compares with its informers; here the API server is asked.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Callable, Iterable
from typing import TYPE_CHECKING, TypeVar

from kubeloop.kube.client.api_client import Client
from kubeloop.kube.errors import ApiError, ServerUnreachable
from kubeloop.kube.objects.api_types import Pod
from kubeloop.kube.objects.resources import NODES, PODS

if TYPE_CHECKING:
    from kubeloop.scheduler.explain.cache_debugger import Differences
    from kubeloop.scheduler.scheduler import Scheduler

log = logging.getLogger(__name__)

_SETTLE_SECONDS = 1.0
_LINES_IN_A_RECORD = 2000  # about 5 ms

T = TypeVar("T")


async def compared(client: Client, scheduler: Scheduler) -> Differences:
    """Cache and queue against the API server. A difference counts if it is still there a second later: until then it
    may be nothing but an event on its way. Raises ApiError, ServerUnreachable."""
    differences = await _compared_now(client, scheduler)
    if differences:
        await asyncio.sleep(_SETTLE_SECONDS)
        differences = differences.persisting(await _compared_now(client, scheduler))
    return differences


async def _compared_now(client: Client, scheduler: Scheduler) -> Differences:
    from kubeloop.scheduler.event_handlers import is_terminated
    from kubeloop.scheduler.explain.cache_debugger import compare_with

    nodes = {node.metadata.name for node in (await client.list_all(NODES)).items}
    pods: dict[str, Pod] = {}
    async for pod in in_slices((await client.list_all(PODS)).items, 10_000):
        if not is_terminated(pod):
            pods[pod.metadata.uid] = pod
    return compare_with(scheduler.cache, scheduler.queue, nodes, pods)


async def in_slices(things: Iterable[T], size: int) -> AsyncIterator[T]:
    """`things`, with a chance for others to run after each `size` of them."""
    for number, each in enumerate(things, start=1):
        yield each
        if number % size == 0:
            await asyncio.sleep(0)


async def dump_on_request(
    client: Client, requested: asyncio.Event, scheduler_of: Callable[[], Scheduler | None]
) -> None:
    """Write the dump and the comparison to the log whenever `requested` is set. Runs until cancelled.

    A long dump comes as several records, and other work goes on between them; it is what was held at one moment.
    """
    while True:
        await requested.wait()
        requested.clear()
        scheduler = scheduler_of()
        if scheduler is None:
            log.info("there is nothing to dump: this process runs no scheduler, or has not started it yet")
            continue
        from kubeloop.scheduler.explain.cache_debugger import Held, comparison_text

        lines: list[str] = []
        for line in Held(scheduler.cache, scheduler.queue).lines():
            lines.append(line)
            if len(lines) == _LINES_IN_A_RECORD:
                log.info("%s", "\n".join(lines))
                lines.clear()
                await asyncio.sleep(0)
        log.info("%s", "\n".join(lines))
        try:
            log.info("%s", comparison_text(await compared(client, scheduler)))
        except (ApiError, ServerUnreachable) as error:
            log.info("no comparison with the API server: %s", error)
