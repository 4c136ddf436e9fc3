"""Kubeconfigs of all kinds, good and bad, against a server on loopback."""

from __future__ import annotations

import asyncio
import base64
import json
import ssl
import stat
import sys

import pytest
import yaml
from kubernetes_asyncio import client, config

from kubeloop.kube import yaml as yaml_text
from kubeloop.kube.auth.credentials import connect, connect_with_token
from kubeloop.kube.client.aiohttp_transport import AiohttpTransport
from kubeloop.kube.client.endpoint import endpoint_from_url
from kubeloop.kube.client.transport import TransportError
from kubeloop.kube.errors import UserError


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
        path.write_text(yaml_text.write(content))
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
    with pytest.raises(UserError, match=r"in-cluster configuration: .*/ca.crt: No such file") as wrong:
        await connect()
    assert "service account" in wrong.value.hint


async def test_a_service_account_token_is_read_again_when_the_server_refuses_it(
    serving, monkeypatch, tmp_path, certificate
):
    cert, key = (str(path) for path in certificate)
    tls = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    tls.load_cert_chain(cert, key)
    (tmp_path / "ca.crt").write_bytes(certificate[0].read_bytes())
    (tmp_path / "token").write_text("old\n")
    monkeypatch.setattr("kubeloop.kube.auth.credentials.SERVICE_ACCOUNT", tmp_path)
    async with serving(whoami, tls) as server:
        monkeypatch.setenv("KUBERNETES_SERVICE_HOST", "127.0.0.1")
        monkeypatch.setenv("KUBERNETES_SERVICE_PORT", server.url.rpartition(":")[2])
        transport = await connect()
        (tmp_path / "token").write_text("right\n")
        assert (await ask(transport)).status == 200
    (tmp_path / "token").write_text("")
    with pytest.raises(UserError, match="token: it is empty"):
        await connect()
    monkeypatch.delenv("KUBERNETES_SERVICE_PORT")
    with pytest.raises(UserError, match="KUBERNETES_SERVICE_PORT is not set"):
        await connect()


async def test_of_several_kubeconfigs_the_first_entry_of_a_name_counts_and_paths_are_relative_to_their_file(
    serving, tmp_path, monkeypatch
):
    first, second = tmp_path / "first" / "config", tmp_path / "second" / "config"
    for path in (first, second):
        path.parent.mkdir()
    (second.parent / "token").write_text("right")
    async with serving(whoami) as server:
        contexts = [{"name": "dev", "context": {"cluster": "c", "user": "u"}}]
        clusters = [{"name": "c", "cluster": {"server": server.url}}]
        first.write_text(yaml.safe_dump({"current-context": "dev", "contexts": contexts, "clusters": clusters}))
        clusters = [{"name": "c", "cluster": {"server": "http://127.0.0.1:1"}}]
        users = [{"name": "u", "user": {"tokenFile": "token"}}]
        second.write_text(yaml.safe_dump({"current-context": "other", "clusters": clusters, "users": users}))
        monkeypatch.setenv("KUBECONFIG", f"{first}:{second}")
        assert (await ask(await connect())).status == 200


async def test_name_and_password_are_sent(serving, kubeconfig):
    async with serving(whoami) as server:
        await ask(await connect(kubeconfig(server.url, {"username": "a", "password": "b"})))
        assert server.requests[0].headers["authorization"] == "Basic YTpi"


async def test_what_needs_no_library_does_not_import_it(serving, kubeconfig):
    async with serving(whoami) as server:
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
        pytest.param({}, id="nobody"),
    ],
)
async def test_we_are_who_kubernetes_asyncio_is_with_the_same_kubeconfig(serving, kubeconfig, tmp_path, user):
    (tmp_path / "secret-file").write_text("from the file")
    async with serving(whoami) as server:
        path = kubeconfig(server.url, user)
        await ask(await connect(path))
        configuration = client.Configuration()
        await config.load_kube_config(config_file=path, client_configuration=configuration)
        theirs = configuration.api_key.get("BearerToken")
        assert server.requests[0].headers.get("authorization") == theirs


