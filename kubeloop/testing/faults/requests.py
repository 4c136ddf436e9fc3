"""Requests that pass an injected network, and injected responses."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping
from functools import lru_cache
from typing import Any, NamedTuple

import msgspec

from kubeloop.devcluster.api.errors import StatusError
from kubeloop.devcluster.api.request import json_response
from kubeloop.kube.client.transport import HttpRequest, HttpResponse

_VERBS = {"POST": "create", "PUT": "update", "PATCH": "patch", "DELETE": "delete"}
_UNCOUNTED = {
    "events", "leases", "kopfpeerings", "clusterkopfpeerings", "tokenreviews", "subjectaccessreviews",
    "localsubjectaccessreviews", "selfsubjectaccessreviews", "selfsubjectrulesreviews", "selfsubjectreviews",
}  # fmt: skip
"""Writes about these are neither numbered nor checked: they change nothing, or are heartbeats."""
_STREAMS = {"attach", "exec", "portforward", "proxy", "token"}
"""Subresources whose requests change no object."""

_REASONS = {
    400: "BadRequest", 403: "Forbidden", 409: "Conflict", 410: "Expired", 422: "Invalid", 429: "TooManyRequests",
    504: "Timeout",
}  # fmt: skip


class SentRequest(HttpRequest, frozen=True):
    """A request with what faults depend on."""

    @classmethod
    def of(cls, request: HttpRequest) -> SentRequest:
        return cls(request.method, request.target, request.headers, request.body, request.timeout_seconds)

    @property
    def path(self) -> str:
        return self.target.partition("?")[0]

    @property
    def is_watch(self) -> bool:
        return "watch=1" in self.target


class RequestTarget(NamedTuple):
    """Resource, name and subresource in the path of a request; "" where it has none."""

    resource: str
    name: str
    subresource: str

    @classmethod
    @lru_cache(maxsize=1024)
    def of(cls, path: str) -> RequestTarget:
        """Return the target of a path; of paths of discovery and others an empty one."""
        parts = path.strip("/").split("/")
        rest = parts[2:] if parts[0] == "api" else parts[3:] if parts[0] == "apis" else []
        if rest[:1] == ["namespaces"] and len(rest) > 2 and rest[2] not in ("status", "finalize"):
            rest = rest[2:]
        return cls(*[*rest, "", "", ""][:3])


def is_numbered(request: SentRequest) -> bool:
    """Return True for a write that counts."""
    target = RequestTarget.of(request.path)
    if request.method not in _VERBS or "dryRun" in request.target or target.subresource in _STREAMS:
        return False
    return bool(target.resource) and target.resource not in _UNCOUNTED


def verb_of(request: SentRequest) -> str:
    if "apply" in request.headers.get("content-type", ""):
        return "apply"
    return _VERBS.get(request.method, request.method)


def title_of(request: SentRequest, kinds: Mapping[str, str]) -> str:
    """Return a write in words: "create of Secret a", "status write of Site blog". kinds: by plural name."""
    target, metadata = RequestTarget.of(request.path), header_of(request.body).metadata
    name = target.name or metadata.name or metadata.generate_name
    return write_title(verb_of(request), target.subresource, kinds.get(target.resource, target.resource), name)


def write_title(verb: str, subresource: str, kind: str, name: str) -> str:
    return f"{f'{subresource} write' if subresource else verb} of {kind} {name}".rstrip()


def request_is_list(request: SentRequest) -> bool:
    target = RequestTarget.of(request.path)
    return bool(target.resource) and not target.name


def json_of(body: bytes) -> dict[str, Any]:
    """Return the object in a body; {} if there is none."""
    try:
        content = msgspec.json.decode(body or b"{}")
    except (ValueError, msgspec.DecodeError):
        return {}
    return content if isinstance(content, dict) else {}


class BodyMetadata(msgspec.Struct, rename="camel", frozen=True):
    """Name and UID of the object in a body."""

    name: str = ""
    generate_name: str = ""
    uid: str = ""


class BodyHeader(msgspec.Struct, frozen=True):
    """Parts of a body that a story shows: the name of the object, or the message of a Status."""

    message: str = ""
    metadata: BodyMetadata = BodyMetadata()


def header_of(body: bytes) -> BodyHeader:
    """Return name and message in a body; empty ones if there is no object."""
    try:
        return msgspec.json.decode(body or b"{}", type=BodyHeader)
    except (ValueError, msgspec.DecodeError):
        return BodyHeader()


def injected_error(code: int) -> StatusError:
    return StatusError(code, _REASONS.get(code, "InternalError"), f"injected error {code}")


def error_response(error: StatusError) -> HttpResponse:
    response = json_response(error.code, error.status)
    assert isinstance(response.body, bytes)
    return HttpResponse(response.status, response.body, {name.lower(): value for name, value in error.headers})


async def single_chunk(body: bytes) -> AsyncIterator[bytes]:
    yield body
