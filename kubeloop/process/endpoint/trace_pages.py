"""What the endpoint answers about traces: to `kubeloop trace`, and to browsers at /traces.

/debug/traces          one trace: ?pod= | ?deployment= (its slowest pod) | ?key= | ?trace= | the slowest of all
/debug/traces/lines    pods as lines, those that changed since ?cursor=; of ?namespace= and ?owner=
/debug/traces/stream   every trace of ?pod= | ?deployment= | ?namespace=, and what caused them
/traces                the page, and its files
"""

from __future__ import annotations

import asyncio
import functools
from collections.abc import AsyncGenerator, Iterable, Mapping
from typing import TYPE_CHECKING, Any

from kubeloop.kube.errors import UserError
from kubeloop.kube.objects.resources import DEPLOYMENTS, PODS
from kubeloop.process.endpoint.server import File
from kubeloop.process.endpoint.trace_targets import TRACES_PAGE_PATH, TRACES_PATH, causes_of, resolve
from kubeloop.tracing.spans.traceparent import TRACEPARENT_ANNOTATION, parse_traceparent
from kubeloop.tracing.views.browser_page import served_files, served_paths
from kubeloop.tracing.views.pod_feed import MAX_ANSWER, PodFeed

if TYPE_CHECKING:
    from kubeloop.kube.objects.api_types import Pod
    from kubeloop.process.control_plane import ControlPlane
    from kubeloop.process.endpoint.server import Endpoint
    from kubeloop.tracing.spans.pod_record import PodRecord

_WHAT_THERE_IS = "kubectl get pods -A lists what there is; the newest traces are kept"


def trace_pages(endpoint: Endpoint, plane: ControlPlane) -> None:
    """Let the endpoint answer about traces."""
    pages = TracePages(plane)
    endpoint.add_page(TRACES_PATH, pages.one)
    endpoint.add_page(f"{TRACES_PATH}/lines", pages.lines)
    endpoint.add_page(f"{TRACES_PATH}/stream", pages.stream)
    for path in served_paths(TRACES_PAGE_PATH):
        endpoint.add_page(path, functools.partial(_file, path))


