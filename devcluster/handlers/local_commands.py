"""Local commands that answer for simulated containers: only commands of the operator's configuration.

Every command has a session of its own, and is killed with its children when its client has disconnected.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
from asyncio.subprocess import DEVNULL, PIPE, Process
from collections.abc import AsyncIterator, Sequence
from pathlib import Path


@contextlib.asynccontextmanager
async def running_command(
    command: Sequence[str],
    *,
    directory: Path | None = None,
    environment: Sequence[tuple[str, str]] = (),
    reads_stdin: bool = True,
    stderr: int = PIPE,
) -> AsyncIterator[Process]:
    """Run `command` without a shell; kill it, if it still runs, at the end of the context. Raises OSError.

    environment: added to that of this process. stderr: as for asyncio.create_subprocess_exec().
    """
    process = await asyncio.create_subprocess_exec(
        *command,
        stdin=PIPE if reads_stdin else DEVNULL,
        stdout=PIPE,
        stderr=stderr,
        cwd=directory,
        env={**os.environ, **dict(environment)},
        start_new_session=True,
    )
    try:
        yield process
    finally:
        if process.returncode is None:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            await asyncio.shield(process.wait())
