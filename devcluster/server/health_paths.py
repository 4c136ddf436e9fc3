"""Paths outside of the API groups: health, the list of paths, the service accounts' OpenID documents.

Sources: apiserver pkg/server/healthz, pkg/server/routes, kubernetes pkg/routes of v1.36.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import msgspec

from kubeloop.devcluster.api import errors
from kubeloop.devcluster.api.request import JSON_TYPE, KEY_SET_TYPE, Request, Response, json_response, text_response
from kubeloop.devcluster.api.served_resources import VERSIONS
from kubeloop.devcluster.authentication.service_account_token_key import TokenKey
from kubeloop.devcluster.authentication.service_account_token_requests import ISSUER
from kubeloop.devcluster.serializer.negotiation import matches_accept
from kubeloop.kube.json_object import JSON

_CONFIGURATION, _KEYS = "/.well-known/openid-configuration", "/openid/v1/jwks"
_OPENID_CONFIGURATION: JSON = {
    "issuer": ISSUER,
    "jwks_uri": f"{ISSUER}{_KEYS}",
    "response_types_supported": ["id_token"],
    "subject_types_supported": ["public"],
    "id_token_signing_alg_values_supported": ["ES256"],
}

_HOOKS = """
start-apiserver-admission-initializer generic-apiserver-start-informers priority-and-fairness-config-consumer
priority-and-fairness-filter storage-object-count-tracker-hook start-apiextensions-informers
start-apiextensions-controllers crd-informer-synced start-system-namespaces-controller
peer-endpoint-reconciler-controller start-cluster-authentication-info-controller
start-kube-apiserver-identity-lease-controller start-kube-apiserver-identity-lease-garbage-collector storage-readiness
start-legacy-token-tracking-controller start-service-ip-repair-controllers
scheduling/bootstrap-system-priority-classes priority-and-fairness-config-producer bootstrap-controller
start-kubernetes-service-cidr-controller start-kube-aggregator-informers apiservice-status-local-available-controller
apiservice-status-remote-available-controller apiservice-registration-controller apiservice-wait-for-first-sync
apiservice-discovery-controller kube-apiserver-autoregistration
"""
_STARTED = (
    *(f"poststarthook/{each}" for each in _HOOKS.split()),
    "autoregister-completion",
    "poststarthook/apiservice-openapi-controller",
    "poststarthook/apiservice-openapiv3-controller",
)
HEALTH: dict[str, tuple[str, ...]] = {
    "/healthz": ("ping", "log", "loopback-serving-certificate", "etcd", *_STARTED),
    "/livez": ("ping", "log", "loopback-serving-certificate", "etcd", *_STARTED),
    "/readyz": ("ping", "log", "informer-sync", *_STARTED, "shutdown"),
}
"""The checks of each, by the names that probes and scripts exclude or ask for.

The store stands for etcd, and what those hooks start is here in the server itself: one that answers passes them all.
"""


def health(request: Request) -> Response | None:
    """The answer to /healthz, /livez, /readyz and their single checks; None elsewhere."""
    place, _, check = request.path.removeprefix("/").partition("/")
    checks = HEALTH.get(f"/{place}")
    if checks is None:
        return None
    if request.path != f"/{place}":
        return text_response(200, "ok") if check in checks else not_found()
    if "verbose" not in request.query:
        return _healthy("ok")
    excluded = set(request.query.get("exclude", ()))
    lines = [f"[+]{each} excluded: ok\n" if each in excluded else f"[+]{each} ok\n" for each in checks]
    if unknown := sorted(excluded - set(checks)):
        named = ",".join(f'"{each}"' for each in unknown)
        lines.append(f"warn: some health checks cannot be excluded: no matches for {named}\n")
    return _healthy(f"{''.join(lines)}{place} check passed\n")


def _healthy(text: str) -> Response:
    response = text_response(200, text)
    response.headers.append(("X-Content-Type-Options", "nosniff"))
    return response


def root(more_groups: Iterable[str]) -> Response:
    """What is at / and /index.html. more_groups: "GROUP/VERSION" of custom resources."""
    return indented(200, {"paths": sorted(listed(more_groups))})


def listed(more_groups: Iterable[str] = ()) -> set[str]:
    """The paths that the server names."""
    groups = {f"{group}/{version}" for group, versions in VERSIONS.items() if group for version in versions}
    groups.update(more_groups)
    paths = {_CONFIGURATION, _KEYS, "/api", "/api/v1", "/apis", "/apis/", "/openapi/v2", "/openapi/v3", "/version"}
    for each in groups:
        paths |= {f"/apis/{each}", f"/apis/{each.partition('/')[0]}"}
    paths |= {"/openapi/v3/", "/metrics", "/metrics/slis", "/flagz", "/statusz"}
    for place, checks in HEALTH.items():
        paths |= {place, *(f"{place}/{each}" for each in checks)}
    return paths


_OF_PEOPLE = ("curl", "Wget", "Mozilla/5.0")


def for_people(request: Request) -> bool:
    """Is the answer to be indented? Source: apiserver negotiation.isPrettyPrint."""
    if request.query and (asked := request.option("pretty")):
        return asked in _TRUE
    headers = request.headers
    return headers.get("user-agent", "").startswith(_OF_PEOPLE) or "pretty=1" in headers.get("accept", "")


_TRUE = ("1", "t", "T", "true", "TRUE", "True")


def indented(status: int, value: Any) -> Response:
    """JSON as people read it, whoever asks."""
    return Response(status, msgspec.json.format(msgspec.json.encode(value), indent=2))


def openid(request: Request, keys: TokenKey) -> Response | None:
    """The OpenID documents of tokens; None elsewhere. Raises StatusError 404, 405, 406."""
    path = request.path.rstrip("/")
    if path not in (_CONFIGURATION, _KEYS):
        if path.startswith((f"{_CONFIGURATION}/", f"{_KEYS}/")):
            raise errors.path_not_found()
        return None
    if request.method != "GET":
        raise errors.method_not_allowed()
    made = JSON_TYPE if path == _CONFIGURATION else KEY_SET_TYPE
    if not matches_accept(request.headers.get("accept", ""), (made,)):
        raise errors.only_acceptable(made)
    response = json_response(200, _OPENID_CONFIGURATION if path == _CONFIGURATION else {"keys": [keys.web_key()]})
    response.content_type, response.caching = made, "public, max-age=3600"
    return response


def not_found() -> Response:
    return text_response(404, "404 page not found\n")
