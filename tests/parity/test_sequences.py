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
from support.objects.token_volumes import masked_token_volumes

JSON = dict[str, Any]
Server = tuple[str, str]
"""URL and token."""
CONCURRENT_SEQUENCES = 24


@pytest.fixture(scope="module")
def script() -> ModuleType:
    script = replay_script()
    if script is None:
        pytest.skip("no replay script of recorded exchanges (set KUBELOOP_ORACLE)")
    context: Any = script.Ctx  # normalizes responses

    class MaskingContext(context):
        """Masks the random names of token volumes, also where a pod that was read and updated owns them."""

        def text(self, text: str) -> Any:
            return masked_token_volumes(super().text(text))  # which first cuts off differences of pods

        def norm(self, value: Any, key: str | None = None) -> Any:
            normalized = super().norm(value, key)
            return masked_token_volumes(normalized) if key is None else normalized

    vars(script)["Ctx"] = MaskingContext
    return script


@pytest.fixture(scope="module")
def real(tmp_path_factory) -> Any:
    needs_binaries()
    with real_apiserver(tmp_path_factory.mktemp("real")) as kubernetes:
        yield kubernetes.url, ADMIN_TOKEN


@pytest.fixture
async def ours(tmp_path) -> AsyncIterator[Server]:
    async with running_apiserver(bare_apiserver_command(tmp_path)) as (_, url):
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
