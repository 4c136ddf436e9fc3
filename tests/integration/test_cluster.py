"""A complete cluster in memory and virtual time, from manifests to pods."""

from __future__ import annotations

import asyncio
import random
from typing import Any

import pytest

from kubeloop.devcluster.storage.store import Change
from kubeloop.kube.client.api_client import PatchType
from kubeloop.kube.errors import NotFound
from kubeloop.kube.objects.resources import DEPLOYMENTS, NAMESPACES, NODES, PODS, REPLICA_SETS
from kubeloop.testing import virtual_time
from kubeloop.testing.in_memory import MemoryCluster, memory_cluster
from kubeloop.testing.operations import WaitFailed
from kubeloop.testing.virtual_time import VirtualClock
from support.objects.manifests import deployment
from support.processes.cli_processes import WEB

pytestmark = pytest.mark.virtual_time


def node(name: str, labels: dict[str, str]) -> dict[str, Any]:
    capacity = {"cpu": "4", "memory": "8Gi", "pods": "10"}
    ready = {"type": "Ready", "status": "True", "reason": "KubeletReady", "message": ""}
    return {
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {"name": name, "labels": labels},
        "status": {"capacity": capacity, "allocatable": capacity, "conditions": [ready]},
    }


def images(api: MemoryCluster) -> list[str]:
    return sorted(pod.spec.containers[0].image for pod in api.seen_pods())


async def test_example_completes_with_a_trace_for_each_pod(clock: VirtualClock):
    async with memory_cluster(nodes=3, clock=clock) as api:
        await api.apply(WEB)
        web = await api.wait_for("deployment/web", "complete")
        assert web["status"]["availableReplicas"] == web["spec"]["replicas"] == len(api.seen_pods())
        assert {pod.spec.node_name for pod in api.seen_pods()} == {node.metadata.name for node in api.seen_nodes()}
        for pod in api.seen_pods():
            trace = await api.trace(pod)
            assert trace is not None
            assert pod.metadata.annotations["tracing.k8s.io/traceparent"].split("-")[1] == trace["traceId"]


def test_memory_cluster_in_real_time():
    async def main() -> None:
        async with memory_cluster(nodes=1) as api:
            await api.apply(deployment(replicas=1))
            assert (await api.wait_for("deployment/web", "complete"))["status"]["availableReplicas"] == 1

    asyncio.run(main())


@pytest.mark.parametrize("replicas", [0, 2, 7])
async def test_scaling_ends_with_the_desired_number_of_pods(clock: VirtualClock, replicas: int):
    async with memory_cluster(clock=clock) as api:
        await api.apply(deployment(replicas=3))
        await api.wait_for("deployment/web", "complete")
        patch = {"spec": {"replicas": replicas}}
        await api.client.patch(DEPLOYMENTS, "web", patch, PatchType.MERGE, "default", subresource="scale")
        await api.until(lambda: len(api.seen_pods()) == replicas)
        await api.wait_for("deployment/web", "complete")
        assert len(api.seen_pods()) == replicas


async def test_rollout_replaces_all_pods_within_max_unavailable(clock: VirtualClock):
    async with memory_cluster(clock=clock) as api:
        await api.apply(deployment(replicas=4, image="app:1"))
        await api.wait_for("deployment/web", "complete")
        fewest = 4

        def replaced() -> bool:
            nonlocal fewest
            web = api.seen_deployment("web")
            assert web is not None
            fewest = min(fewest, web.status.available_replicas)
            return images(api) == ["app:2"] * 4

        assert await api.apply(deployment(replicas=4, image="app:2")) == ["deployment.apps/web configured"]
        await api.until(replaced)
        web = await api.wait_for("deployment/web", "complete")
        assert web["metadata"]["annotations"]["deployment.kubernetes.io/revision"] == "2"
        assert fewest >= 3
        assert len(api.plane.informers.informer(REPLICA_SETS).store) == 2


async def test_stuck_rollout_exceeds_its_progress_deadline(clock: VirtualClock):
    async with memory_cluster(clock=clock) as api:
        stuck = deployment(image="app:1")
        stuck["spec"]["template"]["metadata"]["annotations"] = {"kubeloop.dev/not-ready": "true"}
        await api.apply(stuck)

        def reason() -> str:
            web = api.seen_deployment("web")
            conditions = web.status.conditions if web is not None else []
            return next((condition.reason for condition in conditions if condition.type == "Progressing"), "")

        started = asyncio.get_running_loop().time()
        await api.until(lambda: reason() == "ProgressDeadlineExceeded", timeout=700.0)
        assert 600.0 <= asyncio.get_running_loop().time() - started < 605.0
        with pytest.raises(WaitFailed, match=r"web in default: will not be complete: ProgressDeadlineExceeded"):
            await api.wait_for("deployment/web", "complete")


