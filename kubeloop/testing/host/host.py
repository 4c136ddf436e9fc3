"""The host process of test clusters, started by `launch`; it has no command.

It imports everything once and runs any number of clusters, sequentially or concurrently, each with its own API server,
nodes, controllers, scheduler and ports. It ends when its stdin ends or its parent exits, in any way, and removes its
files.

The API server is imported first, and the first cluster is available when it serves; controllers and scheduler, which
take longer to import (numpy above all), are imported in a thread and join shortly after.
"""

from __future__ import annotations

import asyncio
import contextlib
import gc
import importlib
import os
import random
import secrets
import shutil
import signal
import socket
import ssl
import sys
import tempfile
import traceback
from collections.abc import AsyncIterator, Awaitable, Callable
from functools import cache
from pathlib import Path
from typing import BinaryIO

import msgspec
import uvloop

from kubeloop.devcluster.server.apiserver import ApiServer
from kubeloop.devcluster.server.faults import SPARED_USER_AGENT
from kubeloop.devcluster.server.http import HttpServer
from kubeloop.devcluster.server.listener import listen, listening_socket
from kubeloop.devcluster.server.tls import create_certificate
from kubeloop.kube.clock import SystemClock
from kubeloop.kube.user_error import UserError
from kubeloop.process.control_plane.controller_table import CONTROLLERS
from kubeloop.process.endpoint.server import EndpointServer
from kubeloop.process.logs import configure_logging
from kubeloop.process.metrics.process_metrics import new_registry
from kubeloop.process.process_files import ProcessRecord, process_exists, process_file
from kubeloop.testing.assembly import run_api_server, run_control_plane
from kubeloop.testing.cluster_options import ClusterOptions
from kubeloop.testing.host.messages import ClusterAddress, Done, Ended, Failed, Keep, Request, Response, Start, Stop

DIRECTORY_PREFIX = "kubeloop-testing-"
_PARENT_POLL_SECONDS = 0.5
_MAX_LINE_BYTES = 4 << 20
_CONTROL_PLANE = (
    "kubeloop.process.control_plane.control_plane",
    "kubeloop.process.endpoint.server",
    "kubeloop.process.endpoint.process_pages",
)
_SWITCH_SECONDS = 0.0005  # longest time that importing blocks other threads


def main() -> None:
    """Run until stdin ends. Argument: the parent's process id."""
    responses = os.fdopen(os.dup(1), "wb", buffering=0)
    os.dup2(2, 1)  # output of plugins must not mix with responses
    os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")  # as in kubeloop.__main__
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C stops the tests, which then stop this process in order
    configure_logging("error")  # controllers log many warnings for namespaces that are being deleted
    uvloop.run(Host(responses, parent=int(sys.argv[1])).run())


def _import_control_plane() -> None:
    """Import the control plane, and exclude all existing objects from garbage collection."""
    usual_seconds = sys.getswitchinterval()
    sys.setswitchinterval(_SWITCH_SECONDS)
    try:
        for name in _CONTROL_PLANE:
            importlib.import_module(name)
        from kubeloop.process.control_plane.control_plane import import_components, initial_components

        import_components(initial_components(frozenset(CONTROLLERS), development=True))
    finally:
        sys.setswitchinterval(usual_seconds)
    gc.freeze()
    gc.enable()


class HostedCluster:
    """State of a cluster of this process."""

    def __init__(self) -> None:
        self.stop_requested = asyncio.Event()
        self.stopped = asyncio.Event()
        self.address: ClusterAddress | None = None
        self.is_kept = False


