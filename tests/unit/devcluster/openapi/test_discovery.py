"""Discovery documents of groups, versions and resources."""

from __future__ import annotations

from typing import Any

import pytest

from kubeloop.devcluster.api.served_resources import BY_PATH, all_api_gates
from kubeloop.devcluster.openapi.discovery import get_discovery_document

V2 = "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList"
KUBECTL = f"{V2},application/json;g=apidiscovery.k8s.io;v=v2beta1;as=APIGroupDiscoveryList,application/json"
ALL_VERBS = ["create", "delete", "deletecollection", "get", "list", "patch", "update", "watch"]


def document(path: str, accept: str = "application/json") -> dict[str, Any]:
    response = get_discovery_document(path, accept)
    assert response is not None
    return response[0]


def find_entry(entries: list[dict[str, Any]], name: str, key: str = "name") -> dict[str, Any]:
    return next(entry for entry in entries if entry[key] == name)


def test_core_group_has_one_version():
    assert document("/api")["versions"] == ["v1"]
    assert document("/api/") == document("/api")


def test_group_has_versions_and_preferred_version():
    version = {"groupVersion": "apps/v1", "version": "v1"}
    group = {"name": "apps", "versions": [version], "preferredVersion": version}
    assert document("/apis/apps") == {"kind": "APIGroup", "apiVersion": "v1", **group}
    assert find_entry(document("/apis")["groups"], "apps") == group


def test_resource_list_has_resources_and_subresources():
    core = document("/api/v1")
    assert "apiVersion" not in core
    assert core["groupVersion"] == "v1"
    assert find_entry(core["resources"], "pods") == {
        "name": "pods",
        "singularName": "pod",
        "namespaced": True,
        "kind": "Pod",
        "verbs": ALL_VERBS,
        "shortNames": ["po"],
        "categories": ["all"],
        "storageVersionHash": "xPOwRZ+Yhw8=",
    }
    assert find_entry(core["resources"], "pods/eviction") == {
        "name": "pods/eviction",
        "singularName": "",
        "namespaced": True,
        "group": "policy",
        "version": "v1",
        "kind": "Eviction",
        "verbs": ["create"],
    }
    assert find_entry(core["resources"], "bindings")["verbs"] == ["create"]
    assert find_entry(core["resources"], "namespaces/finalize")["verbs"] == ["update"]
    assert document("/apis/apps/v1")["apiVersion"] == "v1"


def test_every_served_resource_is_in_its_resource_list():
    for group, version, plural in BY_PATH:
        path = f"/apis/{group}/{version}" if group else f"/api/{version}"
        response = get_discovery_document(path, "application/json", all_api_gates())
        assert response is not None
        assert find_entry(response[0]["resources"], plural)


def test_version_of_a_disabled_gate_is_not_listed():
    path, scheduling = "/apis/scheduling.k8s.io/v1alpha2", "/apis/scheduling.k8s.io"
    assert get_discovery_document(path, "application/json") is None
    assert [version["version"] for version in document(scheduling)["versions"]] == ["v1"]
    enabled = get_discovery_document(scheduling, "application/json", frozenset({"GenericWorkload"}))
    assert enabled is not None
    assert [version["version"] for version in enabled[0]["versions"]] == ["v1", "v1alpha2"]
    assert enabled[0]["preferredVersion"]["version"] == "v1"


def test_kubectl_accept_header_gets_aggregated_discovery():
    response = get_discovery_document("/apis", KUBECTL)
    assert response is not None
    assert response[1] == V2
    assert response[0]["apiVersion"] == "apidiscovery.k8s.io/v2"
    apps = next(group for group in response[0]["items"] if group["metadata"] == {"name": "apps"})
    (version,) = apps["versions"]
    assert (version["version"], version["freshness"]) == ("v1", "Current")
    assert find_entry(version["resources"], "replicasets", "resource") == {
        "resource": "replicasets",
        "responseKind": {"group": "", "version": "", "kind": "ReplicaSet"},
        "scope": "Namespaced",
        "singularResource": "replicaset",
        "verbs": ALL_VERBS,
        "shortNames": ["rs"],
        "categories": ["all"],
        "subresources": [
            {
                "subresource": "scale",
                "responseKind": {"group": "autoscaling", "version": "v1", "kind": "Scale"},
                "verbs": ["get", "patch", "update"],
            },
            {
                "subresource": "status",
                "responseKind": {"group": "", "version": "", "kind": "ReplicaSet"},
                "verbs": ["get", "patch", "update"],
            },
        ],
    }


@pytest.mark.parametrize(
    ("accept", "kind"),
    [
        pytest.param(KUBECTL, "APIGroupDiscoveryList", id="kubectl"),
        pytest.param("application/json," + V2, "APIGroupDiscoveryList", id="second clause"),
        pytest.param(V2 + ";q=0.1,application/json", "APIGroupDiscoveryList", id="lowest quality"),
        pytest.param(
            "application/json;g=apidiscovery.k8s.io;v=v9;as=APIGroupDiscoveryList,*/*", "APIVersions", id="v9"
        ),
        pytest.param("", "APIVersions", id="no Accept"),
        pytest.param("*/*", "APIVersions", id="anything"),
    ],
)
def test_aggregated_discovery_has_precedence(accept: str, kind: str):
    assert document("/api", accept)["kind"] == kind


def test_version_is_kubernetes_1_36():
    version = document("/version")
    assert (version["major"], version["minor"]) == ("1", "36")
    assert version["gitVersion"].startswith("v1.36.")


@pytest.mark.parametrize("path", ["/", "/apis/nosuch.example.com", "/apis/apps/v1beta1", "/api/v2", "/api/v1/pods"])
def test_other_paths_have_no_discovery_document(path: str):
    assert get_discovery_document(path, "application/json") is None
