"""Keeping a cache level with one resource of an API server: list it, watch it, and recover from whatever ends a watch.

    WatchList stream --initial-events-end--> watching    the list comes down the stream that goes on as the watch
      | refused, silent, broken too often     ^  |  ^
      v                                       |  |  +-- the stream ended: opened again at the last resourceVersion
    paged list -------------------------------+  |
                                                 +----- 410, ERROR, refused: from the start; what is cached stays, and
                                                        is compared with the new list

How this follows client-go: tools/cache/reflector.go. May import `kubeloop.kube` alone.
"""

from __future__ import annotations

import asyncio
import dataclasses
import logging
import random
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, Generic, Protocol, TypeVar, cast

import msgspec

from kubeloop.informers.backoff import Backoff
from kubeloop.informers.object_metadata import MetadataAccessor
from kubeloop.kube.client.api_client import Client, UnreadableObject, WatchEvent
from kubeloop.kube.errors import ApiError, ServerUnreachable, TooManyRequests, from_status
from kubeloop.kube.objects import api_types
from kubeloop.kube.objects.resources import Resource

log = logging.getLogger(__name__)

T = TypeVar("T")

PAGE_LIMIT = 500  # objects
SLICE_LIMIT = 64  # objects handled before other tasks get a turn: some 5 ms with busy handlers
WATCH_SECONDS = 300  # asked of the server, times 1 to 2 by chance, so that not all watches end together
# A live stream carries a bookmark a minute. One in which nothing moved for one to two of these is cut and opened anew:
# a connection that died without a word would otherwise stay unnoticed until the watch's time is up.
QUIET_SECONDS = 120.0
# Likewise before the initial events have ended: a server that does not know sendInitialEvents never ends them.
QUIET_INITIAL_SECONDS = 30.0
REFUSED_TRIES = 10  # of opening a watch where the one before ended, then a list
SHORT_STREAM_SECONDS = 1.0  # a stream that ends sooner, and brought nothing, is not opened again at once
WATCH_LIST_TRIES = 3  # of broken WatchList streams in a row, then a list

# How servers without WatchList, and roles that may not use it, refuse it. A list shows what it really was.
_REFUSALS = frozenset({400, 403, 404, 405, 406, 415, 422, 501})


class Selection(msgspec.Struct, frozen=True):
    """Which objects of a resource: of one namespace ("": of all), matching both selectors (in the API's syntax)."""

    namespace: str = ""
    label_selector: str = ""
    field_selector: str = ""


EVERYTHING = Selection()


class Cache(Protocol[T]):
    """What a reflector fills."""

    def known(self, key: str) -> T | None: ...

    def keep(self, obj: T) -> T | None:
        """A decoded object in the form in which it is kept; None if it cannot be."""
        ...

    async def replace(self, items: dict[str, T], resource_version: str) -> None:
        """These kept objects, by key, are all there are."""
        ...

    def apply(self, event_type: str, obj: T) -> None:
        """One event of type ADDED, MODIFIED or DELETED."""
        ...

    def apply_unreadable(self, event_type: str, obj: UnreadableObject) -> None:
        """Such an event about an object that could not be decoded."""
        ...

    def advance(self, resource_version: str) -> None:
        """A bookmark: up to here there is nothing that the cache has not seen."""
        ...


class _ListAgain(Exception):  # not an error: an instruction
    """The watch cannot be continued where it ended."""


async def yield_to_event_loop(steps: int) -> int:
    """Give other tasks a turn after each SLICE_LIMIT steps: `steps = await breathe(steps)` counts and starts over."""
    if steps < SLICE_LIMIT:
        return steps + 1
    await asyncio.sleep(0)
    return 0


