"""One run: a cluster, the operator's processes, the steps of the scenario, and what is wrong in the end."""

from __future__ import annotations

import asyncio
import contextlib
import random
import secrets
import signal
import ssl
from base64 import b64encode
from collections import Counter
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

import msgspec
from cryptography import x509
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import Encoding
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

from kubeloop.devcluster.outgoing.service_addresses import Address, parse_addresses
from kubeloop.devcluster.server.apiserver import ApiServer
from kubeloop.devcluster.server.http import HttpServer
from kubeloop.devcluster.server.listener import listen, listening_socket
from kubeloop.devcluster.server.tls import ServerCertificate, create_certificate
from kubeloop.devcluster.storage.private_files import write_private_file
from kubeloop.devcluster.storage.store import Change
from kubeloop.kube.auth.authorization_header import AuthorizedTransport, StaticAuthorization
from kubeloop.kube.auth.certificate_authority import BACKDATE, Extension, key_usage, private_key_pem
from kubeloop.kube.client.api_client import ApiClient, PatchType
from kubeloop.kube.clock import SystemClock
from kubeloop.kube.errors import ApiError
from kubeloop.kube.objects.resources import CUSTOM_RESOURCE_DEFINITIONS, LEASES
from kubeloop.kube.user_error import UserError
from kubeloop.testing.assembly import run_api_server, run_control_plane
from kubeloop.testing.cluster_options import ClusterOptions
from kubeloop.testing.faults.state import StoredState, Variations
from kubeloop.testing.memory_transport import MemoryTransport
from kubeloop.testing.operations import Operations, WaitFailed, WaitTimeout
from kubeloop.testing.operator_faults.operator_api import (
    InstanceEndpoint,
    OperatorApi,
    OperatorWrite,
    WriteId,
    is_election_record,
)
from kubeloop.testing.operator_faults.outside import ports_and_servers
from kubeloop.testing.operator_faults.ports import Ports
from kubeloop.testing.operator_faults.process import Guard, OperatorProcess, log_tail
from kubeloop.testing.operator_faults.scenario import Scenario, ScenarioStep, apply_when_served

_POLL_SECONDS = 0.05
_RESTART_SECONDS, _MAX_RESTART_SECONDS = 0.1, 5.0
_START_SECONDS = 60.0  # until the first request of a process; also for what exists before it starts
_CRASH_LOOP = 5  # exits that no fault caused, each within _LEASE_SECONDS of the start
_LEASE_SECONDS = 10.0  # client-go's renewDeadline: later exits may be of a leader that had no CPU to renew its lease
_READY_SECONDS = 15.0  # a process that has not opened all watches, or not led, by then does not do so
_POLLS_BETWEEN_LOOKS = 10
_RECENT_SECONDS = 1.0
_MAX_WINDOW_SECONDS = 5.0  # of a fault that lasts, for an operator that has started, but never rests meanwhile
_POLL_FACTOR = 1.5  # an operator that polls acts at the latest after its interval
_CALM_SECONDS = 0.25  # before the fault, a run that is in the expected state is stable after this time
_UNEASY_FACTOR = 10.0  # a process that always computes counts as idle after this many quiet times without a change
_BUSY_FACTOR = 5.0  # of the timeout, for an operator that starts or computes meanwhile
_TERMINATION_SECONDS = 30.0  # the default grace period of a pod
_SYSTEM = ("system:masters",)
_UNNOTICED = {"events", "events.events.k8s.io", "leases.coordination.k8s.io", "nodes"}


