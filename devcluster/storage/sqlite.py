"""What makes a Store durable: every version of every object in one SQLite file, written before anybody sees it.

    DIR/lock        held (flock) while a server uses the folder
    DIR/store.db    versions: one row per write, by revision; marks: up to where each table's history is compacted

A write is one INSERT and one transaction, in the write-ahead log: when `append` returns, the row is in the operating
system's hands and outlives any death of the process. It is not synced to the disk for each write: power loss may take
the last moments, never the file's consistency. The log is moved into the file (`checkpoint`) beside the event loop.
Rows are superseded by later ones of the same key and removed (`forget`) once no watch can ask for them. May import the
standard library, msgspec and errors only.
"""

from __future__ import annotations

import fcntl
import os
import sqlite3
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from kubeloop.devcluster.api import errors
from kubeloop.devcluster.storage.private_files import FILE_MODE, FOLDER_MODE
from kubeloop.kube.errors import UserError

ChangeType = Literal["ADDED", "MODIFIED", "DELETED"]

_APPLICATION_ID = 0x6B6C6F70  # "klop", so that `file store.db` and we know whose it is
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
    """One version as it was written; `object` is its JSON, of a DELETED its last state."""

    revision: int
    resource: str
    key: str
    type: ChangeType
    object: bytes


class Journal:
    """The durable side of one store. Use it from one thread; only checkpoint() may run in another."""

    def __init__(self, folder: Path) -> None:
        """Open or make `folder`. Raises UserError if another server has it, or it cannot be read or is not ours."""
        self.folder = folder
        self._path = folder / "store.db"
        try:
            folder.mkdir(mode=FOLDER_MODE, parents=True, exist_ok=True)
            self._lock = _locked(folder)
        except OSError as error:
            raise UserError(
                f"cannot use the data directory {folder}: {error.strerror}", hint="name a folder you may write to"
            ) from None
        try:
            with self._told_to_user():
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
        """All versions kept, in the order of their writes. Raises UserError if the file is damaged."""
        with self._told_to_user():
            for revision, resource, key, type_, obj in self._db.execute("SELECT * FROM versions ORDER BY revision"):
                yield Row(revision, resource, key, _TYPES[type_], obj)

    def marks(self) -> dict[str, int]:
        """As they were given to forget() last. Raises UserError if the file is damaged."""
        with self._told_to_user():
            return dict(self._db.execute("SELECT name, revision FROM marks"))

    def damaged(self, why: str) -> UserError:
        """The error for a file that SQLite can read and that makes no sense."""
        return UserError(
            f"the data in {self._path} is damaged: {why}",
            hint="restore the folder from a copy, or start with another --data-dir",
        )

    # --- writing ------------------------------------------------------------------------------------------------------

    def append(self, revision: int, resource: str, key: str, type_: ChangeType, obj: bytes) -> None:
        """Make a version durable. Raises NotDurable if it is not: the disk is full, or fails."""
        try:
            self._db.execute(_INSERT, (revision, resource, key, _NUMBERS[type_], obj))
        except sqlite3.Error as error:
            raise errors.NotDurable(str(error)) from error
        self._written_since_checkpoint = True

    def append_all(self, rows: Iterable[Row]) -> None:
        """As append, all of them or, with NotDurable, none."""
        numbered = [(row.revision, row.resource, row.key, _NUMBERS[row.type], row.object) for row in rows]
        self._written(lambda: self._db.executemany(_INSERT, numbered))

    def mark(self, name: str, revision: int) -> None:
        """Note a revision, or another number, under a name of its own among marks(). Raises NotDurable."""
        self._written(lambda: self._db.execute(_MARK, (name, revision)))

    def _written(self, write: Callable[[], object]) -> None:
        try:
            self._db.execute("BEGIN")
            write()
            self._db.execute("COMMIT")
        except sqlite3.Error as error:
            if self._db.in_transaction:
                self._db.execute("ROLLBACK")
            raise errors.NotDurable(str(error)) from error
        self._written_since_checkpoint = True

    def forget(self, revisions: Sequence[int], marks: Mapping[str, int]) -> None:
        """Remove superseded versions and note, in the same transaction, up to where history is gone.

        Raises sqlite3.Error; then nothing has happened.
        """
        self._db.execute("BEGIN")
        try:
            self._db.executemany(_MARK, marks.items())
            self._db.executemany("DELETE FROM versions WHERE revision = ?", ((each,) for each in revisions))
            self._db.execute("COMMIT")
        except sqlite3.Error:
            if self._db.in_transaction:
                self._db.execute("ROLLBACK")
            raise
        self._written_since_checkpoint = True

    def needs_checkpoint(self) -> bool:
        """Has anything been written since this was last asked?"""
        written, self._written_since_checkpoint = self._written_since_checkpoint, False
        return written

    def checkpoint(self) -> None:
        """Move the log into the file and sync both; for another thread, writes go on meanwhile.

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
        ours, version = _pragma(db, "application_id"), _pragma(db, "user_version")
        if db.execute("SELECT count(*) FROM sqlite_master").fetchone()[0] == 0:
            db.execute("PRAGMA journal_mode = WAL")
            db.executescript(_SCHEMA)
        elif ours != _APPLICATION_ID:
            raise UserError(f"{self._path} is not a store of kubeloop", hint="name another folder with --data-dir")
        elif version != _FORMAT:
            raise UserError(
                f"{self._path} has format {version}, this kubeloop reads format {_FORMAT}",
                hint="use the kubeloop that wrote it, or start with another --data-dir",
            )
        # the log is synced at checkpoints only; those are ours, beside the loop, and not some unlucky write's
        db.execute("PRAGMA synchronous = NORMAL")
        db.execute("PRAGMA wal_autocheckpoint = 0")

    @contextmanager
    def _told_to_user(self) -> Iterator[None]:
        try:
            yield
        except sqlite3.DatabaseError as error:
            raise self.damaged(str(error)) from None
        except OSError as error:
            raise UserError(
                f"cannot open {self._path}: {error.strerror}", hint="name a folder you may write to"
            ) from None


def _pragma(db: sqlite3.Connection, name: str) -> int:
    return int(db.execute(f"PRAGMA {name}").fetchone()[0])


def _locked(folder: Path) -> int:
    """A file descriptor that keeps others out of `folder`. Raises UserError if somebody is in, OSError."""
    lock = os.open(folder / "lock", os.O_CREAT | os.O_RDWR | os.O_CLOEXEC, FILE_MODE)
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        os.close(lock)
        raise UserError(
            f"another server uses the data directory {folder}", hint="stop it, or name another --data-dir"
        ) from None
    return lock
