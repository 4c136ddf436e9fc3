"""NodeRestriction: what nodes may write; tests/parity/test_admission_plugins.py has every refusal."""

from __future__ import annotations

import subprocess
import sys
from typing import Any

import pytest

from kubeloop.devcluster.admission.optional.node_rules import NodeRules
from kubeloop.devcluster.admission.optional.plugin import PluginEnvironment
from kubeloop.devcluster.admission.plugin_settings import WITHOUT_ACCOUNTS, PluginSettings
from kubeloop.devcluster.api.errors import StatusError
from kubeloop.devcluster.server.apiserver import ServingSettings
from kubeloop.kube.objects.resources import NODES as NODES_RESOURCE
from support.apiserver.admission_attributes import create_attributes
from support.apiserver.api_requests import InProcessApi
from support.objects.role_bindings import CLUSTER_BINDINGS, CLUSTER_ROLES, binding, role

JSON = dict[str, Any]
SPACE = "/api/v1/namespaces/default"
PODS, NODES = f"{SPACE}/pods", "/api/v1/nodes"
TOKEN = f"{SPACE}/serviceaccounts/default/token"
MIRROR = {"kubernetes.io/config.mirror": "x"}


class NodeApi(InProcessApi):
    """A server that runs the plugin, with nodes n and m and a pod on each. Nodes have all permissions but audiences."""

    def __init__(self) -> None:
        plugins = WITHOUT_ACCOUNTS | {"NodeRestriction"}
        super().__init__(settings=ServingSettings(admission=PluginSettings(plugins)))
        verbs = ["create", "update", "patch", "delete", "get"]
        self.create(CLUSTER_ROLES, role("nodes", {"verbs": verbs, "apiGroups": ["*"], "resources": ["*"]}))
        self.create(CLUSTER_BINDINGS, binding("nodes", "nodes", groups=("system:nodes",)))
        self.node = self.create(NODES, {"metadata": {"name": "n"}})
        self.create(NODES, {"metadata": {"name": "m"}})
        self.pods = {node: self.create(PODS, pod(f"on-{node}", node)) for node in ("n", "m")}

    def as_node(self, method: str, path: str, body: JSON | None = None) -> tuple[int, str]:
        """Return status and message."""
        headers = {"impersonate_user": "system:node:n", "impersonate_group": "system:nodes"}
        status, content = self(method, path, body, **headers)
        return status, content.get("message", "")


def pod(name: str, node: str, **spec: Any) -> JSON:
    return {"metadata": {"name": name}, "spec": {"containers": [{"name": "c", "image": "i"}], "nodeName": node, **spec}}


@pytest.fixture
async def api() -> NodeApi:
    return NodeApi()


def mirror_pod(api: NodeApi, **spec: Any) -> JSON:
    owner = {"apiVersion": "v1", "kind": "Node", "name": "n", "uid": api.node["metadata"]["uid"], "controller": True}
    return {**pod("static", "n", **spec), "metadata": {"name": "s", "annotations": MIRROR, "ownerReferences": [owner]}}


def test_rules_are_imported_for_the_first_write_of_a_node():
    code = """
import sys
from kubeloop.devcluster.admission.optional import node_restriction
print([name for name in sys.modules if name.endswith("node_rules") or name.startswith("cryptography")])
"""
    process = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert process.stdout.strip() == "[]", process.stderr


async def test_users_without_the_name_of_a_node_are_not_restricted(api: NodeApi):
    api.create(CLUSTER_BINDINGS, binding("kubelet", "nodes", "kubelet"))
    request = create_attributes(NODES_RESOURCE, user={"username": "kubelet", "groups": ["system:nodes"]})
    NodeRules(PluginEnvironment(api.server.store, api.server._definitions)).admit(request)
    request.user = {"username": "system:node:n", "groups": ["system:nodes"]}
    with pytest.raises(StatusError, match="is not allowed to modify node"):
        NodeRules(PluginEnvironment(api.server.store, api.server._definitions)).admit(request)


async def test_nodes_create_mirror_pods_only(api: NodeApi):
    assert api.as_node("POST", PODS, pod("p", "n"))[0] == 403
    volume = {"name": "v", "secret": {"secretName": "s"}}
    status, message = api.as_node("POST", PODS, mirror_pod(api, volumes=[volume]))
    assert (status, message) == (403, 'pods "s" is forbidden: node "n" can not create pods that reference secrets')
    assert api.as_node("POST", PODS, mirror_pod(api)) == (201, "")


async def test_nodes_change_and_delete_their_own_pods(api: NodeApi):
    for node, status in (("m", 403), ("n", 200)):
        assert api.as_node("PATCH", f"{PODS}/on-{node}/status", {"status": {"phase": "Running"}})[0] == status
        assert api.as_node("DELETE", f"{PODS}/on-{node}?gracePeriodSeconds=0")[0] == status
    assert api.as_node("DELETE", f"{PODS}/none") == (404, 'pods "none" not found')


