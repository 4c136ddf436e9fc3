"""Authentication of requests: the administrator by the server's token, service accounts by signed ones, certificates.

Source: kubernetes pkg/serviceaccount/claims.go, apiserver pkg/authentication/serviceaccount/util.go of v1.36.
"""

from __future__ import annotations

import hmac
import logging
import re
from base64 import urlsafe_b64decode
from collections.abc import Mapping, Sequence
from functools import partial
from types import MappingProxyType
from typing import Any

from kubeloop.devcluster.api import errors
from kubeloop.devcluster.api.request import ApiRequest
from kubeloop.devcluster.authentication.bootstrap_tokens import bootstrap_token_user
from kubeloop.devcluster.authentication.client_certificates import ClientCertificates, InvalidCertificate
from kubeloop.devcluster.authentication.front_proxy import FrontProxy
from kubeloop.devcluster.authentication.legacy_tokens import LEGACY_ISSUER, InvalidToken, check_legacy_token
from kubeloop.devcluster.authentication.service_account_token_key import TokenKey
from kubeloop.devcluster.storage.store import ObjectStore
from kubeloop.kube.clock import Clock
from kubeloop.kube.json_object import JSON
from kubeloop.kube.objects.resources import NODES, PODS, SECRETS, SERVICE_ACCOUNTS, Resource
from kubeloop.kube.validation.field_errors import quoted_list

log = logging.getLogger(__name__)

ADMINISTRATOR: JSON = {"username": "admin", "uid": "admin", "groups": ["system:masters", "system:authenticated"]}
_AUTHENTICATED, _UNAUTHENTICATED = "system:authenticated", "system:unauthenticated"
ANONYMOUS: JSON = {"username": "system:anonymous", "groups": ["system:unauthenticated"]}
_LEEWAY_SECONDS = 60.0  # allowed clock difference; jwt.DefaultLeeway
_BOUND_KINDS: tuple[tuple[str, Resource[Any]], ...] = (("secret", SECRETS), ("pod", PODS), ("node", NODES))
_TOKEN_PROTOCOL = "base64url.bearer.authorization.k8s.io."
_BASE64_URL = re.compile(r"[\w-]+", re.ASCII)


def take_websocket_token(request: ApiRequest) -> str:
    """Remove the token from the WebSocket protocols of a request, and return it as an Authorization header.

    Browsers, which cannot set that header, send the token as a protocol beside the one to speak. Returns "" if there is
    none. Raises StatusError 401. Source: apiserver pkg/authentication/request/websocket/protocol.go.
    """
    offered = request.headers.get("sec-websocket-protocol", "")
    if _TOKEN_PROTOCOL not in offered or not request.wants_websocket:
        return ""
    protocols = [protocol.strip() for protocol in offered.split(",")]
    others = [protocol for protocol in protocols if not protocol.startswith(_TOKEN_PROTOCOL)]
    encoded = [protocol.removeprefix(_TOKEN_PROTOCOL) for protocol in protocols if protocol not in others]
    try:
        (text,) = encoded
        if not others or not _BASE64_URL.fullmatch(text):
            raise ValueError
        token = urlsafe_b64decode(text + "=" * (-len(text) % 4)).decode()
    except ValueError:
        raise errors.unauthorized() from None
    request.headers = {**request.headers, "sec-websocket-protocol": ",".join(others)}
    return f"Bearer {token}"


