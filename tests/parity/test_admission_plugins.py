"""Optional admission plugins: the same refusals and objects as kube-apiserver with the same plugins."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from support.apiserver.http_api import HttpApi, ServerPair, server_pair
from support.comparison.same_responses import Request, check_responses, comparable_response
from support.objects.certificate_requests import signing_request
from support.objects.role_bindings import CLUSTER_BINDINGS, CLUSTER_ROLES, binding, role

JSON = dict[str, Any]
CORE = "/api/v1"
SPACE = f"{CORE}/namespaces/default"
PODS, MAPS = f"{SPACE}/pods", f"{SPACE}/configmaps"
LEASES = "/apis/coordination.k8s.io/v1/namespaces/{}/leases"
SLICES = "/apis/resource.k8s.io/v1/resourceslices"
SIGNING = "/apis/certificates.k8s.io/v1/certificatesigningrequests"
MERGE = "application/merge-patch+json"
PLUGINS = (
    "NodeRestriction,OwnerReferencesPermissionEnforcement,DenyServiceExternalIPs,ExtendedResourceToleration,"
    "PodNodeSelector,PodTolerationRestriction,LimitPodHardAntiAffinityTopology,NamespaceExists,NamespaceAutoProvision,"
    "AlwaysPullImages,AlwaysAdmit"
)


@pytest.fixture(scope="module")
def servers(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServerPair]:
    flags = {"authorization-mode": "Node,RBAC", "enable-admission-plugins": PLUGINS}
    with server_pair(tmp_path_factory.mktemp("servers"), flags) as servers:
        for server in (servers.real, servers.ours):
            for path, obj in OBJECTS:
                response = server.request("POST", path, obj)
                assert response.status == 201, response
        yield servers


def as_user(name: str, *groups: str) -> tuple[tuple[str, str], ...]:
    return (("Impersonate-User", name), *(("Impersonate-Group", group) for group in groups))


NODE = as_user("system:node:n", "system:nodes")
CONTAINERS = {"containers": [{"name": "c", "image": "i"}]}
MIRROR: JSON = {"kubernetes.io/config.mirror": "x"}
WRITES = {"verbs": ["create", "update", "patch", "delete", "get"], "apiGroups": ["*"], "resources": ["*"]}


def pod(name: str, spec: JSON | None = None, **metadata: Any) -> JSON:
    return {"metadata": {"name": name, **metadata}, "spec": {**CONTAINERS, **(spec or {})}}


def namespace(name: str, **annotations: str) -> JSON:
    prefix = "scheduler.alpha.kubernetes.io/"
    return {"metadata": {"name": name, "annotations": {prefix + key: text for key, text in annotations.items()}}}


OBJECTS: list[tuple[str, JSON]] = [
    # nodes may send every write; the plugin decides
    (CLUSTER_ROLES, role("nodes", WRITES)),
    (CLUSTER_BINDINGS, binding("nodes", "nodes", groups=("system:nodes",))),
    *((f"{CORE}/nodes", {"metadata": {"name": name, "labels": {"a": "b"}}}) for name in ("n", "m")),
    (PODS, pod("mine", {"nodeName": "n"}, labels={"a": "b"})),
    (PODS, pod("other", {"nodeName": "m"})),
    (f"{SPACE}/persistentvolumeclaims", {
        "metadata": {"name": "claim"},
        "spec": {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}}},
    }),
    (f"{CORE}/namespaces", namespace("selected", **{"node-selector": "zone=a,disk=ssd"})),
    (f"{CORE}/namespaces", namespace("wrong", **{"node-selector": "zone"})),
    (f"{CORE}/namespaces", namespace("wrong-key", **{"node-selector": "-z=a"})),
    (f"{CORE}/namespaces", namespace("wrong-value", **{"node-selector": "z=-a"})),
    (f"{CORE}/namespaces", namespace("tolerant", defaultTolerations='[{"key": "a", "operator": "Exists"}]')),
    (f"{CORE}/namespaces", namespace("strict", tolerationsWhitelist='[{"operator": "Exists", "effect": "NoExecute"}]')),
    (f"{CORE}/namespaces", namespace("empty", tolerationsWhitelist="", defaultTolerations="")),
    (f"{CORE}/namespaces", namespace("broken", defaultTolerations="x")),
    *((CLUSTER_ROLES, role(name, *rules)) for name, rules in {
        "maps": [{"verbs": ["create", "update", "get"], "apiGroups": [""], "resources": ["configmaps"]}],
        "deleter": [{"verbs": ["delete"], "apiGroups": [""], "resources": ["configmaps"]}],
        "finalizer": [{"verbs": ["update"], "apiGroups": ["apps"], "resources": ["deployments/finalizers"]}],
        "any-finalizer": [{"verbs": ["update"], "apiGroups": ["*"], "resources": ["*/finalizers"]}],
    }.items()),
    *((CLUSTER_BINDINGS, binding(f"{user}-{name}", name, user)) for user, names in {
        "writer": ["maps"], "owner": ["maps", "deleter"], "blocker": ["maps", "deleter", "finalizer"],
        "controller": ["maps", "deleter", "any-finalizer"],
    }.items() for name in names),
]  # fmt: skip


# --- NodeRestriction --------------------------------------------------------------------------------------------------


def as_node(method: str, path: str, body: Any = None, content_type: str = "application/json") -> Request:
    return Request(method, path, body, content_type, headers=NODE)


def node_patch(path: str, body: JSON) -> Request:
    return as_node("PATCH", path, body, MERGE)


def test_nodes_may_change_their_own_objects_only(servers):
    status = {"status": {"phase": "Running"}}
    eviction = {"apiVersion": "policy/v1", "kind": "Eviction", "metadata": {"name": "other"}}
    lease: JSON = {"metadata": {"name": "n"}}
    nodes = f"{CORE}/nodes"
    claim = f"{SPACE}/persistentvolumeclaims/claim"
    requests = [
        as_node("POST", PODS, pod("plain", {"nodeName": "n"})),
        as_node("POST", PODS, pod("elsewhere", {"nodeName": "m"}, annotations=MIRROR)),
        as_node("POST", PODS, pod("unowned", {"nodeName": "n"}, annotations=MIRROR)),
        as_node("PUT", f"{PODS}/mine", pod("mine", {"nodeName": "n"})),
        node_patch(f"{PODS}/mine", {"metadata": {"labels": {"x": "y"}}}),
        node_patch(f"{PODS}/mine/status", status),
        node_patch(f"{PODS}/other/status", status),
        node_patch(f"{PODS}/mine/status", {"metadata": {"labels": {"x": "y"}}}),
        node_patch(f"{PODS}/mine/status", {"status": {"resourceClaimStatuses": [{"name": "a"}]}}),
        node_patch(f"{PODS}/mine/ephemeralcontainers", {"spec": {"ephemeralContainers": []}}),
        as_node("POST", f"{PODS}/mine/binding", {"metadata": {"name": "mine"}, "target": {"name": "n"}}),
        as_node("POST", f"{PODS}/other/eviction", eviction),
        as_node("POST", f"{PODS}/none/eviction", {**eviction, "metadata": {"name": "none"}}),
        as_node("DELETE", f"{PODS}/other"),
        as_node("DELETE", f"{PODS}/none"),
        as_node("POST", nodes, {"metadata": {"name": "x"}}),
        as_node("DELETE", f"{nodes}/m"),
        node_patch(f"{nodes}/m", {"metadata": {"labels": {"x": "y"}}}),
        node_patch(f"{nodes}/n", {"spec": {"taints": [{"key": "a", "effect": "NoSchedule"}]}}),
        node_patch(f"{nodes}/n", {"spec": {"unschedulable": True}}),
        node_patch(f"{nodes}/n", {"spec": {"configSource": {"configMap": {
            "name": "a", "namespace": "b", "kubeletConfigKey": "c"}}}}),
        node_patch(f"{nodes}/n", {"metadata": {"ownerReferences": [
            {"apiVersion": "v1", "kind": "Pod", "name": "a", "uid": "u"}]}}),
        *(node_patch(f"{nodes}/n{subresource}", {"metadata": {"labels": dict.fromkeys(keys.split(), "v")}})
          for subresource in ("", "/status")
          for keys in (
              "node-restriction.kubernetes.io/a", "x.node-restriction.kubernetes.io/a", "kubernetes.io/b k8s.io/a",
              "x.kubernetes.io/a", "kubelet.kubernetes.io/a x.node.kubernetes.io/b", "kubernetes.io/os",
              "beta.kubernetes.io/arch", "topology.kubernetes.io/zone", "example.com/a plain",
          )),
        as_node("POST", LEASES.format("default"), lease),
        as_node("POST", LEASES.format("kube-node-lease"), {"metadata": {"name": "m"}}),
        as_node("POST", LEASES.format("kube-node-lease"), lease),
        node_patch(LEASES.format("kube-node-lease") + "/m", {"spec": {"holderIdentity": "n"}}),
        as_node("DELETE", LEASES.format("kube-node-lease") + "/n"),
        as_node("POST", "/apis/storage.k8s.io/v1/csinodes", {"metadata": {"name": "m"}, "spec": {"drivers": []}}),
        as_node("POST", "/apis/storage.k8s.io/v1/csinodes", {
            "metadata": {"name": "n"}, "spec": {"drivers": [{"name": "d", "nodeID": "i"}]}}),
        node_patch(claim, {"metadata": {"labels": {"x": "y"}}}),
        node_patch(f"{claim}/status", {"status": {"capacity": {"storage": "2Gi"}}}),
        as_node("POST", f"{SPACE}/serviceaccounts/default/token", {"spec": {}}),
        as_node("POST", f"{SPACE}/serviceaccounts/default/token", bound({"name": "mine"})),
        as_node("POST", f"{SPACE}/serviceaccounts/default/token", bound({"name": "none", "uid": "u"})),
        as_node("POST", f"{SPACE}/serviceaccounts/default/token", bound({"name": "mine", "uid": "u"})),
        as_node("POST", f"{SPACE}/serviceaccounts/default/token", bound({"kind": "Secret", "name": "s", "uid": "u"})),
        as_node("PATCH", f"{SPACE}/serviceaccounts/default", {"metadata": {"labels": {"x": "y"}}}, MERGE),
        *(as_node("POST", SLICES, resource_slice(node)) for node in ("m", "n")),
        *(as_node("POST", SLICES.replace("v1/", "v1beta1/"), resource_slice(node)) for node in ("m",)),
        as_node("POST", MAPS, {"metadata": {"name": "of-node"}}),
        Request("POST", MAPS, {"metadata": {"name": "x"}}, headers=as_user("system:node:", "system:nodes")),
        Request("DELETE", f"{PODS}/none", headers=as_user("system:node:n", "system:nodes", "system:masters")),
    ]  # fmt: skip
    check_responses(servers, requests)


def bound(reference: JSON) -> JSON:
    return {"spec": {"boundObjectRef": {"apiVersion": "v1", "kind": "Pod", **reference}}}


def resource_slice(node: str) -> JSON:
    pool = {"name": "p", "generation": 1, "resourceSliceCount": 1}
    return {"metadata": {"name": f"slice-{node}"}, "spec": {"driver": "d.example.com", "nodeName": node, "pool": pool}}


def test_nodes_create_mirror_pods_without_references(servers):
    def requests(server: HttpApi) -> Iterator[Request]:
        uid = server.request("GET", f"{CORE}/nodes/n").content["metadata"]["uid"]
        owner = {"apiVersion": "v1", "kind": "Node", "name": "n", "uid": uid, "controller": True}
        owners: list[list[JSON]] = [
            [owner, {**owner, "name": "m", "controller": False}],
            [{**owner, "name": "m"}],
            [{**owner, "kind": "Pod"}],
            [{**owner, "controller": False}],
            [{**owner, "blockOwnerDeletion": True}],
            [{**owner, "uid": "0" * 8 + "-0000-0000-0000-" + "0" * 12}],
        ]
        for number, references in enumerate(owners):
            metadata = {"annotations": MIRROR, "ownerReferences": references}
            yield as_node("POST", PODS, pod(f"owned-{number}", {"nodeName": "n"}, **metadata))
        volumes: list[JSON] = [
            {"configMap": {"name": "a"}},
            {"secret": {"secretName": "a"}},
            {"csi": {"driver": "d"}},
            {"persistentVolumeClaim": {"claimName": "a"}},
            {"ephemeral": {"volumeClaimTemplate": {"spec": {
                "accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}}}}}},
            {"azureFile": {"secretName": "a", "shareName": "b"}},
            {"projected": {"sources": [{"downwardAPI": {}}, {"configMap": {"name": "a"}}]}},
            {"projected": {"sources": [{"serviceAccountToken": {"path": "a"}}]}},
            {"projected": {"sources": [{"downwardAPI": {}}]}},
            {"hostPath": {"path": "/a"}},
        ]  # fmt: skip
        metadata = {"annotations": MIRROR, "ownerReferences": [owner]}
        for number, volume in enumerate(volumes):
            spec = {"nodeName": "n", "volumes": [{"name": "v", **volume}]}
            yield as_node("POST", PODS, pod(f"volume-{number}", spec, **metadata))
        environment = {"env": [{"name": "A", "valueFrom": {"secretKeyRef": {"name": "s", "key": "k"}}}]}
        for number, spec in enumerate((
            {"containers": [{"name": "c", "image": "i", **environment}]},
            {"serviceAccountName": "default"},
            {"resourceClaims": [{"name": "r", "resourceClaimName": "x"}]},
        )):  # fmt: skip
            yield as_node("POST", PODS, pod(f"spec-{number}", {"nodeName": "n", **spec}, **metadata))
        mine = server.request("GET", f"{PODS}/mine").content["metadata"]["uid"]
        other = server.request("GET", f"{PODS}/other").content["metadata"]["uid"]
        token = f"{SPACE}/serviceaccounts/default/token"
        yield as_node("POST", token, bound({"name": "mine", "uid": mine}))
        yield as_node("POST", token, bound({"name": "other", "uid": other}))
        for audiences in (["vault"], ["a", "b"]):
            body = bound({"name": "mine", "uid": mine})
            yield as_node("POST", token, {"spec": {**body["spec"], "audiences": audiences}})

    check_each(servers, requests)


def check_each(servers: ServerPair, requests: Any) -> None:
    """Compare the responses to requests that depend on the server's own objects."""

    def responses(server: HttpApi) -> list[str]:
        return [
            _OWN.sub("(own)", json.dumps(comparable_response(server, request), sort_keys=True))
            for request in requests(server)
        ]

    with ThreadPoolExecutor(2) as executor:
        real, ours = executor.map(responses, (servers.real, servers.ours))
    for real_response, our_response in zip(real, ours, strict=True):
        assert real_response == our_response


