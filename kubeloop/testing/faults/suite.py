"""check: an author's controllers under faults, compared with a run without faults.

Each run is reproducible: a scenario, a plan of faults and a seed. A failure is shrunk to the fewest faults and steps.
"""

from __future__ import annotations

import asyncio
import os
import random
import shlex
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any

import msgspec

from kubeloop.controllers.api.controller import ControllerFactory
from kubeloop.controllers.api.runner import controller_class, reconciled_resource
from kubeloop.devcluster.api.request import ApiRequest
from kubeloop.devcluster.server.apiserver import ServingSettings
from kubeloop.devcluster.server.faults import SPARED_USER_AGENT
from kubeloop.devcluster.simulation.node_objects import NodeSettings
from kubeloop.devcluster.storage.store import Change
from kubeloop.kube.client.api_client import ApiClient
from kubeloop.kube.feature_gates import DEFAULT_FEATURE_GATES
from kubeloop.kube.objects.resources import BY_GROUP_RESOURCE, Resource
from kubeloop.process.control_plane.control_plane import Settings
from kubeloop.process.control_plane.controller_selection import select_controllers
from kubeloop.process.development_cluster.cluster_assembly import running_cluster
from kubeloop.scheduler.config.types import default_configuration
from kubeloop.testing import virtual_time
from kubeloop.testing.faults.cluster import RecordedCluster
from kubeloop.testing.faults.fault_plan import (
    FAULT_CLASSES,
    FaultPlan,
    PlannedFault,
    RunProfile,
    crash_plans,
    creates_are_exact,
    draw_plan,
)
from kubeloop.testing.faults.run import FaultRun
from kubeloop.testing.faults.sentences import describe_fault
from kubeloop.testing.faults.state import StoredState
from kubeloop.testing.memory_transport import MemoryTransport
from kubeloop.testing.operations import Operations

REPLAY_VARIABLE = "KUBELOOP_FAULTS"
_QUIET_SECONDS = 60.0
_QUIET_WINDOWS = 30
_QUIET_WINDOWS_WITHOUT_FAULTS = 3
_STEP_QUIET_SECONDS = 10.0
_STEP_WINDOWS = 12
_PAUSE_SECONDS = 5.0  # at most, between steps that do not wait
_HEARTBEAT_SECONDS = 100_000.0  # heartbeats cost most of the time of a quiet cluster

_CLASSES = tuple(name for name in FAULT_CLASSES if name != "tracing")

Controllers = Sequence[str | ControllerFactory]


class FaultCluster(Operations):
    """The cluster of a run as users and the author's checks see it: operations of a `memory_cluster`, no faults."""

    def __init__(self, recorded: RecordedCluster) -> None:
        client = ApiClient(
            MemoryTransport(recorded.server.handle),
            clock=recorded.clock,
            rng=random.Random(0),
            user_agent=SPARED_USER_AGENT,
        )
        super().__init__(client, _no_page, "default")
        self._store = recorded.store

    def stored(self, resource: Resource[Any], namespace: str = "") -> list[dict[str, Any]]:
        """Return the stored objects of a resource, as JSON. They must not be changed."""
        return self._store.list(resource, namespace)


async def _no_page(path: str, query: Mapping[str, str]) -> Any:
    raise LookupError(f"a cluster under faults has no page {path}")


Action = Callable[[FaultCluster], Awaitable[object]]
Check = Callable[[FaultCluster], Iterable[str] | str | None]
"""Returns what is wrong: a text, several, or nothing."""


@dataclass(frozen=True)
class UserStep:
    """An action of a user. title: in the report of a failure."""

    title: str
    act: Action


def apply(*manifests: Any) -> UserStep:
    """Return the step that applies manifests, as Operations.apply takes them."""
    names = [
        f"{manifest['kind']} {manifest['metadata']['name']}" for manifest in manifests if isinstance(manifest, Mapping)
    ]
    return UserStep(f"apply {', '.join(names) or 'manifests'}", lambda cluster: cluster.apply(*manifests))


def delete(target: str) -> UserStep:
    """Return the step that deletes an object, "site/blog"."""
    return UserStep(f"delete {target}", lambda cluster: cluster.delete(target))


class RunId(msgspec.Struct, frozen=True, omit_defaults=True):
    """A reproducible run. steps: numbers of the steps; None for all."""

    seed: str
    plan: FaultPlan = FaultPlan()
    steps: tuple[int, ...] | None = None


