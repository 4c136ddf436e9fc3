"""`--data-dir`: SIGKILL at any moment loses nothing that was acknowledged, and what goes wrong is said."""

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

from support.apiserver_process import TOKEN, apiserver_command, kill_process, running_apiserver
from support.cli_processes import TIMEOUT_SECONDS, Kubectl, Kubeloop, reserved_port
from support.differential import ApiServer
from support.random_writes import Habits, Server, View, Writer, settled

ROUNDS = int(os.environ.get("KUBELOOP_KILL_ROUNDS", "8"))


@pytest.fixture
def port() -> Iterator[int]:
    """The same for one server after the other."""
    with reserved_port() as port:
        yield port


def at(folder: Path, port: int, *, compaction_seconds: int = 2) -> tuple[str, ...]:
    return f"--port={port}", f"--data-dir={folder / 'data'}", f"--compaction-interval={compaction_seconds}"


async def test_sigkill_under_write_load_loses_no_acknowledged_write_and_no_watch_sees_time_run_backwards(
    tmp_path, port
):
    rng = random.Random(7)
    server = Server(f"http://127.0.0.1:{port}", TOKEN)
    writers = [Writer(index, random.Random(index)) for index in range(4)]
    views = [View(Habits.drawn(rng), random.Random(100 + index)) for index in range(6)]
    async with aiohttp.ClientSession(connector=aiohttp.TCPConnector(limit=0)) as http, asyncio.TaskGroup() as watching:
        watches = [watching.create_task(view.run(http, server)) for view in views]
        for _ in range(ROUNDS):
            async with running_apiserver(tmp_path, *at(tmp_path, port)) as (process, _):
                for writer in writers:
                    await writer.check(http, server)
                async with asyncio.TaskGroup() as writing:
                    before = sum(writer.acknowledged for writer in writers)
                    for writer in writers:
                        writing.create_task(writer.run(http, server))
                    enough = before + rng.randrange(20, 400)
                    async with asyncio.timeout(TIMEOUT_SECONDS):
                        while sum(writer.acknowledged for writer in writers) < enough:
                            await asyncio.sleep(0.001)
                    await asyncio.sleep(rng.uniform(0, 0.01))
                    kill_process(process)
        async with running_apiserver(tmp_path, *at(tmp_path, port)):
            for writer in writers:
                await writer.check(http, server)
            await settled(http, server, views)
            for task in watches:
                task.cancel()


def refused(folder: Path) -> str:
    done = subprocess.run(
        apiserver_command(folder, *at(folder, 0)), capture_output=True, text=True, timeout=TIMEOUT_SECONDS, check=False
    )
    assert done.returncode == 2, done
    assert "Traceback" not in done.stderr
    return done.stderr


def test_a_kubeconfig_and_the_tokens_of_service_accounts_are_good_after_sigkill_and_a_restart(tmp_path, port):
    kubeloop = Kubeloop(tmp_path)
    kept = tmp_path / "kept.yaml"
    arguments = ("apiserver", "--nodes=0", f"--port={port}", f"--data-dir={tmp_path / 'data'}", "--kubeconfig")
    with kubeloop.running(*arguments, tmp_path / "first.yaml") as first:
        first.wait_for("export KUBECONFIG")
        kept.write_bytes((tmp_path / "first.yaml").read_bytes())
        request = {"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest", "spec": {}}
        path = "/api/v1/namespaces/default/serviceaccounts/default/token"
        with contextlib.closing(ApiServer.from_kubeconfig(kept)) as server:
            server.ask("POST", "/api/v1/namespaces/default/serviceaccounts", {"metadata": {"name": "default"}})
            token = server.ask("POST", path, request).content["status"]["token"]
        first.process.kill()
        first.process.wait()
    with kubeloop.running(*arguments, tmp_path / "second.yaml") as second:
        second.wait_for("export KUBECONFIG")
        review = {"apiVersion": "authentication.k8s.io/v1", "kind": "TokenReview", "spec": {"token": token}}
        with contextlib.closing(ApiServer.from_kubeconfig(kept)) as server:
            status = server.ask("POST", "/apis/authentication.k8s.io/v1/tokenreviews", review).content["status"]
    assert status["user"]["username"] == "system:serviceaccount:default:default"


async def test_two_servers_do_not_share_a_data_directory(tmp_path):
    async with running_apiserver(tmp_path, *at(tmp_path, 0)):
        told = await asyncio.to_thread(refused, tmp_path)
    assert "another server uses the data directory" in told


