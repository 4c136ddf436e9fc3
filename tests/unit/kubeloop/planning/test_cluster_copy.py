"""The copy of a cluster has its objects, and no other that decides about pods."""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime

from kubeloop.kube.objects.resources import EVENTS, NODES, PODS, RESOURCE_QUOTAS, STORAGE_CLASSES
from kubeloop.planning.cluster_copy import prepared, running_copy
from kubeloop.planning.workloads import is_pending
from kubeloop.recording.changes import ClusterState
from kubeloop.testing.virtual_time import run
from support.objects.planned_clusters import (
    add_deployment,
    add_node,
    add_pod,
    bare_pod,
    deployment,
    new_state,
    pod_template,
)


def test_copy_has_no_storage_class_that_the_cluster_does_not_have():
    async def classes() -> list[str]:
        state = ClusterState(datetime(2026, 1, 1, tzinfo=UTC))
        async with running_copy(state, configuration=None, pod_markers=lambda pod: {}) as copy:
            await asyncio.sleep(10.0)
            return sorted(copy.objects(STORAGE_CLASSES))

    assert run(classes()) == []


def test_copy_records_only_events_that_the_result_is_read_from():
    async def reasons() -> set[str]:
        state = new_state()
        add_node(state, "a-1")
        add_deployment(state, deployment(replicas=2), ["a-1"])  # one pod of two
        add_pod(state, bare_pod("large"), pod_template(cpu="50")["spec"], "")
        quota = {
            "apiVersion": "v1",
            "kind": "ResourceQuota",
            "metadata": {"name": "q", "namespace": "shop", "uid": "q"},
        }
        state.put(RESOURCE_QUOTAS, {**quota, "spec": {"hard": {"pods": "1"}}, "status": {"hard": {"pods": "1"}}})
        prepared_state, _ = prepared(state, "shop")
        async with running_copy(prepared_state, configuration=None, pod_markers=lambda pod: {}) as copy:
            await asyncio.sleep(60.0)
            assert any(is_pending(pod) for pod in copy.objects(PODS).values())
            return {event["reason"] for event in copy.objects(EVENTS).values()}

    assert run(reasons()) == {"FailedCreate"}


def test_messages_and_counted_bindings_are_not_stored():
    async def states() -> None:
        state = new_state()
        add_node(state, "a-1")
        for name, cpu in (("small", "1"), ("large", "50")):
            add_pod(state, bare_pod(name), pod_template(cpu=cpu)["spec"], "")
        prepared_state, _ = prepared(state, "shop")
        async with running_copy(prepared_state, configuration=None, pod_markers=lambda pod: {}) as copy:
            await asyncio.sleep(60.0)
            writes, pod = copy.scheduler_writes, copy.objects(PODS)["shop/large"]
            uid = pod["metadata"]["uid"]
            assert writes.messages.keys() == {uid}
            assert "0/1 nodes are available: 1 Insufficient cpu." in writes.messages[uid]
            assert "conditions" not in pod.get("status", {})
            assert copy.objects(PODS)["shop/small"]["spec"]["nodeName"] == "a-1"
            writes.counts_only = True
            node = copy.objects(NODES)["a-1"]
            sizes = {field: {**node["status"][field], "cpu": "64"} for field in ("capacity", "allocatable")}
            metadata = {"name": "large", "uid": "n", "labels": {"kubernetes.io/hostname": "large"}}
            copy.store.create(NODES, {**node, "metadata": metadata, "status": sizes})
            await asyncio.sleep(60.0)
            assert writes.placed == {uid}
            assert is_pending(copy.objects(PODS)["shop/large"])

    run(states())