_OWN = re.compile(r'[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}|"audiences": \[[^]]*\]')
"""UIDs, and the audience of the server."""


def test_nodes_request_certificates_of_their_own_only(servers):
    def request(name: str, signer: str, common_name: str) -> Request:
        return as_node("POST", SIGNING, signing_request(common_name, signer=signer) | {"metadata": {"name": name}})

    client, serving = "kubernetes.io/kube-apiserver-client-kubelet", "kubernetes.io/kubelet-serving"
    requests = [
        request("a", client, "system:node:m"),
        request("b", serving, "system:node:m"),
        request("c", "example.com/signer", "system:node:m"),
        request("d", client, "system:node:n"),
    ]
    statuses = [
        [server.request(*step[:3], headers=NODE) for step in requests] for server in (servers.real, servers.ours)
    ]
    real, ours = ([(r.status, r.content.get("message")) for r in responses] for responses in statuses)
    assert real == ours
    assert [status for status, _ in ours] == [403, 403, 201, 201]


def test_status_of_claims_is_refused_with_the_difference(servers):
    path = f"{SPACE}/persistentvolumeclaims/claim/status"
    bodies: list[JSON] = [{"status": {"phase": "Lost"}}, {"metadata": {"labels": {"x": "y"}}}]
    for body in bodies:
        real, ours = (
            server.request("PATCH", path, body, MERGE, headers=NODE).content for server in (servers.real, servers.ours)
        )
        pattern = re.compile(r": ---.*|: @@.*", re.DOTALL)
        assert pattern.sub("", real["message"]) == pattern.sub("", ours["message"])
        assert "@@" in ours["message"]


