"""Reader of a recording: lines to changes.

A recording that was cut off is read up to its last complete line. One that was edited is read as it is, and the finding
names the lines. Raises UserError, with file and line, for what no reader can continue after.
"""

from __future__ import annotations

import zlib
from collections.abc import Iterator
from datetime import datetime
from pathlib import Path
from typing import Any, Final, NoReturn

import msgspec

from kubeloop.kube.json_object import JSON
from kubeloop.kube.user_error import UserError
from kubeloop.kube.values.times import parse_time
from kubeloop.recording.changes import Finding, RecordedChange, key_of
from kubeloop.recording.gzip_lines import GzipLineReader
from kubeloop.recording.memory import MemoryLimit
from kubeloop.recording.resources import recorded_resource
from kubeloop.recording.validation import check_object
from kubeloop.recording.writer import FORMAT, VERSION, Header

_EFFECT_OF_GAP: Final = "objects that existed only between are not part of the result"
_decode_line = msgspec.json.Decoder(dict[str, Any]).decode


class RecordingFile:
    """One recording; a `Recording`. changes() can be called repeatedly, and reads the file each time.

    omitted: resources that are not recorded, with the reason. seconds: the length, known when changes() has ended.
    """

    is_projected = True

    def __init__(self, path: Path, *, limit: MemoryLimit | None = None) -> None:
        """Read the header. limit: of the objects that exist at one time. Raises UserError."""
        self.name = str(path)
        self.findings: list[Finding] = []
        self.seconds = 0.0
        self.omitted: dict[str, str] = {}
        self._path = path
        self.limit = limit or MemoryLimit(self.name)
        self._line = 0
        self.header = self._read_header()
        self._start = self._parse_start(self.header.start)

    @property
    def start(self) -> datetime:
        """Time of 0 seconds."""
        return self._start

    @property
    def start_ns(self) -> int:
        """The time of 0 seconds, in nanoseconds since the epoch."""
        return round(self.start.timestamp()) * 1_000_000_000 + self.start.microsecond * 1_000

    def changes(self) -> Iterator[RecordedChange]:
        """Yield the changes. findings and omitted are complete afterwards."""
        self.findings, self.omitted = [], {}
        return _Replay(self).run()

    def _read_header(self) -> Header:
        line = next(self.lines(), b"")
        try:
            header = msgspec.json.decode(line, type=Header)
        except msgspec.DecodeError:
            header = Header()
        if header.format != FORMAT:
            raise UserError(
                f"{self.name}, line 1: not a recording of kubeloop",
                hint="kubeloop record writes recordings; manifests are read from .yaml and .json files and folders",
            )
        if header.version != VERSION:
            raise UserError(
                f"{self.name}, line 1: version {header.version} of the format; this kubeloop reads version {VERSION}",
                hint=f"use the kubeloop that wrote it ({header.kubeloop or 'unknown'}), or a newer one",
            )
        return header

    def _parse_start(self, text: str) -> datetime:
        try:
            return parse_time(text)
        except ValueError:
            self.fail(f"the start {text!r} is not a time")

    def lines(self) -> Iterator[bytes]:
        """Yield the lines; adds findings at the end. Raises UserError if the file cannot be read."""
        self._line = 0
        reader = GzipLineReader(self._path)
        try:
            for line in reader:
                self._line += 1
                yield line
        except OSError as error:
            raise UserError(f"cannot read {self.name}: {error.strerror}", hint="check the path") from None
        if not self._line and reader.is_compressed:
            problem = reader.damage or "the file is cut off"
            raise UserError(f"{self.name}, line 1: {problem}", hint="nothing of it can be read; take the original")
        if reader.damage:
            self.find(reader.damage, "what follows is not part of the result")

    def find(self, problem: str, effect: str, subject: str = "", line: int = 0) -> None:
        """Add a finding about the current line."""
        self.findings.append(Finding(f"{self.name}, line {line or self._line}", problem, effect, subject))

    def fail(self, problem: str) -> NoReturn:
        """Raise UserError about the current line."""
        raise UserError(
            f"{self.name}, line {self._line or 1}: {problem}",
            hint="the recording was changed after it was written; take the original",
        )

    @property
    def line(self) -> int:
        """Number of the current line."""
        return self._line


