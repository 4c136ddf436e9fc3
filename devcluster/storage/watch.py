"""Watches: from changes of a table to the events of a response stream.

A Watcher receives changes from within the write, never blocks it, and buffers those that match its selection until its
stream is read. If the buffer is full, the watch is cut off: the client resumes at the last revision it received.
Source: k8s.io/apiserver storage/cacher.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import AsyncIterator, Callable, Iterable

from kubeloop.devcluster.storage.store import Change, StoredObject, Table, with_revision
from kubeloop.devcluster.storage.watch_encoding import JSON_WATCH_ENCODER, WatchEncoder
from kubeloop.kube.json_object import JSON

Selection = Callable[[JSON], bool]
BOOKMARK_SECONDS = 60.0
BOOKMARK_BEFORE_TIMEOUT_SECONDS = 2.0
LINES_PER_CHUNK = 500  # of initial events
INITIAL_EVENTS_END = {"k8s.io/initial-events-end": "true"}


class Watcher:
    """The changes of one table that one watch requests.

    A selection of None matches every object. An event that `encoder` cannot encode (b"") cuts the watch off.
    """

    def __init__(
        self,
        table: Table,
        *,
        namespace: str = "",
        selection: Selection | None = None,
        encoder: WatchEncoder = JSON_WATCH_ENCODER,
        buffer: int = 16_384,
    ) -> None:
        self._prefix = f"{namespace}/" if namespace else ""
        self._selection = selection
        self._encoder = encoder
        self._encode_change = encoder.change  # bound once: called for every change and watcher
        self._buffer = buffer
        self._pending: deque[bytes] = deque()
        self._waiter: asyncio.Future[None] | None = None  # of the reader of the stream
        self._timer: asyncio.TimerHandle | None = None  # wakes the reader at `_until`
        self._until = 0.0
        self.overflowed = False
        """True if the watch was cut off: its stream ends after the pending events."""
        self._unsubscribe: Callable[[], None] | None = None
        self._when_closed: Callable[[], object] | None = None
        self.table = table
        self.after = 0
        """Changes up to this revision are skipped: a client may start from a future revision."""

    def open(self, changes: Iterable[Change]) -> None:
        """Start with `changes`, which end at the table's newest change, and receive all later ones."""
        for change in changes:
            self._take(change)
        if not self.overflowed:
            self._unsubscribe = self.table.subscribe(self._receive)

    def add(self, stored: StoredObject) -> None:
        """Append an initial ADDED event to the stream."""
        self._put(self._encoder.stored("ADDED", stored))

    def when_closed(self, call: Callable[[], object]) -> None:
        """Call `call` once the watcher stops receiving changes; at once if it already has."""
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
        if self._timer is not None:
            self._timer.cancel()
        self._wake()

    def cut(self) -> None:
        """End the stream after the pending events, as a server that shuts down does."""
        self.overflowed = True
        self.close()

    async def wait(self, until: float) -> None:
        """Return when an event is pending, the watch was cut off, or the loop's time is `until`. Cancellation: safe."""
        if self._pending or self.overflowed:
            return
        loop = asyncio.get_running_loop()
        if self._timer is None or self._until != until:  # most waits are ended by events, and have the same end
            if self._timer is not None:
                self._timer.cancel()
            self._until, self._timer = until, loop.call_at(until, self._time_out)
        self._waiter = loop.create_future()
        try:
            await self._waiter
        finally:
            self._waiter = None

    def _time_out(self) -> None:
        self._timer = None
        self._wake()

    def _wake(self) -> None:
        if self._waiter is not None and not self._waiter.done():
            self._waiter.set_result(None)

    def take(self) -> bytes:
        """Return and remove all pending events."""
        return b"".join(self.take_lines())

    def take_lines(self) -> list[bytes]:
        """Return and remove all pending events, one line each."""
        taken = [*self._pending]
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
            self._wake()

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
            self._put(self._encode_change(change))
            return
        before, now = change.before, change.now
        was_in = before is not None and selection(before.object)
        is_in = change.type != "DELETED" and selection(now.object)
        if is_in:
            type_ = "MODIFIED" if was_in else "ADDED"
            obj = now.object
        elif was_in and before is not None:
            # DELETED carries the object's last matching state with the revision of the change
            type_ = "DELETED"
            obj = now.object if change.type == "DELETED" else with_revision(before.object, change.revision)
        else:
            return
        if obj is now.object and type_ == change.type:
            self._put(self._encode_change(change))
        else:
            self._put(self._encoder.object(type_, obj))


class WatchStream:
    """The body of a watch response: an asynchronous iterator of chunks that ends at its timeout.

    If the client allows bookmarks, they are sent about every minute and shortly before the end.
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

    def cut(self) -> None:
        """End the stream after the pending events, as a server that shuts down does."""
        self._watcher.cut()

    async def aclose(self) -> None:
        self._watcher.close()
        await self._chunks.aclose()  # type: ignore[attr-defined]

    def _encoded(self, bookmark: bytes) -> bytes:
        """End the watch if the requested form of objects, as of events, excludes bookmarks."""
        if not bookmark:
            self._watcher.cut()
        return bookmark

    async def _run(self) -> AsyncIterator[bytes]:
        loop = asyncio.get_running_loop()
        watcher, bookmark = self._watcher, self._bookmark
        end = loop.time() + self._timeout_seconds
        last_bookmark_at = end - BOOKMARK_BEFORE_TIMEOUT_SECONDS
        next_bookmark = loop.time() + self._bookmark_seconds if bookmark is not None else end
        if loop.time() < last_bookmark_at < next_bookmark:  # a shorter watch gets no final bookmark
            next_bookmark = last_bookmark_at
        try:
            initial = watcher.take_lines()
            if self._initial_events_end and bookmark is not None:
                initial.append(self._encoded(bookmark(True)))
            for at in range(0, len(initial), LINES_PER_CHUNK):  # other events and requests are handled in between
                if chunk := b"".join(initial[at : at + LINES_PER_CHUNK]):
                    yield chunk
            while True:
                await watcher.wait(min(end, next_bookmark))
                chunk = watcher.take()
                now = loop.time()
                if bookmark is not None and now >= next_bookmark and now < end:
                    chunk += self._encoded(bookmark(False))
                    next_bookmark = now + self._bookmark_seconds
                    if now < last_bookmark_at < next_bookmark:
                        next_bookmark = last_bookmark_at
                if chunk:
                    yield chunk
                if watcher.overflowed or now >= end:
                    return
        finally:
            watcher.close()
