"""Files that list the kubeloop processes of this machine, so that `kubeloop trace` can find their endpoints.

Each process writes one JSON file while it runs, into a folder that only its user can read. Files of processes that have
ended are ignored and removed.
"""

from __future__ import annotations

import contextlib
import logging
import os
from collections.abc import Iterator
from pathlib import Path

import msgspec

from kubeloop.kube.auth.credentials import paths_in_environment
from kubeloop.kube.user_error import UserError

log = logging.getLogger(__name__)


class ProcessRecord(msgspec.Struct, frozen=True):
    """One kubeloop process. started_ns: nanoseconds since the epoch.

    kubeconfig, context: those that reach its API server, absolute paths of files that are merged; empty for the
    defaults. schedules: it runs the scheduler.
    """

    pid: int
    endpoint: str
    server: str
    kubeconfig: tuple[str, ...]
    started_ns: int
    context: str = ""
    schedules: bool = True


def runtime_directory() -> Path:
    """Return the folder for files with the lifetime of a process, mode 0700; create it if it does not exist.

    Raises UserError if another user owns it, or it cannot be created.
    """
    base = os.environ.get("XDG_RUNTIME_DIR") or os.environ.get("TMPDIR") or "/tmp"
    path = Path(base) / (f"kubeloop-{os.getuid()}")
    try:
        path.mkdir(mode=0o700, parents=True, exist_ok=True)
        status = path.stat()
    except OSError as error:
        raise UserError(
            f"cannot use the folder {path}: {error.strerror}", hint="set XDG_RUNTIME_DIR to a folder that you own"
        ) from None
    if status.st_uid != os.getuid() or status.st_mode & 0o077:
        raise UserError(
            f"the folder {path} is not private", hint="remove it, or set XDG_RUNTIME_DIR to a folder of mode 0700"
        )
    return path


@contextlib.contextmanager
def process_file(process: ProcessRecord) -> Iterator[None]:
    """List this process for other commands, for the length of the context. A failure is only logged: the process
    works, and other commands can use its --endpoint."""
    path = None
    try:
        path = runtime_directory() / f"{process.pid}.json"
        partial = path.with_suffix(".partial")
        partial.touch(mode=0o600)
        partial.write_bytes(msgspec.json.encode(process))
        partial.rename(path)
    except (UserError, OSError) as error:
        log.warning(
            "process not listed for kubeloop trace and explain; use their option --endpoint",
            extra={"endpoint": process.endpoint, "error": str(error)},
        )
    try:
        yield
    finally:
        if path is not None:
            with contextlib.suppress(OSError):
                path.unlink()


def list_processes() -> list[ProcessRecord]:
    """Return the running processes, newest first."""
    processes = []
    folder = runtime_directory()
    patterns = ("kubeconfig-*.yaml", "service-account-*.key", "certificate-authority-*.pem")
    for path in (path for pattern in patterns for path in folder.glob(pattern)):
        pid = path.stem.rpartition("-")[2]
        if pid.isdecimal() and not process_exists(int(pid)):
            path.unlink(missing_ok=True)
    for path in folder.glob("*.json"):
        try:
            process = msgspec.json.decode(path.read_bytes(), type=ProcessRecord)
        except (FileNotFoundError, msgspec.DecodeError):
            continue
        if process_exists(process.pid):
            processes.append(process)
        else:
            path.unlink(missing_ok=True)
    return sorted(processes, key=lambda process: process.started_ns, reverse=True)


def default_process() -> ProcessRecord:
    """Return the process that serves $KUBECONFIG, else the newest. Raises UserError if none runs.

    Of several at the same API server it is one that schedules, if there is one: it records what others only observe.
    """
    processes = list_processes()
    if not processes:
        raise UserError("no kubeloop process runs on this machine", hint="start kubeloop up, run or observe")
    kubeconfig = current_kubeconfig()
    chosen = next((process for process in processes if kubeconfig and process.kubeconfig == kubeconfig), processes[0])
    same_server = [process for process in processes if process.server == chosen.server]
    return next((process for process in (chosen, *same_server) if process.schedules), chosen)


def describe_choice() -> str:
    """Return which of several processes default_process() is; "" if there is no choice."""
    processes = list_processes()
    if len(processes) < 2:
        return ""
    chosen = default_process()
    others = ", ".join(f"{other.endpoint} (pid {other.pid})" for other in processes if other != chosen)
    source = f"{chosen.endpoint} (pid {chosen.pid}), which {'schedules' if chosen.schedules else 'observes'} pods"
    return f"source: {source} of {chosen.server}; --endpoint selects another one: {others}"


def current_kubeconfig(option: Path | None = None) -> tuple[str, ...]:
    """Return --kubeconfig, else the files of $KUBECONFIG, as absolute paths for commands in other folders; empty for
    the default."""
    paths = [str(option)] if option is not None else paths_in_environment()
    return tuple(os.path.abspath(os.path.expanduser(path)) for path in paths)


def development_kubeconfig(path: Path | None) -> tuple[str, ...]:
    """Return --kubeconfig, the files of $KUBECONFIG, or that of the newest `kubeloop up`.

    Never ~/.kube/config, which may belong to a real cluster. Raises UserError.
    """
    kubeconfig = current_kubeconfig(path)
    kubeconfig = kubeconfig or next((process.kubeconfig for process in list_processes() if process.kubeconfig), ())
    if not kubeconfig:
        raise UserError("no kubeloop up runs on this machine", hint="start one, or set --kubeconfig")
    return kubeconfig


def process_exists(pid: int) -> bool:
    """Return True if a process with this id exists, of any user."""
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        return True
    return True
