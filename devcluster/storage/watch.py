"""Watches: from changes in the store to lines of a stream.

A Watcher takes changes from within the write and never makes it wait; it holds those that its selection lets through
until its stream is read. One that is read too slowly is cut off when its buffer is full: its client then resumes at the
last revision it has seen. Source of the semantics: k8s.io/apiserver storage/cacher.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import AsyncIterator, Callable, Iterable

from kubeloop.devcluster.storage.store import Change, Stored, Table, with_revision
from kubeloop.devcluster.storage.watch_frames import JSON_FRAMES, Frames
from kubeloop.kube.json_object import JSON

Selection = Callable[[JSON], bool]
BOOKMARK_SECONDS = 60.0
BOOKMARK_BEFORE_TIMEOUT_SECONDS = 2.0
INITIAL_EVENTS_END = {"k8s.io/initial-events-end": "true"}


class Watcher:
    """The changes of one table that one client wants to see.

    selection None takes every object. frames: how events are told; with the first that cannot be, it is cut off.
    """

    def __init__(
        self,
        table: Table,
        *,
        namespace: str = "",
        selection: Selection | None = None,
        frames: Frames = JSON_FRAMES,
        buffer: int = 16_384,
    ) -> None:
        self._prefix = f"{namespace}/" if namespace else ""
        self._selection = selection
        self._frames = frames
        self._tell = frames.change  # looked up once: it is called for every change and watcher
        self._buffer = buffer
        self._pending: deque[bytes] = deque()
        self._wake: asyncio.Event = asyncio.Event()
        self._overflowed = False
        self._unsubscribe: Callable[[], None] | None = None
        self._when_closed: Callable[[], object] | None = None
        self.table = table
        self.after = 0
        """The revision up to which changes are left out: a client may name one that is to come."""

    @property
    def overflowed(self) -> bool:
        """Was it cut off, so that its stream ends after what is pending?"""
        return self._overflowed

    def open(self, changes: Iterable[Change]) -> None:
        """Begin with `changes`, which end at the table's present, and receive all that follow."""
        for change in changes:
            self._take(change)
        if not self._overflowed:
            self._unsubscribe = self.table.subscribe(self._receive)

    def add(self, stored: Stored) -> None:
        """Put an initial ADDED event into the stream."""
        self._put(self._frames.stored("ADDED", stored))

    def when_closed(self, call: Callable[[], object]) -> None:
        """Call that once it receives nothing any more; at once if it does not even now."""
        if self._unsubscribe is None:
            call()
        else:
            self._when_closed = call

    def close(self) -> None:
        if self._unsubscribe is not None:
            self._unsubscribe()
            self._unsubscribe = None
            if self._when_closed is not None:
                self._when_closed()
        self._wake.set()

    def cut(self) -> None:
        """End the stream after what is pending, as a server does that shuts down."""
        self._overflowed = True
        self.close()

    async def wait(self, until: float) -> None:
        """Return when something is pending, the watcher was cut off, or the loop's time is `until`."""
        if self._pending or self._overflowed:
            return
        self._wake.clear()
        try:
            async with asyncio.timeout_at(until):
                await self._wake.wait()
        except TimeoutError:
            return

    def take(self) -> bytes:
        """All pending lines."""
        if not self._pending:
            return b""
        taken = b"".join(self._pending)
        self._pending.clear()
        return taken

    def _receive(self, change: Change) -> None:
        if change.revision <= self.after:
            return
        if len(self._pending) >= self._buffer:
            self.cut()
            return
        self._take(change)
        if self._pending:
            self._wake.set()

    def _put(self, line: bytes) -> None:
        if line:
            self._pending.append(line)
        else:
            self.cut()

    def _take(self, change: Change) -> None:
        if self._prefix and not change.now.key.startswith(self._prefix):
            return
        selection = self._selection
        if selection is None:
            self._put(self._tell(change))
            return
        before, now = change.before, change.now
        was_in = before is not None and selection(before.object)
        is_in = change.type != "DELETED" and selection(now.object)
        if is_in:
            type_ = "MODIFIED" if was_in else "ADDED"
            obj = now.object
        elif was_in and before is not None:
            # what left the selection is told as it was when it last matched, under the revision of the change
            type_ = "DELETED"
            obj = now.object if change.type == "DELETED" else with_revision(before.object, change.revision)
        else:
            return
        if obj is now.object and type_ == change.type:
            self._put(self._tell(change))
        else:
            self._put(self._frames.object(type_, obj))


class WatchStream:
    """The body of a watch response: an asynchronous iterator of chunks that ends at its time-out.

    Bookmarks go out about every minute and shortly before the end, if the client allows them.
    """

    def __init__(
        self,
        watcher: Watcher,
        *,
        timeout_seconds: float,
        bookmark: Callable[[bool], bytes] | None,
        initial_events_end: bool,
        bookmark_seconds: float = BOOKMARK_SECONDS,
    ) -> None:
        self._watcher = watcher
        self._timeout_seconds = timeout_seconds
        self._bookmark = bookmark
        self._initial_events_end = initial_events_end
        self._bookmark_seconds = bookmark_seconds
        self._chunks = self._run()

    def __aiter__(self) -> AsyncIterator[bytes]:
        return self._chunks

    async def __anext__(self) -> bytes:
        return await anext(self._chunks)

    async def aclose(self) -> None:
        self._watcher.close()
        await self._chunks.aclose()  # type: ignore[attr-defined]

    async def _run(self) -> AsyncIterator[bytes]:
        loop = asyncio.get_running_loop()
        watcher, bookmark = self._watcher, self._bookmark
        end = loop.time() + self._timeout_seconds
        last_bookmark_at = end - BOOKMARK_BEFORE_TIMEOUT_SECONDS
        next_bookmark = loop.time() + self._bookmark_seconds if bookmark is not None else end
        if loop.time() < last_bookmark_at < next_bookmark:  # a watch that is shorter gets none for its end
            next_bookmark = last_bookmark_at
        try:
            first = watcher.take()
            if self._initial_events_end and bookmark is not None:
                first += bookmark(True)
            if first:
                yield first
            while True:
                await watcher.wait(min(end, next_bookmark))
                chunk = watcher.take()
                now = loop.time()
                if bookmark is not None and now >= next_bookmark and now < end:
                    chunk += bookmark(False)
                    next_bookmark = now + self._bookmark_seconds
                    if now < last_bookmark_at < next_bookmark:
                        next_bookmark = last_bookmark_at
                if chunk:
                    yield chunk
                if watcher.overflowed or now >= end:
                    return
        finally:
            watcher.close()
