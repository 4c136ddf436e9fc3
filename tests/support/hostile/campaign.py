"""Send hostile requests to running servers, and report what servers must not do: 5xx, lost requests, growth."""

from __future__ import annotations

import asyncio
import heapq
import os
import random
import re
import resource
from collections import Counter
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

from support.comparison.expected_errors import EXPECTED_ERRORS
from support.hostile.requests import API_PATHS, ENDPOINT_PATHS, HostileRequest, Target, hostile_request
from support.processes.cli_processes import Kubeloop, KubeloopProcess

_STATUS = re.compile(rb"HTTP/1\.[01] (\d{3}) ")
_QUIET_SECONDS = 0.01  # after a response, without another one
_SILENCE_SECONDS = 0.05  # without any response: the request is incomplete
_RESPONSE_SECONDS = 60.0  # for a complete request
_CONCURRENT = 8
_MEASURED_REQUESTS = 2_000  # per server; with fewer, caches are not full after the first quarter
_RELEASE_SECONDS = 30
_SPARE_MIB = 16
_MAX_ADDRESS_SPACE_BYTES = 4 << 30
_REPEATED = 20  # requests whose CPU time is measured alone
_MAX_CPU_SECONDS = 2.0  # for one request; the event loop is blocked meanwhile


@dataclass(frozen=True)
class Server:
    """A running server under attack."""

    name: str
    port: int
    process: KubeloopProcess
    target: Target

    @property
    def pid(self) -> int:
        return self.process.process.pid


@dataclass
class Report:
    """statuses: numbers of responses by kind of request and class. problems: distinct ones, with an example.

    costs: a heap of the costliest requests: CPU seconds at most, number of the request. notes: memory and CPU time.
    """

    statuses: Counter[tuple[str, str]] = field(default_factory=Counter)
    problems: dict[str, bytes] = field(default_factory=dict)
    costs: list[tuple[float, int]] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)

    @property
    def answered(self) -> int:
        return sum(count for (_, name), count in self.statuses.items() if name.endswith("xx"))

    def text(self) -> str:
        """Return a Markdown table of the responses, the notes and the problems."""
        classes = ("1xx", "2xx", "3xx", "4xx", "expected 5xx", "5xx", "closed", "waiting")
        kinds = sorted({kind for kind, _ in self.statuses})
        rows = [[kind, *[str(self.statuses[kind, name]) for name in classes]] for kind in kinds]
        rows = [["request", *classes], ["---"] * 9, *rows]
        problems = [f"problem: {problem}\n  {example!r}" for problem, example in self.problems.items()]
        return "\n".join(["| " + " | ".join(row) + " |" for row in rows] + self.notes + problems)


