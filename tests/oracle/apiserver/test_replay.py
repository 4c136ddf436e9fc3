"""Recorded exchanges with kube-apiserver v1.36, replayed on the development API server by their replay script."""

from __future__ import annotations

import asyncio
import json
import os
import random
import shutil
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from kubeloop.devcluster.server.apiserver import ApiServer, ServingSettings
from kubeloop.devcluster.server.http import HttpServer
from kubeloop.devcluster.server.listener import listening_socket
from kubeloop.kube.clock import SystemClock

TOKEN = "replay"
COMPACTION_SECONDS = 2.0  # longer than the time between the pages of a list
TOPICS = (
    "admission", "binding", "conflict", "defaulting", "delete", "discovery", "dryrun", "eviction", "flow", "http",
    "kubectl", "list", "namespace", "patch", "protobuf", "review", "scale", "ssa", "status", "table", "update",
    "validation", "watch",
)  # fmt: skip

# The script sends requests a fixed time after the start of kubectl, which may not watch yet on a busy machine. Only
# these are repeated after a failure.
TIMED_SCENARIOS = ("kubectl/get-watch", "kubectl/rollout-status", "kubectl/delete-waits", "kubectl/wait")


@pytest.mark.parametrize("topic", TOPICS)
async def test_replayed_responses_match_records(topic: str, oracle_dir: Path, least_records: Callable[[str], int]):
    if not (oracle_dir / "apiserver" / f"{topic}.jsonl.gz").is_file() and os.environ.get("KUBELOOP_ORACLE"):
        pytest.skip(f"no oracle records at {oracle_dir / 'apiserver'} for {topic}")
    if topic == "kubectl" and shutil.which("kubectl") is None:
        pytest.skip("kubectl is not on the PATH")
    settings = ServingSettings(compaction_seconds=COMPACTION_SECONDS)
    api = ApiServer(clock=SystemClock(), rng=random.Random(1), token=TOKEN, settings=settings)
    background = asyncio.create_task(api.run(), name="api-server")
    async with HttpServer(api) as http:
        listener = await asyncio.get_running_loop().create_server(http, sock=listening_socket(0))
        url = f"http://127.0.0.1:{listener.sockets[0].getsockname()[1]}"
        scenarios = await _replay(oracle_dir / "apiserver", topic, url)
        for _ in range(2):
            late = [name for name in TIMED_SCENARIOS if scenarios.get(name, {}).get("result") == "fail"]
            if late:
                scenarios |= await _replay(oracle_dir / "apiserver", topic, url, *(f"--only={name}" for name in late))
        listener.close()
        background.cancel()
        await asyncio.gather(background, return_exceptions=True)
    assert len(scenarios) >= least_records(f"apiserver/{topic}.jsonl.gz")
    assert not [json.dumps(scenario)[:2000] for scenario in scenarios.values() if scenario["result"] != "pass"]


async def _replay(folder: Path, topic: str, url: str, *only: str) -> dict[str, dict[str, Any]]:
    """Run the replay script and return the results of the scenarios by name: passed, failed or skipped."""
    # kubectl's watches must be ready when the script continues, so that nothing else runs beside them
    jobs = 1 if topic == "kubectl" else 4
    replay = await asyncio.create_subprocess_exec(
        sys.executable, str(folder / "replay.py"), url, "--token", TOKEN, "--json", "--timeout", "120",
        "--compaction-wait", str(2.5 * COMPACTION_SECONDS), "-j", str(jobs), *only, str(folder / f"{topic}.jsonl.gz"),
        stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.PIPE,
    )  # fmt: skip
    output, problems = await replay.communicate()
    assert output, problems.decode()
    return {scenario["name"]: scenario for scenario in json.loads(output)["scenarios"]}
