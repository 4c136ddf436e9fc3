"""Ways of authentication beside kube-apiserver: users of certificates, and requests that are refused."""

from __future__ import annotations

import http.client
import json
import ssl
from base64 import b64decode
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from typing import Any, NamedTuple
from urllib.parse import urlsplit

import pytest
import yaml

from kubeloop.kube.auth.certificate_authority import CertificateAuthority
from support.apiserver.apiserver_process import TOKEN, apiserver_command, running_apiserver_sync
from support.comparison.real_apiserver import needs_binaries, real_apiserver
from support.objects.client_certificates import (
    SERVER,
    ClientCertificate,
    client_certificate,
    intermediate_authority,
)

JSON = dict[str, Any]
NOW = datetime.now(UTC)


class Server(NamedTuple):
    """A server on loopback. ca: verifies it. token: the administrator's."""

    url: str
    ca: str
    token: str

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
        return response.status, json.loads(text) if text.startswith("{") else text

    def who_am_i(self, **options: Any) -> Any:
        """Return the user of a SelfSubjectReview, or the status of a refused request."""
        path = "/apis/authentication.k8s.io/v1/selfsubjectreviews"
        body = {"apiVersion": "authentication.k8s.io/v1", "kind": "SelfSubjectReview"}
        status, content = self.request("POST", path, body, **options)
        return content["status"]["userInfo"] if status == 201 else (status, content)


class Servers(NamedTuple):
    """Both servers, and the authority of the certificates of their clients."""

    real: Server
    ours: Server
    authority: CertificateAuthority


@pytest.fixture(scope="module")
def servers(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Servers]:
    needs_binaries()
    folder = tmp_path_factory.mktemp("servers")
    authority = CertificateAuthority.create(NOW)
    client_ca = folder / "client-ca.crt"
    client_ca.write_text(authority.certificate_pem)
    with (
        real_apiserver(folder / "real", {"client-ca-file": str(client_ca)}) as real,
        running_apiserver_sync(apiserver_command(folder, f"--client-ca-file={client_ca}")) as (url, _log),
    ):
        config = yaml.safe_load((folder / "kubeconfig").read_text())
        ca = b64decode(config["clusters"][0]["cluster"]["certificate-authority-data"]).decode()
        yield Servers(
            Server(real.url, real.ca.read_text(), real.token),
            Server(url.replace("http", "https"), ca, TOKEN),
            authority,
        )


CERTIFICATES: dict[str, JSON] = {
    "user": {},
    "groups": {"groups": ["dev", "ops", "system:masters"]},
    "system:authenticated": {"groups": ["system:authenticated", "dev"]},
    "system:unauthenticated": {"groups": ["system:unauthenticated"]},
    "any usage": {"usage": None},
    "no common name": {"user": ""},
    "uid": {"uids": ["u"]},
    "empty uid": {"uids": [""]},
    "two uids": {"uids": ["u", "v"]},
    "certificate of a server": {"usage": SERVER},
    "other authority": {"authority": CertificateAuthority.create(NOW)},
    "expired": {"begin": NOW - timedelta(days=2)},
    "not yet valid": {"begin": NOW + timedelta(days=1)},
}


@pytest.mark.parametrize("name", CERTIFICATES)
def test_user_of_a_certificate(servers: Servers, name: str):
    client = client_certificate(**{"authority": servers.authority, **CERTIFICATES[name]})
    assert servers.ours.who_am_i(client=client) == servers.real.who_am_i(client=client)


def test_intermediate_authorities(servers: Servers):
    client = client_certificate(servers.authority, intermediate=intermediate_authority(servers.authority, NOW))
    user = servers.ours.who_am_i(client=client)
    assert user == servers.real.who_am_i(client=client)
    assert user["username"] == "alice"


@pytest.mark.parametrize("is_valid", [True, False], ids=["valid certificate", "unknown certificate"])
@pytest.mark.parametrize("is_right", [True, False], ids=["valid token", "wrong token"])
def test_certificate_with_a_token(servers: Servers, is_valid: bool, is_right: bool):
    client = client_certificate(servers.authority if is_valid else CertificateAuthority.create(NOW))
    users = []
    for server in (servers.ours, servers.real):
        header = f"Bearer {server.token if is_right else 'wrong'}"
        user = server.who_am_i(client=client, Authorization=header)
        users.append(user["username"] if isinstance(user, dict) else user)
    assert users[0] == users[1]


@pytest.mark.parametrize("path", ["/healthz", "/version", "/readyz"])
def test_open_path_with_an_unknown_certificate(servers: Servers, path: str):
    client = client_certificate(CertificateAuthority.create(NOW))
    ours, real = (server.request("GET", path, client=client) for server in (servers.ours, servers.real))
    assert ours == real
