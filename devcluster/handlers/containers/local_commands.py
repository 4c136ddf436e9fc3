"""Local commands that answer for simulated containers: only commands of the operator's configuration.

Every command has a session of its own, and is killed with its children when its client has disconnected.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
from asyncio.subprocess import PIPE, Process
from collections.abc import AsyncIterator, Coroutine, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from kubeloop.devcluster.handlers.containers.terminal import Terminal


@contextlib.asynccontextmanager
async def running_command(
    command: Sequence[str],
    *,
    directory: Path | None = None,
    environment: Sequence[tuple[str, str]] = (),
    stdin: int = PIPE,
    stderr: int = PIPE,
    terminal: Terminal | None = None,
) -> AsyncIterator[Process]:
    """Run `command` without a shell; kill it, if it still runs, at the end of the context. Raises OSError.

    environment: added to that of this process. stdin, stderr: as for asyncio.create_subprocess_exec(). terminal: used
    instead of pipes, and released.
    """
    streams: dict[str, Any] = {"stdin": stdin, "stdout": PIPE, "stderr": stderr, "start_new_session": True}
    if terminal is not None:
        streams = dict.fromkeys(("stdin", "stdout", "stderr"), terminal.command_end) | {"preexec_fn": terminal.attach}
    process = await asyncio.create_subprocess_exec(
        *command, cwd=directory, env={**os.environ, **dict(environment)}, **streams
    )
    if terminal is not None:
        terminal.release()
    try:
        yield process
    finally:
        try:
            if process.returncode is None:
                with contextlib.suppress(ProcessLookupError):
                    os.killpg(process.pid, signal.SIGKILL)
                await _wait_for_exit(process)
        finally:
            # closes the pipes, which asyncio else does only when the loop has seen the end of each
            process._transport.close()  # type: ignore[attr-defined]


async def _wait_for_exit(process: Process) -> None:
    """Wait for a killed process, also if the task is cancelled meanwhile: it takes milliseconds."""
    exited = asyncio.ensure_future(process.wait())
    cancelled = None
    while not exited.done():
        try:
            await asyncio.shield(exited)
        except asyncio.CancelledError as error:
            cancelled = error
    if cancelled is not None:
        raise cancelled


@contextlib.asynccontextmanager
async def concurrent(work: Coroutine[Any, Any, None], name: str) -> AsyncIterator[asyncio.Task[None]]:
    """Run `work` in a task for the length of the context; cancel it at the end.

    An error of `work` ends the context and is raised out of it, as itself.
    """
    try:
        async with asyncio.TaskGroup() as group:
            task = group.create_task(work, name=name)
            yield task
            task.cancel()
    except BaseExceptionGroup as errors:
        raise errors.exceptions[0] from None