# --- owner references -------------------------------------------------------------------------------------------------


def test_owner_references_need_permissions(servers):
    def owner(kind: str = "Deployment", api_version: str = "apps/v1", **fields: Any) -> JSON:
        return {"apiVersion": api_version, "kind": kind, "name": "o", "uid": "u", **fields}

    lists: list[list[JSON]] = [
        [owner()],
        [owner(blockOwnerDeletion=True)],
        [owner(blockOwnerDeletion=False)],
        [owner("Pod", "v1", blockOwnerDeletion=True)],
        [owner("Nothing", "x.example.com/v1", blockOwnerDeletion=True)],
        [],
    ]
    requests = []
    for user in ("writer", "owner", "blocker", "controller"):
        for number, owners in enumerate(lists):
            body = {"metadata": {"name": f"{user}-{number}", "ownerReferences": owners}}
            requests.append(Request("POST", MAPS, body, headers=as_user(user)))
        name = f"of-{user}"
        requests.append(Request("POST", MAPS, {"metadata": {"name": name}}))
        for owners in (*lists, [owner()], [owner(blockOwnerDeletion=True)], [owner(blockOwnerDeletion=True)]):
            body = {"metadata": {"name": name, "ownerReferences": owners}}
            requests.append(Request("PUT", f"{MAPS}/{name}", body, headers=as_user(user)))
    check_responses(servers, requests)