class Host:
    """Handles requests on stdin. `parent`: the process whose exit ends this one."""

    def __init__(self, responses: BinaryIO, *, parent: int) -> None:
        self._responses = responses
        self._parent = parent
        self._clock = SystemClock()
        certificate = create_certificate(self._clock)
        self._authority, self._tls = certificate.authority, cache(certificate.context)
        self._imported = asyncio.Event()
        self._clusters: dict[int, HostedCluster] = {}
        self._started = 0
        self._encode = msgspec.json.Encoder().encode

    async def run(self) -> None:
        """Run until stdin ends or SIGTERM arrives, and all clusters are stopped. Kept clusters run until SIGTERM."""
        loop = asyncio.get_running_loop()
        terminated = asyncio.Event()
        loop.add_signal_handler(signal.SIGTERM, terminated.set)
        async with asyncio.TaskGroup() as group:
            group.create_task(self._import(), name="imports")
            tasks = [
                group.create_task(self._serve(group), name="requests"),
                group.create_task(self._wait_for_parent_exit(), name="parent"),
                group.create_task(terminated.wait(), name="terminated"),
            ]
            await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
            if not terminated.is_set() and any(hosted.is_kept for hosted in self._clusters.values()):
                for hosted in self._clusters.values():
                    if not hosted.is_kept:
                        hosted.stop_requested.set()
                await terminated.wait()
            for task in tasks:
                task.cancel()
            for hosted in self._clusters.values():
                hosted.stop_requested.set()

    async def _import(self) -> None:
        """Import the control plane in a thread, while API servers already serve."""
        await asyncio.to_thread(_import_control_plane)
        self._imported.set()
        _remove_stale_directories()

    async def _wait_for_parent_exit(self) -> None:
        """Covers the case that stdin does not end: another child of the parent may hold its other end."""
        while os.getppid() == self._parent:
            await asyncio.sleep(_PARENT_POLL_SECONDS)

    async def _serve(self, group: asyncio.TaskGroup) -> None:
        reader = asyncio.StreamReader(limit=_MAX_LINE_BYTES)
        await asyncio.get_running_loop().connect_read_pipe(lambda: asyncio.StreamReaderProtocol(reader), sys.stdin)
        decoder: msgspec.json.Decoder[Request] = msgspec.json.Decoder(Request)
        while line := await reader.readline():
            match decoder.decode(line):
                case Start() as start:
                    self._started += 1
                    self._clusters[self._started] = HostedCluster()
                    group.create_task(self._run_cluster(self._started, start), name=f"cluster/{self._started}")
                case Stop(id, number):
                    group.create_task(self._stop(id, number), name=f"stop/{number}")
                case Keep(id, number):
                    group.create_task(self._keep(id, number), name=f"keep/{number}")

    def _send(self, response: Response) -> None:
        with contextlib.suppress(BrokenPipeError):  # the test process is gone: stdin is about to end
            self._responses.write(self._encode(response) + b"\n")

    async def _stop(self, id: int, number: int) -> None:
        hosted = self._clusters.get(number)
        if hosted is not None:
            hosted.stop_requested.set()
            await hosted.stopped.wait()
        self._send(Done(id))

    async def _keep(self, id: int, number: int) -> None:
        hosted = self._clusters.get(number)
        if hosted is None or hosted.address is None or hosted.stop_requested.is_set():
            self._send(Failed(id, f"cluster {number} is not running", ""))
            return
        hosted.is_kept = True
        address = hosted.address
        process = ProcessRecord(
            address.pid, address.endpoint, address.server, (address.kubeconfig,), self._clock.time_ns()
        )
        with process_file(process):  # kubeloop trace and explain find it
            self._send(Done(id))
            await hosted.stopped.wait()

    async def _run_cluster(self, number: int, start: Start) -> None:
        hosted = self._clusters[number]
        early = not self._imported.is_set() and start.options.has_default_control_plane
        try:
            async with self._cluster(number, start, early=early) as address:
                hosted.address = address
                self._send(Done(start.id, address))
                await hosted.stop_requested.wait()
        except Exception as error:  # a crash of one cluster, such as in a plugin, must not end the others
            problem = _first(error)
            if hosted.address is None:
                hint = problem.hint if isinstance(problem, UserError) else ""
                text = str(problem) if hint else f"{type(problem).__name__}: {problem}"
                self._send(Failed(start.id, text, hint))
            else:
                self._send(Ended(number, f"{type(problem).__name__}: {problem}"))
            if not isinstance(problem, UserError):
                traceback.print_exception(error, file=sys.stderr)
        finally:
            hosted.stopped.set()
            del self._clusters[number]

    @contextlib.asynccontextmanager
    async def _cluster(self, number: int, start: Start, *, early: bool) -> AsyncIterator[ClusterAddress]:
        """Run a cluster. early: yield its address when the API server serves, else when the control plane runs, too."""
        _extend_import_path(start.import_path)
        seed = start.options.seed
        rng = random.Random() if seed is None else random.Random(seed)
        token = secrets.token_urlsafe(32)
        directory = Path(tempfile.mkdtemp(prefix=f"{DIRECTORY_PREFIX}{os.getpid()}-"))
        pages = listening_socket(0)  # requests before the endpoint serves wait in the backlog
        try:
            async with (
                _listener(self._tls) as listener,
                run_api_server(
                    start.options,
                    clock=self._clock,
                    rng=rng,
                    token=token,
                    authority=self._authority,
                ) as api,
            ):
                port = await listener(HttpServer(api, compress=api.compresses_responses))
                address = ClusterAddress(
                    cluster=number,
                    pid=os.getpid(),
                    server=f"https://127.0.0.1:{port}",
                    plain_server=f"http://127.0.0.1:{port}",
                    token=token,
                    endpoint=f"http://127.0.0.1:{pages.getsockname()[1]}",
                    directory=str(directory),
                )
                address.certificate.write_text(self._authority.certificate_pem)
                address.write_kubeconfig_of("default")
                async with asyncio.TaskGroup() as group:
                    ready = asyncio.Event()
                    control_task = group.create_task(self._control(api, start.options, rng, token, pages, ready))
                    if not early:
                        await ready.wait()
                    yield address
                    control_task.cancel()
        finally:
            pages.close()
            shutil.rmtree(directory, ignore_errors=True)

    async def _control(
        self,
        api: ApiServer,
        options: ClusterOptions,
        rng: random.Random,
        token: str,
        pages: socket.socket,
        ready: asyncio.Event,
    ) -> None:
        """Run controllers, scheduler and their endpoint until cancelled; set `ready` when they run. Raises UserError
        for invalid options."""
        await self._imported.wait()
        from kubeloop.process.endpoint.process_pages import add_process_pages

        registry = new_registry()
        endpoint = EndpointServer(registry, clock=self._clock)
        async with run_control_plane(
            api,
            options.settings(),
            clock=self._clock,
            rng=rng,
            token=token,
            registry=registry,
            user_agent=SPARED_USER_AGENT,  # faults affect the programs under test, not the cluster's controllers
        ) as plane:
            add_process_pages(endpoint, plane)
            async with endpoint.serving_on(pages):
                ready.set()
                await asyncio.Event().wait()  # until cancelled


