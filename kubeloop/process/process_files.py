"""Which kubeloop processes run on this machine: how `kubeloop trace` finds the one to ask.

Each process keeps one JSON file while it runs, in a folder that only its user can read. A file whose process is gone
counts for nothing and is removed by whoever meets it.
"""

from __future__ import annotations

import contextlib
import logging
import os
from collections.abc import Iterator
from pathlib import Path

import msgspec

from kubeloop.kube.errors import UserError

log = logging.getLogger(__name__)


class ProcessRecord(msgspec.Struct, frozen=True):
    """One kubeloop process. started_ns: nanoseconds since the epoch; kubeconfig: path, "" if it wrote none."""

    pid: int
    endpoint: str
    server: str
    kubeconfig: str
    started_ns: int


def runtime_directory() -> Path:
    """The folder for files that live as long as a process, mode 0700, created if need be.

    Raises UserError if somebody else owns it, or it cannot be made.
    """
    base = os.environ.get("XDG_RUNTIME_DIR") or os.environ.get("TMPDIR") or "/tmp"
    path = Path(base) / (f"kubeloop-{os.getuid()}")
    try:
        path.mkdir(mode=0o700, parents=True, exist_ok=True)
        owner = path.stat()
    except OSError as error:
        raise UserError(
            f"cannot use the folder {path}: {error.strerror}", hint="set XDG_RUNTIME_DIR to a folder of yours"
        ) from None
    if owner.st_uid != os.getuid() or owner.st_mode & 0o077:
        raise UserError(f"{path} is not private to you", hint="remove it, or set XDG_RUNTIME_DIR; mode must be 0700")
    return path


@contextlib.contextmanager
def process_file(process: ProcessRecord) -> Iterator[None]:
    """Make this process findable for the length of the context. If it cannot be, that is logged: it works all the same,
    and other commands can be given its --endpoint."""
    path = None
    try:
        path = runtime_directory() / f"{process.pid}.json"
        partial = path.with_suffix(".partial")
        partial.write_bytes(msgspec.json.encode(process))
        partial.rename(path)
    except (UserError, OSError) as error:
        log.warning(
            "kubeloop trace and explain do not find this process by themselves; give them --endpoint",
            extra={"endpoint": process.endpoint, "error": str(error)},
        )
    try:
        yield
    finally:
        if path is not None:
            with contextlib.suppress(OSError):
                path.unlink()


def list_processes() -> list[ProcessRecord]:
    """The live ones, newest first."""
    found = []
    for path in runtime_directory().glob("kubeconfig-*.yaml"):
        pid = path.stem.removeprefix("kubeconfig-")
        if pid.isdecimal() and not process_exists(int(pid)):
            path.unlink(missing_ok=True)
    for path in runtime_directory().glob("*.json"):
        try:
            process = msgspec.json.decode(path.read_bytes(), type=ProcessRecord)
        except (FileNotFoundError, msgspec.DecodeError):
            continue
        if process_exists(process.pid):
            found.append(process)
        else:
            path.unlink(missing_ok=True)
    return sorted(found, key=lambda process: process.started_ns, reverse=True)


def default_process() -> ProcessRecord:
    """The one that serves $KUBECONFIG, else the newest. Raises UserError if none runs."""
    processes = list_processes()
    if not processes:
        raise UserError("no kubeloop process runs on this machine", hint="start one: kubeloop up, or kubeloop run")
    wanted = os.environ.get("KUBECONFIG", "")
    return next((each for each in processes if wanted and each.kubeconfig == wanted), processes[0])


def process_exists(pid: int) -> bool:
    """Is there a process with this id, whoever's it is?"""
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        return True
    return True
