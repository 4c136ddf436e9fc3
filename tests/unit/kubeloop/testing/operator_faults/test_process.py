"""Processes of the operator: start, signals, output, and their guard."""

from __future__ import annotations

import asyncio
import os
import signal
import sys
from pathlib import Path

import pytest

from kubeloop.kube.user_error import UserError
from kubeloop.process.process_files import process_exists
from kubeloop.testing.operator_faults.outside import ports_and_servers
from kubeloop.testing.operator_faults.process import Guard, OperatorProcess, log_tail, process_tree

STUBBORN = (
    "import signal, time; signal.signal(signal.SIGTERM, signal.SIG_IGN); print('ready', flush=True); time.sleep(60)"
)


@pytest.fixture
def guard(tmp_path: Path):
    folder = tmp_path / "guarded"
    folder.mkdir()
    guard = Guard(folder)
    yield guard
    guard.close()
    assert not folder.exists()


async def start(guard: Guard, tmp_path: Path, *command: str) -> OperatorProcess:
    return await OperatorProcess.start(command, tmp_path / "kubeconfig", guard, tmp_path / "log")


async def until(condition) -> None:
    async with asyncio.timeout(20):
        while not condition():
            await asyncio.sleep(0.02)


async def test_process_has_its_kubeconfig_and_no_cluster_around(guard, tmp_path, monkeypatch):
    monkeypatch.setenv("KUBERNETES_SERVICE_HOST", "10.0.0.1")
    process = await start(guard, tmp_path, "sh", "-c", "echo $KUBECONFIG $KUBERNETES_SERVICE_HOST; exit 3")
    assert await process.wait() == 3
    assert log_tail(process.log) == [str(tmp_path / "kubeconfig")]


async def test_missing_program_is_an_error(guard, tmp_path):
    with pytest.raises(UserError, match="cannot start /nowhere/operator: No such file"):
        await start(guard, tmp_path, "/nowhere/operator")


async def test_children_end_with_the_process(guard, tmp_path):
    process = await start(guard, tmp_path, "sh", "-c", "sleep 60 & wait")
    await until(lambda: len([*process_tree(process.pid)]) == 2)
    child = [*process_tree(process.pid)][1]
    process.signal(signal.SIGKILL)
    assert await process.wait() == -signal.SIGKILL
    await until(lambda: not is_running(child))


async def test_process_that_ignores_sigterm_is_killed(guard, tmp_path):
    process = await start(guard, tmp_path, sys.executable, "-c", STUBBORN)
    await until(lambda: log_tail(process.log) == ["ready"])
    assert not await process.terminate(0.2)
    assert await process.wait() == -signal.SIGKILL
    other = await start(guard, tmp_path, "sleep", "60")
    assert await other.terminate(20)


async def test_computing_process_differs_from_a_waiting_one(guard, tmp_path):
    busy = await start(guard, tmp_path, sys.executable, "-c", "while True: pass")
    waiting = await start(guard, tmp_path, "sleep", "60")
    await until(busy.is_computing)
    await until(lambda: not waiting.is_computing())
    for process in (busy, waiting):
        assert await process.terminate(20)


@pytest.mark.parametrize("function", ["listdir", "open", "read"])
async def test_process_that_ends_while_it_is_observed_does_not_compute(guard, tmp_path, monkeypatch, function):
    def fail(path: object, *arguments: object) -> None:
        raise FileNotFoundError(path)

    process = await start(guard, tmp_path, sys.executable, "-c", "while True: pass")
    with monkeypatch.context() as patch:
        patch.setattr(os, function, fail)
        assert not process.is_computing()
        assert [*process_tree(process.pid)] == [process.pid]
        assert ports_and_servers(process.pid, []) == (set(), set())
    assert await process.terminate(20)


def test_log_tail_is_short(tmp_path: Path):
    log = tmp_path / "log"
    assert log_tail(log) == []
    log.write_text("".join(f"{'x' * 1000} {number}\n" for number in range(50)))
    assert len(log_tail(log)) == 5
    assert all(len(line) < 300 for line in log_tail(log))


PARENT = """
import asyncio, sys
from pathlib import Path
from kubeloop.testing.operator_faults.process import Guard, OperatorProcess
async def main():
    folder = Path(sys.argv[1])
    guard = Guard(folder)
    process = await OperatorProcess.start(["sh", "-c", "sleep 60 & wait"], folder / "k", guard, folder / "log")
    print(process.pid, flush=True)
    await asyncio.sleep(60)
asyncio.run(main())
"""


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGINT])
async def test_guard_cleans_up_when_this_process_is_killed(tmp_path: Path, number: signal.Signals):
    folder = tmp_path / "folder"
    folder.mkdir()
    parent = await asyncio.create_subprocess_exec(
        *(sys.executable, "-c", PARENT, str(folder)),
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.DEVNULL,
    )
    assert parent.stdout is not None
    operator = int(await parent.stdout.readline())
    await until(lambda: len([*process_tree(operator)]) == 2)
    child = [*process_tree(operator)][1]
    parent.send_signal(number)
    await parent.wait()
    await until(lambda: not is_running(operator) and not is_running(child) and not folder.exists())


def is_running(pid: int) -> bool:
    """Return False for a process that has ended, also if nothing has read its exit code."""
    try:
        return process_exists(pid) and Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False
