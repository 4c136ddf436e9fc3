"""Local commands of the configuration."""

from __future__ import annotations

import asyncio
import os
from asyncio.subprocess import DEVNULL
from pathlib import Path

import pytest

from kubeloop.devcluster.handlers.containers.local_commands import running_command


async def test_arguments_reach_the_command_unchanged():
    async with running_command(["printf", "%s|", "$HOME", "a b", ";"], stdin=DEVNULL) as process:
        assert process.stdin is None
        assert process.stdout is not None
        assert await process.stdout.read() == b"$HOME|a b|;|"


def has_ended(pid: int) -> bool:
    """Return True for a process that does not exist, or is a zombie."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] == "Z"
    except FileNotFoundError:
        return True


async def test_children_are_killed_at_the_end():
    async with running_command(["sh", "-c", "sleep 1000 & echo $!; wait"]) as process:
        assert process.stdout is not None
        child = int(await process.stdout.readline())
        os.kill(child, 0)  # it runs
    assert process.returncode == -9
    # the kernel ends the children of a killed group in any order
    async with asyncio.timeout(60):
        while not has_ended(child):
            await asyncio.sleep(0.01)


async def test_command_is_killed_if_the_task_is_cancelled_while_it_starts(tmp_path: Path):
    async def run() -> None:
        async with running_command(["sh", "-c", f"echo $$ > {tmp_path}/pid; sleep 1000"]):
            pytest.fail("not cancelled")

    task = asyncio.create_task(run())
    await asyncio.sleep(0)
    for _ in range(2):  # the second one while the command is being killed
        task.cancel()
        await asyncio.sleep(0)
    with pytest.raises(asyncio.CancelledError):
        await task
    # the shell may be killed before it has made the file, or before it has written to it
    pid = (tmp_path / "pid").read_text() if (tmp_path / "pid").exists() else ""
    assert not pid or has_ended(int(pid))


async def test_missing_command_is_an_error():
    with pytest.raises(FileNotFoundError):
        async with running_command(["/no/such/command"]):
            pass
