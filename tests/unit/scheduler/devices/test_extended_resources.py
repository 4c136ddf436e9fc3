"""Extended resources that devices provide: classes of resources, and requests of the special claim."""

from __future__ import annotations

from typing import Any

import pytest

from kubeloop.kube.objects.api_types import Pod, convert, to_json
from kubeloop.scheduler.devices.extended_resources import (
    ExtendedResources,
    device_requests,
    special_claim,
    special_claim_body,
)
from support.objects.devices import device_class, typed

GPU = "example.com/gpu"


def extended_class(name: str, created: str = "2026-01-01T00:00:00Z", resource: str | None = GPU) -> Any:
    entry = device_class(name, **({"extendedResourceName": resource} if resource else {}))
    entry["metadata"]["creationTimestamp"] = created
    return typed(entry)


def test_resource_has_the_newest_class_then_the_first_by_name():
    changes: list[int] = []
    resources = ExtendedResources(lambda: changes.append(1))
    for device_class_ in (
        extended_class("b"),
        extended_class("a"),
        extended_class("c"),
        extended_class("new", "2026-02-01T00:00:00Z"),
        extended_class("old", "2025-01-01T00:00:00Z"),
    ):
        resources.on_add(device_class_, False)
    assert resources.get(GPU).metadata.name == "new"
    assert len(changes) == 3  # b, a, new
    resources.on_delete(extended_class("new", "2026-02-01T00:00:00Z"), False)
    assert resources.get(GPU) is None
    assert len(changes) == 4


def test_implicit_resource_and_a_new_name():
    resources = ExtendedResources(lambda: None)
    old, new = extended_class("gpu", resource=None), extended_class("gpu", resource="example.com/other")
    resources.on_add(old, False)
    assert resources.get("deviceclass.resource.kubernetes.io/gpu") is old
    resources.on_update(old, new)
    assert resources.get("example.com/other") is resources.get("deviceclass.resource.kubernetes.io/gpu") is new
    resources.on_update(new, extended_class("gpu", resource=GPU))
    assert resources.get("example.com/other") is None
    assert resources.get(GPU).metadata.name == "gpu"


def container(name: str, count: int = 0, **fields: Any) -> dict[str, Any]:
    requests = {"cpu": "1", "memory": "1Gi"} | ({GPU: str(count)} if count else {})
    return {"name": name, "resources": {"requests": requests}, **fields}


SIDECAR = {"restartPolicy": "Always"}


@pytest.mark.parametrize(
    ("starting", "running", "requests", "mappings"),
    [
        pytest.param(
            [],
            [container("a", 1), container("b"), container("c", 2)],
            {"container-0-request-1": 1, "container-2-request-1": 2},
            [("a", "container-0-request-1"), ("c", "container-2-request-1")],
            id="each container has a request",
        ),
        pytest.param(
            [container("i", 2)],
            [container("a", 1), container("b", 3)],
            {"container-1-request-1": 1, "container-2-request-1": 3},
            [
                ("a", "container-1-request-1"),
                ("b", "container-2-request-1"),
                ("i", "container-1-request-1"),
                ("i", "container-2-request-1"),
            ],
            id="an init container uses the devices of others",
        ),
        pytest.param(
            [container("i", 2), container("j", 4), container("k", 3)],
            [container("a", 1)],
            {"container-1-request-1": 3, "container-3-request-1": 1},
            [
                ("a", "container-3-request-1"),
                ("i", "container-3-request-1"),
                ("i", "container-1-request-1"),
                ("j", "container-3-request-1"),
                ("j", "container-1-request-1"),
                ("k", "container-3-request-1"),
                ("k", "container-1-request-1"),
            ],
            id="init containers share the largest further request",
        ),
        pytest.param(
            [container("i", 2), container("j", 2)],
            [container("a", 1)],
            {"container-0-request-1": 1, "container-2-request-1": 1},
            [
                ("a", "container-2-request-1"),
                ("i", "container-2-request-1"),
                ("i", "container-0-request-1"),
                ("j", "container-2-request-1"),
                ("j", "container-0-request-1"),
            ],
            id="of equal further requests, init containers share the first",
        ),
        pytest.param(
            [container("s", 1, **SIDECAR), container("i", 1), container("t", 1, **SIDECAR)],
            [container("a")],
            {"container-0-request-1": 1, "container-2-request-1": 1},
            [
                ("s", "container-0-request-1"),
                ("t", "container-2-request-1"),
                ("i", "container-2-request-1"),
            ],
            id="devices of a running sidecar are not used",
        ),
    ],
)
def test_requests_of_containers(starting, running, requests, mappings):
    pod = convert(Pod, {"spec": {"initContainers": starting, "containers": running}})
    own, mapped = device_requests(pod, {GPU: "gpu"})
    assert {request.name: request.exactly.count for request in own} == requests
    assert [request.exactly.device_class_name for request in own] == ["gpu"] * len(own)
    assert [(entry.container_name, entry.request_name) for entry in mapped] == mappings
    assert {entry.resource_name for entry in mapped} == {GPU}


def test_special_claim_as_it_is_created():
    pod = convert(
        Pod,
        {
            "metadata": {"name": "p", "namespace": "ns", "uid": "u"},
            "spec": {"containers": [container("a", 2)]},
        },
    )
    requests, mappings = device_requests(pod, {GPU: "gpu"})
    body = special_claim_body(pod, special_claim(pod, "temporary", requests))
    assert body["metadata"] == {
        "namespace": "ns",
        "generateName": "p-extended-resources-",
        "annotations": {"resource.kubernetes.io/extended-resource-claim": "true"},
        "ownerReferences": [{"apiVersion": "v1", "kind": "Pod", "name": "p", "uid": "u", "controller": True}],
    }
    exactly = {"deviceClassName": "gpu", "count": 2}
    assert body["spec"] == {"devices": {"requests": [{"name": "container-0-request-1", "exactly": exactly}]}}
    assert to_json(mappings[0]) == {
        "containerName": "a",
        "resourceName": GPU,
        "requestName": "container-0-request-1",
    }