async def run_campaign(folder: Path, seed: int, requests: int, connections: int) -> Report:
    """Run an API server and a control plane, and send half of the requests to each."""
    kubeloop, report = Kubeloop(folder), Report()
    kubeconfig = folder / "kubeconfig"
    token = "for-a-test"
    with kubeloop.running(
        "apiserver", "--nodes=2", f"--kubeconfig={kubeconfig}", "--compaction-interval=1", KUBELOOP_TOKEN=token
    ) as apiserver:
        port = int((await asyncio.to_thread(apiserver.wait_for, r"https://127\.0\.0\.1:(\d+)"))[1])
        with kubeloop.running("run", f"--kubeconfig={kubeconfig}", "--controllers=*") as control_plane:
            endpoint = int((await asyncio.to_thread(control_plane.wait_for, r"endpoint http://127\.0\.0\.1:(\d+)"))[1])
            for server in (
                Server("API server", port, apiserver, Target(API_PATHS, token)),
                Server("endpoint", endpoint, control_plane, Target(ENDPOINT_PATHS, "")),
            ):
                # a request that takes all memory must not take the machine's
                resource.prlimit(server.pid, resource.RLIMIT_AS, (_MAX_ADDRESS_SPACE_BYTES,) * 2)
                await _campaign_of(server, seed, requests // 2, connections, report)
            for server_process in (control_plane, apiserver):
                code = server_process.stop()
                if code or "Traceback" in "".join(server_process.lines):
                    report.problems[f"exit code {code}: {''.join(server_process.lines)[-4000:]}"] = b""
    return report


async def _campaign_of(server: Server, seed: int, requests: int, connections: int, report: Report) -> None:
    """Send a quarter of the requests and the idle connections, then all others and the connections again.

    The first part fills caches; the second must not need more memory. Each time, that of the connections is released.
    """
    memory_mib: list[int] = []
    slowest = 0.0
    for numbers in (range(requests // 4), range(requests // 4, requests)):
        await attack(server, seed, numbers, report)
        slowest = max(slowest, await measure_slowest(server, seed, report))
        memory_mib.append(resident_bytes(server.pid) >> 20)
        await idle_connections(server, connections)
        memory_mib.append(await released_memory(server, memory_mib[-1], report))
    _, before, _, after = memory_mib
    if requests >= _MEASURED_REQUESTS and after > before * 1.25 + _SPARE_MIB:
        report.problems[f"{server.name}: {after} MiB after all requests, {before} MiB after a quarter"] = b""
    memory = "{} MiB after {first} requests, {} MiB after {connections} idle connections, {} and {} MiB after all"
    memory = memory.format(*memory_mib, first=requests // 4, connections=connections)
    report.notes.append(f"{server.name}: {memory}; the costliest request takes {1000 * slowest:.0f} ms of CPU")


def request_number(number: int, seed: int, target: Target) -> HostileRequest:
    """Return a request by its number: reproducible alone."""
    return hostile_request(random.Random(f"{seed} {number}"), target)


async def attack(server: Server, seed: int, numbers: Sequence[int], report: Report) -> None:
    """Send requests by their numbers, a few at a time."""
    pending = iter(numbers)

    async def send_some() -> None:
        for number in pending:
            request = request_number(number, seed, server.target)
            before = cpu_seconds(server.pid)
            data = await exchange(server.port, request)
            heapq.heappushpop(report.costs, (cpu_seconds(server.pid) - before, number))
            _record(server, request, data, report)

    report.costs = [(0.0, number) for number in range(_REPEATED)]
    async with asyncio.TaskGroup() as group:
        for _ in range(_CONCURRENT):
            group.create_task(send_some())


async def measure_slowest(server: Server, seed: int, report: Report) -> float:
    """Send the costliest requests again, each alone; return the highest CPU time in seconds."""
    slowest = 0.0
    for _, number in report.costs:
        request = request_number(number, seed, server.target)
        before = cpu_seconds(server.pid)
        await exchange(server.port, request)
        seconds = cpu_seconds(server.pid) - before
        slowest = max(slowest, seconds)
        if seconds > _MAX_CPU_SECONDS:
            report.problems[f"{server.name}: {request.kind} {number} takes {seconds:.1f} s of CPU"] = request.data[:600]
    return slowest


async def exchange(port: int, request: HostileRequest) -> bytes | None:
    """Send a request; return what the server sends, b"" if it closes the connection, None if it waits for more."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    received = b""
    with suppress(ConnectionError):
        writer.write(request.data)
        if request.half_close:
            writer.write_eof()
        while True:
            silence_seconds = _RESPONSE_SECONDS if request.complete else _SILENCE_SECONDS
            seconds = _QUIET_SECONDS if received else silence_seconds
            try:
                data = await asyncio.wait_for(reader.read(1 << 16), seconds)
            except TimeoutError:
                writer.transport.abort()
                return received or None
            if not data:
                break
            received += data
    writer.transport.abort()
    return received


def _record(server: Server, request: HostileRequest, data: bytes | None, report: Report) -> None:
    kind = request.kind
    if not data:
        report.statuses[kind, "waiting" if data is None else "closed"] += 1
        if request.complete and data is None:
            report.problems.setdefault(f"{server.name}: {kind}: no response", request.data[:1500])
        return
    for status in map(int, _STATUS.findall(data)):
        name = f"{status // 100}xx"
        if status >= 500:
            if EXPECTED_ERRORS.search(data.decode("latin-1")):
                name = "expected 5xx"
            else:
                summary = re.sub(r"[0-9a-f]{6,}|\d+", "N", data.partition(b"\r\n\r\n")[2][:200].decode("latin-1"))
                report.problems.setdefault(f"{server.name}: {kind}: {status} {summary}", request.data[:1500])
        report.statuses[kind, name] += 1


# --- clients that do nothing ------------------------------------------------------------------------------------------


async def idle_connections(server: Server, count: int) -> None:
    """Open connections: idle, with half a head, with half a body, and half-closed. The server serves others meanwhile.

    Raises AssertionError otherwise.
    """
    starts = (
        b"",
        b"GET / HT",
        b"POST /api HTTP/1.1\r\nHost: a\r\nContent-Length: 9\r\n\r\n{",
        b"\x16\x03\x01\x02\x00\x01",
    )
    writers = []
    try:
        for number in range(count):
            _, writer = await asyncio.open_connection("127.0.0.1", server.port)
            writers.append(writer)
            writer.write(starts[number % len(starts)])
            if number % 5 == 0:
                writer.write_eof()
            if number % 100 == 0:
                assert await is_alive(server), f"{server.name} does not respond beside {number} connections"
        assert await is_alive(server), f"{server.name} does not respond beside {count} connections"
    finally:
        for writer in writers:
            writer.transport.abort()


async def released_memory(server: Server, usual_mib: int, report: Report) -> int:
    """Wait until the memory of a server is back at its level, and return it, in MiB."""
    for _ in range(_RELEASE_SECONDS):
        await asyncio.sleep(1)
        memory_mib = resident_bytes(server.pid) >> 20
        if memory_mib <= usual_mib + _SPARE_MIB:
            return memory_mib
    report.problems[f"{server.name}: {memory_mib} MiB remain of closed connections; before {usual_mib} MiB"] = b""
    return memory_mib


async def is_alive(server: Server) -> bool:
    request = HostileRequest(
        "alive", b"GET /healthz HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n", complete=True
    )
    return (await exchange(server.port, request) or b"").startswith(b"HTTP/1.1 200")


# --- the process ------------------------------------------------------------------------------------------------------


def cpu_seconds(pid: int) -> float:
    """Return the CPU time of all threads of a process."""
    tasks = Path(f"/proc/{pid}/task").glob("*/schedstat")
    total = 0
    for task in tasks:
        with suppress(FileNotFoundError, ProcessLookupError):  # a thread that has just ended
            total += int(task.read_text().split()[0])
    return total / 1e9


def resident_bytes(pid: int) -> int:
    return int(Path(f"/proc/{pid}/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")