class Reflector(Generic[T]):
    """Fills one cache with one selection of one resource. Raises nothing of its own: every failure leads to a retry."""

    def __init__(
        self, client: Client, resource: Resource[T], cache: Cache[T], *, rng: random.Random, selection: Selection
    ) -> None:
        self._client = client
        self._resource = resource
        self._cache = cache
        self._rng = rng
        self._selection = selection
        self._metadata = MetadataAccessor(resource)
        self._backoff = Backoff(rng)
        self._resource_version = ""  # last seen: where a watch goes on
        self._filling = False  # is the stream that is open still bringing the list?
        self._watch_list_wanted = True  # until a server has refused it and then answered a list
        self._broken_watch_lists = 0  # in a row
        self._heard = 0  # events of any kind, bookmarks too

    async def run(self) -> None:
        """List and watch until cancelled."""
        while True:
            wait_seconds = 0.0
            try:
                if self._watch_list_wanted and self._broken_watch_lists < WATCH_LIST_TRIES:
                    await self._watch_list()
                await self._list()
                await self._watch(initial=False)
            except _ListAgain as reason:
                log.info("listing again", extra={**self._about(), "reason": str(reason)})
            except ApiError as error:
                wait_seconds = float(error.retry_after_seconds)
                log.warning("cannot list", extra={**self._about(), "error": str(error), "code": error.code})
            except ServerUnreachable as error:
                log.warning("cannot list", extra={**self._about(), "error": str(error)})
            await asyncio.sleep(max(wait_seconds, self._backoff.next_seconds()))

    # --- listing ---------------------------------------------------------------------------------------------------

    async def _watch_list(self) -> None:
        """Watch, and get the list down the same stream. Returns if the server does not do that."""
        try:
            await self._watch(initial=True)
        except (ApiError, ServerUnreachable, TimeoutError) as error:  # before the list was whole
            if isinstance(error, TimeoutError) or (isinstance(error, ApiError) and error.code in _REFUSALS):
                self._watch_list_wanted = False
                log.info("no WatchList, listing instead", extra={**self._about(), "error": str(error) or "silence"})
                return
            self._broken_watch_lists += 1
            raise

    async def _list(self) -> None:
        """Fill the cache from a list in pages, consistent with each other."""
        raw = cast(
            "Resource[msgspec.Raw]", dataclasses.replace(cast("Resource[Any]", self._resource), type=msgspec.Raw)
        )
        items: dict[str, T] = {}
        resource_version = ""
        steps = 0
        try:
            async for page in self._client.pages(
                raw,
                self._selection.namespace,
                label_selector=self._selection.label_selector,
                field_selector=self._selection.field_selector,
                limit=PAGE_LIMIT,
            ):
                if page.restarted:
                    items.clear()
                for item in page.items:
                    self._take(item, items)
                    steps = await yield_to_event_loop(steps)
                resource_version = page.metadata.resource_version
        except ApiError:
            self._watch_list_wanted = True  # it was not WatchList that the server refused
            raise
        await self._cache.replace(items, resource_version)
        self._filled_at(resource_version)

    def _take(self, item: msgspec.Raw, items: dict[str, T]) -> None:
        """One item of a list into `items`. One that cannot be read leaves what is known of it as it is."""
        try:
            obj = self._metadata.normalize_decoded(api_types.decode(self._resource.type, item))
            kept = self._cache.keep(obj)
            if kept is not None:
                items[self._metadata.key(kept)] = kept
        except msgspec.ValidationError as error:
            key = api_types.decode(api_types.PartialObjectMetadata, item).key
            log.error("cannot read an object", extra={**self._about(), "key": key, "error": str(error)})
            known = self._cache.known(key)
            if known is not None:
                items[key] = known

    # --- watching --------------------------------------------------------------------------------------------------

    async def _watch(self, *, initial: bool) -> None:
        """Watch, stream after stream, each from where the one before ended; never returns.

        With `initial` the first stream brings the list too, and what keeps it from that is raised as from _stream.
        Raises _ListAgain once the watch cannot be continued.
        """
        loop = asyncio.get_running_loop()
        refused = 0  # in a row
        while True:
            began, began_at = loop.time(), self._resource_version
            wait_seconds = 0.0
            try:
                await self._stream(initial=initial)
                if self._filling:
                    if loop.time() - began >= WATCH_SECONDS:
                        raise TimeoutError  # full of events, and none of them ended the initial ones
                    self._broken_watch_lists += 1
                    raise _ListAgain("the stream ended before its initial events did")
                refused = 0
            except ApiError as error:
                refused += 1
                if self._filling:
                    raise
                if _hopeless(error) or refused >= REFUSED_TRIES:
                    raise _ListAgain(str(error)) from error
                wait_seconds = float(error.retry_after_seconds)
                log.info("watch refused", extra={**self._about(), "error": str(error)})
            except (ServerUnreachable, TimeoutError) as error:
                if self._filling:
                    raise
                log.info("watch broken", extra={**self._about(), "error": str(error) or "silent for too long"})
            initial = False
            useful = loop.time() - began >= SHORT_STREAM_SECONDS or self._resource_version != began_at
            if useful:
                self._backoff.reset()
            if wait_seconds or refused or not useful:
                await asyncio.sleep(max(wait_seconds, self._backoff.next_seconds()))

    async def _stream(self, *, initial: bool) -> None:
        """One watch stream until the server ends it.

        Raises ApiError if the server refuses it or breaks it off with 429, _ListAgain for any other ERROR event,
        ServerUnreachable if the connection fails or breaks, TimeoutError if it was silent for too long.
        """
        cache, metadata = self._cache, self._metadata
        items: dict[str, T] = {}
        steps = 0
        self._filling = initial
        async with asyncio.timeout(None) as cutoff:
            with _cut_when_quiet(self, cutoff):
                async with self._client.watch(
                    self._resource,
                    self._selection.namespace,
                    resource_version="" if initial else self._resource_version,
                    label_selector=self._selection.label_selector,
                    field_selector=self._selection.field_selector,
                    timeout_seconds=round(WATCH_SECONDS * (1 + self._rng.random())),
                    send_initial_events=initial,
                    tolerant=True,
                ) as events:
                    async for event in events:
                        event_type, obj = event.type, event.object
                        if event_type != "BOOKMARK" or not self._filling:
                            self._heard += 1
                        if event_type == "ERROR":
                            raise _error(cast("WatchEvent[api_types.Status]", event))
                        if isinstance(obj, UnreadableObject):
                            self._take_unreadable(event_type, obj, items)
                        elif event_type == "BOOKMARK":
                            version = metadata.resource_version(obj)
                            if not self._filling:
                                self._resource_version = version
                                cache.advance(version)
                            elif event.initial_events_end:
                                await cache.replace(items, version)
                                self._filled_at(version)
                                items = {}
                        elif not self._filling:
                            self._resource_version = metadata.resource_version(obj)
                            cache.apply(event_type, metadata.normalize_decoded(obj))
                        elif event_type == "DELETED":
                            items.pop(metadata.key(obj), None)
                        else:
                            kept = cache.keep(metadata.normalize_decoded(obj))
                            if kept is not None:
                                items[metadata.key(kept)] = kept
                        steps = await yield_to_event_loop(steps)

    def _filled_at(self, resource_version: str) -> None:
        self._resource_version = resource_version
        self._filling = False
        self._heard += 1
        self._broken_watch_lists = 0

    def _take_unreadable(self, event_type: str, obj: UnreadableObject, items: dict[str, T]) -> None:
        log.error("cannot read an object", extra={**self._about(), "key": obj.key, "error": obj.problem})
        if not self._filling:
            self._resource_version = obj.resource_version
            self._cache.apply_unreadable(event_type, obj)
        elif event_type == "DELETED":
            items.pop(obj.key, None)
        elif (known := self._cache.known(obj.key)) is not None:
            items[obj.key] = known

    def _about(self) -> dict[str, Any]:
        about: dict[str, Any] = {"resource": self._resource.group_resource}
        if self._selection.namespace:
            about["namespace"] = self._selection.namespace
        return about


