"""Data and account of token Secrets."""

from __future__ import annotations

from base64 import b64encode
from typing import Any

import pytest

from kubeloop.controllers.serviceaccount.token_secret import AccountReference, account_of, missing_data, token_claims

ACCOUNT: dict[str, Any] = {"metadata": {"name": "robot", "namespace": "ns", "uid": "u1"}}


def base64(text: str) -> str:
    return b64encode(text.encode()).decode()


def sign(claims: Any) -> str:
    return f"token of {claims['sub']}"


COMPLETE = {
    "ca.crt": base64("PEM"),
    "namespace": base64("ns"),
    "token": base64("token of system:serviceaccount:ns:robot"),
}


@pytest.mark.parametrize(
    ("data", "root_ca", "missing"),
    [
        pytest.param(None, "PEM", {"ca.crt", "namespace", "token"}, id="empty: everything"),
        pytest.param(None, "", {"namespace", "token"}, id="no certificates: none is written"),
        pytest.param(COMPLETE, "PEM", set(), id="complete: nothing"),
        pytest.param(
            {**COMPLETE, "ca.crt": base64("old")}, "PEM", {"ca.crt"}, id="other certificates: they are replaced"
        ),
        pytest.param({**COMPLETE, "ca.crt": base64("old")}, "", set(), id="other certificates, none known: they stay"),
        pytest.param({**COMPLETE, "token": ""}, "PEM", {"token"}, id="empty token: a token"),
        pytest.param({**COMPLETE, "namespace": base64("x")}, "PEM", set(), id="another namespace stays"),
        pytest.param({**COMPLETE, "token": base64("x"), "a": "b"}, "PEM", set(), id="any token stays"),
    ],
)
def test_missing_data_of_a_token_secret(data: Any, root_ca: str, missing: set[str]):
    secret = {"metadata": {"name": "s", "namespace": "ns"}, "data": data}
    assert missing_data(secret, ACCOUNT, root_ca, sign) == {name: COMPLETE[name] for name in missing}


def test_token_claims_name_secret_and_account():
    assert token_claims(ACCOUNT, "s") == {
        "iss": "kubernetes/serviceaccount",
        "kubernetes.io/serviceaccount/namespace": "ns",
        "kubernetes.io/serviceaccount/secret.name": "s",
        "kubernetes.io/serviceaccount/service-account.name": "robot",
        "kubernetes.io/serviceaccount/service-account.uid": "u1",
        "sub": "system:serviceaccount:ns:robot",
    }


@pytest.mark.parametrize(
    ("uid", "fits"),
    [
        pytest.param("", True, id="no uid: any account of the name"),
        pytest.param("u1", True, id="its uid"),
        pytest.param("u2", False, id="uid of an earlier account"),
    ],
)
def test_account_reference_fits_by_uid(uid: str, fits: bool):
    annotations = {"kubernetes.io/service-account.name": "robot", "kubernetes.io/service-account.uid": uid}
    reference = account_of({"metadata": {"annotations": annotations}})
    assert reference == AccountReference("robot", uid)
    assert reference.fits(ACCOUNT) is fits
