"""API client: Kubernetes verbs on typed resources, over a Transport.

Responses are decoded to the resource's Struct, failures raise the typed errors of `errors`. Requests are grouped in
lanes, each with its own concurrency and rate limit, so that a binding never waits behind events or status patches.
`retries` defines which requests are sent again.
"""

from __future__ import annotations

import asyncio
import copy
import random
import re
from collections import deque
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from enum import Enum
from functools import lru_cache
from typing import Any, Generic, Literal, TypedDict, TypeVar, Unpack
from urllib.parse import quote

import msgspec

from kubeloop.kube.client.current_span import TRACEPARENT_HEADER, request_traceparent
from kubeloop.kube.client.rate_limit import TokenBucket
from kubeloop.kube.client.retries import RetryPolicy, is_safe_to_retry, retry_wait_seconds
from kubeloop.kube.client.server_warnings import parse_warnings
from kubeloop.kube.client.transport import HttpRequest, HttpResponse, StreamedResponse, Transport, TransportError
from kubeloop.kube.clock import Clock
from kubeloop.kube.errors import ApiError, Gone, ServerUnreachable, UnreadableResponse, from_response
from kubeloop.kube.objects import api_types
from kubeloop.kube.objects.api_types import ApiStatus, JSONValue, ListMeta
from kubeloop.kube.objects.resources import Resource
from kubeloop.kube.values.integers import parse_integer

T = TypeVar("T")

Body = Mapping[str, Any] | bytes
WatchEventType = Literal["ADDED", "MODIFIED", "DELETED", "BOOKMARK", "ERROR"]

# Maximum of concurrent requests by lane. HTTP/1.1 needs one connection for each. Writes of these subresources, and of
# events, have their own lanes.
LANES: dict[str, int] = {"": 32, "binding": 32, "events": 8, "status": 16}

_PAGE = 500
_TIMEOUT_SECONDS = 30.0  # of each try of a request other than a watch
_INITIAL_EVENTS_END = "k8s.io/initial-events-end"
_PLAIN_SEGMENT = re.compile(r"[A-Za-z0-9._~-]+").fullmatch


class PatchType(Enum):
    """The four patch types, by content type."""

    JSON = "application/json-patch+json"
    MERGE = "application/merge-patch+json"
    STRATEGIC = "application/strategic-merge-patch+json"
    APPLY = "application/apply-patch+yaml"


class Selectors(TypedDict, total=False):
    """Selection of objects, in the API's syntax."""

    label_selector: str
    field_selector: str


class ListArguments(Selectors, total=False):
    """Options of all list calls: selection, page size and resource version."""

    limit: int
    resource_version: str
    resource_version_match: str


class DeleteArguments(TypedDict, total=False):
    """Options of deletions. The preconditions apply to a single object."""

    grace_period_seconds: int
    propagation_policy: str
    precondition_uid: str
    precondition_resource_version: str


class ListPage(msgspec.Struct, Generic[T], frozen=True, gc=False):
    """One page of a list. `metadata.continue_` is "" on the last page. `restarted`: the list started over with this
    page, and the previous pages must be dropped (see ApiClient.pages)."""

    metadata: ListMeta = ListMeta()
    items: list[T] = []
    restarted: bool = msgspec.field(default=False, name="-restarted")  # not an API field: never in a response


class WatchEvent(msgspec.Struct, Generic[T], frozen=True, gc=False):
    """One event of a watch. `object` is a Status if, and only if, `type` is "ERROR". Of a BOOKMARK's object only
    metadata.resourceVersion counts; `initial_events_end` marks the bookmark that ends the initial events of a
    WatchList stream."""

    type: WatchEventType
    object: T
    initial_events_end: bool = msgspec.field(default=False, name="-initialEventsEnd")


class UnreadableObject(msgspec.Struct, frozen=True, gc=False):
    """Replaces an object of a watch event that does not fit its Struct: its metadata, and the problem."""

    key: str
    uid: str
    resource_version: str
    problem: str


