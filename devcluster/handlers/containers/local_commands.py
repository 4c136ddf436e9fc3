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
from typing import TYPE_CHECKING, Any, TypeVar

if TYPE_CHECKING:
    from kubeloop.devcluster.handlers.containers.terminal import Terminal

T = TypeVar("T")


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
    starting = asyncio.create_subprocess_exec(
        *command, cwd=directory, env={**os.environ, **dict(environment)}, **streams
    )
    process, cancelled = await _completed(starting)
    if terminal is not None:
        terminal.release()
    try:
        if cancelled is not None:
            raise cancelled
        yield process
    finally:
        try:
            if process.returncode is None:
                with contextlib.suppress(ProcessLookupError):
                    os.killpg(process.pid, signal.SIGKILL)
                _, cancelled = await _completed(process.wait())
                if cancelled is not None:
                    raise cancelled
        finally:
            # closes the pipes, which asyncio else does only when the loop has seen the end of each
            process._transport.close()  # type: ignore[attr-defined]


async def _completed(work: Coroutine[Any, Any, T]) -> tuple[T, asyncio.CancelledError | None]:
    """Complete `work`, which takes milliseconds, also if this task is cancelled meanwhile. Raises its exception.

    Returns its result, and the cancellation for the caller to raise.
    """
    task = asyncio.create_task(work)
    cancelled = None
    while not task.done():
        try:
            await asyncio.wait({task})
        except asyncio.CancelledError as error:
            cancelled = error
    return task.result(), cancelled


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
