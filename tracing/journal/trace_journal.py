"""The journal: what a process that is killed leaves to the next one, so that every pod gets its one trace.

    open record saved ---> saved again, finished (what is new) ---> delivered: forgotten
          |                        |
          +-- killed here: the     +-- killed here: the next process exports it, with the same ids
              next process goes on with the notes

One file of frames (length, kind, msgpack) per process, which holds a lock on it while it lives: a file that can be
locked is of a process that is gone. A new record is written when the turn of the loop ends, and what is noted later
within DELAY_SECONDS: what comes together is encoded once. Then SIGKILL loses it no more; nothing is synced, so that a
machine that loses power may. A second file takes over when the first has grown; what is still wanted is copied to it a
slice at a time. May import `kubeloop.kube` and this room.
"""

from __future__ import annotations

import asyncio
import contextlib
import fcntl
import logging
import os
import struct
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import msgspec

from kubeloop.kube.errors import UserError
from kubeloop.tracing.spans.pod_record import ATTEMPT_FINISHED, AttemptFacts, PodRecord
from kubeloop.tracing.spans.reconcile_record import ReconcileRecord
from kubeloop.tracing.spans.trace import Link, Span, SpanEvent, Trace

log = logging.getLogger(__name__)

ROTATE_BYTES: Final = 32 << 20
STALE_SECONDS: Final = 86_400.0
DELAY_SECONDS: Final = 0.01  # a write takes a pod's share of some 10 us, alone or together with others
COPIED_AT_ONCE: Final = 100  # records, some 2 ms
MAX_FILE_BYTES: Final = 1 << 30  # of a file that is read; a larger one is none of ours
_SUFFIX: Final = ".trace-journal"
_FORMAT: Final = 3
_HEADER, _POD, _RECONCILE, _TRACE, _GONE = range(5)
_frame = struct.Struct("<IB")
_TRACEPARENT, _FACTS, _SAVED_FACTS = (
    PodRecord.__struct_fields__.index(name) for name in ("traceparent", "facts", "saved_facts")
)

_encode = msgspec.msgpack.Encoder().encode


class RecoveredRecords(msgspec.Struct):
    """What processes that are gone left behind. Open records with the time until which each was followed (ns)."""

    open: list[tuple[PodRecord, int]] = msgspec.field(default_factory=list)
    finished: list[PodRecord] = msgspec.field(default_factory=list)
    reconciles: list[ReconcileRecord | Trace] = msgspec.field(default_factory=list)


