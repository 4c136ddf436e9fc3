"""Secrets of type kubernetes.io/service-account-token: their accounts, and the data that they lack.

Pure functions. Source: v1.36 pkg/controller/serviceaccount/tokens_controller.go, pkg/serviceaccount/legacy.go.
"""

from __future__ import annotations

from base64 import b64encode
from typing import NamedTuple

from kubeloop.kube.auth.token_signer import SignToken
from kubeloop.kube.objects.api_types import JSONValue

TOKEN_TYPE = "kubernetes.io/service-account-token"
NAME_ANNOTATION = "kubernetes.io/service-account.name"
UID_ANNOTATION = "kubernetes.io/service-account.uid"
_ISSUER = "kubernetes/serviceaccount"
_CLAIM = "kubernetes.io/serviceaccount/"


class AccountReference(NamedTuple):
    """The ServiceAccount that a Secret names; an empty uid fits any account of the name."""

    name: str
    uid: str

    def fits(self, account: JSONValue) -> bool:
        """Return True if `account`, of this name, has the uid."""
        return not self.uid or bool(self.uid == account["metadata"]["uid"])


def account_of(secret: JSONValue) -> AccountReference:
    """Return the account that the annotations of a Secret name."""
    annotations = secret["metadata"].get("annotations") or {}
    return AccountReference(annotations.get(NAME_ANNOTATION, ""), annotations.get(UID_ANNOTATION, ""))


def missing_data(secret: JSONValue, account: JSONValue, root_ca: str, sign: SignToken) -> dict[str, str]:
    """Return the data, in base64, that a token Secret of `account` lacks; an outdated certificate counts as missing.

    root_ca: certificates in PEM; "" leaves those of the Secret. sign: called only if there is no token.
    """
    metadata, data = secret["metadata"], secret.get("data") or {}
    missing = {}
    if root_ca and data.get("ca.crt") != (certificates := _base64(root_ca)):
        missing["ca.crt"] = certificates
    if not data.get("namespace"):
        missing["namespace"] = _base64(metadata["namespace"])
    if not data.get("token"):
        missing["token"] = _base64(sign(token_claims(account, metadata["name"])))
    return missing


def token_claims(account: JSONValue, secret_name: str) -> dict[str, str]:
    """Return the claims of the token in a Secret, which does not expire."""
    namespace, name = account["metadata"]["namespace"], account["metadata"]["name"]
    return {
        "iss": _ISSUER,
        f"{_CLAIM}namespace": namespace,
        f"{_CLAIM}secret.name": secret_name,
        f"{_CLAIM}service-account.name": name,
        f"{_CLAIM}service-account.uid": account["metadata"]["uid"],
        "sub": f"system:serviceaccount:{namespace}:{name}",
    }


def _base64(text: str) -> str:
    return b64encode(text.encode()).decode()
