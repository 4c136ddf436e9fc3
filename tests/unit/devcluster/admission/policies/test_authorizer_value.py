"""The variable `authorizer` of policies: decisions of the server's authorizers about the user of the request."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from kubeloop.devcluster.admission.policies.request_variables import authorizer_value
from support.apiserver.admission_attributes import create_attributes
from support.apiserver.api_requests import InProcessApi
from support.objects.role_bindings import BINDINGS, CLUSTER_ROLES, binding, role

JSON = dict[str, Any]
POLICIES = "/apis/admissionregistration.k8s.io/v1"
CONFIG_MAPS = "/api/v1/namespaces/default/configmaps"
RULES = (
    {"verbs": ["create", "special"], "apiGroups": [""], "resources": ["configmaps"]},
    {"verbs": ["get"], "apiGroups": [""], "resources": ["secrets", "pods/log"]},
)


@pytest.fixture
async def api() -> InProcessApi:
    """Return a server where alice and the ServiceAccount robot have RULES in the namespace default."""
    api = InProcessApi()
    api.create(CLUSTER_ROLES, role("r", *RULES))
    api.create(BINDINGS, binding("alice", "r", "alice"))
    robot = {"kind": "ServiceAccount", "name": "robot", "namespace": "default"}
    api.create(BINDINGS, {**binding("robot", "r"), "subjects": [robot]})
    return api


@pytest.mark.parametrize(
    ("expression", "is_true"),
    [
        ("authorizer.group('').resource('secrets').namespace('default').check('get').allowed()", True),
        ("authorizer.group('').resource('secrets').namespace('other').check('get').allowed()", False),
        ("authorizer.group('').resource('pods').subresource('log').namespace('default').check('get').allowed()", True),
        ("authorizer.group('').resource('pods').namespace('default').check('get').allowed()", False),
        ("authorizer.requestResource.check('special').allowed()", True),
        ("authorizer.requestResource.check('delete').allowed()", False),
        ("authorizer.path('/healthz').check('get').allowed()", True),
        ("authorizer.path('/metrics').check('get').allowed()", False),
        (
            "authorizer.serviceAccount('default', 'robot').group('').resource('secrets').namespace('default')"
            ".check('get').allowed()",
            True,
        ),
        ("authorizer.serviceAccount('default', 'other').requestResource.check('special').allowed()", False),
        (
            "authorizer.requestResource.check('special').reason() == "
            '\'RBAC: allowed by RoleBinding "alice/default" of ClusterRole "r" to User "alice"\'',
            True,
        ),
        ("authorizer.requestResource.check('delete').errored()", False),
    ],
)
async def test_checks_in_a_policy_follow_the_roles_of_the_user(api: InProcessApi, expression: str, is_true: bool):
    constraints = {
        "resourceRules": [{"apiGroups": [""], "apiVersions": ["v1"], "operations": ["*"], "resources": ["*"]}]
    }
    spec = {"matchConstraints": constraints, "validations": [{"expression": expression}]}
    api.create(f"{POLICIES}/validatingadmissionpolicies", {"metadata": {"name": "p"}, "spec": spec})
    bound = {"policyName": "p", "validationActions": ["Deny"]}
    api.create(f"{POLICIES}/validatingadmissionpolicybindings", {"metadata": {"name": "p"}, "spec": bound})
    status, response = await api.handle("POST", CONFIG_MAPS, {"metadata": {"name": "a"}}, impersonate_user="alice")
    assert (status, "failed expression" in response.get("message", "")) == ((201, False) if is_true else (422, True))


async def test_check_in_a_thread_is_decided_on_the_event_loop():
    authorizer = authorizer_value(create_attributes())
    assert await asyncio.to_thread(authorizer.decide, {"path": "/", "verb": "get"}) == (True, "")
