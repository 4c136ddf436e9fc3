"""Writer of a recording: objects to lines. docs/recording.md describes the lines.

Holds no objects, only a hash of each field of each object: a state that repeats the last one takes no line, and a state
that differs takes the fields that changed.
"""

from __future__ import annotations

import hashlib
import zlib
from collections.abc import Callable
from pathlib import Path
from typing import Any, BinaryIO, Final, Self

import msgspec

from kubeloop import __version__
from kubeloop.kube.clock import Clock, rfc3339_micro
from kubeloop.kube.json_object import JSON
from kubeloop.kube.user_error import UserError
from kubeloop.recording.changes import key_of
from kubeloop.recording.gzip_lines import DamagedStream, GzipLineWriter, repair
from kubeloop.recording.projection import project

FORMAT: Final = "kubeloop-recording"
VERSION: Final = 1
ALIVE_SECONDS: Final = 60.0  # without changes, the time is written this often

_encode = msgspec.json.Encoder().encode


class Header(msgspec.Struct, kw_only=True, omit_defaults=True):
    """First line of a recording. start: of its times, RFC 3339 with microseconds. key_id: identifies the key of an
    anonymised recording, "" for one with the real names."""

    format: str = ""
    version: int = 0
    start: str = ""
    server: str = ""
    kubernetes: str = ""
    kubeloop: str = ""
    namespace: str = ""
    key_id: str = ""


