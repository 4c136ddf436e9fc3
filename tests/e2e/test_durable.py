"""`--data-dir`: SIGKILL loses no acknowledged write, and unusable data directories are reported."""

from __future__ import annotations

import asyncio
import contextlib
import os
import random
import resource
import sqlite3
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import aiohttp
import pytest

from support.apiserver.apiserver_process import TOKEN, apiserver_command, kill_process, running_apiserver
from support.apiserver.http_api import HttpApi
from support.comparison.random_writes import Server, View, WatchBehaviour, Writer, wait_until_equal
from support.processes.cli_processes import TIMEOUT_SECONDS, Kubectl, Kubeloop, reserved_port

ROUNDS = int(os.environ.get("KUBELOOP_KILL_ROUNDS", "8"))


@pytest.fixture
def port() -> Iterator[int]:
    """A port for consecutive servers."""
    with reserved_port() as port:
        yield port


def flags(folder: Path, port: int, *, compaction_seconds: int = 2) -> tuple[str, ...]:
    return f"--port={port}", f"--data-dir={folder / 'data'}", f"--compaction-interval={compaction_seconds}"


async def test_sigkill_loses_no_write_and_watches_stay_ordered(tmp_path, port):
    rng = random.Random(7)
    server = Server(f"http://127.0.0.1:{port}", TOKEN)
    writers = [Writer(index, random.Random(index)) for index in range(4)]
    views = [View(WatchBehaviour.random(rng), random.Random(100 + index)) for index in range(6)]
    async with aiohttp.ClientSession(connector=aiohttp.TCPConnector(limit=0)) as http, asyncio.TaskGroup() as watching:
        watches = [watching.create_task(view.run(http, server)) for view in views]
        for _ in range(ROUNDS):
            async with running_apiserver(apiserver_command(tmp_path, *flags(tmp_path, port))) as (process, _):
                for writer in writers:
                    await writer.check(http, server)
                async with asyncio.TaskGroup() as writing:
                    before = sum(writer.acknowledged for writer in writers)
                    for writer in writers:
                        writing.create_task(writer.run(http, server))
                    limit = before + rng.randrange(20, 400)
                    async with asyncio.timeout(TIMEOUT_SECONDS):
                        while sum(writer.acknowledged for writer in writers) < limit:
                            await asyncio.sleep(0.001)
                    await asyncio.sleep(rng.uniform(0, 0.01))
                    kill_process(process)
        async with running_apiserver(apiserver_command(tmp_path, *flags(tmp_path, port))):
            for writer in writers:
                await writer.check(http, server)
            await wait_until_equal(http, server, views)
            for task in watches:
                task.cancel()


def startup_error(folder: Path) -> str:
    """Run an API server that must fail to start, and return its stderr."""
    result = subprocess.run(
        apiserver_command(folder, *flags(folder, 0)),
        capture_output=True,
        text=True,
        timeout=TIMEOUT_SECONDS,
        check=False,
    )
    assert result.returncode == 2, result
    assert "Traceback" not in result.stderr
    return result.stderr


def test_kubeconfig_and_tokens_are_valid_after_sigkill_and_restart(tmp_path, port):
    kubeloop = Kubeloop(tmp_path)
    saved = tmp_path / "saved.yaml"
    arguments = ("apiserver", "--nodes=0", f"--port={port}", f"--data-dir={tmp_path / 'data'}", "--kubeconfig")
    with kubeloop.running(*arguments, tmp_path / "first.yaml") as first:
        first.wait_for("export KUBECONFIG")
        saved.write_bytes((tmp_path / "first.yaml").read_bytes())
        request = {"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest", "spec": {}}
        path = "/api/v1/namespaces/default/serviceaccounts/default/token"
        with contextlib.closing(HttpApi.from_kubeconfig(saved)) as server:
            server.request("POST", "/api/v1/namespaces/default/serviceaccounts", {"metadata": {"name": "default"}})
            token = server.request("POST", path, request).content["status"]["token"]
        first.process.kill()
        first.process.wait()
    with kubeloop.running(*arguments, tmp_path / "second.yaml") as second:
        second.wait_for("export KUBECONFIG")
        review = {"apiVersion": "authentication.k8s.io/v1", "kind": "TokenReview", "spec": {"token": token}}
        with contextlib.closing(HttpApi.from_kubeconfig(saved)) as server:
            status = server.request("POST", "/apis/authentication.k8s.io/v1/tokenreviews", review).content["status"]
    assert status["user"]["username"] == "system:serviceaccount:default:default"


async def test_second_server_on_a_data_directory_is_refused(tmp_path):
    async with running_apiserver(apiserver_command(tmp_path, *flags(tmp_path, 0))):
        message = await asyncio.to_thread(startup_error, tmp_path)
    assert "another server uses the data directory" in message


