"""Sequences of requests, including watches: the same responses as kube-apiserver.

Different sequences are sent to kube-apiserver again: a response that varies there is not a difference.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from types import ModuleType
from typing import Any

import pytest

from support.apiserver.apiserver_process import TOKEN, bare_apiserver_command, running_apiserver
from support.comparison.real_apiserver import ADMIN_TOKEN, needs_binaries, real_apiserver
from support.comparison.sequences import FOLDER, replay_script, sequences

JSON = dict[str, Any]
Server = tuple[str, str]
"""URL and token."""
CONCURRENT_SEQUENCES = 24
DISABLED_PLUGINS = "ServiceAccount"  # token volumes have random names, which responses would not repeat


@pytest.fixture(scope="module")
def script() -> ModuleType:
    script = replay_script()
    if script is None:
        pytest.skip("no replay script of recorded exchanges (set KUBELOOP_ORACLE)")
    return script


@pytest.fixture(scope="module")
def real(tmp_path_factory) -> Any:
    needs_binaries()
    flags = {"service-cluster-ip-range": "10.0.0.0/24", "disable-admission-plugins": DISABLED_PLUGINS}
    with real_apiserver(tmp_path_factory.mktemp("real"), flags=flags) as kubernetes:
        yield kubernetes.url, ADMIN_TOKEN


@pytest.fixture
async def ours(tmp_path) -> AsyncIterator[Server]:
    async with running_apiserver(bare_apiserver_command(tmp_path, disabled_plugins=DISABLED_PLUGINS)) as (_, url):
        yield url, TOKEN


async def run(script: ModuleType, server: Server, scenarios: list[JSON], *, record: bool) -> list[Any]:
    """Return (problems, scenario with the recorded responses) for each scenario."""
    url, token = server
    async with script.Runner(url, token=token) as runner:
        semaphore = asyncio.Semaphore(CONCURRENT_SEQUENCES)

        async def run_one(scenario: JSON) -> Any:
            async with semaphore:
                return await runner.run(scenario, record=record)

        return await asyncio.gather(*map(run_one, scenarios))


@pytest.mark.parametrize("topic", sorted(path.stem for path in FOLDER.glob("*.yaml")))
async def test_sequences_match_kube_apiserver(topic: str, script: ModuleType, real: Server, ours: Server):
    scenarios = list(sequences(topic))
    recorded = [scenario for problems, scenario in await run(script, real, scenarios, record=True) if not problems]
    different = []
    for scenario, (problems, _) in zip(recorded, await run(script, ours, recorded, record=False), strict=True):
        if problems:
            different.append((scenario, problems))
    repeated = await run(script, real, [scenario for scenario, _ in different], record=False)
    reproducible = [not problems for problems, _ in repeated]
    report = [
        f"{scenario['name']}: {problems[:4]}"
        for (scenario, problems), is_reproducible in zip(different, reproducible, strict=True)
        if is_reproducible
    ]
    assert not report, f"{len(report)} of {len(recorded)}:\n" + "\n".join(report)
    assert len(recorded) > 20
    assert reproducible.count(False) < 3, "kube-apiserver responds differently each time"
