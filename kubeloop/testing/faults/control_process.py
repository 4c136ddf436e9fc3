"""One process with a control plane: kubeloop run, without its command line."""

from __future__ import annotations

import asyncio
import os
import random
import shutil
from collections.abc import Callable, Mapping
from datetime import datetime, timedelta
from pathlib import Path

from kubeloop.kube.client.api_client import ApiClient
from kubeloop.process.control_plane.control_plane import ControlPlane, Settings, settings_within_lease
from kubeloop.process.control_plane.leader_election import ElectionSettings, LeaderElection, LeaseLost
from kubeloop.process.metrics.metrics_registry import MetricsRegistry
from kubeloop.testing.faults.network import FaultyConnection, FaultyNetwork
from kubeloop.testing.in_memory import connect_in_memory
from kubeloop.testing.virtual_time import VirtualClock
from kubeloop.tracing.export.exporters import TraceExporter
from kubeloop.tracing.journal.trace_journal import TraceJournal


class ProcessClock:
    """Clock of a process, which may be wrong."""

    def __init__(self, clock: VirtualClock) -> None:
        self._clock = clock
        self._offset_ns = 0

    @property
    def offset_seconds(self) -> float:
        """By how much the clock is ahead."""
        return self._offset_ns / 1e9

    @offset_seconds.setter
    def offset_seconds(self, seconds: float) -> None:
        self._offset_ns = round(seconds * 1e9)

    def now(self) -> datetime:
        return self._clock.now() + timedelta(seconds=self.offset_seconds)

    def time_ns(self) -> int:
        return self._clock.time_ns() + self._offset_ns


class ControlProcess:
    """A process, from its start to its end.

    networks: to the other clusters, by name. elects: it takes part in an election. journal: folder, None without.
    exporter: of its traces, None to drop them. on_kill: called when it is killed.
    """

    def __init__(
        self,
        network: FaultyNetwork,
        settings: Settings,
        *,
        clock: ProcessClock,
        rng: random.Random,
        journal: Path | None = None,
        elects: bool = False,
        exporter: TraceExporter | None = None,
        networks: Mapping[str, FaultyNetwork] | None = None,
        on_kill: Callable[[], object] = lambda: None,
    ) -> None:
        self.connection = FaultyConnection(network, self.kill)
        others = {name: FaultyConnection(other, self.kill) for name, other in (networks or {}).items()}
        self.connections = (self.connection, *others.values())
        self._on_kill = on_kill
        self._journal = journal
        self._task: asyncio.Task[None] | None = None
        self.killed = asyncio.Event()
        client = ApiClient(self.connection, clock=clock, rng=rng)
        if elects:
            settings = settings_within_lease(settings, ElectionSettings())
        self.plane = ControlPlane(
            client,
            settings,
            clock=clock,
            rng=rng,
            registry=MetricsRegistry(),
            exporter=exporter,
            open_journal=(lambda: TraceJournal(journal, "memory://")) if journal is not None else None,
            connect=connect_in_memory(others),
        )
        self._election = None
        self.identity = self.connection.identity
        if elects:
            election = ElectionSettings(identity=self.identity)
            self._election = LeaderElection(client, election, clock=clock, rng=rng)

    @property
    def is_leading(self) -> bool:
        return (
            self._election is not None and self._election._holder() == self.identity and not self.connection.has_ended
        )

    async def run(self) -> None:
        """Run until killed or until the lease is lost. Raises what ends the control plane otherwise."""
        self._task = asyncio.current_task()
        elect: Callable[..., object] | None = self._election.run_while_leading if self._election is not None else None
        try:
            await self.plane.run(elect)  # type: ignore[arg-type]
        except* LeaseLost:
            pass

    def kill(self) -> None:
        """End the process at once: none of its requests, traces or journal entries gets out any more."""
        if self.killed.is_set() or (self._task is not None and self._task.done()):
            return
        self.killed.set()
        for connection in self.connections:
            connection.end()
        self._on_kill()
        if self._journal is not None:
            self._journal = _copy_of_journal(self._journal)
        if self._task is not None:
            self._task.cancel()

    @property
    def journal(self) -> Path | None:
        """Folder of the journal for the next process."""
        return self._journal

    def fill_disk(self) -> None:
        """Let all further writes of the journal fail."""
        journal = self.plane.tracing._journal
        if journal is not None and journal._descriptor >= 0:
            full = os.open("/dev/full", os.O_WRONLY)
            os.dup2(full, journal._descriptor)
            os.close(full)


def _copy_of_journal(folder: Path) -> Path:
    """Copy the files as they are: the killed process may still write to its own. Its number precedes the names."""
    number = int(folder.name) + 1
    copy = folder.parent / str(number)
    copy.mkdir()
    for path in folder.iterdir():
        shutil.copy(path, copy / f"{number}{path.name}")
    return copy
