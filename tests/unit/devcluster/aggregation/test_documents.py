"""Discovery with aggregated groups: order of versions, and entries from resource lists."""

from __future__ import annotations

from typing import Any

from kubeloop.devcluster.aggregation.documents import (
    sorted_versions,
    stale_version,
    version_from_list,
    with_aggregated,
    with_groups,
)
from support.apiserver.aggregated_server import RESOURCE_LIST


def service(version: str, priority: int, group: str = "g") -> dict[str, Any]:
    return {"spec": {"group": group, "version": version, "versionPriority": priority}}


def test_versions_are_sorted_by_priority_then_stability():
    versions = [("v1beta1", 10), ("v1", 10), ("v2alpha1", 20), ("v10", 10), ("v2beta3", 10), ("other", 10)]
    services = [*(service(*entry) for entry in versions), service("v3", 99, "other.group")]
    assert sorted_versions(services, "g") == ["v2alpha1", "v10", "v1", "v2beta3", "v1beta1", "other"]


def test_groups_are_added_or_replaced():
    present = {"name": "g", "versions": [{"groupVersion": "g/v1", "version": "v1"}]}
    document = with_groups({"kind": "APIGroupList", "groups": [present]}, {"g": ["v2", "v1"], "h": ["v1"]})
    assert [(it["name"], [entry["version"] for entry in it["versions"]]) for it in document["groups"]] == [
        ("g", ["v2", "v1"]),
        ("h", ["v1"]),
    ]


def test_aggregated_versions_join_those_of_the_server():
    own = {"version": "v1", "resources": [], "freshness": "Current"}
    document = {"items": [{"metadata": {"name": "g"}, "versions": [own]}, {"metadata": {}, "versions": []}]}
    remote = {("g", "v2"): stale_version("v2"), ("h", "v1"): stale_version("v1")}
    assert with_aggregated(document, {"g": ["v2", "v1"], "h": ["v1"]}, remote)["items"] == [
        {"metadata": {"name": "g"}, "versions": [{"version": "v2", "freshness": "Stale"}, own]},
        {"metadata": {}, "versions": []},
        {"metadata": {"name": "h"}, "versions": [{"version": "v1", "freshness": "Stale"}]},
    ]


def test_entry_of_a_server_without_aggregated_discovery():
    kind = {"group": "", "version": "", "kind": "Thing"}
    assert version_from_list("v1", RESOURCE_LIST) == {
        "version": "v1",
        "freshness": "Current",
        "resources": [
            {
                "resource": "things",
                "responseKind": kind,
                "scope": "Namespaced",
                "singularResource": "thing",
                "verbs": ["get", "list"],
                "shortNames": ["th"],
                "subresources": [{"subresource": "status", "responseKind": kind, "verbs": ["get"]}],
            }
        ],
    }
