"""Requester fields of CertificateSigningRequests: set from the authenticated user, never from the body."""

from __future__ import annotations

from typing import Any

import pytest

from support.apiserver.api_requests import InProcessApi
from support.objects.certificate_requests import signing_request
from support.objects.role_bindings import ALL_USERS_ARE_ADMINISTRATORS, CLUSTER_BINDINGS, CLUSTER_ROLES, binding, role

PATH = "/apis/certificates.k8s.io/v1/certificatesigningrequests"
ACCOUNTS = "/api/v1/namespaces/default/serviceaccounts"
FORGED_USER = {"username": "root", "uid": "0", "groups": ["system:masters"], "extra": {"a": ["b"]}}
REQUEST_SPEC = signing_request(signer="example.com/x")["spec"]
USER_FIELDS = ("username", "uid", "groups", "extra")


def request(name: str) -> dict[str, Any]:
    metadata = {"name": name, "labels": {"a": "b"}}
    return {
        "apiVersion": "certificates.k8s.io/v1",
        "kind": "CertificateSigningRequest",
        "metadata": metadata,
        "spec": REQUEST_SPEC | FORGED_USER,
    }


def requester(response: dict[str, Any]) -> dict[str, Any]:
    return {name: response["spec"][name] for name in USER_FIELDS if name in response["spec"]}


@pytest.mark.parametrize(
    ("headers", "user"),
    [
        pytest.param(
            {},
            {"username": "admin", "uid": "admin", "groups": ["system:masters", "system:authenticated"]},
            id="administrator",
        ),
        pytest.param(
            {
                "impersonate-user": "jane",
                "impersonate-uid": "7",
                "impersonate-group": "dev",
                "impersonate-extra-scopes": "x",
            },
            {"username": "jane", "uid": "7", "groups": ["dev", "system:authenticated"], "extra": {"scopes": ["x"]}},
            id="impersonated user",
        ),
    ],
)
async def test_requester_fields_come_from_the_authenticated_user(headers: dict[str, str], user: dict[str, Any]):
    api = InProcessApi()
    api.create(CLUSTER_BINDINGS, ALL_USERS_ARE_ADMINISTRATORS)
    status, created = api("POST", PATH, request("created"), **headers)
    assert (status, requester(created)) == (201, user)
    status, applied = api("PATCH", f"{PATH}/b?fieldManager=m", request("b"), "application/apply-patch+yaml", **headers)
    assert (status, requester(applied)) == (201, user)


async def test_requester_fields_of_a_service_account():
    api = InProcessApi(token="secret")
    api("POST", CLUSTER_BINDINGS, ALL_USERS_ARE_ADMINISTRATORS, authorization="Bearer secret")
    api("POST", ACCOUNTS, {"metadata": {"name": "robot"}}, authorization="Bearer secret")
    response = api("POST", f"{ACCOUNTS}/robot/token", {"spec": {}}, authorization="Bearer secret")[1]
    created = api("POST", PATH, request("a"), authorization=f"Bearer {response['status']['token']}")[1]
    assert created["spec"]["username"] == "system:serviceaccount:default:robot"
    assert created["spec"]["groups"] == [
        "system:serviceaccounts",
        "system:serviceaccounts:default",
        "system:authenticated",
    ]
    assert (
        created["spec"]["uid"] == api("GET", f"{ACCOUNTS}/robot", authorization="Bearer secret")[1]["metadata"]["uid"]
    )
    assert list(created["spec"]["extra"]) == ["authentication.kubernetes.io/credential-id"]


async def test_managed_fields_leave_out_the_spec():
    api = InProcessApi()
    api.create(CLUSTER_BINDINGS, ALL_USERS_ARE_ADMINISTRATORS)
    created = api("POST", PATH, request("a"))[1]
    assert [set(entry["fieldsV1"]) for entry in created["metadata"]["managedFields"]] == [{"f:metadata"}]


async def test_update_keeps_the_requester_fields():
    api = InProcessApi()
    api.create(CLUSTER_BINDINGS, ALL_USERS_ARE_ADMINISTRATORS)
    created = api("POST", PATH, request("a"), impersonate_user="jane")[1]
    changed = api("PUT", f"{PATH}/a", {**created, "spec": created["spec"] | FORGED_USER})[1]
    assert requester(changed) == requester(created)


@pytest.mark.parametrize(
    ("names", "status"),
    [
        pytest.param(["example.com/x"], 200, id="signer"),
        pytest.param(["example.com/*"], 200, id="all signers of the domain"),
        pytest.param(["example.com/y"], 403, id="another signer"),
    ],
)
async def test_approval_and_signing_need_a_permission_for_the_signer(names: list[str], status: int):
    api = InProcessApi()
    group = "certificates.k8s.io"
    resources = [f"certificatesigningrequests/{subresource}" for subresource in ("approval", "status")]
    rules = [
        {"verbs": ["update"], "apiGroups": [group], "resources": resources},
        {"verbs": ["approve", "sign"], "apiGroups": [group], "resources": ["signers"], "resourceNames": names},
    ]
    api.create(CLUSTER_ROLES, role("approver", *rules))
    api.create(CLUSTER_BINDINGS, binding("approver", "approver", "jane"))
    created = api.create(PATH, request("a"))
    for subresource, verb, condition in (("approval", "approve", "Approved"), ("status", "sign", "Failed")):
        present = (created.get("status") or {}).get("conditions") or []
        conditions = [*present, {"type": condition, "status": "True", "reason": "r"}]
        code, response = api(
            "PUT", f"{PATH}/a/{subresource}", {**created, "status": {"conditions": conditions}}, impersonate_user="jane"
        )
        assert code == status
        if code == 200:
            created = response
        else:
            reason = f'user not permitted to {verb} requests with signerName "example.com/x"'
            assert response["message"].endswith(f"is forbidden: {reason}")
