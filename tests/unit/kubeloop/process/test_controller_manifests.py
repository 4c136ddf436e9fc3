"""Manifests of custom controllers: roles of what they declare, and the Deployment."""

from __future__ import annotations

from typing import Any

from kubeloop.controllers.api import AccessRule, ReconcileOptions
from kubeloop.kube.objects.resources import NODES, SECRETS
from kubeloop.process.controller_manifests import Installation, controller_manifests
from support.controllers.sites import Sites

INSTALLATION = Installation("sites", "ops", "registry/sites:1", "my_operator:Sites", replicas=2)


class LimitedSites(Sites):
    options = ReconcileOptions(namespaces=("a", "b"))
    permissions = (AccessRule(SECRETS, "get"), AccessRule(NODES, "list"))


def named(objects: list[dict[str, Any]]) -> list[str]:
    return [
        f"{obj['kind']} {obj['metadata'].get('namespace', '')}/{obj['metadata']['name']}"
        for obj in objects
        if not obj["kind"].endswith("Binding")
    ]


def test_controller_of_all_namespaces_gets_a_cluster_role():
    objects = controller_manifests([Sites], INSTALLATION)
    assert named(objects) == [
        "ServiceAccount ops/sites",
        "Role ops/sites-election",
        "ClusterRole /sites",
        "Deployment ops/sites",
    ]
    deployment = objects[-1]["spec"]
    [container] = deployment["template"]["spec"]["containers"]
    assert deployment["replicas"] == 2
    assert container["image"] == "registry/sites:1"
    assert "--controllers=my_operator:Sites" in container["args"]


def test_controller_of_two_namespaces_gets_roles_there():
    objects = controller_manifests([LimitedSites], INSTALLATION)
    assert named(objects)[2:5] == ["Role a/sites", "Role b/sites", "ClusterRole /sites-cluster"]
    cluster = [obj for obj in objects if obj["kind"] == "ClusterRole"]
    assert [rule["resources"] for rule in cluster[0]["rules"]] == [["nodes"]]
    for role in objects:
        if role["kind"] == "Role" and role["metadata"]["name"] == "sites":
            resources = [resource for rule in role["rules"] for resource in rule["resources"]]
            assert {"secrets", "sites/status", "events"} <= {*resources}


def test_bindings_refer_to_the_service_account():
    for obj in controller_manifests([LimitedSites], INSTALLATION):
        if obj["kind"].endswith("Binding"):
            assert obj["subjects"] == [{"kind": "ServiceAccount", "name": "sites", "namespace": "ops"}]
            assert obj["roleRef"]["kind"] == obj["kind"].removesuffix("Binding")
