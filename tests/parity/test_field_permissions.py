"""Permissions that fields need: parameters of admission policies, and the status of ResourceClaims."""

from __future__ import annotations

import time
from collections.abc import Iterator
from typing import Any

import pytest

from support.apiserver.http_api import ServerPair, server_pair
from support.comparison.same_responses import Request, check_responses
from support.objects.role_bindings import CLUSTER_BINDINGS, CLUSTER_ROLES, binding, role

JSON = dict[str, Any]
Headers = tuple[tuple[str, str], ...]
REGISTRATION = "/apis/admissionregistration.k8s.io/v1"
CLAIMS = "/apis/resource.k8s.io/v1/namespaces/default/resourceclaims"
CRDS = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"
MERGE = "application/merge-patch+json"
_SYNCED_SECONDS = 20.0
KINDS = ("validatingadmissionpolicies", "mutatingadmissionpolicies")


def rule(verbs: str, group: str, resources: str, *names: str) -> JSON:
    named = {"resourceNames": [*names]} if names else {}
    return {"verbs": verbs.split(), "apiGroups": [group], "resources": resources.split(), **named}


AUTHOR = rule("create update patch", "admissionregistration.k8s.io", "*")
STATUS = rule("update patch get", "resource.k8s.io", "resourceclaims/status")
ROLES: dict[str, list[JSON]] = {
    "author": [AUTHOR],
    "reader": [AUTHOR, rule("get", "", "configmaps"), rule("get list", "example.com", "widgets")],
    "named": [AUTHOR, rule("get", "", "configmaps", "p")],
    "everything": [AUTHOR, rule("get list", "*", "*")],
    "status": [STATUS],
    "binder": [STATUS, rule("update patch", "resource.k8s.io", "resourceclaims/binding")],
    "driver": [STATUS, rule("arbitrary-node:update", "resource.k8s.io", "resourceclaims/driver", "d.example.com")],
    "on-node": [STATUS, rule("associated-node:update", "resource.k8s.io", "resourceclaims/driver")],
}
ROBOT = "system:serviceaccount:default:robot"


@pytest.fixture(scope="module")
def servers(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServerPair]:
    flags = {"authorization-mode": "Node,RBAC", "feature-gates": "DRAAdminAccess=true"}
    with server_pair(tmp_path_factory.mktemp("servers"), flags) as servers:
        schema = {"openAPIV3Schema": {"type": "object"}}
        versions = [{"name": "v1", "served": True, "storage": True, "schema": schema}]
        spec = {"group": "example.com", "scope": "Namespaced", "names": {"plural": "widgets", "kind": "Widget"}}
        definition = {"metadata": {"name": "widgets.example.com"}, "spec": {**spec, "versions": versions}}
        for server in (servers.real, servers.ours):
            for name, rules in ROLES.items():
                assert server.request("POST", CLUSTER_ROLES, role(name, *rules)).status == 201
                users = (name, ROBOT) if name == "on-node" else (name,)
                assert server.request("POST", CLUSTER_BINDINGS, binding(name, name, *users)).status == 201
            assert server.request("POST", CRDS, definition).status == 201
            deadline = time.monotonic() + _SYNCED_SECONDS
            while (
                server.request("GET", "/apis/example.com/v1/widgets").status != 200
                or server.request("GET", f"{CLAIMS}/none/status", headers=as_user("on-node")).status != 404
            ):
                assert time.monotonic() < deadline
                time.sleep(0.1)
        yield servers


def as_user(name: str, *groups: str, **extra: str) -> Headers:
    headers = [("Impersonate-User", name), *(("Impersonate-Group", group) for group in groups)]
    return (*headers, *((f"Impersonate-Extra-{key}", value) for key, value in extra.items()))


def policy(plural: str, name: str, param_kind: JSON | None) -> JSON:
    constraints = {"resourceRules": [
        {"apiGroups": [""], "apiVersions": ["v1"], "resources": ["secrets"], "operations": ["CREATE"]}]}  # fmt: skip
    spec: JSON = {"matchConstraints": constraints, **({"paramKind": param_kind} if param_kind else {})}
    if plural == KINDS[0]:
        spec["validations"] = [{"expression": "true"}]
    else:
        patch = {"patchType": "JSONPatch", "jsonPatch": {"expression": "[]"}}
        spec |= {"reinvocationPolicy": "Never", "mutations": [patch]}
    return {"metadata": {"name": name}, "spec": spec}


PARAM_KINDS: dict[str, JSON] = {
    "maps": {"apiVersion": "v1", "kind": "ConfigMap"},
    "widgets": {"apiVersion": "example.com/v1", "kind": "Widget"},
    "unknown": {"apiVersion": "none.example.com/v1", "kind": "None"},
}


