"""Requests of nodes: what the pods of a node need, and nothing else."""

from __future__ import annotations

from typing import Any

import pytest

from kubeloop.devcluster.api.authorizer import AccessAttributes, AuthorizationDecision, FieldRequirement
from kubeloop.devcluster.authorization.node_authorizer import NodeAuthorizer
from kubeloop.devcluster.authorization.pod_references import config_map_names, secret_names
from kubeloop.devcluster.storage.store import ObjectStore
from kubeloop.kube.objects.resources import PERSISTENT_VOLUMES, PODS, RESOURCE_SLICES, VOLUME_ATTACHMENTS

JSON = dict[str, Any]
NODE: JSON = {"username": "system:node:n", "groups": ["system:nodes", "system:authenticated"]}
RULES = [{"verbs": ["create"], "apiGroups": [""], "resources": ["events"]}]
UNRELATED = "no relationship found between node 'n' and this object"
POD_SPEC: JSON = {
    "nodeName": "n",
    "serviceAccountName": "robot",
    "imagePullSecrets": [{"name": "pull"}],
    "containers": [
        {
            "name": "c",
            "env": [
                {"name": "A", "valueFrom": {"secretKeyRef": {"name": "env-secret", "key": "k"}}},
                {"name": "B", "valueFrom": {"configMapKeyRef": {"name": "env-map", "key": "k"}}},
            ],
            "envFrom": [{"secretRef": {"name": "all-secret"}}, {"configMapRef": {"name": "all-map"}}],
        }
    ],
    "volumes": [
        {"name": "s", "secret": {"secretName": "volume-secret"}},
        {"name": "m", "configMap": {"name": "volume-map"}},
        {"name": "p", "projected": {"sources": [{"secret": {"name": "p-secret"}}, {"configMap": {"name": "p-map"}}]}},
        {"name": "c", "csi": {"driver": "d", "nodePublishSecretRef": {"name": "csi-secret"}}},
        {"name": "claim", "persistentVolumeClaim": {"claimName": "claim"}},
        {"name": "own", "ephemeral": {"volumeClaimTemplate": {}}},
    ],
    "resourceClaims": [{"name": "r", "resourceClaimName": "devices"}],
}
VOLUME_SPEC: JSON = {
    "claimRef": {"namespace": "default", "name": "claim"},
    "csi": {"driver": "d", "nodeStageSecretRef": {"namespace": "storage", "name": "stage"}},
}


def pod(name: str, spec: JSON, **metadata: Any) -> JSON:
    return {"metadata": {"namespace": "default", "name": name, **metadata}, "spec": spec}


@pytest.fixture
def authorizer() -> NodeAuthorizer:
    store = ObjectStore(seconds=lambda: 0.0)
    mirror = {"kubernetes.io/config.mirror": ""}
    for obj in (
        pod("web", POD_SPEC),
        pod("other", {"nodeName": "m", "serviceAccountName": "stranger"}),
        pod("mirror", {"nodeName": "n", "serviceAccountName": "mirrored"}, annotations=mirror),
    ):
        store.create(PODS, obj)
    store.create(PERSISTENT_VOLUMES, {"metadata": {"name": "volume"}, "spec": VOLUME_SPEC})
    store.create(VOLUME_ATTACHMENTS, {"metadata": {"name": "attachment"}, "spec": {"nodeName": "n"}})
    store.create(RESOURCE_SLICES, {"metadata": {"name": "slice"}, "spec": {"nodeName": "n"}})
    store.create(RESOURCE_SLICES, {"metadata": {"name": "of-other"}, "spec": {"nodeName": "m"}})
    return NodeAuthorizer(store, lambda: RULES)


def decide(authorizer: NodeAuthorizer, verb: str, path: str, selector: str = "") -> AuthorizationDecision:
    """Decide about a path "group:namespace/resource/name/subresource"."""
    group, _, rest = path.rpartition(":")
    namespace, resource, name, subresource = (*rest.split("/"), "", "")[:4]
    fields = [FieldRequirement("spec.nodeName", "=", selector)] if selector else []
    attributes = AccessAttributes(NODE, verb, group, resource, subresource, namespace, name, None, fields)
    return authorizer.authorize(attributes)


@pytest.mark.parametrize(
    ("verb", "path"),
    [
        *(("get", f"default/secrets/{name}") for name in ("pull", "env-secret", "all-secret", "volume-secret")),
        *(("watch", f"default/secrets/{name}") for name in ("p-secret", "csi-secret")),
        *(("list", f"default/configmaps/{name}") for name in ("env-map", "all-map", "volume-map", "p-map")),
        ("get", "storage/secrets/stage"),
        ("get", "default/persistentvolumeclaims/claim"),
        ("get", "default/persistentvolumeclaims/web-own"),
        ("patch", "default/persistentvolumeclaims/claim/status"),
        ("get", "/persistentvolumes/volume"),
        ("get", "resource.k8s.io:default/resourceclaims/devices"),
        ("get", "storage.k8s.io:/volumeattachments/attachment"),
        ("get", "default/serviceaccounts/robot"),
        ("create", "default/serviceaccounts/robot/token"),
        ("update", "coordination.k8s.io:kube-node-lease/leases/n"),
        ("create", "coordination.k8s.io:kube-node-lease/leases"),
        ("patch", "storage.k8s.io:/csinodes/n"),
        ("get", "resource.k8s.io:/resourceslices/slice"),
        ("create", "resource.k8s.io:/resourceslices"),
        ("get", "/nodes/n"),
        ("create", "/nodes"),
        ("patch", "/nodes/n/status"),
        ("get", "default/pods/web"),
        ("list", "default/pods/web"),
        ("delete", "default/pods/web"),
        ("update", "default/pods/web/status"),
        ("create", "default/pods/web/eviction"),
        ("create", "default/events"),
    ],
)
def test_node_is_allowed_what_its_pods_need(authorizer: NodeAuthorizer, verb: str, path: str):
    assert decide(authorizer, verb, path) == (True, "", "")


