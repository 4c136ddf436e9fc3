"""Modes of authorization: their option, anonymous users, and requests for objects that a write creates."""

from __future__ import annotations

from typing import Any

import pytest

from kubeloop.devcluster.api.authorizer import AccessAttributes
from kubeloop.devcluster.authorization.mode_names import parse_authorization_modes
from kubeloop.devcluster.authorization.modes import AuthorizationChain
from kubeloop.devcluster.server.apiserver import ServingSettings
from kubeloop.devcluster.storage.store import ObjectStore
from kubeloop.kube.feature_gates import FeatureGates
from kubeloop.kube.user_error import UserError
from support.apiserver.api_requests import InProcessApi
from support.objects.role_bindings import BINDINGS, CLUSTER_ROLES, binding, role

PODS = "/api/v1/namespaces/default/pods"
USER: dict[str, Any] = {"username": "alice", "groups": ["system:authenticated"]}


@pytest.mark.parametrize(
    ("text", "modes"),
    [
        pytest.param("Node,RBAC", ("Node", "RBAC"), id="default"),
        pytest.param("AlwaysAllow", ("AlwaysAllow",), id="one"),
        pytest.param("RBAC, AlwaysDeny", ("RBAC", "AlwaysDeny"), id="space"),
    ],
)
def test_authorization_modes(text: str, modes: tuple[str, ...]):
    assert parse_authorization_modes(text) == modes


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        pytest.param("Webhook", "--authorization-mode: the mode Webhook is not supported", id="webhook"),
        pytest.param("RBAC,ABAC", "--authorization-mode: the mode ABAC is not supported", id="ABAC"),
        pytest.param("rbac", '--authorization-mode: "rbac" is not a valid mode', id="lower case"),
        pytest.param("", '--authorization-mode: "" is not a valid mode', id="empty"),
        pytest.param("RBAC,RBAC", "--authorization-mode: RBAC is specified more than once", id="repeated"),
    ],
)
def test_invalid_authorization_modes(text: str, problem: str):
    with pytest.raises(UserError, match="^" + problem.replace("(", r"\(")):
        parse_authorization_modes(text)


@pytest.mark.parametrize(
    ("modes", "status", "message"),
    [
        pytest.param(("AlwaysAllow",), 200, "", id="always allow"),
        pytest.param(("RBAC", "AlwaysAllow"), 200, "", id="last one allows"),
        pytest.param(
            ("RBAC", "AlwaysDeny"),
            403,
            'pods is forbidden: User "alice" cannot list resource "pods" in API group "" in the namespace "default":'
            " Everything is forbidden.",
            id="always deny",
        ),
    ],
)
async def test_first_mode_that_allows_decides(modes: tuple[str, ...], status: int, message: str):
    api = InProcessApi(settings=ServingSettings(authorization_modes=modes))
    code, response = api("GET", PODS, impersonate_user="alice")
    assert (code, response.get("message", "")) == (status, message)
    assert api("GET", PODS)[0] == 200, "of an administrator"


async def test_anonymous_user_may_read_public_paths():
    api = InProcessApi(token="right")
    statuses = {path: api("GET", path)[0] for path in ("/healthz", "/livez", "/readyz", "/version", "/api", "/metrics")}
    assert statuses == dict.fromkeys(("/healthz", "/livez", "/readyz", "/version"), 200) | {
        "/api": 403,
        "/metrics": 403,
    }
    response = api("GET", "/api")[1]
    assert response["message"] == 'forbidden: User "system:anonymous" cannot get path "/api"'
    assert response["details"] == {}


async def test_unknown_resource_is_forbidden_before_it_is_not_found():
    api = InProcessApi()
    assert api("GET", "/apis/x.io/v1/things")[0] == 404
    status, response = api("GET", "/apis/x.io/v1/things/a", impersonate_user="alice")
    assert (status, response["message"]) == (
        403,
        'things.x.io "a" is forbidden: User "alice" cannot get resource "things" in API group "x.io"'
        " at the cluster scope",
    )
    assert response["details"] == {"name": "a", "group": "x.io", "kind": "things"}


async def test_update_or_apply_that_creates_needs_create():
    api = InProcessApi()
    rule = {"verbs": ["update", "patch"], "apiGroups": [""], "resources": ["configmaps", "limitranges"]}
    api.create(CLUSTER_ROLES, role("writer", rule))
    api.create(BINDINGS, binding("writer", "writer", "alice"))
    namespace = "/api/v1/namespaces/default"
    applied = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "a"}}
    path, media_type = f"{namespace}/configmaps/a?fieldManager=m", "application/apply-patch+yaml"
    status, response = api("PATCH", path, applied, media_type, impersonate_user="alice")
    assert (status, response["message"]) == (
        403,
        'configmaps "a" is forbidden: User "alice" cannot create resource "configmaps" in API group ""'
        ' in the namespace "default"',
    )
    limits = {"metadata": {"name": "a"}, "spec": {"limits": []}}
    assert api("PUT", f"{namespace}/limitranges/a", limits, impersonate_user="alice")[0] == 403
    api.create(f"{namespace}/configmaps", applied)
    assert api("PATCH", path, applied, media_type, impersonate_user="alice")[0] == 200


def test_rules_of_a_user_are_those_of_all_modes():
    store = ObjectStore(seconds=lambda: 0.0)
    node = {"username": "system:node:n", "groups": ["system:nodes"]}
    rules = AuthorizationChain(store, ("Node", "AlwaysAllow", "AlwaysDeny"), list).rules_of(node, "default")
    assert rules.resource_rules == [{"verbs": ["*"], "apiGroups": ["*"], "resources": ["*"]}]
    assert rules.non_resource_rules == [{"verbs": ["*"], "nonResourceURLs": ["*"]}]
    assert (rules.incomplete, rules.error) == (True, "node authorizer does not support user rule resolution")
    none = AuthorizationChain(store, ("Node", "RBAC"), list).rules_of(USER, "default")
    assert none == ([], [], False, "")


def test_privileged_group_is_allowed_everything():
    authorization = AuthorizationChain(ObjectStore(seconds=lambda: 0.0), ("AlwaysDeny",), list)
    masters = AccessAttributes({"username": "root", "groups": ["system:masters"]}, "get", path="/")
    assert authorization.authorize(masters) == (True, "", "")
    assert not authorization.authorize(AccessAttributes(USER, "get", path="/")).allowed


@pytest.mark.parametrize(
    ("gate", "verbs", "status"),
    [
        pytest.param(True, ["get"], 403, id="get"),
        pytest.param(True, ["get", "create"], 404, id="get and create"),
        pytest.param(False, ["get"], 404, id="gate is off"),
    ],
)
async def test_stream_by_get_needs_create(gate: bool, verbs: list[str], status: int):
    gates = FeatureGates({"AuthorizePodWebsocketUpgradeCreatePermission": gate})
    api = InProcessApi(settings=ServingSettings(feature_gates=gates))
    api.create(CLUSTER_ROLES, role("exec", {"verbs": verbs, "apiGroups": [""], "resources": ["pods/exec"]}))
    api.create(BINDINGS, binding("exec", "exec", "alice"))
    code, response = api("GET", f"{PODS}/p/exec?command=a", impersonate_user="alice")
    assert (code, response["message"].startswith('pods "p" is forbidden: ')) == (status, status == 403)