async def test_unschedulable_pod_is_bound_after_a_node_is_added(clock: VirtualClock):
    async with memory_cluster(nodes=2, clock=clock) as api:
        await api.apply(deployment(replicas=1, nodeSelector={"disk": "ssd"}))

        def message() -> str:
            conditions = [condition for pod in api.seen_pods() for condition in pod.status.conditions]
            return next((condition.message for condition in conditions if condition.type == "PodScheduled"), "")

        await api.until(lambda: message() != "")
        assert message().startswith("0/2 nodes are available: 2 node(s) didn't match Pod's node affinity/selector.")
        with pytest.raises(TimeoutError, match="node affinity/selector"):
            await api.wait_for("deployment/web", "complete", 60.0)
        await api.client.create(NODES, node("with-ssd", {"disk": "ssd"}))
        await api.until(lambda: [pod.spec.node_name for pod in api.seen_pods()] == ["with-ssd"])


async def test_deployment_deletion_deletes_replica_sets_and_pods(clock: VirtualClock):
    async with memory_cluster(clock=clock) as api:
        await api.apply(deployment("web"), deployment("stays"))
        await api.wait_for("deployment/web", "complete")
        await api.wait_for("deployment/stays", "complete")
        await api.client.delete(DEPLOYMENTS, "web", "default", propagation_policy="Background")
        await api.until(lambda: {pod.metadata.labels["app"] for pod in api.seen_pods()} == {"stays"}, timeout=90.0)
        remaining = await api.client.list_all(REPLICA_SETS)
        assert [replica_set.metadata.labels["app"] for replica_set in remaining.items] == ["stays"]
        assert len(api.seen_pods()) == 3


async def test_namespace_deletion_deletes_its_contents(clock: VirtualClock):
    async with memory_cluster(clock=clock) as api:
        web = deployment()
        web["metadata"]["namespace"] = "shop"
        await api.apply({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "shop"}}, web)
        await api.wait_for("deployment/web", "complete", namespace="shop")
        await api.client.delete(NAMESPACES, "shop")
        await api.until(
            lambda: api.seen_pods("shop") == [] and api.seen_deployment("web", "shop") is None, timeout=90.0
        )

        async def is_deleted() -> bool:
            try:
                await api.client.get(NAMESPACES, "shop")
            except NotFound:
                return True
            return False

        async with asyncio.timeout(90.0):
            while not await is_deleted():
                await asyncio.sleep(0.5)
        assert (await api.client.list_all(PODS, "shop")).items == []


async def test_exception_in_the_context_is_raised(clock: VirtualClock):
    with pytest.raises(ExceptionGroup) as raised:
        async with memory_cluster(clock=clock) as api:
            raise ZeroDivisionError(api.seen_nodes())
    assert raised.group_contains(ZeroDivisionError)


def writes_of_rollout(seed: int) -> list[tuple[float, str, str, int]]:
    """Return every write of a rollout: time, type, object key and revision."""
    writes: list[tuple[float, str, str, int]] = []

    async def main() -> None:
        async with memory_cluster(nodes=4, clock=VirtualClock(), seed=seed) as api:
            loop = asyncio.get_running_loop()

            def record(change: Change) -> None:
                writes.append((loop.time(), change.type, change.now.key, change.revision))

            for resource in (DEPLOYMENTS, REPLICA_SETS, PODS):
                api.api.store.subscribe(resource, record)
            await api.apply(deployment(replicas=8, image="app:1"))
            await api.wait_for("deployment/web", "complete")
            await api.apply(deployment(replicas=8, image="app:2"))
            await api.until(lambda: images(api) == ["app:2"] * 8)

    virtual_time.run(main())
    return writes


@pytest.mark.parametrize("seed", [random.Random(5).getrandbits(32)])
def test_runs_are_reproducible_by_seed(seed: int):
    first = writes_of_rollout(seed)
    assert len(first) > 100
    assert writes_of_rollout(seed) == first
    assert writes_of_rollout(seed + 1) != first
