"""Whose request is it? The administrator's, by the server's own token, or a service account's, by one it was granted.

Source: kubernetes pkg/serviceaccount/claims.go, apiserver pkg/authentication/serviceaccount/util.go of v1.36.
"""

from __future__ import annotations

import hmac
from collections.abc import Sequence
from typing import Any

from kubeloop.devcluster.api import errors
from kubeloop.devcluster.authentication.token_requests import ISSUER
from kubeloop.devcluster.authentication.token_signing import TokenKey
from kubeloop.devcluster.storage.store import Store
from kubeloop.kube.clock import Clock
from kubeloop.kube.json_object import JSON
from kubeloop.kube.objects.resources import NODES, PODS, SECRETS, SERVICE_ACCOUNTS, Resource

ADMINISTRATOR: JSON = {"username": "admin", "uid": "admin", "groups": ["system:masters", "system:authenticated"]}
_LEEWAY_SECONDS = 60.0  # for clocks that differ; jwt.DefaultLeeway
_BOUND: tuple[tuple[str, Resource[Any]], ...] = (("secret", SECRETS), ("pod", PODS))


class Authentication:
    """Tells users by their tokens. `token` is the administrator's, None to take everybody for him."""

    def __init__(self, store: Store, clock: Clock, token: str | None, key: TokenKey) -> None:
        self._store = store
        self._clock = clock
        self._token = token
        self._header = None if token is None else f"Bearer {token}".encode()
        self._key = key

    def user(self, authorization: str) -> JSON:
        """The user (username, uid, groups, extra) of an Authorization header. Raises StatusError 401."""
        if self._header is None or hmac.compare_digest(authorization.encode(), self._header):
            return ADMINISTRATOR
        scheme, _, token = authorization.partition(" ")
        found = self._account(token.strip(), (ISSUER,)) if scheme.lower() == "bearer" else None
        if found is None:
            raise errors.unauthorized()
        return {**found[0], "groups": [*found[0]["groups"], "system:authenticated"]}

    def reviewed(self, token: str, audiences: Sequence[str]) -> JSON:
        """The status of a TokenReview."""
        if self._token is None or hmac.compare_digest(token.encode(), self._token.encode()):
            return {"authenticated": True, "user": ADMINISTRATOR}
        found = self._account(token, audiences or (ISSUER,))
        if found is None:
            return {"user": {}, "error": "invalid bearer token"}
        user, named = found
        return {
            "authenticated": True,
            "user": {**user, "groups": [*user["groups"], "system:authenticated"]},
            "audiences": named,
        }

    def _account(self, token: str, audiences: Sequence[str]) -> tuple[JSON, list[str]] | None:
        """User of a token and those of the audiences that it is for; None if it is none of ours, or good no longer."""
        claims = self._key.claims(token)
        if claims is None:
            return None
        named = [each for each in audiences if each in claims["aud"]]
        now = self._clock.now().timestamp()
        if not named or not claims["nbf"] - _LEEWAY_SECONDS <= now <= claims["exp"] + _LEEWAY_SECONDS:
            return None
        about = claims["kubernetes.io"]
        namespace, account = about["namespace"], about["serviceaccount"]
        if not self._is_there(SERVICE_ACCOUNTS, namespace, account):
            return None
        if not all(self._is_there(kind, namespace, about[each]) for each, kind in _BOUND if each in about):
            return None
        if "node" in about and "pod" not in about and not self._is_there(NODES, "", about["node"]):
            return None
        extra = {"authentication.kubernetes.io/credential-id": [f"JTI={claims['jti']}"]}
        for kind in ("node", "pod"):
            for what, text in about.get(kind, {}).items():
                extra[f"authentication.kubernetes.io/{kind}-{what}"] = [text]
        user = {
            "username": claims["sub"],
            "uid": account["uid"],
            "groups": ["system:serviceaccounts", f"system:serviceaccounts:{namespace}"],
            "extra": extra,
        }
        return user, named

    def _is_there(self, resource: Resource[Any], namespace: str, named: JSON) -> bool:
        obj = self._store.get(resource, namespace, named["name"])
        return obj is not None and obj["metadata"]["uid"] == named["uid"]
