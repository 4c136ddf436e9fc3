"""Data directory (`--data-dir`): one SQLite file with every version of every object.

    DIR/lock        locked (flock) while a server uses the folder
    DIR/store.db    versions: one row per write, by revision; marks: the revision up to which each table is compacted

A write is one INSERT in one transaction of the write-ahead log, before it becomes visible. When `append` returns, the
row is with the operating system and survives the death of the process. It is not synced to disk for each write: a power
loss may lose the last writes, but not the file's consistency. `checkpoint` moves the log into the file in another
thread. Superseded rows are deleted (`delete_versions`) once no watch can request them. May import
`devcluster.api.errors`, `private_files` and `kube.errors`.
"""

from __future__ import annotations

import fcntl
import os
import sqlite3
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from kubeloop.devcluster.api import errors
from kubeloop.devcluster.storage.private_files import FILE_MODE, FOLDER_MODE, check_owner
from kubeloop.kube.user_error import UserError

ChangeType = Literal["ADDED", "MODIFIED", "DELETED"]

_APPLICATION_ID = 0x6B6C6F70  # "klop", shown by `file store.db`
_FORMAT = 1
_TYPES: tuple[ChangeType, ...] = ("ADDED", "MODIFIED", "DELETED")
_NUMBERS = {name: number for number, name in enumerate(_TYPES)}
_BUSY_SECONDS = 5.0

_SCHEMA = f"""
    BEGIN;
    CREATE TABLE versions (
        revision INTEGER PRIMARY KEY, resource TEXT NOT NULL, key TEXT NOT NULL, type INTEGER NOT NULL,
        object BLOB NOT NULL
    );
    CREATE TABLE marks (name TEXT PRIMARY KEY, revision INTEGER NOT NULL) WITHOUT ROWID;
    PRAGMA application_id = {_APPLICATION_ID};
    PRAGMA user_version = {_FORMAT};
    COMMIT;
"""
_INSERT = "INSERT INTO versions VALUES (?, ?, ?, ?, ?)"
_MARK = "INSERT OR REPLACE INTO marks VALUES (?, ?)"


@dataclass(frozen=True, slots=True)
class Row:
    """One version as written; `object` is its JSON, for DELETED the last state."""

    revision: int
    resource: str
    key: str
    type: ChangeType
    object: bytes


