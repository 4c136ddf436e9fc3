"""Who asks for a certificate is noted by the server, whatever the request says, and owned by nobody."""

from __future__ import annotations

from typing import Any

import pytest

from support.api_requests import InProcessApi

PATH = "/apis/certificates.k8s.io/v1/certificatesigningrequests"
ACCOUNTS = "/api/v1/namespaces/default/serviceaccounts"
FORGED = {"username": "root", "uid": "0", "groups": ["system:masters"], "extra": {"a": ["b"]}}
WANTED = {"request": "LS0t", "signerName": "example.com/x", "usages": ["client auth"]}
USER_FIELDS = ("username", "uid", "groups", "extra")


def request(name: str) -> dict[str, Any]:
    metadata = {"name": name, "labels": {"a": "b"}}
    return {
        "apiVersion": "certificates.k8s.io/v1",
        "kind": "CertificateSigningRequest",
        "metadata": metadata,
        "spec": WANTED | FORGED,
    }


def noted(answer: dict[str, Any]) -> dict[str, Any]:
    return {name: answer["spec"][name] for name in USER_FIELDS if name in answer["spec"]}


@pytest.mark.parametrize(
    ("headers", "user"),
    [
        pytest.param(
            {},
            {"username": "admin", "uid": "admin", "groups": ["system:masters", "system:authenticated"]},
            id="the administrator",
        ),
        pytest.param(
            {
                "impersonate-user": "jane",
                "impersonate-uid": "7",
                "impersonate-group": "dev",
                "impersonate-extra-scopes": "x",
            },
            {"username": "jane", "uid": "7", "groups": ["dev", "system:authenticated"], "extra": {"scopes": ["x"]}},
            id="whom the administrator speaks for",
        ),
    ],
)
async def test_a_request_for_a_certificate_names_whoever_asks(headers: dict[str, str], user: dict[str, Any]):
    api = InProcessApi()
    status, created = api("POST", PATH, request("created"), **headers)
    assert (status, noted(created)) == (201, user)
    status, applied = api("PATCH", f"{PATH}/b?fieldManager=m", request("b"), "application/apply-patch+yaml", **headers)
    assert (status, noted(applied)) == (201, user)


async def test_a_service_account_asks_in_its_own_name():
    api = InProcessApi(token="secret")
    api("POST", ACCOUNTS, {"metadata": {"name": "robot"}}, authorization="Bearer secret")
    answer = api("POST", f"{ACCOUNTS}/robot/token", {"spec": {}}, authorization="Bearer secret")[1]
    created = api("POST", PATH, request("a"), authorization=f"Bearer {answer['status']['token']}")[1]
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


async def test_nobody_owns_the_spec_of_such_a_request():
    api = InProcessApi()
    created = api("POST", PATH, request("a"))[1]
    assert [set(each["fieldsV1"]) for each in created["metadata"]["managedFields"]] == [{"f:metadata"}]


async def test_an_update_leaves_its_requester():
    api = InProcessApi()
    created = api("POST", PATH, request("a"), impersonate_user="jane")[1]
    changed = api("PUT", f"{PATH}/a", {**created, "spec": created["spec"] | FORGED})[1]
    assert noted(changed) == noted(created)