class _Lane:
    """Concurrency and rate limit of one lane."""

    def __init__(self, concurrency: int, qps: float | None, burst: int | None) -> None:
        self.slots = asyncio.Semaphore(concurrency)
        self.bucket = TokenBucket(qps, burst or max(1, round(qps * 2))) if qps else None


class ApiClient:
    """Kubernetes verbs over one Transport.

    Every request but a watch has the trace context of the running task (`current_span`).
    Names are escaped here; selectors are passed as strings. Raises ApiError for an error response, ServerUnreachable if
    no response came after the retries that the verb allows.

    Cancellation: safe. A cancelled write may have reached the server.
    """

    def __init__(
        self,
        transport: Transport,
        *,
        clock: Clock,
        rng: random.Random,
        user_agent: str = "kubeloop",
        qps: float | None = None,
        burst: int | None = None,
        retries: RetryPolicy | None = None,
        in_process: bool = False,
        trace_requests: bool = False,
    ) -> None:
        """`qps` and `burst` limit each lane (None: no limit; burst defaults to twice qps).

        in_process: the server runs in this process and injects no faults, so that no event is lost, and a stream which
        is silent is not broken. trace_requests: requests of a traced operation have the header traceparent.
        """
        self.transport = transport
        self.clock = clock
        self.in_process = in_process
        self._trace_requests = trace_requests
        self._rng = rng
        self._retries = retries or RetryPolicy()
        self._on_warning: Callable[[str], None] | None = None
        self._lanes = {name: _Lane(concurrency, qps, burst) for name, concurrency in LANES.items()}
        self._get_headers: dict[str, str] = {"accept": "application/json", "user-agent": user_agent}
        self._body_headers = {
            content_type: {**self._get_headers, "content-type": content_type}
            for content_type in ("application/json", *(kind.value for kind in PatchType))
        }

    def with_warnings(self, on_warning: Callable[[str], None]) -> ApiClient:
        """Return a client on the same transport and limits that passes each warning of a response to `on_warning`."""
        client = copy.copy(self)
        client._on_warning = on_warning
        return client

    async def close(self) -> None:
        await self.transport.close()

    # --- reads -----------------------------------------------------------------------------------------------------

    async def get(
        self,
        resource: Resource[T],
        name: str,
        namespace: str = "",
        *,
        resource_version: str = "",
        lane: str = "",
    ) -> T:
        """Return one object."""
        target = _target(resource, namespace, name, "", {"resourceVersion": resource_version})
        return _decoded(resource.type, await self._send("GET", target, lane=lane))

    async def get_raw(
        self, resource: Resource[Any], name: str, namespace: str = "", *, subresource: str = ""
    ) -> JSONValue:
        """Return one object, or a subresource ("scale"), as plain JSON."""
        return _json(await self._send("GET", _target(resource, namespace, name, subresource)))

    async def list(
        self,
        resource: Resource[T],
        namespace: str = "",
        *,
        continue_: str = "",
        **options: Unpack[ListArguments],
    ) -> ListPage[T]:
        """Return one page of at most `limit` objects (0: all). Raises Gone if `continue_` is too old; see pages()."""
        limit = options.get("limit", 0)
        query = {
            **_selection(options),
            "limit": str(limit) if limit else "",
            "continue": continue_,
            "resourceVersion": options.get("resource_version", ""),
            "resourceVersionMatch": options.get("resource_version_match", ""),
        }
        page_type: type[ListPage[T]] = ListPage[resource.type]  # type: ignore[name-defined]
        return _decoded(page_type, await self._send("GET", _target(resource, namespace, "", "", query)))

    async def pages(
        self, resource: Resource[T], namespace: str = "", **options: Unpack[ListArguments]
    ) -> AsyncIterator[ListPage[T]]:
        """Iterate over all pages of a list in order; 500 objects per page unless `limit` is set.

        If a continue token expires (410), the list starts over as one consistent page without a limit, marked
        `restarted`: the previous pages are void. Source: client-go tools/pager.
        """
        options.setdefault("limit", _PAGE)
        page = await self.list(resource, namespace, **options)
        yield page
        restart_options, next_options = options.copy(), options.copy()
        restart_options.pop("limit")
        for options_left in (restart_options, next_options):
            options_left.pop("resource_version_match", None)
        next_options.pop("resource_version", None)  # it is part of the token; the server rejects both together
        while page.metadata.continue_:
            try:
                page = await self.list(resource, namespace, continue_=page.metadata.continue_, **next_options)
            except Gone:
                restarted_page = await self.list(resource, namespace, **restart_options)
                page = ListPage(metadata=restarted_page.metadata, items=restarted_page.items, restarted=True)
            yield page

    async def list_all(
        self, resource: Resource[T], namespace: str = "", **options: Unpack[ListArguments]
    ) -> ListPage[T]:
        """Return all pages as one. The metadata are those of the last page; its resourceVersion is that of the list."""
        items: list[T] = []
        metadata = ListMeta()
        async for page in self.pages(resource, namespace, **options):
            if page.restarted:
                items.clear()
            items.extend(page.items)
            metadata = page.metadata
        return ListPage(metadata=metadata, items=items)

    def watch(
        self,
        resource: Resource[T],
        namespace: str = "",
        *,
        resource_version: str = "",
        timeout_seconds: int | None = None,
        send_initial_events: bool = False,
        tolerant: bool = False,
        **selectors: Unpack[Selectors],
    ) -> AbstractAsyncContextManager[WatchEvents[T]]:
        """Open a watch: an iterator of changes until the server ends the stream.

        `async with client.watch(PODS, resource_version="7") as events: async for event in events: ...`

        Opened once, without retries: the reflector decides how to continue. Entering raises ApiError (Gone: list again)
        or ServerUnreachable; iterating raises ServerUnreachable if the connection breaks, and UnreadableResponse if a
        line is not a watch event. `timeout_seconds`: the server ends the stream after it. With `tolerant`, an object
        that has metadata but does not fit its Struct is delivered as an UnreadableObject and the stream continues.
        """
        query = {
            "watch": "1",
            "resourceVersion": resource_version,
            **_selection(selectors),
            "timeoutSeconds": str(timeout_seconds) if timeout_seconds is not None else "",
            "allowWatchBookmarks": "true",
            "sendInitialEvents": "true" if send_initial_events else "",
            "resourceVersionMatch": "NotOlderThan" if send_initial_events else "",
        }
        return self._watch(resource, _target(resource, namespace, "", "", query), tolerant)

    @asynccontextmanager
    async def _watch(self, resource: Resource[T], target: str, tolerant: bool) -> AsyncIterator[WatchEvents[T]]:
        bucket = self._lanes[""].bucket
        if bucket is not None:
            await bucket.take()
        try:
            async with self.transport.stream(HttpRequest("GET", target, headers=self._get_headers)) as response:
                if response.status != 200:
                    body = b"".join([chunk async for chunk in response.chunks])
                    raise _error(HttpResponse(response.status, body, response.headers))
                yield WatchEvents(resource.type, response, tolerant, self.clock.time_ns)
        except TransportError as error:
            raise ServerUnreachable(str(error), maybe_applied=False) from error

    # --- writes ----------------------------------------------------------------------------------------------------

    async def create(
        self, resource: Resource[T], body: Body, namespace: str = "", *, query: Mapping[str, str] | None = None
    ) -> T:
        """Create an object; returns it as stored. Retried only if the server cannot have seen the request."""
        target = _target(resource, namespace, "", "", query)
        return _decoded(resource.type, await self._send("POST", target, body=body, lane=_lane(resource)))

    async def create_raw(
        self, resource: Resource[Any], body: Body, namespace: str = "", *, name: str = "", subresource: str = ""
    ) -> bytes:
        """POST to a collection or subresource (pods/binding, pods/eviction); returns the response, not decoded."""
        target = _target(resource, namespace, name, subresource)
        return (await self._send("POST", target, body=body, lane=_lane(resource, subresource))).body

    async def update(
        self, resource: Resource[T], name: str, body: Body, namespace: str = "", *, subresource: str = ""
    ) -> T:
        """Replace an object. If `body` has metadata.resourceVersion, a lost request is retried, and may then raise
        Conflict because of its own first try."""
        target = _target(resource, namespace, name, subresource)
        return _decoded(resource.type, await self._send("PUT", target, body=body, lane=_lane(resource, subresource)))

    async def update_raw(
        self, resource: Resource[Any], name: str, body: Body, namespace: str = "", *, subresource: str = ""
    ) -> JSONValue:
        """Like update(), for responses of another type ("scale")."""
        target = _target(resource, namespace, name, subresource)
        return _json(await self._send("PUT", target, body=body, lane=_lane(resource, subresource)))

    async def patch(
        self,
        resource: Resource[T],
        name: str,
        body: Any,
        patch_type: PatchType,
        namespace: str = "",
        *,
        subresource: str = "",
        query: Mapping[str, str] | None = None,
    ) -> T:
        """Patch an object. `body`: a map, for PatchType.JSON a list of operations, or bytes. PatchType.APPLY needs
        fieldManager in `query`. A lost request is retried if it pins metadata.resourceVersion, or is an apply."""
        target, lane = _target(resource, namespace, name, subresource, query), _lane(resource, subresource)
        response = await self._send("PATCH", target, body=body, content_type=patch_type.value, lane=lane)
        return _decoded(resource.type, response)

    async def delete(
        self,
        resource: Resource[Any],
        name: str,
        namespace: str = "",
        *,
        lane: str = "",
        **options: Unpack[DeleteArguments],
    ) -> JSONValue:
        """Delete an object; returns the object (while it terminates) or a Status, as plain JSON.

        With `precondition_uid` a lost request is retried, and "not found" then counts as success. Without it the retry
        could delete another object of the same name, so it is sent only if the server cannot have seen the first try.
        """
        target = _target(resource, namespace, name)
        return _json(await self._send("DELETE", target, body=delete_options(options), lane=lane))

    async def delete_collection(
        self,
        resource: Resource[Any],
        namespace: str = "",
        *,
        label_selector: str = "",
        field_selector: str = "",
        **options: Unpack[DeleteArguments],
    ) -> JSONValue:
        """Delete all objects of a resource that match; returns the response as plain JSON."""
        query = _selection({"label_selector": label_selector, "field_selector": field_selector})
        target = _target(resource, namespace, "", "", query)
        return _json(await self._send("DELETE", target, body=delete_options(options)))

    async def raw(self, method: str, target: str, *, headers: Mapping[str, str] | None = None) -> HttpResponse:
        """Send any other request (discovery, /version). `target` is path and query, escaped. Raises as the verbs do."""
        return await self._send(method, target, headers=headers)

    # --- sending ---------------------------------------------------------------------------------------------------

    def _headers(self, content_type: str | None, extra: Mapping[str, str] | None) -> Mapping[str, str]:
        headers = self._get_headers if content_type is None else self._body_headers[content_type]
        if self._trace_requests and (traceparent := request_traceparent()):
            headers = {**headers, TRACEPARENT_HEADER: traceparent}
        return {**headers, **extra} if extra else headers

    async def _send(
        self,
        method: str,
        target: str,
        *,
        body: Any = b"",
        content_type: str = "application/json",
        headers: Mapping[str, str] | None = None,
        lane: str = "",
    ) -> HttpResponse:
        """Send a request, with retries as defined in `retries`. Returns a success response or raises."""
        data = body if isinstance(body, bytes) else msgspec.json.encode(body)
        all_headers = self._headers(content_type if data else None, headers)
        limits, policy = self._lanes[lane], self._retries
        failures = throttled = 0
        maybe_applied = False
        while True:
            error: ApiError | TransportError
            async with limits.slots:
                if limits.bucket is not None:
                    await limits.bucket.take()
                try:
                    response = await self.transport.send(
                        HttpRequest(
                            method,
                            target,
                            headers=all_headers,
                            body=data,
                            timeout_seconds=_TIMEOUT_SECONDS,
                        )
                    )
                except TransportError as transport_error:
                    error = transport_error
                else:
                    if self._on_warning is not None:
                        for warning in parse_warnings(response.headers.get("warning", "")):
                            self._on_warning(warning)
                    if response.status < 400:
                        return response
                    error = _error(response)
            if isinstance(error, ApiError):
                if maybe_applied and method == "DELETE" and error.code == 404:
                    return _DELETED  # by an earlier try of this call
                wait_seconds = retry_wait_seconds(error)
                if wait_seconds is not None:
                    throttled += 1
                    if throttled > policy.throttled_tries:
                        raise error
                    # At least the Retry-After, plus up to half of it at random: clients that were rejected at the same
                    # time must not retry at the same time.
                    spread_seconds = wait_seconds * (1.0 + self._rng.random() / 2)
                    await asyncio.sleep(max(spread_seconds, policy.backoff_seconds(throttled, self._rng)))
                    continue
                if error.code < 500:
                    raise error
            sent = not isinstance(error, TransportError) or error.request_sent
            failures += 1
            if failures >= policy.tries or (sent and not is_safe_to_retry(method, content_type, data)):
                if isinstance(error, ApiError):
                    raise error
                raise ServerUnreachable(str(error), maybe_applied=maybe_applied or sent) from error
            maybe_applied = maybe_applied or sent
            await asyncio.sleep(policy.backoff_seconds(failures, self._rng))


