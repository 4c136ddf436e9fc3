"""/debug/scheduler: cache and queue of the scheduler, compared with the API server."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import msgspec

from kubeloop.kube.errors import ApiError, ServerUnreachable
from kubeloop.process.endpoint.server import File
from kubeloop.process.scheduler_dump import compared, in_slices

if TYPE_CHECKING:
    from kubeloop.process.control_plane import ControlPlane
    from kubeloop.process.endpoint.server import Endpoint

_NODES_IN_A_SLICE, _PODS_IN_A_SLICE = 200, 2000  # some 5 ms each


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
            end["differences"] = (await compared(plane.client, plane.scheduler)).to_json()
        except (ApiError, ServerUnreachable) as error:
            end["comparisonError"] = str(error)
        body = b'{"nodes":[' + b",".join(nodes) + b"]," + msgspec.json.encode(end)[1:]
        return File(body, "application/json")

    endpoint.add_page("/debug/scheduler", answer)
