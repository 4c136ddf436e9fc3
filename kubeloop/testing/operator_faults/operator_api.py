"""The API server as the operator's clients meet it: their writes are recorded, and one of them meets a fault.

    operator --port of its instance--> OperatorApi --> ApiServer <-- user, controllers, scheduler, simulated nodes

Only responses that kube-apiserver may send are injected: an old list answers requests with resourceVersion=0 alone, and
a 409 only writes that name a resourceVersion.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import AsyncIterator, Callable
from functools import partial
from typing import NamedTuple, Protocol

import msgspec

from kubeloop.devcluster.api import errors
from kubeloop.devcluster.api.request import PROTOBUF_TYPE, ApiRequest, PendingResponse, Response
from kubeloop.devcluster.serializer.responses import error_response
from kubeloop.devcluster.server.apiserver import ApiServer
from kubeloop.devcluster.server.faults import AnswerLost
from kubeloop.devcluster.storage.watch import WatchStream
from kubeloop.kube.client.transport import HttpRequest
from kubeloop.kube.clock import Clock
from kubeloop.kube.json_object import JSON
from kubeloop.kube.objects.resources import BY_GROUP_RESOURCE, CUSTOM_RESOURCE_DEFINITIONS, LEASES
from kubeloop.testing.faults.requests import (
    RequestTarget,
    SentRequest,
    injected_error,
    is_numbered,
    json_of,
    verb_of,
    write_title,
)
from kubeloop.testing.faults.state import Variations

_READS = ("GET", "HEAD")
_RETRY_AFTER_SECONDS = 1
_ELECTION = "control-plane.alpha.kubernetes.io/leader"  # annotation of elections without a Lease


class WriteId(NamedTuple):
    """Identity of a write in all runs. name: "*" in the place of a random part. occurrence: from 1."""

    verb: str
    resource: str
    namespace: str
    name: str
    occurrence: int


class OperatorWrite(msgspec.Struct):
    """A write of the operator. names_version: it has a resourceVersion, so that it may be refused with 409.

    status: of the response, 0 if there was none. deleted: it deleted an object that was not yet in deletion. seconds:
    time of the loop.
    """

    id: WriteId
    kind: str
    names_version: bool
    seconds: float
    status: int = 0
    deleted: bool = False

    @property
    def title(self) -> str:
        """Return "create of Secret a-*"."""
        return write_title(self.id.verb, self.id.resource.partition("/")[2], self.kind, self.id.name)

    def __str__(self) -> str:
        return self.title if self.status < 400 else f"{self.title}: {self.status}"


class FaultTarget(Protocol):
    """An instance of the operator, which is killed and paused."""

    is_dead: bool
    is_paused: bool
    watched: set[str]
    has_requested: bool

    def kill(self) -> None: ...

    def pause(self) -> None: ...


class OperatorApi:
    """Handles the requests of the operator's clients, with at most one fault, at one write.

    fault: its kind in the vocabulary of kubeloop.testing.faults, "" for none. trigger: the write at which it happens.
    writes: all counted ones. holders: leases that each instance has written, with the identity of the holder.
    """

    def __init__(self, api: ApiServer, variations: Variations, fault: str = "", trigger: WriteId | None = None) -> None:
        self.api = api
        self.writes: list[OperatorWrite] = []
        self.fired_at: OperatorWrite | None = None
        self.holders: dict[tuple[str, str], tuple[FaultTarget, str]] = {}
        self.reads: dict[str, float] = {}
        self.longest_poll_seconds = 0.0
        self.last_change_seconds = 0.0  # when an object last changed, or a write was refused
        self.longest_gap_seconds = 0.0  # between two of these
        self.refused_writes = 0
        self._variations = variations
        self._fault = fault
        self._trigger = trigger
        self._fired_revision = 0
        self._counts: Counter[tuple[str, ...]] = Counter()
        self._kinds = {resource.plural: resource.kind for resource in BY_GROUP_RESOURCE.values()}
        self._watches: set[_Watch] = set()
        self._held: str | None = None  # the resource whose events are held; "" for all
        self._released = asyncio.Event()
        self._freezes = False  # a write waits
        self._blind = False
        self._expired = 0  # watches from an older revision get 410
        self._revision_of_lists = 0  # of old lists, 0 for none

    # --- faults that last -----------------------------------------------------------------------------------------

    @property
    def is_disturbing(self) -> bool:
        """Return True while a fault lasts: events are held or missed, or lists are old, or a write waits."""
        return self._held is not None or self._blind or self._freezes

    @property
    def is_blind(self) -> bool:
        return self._blind

    @property
    def awaits_leader(self) -> bool:
        """Return True while a write waits, and only paused instances hold leases."""
        return self._freezes and all(instance.is_paused for instance, _ in self.holders.values())

    def hold(self, resource: str) -> None:
        """Hold the watch events of a resource, of all with "", until heal()."""
        self._released.clear()
        self._held = resource

    def list_old(self) -> None:
        """Answer lists at resourceVersion=0 as they were after the write, and hold all events, until heal()."""
        self._revision_of_lists = self._fired_revision
        self.hold("")

    def heal(self) -> None:
        """End what lasts: held events arrive; watches that missed events end, and cannot resume."""
        self._held = None
        self._freezes = False
        self._revision_of_lists = 0
        self._released.set()
        if self._blind:
            self._blind = False
            self._expired = self.api.store.revision
            for watch in self._watches:
                watch.stream.cut()

    def note_change(self) -> None:
        """Measure how long the cluster was at rest."""
        now = asyncio.get_running_loop().time()
        self.longest_gap_seconds = max(self.longest_gap_seconds, now - self.last_change_seconds)
        self.last_change_seconds = now

    # --- requests ---------------------------------------------------------------------------------------------------

    def respond(self, instance: FaultTarget, request: ApiRequest) -> Response | PendingResponse:
        if instance.is_dead:
            return _no_response
        instance.has_requested = True
        target = RequestTarget.of(request.path)
        if request.method in _READS:
            if request.flag("watch") or "/watch/" in request.path:
                return partial(self._watch, instance, request, target)
            if target.resource != LEASES.plural:
                self._note_read(request)
            return self.api.respond(self._from_old_revision(request, target))
        if target.resource == LEASES.plural:
            return partial(self._write_lease, instance, request)
        sent = self._sent(request)
        if not is_numbered(sent) or is_election_record(json_of(sent.body)):
            return self.api.respond(request)
        return partial(self._write, instance, request, sent, target)

    def _sent(self, request: ApiRequest) -> SentRequest:
        body = request.body
        if request.headers.get("content-type", "").startswith(PROTOBUF_TYPE) and body:
            from kubeloop.devcluster.serializer.protobuf import codec  # imported on first use

            body = msgspec.json.encode(codec.decode(body, "", ""))
        return SentRequest.of(HttpRequest(request.method, request.target, request.headers, body))

    def _note_read(self, request: ApiRequest) -> None:
        """Measure the interval at which the operator polls while nothing else happens."""
        now = asyncio.get_running_loop().time()
        before = self.reads.get(request.target, 0.0)
        if before > self.last_change_seconds:
            self.longest_poll_seconds = max(self.longest_poll_seconds, now - before)
        self.reads[request.target] = now

    def _from_old_revision(self, request: ApiRequest, target: RequestTarget) -> ApiRequest:
        is_list = bool(target.resource) and not target.name
        if self._revision_of_lists and is_list and request.option("resourceVersion") == "0":
            old = {"resourceVersion": [str(self._revision_of_lists)], "resourceVersionMatch": ["Exact"]}
            request.query = {**request.query, **old}
        return request

    async def _watch(self, instance: FaultTarget, request: ApiRequest, target: RequestTarget) -> Response:
        version = request.option("resourceVersion")
        if request.flag("sendInitialEvents"):
            if self._revision_of_lists:  # the client lists instead, as from a server without the feature
                return error_response(request, errors.bad_request("sendInitialEvents is not supported"))
        elif version.isdecimal() and 0 < int(version) < self._expired:
            return error_response(request, errors.expired("The resourceVersion for the provided watch is too old."))
        response = await _completed(self.api.respond(request))
        if isinstance(response.body, WatchStream):
            instance.watched.add(target.resource)
            response.body = self._events(_Watch(target.resource, response.body))
        return response

    async def _events(self, watch: _Watch) -> AsyncIterator[bytes]:
        self._watches.add(watch)
        try:
            async for chunk in watch.stream:
                while self._held in ("", watch.resource):
                    await self._released.wait()
                watch.misses |= self._blind
                if not watch.misses:  # else the client never receives them, and lists again
                    yield chunk
        finally:
            self._watches.discard(watch)
            await watch.stream.aclose()

    async def _write_lease(self, instance: FaultTarget, request: ApiRequest) -> Response:
        response = await _completed(self.api.respond(request))
        body = json_of(self._sent(request).body)
        holder, metadata = (body.get("spec") or {}).get("holderIdentity"), body.get("metadata") or {}
        if holder and response.status < 300 and request.route is not None:
            name = request.route.name or metadata.get("name", "")
            self.holders[request.route.namespace, name] = instance, holder
        return response

    def _record(self, request: ApiRequest, sent: SentRequest, target: RequestTarget) -> OperatorWrite:
        if target.resource not in self._kinds:
            for definition in self.api.store.list(CUSTOM_RESOURCE_DEFINITIONS):
                names = definition["spec"]["names"]
                self._kinds[names["plural"]] = names["kind"]
        body = json_of(sent.body)
        metadata = body.get("metadata") or {}
        namespace = _namespace_of(request.path)
        kind = self._kinds.get(target.resource, target.resource)
        name = self._variations.stable_name(kind, namespace, target.name or metadata.get("name") or "")
        if not name and metadata.get("generateName"):
            name = f"{metadata['generateName']}*"
        resource = f"{target.resource}/{target.subresource}" if target.subresource else target.resource
        key = verb_of(sent), resource, namespace, name
        self._counts[key] += 1
        names_version = bool(metadata.get("resourceVersion") or body.get("preconditions"))
        now = asyncio.get_running_loop().time()
        write = OperatorWrite(WriteId(*key, self._counts[key]), kind, names_version, now)
        self.writes.append(write)
        return write

    async def _write(
        self, instance: FaultTarget, request: ApiRequest, sent: SentRequest, target: RequestTarget
    ) -> Response:
        write = self._record(request, sent, target)
        fault = self._fault if self.fired_at is None and write.id == self._trigger else ""
        if fault:
            self.fired_at = write
        if fault in _REFUSALS:
            response = error_response(request, _REFUSALS[fault]())
            write.status = response.status
            return response
        if fault == "crash-before":
            instance.kill()
            raise AnswerLost
        if fault == "freeze-leader":
            self._released.clear()
            self._freezes = True
            instance.pause()
            await self._released.wait()
        if fault == "late-events":
            self.hold(target.resource)
        if fault == "blind":
            self._blind = True
        deletes = self._deletes(request, target)
        response = await _completed(self.api.respond(request))
        write.status = response.status
        write.deleted = response.status < 300 and deletes
        if response.status >= 400:
            self.refused_writes += 1
            self.note_change()
        if fault:
            self._fired_revision = self.api.store.revision
        if fault in ("crash-after", "freeze-leader"):
            instance.kill()
        if fault in ("crash-after", "freeze-leader", "lost-answer"):
            raise AnswerLost
        return response

    def _deletes(self, request: ApiRequest, target: RequestTarget) -> bool:
        """Return True for the first deletion of an object."""
        if request.method != "DELETE" or not target.name or target.subresource:
            return False
        namespace = _namespace_of(request.path)
        key = f"{namespace}/{target.name}" if namespace else target.name
        tables = [table for name, table in self.api.store.tables() if name.partition(".")[0] == target.resource]
        stored = [entry for table in tables if (entry := table.get(key)) is not None]
        return any("deletionTimestamp" not in entry.object["metadata"] for entry in stored)


_REFUSALS: dict[str, Callable[[], errors.StatusError]] = {
    "conflict": lambda: injected_error(409),
    "throttle": lambda: errors.too_many_requests("injected error 429", retry_after_seconds=_RETRY_AFTER_SECONDS),
    "error": lambda: injected_error(500),
}


class _Watch:
    """An open watch. misses: it has missed events."""

    def __init__(self, resource: str, stream: WatchStream) -> None:
        self.resource = resource
        self.stream = stream
        self.misses = False


def _namespace_of(path: str) -> str:
    parts = path.strip("/").split("/")
    at = 2 if parts[0] == "api" else 3
    return parts[at + 1] if len(parts) > at + 2 and parts[at] == "namespaces" else ""


def is_election_record(obj: JSON) -> bool:
    """Return True for an object that is the lock of an election without a Lease."""
    return _ELECTION in ((obj.get("metadata") or {}).get("annotations") or {})


async def _no_response() -> Response:
    raise AnswerLost


async def _completed(response: Response | PendingResponse) -> Response:
    return response if isinstance(response, Response) else await response()


class InstanceEndpoint:
    """Passes the requests to the HTTP server of one instance on to OperatorApi."""

    def __init__(self, operator_api: OperatorApi, instance: FaultTarget) -> None:
        self._operator_api = operator_api
        self._instance = instance

    @property
    def clock(self) -> Clock:
        return self._operator_api.api.clock

    def respond(self, request: ApiRequest) -> Response | PendingResponse:
        return self._operator_api.respond(self._instance, request)
