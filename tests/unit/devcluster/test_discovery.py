"""Discovery: what clients are told about groups, versions and resources."""

from __future__ import annotations

from typing import Any

import pytest

from kubeloop.devcluster.api.served_resources import BY_PATH
from kubeloop.devcluster.openapi.discovery import discovery

V2 = "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList"
KUBECTL = f"{V2},application/json;g=apidiscovery.k8s.io;v=v2beta1;as=APIGroupDiscoveryList,application/json"
ALL_VERBS = ["create", "delete", "deletecollection", "get", "list", "patch", "update", "watch"]


def document(path: str, accept: str = "application/json") -> dict[str, Any]:
    found = discovery(path, accept)
    assert found is not None
    return found[0]


def named(entries: list[dict[str, Any]], name: str, key: str = "name") -> dict[str, Any]:
    return next(each for each in entries if each[key] == name)


def test_the_core_group_has_one_version():
    assert document("/api")["versions"] == ["v1"]
    assert document("/api/") == document("/api")


def test_a_group_names_its_versions_and_the_preferred_one():
    version = {"groupVersion": "apps/v1", "version": "v1"}
    group = {"name": "apps", "versions": [version], "preferredVersion": version}
    assert document("/apis/apps") == {"kind": "APIGroup", "apiVersion": "v1", **group}
    assert named(document("/apis")["groups"], "apps") == group


def test_a_resource_list_names_resources_and_their_subresources():
    core = document("/api/v1")
    assert "apiVersion" not in core
    assert core["groupVersion"] == "v1"
    assert named(core["resources"], "pods") == {
        "name": "pods",
        "singularName": "pod",
        "namespaced": True,
        "kind": "Pod",
        "verbs": ALL_VERBS,
        "shortNames": ["po"],
        "categories": ["all"],
        "storageVersionHash": "xPOwRZ+Yhw8=",
    }
    assert named(core["resources"], "pods/eviction") == {
        "name": "pods/eviction",
        "singularName": "",
        "namespaced": True,
        "group": "policy",
        "version": "v1",
        "kind": "Eviction",
        "verbs": ["create"],
    }
    assert named(core["resources"], "bindings")["verbs"] == ["create"]
    assert named(core["resources"], "namespaces/finalize")["verbs"] == ["update"]
    assert document("/apis/apps/v1")["apiVersion"] == "v1"


def test_every_served_resource_is_in_the_list_of_its_group():
    for group, version, plural in BY_PATH:
        listed = document(f"/apis/{group}/{version}" if group else f"/api/{version}")
        assert named(listed["resources"], plural)


def test_kubectl_gets_all_groups_at_once():
    found = discovery("/apis", KUBECTL)
    assert found is not None
    assert found[1] == V2
    assert found[0]["apiVersion"] == "apidiscovery.k8s.io/v2"
    apps = next(each for each in found[0]["items"] if each["metadata"] == {"name": "apps"})
    (version,) = apps["versions"]
    assert (version["version"], version["freshness"]) == ("v1", "Current")
    assert named(version["resources"], "replicasets", "resource") == {
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
        pytest.param("application/json," + V2, "APIGroupDiscoveryList", id="wherever it stands"),
        pytest.param(V2 + ";q=0.1,application/json", "APIGroupDiscoveryList", id="however little it is wanted"),
        pytest.param(
            "application/json;g=apidiscovery.k8s.io;v=v9;as=APIGroupDiscoveryList,*/*", "APIVersions", id="v9"
        ),
        pytest.param("", "APIVersions", id="no Accept"),
        pytest.param("*/*", "APIVersions", id="anything"),
    ],
)
def test_the_aggregated_form_goes_before_all_others(accept: str, kind: str):
    assert document("/api", accept)["kind"] == kind


def test_the_version_is_that_of_kubernetes_1_36():
    version = document("/version")
    assert (version["major"], version["minor"]) == ("1", "36")
    assert version["gitVersion"].startswith("v1.36.")


@pytest.mark.parametrize("path", ["/", "/apis/nosuch.example.com", "/apis/apps/v1beta1", "/api/v2", "/api/v1/pods"])
def test_other_paths_are_not_discovery(path: str):
    assert discovery(path, "application/json") is None