@dataclass(frozen=True)
class RunSettings:
    """Settings of all runs.

    command: arguments of the operator; {kubeconfig} and {port:NAME} are replaced. resolve: addresses of Services, as
    for `kubeloop up --resolve`, with {port:NAME}, too. user: of the operator's client certificate, "" for an
    administrator. quiet_seconds: the cluster is stable if nothing changes for this time, until
    the reference shows a shorter one. timeout_seconds: longest time to become stable. folder: private to the suite.
    """

    command: Sequence[str]
    scenario: Scenario
    cluster: ClusterOptions
    folder: Path
    guard: Guard
    resolve: Sequence[str] = ()
    user: str = ""
    quiet_seconds: float = 5.0
    timeout_seconds: float = 70.0
    logs: Path | None = None

    @cached_property
    def certificate(self) -> ServerCertificate:
        return create_certificate(SystemClock())

    @cached_property
    def tls(self) -> ssl.SSLContext:
        return self.certificate.context()

    @cached_property
    def operator_credentials(self) -> dict[str, str]:
        """Certificate and key of the operator's user, as a kubeconfig has them."""
        user, groups = self.user or "operator", _groups_of(self.user)
        key, now = ec.generate_private_key(ec.SECP256R1()), SystemClock().now()
        names = [(NameOID.ORGANIZATION_NAME, group) for group in groups]
        subject = x509.Name([x509.NameAttribute(oid, text) for oid, text in (*names, (NameOID.COMMON_NAME, user))])
        usages = [
            Extension(key_usage("digital_signature"), critical=True),
            Extension(x509.ExtendedKeyUsage([ExtendedKeyUsageOID.CLIENT_AUTH])),
        ]
        validity = (now - BACKDATE, self.certificate.authority.certificate.not_valid_after_utc)
        certificate = self.certificate.authority.sign(subject, key.public_key(), validity, usages)
        return {
            "client-certificate-data": _base64(certificate.public_bytes(Encoding.PEM)),
            "client-key-data": _base64(private_key_pem(key)),
        }

    def kubeconfig(self, port: int) -> bytes:
        """Return the kubeconfig of an instance of the operator."""
        authority = _base64(self.certificate.authority.certificate_pem.encode())
        cluster = {"server": f"https://127.0.0.1:{port}", "certificate-authority-data": authority}
        context = {"cluster": "kubeloop", "user": "operator", "namespace": "default"}
        document = {
            "apiVersion": "v1",
            "kind": "Config",
            "clusters": [{"name": "kubeloop", "cluster": cluster}],
            "users": [{"name": "operator", "user": self.operator_credentials}],
            "contexts": [{"name": "operator", "context": context}],
            "current-context": "operator",
        }
        return msgspec.json.encode(document)  # JSON is valid YAML


def _groups_of(user: str) -> Sequence[str]:
    if not user:
        return _SYSTEM
    kind, _, account = user.rpartition("system:serviceaccount:")
    namespace = account.partition(":")[0]
    is_account = user.startswith("system:serviceaccount:") and not kind
    return ("system:serviceaccounts", f"system:serviceaccounts:{namespace}") if is_account else ()


def _base64(content: bytes) -> str:
    return b64encode(content).decode()


@dataclass(frozen=True)
class ReferenceRuns:
    """Results of the reference, for the runs with faults.

    states: after each step. watched: resources that a started process watches. deletions: by kind, namespace and name.
    """

    states: Sequence[StoredState]
    variations: Variations
    quiet_seconds: float
    watched: frozenset[str]
    deletions: Mapping[tuple[str, str, str], int]


@dataclass
class RunResult:
    """problems: what is wrong. fired: the write that met the fault. notes: what a user should know of the operator.

    longest_gap_seconds: between two changes of a step, or two polls. ports: on which it listens, but for {port:NAME}.
    """

    writes: list[OperatorWrite]
    states: list[StoredState]
    problems: list[str] = field(default_factory=list)
    fired: OperatorWrite | None = None
    seconds: float = 0.0
    longest_gap_seconds: float = 0.0
    watched: frozenset[str] = frozenset()
    notes: list[str] = field(default_factory=list)
    ports: frozenset[int] = frozenset()
    has_lease: bool = False
    log: list[str] = field(default_factory=list)

    def deletions(self, variations: Variations) -> Counter[tuple[str, str, str]]:
        """Count the deletions of objects whose names are the same in all runs; pods are replaceable."""
        keys = [(write.kind, write.id.namespace, write.id.name) for write in self.writes if write.deleted]
        names = {key: variations.stable_name(*key) for key in keys}
        return Counter(key for key in keys if key[0] != "Pod" and names[key] == key[2] and "*" not in key[2])