class TraceJournal:
    """Of one process, for one API server. Methods are synchronous, cost a few microseconds, and do not raise: a disk
    that is full costs the journal, not the traces.

    _live: everything that a next process would want, by key, as the object that it is encoded from; _unwritten: what of
    it has changed since write_out().
    """

    def __init__(self, folder: Path, server: str, *, rotate_bytes: int = ROTATE_BYTES) -> None:
        """Raises UserError if there can be no file in `folder`."""
        self._folder = folder
        self._server = server
        self._rotate_bytes = rotate_bytes
        self._number = 0
        self._live: dict[str, _Kept] = {}
        self._unwritten: dict[str, _Kept] = {}
        self._gone: list[str] = []  # keys, since write_out()
        self._writes_soon = self._writes_later = False
        self._old: tuple[Path, int] | None = None  # path and descriptor of the file that is being replaced
        self._to_copy: Iterator[str] = iter(())
        self._written: set[str] = set()  # keys written to the new file, while there is an old one
        try:
            folder.mkdir(mode=0o700, parents=True, exist_ok=True)
            self._path, self._descriptor = self._new_file()
        except OSError as error:
            raise UserError(
                f"cannot keep a journal of traces in {folder}: {error.strerror}",
                hint="--trace-journal names another folder, or none with --trace-journal=''",
            ) from None

    # --- writing ---------------------------------------------------------------------------------------------------

    def save(self, record: PodRecord) -> None:
        self._note(record.traceparent, record)

    def forget(self, record: PodRecord) -> None:
        self.delivered([record.traceparent])

    def finished(self, record: PodRecord) -> str:
        """Returns the key for delivered()."""
        self._note(record.traceparent, record)
        return record.traceparent

    def save_reconcile(self, reconcile: ReconcileRecord | Trace) -> str:
        """Returns the key for delivered()."""
        key = f"{reconcile.trace_id}-{reconcile.root_id}"
        self._note(key, reconcile)
        return key

    def delivered(self, keys: list[str]) -> None:
        """The collector has them, or nobody wants them any more."""
        for key in keys:
            if self._live.pop(key, None) is not None:
                self._unwritten.pop(key, None)
                self._gone.append(key)
        if self._gone:
            self._write_later()

    def step(self) -> None:
        """Do a slice of what keeps the files small. To be called every second or so."""
        if self._descriptor < 0:
            return
        if self._old is None:
            if os.fstat(self._descriptor).st_size > self._rotate_bytes:
                self._rotate()
            return
        for _ in range(COPIED_AT_ONCE):
            key = next(self._to_copy, None)
            if key is None:
                self.write_out()
                if self._descriptor >= 0:  # else the disk is full, and both files are closed
                    self._leave_old()
                return
            kept = self._live.get(key)
            if kept is not None and key not in self._written:
                self._unwritten[key] = kept
        self._write_later()

    def close(self) -> None:
        """The end. What is still in it is for the next process; an empty file is taken away."""
        self.write_out()
        if self._descriptor < 0:
            return
        if not self._live:
            self._path.unlink(missing_ok=True)
            if self._old is not None:
                self._old[0].unlink(missing_ok=True)
        if self._old is not None:
            os.close(self._old[1])
            self._old = None
        os.close(self._descriptor)
        self._descriptor = -1
        self._live.clear()

    def _note(self, key: str, kept: _Kept) -> None:
        """Write it down soon: at once, that there is a pod at all; it may be bound before anything else is written."""
        if self._descriptor < 0:
            return
        self._unwritten[key] = kept
        if key not in self._live:
            self._live[key] = kept
            if not self._writes_soon and type(kept) is PodRecord:
                self._writes_soon = True
                asyncio.get_running_loop().call_soon(self._write_out_now)
                return
        if not self._writes_later:
            self._write_later()

    def _write_later(self) -> None:
        if not self._writes_later:
            self._writes_later = True
            asyncio.get_running_loop().call_later(DELAY_SECONDS, self._write_out_after_all)

    def _write_out_now(self) -> None:
        self._writes_soon = False
        self.write_out()

    def _write_out_after_all(self) -> None:
        self._writes_later = False
        self.write_out()

    def write_out(self) -> None:
        """Hand what was noted to the operating system."""
        if self._descriptor < 0 or not (self._unwritten or self._gone):
            return
        frames: list[bytes] = []
        for key, kept in self._unwritten.items():
            self._add_frame(frames, key, kept)
        if self._gone:
            content = _encode(self._gone)
            frames += (_frame.pack(len(content), _GONE), content)
        if self._old is not None:
            self._written.update(self._unwritten)
        self._unwritten.clear()
        self._gone.clear()
        left = memoryview(b"".join(frames))
        try:
            while left:  # at once, unless the disk is full
                left = left[os.write(self._descriptor, left) :]
        except OSError as error:
            log.warning("the journal of traces ends here: a crash would lose traces", extra={"error": str(error)})
            self.close()

    def _add_frame(self, frames: list[bytes], key: str, kept: _Kept) -> None:
        """Of a record that this file has, only the facts that are new: `saved_facts` tells the reader where they go."""
        if type(kept) is PodRecord:
            kind, facts = _POD, kept.facts
            if self._old is not None:
                kept.saved_facts = -1  # the new file shall have all of them
            if kept.saved_facts > 0:
                kept.facts = facts[kept.saved_facts :]
            content = _encode(kept)
            kept.facts, kept.saved_facts, kept.is_saved = facts, len(facts), True
        else:
            kind, content = _RECONCILE if type(kept) is ReconcileRecord else _TRACE, _encode((key, kept))
        frames += (_frame.pack(len(content), kind), content)

    def _leave_old(self) -> None:
        """All that counts stands in the new file."""
        assert self._old is not None
        path, descriptor = self._old
        self._old = None
        self._written = set()
        path.unlink(missing_ok=True)
        os.close(descriptor)

    def _rotate(self) -> None:
        self.write_out()
        if self._descriptor < 0:
            return
        try:
            path, descriptor = self._new_file()
        except OSError as error:
            log.warning("the journal of traces cannot be renewed, it grows", extra={"error": str(error)})
            self._rotate_bytes *= 2
            return
        self._old = self._path, self._descriptor
        self._path, self._descriptor = path, descriptor
        self._to_copy = iter([*self._live])

    def _new_file(self) -> tuple[Path, int]:
        self._number += 1
        path = self._folder / f"{os.getpid()}-{self._number}{_SUFFIX}"
        descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_APPEND | os.O_CLOEXEC, 0o600)
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            header = _encode({"format": _FORMAT, "server": self._server})
            os.write(descriptor, _frame.pack(len(header), _HEADER) + header)
        except OSError:
            path.unlink()
            os.close(descriptor)
            raise
        return path, descriptor

    # --- reading ---------------------------------------------------------------------------------------------------

    @contextlib.contextmanager
    def recover(self, now_ns: int) -> Iterator[RecoveredRecords]:
        """What processes that are gone left for this API server. Taken away at the end of the context: by then it must
        be saved in this journal. What is about another API server is left alone for STALE_SECONDS."""
        left = RecoveredRecords()
        taken: list[tuple[Path, int]] = []
        try:
            by_process: dict[str, list[tuple[int, Path, int]]] = {}
            for path in self._folder.glob(f"*{_SUFFIX}"):
                found = self._lock(path, now_ns)
                if found is not None:
                    taken.append((path, found))
                    process, _, number = path.name.removesuffix(_SUFFIX).partition("-")
                    by_process.setdefault(process, []).append((int(number or 0), path, found))
            for files in by_process.values():
                _collect([_read(path, descriptor, self._server) for _, path, descriptor in sorted(files)], left)
            yield left
        except BaseException:
            for _, descriptor in taken:
                os.close(descriptor)
            raise
        self.write_out()
        for path, descriptor in taken:
            path.unlink(missing_ok=True)
            os.close(descriptor)

    def _lock(self, path: Path, now_ns: int) -> int | None:
        """The file, if its process is gone and it is about our API server."""
        if path == self._path:
            return None
        descriptor = -1
        try:
            descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            if not os.fstat(descriptor).st_nlink:  # somebody was faster
                raise FileNotFoundError(path)
            size, kind = _frame.unpack(os.read(descriptor, _frame.size))
            header = msgspec.msgpack.decode(os.read(descriptor, size))
            if kind == _HEADER and header["format"] == _FORMAT and header["server"] == self._server:
                return descriptor
            if now_ns - os.fstat(descriptor).st_mtime_ns > STALE_SECONDS * 1e9:
                path.unlink(missing_ok=True)
        except (OSError, struct.error, msgspec.DecodeError, KeyError, TypeError, ValueError):
            pass  # alive, or no journal
        if descriptor >= 0:
            os.close(descriptor)
        return None


