"""/debug/scheduler: cache and queue of the scheduler, compared with the API server."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec

from kubeloop.kube.errors import ApiError, ServerUnreachable
from kubeloop.process.control_plane.control_plane import ControlPlane
from kubeloop.process.control_plane.scheduler_dump import compare_with_api_server, in_batches
from kubeloop.process.endpoint.server import EndpointServer, RawResponse

_NODES_PER_BATCH, _PODS_PER_BATCH = 200, 2000  # some 5 ms each


def add_dump_pages(endpoint: EndpointServer, plane: ControlPlane) -> None:
    """Add /debug/scheduler: {"nodes", "queue", "differences" or "comparisonError"}."""

    async def dump(_: Mapping[str, str]) -> RawResponse:
        if plane.scheduler is None:
            raise KeyError("this process runs no scheduler, or has not started it yet")
        from kubeloop.scheduler.explain.cache_debugger import CacheDump

        held = CacheDump(plane.scheduler.cache, plane.scheduler.queue)
        nodes = [msgspec.json.encode(node) async for node in in_batches(held.nodes(), _NODES_PER_BATCH)]
        queued = [pod async for pod in in_batches(held.queued(), _PODS_PER_BATCH)]
        rest: dict[str, Any] = {"queue": held.queue_document(queued)}
        try:
            rest["differences"] = (await compare_with_api_server(plane.client, plane.scheduler)).to_json()
        except (ApiError, ServerUnreachable) as error:
            rest["comparisonError"] = str(error)
        body = b'{"nodes":[' + b",".join(nodes) + b"]," + msgspec.json.encode(rest)[1:]
        return RawResponse(body, "application/json")

    endpoint.add_page("/debug/scheduler", dump)