_DELETED = HttpResponse(200, b'{"kind":"Status","apiVersion":"v1","metadata":{},"status":"Success"}')


def _lane(resource: Resource[Any], subresource: str = "") -> str:
    return subresource if subresource in LANES else "events" if resource.plural == "events" else ""


def _selection(selectors: Selectors) -> dict[str, str]:
    return {
        "labelSelector": selectors.get("label_selector", ""),
        "fieldSelector": selectors.get("field_selector", ""),
    }


def _target(
    resource: Resource[Any],
    namespace: str,
    name: str,
    subresource: str = "",
    query: Mapping[str, str] | None = None,
) -> str:
    """Return path and query, escaped; empty options are omitted."""
    path = resource.path(_segment(namespace), _segment(name), subresource)
    if not query:
        return path
    pairs = "&".join(f"{option}={_segment(value)}" for option, value in query.items() if value)
    return f"{path}?{pairs}" if pairs else path


def _segment(text: str) -> str:
    return text if not text or _PLAIN_SEGMENT(text) else quote(text, safe="")


def delete_options(options: DeleteArguments) -> dict[str, Any] | bytes:
    """Return the body of a deletion; empty without options."""
    body: dict[str, Any] = {}
    if "grace_period_seconds" in options:
        body["gracePeriodSeconds"] = options["grace_period_seconds"]
    if policy := options.get("propagation_policy"):
        body["propagationPolicy"] = policy
    preconditions = {
        "uid": options.get("precondition_uid"),
        "resourceVersion": options.get("precondition_resource_version"),
    }
    if any(preconditions.values()):
        body["preconditions"] = {name: value for name, value in preconditions.items() if value}
    return {"kind": "DeleteOptions", "apiVersion": "v1", **body} if body else b""


