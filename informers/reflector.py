"""Reflector: lists and watches one resource of an API server, and recovers when a watch ends.

    WatchList stream --initial-events-end--> watching    the same stream continues as the watch
      | refused, silent, broken too often     ^  |  ^
      v                                       |  |  +-- stream ended: opened again at the last resourceVersion
    paged list -------------------------------+  |
                                                 +----- 410, ERROR, refused: start over; the cached objects stay, and
                                                        are compared with the new list

A server without a watch cache for the resource, such as kube-apiserver for Events, sends no bookmarks. The last
resourceVersion of a quiet watch would be compacted, so it is renewed before that: see _renew_version.

Follows client-go tools/cache/reflector.go.
"""

from __future__ import annotations

import asyncio
import logging
import random
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from functools import cached_property
from typing import Any, Generic, Protocol, TypeVar, cast

import msgspec

from kubeloop.informers.metadata_accessor import MetadataAccessor, is_older
from kubeloop.informers.reflector_backoff import Backoff
from kubeloop.kube.client.api_client import (
    ApiClient,
    Selectors,
    UnreadableObject,
    WatchEvent,
    WatchEvents,
    unreadable_object,
)
from kubeloop.kube.errors import ApiError, Gone, NotFound, ServerUnreachable, TooManyRequests, from_status
from kubeloop.kube.objects import api_types
from kubeloop.kube.objects.resources import Resource

log = logging.getLogger(__name__)

T = TypeVar("T")
T_contra = TypeVar("T_contra", contravariant=True)

LIST_PAGE_SIZE = 500  # objects
STEPS_PER_TURN = 64  # objects handled before other tasks get a turn: about 5 ms with expensive handlers
MIN_WATCH_SECONDS = 300  # timeoutSeconds of a watch; multiplied by a random factor of 1 to 2, to spread reconnects
MAX_WATCH_SECONDS = 100_000_000  # the same, of a server in this process, from which nothing can cut the watch off
# A healthy stream carries a bookmark every minute. A stream without an event for one to two times this long is closed
# and opened again: a connection that was lost without a reset would otherwise go unnoticed until the watch times out.
SILENCE_TIMEOUT_SECONDS = 120.0
# The same before the initial events end: a server that does not support sendInitialEvents never ends them.
INITIAL_SILENCE_TIMEOUT_SECONDS = 30.0
# A watch is not resumed at an older resourceVersion than this without a look for a newer one. By default, etcd has the
# history of at least the last 5 minutes (kube-apiserver --etcd-compaction-interval).
MAX_VERSION_AGE_NS = 120_000_000_000
RENEWAL_WATCH_SECONDS = 5  # timeoutSeconds of a watch that shows whether a quiet resource has changed
MAX_REFUSED_WATCHES = 10  # refused attempts in a row to resume a watch, before a list
SHORT_STREAM_SECONDS = 1.0  # a shorter stream without a new resourceVersion is resumed only after a delay
NOT_SERVED_SECONDS = (
    2.0  # between lists of a resource that is not served (404); multiplied by a random factor of 1 to 2
)
OLDER_SERVER_SECONDS = 60.0  # the same for a resource of a later release: until the server is upgraded
MAX_BROKEN_WATCH_LISTS = 3  # broken WatchList streams in a row, before a list

# Answers of servers without WatchList, and to users that may not use it. The list that follows shows the actual error.
_WATCH_LIST_REFUSAL_CODES = frozenset({400, 403, 404, 405, 406, 415, 422, 501})


class Listing(Protocol[T_contra]):
    """Objects of one list, in the order of their arrival. It is dropped without finish() if the list fails."""

    def put(self, key: str, obj: T_contra) -> None: ...

    def put_unreadable(self, obj: UnreadableObject) -> None:
        """Add an object that could not be decoded."""
        ...

    def missed(self) -> None:
        """The object that follows has changed since the last event of the watch. Called only with same_history."""
        ...

    def remove(self, key: str, uid: str) -> None:
        """Remove an object that was deleted before the list was complete."""
        ...

    def restart(self) -> None:
        """Start over: the list had expired, and all its objects follow again."""
        ...

    async def finish(self, resource_version: str) -> None:
        """Make the list, which has this resourceVersion, the contents of the cache."""
        ...