@pytest.mark.parametrize(
    ("spoil", "told"),
    [
        pytest.param(
            lambda path: path.write_bytes(b"not a database " * 300), "file is not a database", id="no database"
        ),
        pytest.param(lambda path: _execute(path, "UPDATE versions SET object = 'x'"), "is damaged", id="no JSON"),
        pytest.param(lambda path: _execute(path, "PRAGMA user_version = 9"), "has format 9", id="later version"),
        pytest.param(
            lambda path: _execute(path, "PRAGMA application_id = 1"), "is not a store of kubeloop", id="another"
        ),
    ],
)
async def test_a_data_directory_that_cannot_be_used_is_refused_with_the_reason(tmp_path, spoil, told):
    async with running_apiserver(tmp_path, *at(tmp_path, 0)) as (process, _):
        process.terminate()
        await process.wait()
    spoil(tmp_path / "data" / "store.db")
    assert told in await asyncio.to_thread(refused, tmp_path)


def _execute(path: Path, statement: str) -> None:
    with sqlite3.connect(path) as db:
        db.execute(statement)
    db.close()


async def test_a_full_disk_fails_the_write_and_nobody_sees_it(tmp_path, port):
    serve = at(tmp_path, port, compaction_seconds=3600)  # which would make room
    async with running_apiserver(tmp_path, *serve) as (process, _), aiohttp.ClientSession() as http:
        limit = 600_000  # bytes a file may have from now on
        resource.prlimit(process.pid, resource.RLIMIT_FSIZE, (limit, limit))
        url = f"http://127.0.0.1:{port}/api/v1/namespaces/default/configmaps"
        headers = {"Authorization": f"Bearer {TOKEN}"}
        answers = []
        for number in range(8):
            body = {"metadata": {"name": f"big-{number}"}, "data": {"x": "y" * 100_000}}
            async with http.post(url, json=body, headers=headers) as answer:
                answers.append((answer.status, await answer.json()))
        codes = [code for code, _ in answers]
        assert codes == sorted(codes)
        assert set(codes) == {201, 500}
        assert "the data directory cannot be written" in answers[-1][1]["message"]
        async with http.get(url, headers=headers) as answer:
            names = [obj["metadata"]["name"] for obj in (await answer.json())["items"]]
        assert names == [f"big-{number}" for number in range(codes.count(201))]
        kill_process(process)
        await process.wait()
    async with (
        running_apiserver(tmp_path, *serve),
        aiohttp.ClientSession() as http,
        http.get(url, headers=headers) as answer,
    ):
        assert [obj["metadata"]["name"] for obj in (await answer.json())["items"]] == names


def test_a_disk_that_is_full_at_the_start_is_told_without_a_traceback(tmp_path):
    environment = {**os.environ, "XDG_RUNTIME_DIR": str(tmp_path)}
    command = [sys.executable, "-m", "kubeloop", "apiserver", "--nodes=200", f"--data-dir={tmp_path / 'data'}"]
    limit = 60_000  # bytes a file may have

    def begin() -> None:
        resource.setrlimit(resource.RLIMIT_FSIZE, (limit, limit))

    done = subprocess.run(
        command, capture_output=True, text=True, timeout=TIMEOUT_SECONDS, check=False, env=environment, preexec_fn=begin
    )
    assert done.returncode == 2, done
    assert "the data directory cannot be written" in done.stderr
    assert "Traceback" not in done.stderr
    assert "make room" in done.stderr


def test_nodes_are_as_they_were_left_after_sigkill_and_a_restart(tmp_path, port, needs_kubectl):
    kubeloop = Kubeloop(tmp_path)
    kubeconfig = tmp_path / "kubeconfig"

    def nodes(count: int, *changes: tuple[str, ...], removed: int = 0) -> set[str]:
        where = (f"--port={port}", f"--data-dir={tmp_path / 'data'}", f"--kubeconfig={kubeconfig}")
        with kubeloop.running("apiserver", f"--nodes={count}", *where) as server:
            told = server.wait_for(r"cluster with (\d+) nodes")
            server.wait_for("export KUBECONFIG")
            names = set(Kubectl(str(kubeconfig), tmp_path)("get", "nodes", "--output=name").split())
            assert len(names) == int(told[1])
            if removed:
                server.wait_for(f"note: {removed} of the {count} nodes of --nodes were removed before")
            for change in changes:
                done = kubeloop.run("nodes", *change, f"--kubeconfig={kubeconfig}")
                assert done.returncode == 0, done
            server.process.kill()
            server.process.wait()
        return names

    assert nodes(3, ("remove", "node-1"), ("add", "big")) == {"node/node-0", "node/node-1", "node/node-2"}
    assert nodes(3, removed=1) == {"node/node-0", "node/node-2", "node/big"}
    assert nodes(4, removed=1) == {"node/node-0", "node/node-2", "node/node-3", "node/big"}
