"""Connections with credentials of kubeconfigs and service accounts, to a server on loopback."""

from __future__ import annotations

import asyncio
import base64
import ssl
import sys

import pytest
from kubernetes_asyncio import client, config

from kubeloop.kube.auth.credentials import connect, connect_with_token
from kubeloop.kube.client.aiohttp_transport import AiohttpTransport
from kubeloop.kube.client.transport import TransportError
from kubeloop.kube.user_error import UserError
from support.apiserver.kubeconfig_server import fetch_version, require_token


@pytest.mark.usefixtures("http")
async def test_token_of_kubeconfig_is_sent(serving, kubeconfig):
    async with serving(require_token) as server:
        transport = await connect(kubeconfig(server.url, {"token": "right"}))
        assert (await fetch_version(transport)).status == 200


async def test_kubeconfig_from_environment(serving, kubeconfig, monkeypatch, tmp_path):
    async with serving(require_token) as server:
        path = kubeconfig(server.url, {"token": "right"})
        monkeypatch.setenv("KUBECONFIG", f"{tmp_path / 'missing'}:{path}")
        transport = await connect()
        assert (await fetch_version(transport)).status == 200
        assert transport.server == server.url


async def test_token_file_is_reread_after_401(serving, kubeconfig, tmp_path):
    token = tmp_path / "token"
    token.write_text("old")
    async with serving(require_token) as server:
        transport = await connect(kubeconfig(server.url, {"tokenFile": str(token)}))
        token.write_text("right")
        assert (await fetch_version(transport)).status == 200
        assert [request.headers["authorization"] for request in server.requests] == ["Bearer old", "Bearer right"]


async def test_in_cluster_configuration_requires_service_account(monkeypatch):
    monkeypatch.setenv("KUBERNETES_SERVICE_HOST", "127.0.0.1")
    monkeypatch.setenv("KUBERNETES_SERVICE_PORT", "443")
    with pytest.raises(UserError, match=r"in-cluster configuration: .*/ca.crt: No such file") as raised:
        await connect()
    assert "service account" in raised.value.hint


async def test_service_account_token_is_reread_after_401(serving, monkeypatch, tmp_path, certificate):
    cert, key = (str(path) for path in certificate)
    tls = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    tls.load_cert_chain(cert, key)
    (tmp_path / "ca.crt").write_bytes(certificate[0].read_bytes())
    (tmp_path / "token").write_text("old\n")
    monkeypatch.setattr("kubeloop.kube.auth.credentials.SERVICE_ACCOUNT", tmp_path)
    async with serving(require_token, tls) as server:
        monkeypatch.setenv("KUBERNETES_SERVICE_HOST", "127.0.0.1")
        monkeypatch.setenv("KUBERNETES_SERVICE_PORT", server.url.rpartition(":")[2])
        transport = await connect()
        (tmp_path / "token").write_text("right\n")
        assert (await fetch_version(transport)).status == 200
    (tmp_path / "token").write_text("")
    with pytest.raises(UserError, match="token: it is empty"):
        await connect()
    monkeypatch.delenv("KUBERNETES_SERVICE_PORT")
    with pytest.raises(UserError, match="KUBERNETES_SERVICE_PORT is not set"):
        await connect()


async def test_basic_auth_is_sent(serving, kubeconfig):
    async with serving(require_token) as server:
        await fetch_version(await connect(kubeconfig(server.url, {"username": "a", "password": "b"})))
        assert server.requests[0].headers["authorization"] == "Basic YTpi"


async def test_token_does_not_import_kubernetes_asyncio(serving, kubeconfig):
    async with serving(require_token) as server:
        path = kubeconfig(server.url, {"token": "right"})
        program = (
            "import asyncio, sys; from kubeloop.kube.auth.credentials import connect;"
            f"asyncio.run(connect({path!r})); sys.exit('kubernetes_asyncio' in sys.modules)"
        )
        process = await asyncio.create_subprocess_exec(sys.executable, "-c", program)
        assert await process.wait() == 0


