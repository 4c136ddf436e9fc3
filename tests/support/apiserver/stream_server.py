"""An API server on a port, with one running pod whose containers have configured answers; a WebSocket client for it."""

from __future__ import annotations

import asyncio
import random
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import aiohttp

from kubeloop.devcluster.kubelet.containers.container_answers import ContainerAnswers
from kubeloop.devcluster.server.apiserver import ApiServer, ServingSettings
from kubeloop.devcluster.server.http import HttpServer
from kubeloop.devcluster.server.listener import listening_socket
from kubeloop.kube.clock import SystemClock
from kubeloop.kube.feature_gates import DEFAULT_FEATURE_GATES, FeatureGates
from kubeloop.kube.objects.resources import NODES, PODS


class StreamServer:
    """Requests to the pod `p` of the namespace `default`, with the containers `web` and `side`."""

    def __init__(self, api: ApiServer, session: aiohttp.ClientSession, url: str) -> None:
        self.api = api
        self.url = url
        self._session = session
        self._pod = f"{url}/api/v1/namespaces/default/pods/p"

    @asynccontextmanager
    async def connect(self, path: str, *protocols: str) -> AsyncIterator[aiohttp.ClientWebSocketResponse]:
        """Open a WebSocket. Raises aiohttp.WSServerHandshakeError."""
        async with self._session.ws_connect(f"{self._pod}/{path}", protocols=protocols) as websocket:
            yield websocket

    async def get(self, path: str, **headers: str) -> tuple[int, str]:
        """Return status and text of a request; header names with "_" for "-"."""
        named = {name.replace("_", "-"): value for name, value in headers.items()}
        async with self._session.get(f"{self._pod}/{path}", headers=named) as response:
            return response.status, await response.text()

    async def send(self, method: str, path: str, data: bytes = b"") -> tuple[int, dict[str, str], str]:
        """Return status, headers and text of a request to a path of the server; redirects are not followed."""
        url = f"{self.url}{path}"
        async with self._session.request(method, url, data=data, allow_redirects=False) as response:
            return (
                response.status,
                {name.lower(): value for name, value in response.headers.items()},
                await response.text(),
            )

    @asynccontextmanager
    async def following(self, path: str) -> AsyncIterator[aiohttp.StreamReader]:
        """Open a response that does not end."""
        async with self._session.get(f"{self._pod}/{path}") as response:
            yield response.content


@asynccontextmanager
async def stream_server(
    answers: ContainerAnswers | None = None, gates: FeatureGates = DEFAULT_FEATURE_GATES
) -> AsyncIterator[StreamServer]:
    settings = ServingSettings(container_answers=answers or ContainerAnswers(), feature_gates=gates)
    api = ApiServer(clock=SystemClock(), rng=random.Random(1), token=None, settings=settings)
    api.store.create(NODES, {"kind": "Node", "apiVersion": "v1", "metadata": {"name": "n"}})
    pod = {"kind": "Pod", "apiVersion": "v1", "metadata": {"name": "p", "namespace": "default", "uid": "u"}}
    spec = {"nodeName": "n", "containers": [{"name": "web"}, {"name": "side"}]}
    terminated = {"terminated": {"exitCode": 1, "containerID": "containerd://1"}}
    statuses = [{"name": name, "state": {"running": {}}, "lastState": terminated} for name in ("web", "side")]
    status = {"phase": "Running", "podIP": "10.0.0.1", "containerStatuses": statuses}
    api.store.create(PODS, {**pod, "spec": spec, "status": status})
    async with HttpServer(api) as http, aiohttp.ClientSession() as session:
        listener = await asyncio.get_running_loop().create_server(http, sock=listening_socket(0))
        port = listener.sockets[0].getsockname()[1]
        try:
            yield StreamServer(api, session, f"http://127.0.0.1:{port}")
        finally:
            listener.close()
