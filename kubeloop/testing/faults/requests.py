"""Requests that pass an injected network, and injected responses."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import NamedTuple

from kubeloop.devcluster.api.errors import StatusError
from kubeloop.devcluster.api.request import json_response
from kubeloop.kube.client.transport import HttpRequest, HttpResponse

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
    """What the path of a request names; "" where it names nothing."""

    resource: str
    name: str
    subresource: str

    @classmethod
    def of(cls, path: str) -> RequestTarget:
        """Return the target of a path; of paths of discovery and others an empty one."""
        parts = path.strip("/").split("/")
        rest = parts[2:] if parts[0] == "api" else parts[3:] if parts[0] == "apis" else []
        if rest[:1] == ["namespaces"] and len(rest) > 2 and rest[2] not in ("status", "finalize"):
            rest = rest[2:]
        return cls(*[*rest, "", "", ""][:3])


def injected_error(code: int) -> StatusError:
    return StatusError(code, _REASONS.get(code, "InternalError"), f"injected error {code}")


def error_response(error: StatusError) -> HttpResponse:
    response = json_response(error.code, error.status)
    assert isinstance(response.body, bytes)
    return HttpResponse(response.status, response.body, {name.lower(): value for name, value in error.headers})


async def single_chunk(body: bytes) -> AsyncIterator[bytes]:
    yield body