class ReflectorStore(Protocol[T_contra]):
    """Cache that a reflector fills."""

    def start_list(self, *, same_history: bool) -> Listing[T_contra]:
        """Return the receiver of a new list, which replaces the contents.

        same_history: the watch was quiet until its version expired: only what is newer than that has changed.
        """
        ...

    def apply(self, event_type: str, obj: T_contra, arrived_ns: int) -> None:
        """Apply an event of type ADDED, MODIFIED or DELETED, which arrived at this time."""
        ...

    def apply_unreadable(self, event_type: str, obj: UnreadableObject) -> None:
        """Apply an event of these types about an object that could not be decoded."""
        ...

    def connected(self) -> None:
        """A watch continues after the list or the last event: what has changed since then follows, late."""
        ...

    def disconnected(self, received_until_ns: int) -> None:
        """The watch ended. Everything that was sent before `received_until_ns` has arrived; 0: the last event had."""
        ...

    def unchanged(self, until_ns: int) -> None:
        """All changes before `until_ns` have arrived. Called between two watches."""
        ...


class _RelistRequired(Exception):  # control flow, not an error
    """The watch cannot be resumed where it ended. same_history: the server has only dropped old versions (410)."""

    def __init__(self, reason: str, *, same_history: bool = False) -> None:
        super().__init__(reason)
        self.same_history = same_history


async def yield_to_event_loop(steps: int) -> int:
    """Give other tasks a turn after each STEPS_PER_TURN steps. Usage: `steps = await yield_to_event_loop(steps)`."""
    if steps < STEPS_PER_TURN:
        return steps + 1
    await asyncio.sleep(0)
    return 0


