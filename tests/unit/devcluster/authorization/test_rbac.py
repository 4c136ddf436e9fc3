"""RBAC decisions, and how soon they follow changes of roles and bindings."""

from __future__ import annotations

from typing import Any

import pytest

from kubeloop.devcluster.api.authorizer import AccessAttributes
from kubeloop.devcluster.authorization.rbac import rule_allows
from support.apiserver.api_requests import InProcessApi
from support.objects.role_bindings import BINDINGS, CLUSTER_BINDINGS, CLUSTER_ROLES, ROLES, binding, role

JSON = dict[str, Any]
ALICE: JSON = {"username": "alice", "groups": ["dev"]}
PODS = {"verbs": ["get", "list"], "apiGroups": [""], "resources": ["pods"]}
DEFAULT_PODS, OTHER_PODS = "/api/v1/namespaces/default/pods", "/api/v1/namespaces/kube-system/pods"


def resource(verb: str, name: str, group: str = "", subresource: str = "", object_name: str = "") -> AccessAttributes:
    return AccessAttributes(ALICE, verb, group, name, subresource, "default", object_name)


@pytest.mark.parametrize(
    ("rule", "attributes", "allowed"),
    [
        pytest.param({}, resource("get", "pods"), True, id="same"),
        pytest.param({}, resource("delete", "pods"), False, id="other verb"),
        pytest.param({}, resource("get", "nodes"), False, id="other resource"),
        pytest.param({}, resource("get", "pods", "metrics.k8s.io"), False, id="other group"),
        pytest.param({}, resource("get", "pods", subresource="log"), False, id="subresource"),
        pytest.param({"verbs": ["*"]}, resource("escalate", "pods"), True, id="all verbs"),
        pytest.param({"apiGroups": ["*"]}, resource("get", "pods", "x.io"), True, id="all groups"),
        pytest.param({"resources": ["*"]}, resource("get", "nodes", subresource="proxy"), True, id="all resources"),
        pytest.param({"resources": ["pods/log"]}, resource("get", "pods", subresource="log"), True, id="subresource"),
        pytest.param({"resources": ["*/log"]}, resource("get", "pods", subresource="log"), True, id="any log"),
        pytest.param({"resources": ["*/log"]}, resource("get", "pods"), False, id="any log without subresource"),
        pytest.param({"resourceNames": ["a"]}, resource("get", "pods", object_name="a"), True, id="name"),
        pytest.param({"resourceNames": ["a"]}, resource("get", "pods", object_name="b"), False, id="other name"),
        pytest.param({"resourceNames": ["a"]}, resource("get", "pods"), False, id="no name"),
        pytest.param({}, AccessAttributes(ALICE, "get", path="/pods"), False, id="path by a rule of resources"),
        pytest.param({"nonResourceURLs": ["/a/*"]}, AccessAttributes(ALICE, "get", path="/a/b"), True, id="below"),
        pytest.param({"nonResourceURLs": ["/a/*"]}, AccessAttributes(ALICE, "get", path="/a"), False, id="above"),
        pytest.param({"nonResourceURLs": ["/a"]}, AccessAttributes(ALICE, "get", path="/a"), True, id="same path"),
        pytest.param({"nonResourceURLs": ["*"]}, AccessAttributes(ALICE, "get", path="/a"), True, id="all paths"),
        pytest.param({"nonResourceURLs": ["/a"]}, AccessAttributes(ALICE, "put", path="/a"), False, id="path verb"),
    ],
)
def test_rule_allows_requests_that_it_matches(rule: JSON, attributes: AccessAttributes, allowed: bool):
    assert rule_allows({**PODS, **rule}, attributes) is allowed


async def test_next_request_sees_changes_of_roles_and_bindings():
    api = InProcessApi()
    alice = {"impersonate_user": "alice"}
    assert api("GET", DEFAULT_PODS, **alice)[0] == 403
    api.create(BINDINGS, binding("b", "reader", "alice", kind="Role"))
    status, refusal = api("GET", DEFAULT_PODS, **alice)
    assert (status, refusal["message"]) == (
        403,
        'pods is forbidden: User "alice" cannot list resource "pods" in API group "" in the namespace "default":'
        ' RBAC: role.rbac.authorization.k8s.io "reader" not found',
    )
    api.create(ROLES, role("reader", PODS))
    assert [api("GET", path, **alice)[0] for path in (DEFAULT_PODS, OTHER_PODS)] == [200, 403]
    api("PUT", f"{ROLES}/reader", role("reader", {**PODS, "verbs": ["get"]}))
    assert api("GET", DEFAULT_PODS, **alice)[0] == 403
    api("PUT", f"{ROLES}/reader", role("reader", PODS))
    assert api("GET", DEFAULT_PODS, **alice)[0] == 200
    api("DELETE", f"{BINDINGS}/b")
    assert api("GET", DEFAULT_PODS, **alice)[0] == 403


async def test_cluster_role_binding_grants_in_all_namespaces():
    api = InProcessApi()
    api.create(CLUSTER_ROLES, role("reader", PODS))
    api.create(CLUSTER_BINDINGS, binding("b", "reader", groups=("dev",)))
    headers = {"impersonate_user": "alice", "impersonate_group": "dev"}
    statuses = [api("GET", path, **headers)[0] for path in ("/api/v1/pods", DEFAULT_PODS, OTHER_PODS, "/api/v1/nodes")]
    assert statuses == [200, 200, 200, 403]


@pytest.mark.parametrize(
    ("namespace", "allowed"),
    [
        pytest.param("default", True, id="named namespace"),
        pytest.param("", True, id="namespace of the binding"),
        pytest.param("kube-system", False, id="account of another namespace"),
    ],
)
async def test_service_account_is_a_subject(namespace: str, allowed: bool):
    api = InProcessApi()
    api.create(CLUSTER_ROLES, role("reader", PODS))
    subject = {"kind": "ServiceAccount", "name": "robot", **({"namespace": namespace} if namespace else {})}
    api.create(BINDINGS, {**binding("b", "reader"), "subjects": [subject]})
    status = api("GET", DEFAULT_PODS, impersonate_user="system:serviceaccount:default:robot")[0]
    assert (status == 200) is allowed
