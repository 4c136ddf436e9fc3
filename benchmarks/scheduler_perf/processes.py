"""Processes of a run: `kubeloop run`, and a development cluster unless an API server is given."""

from __future__ import annotations

import asyncio
import contextlib
import os
import secrets
import sys
from collections.abc import AsyncIterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import aiohttp
import yaml

from kubeloop.kube.feature_gates import GATES, FeatureGates
from kubeloop.process.development_cluster.apiserver_command import api_server_process
from kubeloop.process.development_cluster.apiserver_process import starting_api_server
from scheduler_perf.figures import Metrics

_STOP_SECONDS = 20.0


class KubeloopEnded(Exception):
    """The process under test ended during the run."""


def supported_gates(gates: Mapping[str, bool]) -> FeatureGates:
    """Return the feature gates of a workload that kubeloop can set: workloads also set locked ones."""
    return FeatureGates(
        {
            name: value
            for name, value in gates.items()
            if name in GATES and (value == GATES[name].default or GATES[name].obeyed)
        }
    )


@contextlib.asynccontextmanager
async def development_cluster(folder: Path, gates: FeatureGates, *, tls: bool) -> AsyncIterator[Path]:
    """Run a development cluster without nodes in a separate process; yield its kubeconfig."""
    path = folder / "kubeconfig"
    arguments = ["--nodes=0", f"--kubeconfig={path}", "--start-delay=0", "--start-spread=0"]
    arguments.append(f"--feature-gates={gates.text()}")
    with api_server_process(arguments, token=secrets.token_urlsafe(16)) as process:
        async with starting_api_server(process) as starting:
            cluster = await starting.ready()
            if not tls:
                config = yaml.safe_load(path.read_text())
                config["clusters"][0]["cluster"] = {"server": cluster.ready.plain_server}
                path.write_text(yaml.safe_dump(config))
            yield path


@dataclass(frozen=True)
class Kubeloop:
    """A running `kubeloop run`."""

    pid: int
    url: str
    session: aiohttp.ClientSession

    async def metrics(self) -> Metrics:
        async with self.session.get(f"{self.url}/metrics") as response:
            return Metrics.parse(await response.text())


@contextlib.asynccontextmanager
async def kubeloop_scheduler(
    kubeconfig: Path,
    gates: FeatureGates,
    *,
    config: Path | None,
    tracing: bool,
    wrap: Sequence[str],
    controllers: str = "scheduler",
) -> AsyncIterator[Kubeloop]:
    """Run `kubeloop run` with these controllers; `wrap` is a command to run it with."""
    environment = {**os.environ, **({} if tracing else {"OTEL_TRACES_SAMPLER": "always_off"})}
    arguments = [
        f"--kubeconfig={kubeconfig}",
        f"--controllers={controllers}",
        *([f"--config={config}"] if config else []),
    ]
    arguments.append(f"--feature-gates={gates.text()}")
    process = await asyncio.create_subprocess_exec(
        *wrap, sys.executable, "-m", "kubeloop", "run", *arguments, env=environment, stderr=asyncio.subprocess.PIPE
    )
    assert process.stderr is not None
    try:
        url = await _endpoint(process.stderr)
        async with aiohttp.ClientSession() as session, asyncio.TaskGroup() as group:
            passing_on = group.create_task(_forward_stderr(process))
            yield Kubeloop(process.pid, url, session)
            passing_on.cancel()
    finally:
        await _end(process)


async def _end(process: asyncio.subprocess.Process) -> None:
    assert process.stderr is not None
    with contextlib.suppress(ProcessLookupError):
        process.terminate()
    try:
        async with asyncio.timeout(_STOP_SECONDS):
            sys.stderr.buffer.write(await process.stderr.read())
            await process.wait()
    except TimeoutError:
        process.kill()
        await process.wait()


async def _endpoint(lines: asyncio.StreamReader) -> str:
    while line := await lines.readline():
        if line.startswith(b"endpoint "):
            return line.split()[1].decode()
        sys.stderr.buffer.write(line)
    raise SystemExit("kubeloop did not start")


async def _forward_stderr(process: asyncio.subprocess.Process) -> None:
    """Forward kubeloop's stderr, since a full pipe would block it. Raises KubeloopEnded when it ends."""
    assert process.stderr is not None
    while line := await process.stderr.readline():
        sys.stderr.buffer.write(line)
        sys.stderr.buffer.flush()
    raise KubeloopEnded(f"kubeloop ended with exit code {await process.wait()}")
