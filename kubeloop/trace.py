"""`kubeloop trace`: the trace of a pod, asked from the running process."""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from kubeloop import asking
from kubeloop.kube.resources import PODS

if TYPE_CHECKING:
    from kubeloop.control_plane import ControlPlane
    from kubeloop.endpoint import Endpoint

_PATH = "/debug/traces"
_HINT = "kubectl get pods -A lists what there is; the newest traces are kept"


def show(*, target: str | None, namespace: str, as_json: bool, endpoint: str | None) -> int:
    """Run the command and return its exit code. Raises UserError for what the user can mend."""
    query = {"namespace": namespace}
    if target is not None:
        kind, name = asking.parse_target(target, asking.PODS | asking.DEPLOYMENTS, verb="trace")
        query[kind] = name
    document = asking.ask(_PATH, query, endpoint=endpoint, hint=_HINT)
    if as_json:
        sys.stdout.write(json.dumps(document) + "\n")
        return 0
    from rich.console import Console

    from kubeloop.tracing.views.waterfall import waterfall

    Console().print(waterfall(document))
    return 0


def trace_pages(endpoint: Endpoint, plane: ControlPlane) -> None:
    """Let the endpoint answer `kubeloop trace`."""
    tracing = plane.tracing
    pods = plane.informers.informer(PODS).store

    async def answer(query: Mapping[str, str]) -> Any:
        namespace = query.get("namespace", "default")
        await tracing.flush()
        if "pod" in query:
            found = tracing.memory.of_pod(namespace, query["pod"])
            if found is None and (pod := pods.get(f"{namespace}/{query['pod']}")) is not None:
                # bound before this process began: what is known of it stands on the object
                found = tracing.reconstructed(pod)
            missing = f"no trace of pod {namespace}/{query['pod']}"
        elif "deployment" in query:
            found = tracing.memory.slowest_of_deployment(namespace, query["deployment"])
            missing = f"no trace of a pod of deployment {namespace}/{query['deployment']}"
        else:
            found = tracing.memory.slowest(namespace)
            missing = f"no trace of a pod in namespace {namespace}"
        if found is None:
            raise KeyError(missing)
        return found

    endpoint.add_page(_PATH, answer)
