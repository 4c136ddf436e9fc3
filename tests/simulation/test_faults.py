"""Rollouts with an API server that injects faults, in virtual time: they end with exactly the desired Pods."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Awaitable, Callable

import pytest
from msgspec.structs import asdict, replace

from kubeloop.devcluster.server.faults import Faults
from kubeloop.devcluster.storage.store import Change
from kubeloop.kube.errors import ApiError, ServerUnreachable
from kubeloop.kube.objects.resources import DEPLOYMENTS, PODS
from kubeloop.kube.user_error import UserError
from kubeloop.testing import virtual_time
from kubeloop.testing.in_memory import MemoryCluster, memory_cluster
from kubeloop.testing.virtual_time import VirtualClock
from support.objects.manifests import deployment

FAULTS = Faults(error=0.02, throttle=0.01, conflict=0.02, silence=0.002, lost_answer=0.01, drop_watch=0.05)
HEAVY_FAULTS = Faults(error=0.1, throttle=0.1, conflict=0.1, silence=0.05, lost_answer=0.1, drop_watch=0.2)
TRACEPARENT_ANNOTATION = "tracing.k8s.io/traceparent"


class Bindings:
    """Node of every pod on the API server, from its first write on. Asserts that no pod changes its node."""

    def __init__(self) -> None:
        self.node_of: dict[str, str] = {}

    def record(self, change: Change) -> None:
        pod = change.now.object
        uid, node = pod["metadata"]["uid"], pod["spec"].get("nodeName", "")
        before = self.node_of.get(uid, "")
        assert before in ("", node), f"{change.now.key} moved from {before} to {node}"
        self.node_of[uid] = node


async def retry_until_success(call: Callable[[], Awaitable[object]]) -> None:
    while True:
        try:
            await call()
            return
        except (ApiError, ServerUnreachable, UserError):
            await asyncio.sleep(0.5)


async def roll_out(api: MemoryCluster, replicas: int, image: str, limit_seconds: float) -> None:
    """Apply the Deployment, and wait until exactly its pods exist and are available, as stored on the server."""
    await retry_until_success(lambda: api.apply(deployment(replicas=replicas, image=image, cpu="10m")))

    def is_rolled_out() -> bool:
        pods = api.api.store.list(PODS)
        (web,) = api.api.store.list(DEPLOYMENTS)
        status = web.get("status", {})
        updated = [pod for pod in pods if pod["spec"]["containers"][0]["image"] == image]
        return (
            len(pods) == len(updated) == status.get("availableReplicas") == status.get("updatedReplicas") == replicas
            and status["observedGeneration"] == web["metadata"]["generation"]
        )

    try:
        await api.until(is_rolled_out, timeout=limit_seconds)
    except TimeoutError:
        states = Counter(
            (pod["spec"]["containers"][0]["image"], pod["status"]["phase"], bool(pod["spec"].get("nodeName")))
            for pod in api.api.store.list(PODS)
        )
        (web,) = api.api.store.list(DEPLOYMENTS)
        pytest.fail(f"{image} not rolled out within {limit_seconds:g} s: {states}, {web.get('status')}")
    # The state is stable: no component acts on a stale cache.
    await asyncio.sleep(30.0)
    assert is_rolled_out()


def simulate(faults: Faults, seed: int, replicas: int, limit_seconds: float) -> None:
    async def main() -> None:
        async with memory_cluster(
            nodes=10, clock=VirtualClock(), seed=seed, faults=asdict(replace(faults, seed=seed))
        ) as api:
            bindings = Bindings()
            api.api.store.subscribe(PODS, bindings.record)
            await roll_out(api, replicas, "app:1", limit_seconds)
            await roll_out(api, replicas, "app:2", limit_seconds)
            for pod in api.api.store.list(PODS):
                assert bindings.node_of[pod["metadata"]["uid"]]
                assert pod["metadata"]["annotations"][TRACEPARENT_ANNOTATION]

    virtual_time.run(main())


@pytest.mark.parametrize("seed", range(10))
def test_rollout_with_api_faults_finishes_within_a_minute(seed: int):
    simulate(FAULTS, seed, replicas=60, limit_seconds=60.0)


@pytest.mark.parametrize("seed", range(3))
def test_large_rollout_with_api_faults_finishes_within_a_minute(seed: int):
    simulate(FAULTS, seed, replicas=500, limit_seconds=60.0)


@pytest.mark.parametrize("seed", range(10))
def test_rollout_finishes_when_a_third_of_requests_fails(seed: int):
    simulate(HEAVY_FAULTS, seed, replicas=20, limit_seconds=3600.0)
