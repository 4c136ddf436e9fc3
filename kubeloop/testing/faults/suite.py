"""check: an author's controllers under faults, compared with a run without faults.

Each run is reproducible: a scenario, a plan of faults and a seed. A failure is shrunk to the fewest faults and steps.
"""

from __future__ import annotations

import asyncio
import os
import random
import shlex
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, replace
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
    cluster_title,
    crash_plans,
    creates_are_exact,
    draw_plan,
    spread_over_clusters,
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

    def __init__(self, recorded: RecordedCluster, others: Mapping[str, RecordedCluster] | None = None) -> None:
        client = ApiClient(
            MemoryTransport(recorded.server.handle),
            clock=recorded.clock,
            rng=random.Random(0),
            user_agent=SPARED_USER_AGENT,
        )
        super().__init__(client, _no_page, "default")
        self._store = recorded.store
        self._others = {name: FaultCluster(other) for name, other in (others or {}).items()}

    def cluster(self, name: str) -> FaultCluster:
        """Return another cluster, by its name in `check`. Raises LookupError."""
        if name not in self._others:
            raise LookupError(f"there is no cluster {name!r}: pass clusters=[{name!r}] to faults.check")
        return self._others[name]

    def stored(self, resource: Resource[Any], namespace: str = "") -> list[dict[str, Any]]:
        """Return the stored objects of a resource, as JSON. They must not be changed."""
        return self._store.list(resource, namespace)


async def _no_page(path: str, query: Mapping[str, str]) -> Any:
    raise LookupError(f"a cluster under faults has no page {path}")


_States = Mapping[str, StoredState]  # of each cluster, by its name
Action = Callable[[FaultCluster], Awaitable[object]]
Check = Callable[[FaultCluster], Iterable[str] | str | None]
"""Returns what is wrong: a text, several, or nothing."""


@dataclass(frozen=True)
class UserStep:
    """An action of a user. title: in the report of a failure."""

    title: str
    act: Action


def apply(*manifests: Any, cluster: str = "") -> UserStep:
    """Return the step that applies manifests, as Operations.apply takes them. cluster: another one, by its name."""
    names = [
        f"{manifest['kind']} {manifest['metadata']['name']}" for manifest in manifests if isinstance(manifest, Mapping)
    ]
    return _step(f"apply {', '.join(names) or 'manifests'}", lambda cluster: cluster.apply(*manifests), cluster)


def delete(target: str, *, cluster: str = "") -> UserStep:
    """Return the step that deletes an object, "site/blog". cluster: another one, by its name."""
    return _step(f"delete {target}", lambda cluster: cluster.delete(target), cluster)


def _step(title: str, act: Action, name: str) -> UserStep:
    if not name:
        return UserStep(title, act)
    return UserStep(f"{title} in {cluster_title(name)}", lambda cluster: act(cluster.cluster(name)))


class RunId(msgspec.Struct, frozen=True, omit_defaults=True):
    """A reproducible run. steps: numbers of the steps; None for all."""

    seed: str
    plan: FaultPlan = FaultPlan()
    steps: tuple[int, ...] | None = None