class Reflector(Generic[T]):
    """Fills one cache with all objects of one resource. run() does not raise: every failure leads to a retry."""

    def __init__(
        self,
        client: ApiClient,
        resource: Resource[T],
        cache: ReflectorStore[T],
        *,
        rng: random.Random,
        namespace: str = "",
        selectors: Selectors | None = None,
    ) -> None:
        """`namespace`, `selectors`: the objects to list and watch, by default all."""
        self._client = client
        self._resource = resource
        self._cache = cache
        self._rng = rng
        self._namespace = namespace
        self._selectors: Selectors = selectors or {}
        self._metadata = MetadataAccessor(resource)
        self._backoff = Backoff(rng)
        self.resource_version = ""  # of the newest list, event or bookmark; a watch resumes here
        self._version_ns = 0  # when that was the newest one
        self._same_history = False  # the next list follows a watch that expired
        self._initial_events_pending = False  # True while the open stream still sends the list
        self._received_until_ns = 0  # when the open stream last sent anything; 0: it has not
        self._use_watch_list = True  # False after the server refused WatchList and answered a list
        self._broken_watch_lists = 0  # in a row
        self._events_received = 0  # of any type, including bookmarks

    @cached_property
    def _raw(self) -> Resource[msgspec.Raw]:
        return cast(
            "Resource[msgspec.Raw]", msgspec.structs.replace(cast("Resource[Any]", self._resource), type=msgspec.Raw)
        )

    async def run(self) -> None:
        """List and watch until cancelled."""
        not_served = False
        while True:
            wait_seconds, was_not_served, not_served = 0.0, not_served, False
            try:
                if self._use_watch_list and self._broken_watch_lists < MAX_BROKEN_WATCH_LISTS:
                    await self._watch_list()
                await self._list()
                await self._watch(initial=False)
            except _RelistRequired as reason:
                self._same_history = reason.same_history
                log.info("listing again", extra={**self._log_fields(), "reason": str(reason)})
                if self._same_history and self._is_version_old():
                    continue  # not a loop: the list renews the version
            except NotFound as error:  # its definition may be created at any time: a backoff would miss it for long
                if self._resource.since:
                    await self._mark_absent(is_first=not was_not_served)
                    not_served = True
                    continue
                level, not_served = logging.DEBUG if was_not_served else logging.WARNING, True
                log.log(level, "cannot list", extra={**self._log_fields(), "error": str(error), "code": error.code})
                await asyncio.sleep(NOT_SERVED_SECONDS * (1 + self._rng.random()))
                continue
            except ApiError as error:
                wait_seconds = float(error.retry_after_seconds)
                log.warning("cannot list", extra={**self._log_fields(), "error": str(error), "code": error.code})
            except ServerUnreachable as error:
                log.warning("cannot list", extra={**self._log_fields(), "error": str(error)})
            await asyncio.sleep(max(wait_seconds, self._backoff.next_seconds()))

    async def _mark_absent(self, *, is_first: bool) -> None:
        """Fill the cache with nothing: an API server of an earlier release has no objects of this resource."""
        if is_first:
            fields = {**self._log_fields(), "since": self._resource.since}
            log.warning("not served by this API server, none is assumed", extra=fields)
        await self._cache.start_list(same_history=False).finish("")
        await asyncio.sleep(OLDER_SERVER_SECONDS)

    # --- listing ---------------------------------------------------------------------------------------------------

    async def _watch_list(self) -> None:
        """Watch a stream that starts with the list. Returns if the server does not support that."""
        try:
            await self._watch(initial=True)
        except (ApiError, ServerUnreachable, TimeoutError) as error:  # before the list was complete
            if isinstance(error, TimeoutError) or (
                isinstance(error, ApiError) and error.code in _WATCH_LIST_REFUSAL_CODES
            ):
                self._use_watch_list = False
                log.info(
                    "WatchList unsupported, listing", extra={**self._log_fields(), "error": str(error) or "no event"}
                )
                return
            self._broken_watch_lists += 1
            raise

    async def _list(self) -> None:
        """Fill the cache from a paged list whose pages are of one resourceVersion."""
        listing = self._cache.start_list(same_history=self._same_history)
        resource_version = ""
        steps = 0
        try:
            async for page in self._client.pages(self._raw, self._namespace, limit=LIST_PAGE_SIZE, **self._selectors):
                if page.restarted:
                    listing.restart()
                for item in page.items:
                    self._add_item(item, listing)
                    steps = await yield_to_event_loop(steps)
                resource_version = page.metadata.resource_version
        except ApiError:
            self._use_watch_list = True  # the error was not about WatchList
            raise
        await listing.finish(resource_version)
        self._mark_listed(resource_version)

    def _add_item(self, item: msgspec.Raw, listing: Listing[T]) -> None:
        """Decode one list item and add it to the listing."""
        try:
            obj = api_types.decode(self._resource.type, item)
        except msgspec.ValidationError as error:
            self._handle_unreadable("ADDED", unreadable_object(item, error), listing)
        else:
            self._put(listing, obj)

    def _put(self, listing: Listing[T], obj: T) -> None:
        """Add an object to the listing. A failure is logged, and must not stop the others."""
        metadata = self._metadata
        obj = metadata.normalize_decoded(obj)
        try:
            if self._same_history and is_older(self.resource_version, metadata.resource_version(obj)):
                listing.missed()
            listing.put(metadata.key(obj), obj)
        except Exception:
            self._log_failed(obj)

    # --- watching --------------------------------------------------------------------------------------------------

    async def _watch(self, *, initial: bool) -> None:
        """Watch one stream after the other, each resumed where the last one ended; never returns.

        With `initial` the first stream sends the list too, and errors before its end are raised as from _stream.
        Raises _RelistRequired once the watch cannot be resumed.
        """
        loop = asyncio.get_running_loop()
        refused = 0  # in a row
        while True:
            started_at, started_version = loop.time(), self.resource_version
            wait_seconds = 0.0
            self._received_until_ns = unchanged_until_ns = 0
            try:
                if not initial and self._is_version_old():
                    unchanged_until_ns = await self._renew_version()
                else:
                    await self._stream(initial=initial)
                self._received_until_ns = self._client.clock.time_ns()  # the server ended it after the last event
                if self._initial_events_pending:
                    if loop.time() - started_at >= MIN_WATCH_SECONDS:
                        raise TimeoutError  # many events, but the initial events never ended
                    self._broken_watch_lists += 1
                    raise _RelistRequired("the stream ended before its initial events did")
                refused = 0
            except ApiError as error:
                refused += 1
                if self._initial_events_pending:
                    raise
                if _is_relist_required(error) or refused >= MAX_REFUSED_WATCHES:
                    raise _RelistRequired(str(error), same_history=isinstance(error, Gone)) from error
                wait_seconds = float(error.retry_after_seconds)
                log.info("watch refused", extra={**self._log_fields(), "error": str(error)})
            except (ServerUnreachable, TimeoutError) as error:
                if self._initial_events_pending:
                    raise
                log.info("watch broken", extra={**self._log_fields(), "error": str(error) or "no event for too long"})
            finally:
                self._cache.disconnected(self._received_until_ns)
            if unchanged_until_ns:
                self._cache.unchanged(unchanged_until_ns)
            initial = False
            made_progress = loop.time() - started_at >= SHORT_STREAM_SECONDS or self.resource_version != started_version
            if made_progress:
                self._backoff.reset()
            if wait_seconds or refused or not made_progress:
                await asyncio.sleep(max(wait_seconds, self._backoff.next_seconds()))

    def _is_version_old(self) -> bool:
        return self._client.clock.time_ns() - self._version_ns > MAX_VERSION_AGE_NS

    async def _renew_version(self) -> int:
        """Read a short watch stream. If it shows no change, resume at the version that was the newest one before it.

        The stream starts at the last version, so it sends every change since then. Returns until when (ns) there was no
        change, 0 after a change. Raises as _stream does.
        """
        sent_ns, last_version = self._client.clock.time_ns(), self.resource_version
        page = await self._client.list(self._raw, self._namespace, limit=1, **self._selectors)
        await self._stream(initial=False, timeout_seconds=RENEWAL_WATCH_SECONDS)
        if self.resource_version != last_version:
            return 0
        self.resource_version, self._version_ns = page.metadata.resource_version, sent_ns
        return sent_ns

    async def _stream(self, *, initial: bool, timeout_seconds: int = 0) -> None:
        """Read one watch stream until the server ends it, by default after 5 to 10 minutes.

        Raises ApiError if the server refuses it or ends it with 429, _RelistRequired for any other ERROR event,
        ServerUnreachable if the connection fails or breaks, TimeoutError if no event arrives for too long.
        """
        self._initial_events_pending = initial
        events_received = self._events_received
        shortest_seconds = MAX_WATCH_SECONDS if self._client.in_process else MIN_WATCH_SECONDS
        async with asyncio.timeout(None) as timeout:
            with nullcontext() if self._client.in_process else _cancel_when_silent(self, timeout):
                async with self._client.watch(
                    self._resource,
                    self._namespace,
                    resource_version="" if initial else self.resource_version,
                    timeout_seconds=timeout_seconds or round(shortest_seconds * (1 + self._rng.random())),
                    send_initial_events=initial,
                    tolerant=True,
                    **self._selectors,
                ) as events:
                    if not initial:
                        self._cache.connected()
                    try:
                        await self._receive(events, initial=initial)
                    finally:
                        self._received_until_ns = events.arrived_ns
                        if self._events_received != events_received:
                            self._version_ns = events.arrived_ns

    async def _receive(self, events: WatchEvents[T], *, initial: bool) -> None:
        """Pass the events of one stream to the cache. Raises as _stream does."""
        cache, metadata = self._cache, self._metadata
        listing = cache.start_list(same_history=self._same_history) if initial else None
        steps = 0
        async for event in events:
            event_type, obj = event.type, event.object
            if event_type != "BOOKMARK" or not self._initial_events_pending:
                self._events_received += 1
            if event_type == "ERROR":
                raise _exception_for_error_event(cast("WatchEvent[api_types.ApiStatus]", event))
            if isinstance(obj, UnreadableObject):
                self._handle_unreadable(event_type, obj, listing)
            elif event_type == "BOOKMARK":
                version = metadata.resource_version(obj)
                if listing is None:
                    self.resource_version = version
                elif event.initial_events_end:
                    await listing.finish(version)
                    self._mark_listed(version)
                    cache.connected()
                    listing = None
            elif listing is None:
                self.resource_version = metadata.resource_version(obj)
                try:
                    cache.apply(event_type, metadata.normalize_decoded(obj), events.arrived_ns)
                except Exception:
                    self._log_failed(obj)
            elif event_type == "DELETED":
                listing.remove(metadata.key(obj), metadata.uid(obj))
            else:
                self._put(listing, obj)
            steps = await yield_to_event_loop(steps)

    def _mark_listed(self, resource_version: str) -> None:
        self.resource_version, self._version_ns = resource_version, self._client.clock.time_ns()
        self._initial_events_pending = self._same_history = False
        self._events_received += 1
        self._broken_watch_lists = 0

    def _handle_unreadable(self, event_type: str, obj: UnreadableObject, listing: Listing[T] | None) -> None:
        log.error("cannot read an object", extra={**self._log_fields(), "key": obj.key, "error": obj.problem})
        if listing is None:
            self.resource_version = obj.resource_version
            self._cache.apply_unreadable(event_type, obj)
        elif event_type == "DELETED":
            listing.remove(obj.key, obj.uid)
        else:
            if self._same_history and is_older(self.resource_version, obj.resource_version):
                listing.missed()
            listing.put_unreadable(obj)

    def _log_failed(self, obj: T) -> None:
        log.exception("cannot process an object", extra={**self._log_fields(), "key": self._metadata.key(obj)})

    def _log_fields(self) -> dict[str, Any]:
        return {"resource": self._resource.group_resource}


