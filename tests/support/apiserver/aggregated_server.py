"""A small aggregated API server: things of agg.example.com/v1, over TLS, for tests that run beside it.

It responds with the request that it has received. `/stream` streams, `/missing` is a 404 with a Status, `/moved`
redirects, `/silent` does not respond, `/socket` is a WebSocket that sends the name of the user, then returns messages.
"""

from __future__ import annotations

import asyncio
import json
import ssl
import threading
from base64 import b64encode
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from hashlib import sha256
from typing import Any

from aiohttp import ETag, web

from kubeloop.devcluster.server.tls import create_certificate
from kubeloop.kube.clock import SystemClock
from support.objects.client_certificates import client_certificate

JSON = dict[str, Any]
GROUP, VERSION = "agg.example.com", "v1"
PATH = f"/apis/{GROUP}/{VERSION}"
RESOURCE_LIST: JSON = {
    "kind": "APIResourceList",
    "apiVersion": "v1",
    "groupVersion": f"{GROUP}/{VERSION}",
    "resources": [
        {
            "name": "things",
            "singularName": "thing",
            "namespaced": True,
            "kind": "Thing",
            "verbs": ["get", "list"],
            "shortNames": ["th"],
        },
        {"name": "things/status", "singularName": "", "namespaced": True, "kind": "Thing", "verbs": ["get"]},
    ],
}
SPEC: JSON = {
    "swagger": "2.0",
    "info": {"title": "Things", "version": "1"},
    "paths": {
        f"{PATH}/things": {
            "get": {
                "operationId": "listThings",
                "produces": ["application/json"],
                "responses": {"200": {"description": "OK", "schema": {"$ref": "#/definitions/com.example.Thing"}}},
            }
        },
        "/version/": {"get": {"responses": {"200": {"schema": {"$ref": "#/definitions/com.example.Version"}}}}},
    },
    "definitions": {
        "com.example.Thing": {
            "description": "Thing is an example.",
            "type": "object",
            "properties": {"color": {"description": "Color of the thing.", "type": "string"}},
            "x-kubernetes-group-version-kind": [{"group": GROUP, "version": VERSION, "kind": "Thing"}],
        },
        "com.example.Version": {"type": "object"},
    },
}
"""OpenAPI v2 of the server."""


class AggregatedServer:
    """A running server.

    ca: verifies it, as spec.caBundle. is_broken: it responds with 500 to discovery. documents: other bodies by path,
    with an ETag for JSON.
    """

    def __init__(self, host: str = "agg.default.svc") -> None:
        self._certificate = create_certificate(SystemClock())
        serving = client_certificate(self._certificate.authority, host, usage=None, dns_names=[host])
        self._pem = serving.pem
        self.ca = b64encode(self._certificate.authority.certificate_pem.encode()).decode()
        self.port = 0
        self.is_broken = False
        self.documents: dict[str, bytes | JSON] = {}

    def api_service(self, **spec: Any) -> JSON:
        """Return the APIService of this server behind the Service default/agg."""
        return {
            "apiVersion": "apiregistration.k8s.io/v1",
            "kind": "APIService",
            "metadata": {"name": f"{VERSION}.{GROUP}"},
            "spec": {
                "group": GROUP,
                "version": VERSION,
                "groupPriorityMinimum": 1000,
                "versionPriority": 15,
                "service": {"name": "agg", "namespace": "default"},
                "caBundle": self.ca,
                **spec,
            },
        }

    async def _respond(self, request: web.Request) -> web.StreamResponse:
        path = request.path.rstrip("/")
        if (document := self.documents.get(path)) is not None:
            if isinstance(document, bytes):
                return web.Response(body=document)
            etag = ETag(sha256(json.dumps(document).encode()).hexdigest())
            if request.if_none_match == (etag,):
                return web.Response(status=304)
            return web.json_response(document, headers={"ETag": f'"{etag.value}"'})
        if path == PATH:
            return web.json_response(RESOURCE_LIST, status=500 if self.is_broken else 200)
        if path.endswith("/missing"):
            status = {"kind": "Status", "apiVersion": "v1", "status": "Failure", "code": 404, "reason": "NotFound"}
            return web.json_response(status, status=404)
        if not path.startswith(PATH):
            return web.Response(status=404)
        if path.endswith("/silent"):
            await asyncio.sleep(60)
        if path.endswith("/moved"):
            raise web.HTTPFound("/elsewhere")
        if path.endswith("/socket") and request.headers.get("Upgrade") == "websocket":
            socket = web.WebSocketResponse(protocols=("v4.channel.k8s.io",))
            await socket.prepare(request)
            await socket.send_str(request.headers["X-Remote-User"])
            async for message in socket:
                await socket.send_bytes(message.data)
            return socket
        if path.endswith("/stream"):
            stream = web.StreamResponse(headers={"Content-Type": "application/json;stream=watch"})
            await stream.prepare(request)
            for number in range(3):
                await stream.write(json.dumps({"type": "ADDED", "object": {"number": number}}).encode() + b"\n")
            return stream
        shown = (
            "x-test",
            "authorization",
            "impersonate-user",
            "x-forwarded-for",
            "x-forwarded-proto",
            "x-forwarded-uri",
        )
        peer = request.transport and request.transport.get_extra_info("peercert")
        received = {
            "method": request.method,
            "path": request.path_qs,
            "headers": sorted(
                [name.lower(), value]
                for name, value in request.headers.items()
                if name.lower().startswith("x-remote-") or name.lower() in shown
            ),
            "body": (await request.read()).decode(),
            "proxy": dict(entry[0] for entry in peer["subject"]).get("commonName") if peer else None,
        }
        return web.json_response(
            received, headers={"X-Own": "a", "X-Seen-Audit-Id": request.headers.get("Audit-Id", "")}
        )

    @asynccontextmanager
    async def serving(self, client_ca: str = "") -> AsyncIterator[AggregatedServer]:
        """Serve on loopback. client_ca: authorities of front proxies, in PEM."""
        import tempfile

        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        with tempfile.NamedTemporaryFile() as file:
            file.write(self._pem)
            file.flush()
            context.load_cert_chain(file.name)
        if client_ca:
            context.verify_mode = ssl.CERT_OPTIONAL
            context.load_verify_locations(cadata=client_ca)
        app = web.Application()
        app.router.add_route("*", "/{path:.*}", self._respond)
        runner = web.AppRunner(app, shutdown_timeout=0.1)
        await runner.setup()
        site = web.TCPSite(runner, "127.0.0.1", self.port, ssl_context=context)
        await site.start()
        self.port = runner.addresses[0][1]
        try:
            yield self
        finally:
            await runner.cleanup()


@contextmanager
def in_thread(server: AggregatedServer, client_ca: str = "") -> Iterator[AggregatedServer]:
    """Serve in a thread, for tests without an event loop."""
    loop, started = asyncio.new_event_loop(), threading.Event()
    stop = asyncio.Event()

    async def run() -> None:
        async with server.serving(client_ca):
            started.set()
            await stop.wait()

    thread = threading.Thread(target=loop.run_until_complete, args=(run(),), daemon=True)
    thread.start()
    assert started.wait(10)
    try:
        yield server
    finally:
        loop.call_soon_threadsafe(stop.set)
        thread.join(10)
        loop.close()
