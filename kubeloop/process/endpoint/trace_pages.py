"""Trace pages of the endpoint, for `kubeloop trace` and for browsers.

/debug/traces          one trace: ?pod= | ?owner=statefulset/db (its slowest pod) | ?key= | ?trace= | the slowest of all
/debug/traces/linked   the trace ?trace= of a pod group or reconcile; null if it is not stored
/debug/traces/lines    one line per pod, those that changed since ?cursor=; filtered by ?namespace= and ?owner=
/debug/traces/names    names that start with ?prefix=, of pods, namespaces or owners (?kind=), filtered by ?namespace=
/debug/traces/stream   all traces of ?pod= | ?owner= | ?namespace=, and the traces of their causes
/traces                the web page and its files; / leads to it
"""

from __future__ import annotations

import asyncio
import functools
from collections.abc import AsyncGenerator, Iterable, Mapping
from typing import Any

from kubeloop.informers.store import Store
from kubeloop.kube.objects.api_types import Deployment, Pod
from kubeloop.kube.user_error import UserError
from kubeloop.kube.values.integers import parse_integer
from kubeloop.process.endpoint.paths import NAMES_PATH, TRACES_PAGE_PATH, TRACES_PATH
from kubeloop.process.endpoint.server import EndpointServer, RawResponse
from kubeloop.process.endpoint.trace_targets import (
    causes_of,
    resolve,
    resolve_owner,
)
from kubeloop.tracing.observation.clock_skew import API_SERVER, ClockSkew
from kubeloop.tracing.provider import Tracing
from kubeloop.tracing.spans.owners import owner_text, plural_kind
from kubeloop.tracing.spans.pod_record import PodRecord
from kubeloop.tracing.spans.traceparent import TRACEPARENT_ANNOTATION, parse_traceparent
from kubeloop.tracing.views.browser_page import served_files, served_paths
from kubeloop.tracing.views.pod_feed import MAX_LINES, PodFeed
from kubeloop.tracing.views.pod_lines import pod_span

_HINT = "list pods with kubectl get pods -A; only the newest traces are stored"
MAX_NAMES = 1_000  # in a response; a shell shows fewer


def add_trace_pages(
    endpoint: EndpointServer,
    tracing: Tracing,
    pods: Store[Pod],
    deployments: Store[Deployment] | None = None,
    clock_skew: ClockSkew | None = None,
) -> None:
    """Add the trace pages and the web page to the endpoint. The parameters are those of TracePages."""
    pages = TracePages(tracing, pods, deployments, clock_skew)
    endpoint.add_page(TRACES_PATH, pages.trace)
    endpoint.add_page(f"{TRACES_PATH}/linked", pages.linked)
    endpoint.add_page(f"{TRACES_PATH}/lines", pages.lines)
    endpoint.add_page(NAMES_PATH, pages.names)
    endpoint.add_page(f"{TRACES_PATH}/stream", pages.stream)
    redirect = RawResponse(b"", "text/plain", {"Location": TRACES_PAGE_PATH.removeprefix("/")}, status=302)
    endpoint.add_page("/", lambda _: redirect)
    for path in served_paths(TRACES_PAGE_PATH):
        endpoint.add_page(path, functools.partial(_file, path))


