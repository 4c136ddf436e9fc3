"""Paths outside of the API groups: health checks, the list of paths, the OpenID documents of service account tokens.

Sources: apiserver pkg/server/healthz, pkg/server/routes, kubernetes pkg/routes of v1.36.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import msgspec

from kubeloop.devcluster.api import errors
from kubeloop.devcluster.api.request import JSON_TYPE, KEY_SET_TYPE, ApiRequest, Response, json_response, text_response
from kubeloop.devcluster.authentication.service_account_token_key import TokenKey
from kubeloop.devcluster.serializer.negotiation import matches_accept

_CONFIGURATION, _KEYS = "/.well-known/openid-configuration", "/openid/v1/jwks"

HEALTH = ("/healthz", "/livez", "/readyz")
"""Endpoints of the check "ping", the only one that can fail: a server whose event loop is blocked does not respond.

The other checks of kube-apiserver test etcd and start-up hooks, which a server in one process does not have.
"""


def health(request: ApiRequest) -> Response | None:
    """Return the response to /healthz, /livez, /readyz and their single check; None for other paths."""
    name, _, check = request.path.removeprefix("/").partition("/")
    if f"/{name}" not in HEALTH:
        return None
    if request.path != f"/{name}":
        return text_response(200, "ok") if check == "ping" else not_found()
    text = "ok"
    if "verbose" in request.query:
        excluded = set(request.query.get("exclude", ()))
        text = f"[+]ping {'excluded: ' if 'ping' in excluded else ''}ok\n"
        if unknown := ",".join(f'"{other}"' for other in sorted(excluded - {"ping"})):
            text += f"warn: some health checks cannot be excluded: no matches for {unknown}\n"
        text += f"{name} check passed\n"
    response = text_response(200, text)
    response.headers.append(("X-Content-Type-Options", "nosniff"))
    return response


def root(versions: Iterable[tuple[str, str]], zpages: Iterable[str]) -> Response:
    """Return the list of paths, at / and /index.html; arguments as of listed_paths()."""
    return indented(200, {"paths": sorted(listed_paths(versions, zpages))})


def listed_paths(versions: Iterable[tuple[str, str]], zpages: Iterable[str]) -> set[str]:
    """Return the paths that the server lists.

    versions: group and version of all listed resources. zpages: those of /flagz and /statusz that are enabled.
    """
    paths = {_CONFIGURATION, _KEYS, "/api", "/api/v1", "/apis", "/apis/", "/openapi/v2", "/openapi/v3", "/version"}
    for group, version in versions:
        if group:
            paths |= {f"/apis/{group}", f"/apis/{group}/{version}"}
    paths |= {"/openapi/v3/", "/metrics", "/metrics/slis", *zpages}
    return paths.union(*((path, f"{path}/ping") for path in HEALTH))


_INDENTING_AGENTS = ("curl", "Wget", "Mozilla/5.0")


def wants_indented_json(request: ApiRequest) -> bool:
    """Return True if JSON is to be indented. Source: apiserver negotiation.isPrettyPrint."""
    if request.query and (pretty := request.option("pretty")):
        return pretty in _TRUE
    headers = request.headers
    return headers.get("user-agent", "").startswith(_INDENTING_AGENTS) or "pretty=1" in headers.get("accept", "")


_TRUE = ("1", "t", "T", "true", "TRUE", "True")


def indented(status: int, value: Any) -> Response:
    """Return an indented JSON response."""
    return Response(status, msgspec.json.format(msgspec.json.encode(value), indent=2))


def openid(request: ApiRequest, keys: TokenKey) -> Response | None:
    """Return the OpenID documents of tokens; None for other paths. Raises StatusError 404, 405, 406."""
    path = request.path.rstrip("/")
    if path not in (_CONFIGURATION, _KEYS):
        if path.startswith((f"{_CONFIGURATION}/", f"{_KEYS}/")):
            raise errors.path_not_found()
        return None
    if request.method != "GET":
        raise errors.method_not_allowed()
    content_type = JSON_TYPE if path == _CONFIGURATION else KEY_SET_TYPE
    if not matches_accept(request.headers.get("accept", ""), (content_type,)):
        raise errors.only_acceptable(content_type)
    document = keys.open_id_configuration() if path == _CONFIGURATION else {"keys": keys.web_keys()}
    response = json_response(200, document)
    response.content_type, response.caching = content_type, "public, max-age=3600"
    return response


def not_found() -> Response:
    return text_response(404, "404 page not found\n")
