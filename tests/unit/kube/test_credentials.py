"""Kubeconfigs of all kinds, good and bad, against a server on loopback."""

from __future__ import annotations

import json
import ssl
import stat
import sys

import pytest
import yaml

from kubeloop.kube.credentials import connect, connect_token
from kubeloop.kube.endpoint import endpoint_at
from kubeloop.kube.errors import UserError
from kubeloop.kube.transport import TransportError


@pytest.fixture(autouse=True)
def no_environment(monkeypatch, tmp_path):
    for name in (
        "KUBECONFIG",
        "KUBERNETES_SERVICE_HOST",
        "HTTP_PROXY",
        "http_proxy",
        "HTTPS_PROXY",
        "https_proxy",
        "NO_PROXY",
    ):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("HOME", str(tmp_path / "home"))


@pytest.fixture
def kubeconfig(tmp_path):
    """kubeconfig(server, user): path of a file with one context, "dev"."""

    def write(server: str, user: dict, **cluster) -> str:
        path = tmp_path / "config"
        content = {
            "apiVersion": "v1",
            "kind": "Config",
            "current-context": "dev",
            "clusters": [{"name": "c", "cluster": {"server": server, **cluster}}],
            "users": [{"name": "u", "user": user}],
            "contexts": [{"name": "dev", "context": {"cluster": "c", "user": "u"}}],
        }
        path.write_text(yaml.safe_dump(content))
        return str(path)

    return write


async def whoami(request):
    """Answers 200 to the token "right" only."""
    right = request.headers.get("authorization") == "Bearer right"
    await request.answer(200 if right else 401, request.headers.get("authorization", "").encode())


async def ask(transport):
    try:
        return await transport.request("GET", "/version", headers={}, timeout_seconds=5)
    finally:
        await transport.close()


@pytest.mark.parametrize("http", ["asyncio", "aiohttp"])
async def test_a_token_from_a_kubeconfig_is_sent(serving, kubeconfig, http):
    async with serving(whoami) as server:
        transport = await connect(kubeconfig(server.url, {"token": "right"}), http=http)
        assert (await ask(transport)).status == 200


async def test_the_kubeconfig_may_be_named_by_the_environment(serving, kubeconfig, monkeypatch, tmp_path):
    async with serving(whoami) as server:
        path = kubeconfig(server.url, {"token": "right"})
        monkeypatch.setenv("KUBECONFIG", f"{tmp_path / 'missing'}:{path}")
        transport = await connect()
        assert (await ask(transport)).status == 200
        assert transport.server == server.url


async def test_a_token_file_is_read_again_when_the_server_refuses_the_token(serving, kubeconfig, tmp_path):
    token = tmp_path / "token"
    token.write_text("old")
    async with serving(whoami) as server:
        transport = await connect(kubeconfig(server.url, {"tokenFile": str(token)}))
        token.write_text("right")
        assert (await ask(transport)).status == 200
        assert [request.headers["authorization"] for request in server.requests] == ["Bearer old", "Bearer right"]


@pytest.fixture
def plugin(tmp_path):
    """plugin(*tokens): user section with an exec plugin that gives one token after the other."""

    def write(*tokens: str, expires: str = "") -> dict:
        state = tmp_path / "calls"
        state.write_text("0")
        status = {"expirationTimestamp": expires} if expires else {}
        script = tmp_path / "plugin"
        script.write_text(
            f"#!{sys.executable}\n"
            "import json, pathlib\n"
            f"state = pathlib.Path({str(state)!r})\n"
            "calls = int(state.read_text())\n"
            "state.write_text(str(calls + 1))\n"
            f"tokens = {list(tokens)!r}\n"
            f"status = {{'token': tokens[min(calls, len(tokens) - 1)], **{status!r}}}\n"
            "print(json.dumps({'kind': 'ExecCredential', 'apiVersion': 'client.authentication.k8s.io/v1',"
            " 'status': status}))\n"
        )
        script.chmod(script.stat().st_mode | stat.S_IXUSR)
        return {"exec": {"command": str(script), "apiVersion": "client.authentication.k8s.io/v1"}}

    return write


@pytest.mark.parametrize("expires", ["", "2999-01-01T00:00:00Z"])
async def test_an_exec_plugin_is_asked_again_when_the_server_refuses_its_token(serving, kubeconfig, plugin, expires):
    async with serving(whoami) as server:
        transport = await connect(kubeconfig(server.url, plugin("old", "right", expires=expires)))
        assert (await ask(transport)).status == 200
        assert [request.headers["authorization"] for request in server.requests] == ["Bearer old", "Bearer right"]


async def test_in_a_cluster_the_service_account_is_used(monkeypatch):
    monkeypatch.setenv("KUBERNETES_SERVICE_HOST", "127.0.0.1")
    monkeypatch.setenv("KUBERNETES_SERVICE_PORT", "443")
    with pytest.raises(UserError, match="in-cluster configuration: Service token file does not exist") as wrong:
        await connect()
    assert "service account" in wrong.value.hint


async def test_a_known_server_and_token_need_no_kubeconfig(serving):
    async with serving(whoami) as server:
        assert (await ask(connect_token(server.url, "right"))).status == 200


