"""Tokens of Secrets: when they are accepted, and what their use changes."""

from __future__ import annotations

from base64 import b64encode
from datetime import UTC, datetime
from typing import Any

import pytest

from kubeloop.devcluster.authentication.legacy_tokens import AUTO_GENERATED, InvalidToken, check_legacy_token
from kubeloop.devcluster.storage.store import ObjectStore
from kubeloop.kube.objects.resources import SECRETS, SERVICE_ACCOUNTS
from support.apiserver.api_requests import InProcessApi

NOW = datetime(2026, 12, 31, 23, 0, tzinfo=UTC)
CLAIM = "kubernetes.io/serviceaccount/"
CLAIMS = {
    "iss": "kubernetes/serviceaccount",
    f"{CLAIM}namespace": "ns",
    f"{CLAIM}secret.name": "s",
    f"{CLAIM}service-account.name": "robot",
    f"{CLAIM}service-account.uid": "u",
    "sub": "system:serviceaccount:ns:robot",
}
LAST_USED, INVALID_SINCE = "kubernetes.io/legacy-token-last-used", "kubernetes.io/legacy-token-invalid-since"
USER = {
    "username": "system:serviceaccount:ns:robot",
    "uid": "u",
    "groups": ["system:serviceaccounts", "system:serviceaccounts:ns"],
}


def check(secret: Any = None, account: Any = None, **metadata: Any) -> tuple[Any, list[str], Any]:
    """Check the token "t" of ns/s; return the user, the warnings and the labels of the Secret."""
    store = ObjectStore(seconds=lambda: 0.0)
    secret = {"data": {"token": b64encode(b"t").decode()}} if secret is None else secret
    if secret:
        store.create(SECRETS, {"metadata": {"name": "s", "namespace": "ns", "uid": "s", **metadata}, **secret})
    account = {"metadata": {"uid": "u"}} if account is None else account
    if account:
        named = {"name": "robot", "namespace": "ns", **account["metadata"]}
        store.create(SERVICE_ACCOUNTS, {**account, "metadata": named})
    warnings: list[str] = []
    user = check_legacy_token(store, "t", CLAIMS, NOW, warnings)
    stored = store.get(SECRETS, "ns", "s")
    assert stored is not None
    return user, warnings, stored["metadata"].get("labels")


def test_token_of_an_existing_secret_and_account_is_accepted():
    assert check() == (USER, [], {LAST_USED: "2026-12-31"})


@pytest.mark.parametrize(
    ("before", "after"),
    [("2026-12-30", "2026-12-31"), ("2026-12-31", "2026-12-31"), ("2027-01-01", "2027-01-01"), ("x", "2026-12-31")],
)
def test_use_of_a_token_is_recorded_once_a_day(before: str, after: str):
    assert check(labels={LAST_USED: before, "a": "b"})[2] == {LAST_USED: after, "a": "b"}


def test_token_that_the_account_lists_has_a_warning():
    account = {"metadata": {"uid": "u"}, "secrets": [{"name": "other"}, {"name": "s"}]}
    assert check(account=account)[1] == [AUTO_GENERATED]


@pytest.mark.parametrize(
    ("arguments", "error"),
    [
        pytest.param({"secret": {}}, "Token has been invalidated", id="no Secret"),
        pytest.param({"deletionTimestamp": "x"}, "Token has been invalidated", id="Secret in deletion"),
        pytest.param({"secret": {"data": {"token": "eA=="}}}, "Token does not match server's copy", id="another token"),
        pytest.param({"secret": {"type": "x"}}, "Token does not match server's copy", id="no token"),
        pytest.param({"account": {}}, 'serviceaccounts "robot" not found', id="no account"),
        pytest.param(
            {"account": {"metadata": {"uid": "v"}}},
            "ServiceAccount UID (v) does not match claim (u)",
            id="recreated account",
        ),
        pytest.param(
            {"account": {"metadata": {"uid": "u", "deletionTimestamp": "x"}}},
            "ServiceAccount ns/robot has been deleted",
            id="account in deletion",
        ),
        pytest.param(
            {"labels": {INVALID_SINCE: "2026-01-01"}},
            "the token in secret ns/s for service account ns/robot has been marked invalid. Use tokens from the "
            "TokenRequest API or manually created secret-based tokens, or remove the "
            "'kubernetes.io/legacy-token-invalid-since' label from the secret to temporarily allow use of this token",
            id="marked invalid",
        ),
    ],
)
def test_rejected_token_has_kube_apiservers_reason(arguments: dict[str, Any], error: str):
    with pytest.raises(InvalidToken) as raised:
        check(**arguments)
    assert str(raised.value) == error


async def test_requests_with_a_token_of_a_secret():
    api = InProcessApi(token="right")
    admin = {"authorization": "Bearer right"}
    accounts, secrets = "/api/v1/namespaces/default/serviceaccounts", "/api/v1/namespaces/default/secrets"
    account = api("POST", accounts, {"metadata": {"name": "robot"}, "secrets": [{"name": "s"}]}, **admin)[1]
    claims = {
        **CLAIMS,
        f"{CLAIM}namespace": "default",
        f"{CLAIM}service-account.uid": account["metadata"]["uid"],
        "sub": "system:serviceaccount:default:robot",
    }
    token = api.server.token_key.sign(claims)
    robot = {"authorization": f"Bearer {token}"}
    assert api("GET", "/api", **robot)[0] == 401
    annotations = {"kubernetes.io/service-account.name": "robot"}
    body = {
        "metadata": {"name": "s", "annotations": annotations},
        "type": "kubernetes.io/service-account-token",
        "data": {"token": b64encode(token.encode()).decode()},
    }
    assert api("POST", secrets, body, **admin)[0] == 201
    response = api.respond("GET", "/api", **robot)
    assert response.status == 200
    assert f'299 - "{AUTO_GENERATED}"' in dict(response.headers).values()
    managers = {entry["manager"] for entry in api("GET", f"{secrets}/s", **admin)[1]["metadata"]["managedFields"]}
    assert "kube-apiserver" in managers
    assert api("DELETE", f"{secrets}/s", **admin)[0] == 200
    assert api("GET", "/api", **robot)[0] == 401