class OperatorInstance:
    """One instance of the operator: a process, and those that replace it after it has ended.

    watched: resources that its present process watches. stays_down: it is not started again. exits: in close
    succession, without a fault.
    """

    def __init__(self, run: OperatorRun, name: str) -> None:
        self.is_dead = True
        self.watched: set[str] = set()
        self.has_requested = False
        self.is_paused = False
        self.process: OperatorProcess | None = None
        self.started_at = 0.0
        self.exits = 0
        self.stays_down = False
        self.port = 0
        self.ports = Ports(run.rng)
        self.log = run.logs / f"{run.name}-{name}.log"
        self._kubeconfig = run.folder / f"{name}.kubeconfig"
        self._run = run
        self._was_killed = False

    def kill(self) -> None:
        """Kill the process at once; no request of it is handled any more."""
        self.is_dead = self._was_killed = True
        if self.process is not None:
            self.process.signal(signal.SIGKILL)

    def pause(self) -> None:
        """Stop the process, and start another instance, which leads."""
        self.is_paused = self.stays_down = True
        assert self.process is not None
        self.process.signal(signal.SIGSTOP)
        self._run.start_instance("second")

    async def serve(self) -> None:
        """Run the processes, and the server of their requests, until cancelled or until it stays down."""
        run = self._run
        listener = listening_socket(0)
        self.port = listener.getsockname()[1]
        with contextlib.closing(listener), self.ports:
            async with HttpServer(InstanceEndpoint(run.operator_api, self)) as http, asyncio.TaskGroup() as group:
                task = group.create_task(listen(listener, http, lambda: run.settings.tls), name="operator-api")
                write_private_file(self._kubeconfig, run.settings.kubeconfig(self.port))
                try:
                    await self._keep_running()
                finally:
                    task.cancel()

    async def _keep_running(self) -> None:
        run, delay = self._run, _RESTART_SECONDS
        command = [
            self.ports.insert(argument.replace("{kubeconfig}", str(self._kubeconfig)))
            for argument in run.settings.command
        ]
        while not self.stays_down:
            if run.operator_api.holders:
                await run.release_leases()
            self._was_killed = False
            self.process = await OperatorProcess.start(command, self._kubeconfig, run.settings.guard, self.log)
            self.watched, self.has_requested = set(), False
            self.started_at, self.is_dead = asyncio.get_running_loop().time(), False
            try:
                code = await self.process.wait()
            finally:
                self.process.signal(signal.SIGKILL)
                await self.process.wait()
            if not self._was_killed and not self.stays_down:
                ran_seconds = asyncio.get_running_loop().time() - self.started_at
                self.exits = 1 if ran_seconds > _LEASE_SECONDS else self.exits + 1
                run.note_exit(self, code)
                delay = min(2 * delay, _MAX_RESTART_SECONDS)
            self.is_dead = True
            await asyncio.sleep(delay)

    def is_ready(self, watched: frozenset[str]) -> bool:
        """Return True if the process has opened its watches, and leads in the place of a paused one, or is not expected
        to; also while it is paused.
        """
        if self.is_paused or self.is_dead:
            return self.is_paused or self.stays_down
        is_late = asyncio.get_running_loop().time() > self.started_at + _READY_SECONDS
        leads = not self._run.operator_api.awaits_leader
        return self.has_requested and ((leads and self.watched >= watched) or is_late)

    def is_computing(self) -> bool:
        return not self.is_dead and self.process is not None and self.process.is_computing()