async def test_nodes_evict_their_own_pods(api: NodeApi):
    assert api.as_node("POST", f"{PODS}/on-m/eviction", {"metadata": {"name": "on-m"}})[0] == 403
    assert api.as_node("POST", f"{PODS}/on-n/eviction", {"metadata": {"name": "on-n"}})[0] == 201


async def test_nodes_set_their_own_permitted_labels(api: NodeApi):
    for labels, status in (
        ({"example.com/a": "b", "kubelet.kubernetes.io/x": "y", "kubernetes.io/os": "linux"}, 200),
        ({"node-restriction.kubernetes.io/a": "b"}, 403),
        ({"kubernetes.io/role": "b"}, 403),
    ):
        assert api.as_node("PATCH", f"{NODES}/n", {"metadata": {"labels": labels}})[0] == status, labels
    assert api.as_node("PATCH", f"{NODES}/m", {"metadata": {"labels": {"a": "b"}}})[0] == 403


async def test_nodes_do_not_change_their_taints(api: NodeApi):
    taint = {"spec": {"taints": [{"key": "a", "effect": "NoSchedule"}]}}
    message = 'nodes "n" is forbidden: node "n" is not allowed to modify taints'
    assert api.as_node("PATCH", f"{NODES}/n", taint) == (403, message)
    assert api("PATCH", f"{NODES}/n", taint)[0] == 200


async def test_nodes_request_tokens_for_volumes_of_their_pods(api: NodeApi):
    reference = {"apiVersion": "v1", "kind": "Pod"}

    def request(node: str, **spec: Any) -> tuple[int, str]:
        metadata = api.pods[node]["metadata"]
        bound = {**reference, "name": metadata["name"], "uid": metadata["uid"]}
        return api.as_node("POST", TOKEN, {"spec": {"boundObjectRef": bound, **spec}})

    api.create(f"{SPACE}/serviceaccounts", {"metadata": {"name": "default"}})
    source = {"serviceAccountToken": {"path": "token", "audience": "vault"}}
    volume = {"name": "t", "projected": {"sources": [source]}}
    api.pods["with"] = api.create(PODS, pod("with", "n", serviceAccountName="default", volumes=[volume]))
    assert api.as_node("POST", TOKEN, {"spec": {}})[0] == 403
    assert request("m")[1].endswith("node requested token bound to a pod scheduled on a different node")
    api.pods["plain"] = api.create(PODS, pod("plain", "n", serviceAccountName="default"))
    assert 'audience "vault" not found in pod spec volume' in request("plain", audiences=["vault"])[1]
    assert request("with", audiences=["vault"]) == (201, "")


async def test_csi_driver_of_a_claim_permits_its_audience(api: NodeApi):
    api.create("/apis/storage.k8s.io/v1/csidrivers", {
        "metadata": {"name": "d.example.com"}, "spec": {"tokenRequests": [{"audience": "disk"}]}})  # fmt: skip
    resources: JSON = {"requests": {"storage": "1Gi"}}
    access = {"accessModes": ["ReadWriteOnce"]}
    source = {"csi": {"driver": "d.example.com", "volumeHandle": "h"}}
    volume_spec = {**access, **source, "capacity": {"storage": "1Gi"}}
    api.create("/api/v1/persistentvolumes", {"metadata": {"name": "v"}, "spec": volume_spec})
    claim = {"metadata": {"name": "c"}, "spec": {**access, "resources": resources, "volumeName": "v"}}
    api.create(f"{SPACE}/persistentvolumeclaims", claim)
    api.create(f"{SPACE}/serviceaccounts", {"metadata": {"name": "default"}})
    volume = {"name": "v", "persistentVolumeClaim": {"claimName": "c"}}
    created = api.create(PODS, pod("with", "n", serviceAccountName="default", volumes=[volume]))
    bound = {"apiVersion": "v1", "kind": "Pod", "name": "with", "uid": created["metadata"]["uid"]}
    for audience, status in (("disk", 201), ("other", 403)):
        spec = {"boundObjectRef": bound, "audiences": [audience]}
        assert api.as_node("POST", TOKEN, {"spec": spec})[0] == status


async def test_requests_of_other_users_are_not_restricted(api: NodeApi):
    assert api("PATCH", f"{NODES}/n", {"metadata": {"labels": {"node-restriction.kubernetes.io/a": "b"}}})[0] == 200
    user = {"impersonate_user": "kubelet", "impersonate_group": "system:nodes"}
    assert api("PATCH", f"{NODES}/m", {"metadata": {"labels": {"a": "b"}}}, **user)[0] == 200
