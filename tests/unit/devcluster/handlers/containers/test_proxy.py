"""The subresource proxy of pods, Services and nodes, with configured targets of port-forward."""

from __future__ import annotations

import sys
from collections.abc import AsyncIterator

import aiohttp
import pytest
from aiohttp import web

from kubeloop.devcluster.api.errors import StatusError
from kubeloop.devcluster.api.request import ApiRequest
from kubeloop.devcluster.api.served_resources import ENDPOINTS
from kubeloop.devcluster.handlers.containers.proxy import ProxyTarget, proxy
from kubeloop.devcluster.kubelet.containers.container_answers import ContainerAnswers, Entry, PortForwardAnswer, Rule
from kubeloop.devcluster.server.listener import listening_socket
from kubeloop.kube.objects.resources import PODS, SERVICES
from support.apiserver.stream_server import StreamServer, stream_server

POD, NODE = "/api/v1/namespaces/default/pods/p", "/api/v1/nodes/n"
ONE_RESPONSE = "import sys; sys.stdin.readline(); print('HTTP/1.1 200 OK\\r\\n\\r\\nfrom a command')"


async def echo(request: web.Request) -> web.StreamResponse:
    if request.path == "/socket":
        socket = web.WebSocketResponse(protocols=("chat",))
        await socket.prepare(request)
        async for message in socket:
            await socket.send_str(f"{socket.ws_protocol} {message.data}")
        return socket
    if request.path == "/none" and "Upgrade" in request.headers:
        raise web.HTTPForbidden
    if request.path == "/moved":
        raise web.HTTPFound("/there")
    text = f"{request.method} {request.path_qs} {(await request.read()).decode()}"
    headers = {"X-Seen-Authorization": request.headers.get("Authorization", "none")}
    return web.Response(status=201, text=text, headers=headers)


@pytest.fixture
async def server() -> AsyncIterator[StreamServer]:
    """The server, with a target for port 80 of every pod, a command for 81, and a closed port for 82."""
    application = web.Application()
    application.router.add_route("*", "/{path:.*}", echo)
    runner = web.AppRunner(application)
    await runner.setup()
    listener = listening_socket(0)
    port = listener.getsockname()[1]
    await web.SockSite(runner, listener).start()
    closed = listening_socket(0)
    entries = (
        Entry(PortForwardAnswer("127.0.0.1", port), (80,)),
        Entry(PortForwardAnswer(command=(sys.executable, "-c", ONE_RESPONSE)), (81,)),
        Entry(PortForwardAnswer("127.0.0.1", closed.getsockname()[1]), (82,)),
    )
    closed.close()
    async with stream_server(ContainerAnswers(port_forwards=[Rule(entries)])) as server:
        yield server
    await runner.cleanup()


@pytest.mark.parametrize("method", ["GET", "POST", "PUT", "DELETE", "PATCH"])
async def test_proxy_passes_method_path_query_and_body(server: StreamServer, method: str):
    status, headers, text = await server.send(method, f"{POD}:80/proxy/a%20b?x=1&x=2", b"body")
    assert (status, text) == (201, f"{method} /a%20b?x=1&x=2 body")
    assert headers["x-seen-authorization"] == "none"


async def test_proxy_without_port_uses_the_first_of_the_pod(server: StreamServer):
    pod = server.api.store.get(PODS, "default", "p")
    assert pod is not None
    containers = [{"name": "web"}, {"name": "side", "ports": [{"containerPort": 81}]}]
    server.api.store.update(PODS, {**pod, "spec": {**pod["spec"], "containers": containers}})
    status, _, text = await server.send("GET", f"{POD}/proxy/")
    assert (status, text.strip()) == (200, "from a command")