@pytest.mark.parametrize(
    ("verb", "path", "reason"),
    [
        ("get", "default/secrets/others", UNRELATED),
        ("get", "other/secrets/pull", UNRELATED),
        ("list", "default/secrets", "No Object name found"),
        ("update", "default/secrets/pull", "can only read resources of this type"),
        ("list", "/configmaps/env-map", "can only read namespaced object of this type"),
        ("get", "default/configmaps/env-map/status", "cannot read subresource"),
        ("list", "default/persistentvolumeclaims", "can only get individual resources of this type"),
        ("get", "default/persistentvolumeclaims/claim/status", "can only get/update/patch this type"),
        ("get", "/persistentvolumes/volume/status", "cannot get subresource"),
        ("get", "default/serviceaccounts/stranger", UNRELATED),
        ("get", "default/serviceaccounts/mirrored", UNRELATED),
        ("create", "default/serviceaccounts", "can only create tokens for individual service accounts"),
        ("create", "default/serviceaccounts/robot", "can only create token subresource of serviceaccount"),
        (
            "list",
            "coordination.k8s.io:kube-node-lease/leases",
            "can only get, create, update, patch, or delete a node lease",
        ),
        (
            "get",
            "coordination.k8s.io:default/leases/n",
            'can only access leases in the "kube-node-lease" system namespace',
        ),
        (
            "get",
            "coordination.k8s.io:kube-node-lease/leases/m",
            "can only access node lease with the same name as the requesting node",
        ),
        ("get", "storage.k8s.io:/csinodes/m", "can only access CSINode with the same name as the requesting node"),
        ("list", "storage.k8s.io:/csinodes", "can only get, create, update, patch, or delete a CSINode"),
        ("get", "storage.k8s.io:/csinodes/n/status", "cannot authorize CSINode subresources"),
        ("get", "resource.k8s.io:/resourceslices/of-other", UNRELATED),
        (
            "list",
            "resource.k8s.io:/resourceslices",
            "can only list/watch/deletecollection resourceslices with nodeName field selector",
        ),
        ("get", "resource.k8s.io:/resourceslices/slice/status", "cannot authorize ResourceSlice subresources"),
        ("get", "/nodes/m", "node 'n' cannot read 'm', only its own Node object"),
        ("list", "/nodes", "node 'n' cannot read all nodes, only its own Node object"),
        ("delete", "/nodes/n", ""),
        ("get", "default/pods/other", UNRELATED),
        ("list", "/pods", "can only list/watch pods with spec.nodeName field selector"),
        ("create", "default/pods/web/exec", ""),
        ("create", "certificates.k8s.io:default/podcertificaterequests", ""),
        ("list", "default/events", ""),
    ],
)
def test_node_is_refused_other_requests(authorizer: NodeAuthorizer, verb: str, path: str, reason: str):
    assert decide(authorizer, verb, path) == (False, reason, "")


@pytest.mark.parametrize("path", ["/pods", "resource.k8s.io:/resourceslices"])
def test_node_lists_what_its_field_selector_limits_to_it(authorizer: NodeAuthorizer, path: str):
    assert decide(authorizer, "watch", path, selector="n").allowed
    assert not decide(authorizer, "watch", path, selector="m").allowed


@pytest.mark.parametrize(
    ("user", "reason"),
    [
        pytest.param({"username": "system:node:n", "groups": []}, "", id="not in the group"),
        pytest.param({"username": "n", "groups": ["system:nodes"]}, "", id="other name"),
        pytest.param({"username": "system:node:", "groups": ["system:nodes"]}, 'unknown node for user "system:node:"'),
    ],
)
def test_users_that_are_no_nodes_get_no_opinion(authorizer: NodeAuthorizer, user: JSON, reason: str):
    assert authorizer.authorize(AccessAttributes(user, "get", "", "nodes", name="n")) == (False, reason, "")


def test_names_in_a_pod_are_those_of_all_its_references():
    assert {*secret_names(POD_SPEC)} - {""} == {
        "pull", "env-secret", "all-secret", "volume-secret", "p-secret", "csi-secret"
    }  # fmt: skip
    assert {*config_map_names(POD_SPEC)} - {""} == {"env-map", "all-map", "volume-map", "p-map"}
