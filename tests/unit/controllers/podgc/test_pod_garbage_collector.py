"""Pod garbage collector: requests, quarantine of missing nodes, and retries."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from msgspec import structs

from kubeloop.controllers.podgc.pod_garbage_collector import PodGarbageCollector
from kubeloop.devcluster.api import errors
from kubeloop.kube.objects.resources import NODES, PODS
from support.apiserver.faulty_transport import SentRequest

pytestmark = pytest.mark.virtual_time
JSON = dict[str, Any]


@pytest.fixture
async def collector(fake_apiserver, start) -> PodGarbageCollector:
    fake_apiserver.add(NODES, "node-0")
    context = structs.replace(fake_apiserver.context, options={"terminated_pod_gc_threshold": 2})
    collector = PodGarbageCollector(context)
    await start(fake_apiserver.informers, collector)
    return collector


def bind(server: Any, name: str, node: str = "node-0", **status: Any) -> None:
    server.add(PODS, name)
    pod = server.store.get(PODS, "ns", name)
    bound = {**pod, "spec": {**pod["spec"], "nodeName": node}, "status": {**pod["status"], **status}}
    server.store.update(PODS, bound)


async def test_pod_of_a_deleted_node_fails_and_is_deleted_after_the_quarantine(fake_apiserver, collector):
    phases = []
    fake_apiserver.store.subscribe(PODS, lambda change: phases.append(change.now.object["status"]["phase"]))
    bind(fake_apiserver, "web", phase="Running")
    await asyncio.sleep(5)
    fake_apiserver.store.delete(NODES, "", "node-0")
    await asyncio.sleep(39)
    assert fake_apiserver.names(PODS) == ["web"]
    await asyncio.sleep(2)
    assert fake_apiserver.names(PODS) == []
    assert "Failed" in phases


async def test_failed_pod_with_finalizer_has_a_disruption_target(fake_apiserver, collector):
    fake_apiserver.add(PODS, "web", finalizers=["example.com/hold"])
    pod = fake_apiserver.store.get(PODS, "ns", "web")
    fake_apiserver.store.update(PODS, {**pod, "spec": {**pod["spec"], "nodeName": "gone"}})
    await asyncio.sleep(120)
    pod = fake_apiserver.store.get(PODS, "ns", "web")
    assert pod["metadata"]["deletionGracePeriodSeconds"] == 0
    assert pod["status"]["phase"] == "Failed"
    (condition,) = [it for it in pod["status"]["conditions"] if it["type"] == "DisruptionTarget"]
    assert (condition["status"], condition["reason"]) == ("True", "DeletionByPodGC")
    assert condition["message"] == "PodGC: node no longer exists"


async def test_node_that_is_created_again_ends_the_quarantine(fake_apiserver, collector):
    bind(fake_apiserver, "web", phase="Running")
    await asyncio.sleep(1)
    fake_apiserver.store.delete(NODES, "", "node-0")
    await asyncio.sleep(30)
    fake_apiserver.add(NODES, "node-0")
    await asyncio.sleep(300)
    assert fake_apiserver.names(PODS) == ["web"]


async def test_surplus_of_terminated_pods_is_deleted(fake_apiserver, collector):
    for name in ("a", "b", "c", "d"):
        bind(fake_apiserver, name, phase="Succeeded")
    await asyncio.sleep(21)
    assert len(fake_apiserver.names(PODS)) == 2


async def test_deletion_of_a_pod_that_is_gone_succeeds(fake_apiserver, collector):
    def delete_first(request: SentRequest) -> None:
        if request.method == "DELETE":
            fake_apiserver.store.delete(PODS, "ns", request.path.rpartition("/")[2])

    fake_apiserver.transport.on_send = delete_first
    for name in ("a", "b", "c"):
        bind(fake_apiserver, name, phase="Succeeded")
    await asyncio.sleep(21)
    assert len(fake_apiserver.names(PODS)) == 2
    values = fake_apiserver.metrics.values("pod_gc_collector_force_delete_")
    assert [value for name, value in values.items() if name.startswith("pods_total")] == [1]
    assert not any(value for name, value in values.items() if name.startswith("pod_errors_total"))


async def test_failed_deletion_is_retried_by_the_next_check(fake_apiserver, collector):
    def reject(method: str, path: str) -> errors.StatusError | None:
        return errors.forbidden(PODS, "", "no") if method == "DELETE" else None

    fake_apiserver.transport.reject = reject
    for name in ("a", "b", "c"):
        bind(fake_apiserver, name, phase="Succeeded")
    await asyncio.sleep(50)
    assert len(fake_apiserver.names(PODS)) == 3
    fake_apiserver.transport.reject = lambda method, path: None
    await asyncio.sleep(21)
    assert len(fake_apiserver.names(PODS)) == 2


async def test_deletions_and_their_errors_are_counted(fake_apiserver, collector):
    fake_apiserver.transport.reject = lambda method, path: (
        errors.forbidden(PODS, "", "no") if method == "DELETE" and path.endswith("/refused") else None
    )
    for name in ("a", "b", "c", "refused"):
        bind(fake_apiserver, name, phase="Failed" if name == "refused" else "Succeeded", reason="Evicted")
    bind(fake_apiserver, "orphan", node="missing", phase="Running")
    await asyncio.sleep(75)
    values = fake_apiserver.metrics.values("pod_gc_collector_force_delete_")
    assert values["pods_total,ns,orphaned"] == 1
    assert values["pods_total,ns,terminated"] == values["pod_errors_total,ns,terminated"] + 1 >= 3
    assert "pod_errors_total,ns,orphaned" not in values
