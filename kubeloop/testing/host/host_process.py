"""The test's side of the `host` process: start it, send requests, end it."""

from __future__ import annotations

import asyncio
import contextlib
import os
import subprocess
import sys
from concurrent.futures import Future

import msgspec

from kubeloop.kube.user_error import UserError
from kubeloop.testing.cluster_options import ClusterOptions
from kubeloop.testing.host.launch import LaunchedHost, launch
from kubeloop.testing.host.messages import ClusterAddress, Done, Ended, Failed, Keep, Request, Response, Start, Stop
from kubeloop.testing.portal import Portal

_STOP_SECONDS = 5.0
_EXIT_SECONDS = 1.0  # from closed pipes to the exit
_START_SECONDS = 60.0
_LOG_TAIL_BYTES = 8192


class ClusterEnded(RuntimeError):
    """A cluster, or the process of all clusters, ended before its test; the text contains the reason."""


class HostProcess:
    """A process that runs clusters. The constructor returns at once; requests wait until the process is ready.

    `portal` runs its coroutines. Use it from one process only, not from a fork. launched: a process that has already
    been started; this object then owns it.
    """

    def __init__(self, launched: LaunchedHost | None = None) -> None:
        launched = launched or launch()
        self.portal = Portal()
        self._process, self._log = launched.process, launched.log
        self._ids = 0
        self._pending: dict[int, asyncio.Future[ClusterAddress | None]] = {}
        self._ended: dict[int, str] = {}
        self._reader_task: Future[None] | None = None
        self._owner = os.getpid()

    @property
    def pid(self) -> int:
        return self._process.pid

    @property
    def is_running(self) -> bool:
        return self._process.poll() is None

    async def start(self, options: ClusterOptions) -> ClusterAddress:
        """Start a cluster. Raises UserError for options that it rejects, ClusterEnded if it crashes during the
        start."""
        address = await self._request(Start(self._next_id(), options, [entry or os.getcwd() for entry in sys.path]))
        assert address is not None
        return address

    async def stop(self, cluster: int) -> None:
        """Stop a cluster: close its ports and remove its files. No-op if it has already ended."""
        if self.is_running:
            await self._request(Stop(self._next_id(), cluster))

    async def keep(self, cluster: int) -> None:
        """Let a cluster run on after this process ends."""
        await self._request(Keep(self._next_id(), cluster))

    def why_ended(self, cluster: int) -> str | None:
        """Return None while the cluster runs, else why it ended."""
        if cluster in self._ended:
            return f"the cluster ended: {self._ended[cluster]}"
        if not self.is_running:
            return f"the host process ended (exit code {self._process.poll()}): {self.log_tail()}"
        return None

    def log_tail(self, since: int = 0) -> str:
        """Return the end of its stderr after the first `since` bytes: log records, plugins' output."""
        size = self.log_size()
        start = max(since, size - _LOG_TAIL_BYTES)
        return os.pread(self._log.fileno(), size - start, start).decode(errors="replace").strip()

    def log_size(self) -> int:
        """Return the number of bytes written to stderr."""
        return os.fstat(self._log.fileno()).st_size

    def close(self, *, keep: bool = False) -> None:
        """End the process and all its clusters; with `keep`, it continues with the kept clusters. Idempotent."""
        if os.getpid() != self._owner:
            return
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        with contextlib.suppress(BrokenPipeError):  # a request that the ended process has not read
            self._process.stdin.close()
        if keep:
            self._process.returncode = self._process.poll() or 0  # prevents a warning of subprocess: it runs on purpose
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

    async def _request(self, request: Request) -> ClusterAddress | None:
        loop = asyncio.get_running_loop()
        if self._reader_task is None:
            self._reader_task = self.portal.start(self._read())
        assert self._process.stdin is not None
        response: asyncio.Future[ClusterAddress | None]
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
            raise ClusterEnded(f"no response within {_START_SECONDS:g} s from the host process") from None
        finally:
            del self._pending[request.id]

    async def _read(self) -> None:
        """Dispatch responses until the end of the stream."""
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
        """Return the error for a process that has closed its pipes. It is exiting, so this waits for its exit code."""
        with contextlib.suppress(subprocess.TimeoutExpired):
            self._process.wait(_EXIT_SECONDS)
        return ClusterEnded(f"the host process has ended: {self.log_tail() or 'no output on stderr'}")