async def test_a_known_server_and_token_need_no_kubeconfig(serving):
    async with serving(whoami) as server:
        assert (await ask(connect_with_token(server.url, "right"))).status == 200


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
        files = dict(zip(user, certificate, strict=True))
        data = {f"{name}-data": base64.b64encode(file.read_bytes()).decode() for name, file in files.items()}
        authority = {"certificate-authority-data": data["client-certificate-data"]}
        assert (await ask(await connect(kubeconfig(url, data, **authority)))).body == b"come in"
        transport = await connect(kubeconfig(url, {}, **{"insecure-skip-tls-verify": True}))
        with pytest.raises(TransportError):
            await ask(transport)


IMPERSONATION = {
    "as": "jané",
    "as-uid": "u-1",
    "as-groups": ["system:masters", "b, c"],
    "as-user-extra": {"example.com/Team b%": ["x", "y"], "Ä": ["z"]},
}


@pytest.mark.parametrize("http", ["asyncio", "aiohttp"])
@pytest.mark.parametrize("by_plugin", [False, True], ids=["token", "exec plugin"])
async def test_who_acts_as_somebody_else_says_so_in_every_request(serving, kubeconfig, plugin, http, by_plugin):
    async with serving(whoami) as server:
        user = (plugin("right") if by_plugin else {"token": "right"}) | IMPERSONATION
        transport = await connect(kubeconfig(server.url, user), http=http)
        assert (await ask(transport)).status == 200
        (request,) = server.requests
        sent = [(name.lower(), value) for name, value in request.header_lines if name.lower().startswith("imp")]
        assert sent == [
            ("impersonate-user", "jané".encode().decode("latin-1")),
            ("impersonate-uid", "u-1"),
            ("impersonate-group", "system:masters"),
            ("impersonate-group", "b, c"),
            ("impersonate-extra-example.com%2fteam%20b%25", "x"),
            ("impersonate-extra-example.com%2fteam%20b%25", "y"),
            ("impersonate-extra-%c3%84", "z"),
        ]


async def test_who_acts_as_nobody_else_sends_no_such_header(serving, kubeconfig):
    async with serving(whoami) as server:
        user = {"token": "right", "as": "", "as-uid": "", "as-groups": [], "as-user-extra": {}}
        await ask(await connect(kubeconfig(server.url, user)))
        assert not [name for name in server.requests[0].headers if name.startswith("impersonate")]


@pytest.mark.parametrize(
    ("user", "problem", "hint"),
    [
        ({"as-groups": ["a"]}, "need a user", "users[].user.as"),
        ({"as-uid": "a"}, "need a user", "users[].user.as"),
        ({"as-user-extra": {"a": ["b"]}}, "need a user", "users[].user.as"),
        ({"as": 5}, "as must be a string", "quotes"),
        ({"as": "a", "as-groups": "b"}, "as-groups must be a list of strings", "quotes"),
        ({"as": "a", "as-groups": [1]}, "as-groups must be a list of strings", "quotes"),
        ({"as": "a", "as-user-extra": ["b"]}, "as-user-extra is not a mapping", "list of strings"),
        ({"as": "a", "as-user-extra": {"b": "c"}}, "as-user-extra.b must be a list of strings", "quotes"),
        ({"as": "a\r\nauthorization: b"}, "cannot be sent", "one line"),
    ],
    ids=str,
)
async def test_impersonation_that_cannot_be_asked_for_is_told(kubeconfig, user, problem, hint):
    with pytest.raises(UserError) as wrong:
        await connect(kubeconfig("http://127.0.0.1:1", user))
    assert problem in str(wrong.value)
    assert hint in wrong.value.hint


@pytest.mark.parametrize("http", ["asyncio", "aiohttp"])
@pytest.mark.parametrize("host", ["a..b", "x" * 70 + ".example"])
async def test_a_host_that_cannot_be_a_name_does_not_answer(kubeconfig, host, http):
    with pytest.raises(TransportError) as failed:
        await ask(await connect(kubeconfig(f"http://{host}", {}), http=http))
    assert not failed.value.request_sent


async def test_a_proxy_without_a_scheme_is_one_for_http(serving, kubeconfig, monkeypatch):
    async def answer(request):
        await request.answer(200, request.target.encode())

    async with serving(answer) as server:
        monkeypatch.setenv("HTTP_PROXY", server.url.removeprefix("http://"))
        transport = await connect(kubeconfig("http://example.invalid", {}))
        assert (await ask(transport)).body == b"http://example.invalid/version"


