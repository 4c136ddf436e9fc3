"""Journal of traces: records on disk, so that the next process continues or exports them after a crash.

    open record saved ---> saved again, finished (new facts only) ---> delivered: deleted
          |                        |
          +-- killed here: the     +-- killed here: the next process exports it, with the same IDs
              next process continues the record

Each process writes one file of entries (length, kind, msgpack) and holds a lock on it: a file that can be locked
belongs to a terminated process. A new record is written at the end of the event loop's turn, changes within
DELAY_SECONDS, encoded once for all that happened until then. SIGKILL then loses nothing; a power failure may, because
nothing is synced to disk. When a file has grown, a second one replaces it; what is still needed is copied in slices.
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

from kubeloop.kube.user_error import UserError
from kubeloop.tracing.spans.pod_group_record import PodGroupRecord
from kubeloop.tracing.spans.pod_record import PodRecord
from kubeloop.tracing.spans.reconcile_record import ReconcileRecord
from kubeloop.tracing.spans.trace import Link, Span, SpanEvent, Trace

log = logging.getLogger(__name__)

ROTATE_BYTES: Final = 32 << 20
STALE_SECONDS: Final = 86_400.0
DELAY_SECONDS: Final = 0.01  # some 10 us per pod in a write, however many pods it has
MAX_COPIED_PER_STEP: Final = 100  # records, some 2 ms
MAX_FILE_BYTES: Final = 1 << 30  # a larger file is ignored: no journal grows to this size
_SUFFIX: Final = ".trace-journal"
_FORMAT: Final = 8
_HEADER, _POD, _RECONCILE, _TRACE, _DELETED, _GROUP = range(6)
_header_struct = struct.Struct("<IB")
_TRACEPARENT, _FACTS, _JOURNALED_FACTS = (
    PodRecord.__struct_fields__.index(name) for name in ("traceparent", "facts", "journaled_facts")
)

_encode = msgspec.msgpack.Encoder().encode


class RecoveredRecords(msgspec.Struct):
    """Records of terminated processes. Open ones come with the time (ns) until which their object was followed."""

    open: list[tuple[PodRecord, int]] = msgspec.field(default_factory=list)
    finished: list[PodRecord] = msgspec.field(default_factory=list)
    reconciles: list[ReconcileRecord | Trace] = msgspec.field(default_factory=list)
    open_groups: list[tuple[PodGroupRecord, int]] = msgspec.field(default_factory=list)
    finished_groups: list[PodGroupRecord] = msgspec.field(default_factory=list)


class TraceJournal:
    """Journal of one process, for one API server.

    Methods are synchronous, take a few microseconds, and do not raise. A full disk ends the journal, not the tracing.

    _stored: all records that the next process would need, by key; _unwritten: those changed since write_out().
    """

    def __init__(self, folder: Path, server: str, *, rotate_bytes: int = ROTATE_BYTES) -> None:
        """Raises UserError if no file can be created in `folder`."""
        self._folder = folder
        self._server = server
        self._rotate_bytes = rotate_bytes
        self._stored: dict[str, JournaledRecord] = {}
        self._unwritten: dict[str, JournaledRecord] = {}
        self._deleted: list[str] = []  # keys, since write_out()
        self._write_soon_scheduled = self._write_later_scheduled = False
        self._old: tuple[Path, int] | None = None  # path and descriptor of the file being replaced
        self._to_copy: Iterator[str] = iter(())
        self._written: set[str] = set()  # keys written to the new file, while there is an old one
        try:
            folder.mkdir(mode=0o700, parents=True, exist_ok=True)
            # A restarted container has the process ID of the one before, whose files are yet to be recovered.
            own_files = folder.glob(f"{os.getpid()}-*{_SUFFIX}")
            self._number = max((_process_and_number(path)[1] for path in own_files), default=0)
            self._path, self._descriptor = self._new_file()
        except OSError as error:
            raise UserError(
                f"cannot create a trace journal in {folder}: {error.strerror}",
                hint="set --trace-journal to another folder, or disable it with --trace-journal=''",
            ) from None

    # --- writing ---------------------------------------------------------------------------------------------------

    def save(self, record: JournaledRecord) -> None:
        """Save an open or finished record."""
        self._add(journal_key(record), record)

    def delivered(self, keys: list[str]) -> None:
        """Delete records, by their journal_key: the collector received them, or they are not needed any more."""
        for key in keys:
            if self._stored.pop(key, None) is not None:
                self._unwritten.pop(key, None)
                self._deleted.append(key)
        if self._deleted:
            self._write_later()

    def rotate(self) -> None:
        """Do a slice of file rotation. Call it about every second."""
        if self._descriptor < 0:
            return
        if self._old is None:
            if os.fstat(self._descriptor).st_size > self._rotate_bytes:
                self._start_rotation()
            return
        for _ in range(MAX_COPIED_PER_STEP):
            key = next(self._to_copy, None)
            if key is None:
                self.write_out()
                if self._descriptor >= 0:  # else the disk is full, and write_out() closed both files
                    self._finish_rotation()
                return
            entry = self._stored.get(key)
            if entry is not None and key not in self._written:
                self._unwritten[key] = entry
        self._write_later()

    def close(self) -> None:
        """Close the journal. Its records are for the next process; an empty file is removed."""
        self.write_out()
        if self._descriptor < 0:
            return
        if not self._stored:
            self._path.unlink(missing_ok=True)
            if self._old is not None:
                self._old[0].unlink(missing_ok=True)
        if self._old is not None:
            os.close(self._old[1])
            self._old = None
        os.close(self._descriptor)
        self._descriptor = -1
        self._stored.clear()

    def _add(self, key: str, entry: JournaledRecord) -> None:
        """Schedule a write: of a new pod record at once, because the pod may be bound before the delay is over."""
        if self._descriptor < 0:
            return
        self._unwritten[key] = entry
        if key not in self._stored:
            self._stored[key] = entry
            if not self._write_soon_scheduled and type(entry) is PodRecord:
                self._write_soon_scheduled = True
                asyncio.get_running_loop().call_soon(self._write_soon)
                return
        if not self._write_later_scheduled:
            self._write_later()

    def _write_later(self) -> None:
        if not self._write_later_scheduled:
            self._write_later_scheduled = True
            asyncio.get_running_loop().call_later(DELAY_SECONDS, self._write_delayed)

    def _write_soon(self) -> None:
        self._write_soon_scheduled = False
        self.write_out()

    def _write_delayed(self) -> None:
        self._write_later_scheduled = False
        self.write_out()

    def write_out(self) -> None:
        """Write pending changes to the file, without syncing it."""
        if self._descriptor < 0 or not (self._unwritten or self._deleted):
            return
        chunks: list[bytes] = []
        for key, entry in self._unwritten.items():
            self._add_entry(chunks, key, entry)
        if self._deleted:
            content = _encode(self._deleted)
            chunks += (_header_struct.pack(len(content), _DELETED), content)
        if self._old is not None:
            self._written.update(self._unwritten)
        self._unwritten.clear()
        self._deleted.clear()
        remaining = memoryview(b"".join(chunks))
        try:
            while remaining:  # one write, unless the disk is full
                remaining = remaining[os.write(self._descriptor, remaining) :]
        except OSError as error:
            log.warning("trace journal disabled: a crash would lose traces", extra={"error": str(error)})
            self.close()

    def _add_entry(self, chunks: list[bytes], key: str, entry: JournaledRecord) -> None:
        """Encode a record; of one that this file has, only the new facts, at position `journaled_facts`."""
        if type(entry) is PodRecord:
            kind, facts = _POD, entry.facts
            if self._old is not None:
                entry.journaled_facts = -1  # the new file needs all facts
            if entry.journaled_facts > 0:
                entry.facts = facts[entry.journaled_facts :]
            content = _encode(entry)
            entry.facts, entry.journaled_facts, entry.is_journaled = facts, len(facts), True
        else:
            kind, content = _KINDS[type(entry)], _encode((key, entry))
        chunks += (_header_struct.pack(len(content), kind), content)

    def _finish_rotation(self) -> None:
        """Remove the old file: the new one has all records."""
        assert self._old is not None
        path, descriptor = self._old
        self._old = None
        self._written = set()
        path.unlink(missing_ok=True)
        os.close(descriptor)

    def _start_rotation(self) -> None:
        self.write_out()
        if self._descriptor < 0:
            return
        try:
            path, descriptor = self._new_file()
        except OSError as error:
            log.warning("cannot rotate the trace journal, it grows", extra={"error": str(error)})
            self._rotate_bytes *= 2
            return
        self._old = self._path, self._descriptor
        self._path, self._descriptor = path, descriptor
        self._to_copy = iter([*self._stored])

    def _new_file(self) -> tuple[Path, int]:
        self._number += 1
        path = self._folder / f"{os.getpid()}-{self._number}{_SUFFIX}"
        descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_APPEND | os.O_CLOEXEC, 0o600)
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            header = _encode({"format": _FORMAT, "server": self._server})
            os.write(descriptor, _header_struct.pack(len(header), _HEADER) + header)
        except OSError:
            path.unlink()
            os.close(descriptor)
            raise
        return path, descriptor

    # --- reading ---------------------------------------------------------------------------------------------------

    @contextlib.contextmanager
    def recover(self, now_ns: int) -> Iterator[RecoveredRecords]:
        """Yield the records of terminated processes for this API server, and remove their files at the end.

        The caller must save the records in this journal within the context. Files for other API servers are left alone
        for STALE_SECONDS.
        """
        recovered = RecoveredRecords()
        taken: list[tuple[Path, int]] = []
        try:
            by_process: dict[str, list[tuple[int, Path, int]]] = {}
            for path in self._folder.glob(f"*{_SUFFIX}"):
                descriptor = self._lock(path, now_ns)
                if descriptor is not None:
                    taken.append((path, descriptor))
                    process, number = _process_and_number(path)
                    by_process.setdefault(process, []).append((number, path, descriptor))
            for files in by_process.values():
                _collect([_read_entries(path, descriptor) for _, path, descriptor in sorted(files)], recovered)
            yield recovered
        except BaseException:
            for _, descriptor in taken:
                os.close(descriptor)
            raise
        self.write_out()
        for path, descriptor in taken:
            path.unlink(missing_ok=True)
            os.close(descriptor)

    def _lock(self, path: Path, now_ns: int) -> int | None:
        """Lock and return the file if its process has terminated and it is for our API server."""
        if path == self._path:
            return None
        descriptor = -1
        try:
            # another user may have put a link or a pipe into the folder
            descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK)
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            if not os.fstat(descriptor).st_nlink:  # another process removed it first
                raise FileNotFoundError(path)
            size, kind = _header_struct.unpack(os.read(descriptor, _header_struct.size))
            header = msgspec.msgpack.decode(os.read(descriptor, size))
            if kind == _HEADER and header["server"] == self._server:
                if header["format"] == _FORMAT:
                    return descriptor
                log.warning("traces of another version of kubeloop are not continued", extra={"journal": str(path)})
            if now_ns - os.fstat(descriptor).st_mtime_ns > STALE_SECONDS * 1e9:
                path.unlink(missing_ok=True)
        except (OSError, struct.error, msgspec.DecodeError, KeyError, TypeError, ValueError):
            pass  # the process is running, or this is no journal
        if descriptor >= 0:
            os.close(descriptor)
        return None


JournaledRecord = PodRecord | ReconcileRecord | Trace | PodGroupRecord
_KINDS: Final = {ReconcileRecord: _RECONCILE, Trace: _TRACE, PodGroupRecord: _GROUP}
_FileContent = tuple[list[tuple[int, Any]], int]


def journal_key(record: JournaledRecord) -> str:
    """Return the key of an open or finished record."""
    if isinstance(record, PodRecord | PodGroupRecord):
        return record.traceparent
    return f"{record.trace_id}-{record.root_id}"


def _process_and_number(path: Path) -> tuple[str, int]:
    """Return the process ID, as text, and the number of a file among those of processes with this ID."""
    process, _, number = path.name.removesuffix(_SUFFIX).partition("-")
    return process, int(number) if number.isdecimal() else 0


def _read_entries(path: Path, descriptor: int) -> _FileContent:
    """Return the entries of a locked file, and when it was last written (ns). An incomplete last entry is ignored."""
    status = os.fstat(descriptor)
    entries: list[tuple[int, Any]] = []
    if status.st_size > MAX_FILE_BYTES:
        return entries, status.st_mtime_ns
    with os.fdopen(os.dup(descriptor), "rb") as file:
        file.seek(0)
        content = file.read()
    at = 0
    try:
        while at + _header_struct.size <= len(content):
            size, kind = _header_struct.unpack_from(content, at)
            at += _header_struct.size
            if at + size > len(content):
                break
            entries.append((kind, msgspec.msgpack.decode(memoryview(content)[at : at + size])))
            at += size
    except (msgspec.DecodeError, TypeError, ValueError) as error:
        log.warning("trace journal is damaged", extra={"file": str(path), "error": str(error)})
    return entries, status.st_mtime_ns


def _collect(files: list[_FileContent], recovered: RecoveredRecords) -> None:
    """Add the newest state of each record in the files of one process to `recovered`."""
    states: dict[str, tuple[int, Any]] = {}
    until_ns = max((written_ns for _, written_ns in files), default=0)
    for entries, _ in files:
        for kind, content in entries:
            if kind == _DELETED:
                for key in content:
                    states.pop(key, None)
            elif kind == _POD:
                key, journaled = content[_TRACEPARENT], content[_JOURNALED_FACTS]
                if journaled > 0:
                    if key not in states:
                        log.warning("trace journal lacks the first part of a record", extra={"key": key})
                        continue
                    content[_FACTS] = [*states[key][1][_FACTS][:journaled], *content[_FACTS]]
                states[key] = kind, content
            elif kind != _HEADER:
                states[content[0]] = kind, content[1]
    for kind, content in states.values():
        try:
            if kind == _TRACE:
                recovered.reconciles.append(_trace(content))
            elif kind == _RECONCILE:
                recovered.reconciles.append(msgspec.convert(content, ReconcileRecord))
            elif kind == _GROUP:
                group = msgspec.convert(content, PodGroupRecord)
                if group.outcome:
                    recovered.finished_groups.append(group)
                else:
                    recovered.open_groups.append((group, max(until_ns, group.start_ns)))
            else:
                record = _record(content)
                if record.outcome:
                    recovered.finished.append(record)
                else:
                    recovered.open.append((record, max(until_ns, record.start_ns)))
        except (msgspec.ValidationError, TypeError, ValueError, KeyError) as error:
            log.warning("trace journal has a damaged record", extra={"error": str(error)})


def _record(content: Any) -> PodRecord:
    record = msgspec.convert(content, PodRecord)
    record.plugin_spans = tuple(_span(fields) for fields in record.plugin_spans)
    record.journaled_facts, record.is_journaled = -1, False
    return record


def _trace(content: Any) -> Trace:
    return Trace(content["trace_id"], tuple(_span(fields) for fields in content["spans"]))


def _span(fields: Any) -> Span:
    """Convert a span by hand: msgspec cannot decide between a list of strings and a list of numbers."""
    links = tuple(Link(**link) for link in fields.pop("links"))
    events = tuple(SpanEvent(**event) for event in fields.pop("events"))
    return Span(links=links, events=events, **fields)
