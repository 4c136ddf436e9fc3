"""Resource quotas in a complete cluster, in memory and virtual time."""

from __future__ import annotations

import pytest

from kubeloop.kube.objects.resources import PODS, RESOURCE_QUOTAS
from kubeloop.testing.in_memory import memory_cluster
from kubeloop.testing.virtual_time import VirtualClock
from support.objects.manifests import deployment

pytestmark = pytest.mark.virtual_time

QUOTA = {
    "apiVersion": "v1",
    "kind": "ResourceQuota",
    "metadata": {"name": "q"},
    "spec": {"hard": {"pods": "2", "requests.cpu": "1"}},
}


async def test_deleted_pods_are_replaced_within_the_quota(clock: VirtualClock):
    async with memory_cluster(nodes=2, clock=clock) as api:
        await api.apply(QUOTA)
        await api.apply(deployment(replicas=2, cpu="100m"))
        await api.wait_for("deployment/web", "complete")
        before = {pod["metadata"]["uid"] for pod in api.api.store.list(PODS)}
        await api.client.delete_collection(PODS, "default")
        await api.until(lambda: not before & {pod["metadata"]["uid"] for pod in api.api.store.list(PODS)})
        await api.wait_for("deployment/web", "complete")
        assert len(api.api.store.list(PODS)) == 2
        (quota,) = api.api.store.list(RESOURCE_QUOTAS)
        assert quota["status"] == {"hard": QUOTA["spec"]["hard"], "used": {"pods": "2", "requests.cpu": "200m"}}


async def test_missing_pods_are_created_after_the_quota_grows(clock: VirtualClock):
    async with memory_cluster(nodes=2, clock=clock) as api:
        await api.apply(QUOTA)
        await api.apply(deployment(replicas=4, cpu="100m"))
        await api.until(lambda: len(api.seen_pods()) == 2)
        await api.apply({**QUOTA, "spec": {"hard": {"pods": "3", "requests.cpu": "1"}}})
        await api.until(lambda: len(api.seen_pods()) == 3)
        await api.apply(deployment(replicas=1, cpu="100m"))
        await api.wait_for("deployment/web", "complete")
        await api.until(lambda: api.api.store.list(RESOURCE_QUOTAS)[0]["status"]["used"]["pods"] == "1")
