"""Client CPU per request, by transport: `python benchmarks/transport.py`.

An aiohttp server in a separate process handles a pod-sized PUT. This process sends concurrent requests; the figure is
its CPU time (user and system) per request. Plain and TLS, on uvloop unless --asyncio-loop.
"""

from __future__ import annotations

import argparse
import asyncio
import multiprocessing
import ssl
import subprocess
import tempfile
import time
from collections.abc import Callable
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

import uvloop
from aiohttp import web

from kubeloop.kube.client.aiohttp_transport import AiohttpTransport
from kubeloop.kube.client.asyncio_transport import AsyncioTransport
from kubeloop.kube.client.endpoint import Endpoint, endpoint_from_url
from kubeloop.kube.client.transport import HttpRequest

BODY = b'{"kind":"Pod","apiVersion":"v1","metadata":{"name":"web","labels":{"app":"web"}},"x":"' + b"x" * 2700 + b'"}'
HEADERS = {"accept": "application/json", "user-agent": "benchmark", "content-type": "application/json"}
HEADERS["authorization"] = "Bearer " + "t" * 40


async def _handle(request: web.Request) -> web.Response:
    await request.read()
    return web.Response(
        body=BODY, content_type="application/json", headers={"Audit-Id": "1", "Cache-Control": "no-cache"}
    )


def _serve(tls_files: tuple[Path, Path] | None, port: Connection) -> None:
    async def main() -> None:
        app = web.Application()
        app.router.add_route("*", "/{path:.*}", _handle)
        runner = web.AppRunner(app, access_log=None)
        await runner.setup()
        tls = None
        if tls_files:
            tls = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
            tls.load_cert_chain(*tls_files)
        site = web.TCPSite(runner, "127.0.0.1", 0, ssl_context=tls)
        await site.start()
        port.send(runner.addresses[0][1])
        await asyncio.Event().wait()

    uvloop.run(main())


async def _cpu_microseconds(
    make: Callable[[Endpoint], Any], endpoint: Endpoint, requests: int, at_once: int
) -> tuple[float, float]:
    """Return CPU microseconds per request, and requests per second."""
    transport = make(endpoint)

    async def send(count: int) -> None:
        for _ in range(count):
            response = await transport.send(
                HttpRequest(
                    "PUT",
                    "/api/v1/namespaces/default/pods/web/status",
                    headers=HEADERS,
                    body=BODY,
                    timeout_seconds=30.0,
                )
            )
            assert response.status == 200

    await asyncio.gather(*(send(20) for _ in range(at_once)))
    cpu, wall = time.process_time(), time.perf_counter()
    await asyncio.gather(*(send(requests // at_once) for _ in range(at_once)))
    cpu, wall = time.process_time() - cpu, time.perf_counter() - wall
    await transport.close()
    return cpu / requests * 1e6, requests / wall


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--requests", type=int, default=10_000)
    parser.add_argument("--at-once", type=int, default=16)
    parser.add_argument("--asyncio-loop", action="store_true", help="use asyncio's loop instead of uvloop")
    options = parser.parse_args()
    runner = asyncio.run if options.asyncio_loop else uvloop.run
    with tempfile.TemporaryDirectory() as folder:
        files = Path(folder) / "crt", Path(folder) / "key"
        command = "openssl req -x509 -newkey ec -pkeyopt ec_paramgen_curve:prime256v1 -nodes -days 2 -subj /CN=b"
        extra = ["-addext", "subjectAltName=IP:127.0.0.1", "-keyout", str(files[1]), "-out", str(files[0])]
        subprocess.run([*command.split(), *extra], check=True, capture_output=True)
        for name, tls_files in (("plain", None), ("TLS", files)):
            parent_end, child_end = multiprocessing.Pipe()
            server = multiprocessing.get_context("spawn").Process(
                target=_serve, args=(tls_files, child_end), daemon=True
            )
            server.start()
            port = parent_end.recv()
            tls = ssl.create_default_context(cafile=str(files[0])) if tls_files else None
            endpoint = endpoint_from_url(f"{'https' if tls else 'http'}://127.0.0.1:{port}", tls)
            for make in (AiohttpTransport, AsyncioTransport):
                cpu, rate = runner(_cpu_microseconds(make, endpoint, options.requests, options.at_once))
                print(f"{name:6} {make.__name__:18} {cpu:7.1f} us CPU/request {rate:8.0f} requests/s")
            server.terminate()
            server.join()


if __name__ == "__main__":
    main()
