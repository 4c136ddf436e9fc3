"""Permissions for the parameters of admission policies."""

from __future__ import annotations

from typing import Any

import pytest

from kubeloop.devcluster.kinds.admissionregistration.parameter_access import check_param_kind, check_param_ref
from kubeloop.devcluster.kinds.admissionregistration.validating_admission_policy import STRATEGY as POLICY
from kubeloop.devcluster.kinds.admissionregistration.validating_admission_policy_binding import STRATEGY as BINDING
from support.apiserver.api_requests import InProcessApi
from support.objects.role_bindings import CLUSTER_BINDINGS, CLUSTER_ROLES, binding, role

JSON = dict[str, Any]
ADMISSION = "/apis/admissionregistration.k8s.io/v1"
POLICIES, POLICY_BINDINGS = f"{ADMISSION}/validatingadmissionpolicies", f"{ADMISSION}/validatingadmissionpolicybindings"


@pytest.fixture
async def api() -> InProcessApi:
    api = InProcessApi()
    write = {"verbs": ["create", "update", "patch"], "apiGroups": ["admissionregistration.k8s.io"], "resources": ["*"]}
    read = {"verbs": ["get"], "apiGroups": [""], "resources": ["configmaps"]}
    for user, rules in {"author": [write], "reader": [write, read]}.items():
        api.create(CLUSTER_ROLES, role(user, *rules))
        api.create(CLUSTER_BINDINGS, binding(user, user, user))
    return api


def policy(name: str, **spec: Any) -> JSON:
    resources = {"apiGroups": [""], "apiVersions": ["v1"], "resources": ["secrets"], "operations": ["CREATE"]}
    constraints = {"matchConstraints": {"resourceRules": [resources]}, "validations": [{"expression": "true"}]}
    return {"metadata": {"name": name}, "spec": {**constraints, **spec}}


def test_strategies_check_parameters():
    assert POLICY.check_access is check_param_kind
    assert getattr(BINDING.check_access, "func", None) is check_param_ref


async def test_author_of_a_policy_must_read_its_param_kind(api: InProcessApi):
    body = policy("p", paramKind={"apiVersion": "v1", "kind": "ConfigMap"})
    status, content = api("POST", POLICIES, body, impersonate_user="author")
    assert status == 422
    permission = '"get" permission on all objects of the referenced paramKind (kind=ConfigMap, apiVersion=v1)'
    message = f"spec.paramKind: Forbidden: user &{{author  [system:authenticated] map[]}} must have {permission}"
    assert content["message"].endswith(message)
    assert api("POST", POLICIES, body, impersonate_user="reader")[0] == 201
    label = {"metadata": {"labels": {"a": "b"}}}
    assert api("PATCH", f"{POLICIES}/p", label, impersonate_user="author")[0] == 200  # paramKind is unchanged


@pytest.mark.parametrize(
    ("reference", "statuses"),
    [({"name": "c", "namespace": "default"}, (422, 201)), ({"selector": {}}, (422, 422))],
    ids=["get", "list"],
)
async def test_author_of_a_binding_must_read_its_parameters(
    api: InProcessApi, reference: JSON, statuses: tuple[int, int]
):
    api.create(POLICIES, policy("p", paramKind={"apiVersion": "v1", "kind": "ConfigMap"}))
    spec = {"policyName": "p", "validationActions": ["Deny"]}
    body = {**spec, "paramRef": {**reference, "parameterNotFoundAction": "Deny"}}
    for user, expected in zip(("author", "reader"), statuses, strict=True):
        response = api("POST", POLICY_BINDINGS, {"metadata": {"name": user}, "spec": body}, impersonate_user=user)
        assert response[0] == expected
        if expected == 422:
            assert "permission on the object referenced by paramRef" in response[1]["message"]


async def test_binding_of_an_unknown_policy_needs_every_permission(api: InProcessApi):
    reference = {"name": "c", "parameterNotFoundAction": "Deny"}
    spec = {"policyName": "none", "validationActions": ["Deny"], "paramRef": reference}
    status, content = api("POST", POLICY_BINDINGS, {"metadata": {"name": "b"}, "spec": spec}, impersonate_user="reader")
    assert status == 422
    assert "unable to get policy none to determine minimum required permissions" in content["message"]


async def test_invalid_policies_and_bindings_are_refused_by_validation_alone(api: InProcessApi):
    reference = {"name": "c", "parameterNotFoundAction": "Deny"}
    invalid = ((POLICY_BINDINGS, {"paramRef": reference}), (POLICIES, {"paramKind": {"kind": "ConfigMap"}}))
    for path, spec in invalid:
        status, content = api("POST", path, {"metadata": {"name": "b"}, "spec": spec}, impersonate_user="author")
        assert status == 422
        assert "permission" not in content["message"]