@pytest.mark.parametrize(
    ("no_proxy", "proxied"),
    [("10.0.0.0/8", False), ("nonsense/8, 10.96.0.0/16", False), ("10.96.0.1", False), ("10.97.0.0/16,::/0", True)],
)
async def test_no_proxy_may_name_ranges_of_addresses(kubeconfig, monkeypatch, no_proxy, proxied):
    monkeypatch.setenv("HTTPS_PROXY", "http://127.0.0.1:1")
    monkeypatch.setenv("NO_PROXY", no_proxy)
    transport = await connect(kubeconfig("https://10.96.0.1", {}))
    assert isinstance(transport, AiohttpTransport) is proxied
    await transport.close()


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
    pytest.param("a: [1", "config is not valid YAML: line ", "check the file", id="not YAML"),
    pytest.param("just text", "is not a kubeconfig", "clusters", id="something else"),
    pytest.param("{}", "has no current-context", "it has no contexts", id="empty"),
    pytest.param(
        "{current-context: a, contexts: [{name: b, context: {}}]}", "no context 'a'", "contexts there: b", id="context"
    ),
    pytest.param(
        "{current-context: a, clusters: [], contexts: [{name: a, context: {cluster: c}}]}",
        "context 'a' names the cluster 'c', which does not exist",
        "it has no clusters",
        id="cluster",
    ),
    pytest.param(
        "{current-context: a, clusters: [{name: c, cluster: {}}], contexts: [{name: a, context: {cluster: c}}]}",
        "names no server",
        "clusters[].cluster.server",
        id="nothing about the cluster",
    ),
    pytest.param(
        "{current-context: a, clusters: [{name: c}], users: [{name: v}], contexts: [{name: a, context: {cluster: c,"
        " user: u}}]}",
        "context 'a' names the user 'u', which does not exist",
        "users there: v",
        id="user",
    ),
    pytest.param(
        "{current-context: a, clusters: [{name: c, cluster: {server: 'http://x', proxy-url: 'socks5://y'}}],"
        " contexts: [{name: a, context: {cluster: c}}]}",
        "'socks5://y' is not an HTTP proxy",
        "proxy-url looks like http://HOST:PORT",
        id="proxy",
    ),
    pytest.param(
        "{current-context: a, clusters: [{name: c, cluster: {server: 'http://x'}}],"
        " users: [{name: u, user: {tokenFile: missing}}], contexts: [{name: a, context: {cluster: c, user: u}}]}",
        "tokenFile: cannot read missing: No such file",
        "check the path",
        id="token file",
    ),
    pytest.param(
        "{current-context: a, clusters: [{name: c, cluster: {server: 'https://x', certificate-authority-data: ä}}],"
        " contexts: [{name: a, context: {cluster: c}}]}",
        "certificate-authority-data is not base64",
        "check",
        id="data",
    ),
    pytest.param(
        "{current-context: a, clusters: [{name: c, cluster: {server: 8080}}],"
        " contexts: [{name: a, context: {cluster: c}}]}",
        "server must be a string",
        "quotes",
        id="a number",
    ),
    pytest.param("{current-context: a, contexts: {a: {}}}", "is not a kubeconfig", "a list of entries", id="mapping"),
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
    with pytest.raises(UserError, match="exec plugin 'no-such-plugin' not found") as wrong:
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


@pytest.mark.parametrize("url", ["ftp://x", "https://", "https://x:99999", "http://x:0", "https://[x"])
def test_an_address_that_is_none_is_told(url):
    with pytest.raises(UserError, match="is not a server address"):
        endpoint_from_url(url)


def test_addresses_are_understood():
    endpoint = endpoint_from_url("https://[::1]:6443/prefix/")
    assert (endpoint.host, endpoint.port, endpoint.path_prefix) == ("::1", 6443, "/prefix")
    assert endpoint.url == "https://[::1]:6443/prefix"
    assert endpoint_from_url("http://localhost").url == "http://localhost"
    assert endpoint_from_url("example.com").url == "https://example.com"
    assert json.dumps(endpoint_from_url("http://localhost:8080").port) == "8080"
