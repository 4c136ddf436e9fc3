"""Processes of a run, from start to end, and the faults that they meet."""

from __future__ import annotations

import asyncio
import contextlib
import random
from collections.abc import AsyncIterator, Iterable
from pathlib import Path

from kubeloop.kube.objects.resources import LEASES
from kubeloop.process.control_plane.control_plane import Settings
from kubeloop.process.control_plane.leader_election import ElectionSettings
from kubeloop.testing.faults.cluster import RecordedCluster, first_error
from kubeloop.testing.faults.control_process import ControlProcess, ProcessClock
from kubeloop.testing.faults.fault_plan import FaultPlan, PlannedFault
from kubeloop.testing.faults.network import FaultyNetwork
from kubeloop.testing.faults.requests import SentRequest

RESTART_SECONDS = 1.0
_ELECTION = ElectionSettings()


class FaultRun:
    """One run of control planes with a plan of faults; subclasses add users and checks.

    processes: all that have started, in order. networks: to the cluster of the control planes, and to other clusters.
    """

    def __init__(
        self,
        cluster: RecordedCluster,
        plan: FaultPlan,
        settings: Settings,
        rng: random.Random,
        other_clusters: Iterable[RecordedCluster] = (),
    ) -> None:
        self.cluster = cluster
        self.plan = plan
        self.settings = settings
        self.rng = rng
        self.network = FaultyNetwork(cluster, plan, random.Random(rng.random()))
        others = [FaultyNetwork(other, plan, random.Random(rng.random()), self.network) for other in other_clusters]
        self.networks = (self.network, *others)
        for network in self.networks:
            network.on_send = self._check_leader
        self.clock = ProcessClock(cluster.clock)
        self.processes: list[ControlProcess] = []
        self._tasks: list[asyncio.Task[None]] = []

    @contextlib.asynccontextmanager
    async def running_processes(self, journals: Path | None = None) -> AsyncIterator[None]:
        """Run one process, or two that take turns by leader election, for the length of the context.

        Timed faults are scheduled. journals: folder for the journals of traces, None without.
        """
        loop = asyncio.get_running_loop()
        for fault in self.plan.faults:
            if not fault.write:
                loop.call_at(fault.at, self.begin, fault)
                if fault.seconds:
                    loop.call_at(fault.at + fault.seconds, self.end, fault)
        elects = bool(self.plan.of_kind("freeze-leader"))
        keepers = []
        for number in range(2 if elects else 1):
            journal = None
            if journals is not None:
                journal = journals / str(number * 1000)
                journal.mkdir()
            keepers.append(asyncio.ensure_future(self._keep_running(journal, elects)))
        try:
            yield
        finally:
            for keeper in keepers:
                keeper.cancel()
            for process in self.processes:
                process.kill()
            await asyncio.gather(*keepers, *self._tasks, return_exceptions=True)

    def new_process(self, rng: random.Random, journal: Path | None, elects: bool) -> ControlProcess:
        return ControlProcess(
            self.network,
            self.settings,
            clock=self.clock,
            rng=rng,
            journal=journal,
            elects=elects,
            networks={network.cluster.name: network for network in self.networks[1:]},
        )

    async def _keep_running(self, journal: Path | None, elects: bool) -> None:
        """Run a process, and the next one after its end."""
        while True:
            process = self.new_process(random.Random(self.rng.random()), journal, elects)
            self.processes.append(process)
            self.cluster.tell(f"{process.identity} starts")
            task = asyncio.ensure_future(process.run())
            self._tasks.append(task)
            killed = asyncio.ensure_future(process.killed.wait())  # its task may take a while to notice that
            await asyncio.wait({task, killed}, return_when=asyncio.FIRST_COMPLETED)
            if not killed.done() and not task.cancelled() and (error := task.exception()) is not None:
                self.cluster.violate(f"{process.identity} failed: {first_error(error)!r}")
            killed.cancel()
            self.cluster.tell(f"{process.identity} has ended")
            journal = process.journal
            await asyncio.sleep(RESTART_SECONDS)

    def _check_leader(self, identity: str, request: SentRequest) -> None:
        """A process sends no write while another one holds the lease of their election."""
        lease = self.cluster.store.get(LEASES, _ELECTION.namespace, _ELECTION.name)
        holder = lease["spec"].get("holderIdentity") if lease is not None else ""
        if holder not in ("", None, identity):
            self.cluster.violate(f"{identity} sends {request.method} {request.path} while {holder} leads")

    def begin(self, fault: PlannedFault) -> None:
        self.cluster.tell(f"fault: {fault}")
        for network in self.networks:
            network.begin(fault)
        match fault.kind:
            case "crash-at":
                self.processes[-1].kill()
            case "clock":
                self.clock.offset_seconds += fault.share
            case "full-disk":
                self.processes[-1].fill_disk()
            case "freeze-leader":
                for candidate in self.processes:
                    if candidate.is_leading:
                        for connection in candidate.connections:
                            connection.freeze()
            case "replace-object" | "delete-object" | "touch-object":
                self.disturb(fault)

    def end(self, fault: PlannedFault) -> None:
        self.cluster.tell(f"end of {fault}")
        for network in self.networks:
            network.end(fault)
        if fault.kind == "freeze-leader":
            for process in self.processes:
                for connection in process.connections:
                    connection.release()

    def disturb(self, fault: PlannedFault) -> None:
        """Let a user delete, replace or change an object that a controller created."""
        raise NotImplementedError

    async def heal(self) -> None:
        """Wait until the timed faults are over, end all others, and wait until late requests have arrived."""
        await asyncio.sleep(max(0.0, self.plan.end - asyncio.get_running_loop().time()))
        for network in self.networks:
            network.heal()
        self.clock.offset_seconds = 0.0
        for network in self.networks:
            await network.drain()
        self.cluster.tell("all faults are over")
