"""Recorded exchanges with kube-apiserver v1.36, replayed on the development API server by their replay script."""

from __future__ import annotations

import asyncio
import json
import random
import shutil
import sys
from pathlib import Path

import pytest

from kubeloop.devcluster.server.apiserver import ApiServer, ServingSettings
from kubeloop.devcluster.server.http import HttpServer
from kubeloop.devcluster.server.listener import loopback_socket
from kubeloop.kube.clock import SystemClock

TOKEN = "replay"
COMPACTION_SECONDS = 2.0  # longer than the time between the pages of a list
TOPICS = (
    "admission", "binding", "conflict", "defaulting", "delete", "discovery", "dryrun", "eviction", "flow", "http",
    "kubectl", "list", "namespace", "patch", "protobuf", "review", "scale", "ssa", "status", "table", "update",
    "validation", "watch",
)  # fmt: skip


@pytest.mark.parametrize("topic", TOPICS)
async def test_replayed_responses_match_records(topic: str, oracle_dir: Path):
    folder = oracle_dir / "apiserver"
    records, script = folder / f"{topic}.jsonl.gz", folder / "replay.py"
    if not records.is_file() or not script.is_file():
        pytest.skip(f"no records of {topic} in {folder}")
    if topic == "kubectl" and shutil.which("kubectl") is None:
        pytest.skip("kubectl is not on the PATH")
    settings = ServingSettings(compaction_seconds=COMPACTION_SECONDS)
    api = ApiServer(clock=SystemClock(), rng=random.Random(1), token=TOKEN, settings=settings)
    background = asyncio.create_task(api.run(), name="api-server")
    async with HttpServer(api) as http:
        listener = await asyncio.get_running_loop().create_server(http, sock=loopback_socket(0))
        url = f"http://127.0.0.1:{listener.sockets[0].getsockname()[1]}"
        only: list[str] = []
        failed: dict[str, str] = {}
        # retry failed scenarios one by one: on a slow machine, kubectl may not be ready when the script continues
        for jobs in (4, 1, 1):
            failed = await _failed_scenarios(script, url, "-j", str(jobs), *only, str(records))
            only = [f"--only={name}" for name in failed]
            if not failed:
                break
        listener.close()
        background.cancel()
        await asyncio.gather(background, return_exceptions=True)
    assert not failed, "\n".join(failed.values())


async def _failed_scenarios(script: Path, url: str, *arguments: str) -> dict[str, str]:
    """Run the replay script and return the failed scenarios: names and first differences."""
    replay = await asyncio.create_subprocess_exec(
        sys.executable, str(script), url, "--token", TOKEN, "--json", "--timeout", "120",
        "--compaction-wait", str(2.5 * COMPACTION_SECONDS), *arguments,
        stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.PIPE,
    )  # fmt: skip
    output, problems = await replay.communicate()
    assert output, problems.decode()
    scenarios = json.loads(output)["scenarios"]
    return {scenario["name"]: json.dumps(scenario)[:2000] for scenario in scenarios if scenario["result"] == "fail"}