def policy_requests(plural: str) -> Iterator[Request]:
    path = f"{REGISTRATION}/{plural}"
    for user in ("author", "reader", "named", "everything"):
        headers = as_user(user, "dev", scopes="a")
        for name, kind in PARAM_KINDS.items():
            yield Request("POST", path, policy(plural, f"{user}-{name}", kind), headers=headers)
        yield Request("POST", path, {**policy(plural, f"{user}-invalid", {"apiVersion": "v1"})}, headers=headers)
        yield Request("POST", path, policy(plural, f"{user}-plain", None), headers=headers)
        for kind in (PARAM_KINDS["maps"], PARAM_KINDS["widgets"], None):
            yield Request("PATCH", f"{path}/{user}-plain", {"spec": {"paramKind": kind}}, MERGE, headers=headers)
        label = {"metadata": {"labels": {"a": "b"}}}
        yield Request("PATCH", f"{path}/everything-maps", label, MERGE, headers=headers)
    for name, kind in PARAM_KINDS.items():
        yield Request("POST", path, policy(plural, f"of-admin-{name}", kind))


def binding_requests(plural: str) -> Iterator[Request]:
    path = f"{REGISTRATION}/{plural.replace('policies', 'policybindings')}"
    actions = {"validationActions": ["Deny"]} if plural == KINDS[0] else {}
    not_found = {"parameterNotFoundAction": "Allow"}
    references: list[JSON] = [
        {"name": "p", "namespace": "default"},
        {"name": "q"},
        {"selector": {}},
        {"selector": {"matchLabels": {"a": "b"}}, "namespace": "default"},
    ]
    for user in ("author", "reader", "named", "everything"):
        headers = as_user(user)
        for target in ("of-admin-maps", "of-admin-widgets", "of-admin-unknown", "none"):
            for number, reference in enumerate(references):
                spec = {"policyName": target, "paramRef": {**reference, **not_found}, **actions}
                body = {"metadata": {"name": f"{user}-{target}-{number}"}, "spec": spec}
                yield Request("POST", path, body, headers=headers)
        body = {"metadata": {"name": f"{user}-plain"}, "spec": {"policyName": "of-admin-maps", **actions}}
        yield Request("POST", path, body, headers=headers)
        for reference in (references[0], references[0], references[1]):
            changed = {"spec": {"paramRef": {**reference, **not_found}}}
            yield Request("PATCH", f"{path}/{user}-plain", changed, MERGE, headers=headers)


@pytest.mark.parametrize("plural", KINDS)
def test_parameters_must_be_readable(servers: ServerPair, plural: str):
    requests = [*policy_requests(plural), *binding_requests(plural)]
    assert len(requests) > 100
    check_responses(servers, requests)


def claim_status(node: str, **fields: Any) -> JSON:
    result = {"request": "r", "driver": "d.example.com", "pool": "p", "device": "x"}
    terms = [{"matchFields": [{"key": "metadata.name", "operator": "In", "values": [node]}]}]
    allocation = {"devices": {"results": [result]}, "nodeSelector": {"nodeSelectorTerms": terms}}
    return {"status": {"allocation": allocation, **fields}}


def test_status_of_claims_needs_permissions(servers: ServerPair):
    requests = []
    exactly = {"deviceClassName": "c.example.com"}
    device = {"driver": "d.example.com", "pool": "p", "device": "x"}
    on_node = {"authentication.kubernetes.io%2fnode-name": "n"}
    users = [*((user, {}) for user in ("status", "binder", "driver", ROBOT, "admin")), ("on-node", on_node)]
    for user, extra in (*users, (ROBOT, on_node)):
        name = f"claim-{user.rpartition(':')[2]}-{len(extra)}"
        spec = {"devices": {"requests": [{"name": "r", "exactly": exactly}]}}
        requests.append(Request("POST", CLAIMS, {"metadata": {"name": name}, "spec": spec}))
        headers = () if user == "admin" else as_user(user, **extra)
        full = {"metadata": {"name": name}, "spec": spec}
        path = f"{CLAIMS}/{name}/status"
        reserved = {"reservedFor": [{"resource": "pods", "name": "a", "uid": "u"}]}
        bodies = (full, {**full, **claim_status("n")}, {**full, **claim_status("n", **reserved)})
        requests += [Request("PUT", path, body, headers=headers) for body in bodies]
        requests.append(Request("PATCH", path, claim_status("n"), MERGE, headers=headers))
        requests.append(Request("PUT", path, {**full, **claim_status("n")}))
        for node in ("n", "m"):
            requests.append(Request("PUT", path, {**full, **claim_status(node)}))
            for devices in ([device], [{**device, "data": {"a": 1}}], [{**device, "driver": "other"}], []):
                body = {**full, **claim_status(node, devices=devices)}
                requests.append(Request("PUT", path, body, headers=headers))
        requests.append(Request("PATCH", path, {"status": {"devices": [device]}}, MERGE, headers=headers))
    check_responses(servers, requests)


def test_admin_access_is_refused_together_with_other_errors(servers: ServerPair):
    exactly = {"deviceClassName": "-", "adminAccess": True}
    spec = {"devices": {"requests": [{"name": "r", "exactly": exactly}, {"name": "r", "exactly": exactly}]}}
    templates = CLAIMS.replace("claims", "claimtemplates")
    requests = [
        Request("POST", CLAIMS, {"metadata": {"name": "a"}, "spec": spec}),
        Request("POST", templates, {"metadata": {"name": "a"}, "spec": {"spec": spec}}),
    ]
    check_responses(servers, requests)
