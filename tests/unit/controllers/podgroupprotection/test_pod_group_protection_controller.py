"""PodGroup protection: a deleted PodGroup stays until its Pods have terminated."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from kubeloop.controllers.api.runner import new_controller
from kubeloop.controllers.podgroupprotection.pod_group_protection_controller import (
    PodGroupProtectionController,
    active_group_keys,
)
from kubeloop.kube.objects.api_types import Pod, convert
from kubeloop.kube.objects.resources import POD_GROUPS, PODS

pytestmark = pytest.mark.virtual_time
MERGE_PATCH = "application/merge-patch+json"


@pytest.mark.parametrize(
    ("spec", "phase", "keys"),
    [
        ({"schedulingGroup": {"podGroupName": "gang"}}, "Running", ["ns/gang"]),
        ({"schedulingGroup": {"podGroupName": "gang"}}, "Succeeded", []),
        ({"schedulingGroup": {"podGroupName": "gang"}}, "Failed", []),
        ({"schedulingGroup": {}}, "Running", []),
        ({}, "Pending", []),
    ],
    ids=["running", "succeeded", "failed", "no name", "no group"],
)
def test_index_has_active_pods_with_a_group(spec: dict[str, Any], phase: str, keys: list[str]):
    pod = convert(Pod, {"metadata": {"name": "p", "namespace": "ns"}, "spec": spec, "status": {"phase": phase}})
    assert list(active_group_keys(pod)) == keys


def create_group_with_pods(server, *pods: str) -> None:
    policy = {"schedulingPolicy": {"gang": {"minCount": 2}}}
    server.api.create(POD_GROUPS.path("ns"), {"metadata": {"name": "gang"}, "spec": policy})
    for name in pods:
        spec = {"containers": [{"name": "c", "image": "i"}], "schedulingGroup": {"podGroupName": "gang"}}
        server.api.create(PODS.path("ns"), {"metadata": {"name": name}, "spec": spec})


async def test_deleted_group_stays_until_its_last_pod_has_terminated(gang_apiserver, start):
    await start(gang_apiserver.informers, new_controller(PodGroupProtectionController, gang_apiserver.context))
    create_group_with_pods(gang_apiserver, "a", "b")
    await asyncio.sleep(1)
    gang_apiserver.delete(POD_GROUPS, "gang")
    gang_apiserver.store.delete(PODS, "ns", "a")
    await asyncio.sleep(1)
    assert gang_apiserver.names(POD_GROUPS) == ["gang"]
    status = {"status": {"phase": "Succeeded"}}
    gang_apiserver.api.succeed("PATCH", PODS.path("ns", "b", "status"), status, MERGE_PATCH)
    await asyncio.sleep(1)
    assert gang_apiserver.names(POD_GROUPS) == []


async def test_deleted_group_without_pods_is_removed(gang_apiserver, start):
    create_group_with_pods(gang_apiserver)
    gang_apiserver.delete(POD_GROUPS, "gang")
    await start(gang_apiserver.informers, new_controller(PodGroupProtectionController, gang_apiserver.context))
    assert gang_apiserver.names(POD_GROUPS) == []


async def test_group_of_a_pod_that_was_replaced_between_two_events_is_removed(gang_apiserver, start):
    await start(gang_apiserver.informers, new_controller(PodGroupProtectionController, gang_apiserver.context))
    create_group_with_pods(gang_apiserver, "a")
    await asyncio.sleep(1)
    gang_apiserver.delete(POD_GROUPS, "gang")
    gang_apiserver.transport.break_watches("pods")
    gang_apiserver.store.delete(PODS, "ns", "a")
    body = {"metadata": {"name": "a"}, "spec": {"containers": [{"name": "c", "image": "i"}]}}
    gang_apiserver.api.create(PODS.path("ns"), body)
    await asyncio.sleep(60)
    assert gang_apiserver.names(POD_GROUPS) == []