# --- pods and services ------------------------------------------------------------------------------------------------


def test_namespaces_select_nodes_and_tolerations(servers):
    requests = []
    specs: list[JSON] = [
        {},
        {"nodeSelector": {"zone": "a", "x": "y"}, "tolerations": [{"key": "a", "operator": "Exists"}]},
        {"nodeSelector": {"zone": "b"}, "tolerations": [{"operator": "Exists", "effect": "NoExecute"}]},
        {"tolerations": [{"operator": "Exists"}]},
        {"tolerations": [{"key": "a", "value": "b"}, {"key": "a", "operator": "Equal", "value": "b"}]},
        {"containers": [{"name": "c", "image": "i", "resources": {"requests": {"cpu": "1"}}}]},
    ]
    for space in ("default", "selected", "wrong", "wrong-key", "wrong-value", "tolerant", "strict", "empty", "broken"):
        path = f"{CORE}/namespaces/{space}/pods"
        requests += [Request("POST", path, pod(f"p{number}", spec)) for number, spec in enumerate(specs)]
        seconds = {"operator": "Exists", "effect": "NoExecute", "tolerationSeconds": 300}
        added = {"spec": {"tolerations": [
            *({"key": f"node.kubernetes.io/{key}", **seconds} for key in ("not-ready", "unreachable")),
            {"key": "new", "operator": "Exists"}]}}  # fmt: skip
        requests += [Request("PATCH", f"{path}/p{number}", added, MERGE) for number in (0, 5)]
    check_responses(servers, requests)