async def test_a_client_certificate_opens_the_connection(serving, kubeconfig, certificate):
    cert, key = (str(path) for path in certificate)
    tls = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    tls.load_cert_chain(cert, key)
    tls.load_verify_locations(cert)
    tls.verify_mode = ssl.CERT_REQUIRED

    async def answer(request):
        await request.answer(200, b"come in")

    async with serving(answer, tls) as server:
        url = server.url.replace("http:", "https:")
        user = {"client-certificate": cert, "client-key": key}
        transport = await connect(kubeconfig(url, user, **{"certificate-authority": cert}))
        assert (await ask(transport)).body == b"come in"
        transport = await connect(kubeconfig(url, {}, **{"insecure-skip-tls-verify": True}))
        with pytest.raises(TransportError):
            await ask(transport)


async def test_a_proxy_is_used(serving, kubeconfig, monkeypatch):
    async def answer(request):
        await request.answer(200, request.target.encode())

    async with serving(answer) as server:
        transport = await connect(kubeconfig("http://example.invalid", {}, **{"proxy-url": server.url}))
        assert (await ask(transport)).body == b"http://example.invalid/version"
        monkeypatch.setenv("HTTP_PROXY", server.url)
        transport = await connect(kubeconfig("http://example.invalid", {}))
        assert (await ask(transport)).body == b"http://example.invalid/version"
        monkeypatch.setenv("NO_PROXY", "example.invalid")
        with pytest.raises(TransportError):
            await ask(await connect(kubeconfig("http://example.invalid", {})))


BAD = [
    pytest.param("a: [1", "config is not valid YAML (line 1)", "check the file", id="not YAML"),
    pytest.param("just text", "is not a kubeconfig", "clusters", id="something else"),
    pytest.param("{}", "has no current-context", "it has no contexts", id="empty"),
    pytest.param(
        "{current-context: a, contexts: [{name: b, context: {}}]}", "no context 'a'", "contexts there: b", id="context"
    ),
    pytest.param(
        "{current-context: a, clusters: [], contexts: [{name: a, context: {cluster: c}}]}",
        "Expected object with name c",
        "kubectl version",
        id="cluster",
    ),
    pytest.param(
        "{current-context: a, clusters: [{name: c, cluster: {}}], contexts: [{name: a, context: {cluster: c}}]}",
        "is incomplete",
        "a cluster with a server",
        id="nothing about the cluster",
    ),
    pytest.param(
        "{current-context: a, clusters: [{name: c, cluster: {tls-server-name: x}}],"
        " contexts: [{name: a, context: {cluster: c}}]}",
        "names no server",
        "clusters[].cluster.server",
        id="server",
    ),
]


@pytest.mark.parametrize(("content", "problem", "hint"), BAD)
async def test_a_bad_kubeconfig_is_told_in_one_line_with_a_hint(tmp_path, content, problem, hint):
    path = tmp_path / "config"
    path.write_text(content)
    with pytest.raises(UserError) as wrong:
        await connect(str(path))
    assert problem in str(wrong.value)
    assert "\n" not in str(wrong.value)
    assert hint in wrong.value.hint


async def test_a_missing_kubeconfig_or_context_is_told(kubeconfig, tmp_path):
    with pytest.raises(UserError, match="no kubeconfig at /nowhere") as wrong:
        await connect("/nowhere")
    assert "--kubeconfig" in wrong.value.hint
    with pytest.raises(UserError, match=r"no kubeconfig at .*home/.kube/config"):
        await connect()
    with pytest.raises(UserError, match="no context 'prod'") as wrong:
        await connect(kubeconfig("http://127.0.0.1:1", {}), "prod")
    assert wrong.value.hint == "contexts there: dev"


async def test_a_plugin_that_is_missing_or_fails_is_told(kubeconfig, tmp_path, caplog):
    version = "client.authentication.k8s.io/v1"
    path = kubeconfig("http://127.0.0.1:1", {"exec": {"command": "no-such-plugin", "apiVersion": version}})
    with pytest.raises(UserError, match="exec plugin 'no-such-plugin' is not there") as wrong:
        await connect(path)
    assert "install" in wrong.value.hint
    path = kubeconfig("http://127.0.0.1:1", {"exec": {"command": "false", "apiVersion": version}})
    with pytest.raises(UserError, match="exec: process returned 1"):
        await connect(path)
    assert caplog.text == ""


async def test_a_bad_certificate_is_told(kubeconfig, tmp_path):
    ca = tmp_path / "ca.crt"
    ca.write_text("not a certificate")
    path = kubeconfig("https://127.0.0.1:1", {"token": "x"}, **{"certificate-authority": str(ca)})
    with pytest.raises(UserError, match="certificate"):
        await connect(path)


@pytest.mark.parametrize("url", ["ftp://x", "https://", "https://x:99999", "http://x:0"])
def test_an_address_that_is_none_is_told(url):
    with pytest.raises(UserError, match="no server address"):
        endpoint_at(url)


def test_addresses_are_understood():
    endpoint = endpoint_at("https://[::1]:6443/prefix/")
    assert (endpoint.host, endpoint.port, endpoint.path_prefix) == ("::1", 6443, "/prefix")
    assert endpoint.url == "https://[::1]:6443/prefix"
    assert endpoint_at("http://localhost").url == "http://localhost"
    assert endpoint_at("example.com").url == "https://example.com"
    assert json.dumps(endpoint_at("http://localhost:8080").port) == "8080"
