"""The development cluster as a child process."""

import asyncio
import os
import tempfile

import pytest
import uvloop

from kubeloop.kube.user_error import UserError
from kubeloop.process.development_cluster.apiserver_command import api_server_process
from kubeloop.process.development_cluster.apiserver_process import ApiServerExited, starting_api_server


async def test_child_reports_its_addresses_and_its_end(tmp_path):
    arguments = ["--nodes", "1", "--port", "0", "--kubeconfig", str(tmp_path / "kubeconfig.yaml")]
    with api_server_process(arguments, token="secret") as process:
        async with starting_api_server(process) as starting:
            server = await starting.ready()
            assert server.ready.server.startswith("https://")
            assert server.ready.plain_server.startswith("http://")
            assert "secret" in (tmp_path / "kubeconfig.yaml").read_text()
            server.process.kill()
            with pytest.raises(UserError, match="the development cluster ended"):
                await server.ended()


async def test_child_that_rejects_its_options_has_an_exit_code(capsys):
    with api_server_process(["--nodes", "1", "--node-cpu", "0"], token="secret") as process:
        async with starting_api_server(process) as starting:
            with pytest.raises(ApiServerExited) as raised:
                await starting.ready()
    assert raised.value.code != 0
    # written by this process to sys.stderr, which a live display replaces
    assert "--node-cpu 0" in capsys.readouterr().err


def test_end_of_child_leaves_files_opened_afterwards_open():
    async def run() -> None:
        with api_server_process(["--nodes", "1", "--node-cpu", "0"], token="secret") as process:
            async with starting_api_server(process):
                pass
        with tempfile.TemporaryFile() as first, tempfile.TemporaryFile() as second:
            await asyncio.sleep(0.01)
            for file in (first, second):
                os.fstat(file.fileno())

    uvloop.run(run())


def test_child_ends_with_the_context_before_it_serves():
    with api_server_process(["--nodes", "1"], token="secret") as process:
        assert process.poll() is None
    assert process.returncode is not None