class RecordingWriter:
    """Writes one recording. Call flush() at least once per second, and close() at the end."""

    def __init__(
        self, file: BinaryIO, header: Header, *, clock: Clock, start_ns: int, anonymize: Callable[[str, JSON], JSON]
    ) -> None:
        """start_ns: the time of `header.start`. anonymize: see `Anonymizer.object`."""
        self._lines = GzipLineWriter(file)
        self._file = file
        self._clock = clock
        self._start_ns = start_ns
        self._anonymize = anonymize
        self._crc = 0
        self._is_flushed = True
        self._flushed_seconds = 0.0
        self._hashes: dict[str, dict[str, tuple[str, dict[str, bytes]]]] = {}  # by resource and key: uid, fields
        self._listed: dict[str, set[str]] = {}  # keys of the lists that are not complete
        self.header = header

    @classmethod
    def create(
        cls, path: Path, header: Header, *, clock: Clock, anonymize: Callable[[str, JSON], JSON] = lambda kind, obj: obj
    ) -> Self:
        """Begin a recording in a new file. Raises UserError if it exists or cannot be written."""
        try:
            file = path.open("xb")
        except FileExistsError:
            raise UserError(f"{path} exists", hint="choose another file, or continue it with --append") from None
        except OSError as error:
            raise UserError(f"cannot write {path}: {error.strerror}", hint="choose another file") from None
        now = clock.now()
        header = msgspec.structs.replace(
            header, format=FORMAT, version=VERSION, start=rfc3339_micro(now), kubeloop=__version__
        )
        writer = cls(file, header, clock=clock, start_ns=clock.time_ns(), anonymize=anonymize)
        writer._write(_encode(header))
        return writer

    @classmethod
    def append(
        cls,
        path: Path,
        header: Header,
        start_ns: int,
        *,
        clock: Clock,
        anonymize: Callable[[str, JSON], JSON] = lambda kind, obj: obj,
    ) -> Self:
        """Continue a recording with this header after a restart, also one that was cut off. Raises UserError."""
        try:
            repair(path)
            file = path.open("ab")
        except (OSError, DamagedStream) as error:
            raise UserError(f"cannot continue {path}: {error}", hint="record to another file") from None
        writer = cls(file, header, clock=clock, start_ns=start_ns, anonymize=anonymize)
        writer._write_mark("restart")
        return writer

    # --- objects ---------------------------------------------------------------------------------------------------

    def start_list(self, resource: str) -> None:
        """All objects of a resource follow, by put()."""
        self._listed[resource] = set()
        self._write_mark("list", resource=resource)

    def end_list(self, resource: str, version: str = "") -> None:
        """The list of this resourceVersion is complete: objects that it did not have are deleted."""
        known = self._hashes.setdefault(resource, {})
        listed = self._listed.pop(resource, set())
        for key in [key for key in known if key not in listed]:
            del known[key]
        self._write_mark("listed", resource=resource, version=version)

    def put(self, resource: str, obj: JSON) -> None:
        """Write the state of an object, which has apiVersion and kind."""
        kind = obj["kind"]
        obj = self._anonymize(kind, project(kind, obj))
        key, uid = key_of(obj), obj["metadata"].get("uid", "")
        encoded = {name: _encode(value) for name, value in obj.items()}
        hashes = {name: hashlib.blake2b(value, digest_size=8).digest() for name, value in encoded.items()}
        known = self._hashes.setdefault(resource, {})
        before = known.get(key)
        known[key] = (uid, hashes)
        listed = self._listed.get(resource)
        if listed is not None:
            listed.add(key)
        if before is None or before[0] != uid:
            body = {name: msgspec.Raw(value) for name, value in encoded.items()}
            self._write_timed({"put": resource, "object": body})
            return
        fields: dict[str, Any] = {
            name: msgspec.Raw(value) for name, value in encoded.items() if before[1].get(name) != hashes[name]
        }
        fields |= dict.fromkeys(before[1].keys() - hashes.keys())
        if fields:
            self._write_timed({"set": resource, "key": key, "fields": fields})
        elif listed is not None:
            self._write_timed({"same": resource, "key": key})

    def delete(self, resource: str, obj: JSON) -> None:
        """Write the deletion of an object."""
        metadata = {name: value for name, value in obj["metadata"].items() if name in ("name", "namespace")}
        key = key_of(self._anonymize(obj["kind"], {"kind": obj["kind"], "metadata": metadata}))
        listed = self._listed.get(resource)
        if listed is not None:
            listed.discard(key)
        if self._hashes.get(resource, {}).pop(key, None) is not None:
            self._write_timed({"del": resource, "key": key})

    def remove_listed(self, resource: str, uid: str) -> None:
        """An object of the list that is not complete was deleted."""
        known = self._hashes.get(resource, {})
        for key in [key for key in self._listed.get(resource, ()) if key in known and known[key][0] == uid]:
            del known[key]
            self._listed[resource].discard(key)
            self._write_timed({"del": resource, "key": key})

    # --- marks -----------------------------------------------------------------------------------------------------

    def gap(self, resource: str, since_ns: int, version: str = "") -> None:
        """Changes of a resource since then, after this resourceVersion, may have been missed; a list follows."""
        self._write_mark("gap", resource=resource, since=self._seconds(since_ns), version=version)

    def omit(self, resource: str, reason: str) -> None:
        """A resource is not recorded."""
        self._write_mark("omitted", resource=resource, reason=reason)

    def flush(self) -> None:
        """Make all that was written readable, whatever happens to the process."""
        seconds = self._seconds(self._clock.time_ns())
        if self._is_flushed and seconds - self._flushed_seconds < ALIVE_SECONDS:
            return
        self._write(_encode({"t": seconds, "mark": "sync", "crc": self._crc}))
        try:
            self._lines.flush()
        except OSError as error:
            raise UserError(
                f"cannot write {self._file.name}: {error.strerror}", hint="what was recorded before is complete"
            ) from None
        self._crc, self._is_flushed, self._flushed_seconds = 0, True, seconds

    def close(self) -> None:
        """End the recording."""
        self._write_mark("end")
        self.flush()
        self._lines.close()
        self._file.close()

    def _write_mark(self, mark: str, **details: Any) -> None:
        self._write_timed({"mark": mark, **details})

    def _write_timed(self, line: dict[str, Any]) -> None:
        self._write(_encode({"t": self._seconds(self._clock.time_ns()), **line}))

    def _write(self, line: bytes) -> None:
        self._crc = zlib.crc32(line, self._crc)
        self._lines.write(line)
        self._is_flushed = False

    def _seconds(self, time_ns: int) -> float:
        """Return a time as seconds since the start, to the millisecond."""
        return max(0, (time_ns - self._start_ns + 500_000) // 1_000_000) / 1_000
