"""The file of --audit-log-path, with rotation by size as kube-apiserver's (natefinch/lumberjack)."""

from __future__ import annotations

import gzip
import os
import shutil
import sys
from datetime import datetime
from pathlib import Path
from typing import IO, TYPE_CHECKING, Protocol

import msgspec

from kubeloop.kube.clock import Clock
from kubeloop.kube.user_error import UserError
from kubeloop.kube.values.times import time_plus

if TYPE_CHECKING:
    from kubeloop.devcluster.audit.policy import AuditPolicy


class Rotation(msgspec.Struct, frozen=True):
    """When the file is replaced, and which old files remain; 0: no limit.

    max_megabytes: size before a rotation. max_backups, max_days: number and age of old files. compress: with gzip.
    """

    max_megabytes: int = 100
    max_backups: int = 100
    max_days: int = 366
    compress: bool = False


class AuditOutput(Protocol):
    """Where events are written to."""

    def write(self, line: bytes) -> None:
        """Append a line. Raises OSError."""
        ...

    def close(self) -> None: ...


class AuditLog(msgspec.Struct, frozen=True):
    """An audit log. path: its file, "-" for stdout."""

    policy: AuditPolicy
    path: str
    rotation: Rotation = Rotation()

    def open(self, clock: Clock) -> AuditOutput:
        """Return the output of the log. Raises UserError if it cannot be written."""
        return open_log(self.path, self.rotation, clock)


def open_log(path: str, rotation: Rotation, clock: Clock) -> AuditOutput:
    """Return the file, or stdout for the path "-". Raises UserError if it cannot be written."""
    if path == "-":
        return _StandardOutput()
    try:
        return RotatedFile(Path(path), rotation, clock)
    except OSError as error:
        raise UserError(
            f"cannot write the audit log {path}: {error.strerror}",
            hint="choose another --audit-log-path, or - for stdout",
        ) from None


class _StandardOutput:
    def write(self, line: bytes) -> None:
        sys.stdout.buffer.write(line)
        sys.stdout.buffer.flush()

    def close(self) -> None:
        """Leave stdout open."""


class RotatedFile:
    """A file that is renamed to NAME-TIME.EXTENSION when it is full."""

    def __init__(self, path: Path, rotation: Rotation, clock: Clock) -> None:
        self._path = path
        self._rotation = rotation
        self._clock = clock
        self._file = self._open()

    def write(self, line: bytes) -> None:
        """Append a line, after a rotation if it does not fit. Raises OSError."""
        limit = self._rotation.max_megabytes << 20
        if limit and self._file.tell() and self._file.tell() + len(line) > limit:
            self._rotate()
        self._file.write(line)

    def close(self) -> None:
        self._file.close()

    def _open(self) -> IO[bytes]:
        self._path.parent.mkdir(parents=True, exist_ok=True)
        descriptor = os.open(self._path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
        file = os.fdopen(descriptor, "ab", buffering=0)  # an event is in the file before its response is sent
        file.seek(0, os.SEEK_END)
        return file

    def _rotate(self) -> None:
        self._file.close()
        now = self._clock.now()
        old = self._path.with_name(f"{self._path.stem}-{_timestamp(now)}{self._path.suffix}")
        self._path.rename(old)
        self._file = self._open()
        if self._rotation.compress:
            with old.open("rb") as source, gzip.open(f"{old}.gz", "wb") as target:
                shutil.copyfileobj(source, target)
            old.unlink()
        for path in self._expired(now):
            path.unlink(missing_ok=True)

    def _expired(self, now: datetime) -> list[Path]:
        """Return the old files that are too many or too old."""
        old = sorted(
            self._path.parent.glob(f"{self._path.stem}-????-??-??T??-??-??.???{self._path.suffix}*"), reverse=True
        )
        rotation = self._rotation
        expired = old[rotation.max_backups :] if rotation.max_backups else []
        if rotation.max_days:
            oldest = f"{self._path.stem}-{_timestamp(time_plus(now, -86_400 * rotation.max_days))}"
            expired += [path for path in old if path.name < oldest and path not in expired]
        return expired


def _timestamp(moment: datetime) -> str:
    return moment.strftime("%Y-%m-%dT%H-%M-%S.%f")[:-3]
