"""The process of a test's clusters (`host`), seen from the test: starting it, asking it, ending it."""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
from concurrent.futures import Future

import msgspec

from kubeloop.kube.errors import UserError
from kubeloop.testing.launch import LaunchedHost, launch
from kubeloop.testing.messages import Address, Done, Ended, Failed, Keep, Request, Response, Start, Stop
from kubeloop.testing.options import ClusterOptions
from kubeloop.testing.portal import Portal

_STOP_SECONDS = 5.0
_START_SECONDS = 60.0
_LOG_TAIL_BYTES = 8192


class ClusterEnded(RuntimeError):
    """A cluster, or the process of all of them, is gone before its test was done with it; the text says why."""


class HostProcess:
    """A process that runs clusters. Made at once, ready some time later: whoever asks for a cluster waits for it.

    `portal` is where its coroutines run. Use from one process only: a fork of ours must not touch it. launched: the
    process, if it has been started already; it is ours from then on.
    """

    def __init__(self, launched: LaunchedHost | None = None) -> None:
        launched = launched or launch()
        self.portal = Portal()
        self._process, self._log = launched.process, launched.log
        self._ids = 0
        self._pending: dict[int, asyncio.Future[Address | None]] = {}
        self._ended: dict[int, str] = {}
        self._reader_task: Future[None] | None = None
        self._owner = os.getpid()

    @property
    def pid(self) -> int:
        return self._process.pid

    @property
    def is_running(self) -> bool:
        return self._process.poll() is None

    async def start(self, options: ClusterOptions) -> Address:
        """Start a cluster. Raises UserError for options that it refuses, ClusterEnded if it crashes on its way."""
        address = await self._request(Start(self._next_id(), options, [entry or os.getcwd() for entry in sys.path]))
        assert address is not None
        return address

    async def stop(self, cluster: int) -> None:
        """Stop it, with its ports closed and its files gone; nothing if it has ended already."""
        if self.is_running:
            await self._request(Stop(self._next_id(), cluster))

    async def keep(self, cluster: int) -> None:
        """Let it outlive us."""
        await self._request(Keep(self._next_id(), cluster))

    def why_ended(self, cluster: int) -> str | None:
        """None while it runs."""
        if cluster in self._ended:
            return f"the cluster ended: {self._ended[cluster]}"
        if not self.is_running:
            return f"the process of the clusters ended (exit code {self._process.poll()}): {self.log_tail()}"
        return None

    def log_tail(self, since: int = 0) -> str:
        """The end of what it has written to stderr after the first `since` bytes: log records, plugins' output."""
        size = self.log_size()
        start = max(since, size - _LOG_TAIL_BYTES)
        return os.pread(self._log.fileno(), size - start, start).decode(errors="replace").strip()

    def log_size(self) -> int:
        """Bytes written to stderr so far."""
        return os.fstat(self._log.fileno()).st_size

    def close(self, *, keep: bool = False) -> None:
        """End the process and all its clusters, except those it keeps: then it goes on without us. Idempotent."""
        if os.getpid() != self._owner:
            return
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        if not self._process.stdin.closed:
            self._process.stdin.close()
        if keep:
            self._process.returncode = self._process.poll() or 0  # subprocess would warn: it still runs, as wished
        else:
            try:
                self._process.wait(_STOP_SECONDS)
            except subprocess.TimeoutExpired:
                self._process.kill()
                self._process.wait()
        self.portal.close()
        self._process.stdout.close()
        self._log.close()

    def _next_id(self) -> int:
        self._ids += 1
        return self._ids

    async def _request(self, request: Request) -> Address | None:
        loop = asyncio.get_running_loop()
        if self._reader_task is None:
            self._reader_task = self.portal.start(self._read())
        assert self._process.stdin is not None
        response: asyncio.Future[Address | None]
        response = self._pending[request.id] = loop.create_future()
        try:
            try:
                self._process.stdin.write(msgspec.json.encode(request) + b"\n")
                self._process.stdin.flush()
            except (BrokenPipeError, ValueError):
                raise self._ended_error() from None
            if self._reader_task.done():
                raise self._ended_error()
            async with asyncio.timeout(_START_SECONDS):
                return await response
        except TimeoutError:
            raise ClusterEnded(f"no answer within {_START_SECONDS:g} s from the process of the clusters") from None
        finally:
            del self._pending[request.id]

    async def _read(self) -> None:
        """Hand out answers until there are no more."""
        reader = asyncio.StreamReader(limit=4 << 20)
        assert self._process.stdout is not None
        pipe = os.fdopen(os.dup(self._process.stdout.fileno()), "rb", buffering=0)
        transport, _ = await asyncio.get_running_loop().connect_read_pipe(
            lambda: asyncio.StreamReaderProtocol(reader), pipe
        )
        decoder: msgspec.json.Decoder[Response] = msgspec.json.Decoder(Response)
        try:
            while line := await reader.readline():
                match decoder.decode(line):
                    case Done(id, address) if id in self._pending:
                        self._pending[id].set_result(address)
                    case Failed(id, problem, hint) if id in self._pending:
                        error = UserError(problem, hint=hint) if hint else ClusterEnded(problem)
                        self._pending[id].set_exception(error)
                    case Ended(cluster, problem):
                        self._ended[cluster] = problem
        finally:
            transport.close()
            for response in self._pending.values():
                if not response.done():
                    response.set_exception(self._ended_error())

    def _ended_error(self) -> ClusterEnded:
        return ClusterEnded(f"the process of the clusters is gone: {self.log_tail() or 'it has not said why'}")