class TracePages:
    """Pages over one process' traces. Query parameters are strings from anybody: what is missing counts as ""."""

    def __init__(self, plane: ControlPlane) -> None:
        self._tracing = plane.tracing
        self._memory = plane.tracing.memory
        self._pods = plane.informers.informer(PODS).store
        self._deployments = plane.informers.informer(DEPLOYMENTS).store if _knows_deployments(plane) else None
        now_ns = plane.tracing.pods.now_ns
        self._feed = PodFeed(self._memory, self._pods, now_ns=now_ns, instance=f"{now_ns():x}")

    async def one(self, query: Mapping[str, str]) -> Any:
        """A trace as a document. Raises UserError if there is none."""
        await self._tracing.flush()
        namespace = query.get("namespace", "")
        if "key" in query:
            found = self._of_key(query["key"])
            missing = f"no trace of a pod with key {query['key']}"
        elif "trace" in query:
            found = self._memory.of_trace(query["trace"])
            missing = f"no trace {query['trace']}"
        elif "pod" in query:
            return self._of_pod(namespace, query["pod"])
        elif "deployment" in query:
            namespace = self._namespace_of_deployment(namespace, query["deployment"])
            found = self._memory.slowest_of_deployment(namespace, query["deployment"])
            missing = f"no pod of deployment {namespace}/{query['deployment']} has a trace"
        else:
            found = self._memory.slowest(namespace)
            missing = f"no trace of a pod in namespace {namespace}" if namespace else "no trace of any pod yet"
        if found is None:
            raise UserError(missing, hint=_WHAT_THERE_IS)
        return found

    async def lines(self, query: Mapping[str, str]) -> Any:
        """A feed.Answer. Raises UserError if `owner` names a Deployment that nobody knows."""
        namespace, owner = query.get("namespace", ""), query.get("owner", "")
        kind, _, name = owner.partition("/")
        if kind == "deployment":
            namespace = self._namespace_of_deployment(namespace, name)
        limit = query.get("limit", "")
        return await self._feed.ask(
            query.get("cursor", ""),
            limit=int(limit) if limit.isascii() and limit.isdigit() else MAX_ANSWER,
            chosen=lambda line: namespace in ("", line.namespace) and owner in ("", line.owner),
        )

    async def stream(self, query: Mapping[str, str]) -> AsyncGenerator[Any, None]:
        """Documents. Raises UserError as one() does, before the first of them."""
        await self._tracing.flush()
        namespace = query.get("namespace", "")
        if "pod" in query:
            return self._documents([self._of_pod(namespace, query["pod"])], [])
        records = [*self._memory.records()]
        if "deployment" in query:
            namespace = self._namespace_of_deployment(namespace, query["deployment"])
            records = [record for record in records if record.deployment_name == query["deployment"]]
        records = [record for record in records if namespace in ("", record.namespace)]
        if not records:
            whose = f" of deployment {namespace}/{query['deployment']}" if "deployment" in query else ""
            raise UserError(f"no pod{whose} has a trace", hint=_WHAT_THERE_IS)
        return self._documents([], records)

    async def _documents(
        self, documents: Iterable[dict[str, Any]], records: Iterable[PodRecord]
    ) -> AsyncGenerator[dict[str, Any], None]:
        """These, and then what caused them: reconciles, what caused those, and requests."""
        waiting: dict[str, None] = {}  # ids of traces, in order, each once
        for document in documents:
            waiting |= dict.fromkeys(causes_of(document))
            yield document
        for number, record in enumerate(records):
            document = self._memory.document(record)
            waiting |= dict.fromkeys(causes_of(document))
            yield document
            if number % 50 == 49:
                await asyncio.sleep(0)  # a socket that takes everything at once gives no turn to anybody else
        told: set[str] = set()
        while waiting:
            trace_id = next(iter(waiting))
            del waiting[trace_id]
            told.add(trace_id)
            cause = self._memory.of_reconcile(trace_id)
            if cause is not None:
                yield cause
                waiting |= dict.fromkeys(each for each in causes_of(cause) if each not in told)

    def _of_key(self, key: str) -> dict[str, Any] | None:
        found = self._feed.document(key)
        pod = self._feed.pod(key)
        return self._tracing.reconstructed(pod) if found is None and pod is not None else found

    def _of_pod(self, namespace: str, name: str) -> dict[str, Any]:
        """The trace of a pod of this name; without a namespace: in "default", else in the only one that has it."""
        known = {(record.namespace, record.name) for record in self._memory.records()}
        known |= {(pod.metadata.namespace, pod.metadata.name) for pod in self._pods.values()}
        namespace = resolve("pod", name, namespace, known)
        found = self._memory.of_pod(namespace, name)
        pod = self._pods.get(f"{namespace}/{name}")
        if found is None and pod is not None:
            found = self._tracing.reconstructed(pod)  # bound before this process began: what the object tells
            if found is None:
                raise _not_traced(pod)
        if found is None:
            raise UserError(f"no trace of pod {namespace}/{name}", hint=_WHAT_THERE_IS)  # forgotten just now
        return found

    def _namespace_of_deployment(self, namespace: str, name: str) -> str:
        """Where the Deployment is; see resolve(). Raises UserError if neither the cluster nor a trace knows it."""
        known = {(record.namespace, record.deployment_name) for record in self._memory.records()}
        if self._deployments is not None:
            known |= {(each.metadata.namespace, each.metadata.name) for each in self._deployments.values()}
        return resolve("deployment", name, namespace, known)


def _file(path: str, _query: Mapping[str, str]) -> File:
    """One of the page's; they are read when somebody opens it."""
    file = served_files(TRACES_PAGE_PATH)[path]
    return File(file.body, file.content_type, file.headers)


def _knows_deployments(plane: ControlPlane) -> bool:
    """Only where the Deployment controller runs: an informer of our own would watch for nothing else."""
    return "deployment" in plane.settings.controllers


def _not_traced(pod: Pod) -> UserError:
    context = parse_traceparent(pod.metadata.annotations.get(TRACEPARENT_ANNOTATION, ""))
    if context is not None and not context.sampled:
        return UserError(
            f"pod {pod.key} is not traced: it was not sampled", hint="OTEL_TRACES_SAMPLER decides which pods are"
        )
    return UserError(
        f"pod {pod.key} is not traced: another scheduler bound it, or tracing was off",
        hint="see OTEL_TRACES_SAMPLER, OTEL_SDK_DISABLED; kubectl describe pod tells what else is known",
    )