class DataDirectory:
    """The durable data of one store. Single-threaded, except checkpoint()."""

    def __init__(self, folder: Path) -> None:
        """Open or create `folder`. Raises UserError if another server uses it, or it is unreadable or not a store."""
        self.folder = folder
        self._path = folder / "store.db"
        try:
            folder.mkdir(mode=FOLDER_MODE, parents=True, exist_ok=True)
            check_owner(folder)
            self._lock = _lock_folder(folder)
        except OSError as error:
            raise UserError(
                f"cannot use the data directory {folder}: {error.strerror}",
                hint="--data-dir takes a folder you may write to",
            ) from None
        try:
            with self._user_errors():
                os.close(os.open(self._path, os.O_CREAT | os.O_RDWR, FILE_MODE))
                self._db = sqlite3.connect(self._path, isolation_level=None, timeout=_BUSY_SECONDS)
                self._prepare()
        except BaseException:
            os.close(self._lock)
            raise
        self._written_since_checkpoint = True

    def close(self) -> None:
        self._db.close()
        os.close(self._lock)

    # --- reading, once at the start -----------------------------------------------------------------------------------

    def rows(self) -> Iterator[Row]:
        """Yield all versions in the order of their writes. Raises UserError if the file is damaged."""
        with self._user_errors():
            for revision, resource, key, type_, obj in self._db.execute("SELECT * FROM versions ORDER BY revision"):
                yield Row(revision, resource, key, _TYPES[type_], obj)

    def marks(self) -> dict[str, int]:
        """Return all marks by name. Raises UserError if the file is damaged."""
        with self._user_errors():
            return dict(self._db.execute("SELECT name, revision FROM marks"))

    def damaged_error(self, reason: str) -> UserError:
        """Return the error for a file that SQLite can read but whose content is inconsistent."""
        return UserError(
            f"the data in {self._path} is damaged: {reason}",
            hint="restore the folder from a copy, or start with another --data-dir",
        )

    # --- writing ------------------------------------------------------------------------------------------------------

    def append(self, revision: int, resource: str, key: str, type_: ChangeType, obj: bytes) -> None:
        """Make a version durable. Raises NotDurable if the disk is full or fails."""
        try:
            self._db.execute(_INSERT, (revision, resource, key, _NUMBERS[type_], obj))
        except sqlite3.Error as error:
            raise errors.NotDurable(str(error)) from error
        self._written_since_checkpoint = True

    def append_all(self, rows: Iterable[Row]) -> None:
        """Make all versions durable, or none. Raises NotDurable."""
        numbered = [(row.revision, row.resource, row.key, _NUMBERS[row.type], row.object) for row in rows]
        try:
            with self._transaction():
                self._db.executemany(_INSERT, numbered)
        except sqlite3.Error as error:
            raise errors.NotDurable(str(error)) from error

    def mark(self, name: str, revision: int) -> None:
        """Store a revision or another number under a name. Raises NotDurable."""
        try:
            self._db.execute(_MARK, (name, revision))
        except sqlite3.Error as error:
            raise errors.NotDurable(str(error)) from error
        self._written_since_checkpoint = True

    def delete_versions(self, revisions: Sequence[int], marks: Mapping[str, int]) -> None:
        """Delete superseded versions and store the compaction marks in one transaction.

        Raises sqlite3.Error; nothing is changed then.
        """
        with self._transaction():
            self._db.executemany(_MARK, marks.items())
            self._db.executemany("DELETE FROM versions WHERE revision = ?", ((revision,) for revision in revisions))

    @contextmanager
    def _transaction(self) -> Iterator[None]:
        self._db.execute("BEGIN")
        try:
            yield
            self._db.execute("COMMIT")
        except sqlite3.Error:
            if self._db.in_transaction:
                self._db.execute("ROLLBACK")
            raise
        self._written_since_checkpoint = True

    def needs_checkpoint(self) -> bool:
        """Return True if anything was written since the last call."""
        written, self._written_since_checkpoint = self._written_since_checkpoint, False
        return written

    def checkpoint(self) -> None:
        """Move the log into the file and sync both. Runs in another thread; writes continue meanwhile.

        Raises sqlite3.Error.
        """
        db = sqlite3.connect(self._path, isolation_level=None, timeout=_BUSY_SECONDS)
        try:
            db.execute("PRAGMA synchronous = NORMAL")
            db.execute("PRAGMA wal_checkpoint(PASSIVE)").fetchall()
        finally:
            db.close()

    # --- opening ------------------------------------------------------------------------------------------------------

    def _prepare(self) -> None:
        db = self._db
        application_id, version = _pragma(db, "application_id"), _pragma(db, "user_version")
        if db.execute("SELECT count(*) FROM sqlite_master").fetchone()[0] == 0:
            db.execute("PRAGMA journal_mode = WAL")
            db.executescript(_SCHEMA)
        elif application_id != _APPLICATION_ID:
            raise UserError(f"{self._path} is not a store of kubeloop", hint="name another folder with --data-dir")
        elif version != _FORMAT:
            raise UserError(
                f"{self._path} has format {version}, this kubeloop reads format {_FORMAT}",
                hint="use the kubeloop that wrote it, or start with another --data-dir",
            )
        # the log is only synced by checkpoint(), in another thread, and never by an automatic checkpoint of a write
        db.execute("PRAGMA synchronous = NORMAL")
        db.execute("PRAGMA wal_autocheckpoint = 0")

    @contextmanager
    def _user_errors(self) -> Iterator[None]:
        try:
            yield
        except sqlite3.DatabaseError as error:
            raise self.damaged_error(str(error)) from None
        except OSError as error:
            raise UserError(
                f"cannot open {self._path}: {error.strerror}", hint="--data-dir takes a folder you may write to"
            ) from None


def _pragma(db: sqlite3.Connection, name: str) -> int:
    return int(db.execute(f"PRAGMA {name}").fetchone()[0])


def _lock_folder(folder: Path) -> int:
    """Lock `folder` and return the file descriptor. Raises UserError if it is locked, or OSError."""
    lock = os.open(folder / "lock", os.O_CREAT | os.O_RDWR | os.O_CLOEXEC, FILE_MODE)
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        os.close(lock)
        raise UserError(
            f"another server uses the data directory {folder}", hint="stop it, or name another --data-dir"
        ) from None
    return lock
