"""Resource quotas under churn, with and without injected faults, in virtual time."""

from __future__ import annotations

import asyncio
import random
from contextlib import suppress

import pytest

from kubeloop.kube.client.api_client import PatchType
from kubeloop.kube.errors import NotFound
from kubeloop.kube.objects.resources import DEPLOYMENTS, PODS, RESOURCE_QUOTAS
from kubeloop.testing import virtual_time
from kubeloop.testing.in_memory import MemoryCluster, memory_cluster
from kubeloop.testing.virtual_time import VirtualClock
from support.objects.manifests import deployment

FAULTS = {"error": 0.02, "throttle": 0.01, "conflict": 0.05, "silence": 0.002, "lost_answer": 0.01, "drop_watch": 0.05}
QUOTA = {
    "apiVersion": "v1",
    "kind": "ResourceQuota",
    "metadata": {"name": "q"},
    "spec": {"hard": {"pods": "12", "requests.cpu": "1"}},
}


async def churn(api: MemoryCluster, rng: random.Random, rounds: int) -> int:
    """Scale and delete Pods at random; returns the last spec.replicas."""
    replicas = 5
    for _ in range(rounds):
        await asyncio.sleep(rng.random() * 3)
        if rng.random() < 0.5:
            replicas = rng.randrange(20)
            body = {"spec": {"replicas": replicas}}
            await api.client.patch(DEPLOYMENTS, "web", body, PatchType.MERGE, "default", subresource="scale")
            continue
        for pod in api.api.store.list(PODS):
            if rng.random() < 0.5:
                with suppress(NotFound):
                    await api.client.delete(PODS, pod["metadata"]["name"], "default")
    return replicas


@pytest.mark.parametrize("faults", [pytest.param({}, id="no faults"), pytest.param(FAULTS, id="faults")])
@pytest.mark.parametrize("seed", range(4))
def test_quota_usage_is_exact_after_churn(faults: dict[str, float], seed: int):
    async def main() -> None:
        settings = {**faults, "seed": seed} if faults else {}
        async with memory_cluster(nodes=3, clock=VirtualClock(), seed=seed, faults=settings) as api:
            await api.apply(QUOTA)
            await api.apply(deployment(replicas=5, cpu="50m"))
            replicas = await churn(api, random.Random(seed), rounds=20)
            # Creates that the quota rejected are retried after at most 1000 s.
            await asyncio.sleep(1500)
            pods = api.api.store.list(PODS)
            (quota,) = api.api.store.list(RESOURCE_QUOTAS)
            cpu = f"{50 * len(pods)}m" if pods else "0"
            assert quota["status"]["used"] == {"pods": str(len(pods)), "requests.cpu": cpu}
            assert len(pods) == min(replicas, 12)

    virtual_time.run(main())


@pytest.mark.parametrize("seed", range(20))
def test_quota_usage_is_too_low_for_at_most_two_seconds(seed: int):
    """Admission and controller both write the usage; neither may overwrite the other for long."""

    async def main() -> None:
        async with memory_cluster(nodes=3, clock=VirtualClock(), seed=seed) as api:
            await api.apply(QUOTA)
            await api.apply(deployment(replicas=10, cpu="50m"))
            await churn(api, random.Random(seed), rounds=10)
            await asyncio.sleep(2)
            (quota,) = api.api.store.list(RESOURCE_QUOTAS)
            assert int(quota["status"]["used"]["pods"]) >= len(api.api.store.list(PODS))

    virtual_time.run(main())
