"""Requests to an API server over HTTP(S), for comparisons of kube-apiserver with the development API server."""

from __future__ import annotations

import http.client
import json
import ssl
import time
from base64 import b64decode
from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any, NamedTuple
from urllib.parse import urlsplit

import yaml

from support.apiserver.api_response import ApiResponse
from support.apiserver.apiserver_process import TOKEN, bare_apiserver_command, running_apiserver_sync
from support.comparison.custom_resource_requests import Step, comparable
from support.comparison.real_apiserver import RealApiServer, needs_binaries, real_apiserver

JSON_TYPE = "application/json"
_SERVED_SECONDS = 20.0


class HttpApi:
    """One API server over one connection, which is reopened after the server closes it. For use by one thread."""

    def __init__(
        self, url: str, token: str = "", tls_context: ssl.SSLContext | None = None, user_agent: str = ""
    ) -> None:
        self._address, self._tls_context = urlsplit(url), tls_context
        self._headers = {"User-Agent": user_agent} if user_agent else {}
        if token:
            self._headers["Authorization"] = f"Bearer {token}"
        self._connection = self._connect()

    @classmethod
    def from_kubeconfig(cls, path: Path) -> HttpApi:
        config = yaml.safe_load(path.read_text())
        cluster, user = config["clusters"][0]["cluster"], config["users"][0]["user"]
        context = None
        if cluster["server"].startswith("https"):
            ca = cluster.get("certificate-authority-data")
            context = ssl.create_default_context(
                cafile=cluster.get("certificate-authority"), cadata=b64decode(ca).decode() if ca else None
            )
        return cls(cluster["server"], user.get("token", ""), context)

    def without_token(self) -> HttpApi:
        """Return the same server for requests with credentials of their own, or none."""
        return HttpApi(self._address.geturl(), "", self._tls_context)

    def request(
        self,
        method: str,
        path: str,
        body: Any = None,
        content_type: str = JSON_TYPE,
        accept: str = JSON_TYPE,
        headers: Sequence[tuple[str, str]] = (),
    ) -> ApiResponse:
        """Send a request. A body that is not text or bytes is sent as JSON.

        headers: further ones; a name may occur more than once.
        """
        data = body
        if body is not None and not isinstance(body, bytes):
            data = (body if isinstance(body, str) else json.dumps(body)).encode()
        all_headers = [*self._headers.items(), ("Content-Type", content_type), ("Accept", accept), *headers]
        try:
            response = self._exchange(method, path, data, all_headers)
        except (http.client.HTTPException, ConnectionError):  # a server may close a connection between two requests
            self._connection.close()
            self._connection = self._connect()
            response = self._exchange(method, path, data, all_headers)
        content = response.read()
        warnings = tuple(response.headers.get_all("Warning") or ())
        media_type = response.getheader("Content-Type", "")
        return ApiResponse(response.status, _decoded(content), warnings, media_type, content)

    def close(self) -> None:
        self._connection.close()

    def _exchange(
        self, method: str, path: str, data: bytes | None, headers: Sequence[tuple[str, str]]
    ) -> http.client.HTTPResponse:
        self._connection.putrequest(method, path)
        for name, value in headers:
            self._connection.putheader(name, value)
        if data is not None or method in ("POST", "PUT", "PATCH"):
            self._connection.putheader("Content-Length", str(len(data or b"")))
        self._connection.endheaders(data)
        return self._connection.getresponse()

    def _connect(self) -> http.client.HTTPConnection:
        assert self._address.hostname
        if self._address.scheme == "https":
            return http.client.HTTPSConnection(self._address.hostname, self._address.port, context=self._tls_context)
        return http.client.HTTPConnection(self._address.hostname, self._address.port)


def response_when_served(server: HttpApi, step: Step) -> ApiResponse:
    """Send a request; repeat it after a 404 or 429, which kube-apiserver sends until it serves a new definition."""
    deadline = time.monotonic() + _SERVED_SECONDS
    while True:
        response = server.request(step.method, step.path, step.body, step.content_type, step.accept)
        if response.status not in (404, 429) or time.monotonic() > deadline:
            return response
        time.sleep(0.2)


def response_when_initialized(server: HttpApi, step: Step) -> ApiResponse:
    """Send a request; repeat it while the storage of a custom resource is (re)initialized."""
    while True:
        response = server.request(step.method, step.path, step.body, step.content_type, step.accept)
        if response.status != 429:
            return response
        time.sleep(1)


def wait_until_settled(server: HttpApi) -> None:
    """Wait until the definitions do not change for half a second: kube-apiserver's controllers update them."""
    request = Step("", "GET", "/apis/apiextensions.k8s.io/v1/customresourcedefinitions")
    before = None
    for _ in range(20):
        time.sleep(0.5)
        now = comparable(request, response_when_initialized(server, request))
        if now == before:
            return
        before = now


def _decoded(content: bytes) -> Any:
    try:
        return json.loads(content)
    except ValueError:
        return content.decode(errors="replace")


class ServerPair(NamedTuple):
    """A kube-apiserver and the development API server."""

    real: HttpApi
    ours: HttpApi
    kubernetes: RealApiServer
    ours_url: str


@contextmanager
def server_pair(folder: Path, flags: Mapping[str, str] | None = None, user_agent: str = "") -> Iterator[ServerPair]:
    """Run both servers. flags: additional ones of kube-apiserver; both have its feature gates, authorizers and
    enabled admission plugins.

    Skips the test if the binaries are not installed. Fails it if the development API server logs a traceback.
    """
    needs_binaries()
    flags = flags or {}
    gates, modes = flags.get("feature-gates", ""), flags.get("authorization-mode", "AlwaysAllow")
    with (
        real_apiserver(folder / "real", flags=flags) as kubernetes,
        running_apiserver_sync(
            bare_apiserver_command(folder, gates, modes, flags.get("enable-admission-plugins", ""))
        ) as (url, read_log),
    ):
        tls_context = ssl.create_default_context(cafile=str(kubernetes.ca))
        with (
            closing(HttpApi(kubernetes.url, kubernetes.token, tls_context, user_agent)) as real,
            closing(HttpApi(url, TOKEN, user_agent=user_agent)) as ours,
        ):
            yield ServerPair(real, ours, kubernetes, url)
        assert "Traceback" not in read_log(), read_log()