class _Replay:
    """The state while one recording is read."""

    def __init__(self, recording: RecordingFile) -> None:
        self._recording = recording
        self._objects: dict[str, dict[str, JSON]] = {}
        self._sizes: dict[tuple[str, str], int] = {}
        self._listing: dict[str, set[str]] = {}  # keys of lists that are not complete
        self._complete: set[str] = set()  # resources of which a list was complete
        self._unknown: set[str] = set()
        self._gaps: dict[str, tuple[JSON, int]] = {}  # marks, and their lines, until the list that follows is complete
        self._crc, self._crc_line = 0, 1
        self._unverified: dict[tuple[str, str], int] = {}  # lines of objects since the last checksum
        self._seconds = self._seconds_before = 0.0  # of this line, and of the one before
        self._has_ended = False

    def run(self) -> Iterator[RecordedChange]:
        recording = self._recording
        lines = recording.lines()
        self._crc = zlib.crc32(next(lines, b""))
        for text in lines:
            try:
                line = _decode_line(text)
            except msgspec.DecodeError as error:
                recording.fail(f"not a line of a recording: {error}")
            seconds = line.get("t")
            if not isinstance(seconds, int | float):
                recording.fail("the line has no time t")
            if seconds < self._seconds - 60.0:
                recording.find(f"the time goes back from {self._seconds} s to {seconds} s", "the later time is used")
            self._seconds_before, self._seconds = self._seconds, max(self._seconds, float(seconds))
            if line.get("mark") == "sync":
                self._check(line)
                continue
            self._crc = zlib.crc32(text, self._crc)
            try:
                yield from self._changes_of(line, len(text))
            except (KeyError, TypeError, AttributeError) as error:
                recording.fail(f"incomplete line: {error!r}")
        self._check_objects()
        for resource in list(self._gaps):
            self._find_gap(resource)
        for size in self._sizes.values():  # the file may be read again
            recording.limit.release(size)
        recording.seconds = self._seconds
        if not self._has_ended:
            recording.find(
                f"the recording ends at {self._seconds} s without its end mark: it was cut off, or is still written",
                "the result is that of the time until then",
            )

    def _check(self, line: JSON) -> None:
        """Compare the checksum of the lines since the last one. Raises UserError for invalid objects of other lines."""
        if line.get("crc") != self._crc:
            self._check_objects()
            self._recording.find(
                f"lines {self._crc_line} to {self._recording.line - 1} are not those that were recorded",
                "the result is that of the changed lines",
            )
        self._unverified.clear()
        self._crc, self._crc_line = 0, self._recording.line + 1

    def _check_objects(self) -> None:
        for (name, key), line in self._unverified.items():
            resource, obj = recorded_resource(name), self._objects[name].get(key)
            if resource is not None and obj is not None:
                check_object(resource, obj, f"{self._recording.name}, line {line}")

    def _changes_of(self, line: JSON, size: int) -> Iterator[RecordedChange]:
        if (mark := line.get("mark")) is not None:
            yield from self._mark(mark, line)
            return
        resource = line.get("put") or line.get("set") or line.get("del") or line.get("same")
        if not isinstance(resource, str):
            self._recording.fail("neither an object nor a mark")
        if recorded_resource(resource) is None:
            if resource not in self._unknown:
                self._unknown.add(resource)
                self._recording.find(
                    f"unknown resource {resource}", "its objects are not part of the result", line.get("key", "")
                )
            return
        objects = self._objects.setdefault(resource, {})
        if "put" in line:
            obj = line["object"]
            key = key_of(obj)
            for field, value in (("kind", obj.get("kind")), ("metadata.uid", obj["metadata"].get("uid"))):
                if not value:
                    self._recording.fail(f"the object {resource} {key} has no {field}")
            before = objects.get(key)
            self._count(resource, key, size)
        else:
            key = line["key"]
            before = objects.get(key)
            if before is None:
                self._recording.find(
                    "the change is of an object that the recording does not have", "it is left out", f"{resource} {key}"
                )
                return
            if "del" in line:
                del objects[key]
                self._count(resource, key, 0)
                yield self._change("DELETED", resource, key, before)
                return
            obj = before if "same" in line else _with_fields(before, line["fields"])
        objects[key] = obj
        self._unverified[resource, key] = self._recording.line
        listing = self._listing.get(resource)
        if listing is not None:
            listing.add(key)
        if before is not None and before["metadata"].get("uid") != obj["metadata"].get("uid"):
            yield self._change("DELETED", resource, key, before)
            before = None
        if before is None:
            yield self._change("ADDED", resource, key, obj, initial=resource not in self._complete)
        elif obj != before:
            yield self._change("MODIFIED", resource, key, obj, before)

    def _count(self, resource: str, key: str, size: int) -> None:
        """Count the size of an object, 0 if it is deleted."""
        before = self._sizes.pop((resource, key), 0)
        if size:
            self._sizes[resource, key] = size
        self._recording.limit.release(before)
        self._recording.limit.add(size)

    def _mark(self, mark: str, line: JSON) -> Iterator[RecordedChange]:
        recording = self._recording
        match mark:
            case "list":
                self._listing[line["resource"]] = set()
            case "listed":
                resource = line["resource"]
                listed, objects = self._listing.pop(resource, set()), self._objects.get(resource, {})
                for key in [key for key in objects if key not in listed]:
                    yield self._change("DELETED", resource, key, objects.pop(key))
                self._complete.add(resource)
                self._find_gap(resource, line.get("version", ""))
                yield self._change("LISTED", resource)
            case "gap":
                resource = line["resource"]
                first, number = self._gaps.get(resource, (line, recording.line))  # a list may fail
                self._gaps[resource] = {**line, "since": first["since"]}, number
                yield self._change("GAP", resource)
            case "restart":
                interval = f"between {self._seconds_before} s and {self._seconds} s"
                recording.find(f"changes {interval} may be missing (the recorder was restarted)", _EFFECT_OF_GAP)
                self._has_ended = False
                yield self._change("RESTART")
            case "omitted":
                resource, reason = line["resource"], line.get("reason", "")
                recording.omitted[resource] = reason
                recording.find(f"not recorded: {reason}", _effect_of_omission(resource), resource)
            case "end":
                self._has_ended = True
            case _:
                recording.find(f"unknown mark {mark!r}", "it is left out")

    def _find_gap(self, resource: str, version: str = "") -> None:
        """Report the changes that a watch missed. version: of the list that followed, "" if it is not complete."""
        if resource not in self._gaps:
            return
        gap, line = self._gaps.pop(resource)
        versions = f", resourceVersion {gap['version']} to {version or 'unknown'}" if gap.get("version") else ""
        problem = f"changes between {gap['since']} s and {gap['t']} s may be missing (the watch expired{versions})"
        self._recording.find(problem, _EFFECT_OF_GAP, resource, line)

    def _change(
        self,
        type_: Any,
        resource: str = "",
        key: str = "",
        obj: JSON | None = None,
        before: JSON | None = None,
        *,
        initial: bool = False,
    ) -> RecordedChange:
        return RecordedChange(self._seconds, type_, resource, key, obj, before, initial)


def _with_fields(obj: JSON, fields: JSON) -> JSON:
    """Return the object with these top-level fields; null removes one."""
    return {name: value for name, value in {**obj, **fields}.items() if value is not None}


def _effect_of_omission(resource: str) -> str:
    return f"the result is that of a cluster without {resource}"