@dataclass
class RunReport:
    """Result of a run. titles: the controllers' writes in words. violations: what is wrong, as sentences."""

    violations: list[str]
    story: list[str]
    titles: list[str]
    writes: list[str]
    seconds: float
    resources: list[str]
    creates: Mapping[str, int]
    state: StoredState


@dataclass(frozen=True)
class CheckSummary:
    """Size of a check: runs with faults, writes of the controllers in them, and the first seed."""

    runs: int
    writes: int
    seed: int


class FaultsFound(AssertionError):
    """A run under faults ended otherwise than it should: a report with the shortest form of the failure."""


def check(
    controllers: Controllers | Callable[[], Controllers],
    scenario: Sequence[UserStep | Action],
    invariants: Sequence[Check] = (),
    *,
    final: Sequence[Check] = (),
    runs: int = 100,
    seed: int | None = None,
    classes: Sequence[str] = _CLASSES,
    nodes: int = 0,
) -> CheckSummary:
    """Run the controllers under faults; raise FaultsFound for the first run that fails.

    A run fails if an invariant is violated at any change, if `final` is not fulfilled in the end, if the end state is
    not that of a run without faults, if the controllers go on writing although nothing changes, or if they raise an
    error of Python. First come all crashes before and after each write, then `runs` runs with drawn faults.

    controllers: classes, and names of built-in ones; or a function that returns them, which is called for each run, for
    controllers with a state outside of the cluster. scenario: what users do; in runs with faults some steps do not wait
    for the one before. seed: the first one, by default a fresh one. classes: of faults, see docs/reliability.md. nodes:
    number of simulated nodes. The environment variable in the report of a failure repeats it.
    """
    suite = _Suite(controllers, [_as_step(step) for step in scenario], invariants, final, nodes)
    if replay := os.environ.get(REPLAY_VARIABLE):
        run_id = msgspec.json.decode(replay, type=RunId)
        report = suite.run(run_id)
        if report.violations:
            raise FaultsFound(suite.text(run_id, report))
        return CheckSummary(1, len(report.writes), 0)
    first_seed = random.SystemRandom().randrange(10**6, 10**9) if seed is None else seed
    summary = CheckSummary(0, 0, first_seed)
    for run_id in suite.run_ids(first_seed, runs, classes):
        report = suite.run(run_id)
        summary = CheckSummary(summary.runs + 1, summary.writes + len(report.writes), first_seed)
        if report.violations:
            smallest = suite.shrink(run_id)
            raise FaultsFound(suite.text(smallest, suite.run(smallest)))
    return summary


def _as_step(step: UserStep | Action) -> UserStep:
    return (
        step if isinstance(step, UserStep) else UserStep(getattr(step, "__name__", repr(step)).replace("_", " "), step)
    )


