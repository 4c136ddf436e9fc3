"""PodSecurity levels of a namespace in a complete cluster, in memory and virtual time."""

from __future__ import annotations

from typing import Any

import pytest

from kubeloop.kube.objects.resources import EVENTS, PODS, REPLICA_SETS
from kubeloop.testing.in_memory import memory_cluster
from kubeloop.testing.operations import ServerWarning
from kubeloop.testing.virtual_time import VirtualClock
from support.objects.manifests import deployment

pytestmark = pytest.mark.virtual_time


def namespace(level: str) -> dict[str, Any]:
    labels = {"pod-security.kubernetes.io/enforce": level}
    return {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "default", "labels": labels}}


async def test_pods_are_created_after_the_level_is_relaxed(clock: VirtualClock):
    async with memory_cluster(nodes=1, clock=clock) as api:
        store = api.api.store
        await api.apply(namespace("restricted"))
        with pytest.warns(ServerWarning, match="would violate PodSecurity"):
            await api.apply(deployment(replicas=2, cpu="100m"))
        await api.until(lambda: any(event["reason"] == "FailedCreate" for event in store.list(EVENTS)))
        await api.until(lambda: bool(store.list(REPLICA_SETS)[0]["status"].get("conditions")))
        assert store.list(PODS) == []
        (condition,) = store.list(REPLICA_SETS)[0]["status"]["conditions"]
        assert (condition["type"], condition["reason"]) == ("ReplicaFailure", "FailedCreate")
        assert 'is forbidden: violates PodSecurity "restricted:latest": allowPriv' in condition["message"]
        await api.apply(namespace("privileged"))
        await api.wait_for("deployment/web", "complete")
        assert len(store.list(PODS)) == 2
        await api.until(lambda: not store.list(REPLICA_SETS)[0]["status"].get("conditions"))
