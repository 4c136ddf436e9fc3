"""Writes of roles and bindings by users that do not have the permissions which these grant."""

from __future__ import annotations

from typing import Any

import pytest

from kubeloop.devcluster.authorization import escalation
from support.apiserver.api_requests import InProcessApi
from support.objects.role_bindings import BINDINGS, CLUSTER_BINDINGS, CLUSTER_ROLES, RBAC, ROLES, binding, role

JSON = dict[str, Any]
GET_PODS = {"verbs": ["get"], "apiGroups": [""], "resources": ["pods"]}
GET_SECRETS = {"verbs": ["get"], "apiGroups": [""], "resources": ["secrets"]}
WRITE = {"verbs": ["create", "update", "patch"], "apiGroups": ["rbac.authorization.k8s.io"], "resources": ["*"]}
ALICE = {"impersonate_user": "alice"}
REFUSAL = (
    'user "alice" (groups=["system:authenticated"]) is attempting to grant RBAC permissions not currently held:\n'
    '{APIGroups:[""], Resources:["secrets"], Verbs:["get"]}'
)
AGGREGATION = {"clusterRoleSelectors": [{"matchLabels": {"a": "b"}}]}


@pytest.fixture
async def api() -> InProcessApi:
    """Return a server where alice may write roles and bindings, and get pods."""
    api = InProcessApi()
    api.create(CLUSTER_ROLES, role("writer", WRITE, GET_PODS))
    api.create(CLUSTER_ROLES, role("secrets", GET_SECRETS))
    api.create(CLUSTER_ROLES, role("pods", GET_PODS))
    api.create(CLUSTER_BINDINGS, binding("writer", "writer", "alice"))
    return api


def grant(api: InProcessApi, verb: str, resource: str, name: str = "") -> None:
    rule: JSON = {"verbs": [verb], "apiGroups": ["rbac.authorization.k8s.io"], "resources": [resource]}
    if name:
        rule["resourceNames"] = [name]
    api.create(CLUSTER_ROLES, role(verb, rule))
    api.create(CLUSTER_BINDINGS, binding(verb, verb, "alice"))


@pytest.mark.parametrize(
    ("path", "obj", "kind"),
    [
        pytest.param(ROLES, role("new", GET_PODS, GET_SECRETS), "roles", id="role"),
        pytest.param(CLUSTER_ROLES, role("new", GET_SECRETS), "clusterroles", id="cluster role"),
        pytest.param(BINDINGS, binding("new", "secrets", "bob"), "rolebindings", id="binding"),
        pytest.param(CLUSTER_BINDINGS, binding("new", "secrets", "bob"), "clusterrolebindings", id="cluster binding"),
    ],
)
async def test_permissions_that_the_user_lacks_are_refused(api: InProcessApi, path: str, obj: JSON, kind: str):
    status, response = api("POST", path, obj, **ALICE)
    message = f'{kind}.rbac.authorization.k8s.io "new" is forbidden: {REFUSAL}'
    assert (status, response["message"]) == (403, message)
    assert response["details"] == {"name": "new", "group": "rbac.authorization.k8s.io", "kind": kind}
    assert api("POST", path, obj)[0] == 201, "of an administrator"


@pytest.mark.parametrize(
    ("path", "obj"),
    [
        pytest.param(ROLES, role("new", GET_PODS), id="role"),
        pytest.param(BINDINGS, binding("new", "pods", "bob"), id="binding"),
        pytest.param(CLUSTER_BINDINGS, binding("new", "pods", "bob"), id="cluster binding"),
    ],
)
async def test_permissions_of_the_user_may_be_granted(api: InProcessApi, path: str, obj: JSON):
    assert api("POST", path, obj, **ALICE)[0] == 201


async def test_update_and_apply_are_checked(api: InProcessApi):
    api.create(ROLES, role("old", GET_PODS))
    path, more = f"{ROLES}/old", role("old", GET_SECRETS)
    applied = {"apiVersion": "rbac.authorization.k8s.io/v1", "kind": "Role", **more}
    assert api("PUT", path, more, **ALICE)[0] == 403
    assert api("PATCH", path, {"rules": [GET_SECRETS]}, **ALICE)[0] == 403
    assert api("PATCH", f"{path}?fieldManager=m&force=true", applied, "application/apply-patch+yaml", **ALICE)[0] == 403
    assert api("PATCH", path, {"metadata": {"labels": {"a": "b"}}}, **ALICE)[0] == 200


async def test_update_of_finalizers_alone_is_not_checked(api: InProcessApi):
    api.create(ROLES, role("old", GET_SECRETS))
    assert api("PATCH", f"{ROLES}/old", {"metadata": {"finalizers": ["a.b/c"]}}, **ALICE)[0] == 200
    assert api("PATCH", f"{ROLES}/old", {"metadata": {"labels": {"a": "b"}}}, **ALICE)[0] == 403


async def test_escalate_allows_all_rules(api: InProcessApi):
    grant(api, "escalate", "clusterroles")
    assert api("POST", CLUSTER_ROLES, role("new", GET_SECRETS), **ALICE)[0] == 201
    assert api("POST", ROLES, role("new", GET_SECRETS), **ALICE)[0] == 403


async def test_bind_allows_the_named_role(api: InProcessApi):
    grant(api, "bind", "clusterroles", "secrets")
    assert api("POST", BINDINGS, binding("new", "secrets", "bob"), **ALICE)[0] == 201
    assert api("POST", BINDINGS, binding("other", "cluster-admin", "bob"), **ALICE)[0] == 403


async def test_binding_of_a_missing_role_is_not_found(api: InProcessApi):
    status, response = api("POST", BINDINGS, binding("new", "nowhere", "bob"), **ALICE)
    assert (status, response["message"]) == (404, 'rolebindings.rbac.authorization.k8s.io "nowhere" not found')
    assert api("POST", BINDINGS, binding("new", "nowhere", "bob"))[0] == 201, "of an administrator"


async def test_aggregation_rule_needs_all_permissions(api: InProcessApi):
    status, response = api("POST", CLUSTER_ROLES, role("new", aggregationRule=AGGREGATION), **ALICE)
    assert status == 403
    assert response["message"].endswith("must have cluster-admin privileges to use the aggregationRule")
    api.create(f"{RBAC}/clusterrolebindings", binding("all", "cluster-admin", "alice"))
    assert api("POST", CLUSTER_ROLES, role("new", aggregationRule=AGGREGATION), **ALICE)[0] == 201


async def test_unresolved_roles_of_the_user_are_named(api: InProcessApi):
    api.create(CLUSTER_BINDINGS, binding("gone", "gone", "alice"))
    message = api("POST", ROLES, role("new", GET_SECRETS), **ALICE)[1]["message"]
    assert message.endswith('; resolution errors: [roles.rbac.authorization.k8s.io "gone" not found]')


def test_module_checks_roles_and_bindings() -> None:
    from kubeloop.devcluster.kinds.rbac import cluster_role, cluster_role_binding, role, role_binding

    checks = [module.STRATEGY.authorize_write for module in (role, cluster_role, role_binding, cluster_role_binding)]
    assert checks == [escalation.check_role] * 2 + [escalation.check_binding] * 2