class _Suite:
    """The runs of one check."""

    def __init__(
        self,
        controllers: Controllers | Callable[[], Controllers],
        steps: Sequence[UserStep],
        invariants: Sequence[Check],
        final: Sequence[Check],
        nodes: int,
    ) -> None:
        self._controllers = controllers
        self._steps = steps
        self._invariants = invariants
        self._final = final
        self._nodes = nodes
        self._expected: dict[tuple[int, ...], RunReport] = {}

    def run_ids(self, seed: int, runs: int, classes: Sequence[str]) -> Iterator[RunId]:
        """Yield the runs: all single crashes, then drawn faults."""
        expected = self._without_faults(tuple(range(len(self._steps))))
        profile = RunProfile(tuple(expected.writes), expected.seconds, tuple(expected.resources), expected.creates)
        for plan in crash_plans(profile):
            if not plan.journal:
                yield RunId(str(seed), plan)
        for number in range(runs):
            name = classes[number % len(classes)]
            text = str(seed + number // len(classes))
            drawn = draw_plan(name, text, profile)
            yield RunId(text, msgspec.structs.replace(drawn, journal=False, compares_versions=True))

    def run(self, run_id: RunId) -> RunReport:
        """Run once. The end is compared with that of the same steps without faults."""
        steps = run_id.steps if run_id.steps is not None else tuple(range(len(self._steps)))
        return self._simulate(run_id.seed, run_id.plan, steps, self._without_faults(steps).state)

    def shrink(self, run_id: RunId) -> RunId:
        """Return the run with the fewest faults and steps that still fails."""
        steps = tuple(range(len(self._steps)))
        smallest = msgspec.structs.replace(run_id, steps=steps)
        while (smaller := next(filter(self._fails, _smaller(smallest)), None)) is not None:
            smallest = smaller
        return smallest

    def text(self, run_id: RunId, report: RunReport) -> str:
        """Return the report of a failure: a sentence, the writes, the steps, and how to repeat it."""
        numbers = run_id.steps if run_id.steps is not None else tuple(range(len(self._steps)))
        titles = report.titles
        if (
            creates_are_exact(run_id.plan) and run_id.plan.faults
        ):  # up to the crash, the writes are those without faults
            titles = self._without_faults(numbers).titles
        faults = " and ".join(describe_fault(fault, titles) for fault in run_id.plan.faults)
        steps = [self._steps[number].title for number in numbers]
        test = os.environ.get("PYTEST_CURRENT_TEST", "").partition(" ")[0]
        replay = msgspec.json.encode(run_id).decode()
        command = f"{REPLAY_VARIABLE}={shlex.quote(replay)} pytest {shlex.quote(test) if test else ''}".rstrip()
        sentences = [
            f"{faults}, {violation}" if faults else violation for violation in dict.fromkeys(report.violations)
        ]
        return "\n".join(
            [
                *sentences,
                f"  users: {', '.join(steps)}",
                "  what happened:",
                *(f"    {line}" for line in report.story),
                f"  repeat: {command}",
            ]
        )

    def _fails(self, run_id: RunId) -> bool:
        """Return True if the run fails because of faults; without some steps, others may be impossible."""
        try:
            return bool(self.run(run_id).violations)
        except Exception:
            return False

    def _without_faults(self, steps: tuple[int, ...]) -> RunReport:
        """Return the run without faults, which must not fail."""
        if steps not in self._expected:
            report = self._simulate("0", FaultPlan(), steps, None)
            if report.violations:
                text = self.text(RunId("0", steps=steps), report)
                raise FaultsFound(f"fails without faults: {text}")
            self._expected[steps] = report
        return self._expected[steps]

    def _simulate(self, seed: str, plan: FaultPlan, steps: Sequence[int], expected: StoredState | None) -> RunReport:
        async def run() -> RunReport:
            controllers = self._controllers() if callable(self._controllers) else self._controllers
            simulation = _Simulation(controllers, self._invariants, self._final, plan, seed, self._nodes)
            return await simulation.run([self._steps[number] for number in steps], expected)

        return virtual_time.run(run())


def _smaller(run_id: RunId) -> Iterator[RunId]:
    """Yield the run without one of its faults, or one of its steps but the first."""
    faults, steps = run_id.plan.faults, run_id.steps or ()
    for number in range(len(faults)):
        plan = msgspec.structs.replace(run_id.plan, faults=faults[:number] + faults[number + 1 :])
        yield msgspec.structs.replace(run_id, plan=plan)
    for number in range(len(steps) - 1, 0, -1):
        yield msgspec.structs.replace(run_id, steps=steps[:number] + steps[number + 1 :])


class _Simulation(FaultRun):
    """One run, in virtual time."""

    def __init__(
        self,
        controllers: Controllers,
        invariants: Sequence[Check],
        final: Sequence[Check],
        plan: FaultPlan,
        seed: str,
        nodes: int,
    ) -> None:
        rng = random.Random(f"check/{seed}")
        selection = select_controllers(controllers, "controllers")
        settings = Settings(
            controllers=selection.built_in,
            custom_controllers=selection.custom,
            scheduler=default_configuration(DEFAULT_FEATURE_GATES),
        )
        self._recorded = RecordedCluster(rng, ServingSettings())
        super().__init__(self._recorded, plan, settings, rng)
        self._nodes = NodeSettings(
            count=nodes,
            start_delay_seconds=1.0,
            stop_delay_seconds=1.0,
            events=False,
            lease_renew_seconds=_HEARTBEAT_SECONDS,
            status_report_seconds=_HEARTBEAT_SECONDS,
        )
        self._invariants = invariants
        self._final = final
        self._user = FaultCluster(self._recorded)
        self._seed = seed
        self._watched: dict[str, Resource[Any]] = {
            watch.resource.group_resource: watch.resource
            for factory in selection.custom
            for watch in controller_class(factory).watches
        }
        classes = [controller_class(factory) for factory in selection.custom]
        resources = [resource for declared in classes if (resource := reconciled_resource(declared)) is not None]
        self._reconciled = {resource.group_resource for resource in resources}
        self.network.kinds.update({resource.plural: resource.kind for resource in self._watched.values()})

    async def run(self, steps: Sequence[UserStep], expected: StoredState | None) -> RunReport:
        """Do the steps, and wait until all faults are over and the expected end is reached."""
        cluster, loop = self._recorded, asyncio.get_running_loop()
        resources = {**BY_GROUP_RESOURCE, **self._watched}
        cluster.record_revisions(*resources.values())
        since = cluster.store.revision
        with cluster.recorded_exceptions():
            async with self._running():
                for resource in self._watched.values():
                    cluster.store.subscribe(resource, self._check_invariants)
                for step in steps:
                    await self._pause()
                    cluster.tell(f"user: {step.title}")
                    await step.act(self._user)
                seconds = loop.time() + 1.0
                await self._quiet()
                await self.heal()
                await self._check_end(since, expected)
                state = self._state(since)
                informers = self.processes[-1].plane.informers.informers
        network = self.network
        watched = [informer.resource.plural for informer in informers]
        return RunReport(
            cluster.violations,
            cluster.story,
            network.titles,
            network.writes,
            seconds,
            watched,
            dict(network.creates),
            state,
        )

    @asynccontextmanager
    async def _running(self) -> AsyncIterator[None]:
        cluster = self._recorded
        rng = random.Random(self.rng.random())
        async with (
            running_cluster(cluster.server, self._nodes, [], token=None, clock=cluster.clock, rng=rng),
            self.running_processes(),
        ):
            yield

    async def _pause(self) -> None:
        """Wait until the controllers are quiet; before some steps of drawn faults only for a moment."""
        if not creates_are_exact(self.plan) and self.rng.random() < 0.5:
            await asyncio.sleep(self.rng.uniform(0.0, _PAUSE_SECONDS))
        else:
            await self._quiet()

    async def _quiet(self) -> None:
        """Wait until the caches are filled and nothing is written for a while, at most some minutes."""
        for _ in range(_STEP_WINDOWS):
            before = len(self.network.writes)
            await asyncio.sleep(_STEP_QUIET_SECONDS)
            informers = self.processes[-1].plane.informers.informers
            if len(self.network.writes) == before and all(informer.has_synced for informer in informers):
                return

    async def _check_end(self, since: int, expected: StoredState | None) -> None:
        """Wait until nothing is written any more and the end is as it should be, or record what is wrong."""
        written: list[str] = []
        problems: list[str] = []
        for _ in range(_QUIET_WINDOWS if expected is not None else _QUIET_WINDOWS_WITHOUT_FAULTS):
            before = len(self.network.titles)
            await asyncio.sleep(_QUIET_SECONDS)
            written = self.network.titles[before:]
            problems = [*_problems(self._final, self._user)]
            if expected is not None:
                problems += self._state(since).differences(expected)
            if not written and not problems:
                return
        for problem in problems:
            self.cluster.violate(problem)
        if written:
            self.cluster.violate(f"the controllers go on writing: {', '.join(dict.fromkeys(written))}")

    def _state(self, since: int) -> StoredState:
        return StoredState(self._recorded.store, since, self._reconciled)

    def _check_invariants(self, change: Change) -> None:
        for problem in _problems(self._invariants, self._user):
            self.cluster.violate(problem)

    def disturb(self, fault: PlannedFault) -> None:
        """Let a user delete or annotate an object that a controller owns."""
        candidates = [
            (resource, obj)
            for resource in self._watched.values()
            for obj in self._recorded.store.list(resource)
            if any(reference.get("controller") for reference in obj["metadata"].get("ownerReferences", ()))
        ]
        if not candidates:
            return
        resource, obj = random.Random(f"{self._seed}/{fault}").choice(candidates)
        self.cluster.tell(f"user: {fault.kind} {resource.plural} {obj['metadata']['name']}")
        path = resource.path(obj["metadata"].get("namespace", ""), obj["metadata"]["name"])
        body: dict[str, Any] = {"metadata": {"annotations": {"touched": str(fault.at)}}}
        method = "PATCH" if fault.kind == "touch-object" else "DELETE"
        if method == "DELETE":
            body = {"gracePeriodSeconds": 0, "propagationPolicy": "Background"}
        headers = {"content-type": "application/merge-patch+json" if method == "PATCH" else "application/json"}
        self._recorded.perform(ApiRequest.of(method, path, headers, msgspec.json.encode(body)))


def _problems(checks: Iterable[Check], cluster: FaultCluster) -> list[str]:
    """Return what the checks return."""
    problems: list[str] = []
    for check in checks:
        result = check(cluster)
        problems += [result] if isinstance(result, str) and result else result or ()
    return problems