_Kept = PodRecord | ReconcileRecord | Trace
_Frames = tuple[list[tuple[int, Any]], int]


def _read(path: Path, descriptor: int, server: str) -> _Frames:
    """The frames of a file that is locked, and when it was last written (ns). A torn last frame counts for nothing."""
    status = os.fstat(descriptor)
    frames: list[tuple[int, Any]] = []
    if status.st_size > MAX_FILE_BYTES:
        return frames, status.st_mtime_ns
    with os.fdopen(os.dup(descriptor), "rb") as file:
        file.seek(0)
        content = file.read()
    at = 0
    try:
        while at + _frame.size <= len(content):
            size, kind = _frame.unpack_from(content, at)
            at += _frame.size
            if at + size > len(content):
                break
            frames.append((kind, msgspec.msgpack.decode(memoryview(content)[at : at + size])))
            at += size
    except (msgspec.DecodeError, TypeError, ValueError) as error:
        log.warning("a journal of traces is damaged", extra={"file": str(path), "error": str(error)})
    return frames, status.st_mtime_ns


def _collect(files: list[_Frames], left: RecoveredRecords) -> None:
    """Of one process: the newest state of each key."""
    states: dict[str, tuple[int, Any]] = {}
    until_ns = max((written_ns for _, written_ns in files), default=0)
    for frames, _ in files:
        for kind, content in frames:
            if kind == _GONE:
                for key in content:
                    states.pop(key, None)
            elif kind == _POD:
                key, saved = content[_TRACEPARENT], content[_SAVED_FACTS]
                if saved > 0:
                    if key not in states:
                        log.warning("a record in a journal of traces lacks its beginning", extra={"key": key})
                        continue
                    content[_FACTS] = [*states[key][1][_FACTS][:saved], *content[_FACTS]]
                states[key] = kind, content
            elif kind != _HEADER:
                states[content[0]] = kind, content[1]
    for kind, content in states.values():
        try:
            if kind == _TRACE:
                left.reconciles.append(_trace(content))
            elif kind == _RECONCILE:
                left.reconciles.append(msgspec.convert(content, ReconcileRecord))
            else:
                record = _record(content)
                if record.outcome:
                    left.finished.append(record)
                else:
                    left.open.append((record, max(until_ns, record.start_ns)))
        except (msgspec.ValidationError, TypeError, ValueError, KeyError) as error:
            log.warning("a record in a journal of traces is damaged", extra={"error": str(error)})


def _record(content: Any) -> PodRecord:
    record = msgspec.convert(content, PodRecord)
    record.saved_facts, record.is_saved = -1, False
    record.facts = [
        (what, at_ns, msgspec.convert(first, AttemptFacts) if what == ATTEMPT_FINISHED else first, second)
        for what, at_ns, first, second in record.facts
    ]
    return record


def _trace(content: Any) -> Trace:
    """msgspec would not decide between a list of texts and one of numbers; both are what they are."""
    spans = []
    for fields in content["spans"]:
        links = tuple(Link(**link) for link in fields.pop("links"))
        events = tuple(SpanEvent(**event) for event in fields.pop("events"))
        spans.append(Span(links=links, events=events, **fields))
    return Trace(content["trace_id"], tuple(spans))
