"""What the scheduler holds, and whether it is what the API server has: at /debug/scheduler, and in the log on SIGUSR2.

Source: pkg/scheduler/backend/cache/debugger of v1.36, which compares with its informers; here the API server is asked.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from kubeloop.kube.errors import ApiError, ServerUnreachable
from kubeloop.kube.resources import NODES, PODS

if TYPE_CHECKING:
    from kubeloop.control_plane import ControlPlane
    from kubeloop.endpoint import Endpoint
    from kubeloop.scheduler.debug import Differences
    from kubeloop.scheduler.scheduler import Scheduler

log = logging.getLogger(__name__)

_SETTLE_SECONDS = 1.0


async def compared(plane: ControlPlane, scheduler: Scheduler) -> Differences:
    """Cache and queue against the API server. A difference counts if it is still there a second later: until then it
    may be nothing but an event on its way. Raises ApiError, ServerUnreachable."""
    differences = await _compared_now(plane, scheduler)
    if differences:
        await asyncio.sleep(_SETTLE_SECONDS)
        differences = differences.persisting(await _compared_now(plane, scheduler))
    return differences


async def _compared_now(plane: ControlPlane, scheduler: Scheduler) -> Differences:
    from kubeloop.scheduler.debug import compare

    nodes = await plane.client.list_all(NODES)
    pods = await plane.client.list_all(PODS)
    return compare(scheduler.cache, scheduler.queue, nodes.items, pods.items)


async def dump_on_request(plane: ControlPlane) -> None:
    """Write the dump and the comparison to the log whenever `plane.dump_wanted` is set. Runs until cancelled."""
    while True:
        await plane.dump_wanted.wait()
        plane.dump_wanted.clear()
        if plane.scheduler is None:
            log.info("there is nothing to dump: this process runs no scheduler, or has not started it yet")
            continue
        from kubeloop.scheduler.debug import comparison_text, dump_text

        log.info("%s", dump_text(plane.scheduler.cache, plane.scheduler.queue))
        try:
            log.info("%s", comparison_text(await compared(plane, plane.scheduler)))
        except (ApiError, ServerUnreachable) as error:
            log.info("no comparison with the API server: %s", error)


def dump_pages(endpoint: Endpoint, plane: ControlPlane) -> None:
    """Let the endpoint answer /debug/scheduler: {"nodes", "queue", "differences" or "comparisonError"}."""

    async def answer(_: Mapping[str, str]) -> Any:
        if plane.scheduler is None:
            raise KeyError("this process runs no scheduler, or has not started it yet")
        from kubeloop.scheduler.debug import dump

        held = dump(plane.scheduler.cache, plane.scheduler.queue)
        try:
            differences = await compared(plane, plane.scheduler)
        except (ApiError, ServerUnreachable) as error:
            return held | {"comparisonError": str(error)}
        return held | {"differences": differences.to_json()}

    endpoint.add_page("/debug/scheduler", answer)