@pytest.mark.parametrize(
    ("damage", "message"),
    [
        pytest.param(
            lambda path: path.write_bytes(b"not a database " * 300), "file is not a database", id="not a database"
        ),
        pytest.param(lambda path: _execute(path, "UPDATE versions SET object = 'x'"), "is damaged", id="invalid JSON"),
        pytest.param(lambda path: _execute(path, "PRAGMA user_version = 9"), "has format 9", id="later version"),
        pytest.param(
            lambda path: _execute(path, "PRAGMA application_id = 1"),
            "is not a store of kubeloop",
            id="another application",
        ),
    ],
)
async def test_unusable_data_directory_is_refused_with_the_reason(tmp_path, damage, message):
    async with running_apiserver(apiserver_command(tmp_path, *flags(tmp_path, 0))) as (process, _):
        process.terminate()
        await process.wait()
    damage(tmp_path / "data" / "store.db")
    assert message in await asyncio.to_thread(startup_error, tmp_path)


def _execute(path: Path, statement: str) -> None:
    with sqlite3.connect(path) as db:
        db.execute(statement)
    db.close()


async def test_write_on_a_full_disk_fails_and_stays_invisible(tmp_path, port):
    server_flags = flags(tmp_path, port, compaction_seconds=3600)  # compaction would free space
    async with (
        running_apiserver(apiserver_command(tmp_path, *server_flags)) as (process, _),
        aiohttp.ClientSession() as http,
    ):
        limit = 600_000  # bytes per file
        resource.prlimit(process.pid, resource.RLIMIT_FSIZE, (limit, limit))
        url = f"http://127.0.0.1:{port}/api/v1/namespaces/default/configmaps"
        headers = {"Authorization": f"Bearer {TOKEN}"}
        responses = []
        for number in range(8):
            body = {"metadata": {"name": f"big-{number}"}, "data": {"x": "y" * 100_000}}
            async with http.post(url, json=body, headers=headers) as response:
                responses.append((response.status, await response.json()))
        codes = [code for code, _ in responses]
        assert codes == sorted(codes)
        assert set(codes) == {201, 500}
        assert "the data directory cannot be written" in responses[-1][1]["message"]
        async with http.get(url, headers=headers) as response:
            names = {obj["metadata"]["name"] for obj in (await response.json())["items"]}
        assert names == {"kube-root-ca.crt", *(f"big-{number}" for number in range(codes.count(201)))}
        kill_process(process)
        await process.wait()
    async with (
        running_apiserver(apiserver_command(tmp_path, *server_flags)),
        aiohttp.ClientSession() as http,
        http.get(url, headers=headers) as response,
    ):
        assert {obj["metadata"]["name"] for obj in (await response.json())["items"]} == names


def test_full_disk_at_startup_is_reported_without_a_traceback(tmp_path):
    environment = {**os.environ, "XDG_RUNTIME_DIR": str(tmp_path)}
    command = [sys.executable, "-m", "kubeloop", "apiserver", "--nodes=200", f"--data-dir={tmp_path / 'data'}"]
    limit = 60_000  # bytes per file

    def limit_file_size() -> None:
        resource.setrlimit(resource.RLIMIT_FSIZE, (limit, limit))

    result = subprocess.run(
        command,
        capture_output=True,
        text=True,
        timeout=TIMEOUT_SECONDS,
        check=False,
        env=environment,
        preexec_fn=limit_file_size,
    )
    assert result.returncode == 2, result
    assert "the data directory cannot be written" in result.stderr
    assert "Traceback" not in result.stderr
    assert "free disk space" in result.stderr


def test_added_and_removed_nodes_survive_sigkill_and_restart(tmp_path, port, needs_kubectl):
    kubeloop = Kubeloop(tmp_path)
    kubeconfig = tmp_path / "kubeconfig"

    def nodes(count: int, *changes: tuple[str, ...], removed: int = 0) -> set[str]:
        server_flags = (f"--port={port}", f"--data-dir={tmp_path / 'data'}", f"--kubeconfig={kubeconfig}")
        with kubeloop.running("apiserver", f"--nodes={count}", *server_flags) as server:
            announced = server.wait_for(r"cluster with (\d+) nodes")
            server.wait_for("export KUBECONFIG")
            names = set(Kubectl(str(kubeconfig), tmp_path)("get", "nodes", "--output=name").split())
            assert len(names) == int(announced[1])
            if removed:
                server.wait_for(f"note: {removed} of the {count} nodes of --nodes were removed before")
            for change in changes:
                result = kubeloop.run("nodes", *change, f"--kubeconfig={kubeconfig}")
                assert result.returncode == 0, result
            server.process.kill()
            server.process.wait()
        return names

    assert nodes(3, ("remove", "node-1"), ("add", "big")) == {"node/node-0", "node/node-1", "node/node-2"}
    assert nodes(3, removed=1) == {"node/node-0", "node/node-2", "node/big"}
    assert nodes(4, removed=1) == {"node/node-0", "node/node-2", "node/node-3", "node/big"}
