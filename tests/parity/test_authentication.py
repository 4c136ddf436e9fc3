"""Ways of authentication beside kube-apiserver: users of certificates, and requests that are refused."""

from __future__ import annotations

import time
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from typing import Any, NamedTuple

import pytest

from kubeloop.kube.auth.certificate_authority import CertificateAuthority
from support.apiserver.apiserver_process import apiserver_command, running_apiserver_sync
from support.apiserver.tls_api import TlsApi
from support.comparison.real_apiserver import ADMIN_TOKEN, needs_binaries, real_apiserver
from support.objects.client_certificates import (
    SERVER,
    client_certificate,
    intermediate_authority,
)

JSON = dict[str, Any]
NOW = datetime.now(UTC)
PROXY_AUTHORITY = CertificateAuthority.create(NOW)
TOKENS = """\
token-a,alice,1,"dev,ops"
token-b,bob,
token-c,carol,3,dev
,nobody,4

token-d,first,5
token-d,second,6,
"token,e",eve,7,system:unauthenticated
"""
AUDIENCE = "https://kubernetes.default.svc"


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
    (folder / "tokens.csv").write_text(TOKENS)
    (folder / "proxy-ca.crt").write_text(PROXY_AUTHORITY.certificate_pem)
    flags = {
        "client-ca-file": str(client_ca),
        "requestheader-client-ca-file": str(folder / "proxy-ca.crt"),
        "requestheader-allowed-names": "front-proxy-client,other-proxy",
    }
    headers = {
        "requestheader-username-headers": "X-Remote-User",
        "requestheader-uid-headers": "X-Remote-Uid",
        "requestheader-group-headers": "X-Remote-Group",
        "requestheader-extra-headers-prefix": "X-Remote-Extra-",
        "enable-bootstrap-token-auth": "true",
    }
    real_tokens = folder / "real-tokens.csv"
    real_tokens.write_text(f'{TOKENS}{ADMIN_TOKEN},admin,admin,"system:masters"\n')
    ours = [f"--{name}={value}" for name, value in {**flags, "token-auth-file": folder / "tokens.csv"}.items()]
    with (
        real_apiserver(folder / "real", {**flags, **headers, "token-auth-file": str(real_tokens)}) as real,
        running_apiserver_sync(
            apiserver_command(folder, *ours, "--enable-bootstrap-token-auth", "--authorization-mode=AlwaysAllow")
        ) as _,
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


@pytest.mark.parametrize("token", ["token-a", "token-b", "token-c", "token-d", "token,e", "token-x", ""])
def test_user_of_a_static_token(servers: Servers, token: str):
    ours, real = (server.who_am_i(Authorization=f"Bearer {token}") for server in (servers.ours, servers.real))
    if token:  # a request without a token is anonymous
        assert ours == real


def review(server: TlsApi, token: str, *audiences: str) -> Any:
    """Return the response to a TokenReview of the administrator."""
    body = {"apiVersion": "authentication.k8s.io/v1", "kind": "TokenReview"}
    spec = {"token": token, "audiences": list(audiences)}
    status, content = server.administrator(
        "POST", "/apis/authentication.k8s.io/v1/tokenreviews", {**body, "spec": spec}
    )
    return status, content.get("status")


@pytest.mark.parametrize("audiences", [(), (AUDIENCE,), ("x", AUDIENCE), ("x",)])
@pytest.mark.parametrize("token", ["token-a", "token,e", "token-x", "admin"])
def test_review_of_a_static_token(servers: Servers, token: str, audiences: tuple[str, ...]):
    ours, real = (
        review(server, server.token if token == "admin" else token, *audiences)
        for server in (servers.ours, servers.real)
    )
    assert ours == real


SECRET = {"token-id": "abcdef", "token-secret": "0123456789abcdef", "usage-bootstrap-authentication": "true"}
BOOTSTRAP_TOKENS: dict[str, tuple[JSON, str]] = {
    "valid": ({}, ""),
    "groups": ({"auth-extra-groups": "system:bootstrappers:b,system:bootstrappers:a"}, ""),
    "other group": ({"auth-extra-groups": "dev"}, ""),
    "not expired": ({"expiration": (NOW + timedelta(hours=1)).strftime("%Y-%m-%dT%H:%M:%SZ")}, ""),
    "expired": ({"expiration": (NOW - timedelta(hours=1)).strftime("%Y-%m-%dT%H:%M:%SZ")}, ""),
    "invalid expiration": ({"expiration": "2099-01-01"}, ""),
    "no usage": ({"usage-bootstrap-authentication": "yes"}, ""),
    "other id": ({"token-id": "fedcba"}, ""),
    "other secret": ({"token-secret": "1123456789abcdef"}, ""),
    "other type": ({}, "Opaque"),
}


@pytest.mark.parametrize("name", BOOTSTRAP_TOKENS)
def test_user_of_a_bootstrap_token(servers: Servers, name: str):
    changes, secret_type = BOOTSTRAP_TOKENS[name]
    token_id = f"{[*BOOTSTRAP_TOKENS].index(name):06}"
    secret = {
        "metadata": {"name": f"bootstrap-token-{token_id}"},
        "type": secret_type or "bootstrap.kubernetes.io/token",
        "stringData": {**SECRET, "token-id": token_id, **changes},
    }
    results = []
    for server in (servers.ours, servers.real):
        assert server.administrator("POST", "/api/v1/namespaces/kube-system/secrets", secret)[0] == 201
        bearer = f"Bearer {token_id}.{SECRET['token-secret']}"
        deadline = time.monotonic() + 2  # kube-apiserver reads Secrets from a cache
        while not isinstance(result := server.who_am_i(Authorization=bearer), dict) or "username" not in result:
            if time.monotonic() > deadline:
                break
            time.sleep(0.1)
        results.append(result)
    assert results[0] == results[1]


PROXIED: dict[str, tuple[JSON, JSON]] = {
    "user": ({}, {"X_Remote_User": "alice"}),
    "all fields": (
        {},
        {
            "X_Remote_User": "alice",
            "X_Remote_Uid": "u",
            "X_Remote_Group": "dev",
            "X_Remote_Extra_Scopes": "a",
            "X_Remote_Extra_Acme.com%2fproject": "b",
        },
    ),
    "another name": ({"user": "other-proxy"}, {"X_Remote_User": "alice"}),
    "name that is not allowed": ({"user": "bob"}, {"X_Remote_User": "alice"}),
    "no user": ({}, {"X_Remote_Group": "dev"}),
    "anonymous": ({}, {"X_Remote_User": "system:anonymous", "X_Remote_Group": "system:unauthenticated"}),
    "impersonation": ({}, {"X_Remote_User": "alice", "Impersonate_User": "bob"}),
    "other authority": ({"authority": None}, {"X_Remote_User": "alice"}),
    "expired": ({"begin": NOW - timedelta(days=2)}, {"X_Remote_User": "alice"}),
}


@pytest.mark.parametrize("name", PROXIED)
def test_user_that_a_front_proxy_names(servers: Servers, name: str):
    changes, headers = PROXIED[name]
    settings = {"authority": PROXY_AUTHORITY, "user": "front-proxy-client", **changes}
    if settings["authority"] is None:  # the one of ordinary clients
        settings["authority"] = servers.authority
    client = client_certificate(**settings)
    ours, real = (server.who_am_i(client=client, **headers) for server in (servers.ours, servers.real))
    if name != "no user":  # a request without any user is anonymous
        assert ours == real


def test_config_map_for_extension_api_servers(servers: Servers):
    path = "/api/v1/namespaces/kube-system/configmaps/extension-apiserver-authentication"
    ours, real = (server.administrator("GET", path)[1] for server in (servers.ours, servers.real))
    assert ours["data"] == real["data"]
    entries = [
        [(entry["manager"], entry["operation"], entry["fieldsV1"]) for entry in it["metadata"]["managedFields"]]
        for it in (ours, real)
    ]
    assert entries[0] == entries[1]