@contextlib.asynccontextmanager
async def _listener(tls: Callable[[], ssl.SSLContext]) -> AsyncIterator[Callable[[HttpServer], Awaitable[int]]]:
    """Yield a function that serves on a new loopback port until the end of the context, and returns the port.

    Enter it before the API server runs: the server's end also ends watches, which open connections wait for.
    """
    listener_socket = listening_socket(0)
    async with contextlib.AsyncExitStack() as stack:
        stack.callback(listener_socket.close)
        group = asyncio.TaskGroup()

        async def serve(server: HttpServer) -> int:
            await stack.enter_async_context(server)
            listen_tasks.append(group.create_task(listen(listener_socket, server, tls), name="listener"))
            return int(listener_socket.getsockname()[1])

        listen_tasks: list[asyncio.Task[None]] = []
        async with group:
            yield serve
            for task in listen_tasks:
                task.cancel()


def _extend_import_path(test_path: list[str]) -> None:
    """Put the test's import path, in its order, before entries that only this process has."""
    own_path = [entry for entry in sys.path if entry not in test_path]
    sys.path[:] = [*test_path, *own_path]


def _first(error: BaseException) -> BaseException:
    while isinstance(error, BaseExceptionGroup):
        error = error.exceptions[0]
    return error


def _remove_stale_directories() -> None:
    """Remove directories of processes that were killed together with their parent."""
    for path in Path(tempfile.gettempdir()).glob(f"{DIRECTORY_PREFIX}*"):
        pid = path.name.removeprefix(DIRECTORY_PREFIX).partition("-")[0]
        with contextlib.suppress(OSError):
            if pid.isdecimal() and path.stat().st_uid == os.getuid() and not process_exists(int(pid)):
                shutil.rmtree(path, ignore_errors=True)