@contextmanager
def _cut_when_quiet(reflector: Reflector[Any], cutoff: asyncio.Timeout) -> Iterator[None]:
    """Let `cutoff` expire once the reflector has heard nothing for a while.

    Looks from time to time, which is cheaper than a timer set anew at each event: silence is noticed after one to two
    times QUIET_SECONDS.
    """
    loop = asyncio.get_running_loop()
    heard = reflector._heard
    timer: asyncio.TimerHandle

    def look() -> None:
        nonlocal heard, timer
        if reflector._heard == heard:
            cutoff.reschedule(loop.time())
        else:
            heard = reflector._heard
            timer = loop.call_later(seconds(), look)

    def seconds() -> float:
        return QUIET_INITIAL_SECONDS if reflector._filling else QUIET_SECONDS

    timer = loop.call_later(seconds(), look)
    try:
        yield
    finally:
        timer.cancel()


def _error(event: WatchEvent[api_types.Status]) -> Exception:
    error = from_status(event.object)
    return error if isinstance(error, TooManyRequests) else _ListAgain(str(error))


def _hopeless(error: ApiError) -> bool:
    """Can a watch from the same resourceVersion not come to be granted by asking again?

    A version too large is one of the future: the server went back in time, to a backup perhaps.
    """
    return (error.code < 500 and error.code != 429) or error.has_cause("ResourceVersionTooLarge")
