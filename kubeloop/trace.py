"""`kubeloop trace`: the trace of a pod, asked from the running process."""

from __future__ import annotations

import json
import sys
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from kubeloop.kube.errors import UserError
from kubeloop.running import process_to_ask

if TYPE_CHECKING:
    from kubeloop.control_plane import ControlPlane
    from kubeloop.endpoint import Endpoint

_PATH = "/debug/traces"
_KINDS = {"pod": "pod", "pods": "pod", "po": "pod", "deploy": "deployment", "deployment": "deployment"}
_ANSWER_SECONDS = 10.0


def show(*, target: str | None, namespace: str, as_json: bool, endpoint: str | None) -> int:
    """Run the command and return its exit code. Raises UserError for what the user can mend."""
    query = _query(target, namespace)
    url = endpoint or process_to_ask().endpoint
    document = _ask(f"{url.rstrip('/')}{_PATH}?{urllib.parse.urlencode(query)}")
    if as_json:
        sys.stdout.write(json.dumps(document) + "\n")
        return 0
    from rich.console import Console

    from kubeloop.tracing.view import waterfall

    Console().print(waterfall(document))
    return 0


def _query(target: str | None, namespace: str) -> dict[str, str]:
    if target is None:
        return {"namespace": namespace}
    kind, slash, name = target.partition("/")
    if not slash or not name or kind.lower().removesuffix(".apps") not in _KINDS:
        raise UserError(f"cannot trace '{target}'", hint="say pod/NAME or deploy/NAME")
    return {"namespace": namespace, _KINDS[kind.lower().removesuffix(".apps")]: name}


def _ask(url: str) -> Any:
    try:
        # the endpoint is on this machine: a proxy for the world outside does not concern it
        opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
        with opener.open(url, timeout=_ANSWER_SECONDS) as answer:
            return json.load(answer)
    except urllib.error.HTTPError as error:
        try:
            problem = json.load(error)["error"]
        except (ValueError, KeyError):
            problem = f"the endpoint answers {error.code}"
        raise UserError(problem, hint="kubectl get pods -A lists what there is; the newest traces are kept") from None
    except (OSError, ValueError) as error:
        raise UserError(f"{url} does not answer: {error}", hint="is kubeloop running? see --endpoint") from None


def trace_pages(endpoint: Endpoint, plane: ControlPlane) -> None:
    """Let the endpoint answer `kubeloop trace`."""
    tracing = plane.tracing

    async def answer(query: Mapping[str, str]) -> Any:
        namespace = query.get("namespace", "default")
        await tracing.flush()
        if "pod" in query:
            found = tracing.memory.of_pod(namespace, query["pod"])
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