class OperatorRun:
    """A run with a fault at the write `trigger`, or one of the reference, if `fault` is "".

    expected: None for the first run of the reference.
    """

    def __init__(
        self,
        settings: RunSettings,
        name: str,
        expected: ReferenceRuns | None = None,
        *,
        fault: str = "",
        trigger: WriteId | None = None,
    ) -> None:
        self.settings = settings
        self.folder = settings.folder / name
        self.folder.mkdir()
        self.logs = self.folder if settings.logs is None else settings.logs
        self.name = name
        self.rng = random.Random()
        self._expected = expected
        self._quiet_seconds = settings.quiet_seconds if expected is None else expected.quiet_seconds
        self._fault = fault
        self._trigger = trigger
        self._instances: list[OperatorInstance] = []
        self._changes = 0
        self._subscribed: set[str] = set()
        self._lists_are_old = False
        self._last_state: StoredState | None = None
        self._addresses: dict[str, Address] = {}
        self._ports: set[int] = set()
        self.problems: list[str] = []
        self.notes: set[str] = set()

    # --- parts of the run --------------------------------------------------------------------------------------------

    def start_instance(self, name: str) -> OperatorInstance:
        instance = OperatorInstance(self, name)
        self._instances.append(instance)
        self._addresses.update(parse_addresses(map(instance.ports.insert, self.settings.resolve)))
        self._group.create_task(instance.serve(), name=f"operator/{name}")
        return instance

    async def release_leases(self) -> None:
        """Release the leases of instances that cannot renew them, as if they had expired."""
        for (namespace, name), (instance, holder) in [*self.operator_api.holders.items()]:
            if not (instance.is_dead or instance.is_paused):
                continue
            lease = self._api.store.get(LEASES, namespace, name)
            if lease is not None and lease["spec"].get("holderIdentity") == holder:
                body = {"spec": {"holderIdentity": "", "leaseDurationSeconds": 1}}
                await self._client.patch(LEASES, name, body, PatchType.MERGE, namespace)

    def note_exit(self, instance: OperatorInstance, code: int) -> None:
        """Handle an exit that no fault caused. Raises UserError without faults."""
        ended = f"exit code {code}" if code >= 0 else f"signal {signal.Signals(-code).name}"
        if not self._fault:
            raise UserError(
                f"the operator exited by itself ({ended}); {last_output(instance.log)}",
                hint="run the command by itself",
            )
        if instance.exits == _CRASH_LOOP:
            self.problems.append(f"the operator is in a crash loop: it exited {_CRASH_LOOP} times ({ended})")
            instance.stays_down = True

    # --- the run ---------------------------------------------------------------------------------------------------

    async def run(self) -> RunResult:
        """Run the scenario. Raises UserError if something is wrong without a fault."""
        loop = asyncio.get_running_loop()
        began = loop.time()
        settings, expected = self.settings, self._expected
        variations = Variations() if expected is None else expected.variations
        states: list[StoredState] = []
        watched: frozenset[str] = frozenset()
        async with self._cluster() as api:
            self.operator_api = OperatorApi(api, variations, self._fault, self._trigger)
            cluster = Operations(self._client, _no_page, "default")
            if settings.scenario.setup:
                await apply_when_served(cluster, settings.scenario.setup, _START_SECONDS)
            async with asyncio.TaskGroup() as self._group:
                operator = self.start_instance("operator")
                await self._wait_for_start(operator)
                await self._settle()
                self.operator_api.longest_gap_seconds = 0.0  # of the cluster's start
                watched = frozenset(operator.watched)
                steps = settings.scenario.steps
                for number, step in enumerate(steps):
                    await self._perform(step, cluster)
                    if self.problems:
                        break
                    follows = steps[number + 1] if number + 1 < len(steps) else None
                    await self._check(number, stays_blind=_is_unobserved(step, follows))
                    if self.problems:
                        break
                    states.append(self._state())
                if self._fault == "old-lists" and self.operator_api.fired_at is not None and not self.problems:
                    self._lists_are_old = True
                    self.operator_api.list_old()
                    operator.kill()
                    await self._check(len(steps) - 1)
                if not self._fault:
                    await self._end_in_order(operator)
                for instance in self._instances:
                    instance.stays_down = True
                    instance.kill()
        result = RunResult(
            self.operator_api.writes,
            states,
            self.problems,
            self.operator_api.fired_at if self._has_begun else None,
            loop.time() - began,
            max(self.operator_api.longest_gap_seconds, self.operator_api.longest_poll_seconds),
            watched,
            sorted(self.notes),
            frozenset(self._ports),
            bool(self.operator_api.holders),
            log_tail(operator.log),
        )
        if expected is not None and self._fault:
            for key, count in (result.deletions(variations) - Counter(expected.deletions)).items():
                kind, namespace, name = key
                times = "" if not expected.deletions.get(key) else f" {count} more times"
                title = f"{kind} {namespace}/{name}" if namespace else f"{kind} {name}"
                result.problems.append(f"{title} was deleted{times}, which does not happen without faults")
        return result

    @contextlib.asynccontextmanager
    async def _cluster(self) -> AsyncIterator[ApiServer]:
        rng, clock, token = self.rng, SystemClock(), secrets.token_urlsafe(32)
        options, authority = self.settings.cluster, self.settings.certificate.authority
        async with (
            run_api_server(
                options, clock=clock, rng=rng, token=token, authority=authority, addresses=self._addresses
            ) as api,
            run_control_plane(api, options.settings(), clock=clock, rng=rng, token=token),
        ):
            self._api = api
            authorization = StaticAuthorization(f"Bearer {token}")
            transport = AuthorizedTransport(MemoryTransport(api.handle), authorization)
            self._client = ApiClient(transport, clock=clock, rng=rng)
            yield api

    async def _wait_for_start(self, instance: OperatorInstance) -> None:
        loop, idle_polls = asyncio.get_running_loop(), 0
        latest = loop.time() + _BUSY_FACTOR * _START_SECONDS
        while not instance.has_requested:
            await asyncio.sleep(_POLL_SECONDS)
            idle_polls += not (instance.is_dead or instance.is_computing())
            if idle_polls * _POLL_SECONDS < _START_SECONDS and loop.time() < latest:
                continue
            problem = f"the operator sent no request to the API server within {_START_SECONDS:g} s"
            if self._fault:
                self.problems.append(problem)
                return
            raise UserError(
                f"{problem}; {last_output(instance.log)}",
                hint="pass {kubeconfig} to it in --run, or let it read $KUBECONFIG",
            )

    async def _perform(self, step: ScenarioStep, cluster: Operations) -> None:
        """Perform a step; faults that last end when it cannot go on and nothing else happens."""
        self._measure_from_now()
        task = asyncio.ensure_future(step.act(cluster, self.settings.timeout_seconds))
        settling: asyncio.Future[list[str]] | None = None
        try:
            while not (await asyncio.wait({task}, timeout=_POLL_SECONDS))[0]:
                if self.operator_api.is_disturbing and (settling is None or settling.done()):
                    settling = asyncio.ensure_future(self._settle())
            await task
        except (UserError, ApiError, WaitTimeout, WaitFailed) as error:
            self._fail(f"the step '{step.title}' failed: {error}")
        finally:
            task.cancel()
            if settling is not None:
                settling.cancel()

    def _fail(self, problem: str) -> None:
        """Record a problem. Raises UserError without faults: then the scenario is wrong, or the operator."""
        if not self._fault:
            raise UserError(f"without faults: {problem}", hint="correct the scenario or the operator first")
        self.problems.append(problem)

    async def _check(self, number: int, *, stays_blind: bool = False) -> None:
        """Wait until the cluster is stable in the expected state after a step, or record what is wrong.

        stays_blind: watches that miss events miss those of the next step, too.
        """
        expected = None if self._expected is None else self._expected.states[number]

        def differences() -> list[str]:
            return [] if expected is None else self._state().differences(expected)

        problems = await self._settle(differences, stays_blind=stays_blind)
        steps = self.settings.scenario.steps
        after = f" (after the step '{steps[number].title}')" if number + 1 < len(steps) else ""
        for problem in problems:
            self._fail(f"{problem}{after}")

    def _state(self) -> StoredState:
        definitions = [definition["spec"] for definition in self._api.store.list(CUSTOM_RESOURCE_DEFINITIONS)]
        custom = {f"{spec['names']['plural']}.{spec['group']}" for spec in definitions}
        variations = None if self._expected is None else self._expected.variations
        self._last_state = StoredState(self._api.store, 0, custom, variations, self._last_state)
        return self._last_state

    # --- stability -------------------------------------------------------------------------------------------------

    async def _settle(self, differences: Callable[[], list[str]] = list, *, stays_blind: bool = False) -> list[str]:
        """Wait until nothing changes and there are no differences; return what is wrong after the timeout.

        Faults that last end as soon as nothing changes; with stays_blind, watches go on to miss events. Runs of the
        reference may differ from the first one, but only then wait as long as that one. The time counts in which the
        operator could act: not while it starts or computes, up to a limit, as on a machine with too little CPU.
        """
        loop, timeout = asyncio.get_running_loop(), self.settings.timeout_seconds
        watched = frozenset() if self._expected is None else self._expected.watched
        latest, compared = loop.time() + _BUSY_FACTOR * timeout, -1
        polls = quiet_polls = disturbed_polls = waited_polls = 0
        problems: list[str] = []
        self._measure_from_now()
        while True:
            before = self._changes, self.operator_api.refused_writes
            await asyncio.sleep(_POLL_SECONDS)
            self._subscribe()
            polled_seconds = _POLL_FACTOR * self.operator_api.longest_poll_seconds
            quiet = max(self._quiet_seconds, min(polled_seconds, self.settings.quiet_seconds))
            if self._fault and not self._has_begun:  # all is as in the reference
                quiet = min(quiet, _CALM_SECONDS)
            is_unchanged = before == (self._changes, self.operator_api.refused_writes)
            is_ready = all(instance.is_ready(watched) for instance in self._instances)
            is_idle = is_ready and not any(instance.is_computing() for instance in self._instances)
            quiet_polls = quiet_polls + 1 if is_idle and is_unchanged else 0
            waited_polls += is_idle or not is_unchanged
            unchanged_seconds = loop.time() - self.operator_api.last_change_seconds
            polls += 1
            if not self._fault and polls % _POLLS_BETWEEN_LOOKS == 1:
                self._look_outside()
            is_uneasy = is_ready and unchanged_seconds > _UNEASY_FACTOR * quiet
            is_stable = quiet_polls * _POLL_SECONDS >= quiet or is_uneasy
            if self.operator_api.is_disturbing:
                disturbed_polls += is_ready or any(instance.exits for instance in self._instances)
                if is_stable or disturbed_polls * _POLL_SECONDS > _MAX_WINDOW_SECONDS:
                    if self.operator_api.is_blind and stays_blind:
                        return []
                    self.operator_api.heal()
                    latest, waited_polls = loop.time() + _BUSY_FACTOR * timeout, 0
                    quiet_polls = disturbed_polls = 0
            elif is_stable:
                if compared != self._changes:
                    compared, problems = self._changes, differences()
                if not problems or (not self._fault and quiet_polls * _POLL_SECONDS >= self.settings.quiet_seconds):
                    return []
            if self.problems:
                return []
            waited_seconds = waited_polls * _POLL_SECONDS
            if waited_seconds > timeout or loop.time() > latest:
                still_changes = unchanged_seconds < max(quiet, _RECENT_SECONDS) or not is_unchanged
                if still_changes and waited_seconds < 1.5 * timeout and loop.time() < latest:
                    continue  # it may be about to finish
                problems = differences() if self._fault else []
                return problems or ([self._endless_writes()] if still_changes else [])

    @property
    def _has_begun(self) -> bool:
        """Return True from the beginning of the fault on."""
        return self.operator_api.fired_at is not None and (self._fault != "old-lists" or self._lists_are_old)

    def _endless_writes(self) -> str:
        seconds = self.settings.timeout_seconds
        since = asyncio.get_running_loop().time() - seconds / 2
        last = dict.fromkeys(str(write) for write in self.operator_api.writes[-4:] if write.seconds > since)
        if not last:
            return f"the cluster goes on changing after {seconds:g} s, without writes of the operator"
        return f"the operator goes on writing after {seconds:g} s: {', '.join(last)}"

    def _subscribe(self) -> None:
        """Count the changes of all resources, also of those whose definitions are new."""
        for name, table in self._api.store.tables():
            if name not in self._subscribed:
                self._subscribed.add(name)
                if name not in _UNNOTICED:
                    table.subscribe(self._note_change)

    def _measure_from_now(self) -> None:
        """Measure times without changes from now on: what was before is the end of another step."""
        self.operator_api.last_change_seconds = asyncio.get_running_loop().time()

    def _note_change(self, change: Change) -> None:
        if is_election_record(change.now.object):
            return
        self._changes += 1
        self.operator_api.note_change()

    # --- without faults ------------------------------------------------------------------------------------------

    def _look_outside(self) -> None:
        ports = {instance.port for instance in self._instances}
        for instance in self._instances:
            if instance.process is not None:
                listening, servers = ports_and_servers(instance.process.pid, ports)
                self._ports |= listening.difference(instance.ports.numbers.values())
                for address in servers:
                    self.notes.add(f"it talks to {address}: no fault concerns what it does there, nor is it compared")

    async def _end_in_order(self, instance: OperatorInstance) -> None:
        assert instance.process is not None
        instance.stays_down = True
        if not await instance.process.terminate(_TERMINATION_SECONDS):
            self.notes.add(f"it ignores SIGTERM: it had to be killed after {_TERMINATION_SECONDS:g} s")


def _is_unobserved(step: ScenarioStep, following: ScenarioStep | None) -> bool:
    """Return True if an operator that misses events shall also miss those of the following step.

    These are a deletion, and what is applied directly after it: a level-triggered operator sees the outcome only.
    """
    if following is None:
        return False
    return following.verb == "delete" or (step.verb == "delete" and following.verb == "apply")


def last_output(log: Path) -> str:
    """Return the end of an operator's output for an error."""
    return f"its last output:{''.join(f'{chr(10)}    {line}' for line in log_tail(log)) or ' nothing'}"


async def _no_page(path: str, query: Mapping[str, str]) -> Any:
    raise LookupError(f"a cluster under faults has no page {path}")
