"""The development API server asked in its own process, without HTTP."""

from __future__ import annotations

import random
from typing import Any

import msgspec

from kubeloop.devcluster.api.request import Request, Response
from kubeloop.devcluster.server.apiserver import ApiServer
from kubeloop.kube.clock import SystemClock

JSON = dict[str, Any]


class Asked:
    """A server, made on the running loop. `warnings` and `headers` are those of the last answer."""

    def __init__(self, token: str | None = None) -> None:
        self.server = ApiServer(clock=SystemClock(), rng=random.Random(1), token=token)
        self.warnings: list[str] = []
        self.headers: dict[str, str] = {}

    def __call__(
        self, method: str, path: str, body: Any = None, media: str = "application/json", **headers: str
    ) -> tuple[int, Any]:
        """Status and body: what JSON says, or text. Keywords are headers: accept="text/html"."""
        answer = self.answer(method, path, body, media, **headers)
        assert isinstance(answer.body, bytes)
        is_json = answer.content_type.endswith("json") or answer.content_type.startswith("application/json")
        return answer.status, msgspec.json.decode(answer.body) if is_json and answer.body else answer.body.decode()

    def answer(
        self, method: str, path: str, body: Any = None, media: str = "application/json", **headers: str
    ) -> Response:
        """The answer as the server makes it."""
        data = b"" if body is None else body.encode() if isinstance(body, str) else msgspec.json.encode(body)
        named = {name.replace("_", "-"): value for name, value in headers.items()}
        answer = self.server.answer(Request.of(method, path, {"content-type": media, **named}, data))
        self.warnings = [text for name, text in answer.headers if name == "Warning"]
        self.headers = dict(answer.headers)
        return answer

    def make(self, path: str, body: JSON) -> None:
        status, told = self("POST", path, body)
        assert status == 201, told
