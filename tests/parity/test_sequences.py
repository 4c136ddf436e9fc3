"""The same sequences of requests to a real kube-apiserver and to ours, watches among them: the same answers.

Where they differ, the real server is asked again: what it does not answer alike itself is no difference.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from types import ModuleType
from typing import Any

import pytest

from support.apiserver_process import TOKEN, running_apiserver
from support.real_apiserver import ADMIN_TOKEN, needs_binaries, real_apiserver
from support.sequences import FOLDER, replay_script, sequences

JSON = dict[str, Any]
Server = tuple[str, str]
"""URL and token."""
AT_ONCE = 24


@pytest.fixture(scope="module")
def script() -> ModuleType:
    found = replay_script()
    if found is None:
        pytest.skip("no replay script of recorded exchanges (set KUBELOOP_ORACLE)")
    return found


@pytest.fixture(scope="module")
def real(tmp_path_factory) -> Any:
    needs_binaries()
    flags = {"service-cluster-ip-range": "10.0.0.0/24"}
    with real_apiserver(tmp_path_factory.mktemp("real"), flags=flags) as kubernetes:
        yield kubernetes.url, ADMIN_TOKEN


@pytest.fixture
async def ours(tmp_path) -> AsyncIterator[Server]:
    async with running_apiserver(tmp_path) as (_, url):
        yield url, TOKEN


async def run(script: ModuleType, server: Server, scenarios: list[JSON], *, record: bool) -> list[Any]:
    """(problems, the scenario with its answers) of each."""
    url, token = server
    async with script.Runner(url, token=token) as runner:
        some = asyncio.Semaphore(AT_ONCE)

        async def one(scenario: JSON) -> Any:
            async with some:
                return await runner.run(scenario, record=record)

        return await asyncio.gather(*map(one, scenarios))


@pytest.mark.parametrize("topic", sorted(path.stem for path in FOLDER.glob("*.yaml")))
async def test_sequences_are_answered_alike(topic: str, script: ModuleType, real: Server, ours: Server):
    recorded = [each for problems, each in await run(script, real, list(sequences(topic)), record=True) if not problems]
    differing = []
    for scenario, (problems, _) in zip(recorded, await run(script, ours, recorded, record=False), strict=True):
        if problems:
            differing.append((scenario, problems))
    again = await run(script, real, [scenario for scenario, _ in differing], record=False)
    same = [not problems for problems, _ in again]
    told = [
        f"{each['name']}: {problems[:4]}" for (each, problems), is_same in zip(differing, same, strict=True) if is_same
    ]
    assert not told, f"{len(told)} of {len(recorded)}:\n" + "\n".join(told)
    assert len(recorded) > 20
    assert same.count(False) < 3, "the real server does not answer these alike itself"