def _error(response: HttpResponse) -> ApiError:
    retry_after = response.headers.get("retry-after", "")
    return from_response(
        response.status, response.body, retry_after_seconds=parse_integer(retry_after) if retry_after.isdecimal() else 0
    )


def _decoded(type_: type[T], response: HttpResponse) -> T:
    try:
        return api_types.decode(type_, response.body)
    except msgspec.DecodeError as error:
        raise UnreadableResponse(f"the response is not a {type_.__name__}: {error}", maybe_applied=True) from error


def _json(response: HttpResponse) -> JSONValue:
    try:
        return msgspec.json.decode(response.body)
    except msgspec.DecodeError as error:
        raise UnreadableResponse(f"the response is not JSON: {error}", maybe_applied=True) from error


class LineSplitter:
    """Splits chunks with arbitrary boundaries into lines of any length; the pieces of a line are joined once."""

    def __init__(self) -> None:
        self._unfinished: list[bytes] = []

    def feed(self, chunk: bytes) -> list[bytes]:
        """Return the lines that `chunk` completes, without their newlines."""
        lines = chunk.split(b"\n")
        rest = lines.pop()
        if lines and self._unfinished:
            self._unfinished.append(lines[0])
            lines[0] = b"".join(self._unfinished)
            self._unfinished.clear()
        if rest:
            self._unfinished.append(rest)
        return lines


