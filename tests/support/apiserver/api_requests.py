"""Requests to a development API server that runs in this process, without HTTP."""

from __future__ import annotations

import random
from collections.abc import Mapping
from typing import Any

import msgspec

from kubeloop.devcluster.api.request import ApiRequest, PendingResponse, Response
from kubeloop.devcluster.server.apiserver import ApiServer
from kubeloop.kube.clock import SystemClock
from support.apiserver.api_response import ApiResponse

JSON = dict[str, Any]


class InProcessApi:
    """A development API server on the running loop. `warnings` and `headers` are those of the last response.

    Keyword arguments of requests are headers, with "_" for "-": accept="text/html". A body that is not text or bytes is
    sent as JSON; the default content type of a patch is a merge patch.
    """

    def __init__(
        self, server: ApiServer | None = None, *, default_headers: Mapping[str, str] | None = None, **options: Any
    ) -> None:
        """Use `server`, or create one: in memory, without a token, with the system clock, a fixed seed and `options`.

        default_headers: headers of every request, named as keyword arguments.
        """
        if server is None:
            server = ApiServer(**{"clock": SystemClock(), "rng": random.Random(1), "token": None, **options})
        self.server = server
        self.warnings: list[str] = []
        self.headers: dict[str, str] = {}
        self._default_headers = default_headers or {}

    def __call__(
        self, method: str, path: str, body: Any = None, content_type: str = "", **headers: str
    ) -> tuple[int, Any]:
        """Send a request and return the status and the decoded content (see `decoded`)."""
        return self._content(response_now(self.server, self._request(method, path, body, content_type, headers)))

    async def handle(
        self, method: str, path: str, body: Any = None, content_type: str = "", **headers: str
    ) -> tuple[int, Any]:
        """Send a request that may wait: for webhooks, for expensive expressions or because of injected faults."""
        return self._content(await self.server.handle(self._request(method, path, body, content_type, headers)))

    def respond(self, method: str, path: str, body: Any = None, content_type: str = "", **headers: str) -> Response:
        """Send a request and return the server's own response."""
        response = response_now(self.server, self._request(method, path, body, content_type, headers))
        self._note_headers(response)
        return response

    async def response(
        self, method: str, path: str, body: Any = None, content_type: str = "", **headers: str
    ) -> ApiResponse:
        """Send a request, which may wait, and return the response as it is compared with those of other servers."""
        status, content = await self.handle(method, path, body, content_type, **headers)
        return ApiResponse(status, content, tuple(self.warnings), self.headers.get("Content-Type", ""))

    def succeed(self, method: str, path: str, body: Any = None, content_type: str = "", **headers: str) -> Any:
        """Send a request, which must succeed, and return the decoded content."""
        status, content = self(method, path, body, content_type, **headers)
        assert status in (200, 201, 202), content
        return content

    def create(self, path: str, body: JSON) -> Any:
        status, content = self("POST", path, body)
        assert status == 201, content
        return content

    def _request(self, method: str, path: str, body: Any, content_type: str, headers: Mapping[str, str]) -> ApiRequest:
        return request(method, path, body, content_type, **{**self._default_headers, **headers})

    def _content(self, response: Response) -> tuple[int, Any]:
        self._note_headers(response)
        return response.status, decoded(response)

    def _note_headers(self, response: Response) -> None:
        self.warnings = [text for name, text in response.headers if name == "Warning"]
        self.headers = dict(response.headers)


def response_now(server: ApiServer, request: ApiRequest) -> Response:
    """Return the response to a request that does not have to wait."""
    response = server.respond(request)
    assert isinstance(response, Response), "the request has to wait: await server.handle(request)"
    return response


def request(method: str, path: str, body: Any = None, content_type: str = "", **headers: str) -> ApiRequest:
    """Return the request that InProcessApi sends."""
    if body is None:
        data = b""
    elif isinstance(body, bytes):
        data = body
    else:
        data = body.encode() if isinstance(body, str) else msgspec.json.encode(body)
    default = "application/merge-patch+json" if method == "PATCH" and data else "application/json"
    named = {name.replace("_", "-"): value for name, value in headers.items()}
    return ApiRequest.of(method, path, {"content-type": content_type or default, **named}, data)


def decoded(response: Response) -> Any:
    """Return the content of a response: the value of JSON, text of everything else, the stream of a watch."""
    if not isinstance(response.body, bytes):
        return response.body
    media_type = response.content_type
    is_json = media_type.endswith("json") or media_type.startswith("application/json")
    return msgspec.json.decode(response.body) if is_json and response.body else response.body.decode(errors="replace")


def response_of(response: Response | PendingResponse) -> tuple[int, Any]:
    """Return the status and content of a response that need not wait."""
    assert isinstance(response, Response)
    return response.status, decoded(response)


def pending_of(response: Response | PendingResponse) -> PendingResponse:
    """Return the pending response of a request that has to wait."""
    assert not isinstance(response, Response)
    return response