@dataclass
class RunReport:
    """Result of a run. titles: the controllers' writes in words. violations: what is wrong, as sentences. states: the
    end of each cluster, by its name."""

    violations: list[str]
    story: list[str]
    titles: list[str]
    writes: list[str]
    seconds: float
    resources: list[str]
    creates: Mapping[str, int]
    states: Mapping[str, StoredState]


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
    clusters: Sequence[str] = (),
) -> CheckSummary:
    """Run the controllers under faults; raise FaultsFound for the first run that fails.

    A run fails if an invariant is violated at any change, if `final` is not fulfilled in the end, if the end state is
    not that of a run without faults, if the controllers go on writing although nothing changes, or if they raise an
    error of Python. First come all crashes before and after each write, then `runs` runs with drawn faults.

    controllers: classes, and names of built-in ones; or a function that returns them, which is called for each run, for
    controllers with a state outside of the cluster. scenario: what users do; in runs with faults some steps do not wait
    for the one before. seed: the first one, by default a fresh one. classes: of faults, see docs/reliability.md. nodes:
    number of simulated nodes. clusters: names of other clusters that the controllers watch or write to; faults affect
    the connections to all of them, or to one. The environment variable in the report of a failure repeats it.
    """
    suite = _Suite(controllers, [_as_step(step) for step in scenario], invariants, final, nodes, clusters)
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
        clusters: Sequence[str],
    ) -> None:
        self._controllers = controllers
        self._steps = steps
        self._invariants = invariants
        self._final = final
        self._nodes = nodes
        self._clusters = clusters
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
            if self._clusters:
                drawn = spread_over_clusters(drawn, text, self._clusters)
            yield RunId(text, msgspec.structs.replace(drawn, journal=False, compares_versions=True))

    def run(self, run_id: RunId) -> RunReport:
        """Run once. The end is compared with that of the same steps without faults."""
        steps = run_id.steps if run_id.steps is not None else tuple(range(len(self._steps)))
        return self._simulate(run_id.seed, run_id.plan, steps, self._without_faults(steps).states)

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

    def _simulate(self, seed: str, plan: FaultPlan, steps: Sequence[int], expected: _States | None) -> RunReport:
        async def run() -> RunReport:
            controllers = self._controllers() if callable(self._controllers) else self._controllers
            checks = self._invariants, self._final
            simulation = _Simulation(controllers, *checks, plan, seed, self._nodes, self._clusters)
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
        clusters: Sequence[str],
    ) -> None:
        rng = random.Random(f"check/{seed}")
        selection = select_controllers(controllers, "controllers")
        settings = Settings(
            controllers=selection.built_in,
            custom_controllers=selection.custom,
            scheduler=default_configuration(DEFAULT_FEATURE_GATES),
        )
        own = RecordedCluster(rng, ServingSettings())
        others = {name: RecordedCluster(rng, ServingSettings(), name=name, own=own) for name in clusters}
        self._clusters = (own, *others.values())
        super().__init__(own, plan, settings, rng, others.values())
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
        self._user = FaultCluster(own, others)
        self._seed = seed
        by_cluster = {
            (getattr(watch, "cluster", ""), watch.resource.group_resource): watch.resource
            for factory in selection.custom
            for watch in controller_class(factory).watches
        }
        classes = [controller_class(factory) for factory in selection.custom]
        resources = [resource for declared in classes if (resource := reconciled_resource(declared)) is not None]
        self._reconciled = {resource.group_resource for resource in resources}
        self.network.kinds.update({resource.plural: resource.kind for resource in by_cluster.values()})
        self._watched = {
            recorded: [resource for (name, _), resource in by_cluster.items() if name == recorded.name]
            for recorded in self._clusters
        }

    async def run(self, steps: Sequence[UserStep], expected: _States | None) -> RunReport:
        """Do the steps, and wait until all faults are over and the expected end is reached."""
        cluster, loop = self.cluster, asyncio.get_running_loop()
        for recorded, resources in self._watched.items():
            by_name = {resource.group_resource: resource for resource in resources}
            recorded.record_revisions(*{**BY_GROUP_RESOURCE, **by_name}.values())
        since = [recorded.store.revision for recorded in self._clusters]
        with cluster.recorded_exceptions():
            async with self._running():
                for recorded, resources in self._watched.items():
                    for resource in resources:
                        recorded.store.subscribe(resource, self._check_invariants)
                for step in steps:
                    await self._pause()
                    cluster.tell(f"user: {step.title}")
                    await step.act(self._user)
                seconds = loop.time() + 1.0
                await self._quiet()
                await self.heal()
                await self._check_end(since, expected)
                states = self._states(since)
                informers = self.processes[-1].plane.all_informers
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
            states,
        )

    @asynccontextmanager
    async def _running(self) -> AsyncIterator[None]:
        async with AsyncExitStack() as stack:
            for recorded in self._clusters:
                nodes = replace(self._nodes, count=0) if recorded.name else self._nodes
                rng, clock = random.Random(self.rng.random()), recorded.clock
                await stack.enter_async_context(
                    running_cluster(recorded.server, nodes, [], token=None, clock=clock, rng=rng)
                )
            await stack.enter_async_context(self.running_processes())
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
            informers = self.processes[-1].plane.all_informers
            if len(self.network.writes) == before and all(informer.has_synced for informer in informers):
                return

    async def _check_end(self, since: Sequence[int], expected: _States | None) -> None:
        """Wait until nothing is written any more and the end is as it should be, or record what is wrong."""
        written: list[str] = []
        problems: list[str] = []
        for _ in range(_QUIET_WINDOWS if expected is not None else _QUIET_WINDOWS_WITHOUT_FAULTS):
            before = len(self.network.titles)
            await asyncio.sleep(_QUIET_SECONDS)
            written = self.network.titles[before:]
            problems = [*_problems(self._final, self._user)]
            if expected is not None:
                problems += _differences(self._states(since), expected)
            if not written and not problems:
                return
        for problem in problems:
            self.cluster.violate(problem)
        if written:
            self.cluster.violate(f"the controllers go on writing: {', '.join(dict.fromkeys(written))}")

    def _states(self, since: Sequence[int]) -> _States:
        return {
            recorded.name: StoredState(recorded.store, revision, () if recorded.name else self._reconciled)
            for recorded, revision in zip(self._clusters, since, strict=True)
        }

    def _check_invariants(self, change: Change) -> None:
        for problem in _problems(self._invariants, self._user):
            self.cluster.violate(problem)

    def disturb(self, fault: PlannedFault) -> None:
        """Let a user delete or annotate an object that a controller owns, or has created in another cluster."""
        candidates = [
            (network.cluster, resource, obj)
            for network in self.networks
            if fault.cluster in (None, network.cluster.name)
            for resource in self._watched[network.cluster]
            for obj in network.cluster.store.list(resource)
            if any(reference.get("controller") for reference in obj["metadata"].get("ownerReferences", ()))
            or (network.cluster.name and obj["metadata"]["uid"] in network.created)
        ]
        if not candidates:
            return
        recorded, resource, obj = random.Random(f"{self._seed}/{fault}").choice(candidates)
        where = f" in {cluster_title(recorded.name)}" if recorded.name else ""
        self.cluster.tell(f"user: {fault.kind} {resource.plural} {obj['metadata']['name']}{where}")
        path = resource.path(obj["metadata"].get("namespace", ""), obj["metadata"]["name"])
        body: dict[str, Any] = {"metadata": {"annotations": {"touched": str(fault.at)}}}
        method = "PATCH" if fault.kind == "touch-object" else "DELETE"
        if method == "DELETE":
            body = {"gracePeriodSeconds": 0, "propagationPolicy": "Background"}
        headers = {"content-type": "application/merge-patch+json" if method == "PATCH" else "application/json"}
        recorded.perform(ApiRequest.of(method, path, headers, msgspec.json.encode(body)))


def _differences(states: _States, expected: _States) -> Iterator[str]:
    for name, state in states.items():
        where = f"in {cluster_title(name)}, " if name else ""
        yield from (f"{where}{difference}" for difference in state.differences(expected[name]))


def _problems(checks: Iterable[Check], cluster: FaultCluster) -> list[str]:
    """Return what the checks return."""
    problems: list[str] = []
    for check in checks:
        result = check(cluster)
        problems += [result] if isinstance(result, str) and result else result or ()
    return problems