class _RawEvent(msgspec.Struct):
    type: WatchEventType
    object: msgspec.Raw = msgspec.Raw(b"{}")


class WatchEvents(Generic[T]):
    """Iterator over the events of a watch. A last line without a newline was cut off and is dropped.

    arrived_ns: when the last event arrived, before it was decoded.
    """

    def __init__(self, type_: type[T], response: StreamedResponse, tolerant: bool, now_ns: Callable[[], int]) -> None:
        self.arrived_ns = 0
        self._now_ns = now_ns
        self._type = type_
        self._tolerant = tolerant
        self._chunks = response.chunks
        self._splitter = LineSplitter()
        self._lines: deque[bytes] = deque()
        self._decode: Callable[[bytes], WatchEvent[T]] = _event_decoder(type_)  # type: ignore[arg-type]

    def __aiter__(self) -> WatchEvents[T]:
        return self

    async def __anext__(self) -> WatchEvent[Any]:
        lines = self._lines
        while True:
            while not lines:
                chunk = await anext(self._chunks)
                self.arrived_ns = self._now_ns()
                lines.extend(self._splitter.feed(chunk))
            line = lines.popleft()
            if line and not line.isspace():
                return self._event(line)

    def _event(self, line: bytes) -> WatchEvent[Any]:
        event: WatchEvent[Any]
        try:
            event = self._decode(line)
            if event.type == "ERROR":  # a Status that fits the type by chance
                event = _lenient_event(self._type, line, self._tolerant)
        except msgspec.ValidationError:  # a Status, or nulls that the Structs do not allow
            event = _lenient_event(self._type, line, self._tolerant)
        except msgspec.DecodeError as error:
            raise UnreadableResponse(f"a line of the watch is no event: {error}", maybe_applied=False) from error
        if event.type == "BOOKMARK" and _ends_initial_events(line):
            event = WatchEvent(type=event.type, object=event.object, initial_events_end=True)
        return event


