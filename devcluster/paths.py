"""Paths outside of the API groups: health, the list of paths, the service accounts' OpenID documents.

Sources: apiserver pkg/server/healthz, pkg/server/routes, kubernetes pkg/routes of v1.36.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from kubeloop.devcluster import errors
from kubeloop.devcluster.registry import VERSIONS
from kubeloop.devcluster.request import Request, Response, json_response, text_response
from kubeloop.devcluster.token_keys import TokenKey
from kubeloop.devcluster.tokens import ISSUER

JSON = dict[str, Any]

_CONFIGURATION, _KEYS = "/.well-known/openid-configuration", "/openid/v1/jwks"
KEY_SET_TYPE = "application/jwk-set+json"
_OPENID_CONFIGURATION: JSON = {
    "issuer": ISSUER,
    "jwks_uri": f"{ISSUER}{_KEYS}",
    "response_types_supported": ["id_token"],
    "subject_types_supported": ["public"],
    "id_token_signing_alg_values_supported": ["ES256"],
}

HEALTH: dict[str, tuple[str, ...]] = {
    "/healthz": ("ping", "log", "etcd"),
    "/livez": ("ping", "log", "etcd"),
    "/readyz": ("ping", "log", "etcd", "etcd-readiness", "informer-sync", "shutdown"),
}
"""The checks of each; here the store stands for etcd, and a server that answers passes all of them."""


def health(request: Request) -> Response | None:
    """The answer to /healthz, /livez, /readyz and their single checks; None elsewhere."""
    place, _, check = request.path.removeprefix("/").partition("/")
    checks = HEALTH.get(f"/{place}")
    if checks is None:
        return None
    if request.path != f"/{place}":
        return text_response(200, "ok") if check in checks else not_found()
    if "verbose" not in request.query:
        return text_response(200, "ok")
    excluded = set(request.query.get("exclude", ()))
    lines = [f"[+]{each} excluded: ok\n" if each in excluded else f"[+]{each} ok\n" for each in checks]
    if unknown := sorted(excluded - set(checks)):
        named = ",".join(f'"{each}"' for each in unknown)
        lines.append(f"warn: some health checks cannot be excluded: no matches for {named}\n")
    return text_response(200, f"{''.join(lines)}{place} check passed\n")


def root(more_groups: Iterable[str]) -> Response:
    """What is at / and /index.html. more_groups: "GROUP/VERSION" of custom resources."""
    groups = {f"{group}/{version}" for group, versions in VERSIONS.items() if group for version in versions}
    groups.update(more_groups)
    paths = {_CONFIGURATION, _KEYS, "/api", "/api/v1", "/apis", "/apis/", "/openapi/v2", "/openapi/v3", "/version"}
    for each in groups:
        paths |= {f"/apis/{each}", f"/apis/{each.partition('/')[0]}"}
        paths |= {f"/openapi/v3/apis/{each}", f"/openapi/v3/apis/{each.partition('/')[0]}"}
    paths |= {"/openapi/v3/", "/openapi/v3/api", "/openapi/v3/api/v1", "/openapi/v3/apis", "/openapi/v3/version"}
    for place, checks in HEALTH.items():
        paths |= {place, *(f"{place}/{each}" for each in checks)}
    return json_response(200, {"paths": sorted(paths)})


def openid(request: Request, keys: TokenKey) -> Response | None:
    """The OpenID documents of tokens; None elsewhere. Raises StatusError 404, 405, 406."""
    path = request.path.rstrip("/")
    if path not in (_CONFIGURATION, _KEYS):
        if path.startswith((f"{_CONFIGURATION}/", f"{_KEYS}/")):
            raise errors.path_not_found()
        return None
    if request.method != "GET":
        raise errors.method_not_allowed()
    if path == _CONFIGURATION:
        return json_response(200, _OPENID_CONFIGURATION)
    accepted = [each.partition(";")[0].strip() for each in request.headers.get("accept", "*/*").split(",")]
    if not {KEY_SET_TYPE, "application/*", "*/*", ""}.intersection(accepted):
        raise errors.only_acceptable(KEY_SET_TYPE)
    response = json_response(200, {"keys": [keys.web_key()]})
    response.content_type = KEY_SET_TYPE
    return response


def not_found() -> Response:
    return text_response(404, "404 page not found\n")