class Authenticator:
    """Authenticates certificates and bearer tokens.

    token: the administrator's; None: requests without credentials are the administrator's. key: signs tokens of service
    accounts. checks_account_uid: the uid in a token request must be the account's. certificates: verifies certificates
    of clients; None: they are ignored. front_proxy: authenticates proxies; None: their headers are ignored.
    static_tokens: users by token. accepts_bootstrap_tokens: of kube-system. accepts_anonymous: a request without
    credentials is one of system:anonymous.
    """

    def __init__(
        self,
        store: ObjectStore,
        clock: Clock,
        token: str | None,
        key: TokenKey,
        *,
        checks_account_uid: bool = True,
        certificates: ClientCertificates | None = None,
        front_proxy: FrontProxy | None = None,
        static_tokens: Mapping[str, JSON] = MappingProxyType({}),
        accepts_bootstrap_tokens: bool = False,
        accepts_anonymous: bool = False,
    ) -> None:
        self._store = store
        self._clock = clock
        self._header = None if token is None else f"Bearer {token}".encode()
        self.key = key
        self.checks_account_uid = checks_account_uid
        self._certificates = certificates
        self._front_proxy = front_proxy
        self._static_tokens = static_tokens if token is None else {**static_tokens, token: ADMINISTRATOR}
        self._accepts_bootstrap_tokens = accepts_bootstrap_tokens
        self._accepts_anonymous = accepts_anonymous

    def user(self, request: ApiRequest, authorization: str) -> JSON:
        """Return the user (username, uid, groups, extra) of the client's certificates, or of its Authorization header.

        Certificates come first; the header counts if they are invalid. The request gets warnings and audit
        annotations about the token. Raises StatusError 401.
        """
        if request.certificates and (user := self._certificate_user(request)) is not None:
            return user
        if self._header is None:
            if not authorization:
                return ADMINISTRATOR
        elif hmac.compare_digest(authorization.encode(), self._header):
            return ADMINISTRATOR
        scheme, _, token = authorization.partition(" ")
        if scheme.lower() != "bearer" or not token.strip():
            if self._accepts_anonymous and not request.certificates:
                return ANONYMOUS
            raise errors.unauthorized()
        try:
            return self._token_user(token.strip(), self.key.audiences, request)[0]
        except InvalidToken:
            raise errors.unauthorized() from None

    def _certificate_user(self, request: ApiRequest) -> JSON | None:
        """Return the user that a front proxy names, or that of valid certificates with a common name, else None."""
        proxies = None if self._front_proxy is None else partial(self._front_proxy.user, request)
        clients = None if self._certificates is None else partial(self._certificates.user, request.certificates)
        for authenticate in filter(None, (proxies, clients)):
            try:
                user = authenticate()
            except InvalidCertificate as error:
                log.debug("a certificate of a client is not accepted: %s", error)
                continue
            if user is not None:
                return _authenticated(user)
        return None

    def token_review_status(self, token: str, audiences: Sequence[str], request: ApiRequest) -> JSON:
        """Return the status of a TokenReview, which is the body of the request; see user()."""
        try:
            user, token_audiences = self._token_user(token.strip(), audiences or self.key.audiences, request)
        except InvalidToken as error:
            message = "invalid bearer token"
            return {"user": {}, "error": f"[{message}, {error}]" if str(error) else message}
        return {
            "authenticated": True,
            "user": user,
            "audiences": token_audiences,
        }

    def _token_user(self, token: str, audiences: Sequence[str], request: ApiRequest) -> tuple[JSON, list[str]]:
        """Return the user of a token and its audiences among `audiences`. Raises InvalidToken."""
        user = self._static_tokens.get(token)
        if user is None and self._accepts_bootstrap_tokens:
            user = bootstrap_token_user(self._store, token, self._clock.now())
        own_audiences = [audience for audience in self.key.audiences if audience in audiences]
        if user is None or not own_audiences:  # such tokens are for the API server only
            user, own_audiences = self._service_account_user(token, audiences, request)
        return _authenticated(user), own_audiences

    def _service_account_user(
        self, token: str, audiences: Sequence[str], request: ApiRequest
    ) -> tuple[JSON, list[str]]:
        """Return the user of a service account token and its audiences among `audiences`. Raises InvalidToken."""
        claims = self.key.claims(token)
        if claims is None:
            raise InvalidToken
        if not claims.get("aud"):  # a token of a Secret
            request.annotate("authentication.k8s.io/legacy-token", claims["sub"])
        accepted = claims.get("aud") or self.key.audiences
        token_audiences = [audience for audience in audiences if audience in accepted]
        if not token_audiences:
            raise InvalidToken(
                f"token audiences {quoted_list(accepted)} is invalid for the target audiences {quoted_list(audiences)}"
            )
        now, issuer = self._clock.now(), claims.get("iss")
        if issuer == LEGACY_ISSUER:
            return check_legacy_token(self._store, token, claims, now, request), token_audiences
        if issuer not in self.key.settings.issuers:
            raise InvalidToken
        return self._bound_token_user(claims, now.timestamp(), request), token_audiences

    def _bound_token_user(self, claims: JSON, now: float, request: ApiRequest) -> JSON:
        """Return the user of a token from a TokenRequest. now: seconds since 1970. Raises InvalidToken."""
        if now < claims["nbf"] - _LEEWAY_SECONDS:
            raise InvalidToken("service account token is not valid yet")
        if now > claims["exp"] + _LEEWAY_SECONDS:
            raise InvalidToken("service account token has expired")
        bound_claims = claims["kubernetes.io"]
        namespace, account = bound_claims["namespace"], bound_claims["serviceaccount"]
        name = account["name"]
        stored = self._store.get(SERVICE_ACCOUNTS, namespace, name)
        if stored is None:
            raise InvalidToken(f'serviceaccounts "{name}" not found')
        if (uid := stored["metadata"]["uid"]) != account["uid"]:
            raise InvalidToken(f"service account UID ({uid}) does not match claim ({account['uid']})")
        for kind, resource in _BOUND_KINDS:
            if kind in bound_claims and not (kind == "node" and "pod" in bound_claims):
                self._check_bound_object(kind, resource, namespace, bound_claims[kind])
        if 0 < bound_claims.get("warnafter", 0) < now:
            stale = f"subject: {claims['sub']}, seconds after warning threshold: {int(now) - bound_claims['warnafter']}"
            request.annotate("authentication.k8s.io/stale-token", stale)
        extra = {"authentication.kubernetes.io/credential-id": [f"JTI={claims['jti']}"]}
        for kind in ("node", "pod"):
            for claim, text in bound_claims.get(kind, {}).items():
                extra[f"authentication.kubernetes.io/{kind}-{claim}"] = [text]
        return {
            "username": claims["sub"],
            "uid": account["uid"],
            "groups": ["system:serviceaccounts", f"system:serviceaccounts:{namespace}"],
            "extra": extra,
        }

    def _check_bound_object(self, kind: str, resource: Resource[Any], namespace: str, identity: JSON) -> None:
        """Raise InvalidToken unless the object to which a token is bound exists."""
        obj = self._store.get(resource, namespace if resource.namespaced else "", identity["name"])
        if obj is None:
            raise InvalidToken("service account token has been invalidated")
        if (uid := obj["metadata"]["uid"]) != identity["uid"]:
            raise InvalidToken(
                f"{kind} UID ({uid}) does not match service account {kind} ref claim ({identity['uid']})"
            )


def _authenticated(user: JSON) -> JSON:
    """Return a user with the group of all authenticated users. Source: apiserver authentication/group of v1.36."""
    groups = user["groups"]
    if _AUTHENTICATED in groups or _UNAUTHENTICATED in groups:
        return user
    return {**user, "groups": [*groups, _AUTHENTICATED]}
