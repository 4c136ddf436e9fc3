"""Authentication of requests: the administrator by the server's token, a service account by a signed one.

Source: kubernetes pkg/serviceaccount/claims.go, apiserver pkg/authentication/serviceaccount/util.go of v1.36.
"""

from __future__ import annotations

import hmac
from collections.abc import Sequence
from typing import Any

from kubeloop.devcluster.api import errors
from kubeloop.devcluster.authentication.service_account_token_key import TokenKey
from kubeloop.devcluster.authentication.service_account_token_requests import ISSUER
from kubeloop.devcluster.storage.store import ObjectStore
from kubeloop.kube.clock import Clock
from kubeloop.kube.json_object import JSON
from kubeloop.kube.objects.resources import NODES, PODS, SECRETS, SERVICE_ACCOUNTS, Resource

ADMINISTRATOR: JSON = {"username": "admin", "uid": "admin", "groups": ["system:masters", "system:authenticated"]}
_LEEWAY_SECONDS = 60.0  # allowed clock difference; jwt.DefaultLeeway
_BOUND_KINDS: tuple[tuple[str, Resource[Any]], ...] = (("secret", SECRETS), ("pod", PODS))


class Authenticator:
    """Authenticates bearer tokens. `token` is the administrator's; None: every request is the administrator's.

    key: signs tokens of service accounts. checks_account_uid: the uid in a token request must be the account's.
    """

    def __init__(
        self, store: ObjectStore, clock: Clock, token: str | None, key: TokenKey, *, checks_account_uid: bool = True
    ) -> None:
        self._store = store
        self._clock = clock
        self._token = token
        self._header = None if token is None else f"Bearer {token}".encode()
        self.key = key
        self.checks_account_uid = checks_account_uid

    def user(self, authorization: str) -> JSON:
        """Return the user (username, uid, groups, extra) of an Authorization header. Raises StatusError 401."""
        if self._header is None or hmac.compare_digest(authorization.encode(), self._header):
            return ADMINISTRATOR
        scheme, _, token = authorization.partition(" ")
        account = self._service_account_user(token.strip(), (ISSUER,)) if scheme.lower() == "bearer" else None
        if account is None:
            raise errors.unauthorized()
        return {**account[0], "groups": [*account[0]["groups"], "system:authenticated"]}

    def token_review_status(self, token: str, audiences: Sequence[str]) -> JSON:
        """Return the status of a TokenReview."""
        if self._token is None or hmac.compare_digest(token.encode(), self._token.encode()):
            return {"authenticated": True, "user": ADMINISTRATOR}
        account = self._service_account_user(token, audiences or (ISSUER,))
        if account is None:
            return {"user": {}, "error": "invalid bearer token"}
        user, token_audiences = account
        return {
            "authenticated": True,
            "user": {**user, "groups": [*user["groups"], "system:authenticated"]},
            "audiences": token_audiences,
        }

    def _service_account_user(self, token: str, audiences: Sequence[str]) -> tuple[JSON, list[str]] | None:
        """Return the user of a service account token and its audiences among `audiences`; None if it is not valid."""
        claims = self.key.claims(token)
        if claims is None:
            return None
        token_audiences = [audience for audience in audiences if audience in claims["aud"]]
        now = self._clock.now().timestamp()
        if not token_audiences or not claims["nbf"] - _LEEWAY_SECONDS <= now <= claims["exp"] + _LEEWAY_SECONDS:
            return None
        bound_claims = claims["kubernetes.io"]
        namespace, account = bound_claims["namespace"], bound_claims["serviceaccount"]
        if not self._exists(SERVICE_ACCOUNTS, namespace, account):
            return None
        if not all(
            self._exists(resource, namespace, bound_claims[kind])
            for kind, resource in _BOUND_KINDS
            if kind in bound_claims
        ):
            return None
        if "node" in bound_claims and "pod" not in bound_claims and not self._exists(NODES, "", bound_claims["node"]):
            return None
        extra = {"authentication.kubernetes.io/credential-id": [f"JTI={claims['jti']}"]}
        for kind in ("node", "pod"):
            for claim, text in bound_claims.get(kind, {}).items():
                extra[f"authentication.kubernetes.io/{kind}-{claim}"] = [text]
        user = {
            "username": claims["sub"],
            "uid": account["uid"],
            "groups": ["system:serviceaccounts", f"system:serviceaccounts:{namespace}"],
            "extra": extra,
        }
        return user, token_audiences

    def _exists(self, resource: Resource[Any], namespace: str, identity: JSON) -> bool:
        obj = self._store.get(resource, namespace, identity["name"])
        return obj is not None and obj["metadata"]["uid"] == identity["uid"]