@contextmanager
def _cancel_when_silent(reflector: Reflector[Any], timeout: asyncio.Timeout) -> Iterator[None]:
    """Expire `timeout` once the reflector has received no event for a while.

    Compares event counts at intervals, which is cheaper than a new timer per event: silence is noticed after one to two
    times SILENCE_TIMEOUT_SECONDS.
    """
    loop = asyncio.get_running_loop()
    events_received = reflector._events_received
    timer: asyncio.TimerHandle

    def check_for_events() -> None:
        nonlocal events_received, timer
        if reflector._events_received == events_received:
            timeout.reschedule(loop.time())
        else:
            events_received = reflector._events_received
            timer = loop.call_later(seconds(), check_for_events)

    def seconds() -> float:
        return INITIAL_SILENCE_TIMEOUT_SECONDS if reflector._initial_events_pending else SILENCE_TIMEOUT_SECONDS

    timer = loop.call_later(seconds(), check_for_events)
    try:
        yield
    finally:
        timer.cancel()


def _exception_for_error_event(event: WatchEvent[api_types.ApiStatus]) -> Exception:
    error = from_status(event.object)
    if isinstance(error, TooManyRequests):
        return error
    return _RelistRequired(str(error), same_history=isinstance(error, Gone))


def _is_relist_required(error: ApiError) -> bool:
    """Return True if retries cannot resume the watch at the same resourceVersion.

    ResourceVersionTooLarge means that the server was reset to an older state, for example from a backup.
    """
    return (error.code < 500 and error.code != 429) or error.has_cause("ResourceVersionTooLarge")
