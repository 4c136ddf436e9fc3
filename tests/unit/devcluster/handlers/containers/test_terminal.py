"""Pseudo-terminals of local commands."""

from __future__ import annotations

import asyncio

import pytest
import uvloop

from kubeloop.devcluster.handlers.containers.local_commands import running_command
from kubeloop.devcluster.handlers.containers.terminal import END_OF_INPUT, Terminal


async def output_of(*command: str, text: bytes = b"") -> bytes:
    with Terminal() as terminal:
        terminal.resize(100, 30)
        async with running_command(command, terminal=terminal) as process:
            await terminal.write(text)
            output = b""
            while data := await terminal.read(1000):
                output += data
            await process.wait()
            return output


@pytest.mark.parametrize("new_loop", [asyncio.new_event_loop, uvloop.new_event_loop])
def test_command_has_a_controlling_terminal(new_loop):
    with asyncio.Runner(loop_factory=new_loop) as runner:
        assert runner.run(output_of("sh", "-c", "stty size < /dev/tty")) == b"30 100\r\n"


async def test_input_longer_than_the_buffer_of_the_terminal_is_written():
    text = b"".join(b"%d\n" % number for number in range(5000))
    command = ("sh", "-c", "stty -echo; echo started; wc -l")
    with Terminal() as terminal:
        async with running_command(command, terminal=terminal):
            while b"started" not in await terminal.read(1000):
                pass
            await terminal.write(text + END_OF_INPUT)
            assert await terminal.read(1000) == b"5000\r\n"


async def test_write_after_the_end_of_the_command_is_ignored():
    with Terminal() as terminal:
        async with running_command(("true",), terminal=terminal) as process:
            await process.wait()
            assert await terminal.read(10) == b""
            await terminal.write(b"lost" * 10_000)


async def test_command_that_cannot_start_is_an_error():
    with pytest.raises(FileNotFoundError):
        await output_of("/no/such/command")