class TracePages:
    """Pages over the traces of one process. Query parameters are untrusted strings; a missing one counts as ""."""

    def __init__(
        self,
        tracing: Tracing,
        pods: Store[Pod],
        deployments: Store[Deployment] | None = None,
        clock_skew: ClockSkew | None = None,
    ) -> None:
        """
        pods         those of the cluster, as far as this process caches them
        deployments  None if this process caches none
        clock_skew   None if this process observes no other clocks
        """
        self._tracing = tracing
        self._memory = tracing.recent
        self._pods = pods
        self._deployments = deployments
        self._clock_skew = clock_skew
        now_ns = tracing.open_pods.now_ns
        self._feed = PodFeed(self._memory, self._pods, now_ns=now_ns, instance=f"{now_ns():x}")

    async def trace(self, query: Mapping[str, str]) -> Any:
        """Return a trace as a document, with the skew of the clocks that set its times. Raises UserError if there is
        none."""
        document = await self._trace(query)
        root = pod_span(document)
        if self._clock_skew is not None and root is not None:
            clocks = API_SERVER, root["attributes"].get("k8s.node.name", "")
            skew = {clock: bounds for clock, bounds in self._certain_skew().items() if clock in clocks}
            return {**document, "clockSkew": skew} if skew else document
        return document

    def _certain_skew(self) -> dict[str, dict[str, int | None]]:
        """Return the clocks that differ for certain from that of this process, with the bounds of the difference."""
        estimates = {} if self._clock_skew is None else self._clock_skew.document()
        return {
            clock: {"lowestMs": estimate["lowestMs"], "highestMs": estimate["highestMs"]}
            for clock, estimate in estimates.items()
            if estimate["lowestMs"] > 0 or (estimate["highestMs"] is not None and estimate["highestMs"] < 0)
        }

    async def _trace(self, query: Mapping[str, str]) -> dict[str, Any]:
        await self._tracing.flush()
        namespace = query.get("namespace", "")
        if "key" in query:
            document = self._trace_by_key(query["key"])
            missing = f"no trace of a pod with key {query['key']}"
        elif "trace" in query:
            document = self._memory.find_trace(query["trace"])
            missing = f"no trace {query['trace']}"
        elif "pod" in query:
            return self._pod_trace(namespace, query["pod"])
        elif "owner" in query:
            namespace, owner = self._owner(namespace, query["owner"])
            document = self._memory.slowest(namespace, owner)
            missing = f"no pod of {owner} in namespace {namespace} has a trace"
        else:
            document = self._memory.slowest(namespace)
            missing = f"no trace of a pod in namespace {namespace}" if namespace else "no trace of any pod yet"
        if document is None:
            raise UserError(missing, hint=_HINT)
        return document

    async def linked(self, query: Mapping[str, str]) -> dict[str, Any] | None:
        """Return the trace of a pod group or a reconcile, None if it is not stored."""
        return self._memory.find_linked_trace(query.get("trace", ""))

    async def lines(self, query: Mapping[str, str]) -> Any:
        """Return a FeedResponse. Raises UserError if `owner` does not exist."""
        namespace, owner = query.get("namespace", ""), query.get("owner", "")
        if owner:
            namespace, owner = self._owner(namespace, owner)
        limit = query.get("limit", "")
        response = await self._feed.poll(
            query.get("cursor", ""),
            limit=parse_integer(limit) if limit.isascii() and limit.isdigit() else MAX_LINES,
            selects=lambda line: namespace in ("", line.namespace) and (not owner or owner in line.owners),
        )
        response.clock_skew = self._certain_skew()
        return response

    async def names(self, query: Mapping[str, str]) -> list[str]:
        """Return names for the completion of command lines, at most MAX_NAMES."""
        namespace, kind, prefix = (query.get(parameter, "") for parameter in ("namespace", "kind", "prefix"))
        if kind == "namespace":
            names = {("", pod_namespace) for pod_namespace, _ in self._pod_names() | self._owners()}
        elif kind == "pod":
            names = self._pod_names()
        else:
            parts = ((owner_namespace, *owner.split("/", 1)) for owner_namespace, owner in self._owners())
            names = {(place, name) for place, owner, name in parts if kind in (owner, plural_kind(owner))}
        selected = {name for place, name in names if namespace in ("", place) and name.startswith(prefix)}
        return sorted(selected)[:MAX_NAMES]

    async def stream(self, query: Mapping[str, str]) -> AsyncGenerator[Any, None]:
        """Return a generator of trace documents. Raises UserError as trace() does, before the first document."""
        await self._tracing.flush()
        namespace = query.get("namespace", "")
        if "pod" in query:
            return self._documents([self._pod_trace(namespace, query["pod"])], [])
        records = [*self._memory.records()]
        owner = ""
        if "owner" in query:
            namespace, owner = self._owner(namespace, query["owner"])
            records = [record for record in records if owner in record.owners]
        records = [record for record in records if namespace in ("", record.namespace)]
        if not records:
            raise UserError(f"no pod{f' of {owner}' if owner else ''} has a trace", hint=_HINT)
        return self._documents([], records)

    async def _documents(
        self, documents: Iterable[dict[str, Any]], records: Iterable[PodRecord]
    ) -> AsyncGenerator[dict[str, Any], None]:
        """Yield the documents, then those they link to: pod groups, reconciles, their causes, and requests."""
        pending_ids: dict[str, None] = {}  # trace ids, unique and in order
        for document in documents:
            pending_ids |= dict.fromkeys(causes_of(document))
            yield document
        for number, record in enumerate(records):
            document = self._memory.document(record)
            pending_ids |= dict.fromkeys(causes_of(document))
            yield document
            if number % 50 == 49:
                await asyncio.sleep(0)  # a socket with room in its buffer never yields to other tasks
        sent_ids: set[str] = set()
        while pending_ids:
            trace_id = next(iter(pending_ids))
            del pending_ids[trace_id]
            sent_ids.add(trace_id)
            cause = self._memory.find_linked_trace(trace_id)
            if cause is not None:
                yield cause
                pending_ids |= dict.fromkeys(link_id for link_id in causes_of(cause) if link_id not in sent_ids)

    def _trace_by_key(self, key: str) -> dict[str, Any] | None:
        document = self._feed.document(key)
        pod = self._feed.pod(key)
        return self._tracing.reconstructed(pod) if document is None and pod is not None else document

    def _pod_trace(self, namespace: str, name: str) -> dict[str, Any]:
        """Return the trace of a pod; without a namespace, in the one that resolve() selects."""
        namespace = resolve("pod", name, namespace, self._pod_names())
        document = self._memory.find_pod_trace(namespace, name)
        pod = self._pods.get(f"{namespace}/{name}")
        if document is None and pod is not None:
            document = self._tracing.reconstructed(pod)  # bound before this process started: rebuild from the object
            if document is None:
                raise _not_traced(pod)
        if document is None:
            raise UserError(f"no trace of pod {namespace}/{name}", hint=_HINT)  # evicted from memory meanwhile
        return document

    def _owner(self, namespace: str, owner: str) -> tuple[str, str]:
        """Return namespace and name of an owner; see resolve_owner(). Raises UserError if neither cluster nor traces
        have it."""
        kind, _, name = owner.partition("/")
        return resolve_owner(kind, name, namespace, self._owners())

    def _pod_names(self) -> set[tuple[str, str]]:
        """Return (namespace, name) of the pods of the cluster and the traces."""
        names = {(record.namespace, record.name) for record in self._memory.records()}
        return names | {(pod.metadata.namespace, pod.metadata.name) for pod in self._pods.values()}

    def _owners(self) -> set[tuple[str, str]]:
        """Return (namespace, owner as text) of the owners of traced pods, and of Deployments."""
        owners = {(record.namespace, name) for record in self._memory.records() for name in record.owners}
        if self._deployments is not None:
            owners |= {
                (deployment.metadata.namespace, owner_text("Deployment", deployment.metadata.name))
                for deployment in self._deployments.values()
            }
        return owners


def _file(path: str, _query: Mapping[str, str]) -> RawResponse:
    """Return a file of the web page; it is read when requested."""
    file = served_files(TRACES_PAGE_PATH)[path]
    return RawResponse(file.body, file.content_type, file.headers)


def _not_traced(pod: Pod) -> UserError:
    context = parse_traceparent(pod.metadata.annotations.get(TRACEPARENT_ANNOTATION, ""))
    if context is not None and not context.sampled:
        return UserError(
            f"pod {pod.key} is not traced: it was not sampled", hint="OTEL_TRACES_SAMPLER decides which pods are"
        )
    return UserError(
        f"pod {pod.key} is not traced: another scheduler bound it, or tracing was off",
        hint="see OTEL_TRACES_SAMPLER and OTEL_SDK_DISABLED; for more, see kubectl describe pod",
    )
