"""Replicas of the controllers of Pods."""

from __future__ import annotations

from typing import Any

import pytest

from kubeloop.controllers.disruption.pod_scale import PodScale, UnknownPodCount
from kubeloop.kube.objects.api_types import Pod, convert
from kubeloop.kube.objects.resources import DEPLOYMENTS, REPLICA_SETS

pytestmark = pytest.mark.virtual_time


def reference(kind: str, name: str, uid: str, api_version: str = "apps/v1") -> dict[str, Any]:
    return {"apiVersion": api_version, "kind": kind, "name": name, "uid": uid, "controller": True}


def pod(*owners: dict[str, Any]) -> Pod:
    return convert(Pod, {"metadata": {"name": "web", "namespace": "ns", "ownerReferences": list(owners)}})


@pytest.fixture
async def scale(fake_apiserver, start) -> PodScale:
    scale = PodScale(fake_apiserver.context)
    await start(fake_apiserver.informers)
    await scale.wait_synced()
    return scale


async def test_replicas_are_those_of_the_deployment_and_counted_once(fake_apiserver, scale, start):
    deployment = fake_apiserver.add(DEPLOYMENTS, "web")
    uid = deployment["metadata"]["uid"]
    rs = fake_apiserver.add(REPLICA_SETS, "web-1", reference("Deployment", "web", uid))
    await start()
    owned = pod(reference("ReplicaSet", "web-1", rs["metadata"]["uid"]))
    assert await scale.expected([owned, owned, pod()]) == (deployment["spec"]["replicas"], ["web"])


@pytest.mark.parametrize(
    ("owner", "problem"),
    [
        pytest.param(
            reference("Job", "j", "u", "batch/v1"), "jobs.batch does not implement the scale subresource", id="no scale"
        ),
        pytest.param(
            reference("Nothing", "x", "u"), 'no matches for kind "Nothing" in version "apps/v1"', id="unknown"
        ),
        pytest.param(reference("ReplicaSet", "gone", "u"), 'found no controllers for pod "web"', id="missing"),
    ],
)
async def test_pod_without_known_replicas_is_an_error(scale, owner, problem):
    with pytest.raises(UnknownPodCount) as error:
        await scale.expected([pod(owner)])
    assert str(error.value) == problem


async def test_replicas_of_other_kinds_come_from_the_subresource_scale(fake_apiserver, scale):
    paths = {"specReplicasPath": ".spec.replicas", "statusReplicasPath": ".status.replicas"}
    schema = {"type": "object", "x-kubernetes-preserve-unknown-fields": True}
    version = {"name": "v1", "served": True, "storage": True, "schema": {"openAPIV3Schema": schema}}
    names = {"plural": "gadgets", "kind": "Gadget"}
    definition = {
        "metadata": {"name": "gadgets.example.com"},
        "spec": {
            "group": "example.com",
            "scope": "Namespaced",
            "names": names,
            "versions": [{**version, "subresources": {"scale": paths}}],
        },
    }
    fake_apiserver.api.create("/apis/apiextensions.k8s.io/v1/customresourcedefinitions", definition)
    body = {"apiVersion": "example.com/v1", "kind": "Gadget", "metadata": {"name": "g"}, "spec": {"replicas": 4}}
    gadget = fake_apiserver.api.create("/apis/example.com/v1/namespaces/ns/gadgets", body)
    owned = pod(reference("Gadget", "g", gadget["metadata"]["uid"], "example.com/v1"))
    assert await scale.expected([owned]) == (4, [])
    with pytest.raises(UnknownPodCount, match="found no controllers"):
        await scale.expected([pod(reference("Gadget", "g", "other", "example.com/v1"))])
