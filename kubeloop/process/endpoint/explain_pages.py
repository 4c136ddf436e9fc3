"""/debug/explain: the explanation of a pending pod, for `kubeloop explain`."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from kubeloop.process.control_plane import ControlPlane
    from kubeloop.process.endpoint.server import EndpointServer

EXPLAIN_PATH = "/debug/explain"


def add_explain_pages(endpoint: EndpointServer, plane: ControlPlane) -> None:
    """Add the page that `kubeloop explain` reads."""

    async def explain(query: Mapping[str, str]) -> Any:
        scheduler = plane.scheduler
        if scheduler is None:
            starting = "scheduler" in plane.settings.controllers
            raise KeyError("the scheduler has not started yet" if starting else "this process runs no scheduler")
        if "pod" not in query:
            raise KeyError(f"no pod in the query; use {EXPLAIN_PATH}?namespace=NAMESPACE&pod=NAME")
        from kubeloop.scheduler.explain.pending_pod import explain_in_slices

        key = f"{query.get('namespace', 'default')}/{query['pod']}"
        if scheduler.listers.pods.get(key) is None:
            raise KeyError(f"there is no pod {key}")
        return (await explain_in_slices(scheduler, key)).to_json() | {"scheduling": scheduler.is_running}

    endpoint.add_page(EXPLAIN_PATH, explain)