def test_changed_pods_and_services_match_kube_apiserver(servers):
    def anti_affinity(key: str) -> JSON:
        terms = [{"topologyKey": key, "labelSelector": {"matchLabels": {"a": "b"}}}]
        return {"affinity": {"podAntiAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": terms}}}

    device = {"resources": {"limits": {"example.com/gpu": "1", "other.com/x": "2", "cpu": "1", "memory": "1Gi"}}}
    init = {"initContainers": [{"name": "i", "image": "i", "imagePullPolicy": "Never"}]}
    tolerations = [{"key": "example.com/gpu", "operator": "Exists", "effect": "NoSchedule", "tolerationSeconds": 1}]
    volumes = [{"name": "v", "image": {"reference": "r", "pullPolicy": "Never"}}]
    services = f"{SPACE}/services"

    def service(name: str, *addresses: str) -> JSON:
        return {
            "metadata": {"name": name},
            "spec": {"clusterIP": "10.0.0.77", "ports": [{"port": 1}], "externalIPs": [*addresses]},
        }

    requests = [
        Request("POST", PODS, pod("spread", anti_affinity("kubernetes.io/hostname"))),
        Request("POST", PODS, pod("zonal", anti_affinity("topology.kubernetes.io/zone"))),
        Request("POST", PODS, {**pod(""), "metadata": {"generateName": "g-"}, "spec": {
            **CONTAINERS, **anti_affinity("zone")}}),
        Request("POST", PODS, pod("gpu", {"containers": [{"name": "c", "image": "i", **device}]})),
        Request("POST", PODS, pod("gpu-tolerant", {
            "containers": [{"name": "c", "image": "i", **device}], "tolerations": tolerations})),
        Request("POST", PODS, pod("pulled", {**init, "volumes": volumes})),
        Request("PATCH", f"{PODS}/pulled", {"spec": {"containers": [{"name": "c", "image": "new"}]}},
                "application/strategic-merge-patch+json"),
        Request("POST", services, service("none")),
        Request("POST", services, service("some", "192.0.2.1")),
        Request("PATCH", f"{services}/none", {"spec": {"externalIPs": ["192.0.2.1"]}}, MERGE),
        Request("PATCH", f"{services}/none", {"metadata": {"labels": {"a": "b"}}}, MERGE),
    ]  # fmt: skip
    check_responses(servers, requests)


