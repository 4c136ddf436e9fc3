"""The chain of admission plugins: the plugins that it implements itself, and their order."""

from __future__ import annotations

from typing import Any

import pytest

from kubeloop.devcluster.admission.chain import add_finalizer
from support.apiserver.api_requests import InProcessApi


async def test_create_in_a_terminating_namespace_is_forbidden():
    api = InProcessApi()
    api.create("/api/v1/namespaces", {"metadata": {"name": "a", "finalizers": ["example.com/x"]}})
    api.succeed("DELETE", "/api/v1/namespaces/a")
    status, response = api("POST", "/api/v1/namespaces/a/configmaps", {"metadata": {"name": "c"}})
    reason = "unable to create new content in namespace a because it is being terminated"
    assert (status, response["message"]) == (403, f'configmaps "c" is forbidden: {reason}')
    assert response["details"]["causes"] == [
        {
            "reason": "NamespaceTerminating",
            "message": "namespace a is being terminated",
            "field": "metadata.namespace",
        }
    ]


async def test_new_node_is_tainted_as_not_ready():
    node = InProcessApi().create("/api/v1/nodes", {"metadata": {"name": "n"}})
    assert node["spec"]["taints"] == [{"key": "node.kubernetes.io/not-ready", "effect": "NoSchedule"}]


@pytest.mark.parametrize(
    ("path", "body", "finalizer"),
    [
        pytest.param(
            "/api/v1/namespaces/default/persistentvolumeclaims",
            {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}}},
            "kubernetes.io/pvc-protection",
            id="claim",
        ),
        pytest.param(
            "/api/v1/persistentvolumes",
            {"accessModes": ["ReadWriteOnce"], "capacity": {"storage": "1Gi"}, "hostPath": {"path": "/a"}},
            "kubernetes.io/pv-protection",
            id="volume",
        ),
    ],
)
async def test_storage_object_gets_the_protection_finalizer(path: str, body: dict[str, object], finalizer: str):
    created = InProcessApi().create(path, {"metadata": {"name": "v"}, "spec": body})
    assert created["metadata"]["finalizers"] == [finalizer]


async def test_object_of_a_deleted_namespace_cannot_be_updated():
    api, path = InProcessApi(), "/api/v1/namespaces/n"
    api.create("/api/v1/namespaces", {"metadata": {"name": "n"}})
    api.create(f"{path}/configmaps", {"metadata": {"name": "a"}})
    api.succeed("DELETE", path)
    api.succeed("PUT", f"{path}/configmaps/a", {"metadata": {"name": "a"}})
    api.succeed("PUT", f"{path}/finalize", {"metadata": {"name": "n"}, "spec": {}})
    status, content = api("PUT", f"{path}/configmaps/a", {"metadata": {"name": "a"}})
    assert (status, content["message"]) == (404, 'namespaces "n" not found')
    api.succeed("DELETE", f"{path}/configmaps/a")


def test_finalizer_is_added_once():
    obj: dict[str, Any] = {"metadata": {"finalizers": ["example.com/a"]}}
    for _ in range(2):
        add_finalizer(obj, "example.com/b")
    assert obj == {"metadata": {"finalizers": ["example.com/a", "example.com/b"]}}
