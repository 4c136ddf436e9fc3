"""Requests of clients with certificates, over TLS, to any API server."""

from __future__ import annotations

import http.client
import json
import socket
import ssl
from base64 import b64decode
from pathlib import Path
from typing import Any, NamedTuple
from urllib.parse import urlsplit

import yaml

from support.objects.client_certificates import ClientCertificate


class TlsApi(NamedTuple):
    """A server on loopback. ca: verifies it. token: the administrator's."""

    url: str
    ca: str
    token: str

    @classmethod
    def from_kubeconfig(cls, path: Path) -> TlsApi:
        config = yaml.safe_load(path.read_text())
        cluster = config["clusters"][0]["cluster"]
        data = cluster.get("certificate-authority-data")
        ca = b64decode(data).decode() if data else Path(cluster["certificate-authority"]).read_text()
        return cls(cluster["server"], ca, config["users"][0]["user"]["token"])

    def request(
        self, method: str, path: str, body: Any = None, *, client: ClientCertificate | None = None, **headers: str
    ) -> tuple[int, Any]:
        """Send a request on a connection of its own; return the status and the content."""
        context = ssl.create_default_context(cadata=self.ca) if client is None else client.context(self.ca)
        address = urlsplit(self.url).netloc
        connection = http.client.HTTPSConnection(address, context=context, timeout=30)
        try:
            named = {name.replace("_", "-"): value for name, value in headers.items()}
            content = None if body is None else json.dumps(body)
            connection.request(method, path, content, {"Content-Type": "application/json", **named})
            response = connection.getresponse()
            text = response.read().decode()
        finally:
            connection.close()
        try:
            return response.status, json.loads(text)
        except ValueError:  # no JSON, or a stream of it
            return response.status, text

    def connect(self) -> ssl.SSLSocket:
        """Return a connection, which the caller closes."""
        parts = urlsplit(self.url)
        connection = socket.create_connection((parts.hostname or "", parts.port or 443), timeout=30)
        return ssl.create_default_context(cadata=self.ca).wrap_socket(connection, server_hostname=parts.hostname)

    def administrator(self, method: str, path: str, body: Any = None) -> tuple[int, Any]:
        """Send a request of the administrator."""
        return self.request(method, path, body, Authorization=f"Bearer {self.token}")

    def who_am_i(self, **options: Any) -> Any:
        """Return the user of a SelfSubjectReview, or the status of a refused request."""
        path = "/apis/authentication.k8s.io/v1/selfsubjectreviews"
        body = {"apiVersion": "authentication.k8s.io/v1", "kind": "SelfSubjectReview"}
        status, content = self.request("POST", path, body, **options)
        return content["status"]["userInfo"] if status == 201 else (status, content)
