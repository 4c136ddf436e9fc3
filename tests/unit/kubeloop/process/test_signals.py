"""The main program: errors in groups, and a closed output pipe."""

from __future__ import annotations

import asyncio
import errno
import subprocess
import sys

import pytest

from kubeloop.kube.user_error import UserError
from kubeloop.process.signals import run_until_interrupted


async def failing(error: Exception) -> int:
    async def fail() -> None:
        raise error

    async with asyncio.TaskGroup() as outer:
        async with asyncio.TaskGroup() as group:
            group.create_task(fail())
        outer.create_task(asyncio.sleep(0))
    return 0


def test_user_errors_are_raised_without_their_group():
    with pytest.raises(UserError, match="mend me"):
        run_until_interrupted(failing(UserError("mend me", hint="so")), interrupted=0)
    with pytest.raises(BrokenPipeError) as broken:
        run_until_interrupted(failing(BrokenPipeError(errno.EPIPE, "Broken pipe")), interrupted=0)
    assert broken.value.errno == errno.EPIPE  # click checks it
    with pytest.raises(ExceptionGroup):
        run_until_interrupted(failing(ValueError("a crash")), interrupted=0)


def test_closed_output_pipe_ends_the_command_quietly():
    command = [sys.executable, "-m", "kubeloop", "run", "--help"]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    assert process.stdout is not None
    process.stdout.close()
    _, output = process.communicate()
    assert (process.returncode, output) == (1, b"")