@pytest.mark.parametrize(
    "user",
    [
        pytest.param({"token": "secret"}, id="token"),
        pytest.param({"tokenFile": "secret-file"}, id="token file"),
        pytest.param({"username": "u", "password": "p"}, id="name and password"),
        pytest.param({"token": "secret", "username": "u", "password": "p"}, id="token before password"),
        pytest.param({}, id="anonymous"),
    ],
)
async def test_credentials_match_kubernetes_asyncio(serving, kubeconfig, tmp_path, user):
    (tmp_path / "secret-file").write_text("from the file")
    async with serving(require_token) as server:
        path = kubeconfig(server.url, user)
        await fetch_version(await connect(path))
        configuration = client.Configuration()
        await config.load_kube_config(config_file=path, client_configuration=configuration)
        library_header = configuration.api_key.get("BearerToken")
        assert server.requests[0].headers.get("authorization") == library_header


async def test_connect_with_token_needs_no_kubeconfig(serving):
    async with serving(require_token) as server:
        assert (await fetch_version(connect_with_token(server.url, "right"))).status == 200


async def test_client_certificate_from_files_and_data(serving, kubeconfig, certificate):
    cert, key = (str(path) for path in certificate)
    tls = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    tls.load_cert_chain(cert, key)
    tls.load_verify_locations(cert)
    tls.verify_mode = ssl.CERT_REQUIRED

    async def respond(request):
        await request.respond(200, b"come in")

    async with serving(respond, tls) as server:
        url = server.url.replace("http:", "https:")
        user = {"client-certificate": cert, "client-key": key}
        transport = await connect(kubeconfig(url, user, **{"certificate-authority": cert}))
        assert (await fetch_version(transport)).body == b"come in"
        files = dict(zip(user, certificate, strict=True))
        data = {f"{name}-data": base64.b64encode(file.read_bytes()).decode() for name, file in files.items()}
        authority = {"certificate-authority-data": data["client-certificate-data"]}
        assert (await fetch_version(await connect(kubeconfig(url, data, **authority)))).body == b"come in"
        transport = await connect(kubeconfig(url, {}, **{"insecure-skip-tls-verify": True}))
        with pytest.raises(TransportError):
            await fetch_version(transport)


@pytest.mark.usefixtures("http")
@pytest.mark.parametrize("host", ["a..b", "x" * 70 + ".example"])
async def test_invalid_host_name_is_transport_error(kubeconfig, host):
    with pytest.raises(TransportError) as failed:
        await fetch_version(await connect(kubeconfig(f"http://{host}", {})))
    assert not failed.value.request_sent


async def test_proxy_without_scheme_is_http_proxy(serving, kubeconfig, monkeypatch):
    async def respond(request):
        await request.respond(200, request.target.encode())

    async with serving(respond) as server:
        monkeypatch.setenv("HTTP_PROXY", server.url.removeprefix("http://"))
        transport = await connect(kubeconfig("http://example.invalid", {}))
        assert (await fetch_version(transport)).body == b"http://example.invalid/version"


@pytest.mark.parametrize(
    ("no_proxy", "proxied"),
    [("10.0.0.0/8", False), ("nonsense/8, 10.96.0.0/16", False), ("10.96.0.1", False), ("10.97.0.0/16,::/0", True)],
)
async def test_no_proxy_supports_address_ranges(kubeconfig, monkeypatch, no_proxy, proxied):
    monkeypatch.setenv("HTTPS_PROXY", "http://127.0.0.1:1")
    monkeypatch.setenv("NO_PROXY", no_proxy)
    transport = await connect(kubeconfig("https://10.96.0.1", {}))
    assert isinstance(transport, AiohttpTransport) is proxied
    await transport.close()


async def test_proxy_of_kubeconfig_and_environment_is_used(serving, kubeconfig, monkeypatch):
    async def respond(request):
        await request.respond(200, request.target.encode())

    async with serving(respond) as server:
        transport = await connect(kubeconfig("http://example.invalid", {}, **{"proxy-url": server.url}))
        assert (await fetch_version(transport)).body == b"http://example.invalid/version"
        monkeypatch.setenv("HTTP_PROXY", server.url)
        transport = await connect(kubeconfig("http://example.invalid", {}))
        assert (await fetch_version(transport)).body == b"http://example.invalid/version"
        monkeypatch.setenv("NO_PROXY", "example.invalid")
        with pytest.raises(TransportError):
            await fetch_version(await connect(kubeconfig("http://example.invalid", {})))


async def test_invalid_certificate_authority_is_user_error(kubeconfig, tmp_path):
    ca = tmp_path / "ca.crt"
    ca.write_text("not a certificate")
    path = kubeconfig("https://127.0.0.1:1", {"token": "x"}, **{"certificate-authority": str(ca)})
    with pytest.raises(UserError, match="certificate"):
        await connect(path)