def test_namespaces_are_provided_for_creates(servers):
    spaces = f"{CORE}/namespaces"
    requests = [
        Request("POST", f"{spaces}/dry/configmaps?dryRun=All", {"metadata": {"name": "a"}}),
        Request("GET", f"{spaces}/dry"),
        Request("POST", f"{spaces}/new/configmaps", {"metadata": {"name": "a"}}),
        Request("GET", f"{spaces}/new"),
        Request("PUT", f"{spaces}/put/configmaps/a", {"metadata": {"name": "a"}}),
        Request("GET", f"{spaces}/put"),
        Request("POST", f"{spaces}/UPPER/configmaps", {"metadata": {"name": "a"}}),
        Request("POST", f"{spaces}/bound/pods/a/binding", {"metadata": {"name": "a"}, "target": {"name": "n"}}),
        Request("GET", f"{spaces}/bound"),
        Request("POST", f"{spaces}/token/serviceaccounts/a/token", {"spec": {}}),
        Request("GET", f"{spaces}/token"),
        Request("POST", f"{spaces}/dry/pods/a/eviction?dryRun=All", {"metadata": {"name": "a"}}),
        Request("POST", f"{spaces}/dry/serviceaccounts/a/token?dryRun=All", {"spec": {}}),
        Request("DELETE", f"{spaces}/missing/configmaps/a"),
        Request("DELETE", f"{spaces}/missing/configmaps"),
    ]
    check_responses(servers, requests)