@lru_cache(maxsize=256)  # a decoder takes longer to create than an event to decode
def _event_decoder(type_: type[T]) -> Callable[[bytes], WatchEvent[T]]:
    event_type: type[WatchEvent[T]] = WatchEvent[type_]  # type: ignore[valid-type]
    return msgspec.json.Decoder(event_type).decode


def _lenient_event(type_: type[T], line: bytes, tolerant: bool) -> WatchEvent[Any]:
    try:
        raw_event = msgspec.json.decode(line, type=_RawEvent)
        type_ = ApiStatus if raw_event.type == "ERROR" else type_  # type: ignore[assignment]
        try:
            return WatchEvent(type=raw_event.type, object=api_types.decode(type_, raw_event.object))
        except msgspec.ValidationError as error:
            if not tolerant or raw_event.type == "ERROR":
                raise
            unreadable = unreadable_object(raw_event.object, error)
            return WatchEvent(type=raw_event.type, object=unreadable)
    except msgspec.DecodeError as error:
        raise UnreadableResponse(f"a line of the watch is no event: {error}", maybe_applied=False) from error


def unreadable_object(encoded: msgspec.Raw, error: msgspec.ValidationError) -> UnreadableObject:
    """Return what replaces an object that does not fit its Struct. Raises DecodeError if it has no metadata."""
    decoded = api_types.decode(api_types.PartialObjectMetadata, encoded)
    metadata = decoded.metadata
    return UnreadableObject(
        key=decoded.key, uid=metadata.uid, resource_version=metadata.resource_version, problem=str(error)
    )


def _ends_initial_events(bookmark: bytes) -> bool:
    """Return True if the line of a bookmark has the annotation; the Struct of its object may lack annotations."""
    metadata = api_types.decode(_Bookmark, bookmark).object.metadata
    return metadata.annotations.get(_INITIAL_EVENTS_END) == "true"


class _Bookmark(msgspec.Struct):
    object: api_types.PartialObjectMetadata
