"""/flagz and /statusz: settings and uptime of the server, as text or as objects.

Source: apiserver pkg/server/flagz and pkg/server/statusz. Clients select an object by its kind in the Accept header.
The text of /statusz has a random delimiter in kube-apiserver, which discourages parsing.
"""

from __future__ import annotations

import platform
from collections.abc import Iterable, Mapping
from datetime import datetime

import msgspec

from kubeloop.devcluster.api.errors import StatusError
from kubeloop.devcluster.api.request import JSON_TYPE, ApiRequest, Response, text_response
from kubeloop.devcluster.serializer.negotiation import AcceptClause, negotiate_media_type
from kubeloop.devcluster.serializer.responses import encode_yaml, error_response
from kubeloop.kube.clock import rfc3339
from kubeloop.kube.json_object import JSON

_TEXT, _YAML = "text/plain", "application/yaml"
_MEDIA_TYPES = (JSON_TYPE, _YAML, _TEXT)
_NAME = "apiserver"
_NOTICE = (
    "Warning: This endpoint is not meant to be machine parseable, has no formatting compatibility guarantees"
    " and is for debugging purposes only."
)
_BINARY_VERSION, _EMULATION_VERSION = "1.36.2", "1.36"
_NOT_FOR_DEBUGGING = ("api", "apis", "openid", "openapi", ".well-known")


def flagz(request: ApiRequest, flags: Mapping[str, str]) -> Response:
    """Return the settings by the names of kube-apiserver's flags."""
    lines = "".join(f"{name}: {flags[name]}\n" for name in sorted(flags))
    return _zpage_response(request, "Flagz", {"flags": dict(sorted(flags.items()))}, lines)


def statusz(request: ApiRequest, began: datetime, now: datetime, paths: Iterable[str]) -> Response:
    """Return start time, versions, and the first segments of `paths` that help debugging."""
    seconds = max(0, int((now - began).total_seconds()))
    parts = {path.split("/")[1] for path in paths} - {"", *_NOT_FOR_DEBUGGING}
    debug_paths = [f"/{part}" for part in sorted(parts)]
    python = f"python{platform.python_version()}"
    content: JSON = {
        "startTime": rfc3339(began),
        "uptimeSeconds": seconds,
        "goVersion": python,
        "binaryVersion": _BINARY_VERSION,
        "emulationVersion": _EMULATION_VERSION,
        "paths": debug_paths,
    }
    up = f"{seconds // 3600} hr {seconds // 60 % 60:02} min {seconds % 60:02} sec"
    rows = {
        "Started": began.strftime("%a %b %e %H:%M:%S UTC %Y"),
        "Up": up,
        "Go version": python,
        "Binary version": _BINARY_VERSION,
        "Emulation version": _EMULATION_VERSION,
        "Paths": " ".join(debug_paths),
    }
    return _zpage_response(
        request, "Statusz", content, "\n" + "".join(f"{name}: {value}\n" for name, value in rows.items())
    )


def _zpage_response(request: ApiRequest, kind: str, content: JSON, text: str) -> Response:
    accept = request.headers.get("accept", "").strip()

    def is_supported(media_type: str, clause: AcceptClause) -> bool:
        if media_type == _TEXT:
            return clause.conversion is None
        return clause.conversion in [("config.k8s.io", version, kind) for version in ("v1beta1", "v1alpha1")]

    negotiated = negotiate_media_type(accept, is_supported, _MEDIA_TYPES) if accept else (_TEXT, None)
    if negotiated is None:
        message = f"only the following media types are accepted: {', '.join(_MEDIA_TYPES)}"
        return error_response(request, StatusError(406, "NotAcceptable", message))
    media_type, clause = negotiated
    if clause is None or clause.conversion is None:
        return text_response(200, f"\n{_NAME} {kind.lower()}\n{_NOTICE}\n{text}")
    group, version, _ = clause.conversion
    value = {"kind": kind, "apiVersion": f"{group}/{version}", "metadata": {"name": _NAME}, **content}
    body = encode_yaml(value) if media_type == _YAML else msgspec.json.encode(value) + b"\n"
    response = Response(200, body, f"{media_type};g={group};v={version};as={kind}")
    if version == "v1alpha1":
        message = f"This version of the {kind.lower()} endpoint is deprecated. Please use a newer version."
        response.headers.append(("Warning", f'299 - "{message}"'))
    return response
