"""Pods of a group that share one ResourceClaim in a whole cluster, and explanations of claims that they cannot get."""

from __future__ import annotations

from typing import Any

import pytest

from kubeloop.kube.objects.resources import POD_GROUPS, PODS, RESOURCE_CLAIMS
from kubeloop.testing.in_memory import MemoryCluster, memory_cluster
from support.objects.devices import device_class, request

JSON = dict[str, Any]
BY_TEMPLATE: JSON = {"name": "gpu", "resourceClaimTemplateName": "gpus"}
BY_NAME: JSON = {"name": "gpu", "resourceClaimName": "c"}
DEVICES = """
- driver: gpu.example.com
  devices: [{name: gpu, count: 2}]
"""

pytestmark = pytest.mark.virtual_time


def group(claim: JSON, **spec: Any) -> JSON:
    policy = {"gang": {"minCount": 3}}
    return {
        "apiVersion": "scheduling.k8s.io/v1alpha2",
        "kind": "PodGroup",
        "metadata": {"name": "g"},
        "spec": {"schedulingPolicy": policy, "resourceClaims": [claim], **spec},
    }


def member(number: int, claim: JSON) -> JSON:
    container = {"name": "main", "image": "app:1", "resources": {"claims": [{"name": "gpu"}]}}
    spec = {"schedulingGroup": {"podGroupName": "g"}, "resourceClaims": [claim], "containers": [container]}
    return {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": f"p{number}"}, "spec": spec}


def template(count: int = 2) -> JSON:
    spec = {"spec": {"devices": {"requests": [request(count=count)]}}}
    api_version = "resource.k8s.io/v1"
    return {
        "apiVersion": api_version,
        "kind": "ResourceClaimTemplate",
        "metadata": {"name": "gpus"},
        "spec": spec,
    }


@pytest.fixture
def options(clock, tmp_path) -> JSON:
    path = tmp_path / "devices.yaml"
    path.write_text(DEVICES)
    return {"clock": clock, "nodes": 3, "gang_scheduling": True, "devices": path}


async def create(cluster: MemoryCluster, claim: JSON, *objects: JSON) -> None:
    """Create a group of three pods, which share a claim."""
    body = device_class()
    await cluster.apply(body | {"metadata": {"name": body["metadata"]["name"]}}, *objects, group(claim))
    await cluster.apply(*(member(number, claim) for number in range(3)))


async def test_pods_of_a_gang_share_the_claim_of_their_group(options):
    async with memory_cluster(**options) as cluster:
        store = cluster.api.store
        await create(cluster, BY_TEMPLATE, template())
        await cluster.until(lambda: [pod["status"]["phase"] for pod in store.list(PODS)] == ["Running"] * 3)
        (claim,) = store.list(RESOURCE_CLAIMS)
        (pod_group,) = store.list(POD_GROUPS)
        (consumer,) = claim["status"]["reservedFor"]
        assert (consumer["resource"], consumer["uid"]) == ("podgroups", pod_group["metadata"]["uid"])
        (node,) = {pod["spec"]["nodeName"] for pod in store.list(PODS)}
        assert {result["pool"] for result in claim["status"]["allocation"]["devices"]["results"]} == {node}
        # The claim is the group's: it stays when the pods end, until the group is deleted.
        for number in range(3):
            await cluster.delete(f"pod/p{number}")
        await cluster.until(lambda: not list(store.list(PODS)))
        assert store.list(RESOURCE_CLAIMS)
        await cluster.delete("podgroup/g")
        await cluster.until(lambda: not [*store.list(RESOURCE_CLAIMS), *store.list(POD_GROUPS)])


SHARED = "shared by the pods of PodGroup default/g"


@pytest.mark.parametrize(
    ("claim", "objects", "details"),
    [
        pytest.param(BY_NAME, [], [f"default/c: {SHARED}; does not exist"], id="missing claim"),
        pytest.param(
            BY_TEMPLATE, [], [f"gpu: {SHARED}; not created yet from ResourceClaimTemplate gpus"], id="missing template"
        ),
        pytest.param(
            BY_TEMPLATE,
            [template(count=3)],
            [f"NAME: {SHARED}", "NAME, request r: needs 3 devices; at most 2 of one node can be used"],
            id="not enough devices",
        ),
    ],
)
async def test_explanation_of_a_pod_whose_group_has_no_usable_claim(options, claim, objects, details):
    async with memory_cluster(**options) as cluster:
        await create(cluster, claim, *objects)
        if objects:
            await cluster.until(lambda: all(pod["status"].get("conditions") for pod in cluster.api.store.list(PODS)))
        else:
            await cluster.until(lambda: len(cluster.seen_pods()) == 3)
        name = next((f"default/{it['metadata']['name']}" for it in cluster.api.store.list(RESOURCE_CLAIMS)), "")
        explanation = await cluster.explain("p0")
        assert explanation["details"] == [line.replace("NAME", name) for line in details]
