"""Ways of authentication beside kube-apiserver: users of certificates, and requests that are refused."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from typing import Any, NamedTuple

import pytest

from kubeloop.kube.auth.certificate_authority import CertificateAuthority
from support.apiserver.apiserver_process import apiserver_command, running_apiserver_sync
from support.apiserver.tls_api import TlsApi
from support.comparison.real_apiserver import needs_binaries, real_apiserver
from support.objects.client_certificates import (
    SERVER,
    client_certificate,
    intermediate_authority,
)

JSON = dict[str, Any]
NOW = datetime.now(UTC)


class Servers(NamedTuple):
    """Both servers, and the authority of the certificates of their clients."""

    real: TlsApi
    ours: TlsApi
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
        running_apiserver_sync(apiserver_command(folder, f"--client-ca-file={client_ca}")) as _,
    ):
        yield Servers(TlsApi.from_kubeconfig(real.kubeconfig), TlsApi.from_kubeconfig(folder / "kubeconfig"), authority)


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