async def test_proxy_of_service_selects_a_pod(server: StreamServer):
    store = server.api.store
    store.update(PODS, {**(store.get(PODS, "default", "p") or {}), "status": {"podIPs": [{"ip": "10.0.0.1"}]}})
    metadata = {"name": "s", "namespace": "default"}
    store.create(SERVICES, {"metadata": {**metadata, "uid": "s"}, "spec": {"ports": [{"port": 8000, "name": "http"}]}})
    addresses = [{"ip": "10.0.0.1", "targetRef": {"name": "p", "namespace": "default"}}]
    subset = {"addresses": addresses, "ports": [{"name": "http", "port": 80}]}
    store.create(ENDPOINTS, {"metadata": metadata, "subsets": [subset]})
    for target in ("s:8000", "s:http"):
        status, _, text = await server.send("GET", f"/api/v1/namespaces/default/services/{target}/proxy/x")
        assert (status, text) == (201, "GET /x ")


async def test_proxy_of_node_selects_a_pod_with_host_network(server: StreamServer):
    assert (await server.send("GET", f"{NODE}:80/proxy/x"))[0] == 400
    pod = server.api.store.get(PODS, "default", "p")
    assert pod is not None
    server.api.store.update(PODS, {**pod, "spec": {**pod["spec"], "hostNetwork": True}})
    status, _, text = await server.send("GET", f"{NODE}:80/proxy/x")
    assert (status, text) == (201, "GET /x ")


async def test_proxy_redirects_stay_below_the_proxy(server: StreamServer):
    status, headers, _ = await server.send("GET", f"{POD}:80/proxy?a=b")
    assert (status, headers["location"]) == (301, f"{POD}:80/proxy/?a=b")
    status, headers, _ = await server.send("GET", f"{POD}:80/proxy/moved")
    assert (status, headers["location"]) == (302, f"{POD}:80/proxy/there")


async def test_proxy_of_head_has_no_body(server: StreamServer):
    status, _, text = await server.send("HEAD", f"{POD}:80/proxy/x")
    assert (status, text) == (201, "")


async def test_proxy_to_closed_port_is_unavailable(server: StreamServer):
    status, _, text = await server.send("GET", f"{POD}:82/proxy/x")
    assert (status, "error trying to reach service: " in text) == (503, True)


async def test_proxy_joins_websockets(server: StreamServer):
    async with server.connect("proxy/socket", "chat") as socket:
        for text in ("a", "b" * 100_000):
            await socket.send_str(text)
            assert await socket.receive_str() == f"chat {text}"


@pytest.mark.parametrize(
    ("command", "message"),
    [
        (("true",), "error dialing backend: the target sent no response"),
        (("printf", "HTTP/1.1 200 OK\r\n\r\n"), "invalid upgrade response: status code 200"),
    ],
)
async def test_target_that_does_not_upgrade_is_an_error(command: tuple[str, ...], message: str):
    request = ApiRequest.of("GET", "/p/proxy/x", {"Connection": "Upgrade", "Upgrade": "websocket"})
    with pytest.raises(StatusError, match=message) as raised:
        await proxy(request, "/p/proxy", ProxyTarget(PortForwardAnswer(command=command), "p:80"))
    assert raised.value.code == 500


async def test_refused_upgrade_is_the_response_of_the_target(server: StreamServer):
    with pytest.raises(aiohttp.WSServerHandshakeError) as refused:
        async with server.connect("proxy/none"):
            pass
    assert refused.value.status == 403


@pytest.mark.parametrize(
    ("command", "message"),
    [
        (("true",), "error trying to reach service: the target sent no response"),
        (("echo", "no HTTP"), "error trying to reach service: "),
        (("printf", "HTTP/1.1 799 x\r\n\r\n"), "the target has sent the status 799"),
    ],
)
async def test_target_without_a_valid_response_is_unavailable(command: tuple[str, ...], message: str):
    with pytest.raises(StatusError, match=message) as raised:
        await proxy(
            ApiRequest.of("GET", "/p/proxy/x"), "/p/proxy", ProxyTarget(PortForwardAnswer(command=command), "p:80")
        )
    assert raised.value.code == 503
