"""One run of a scenario with a plan of faults, in virtual time."""

from __future__ import annotations

import asyncio
import functools
import random
import tempfile
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from kubeloop.devcluster.authentication.service_account_token_key import TokenKey
from kubeloop.kube.feature_gates import FeatureGates
from kubeloop.kube.objects.resources import JOBS, PODS, REPLICA_SETS
from kubeloop.process.control_plane.control_plane import Settings
from kubeloop.scheduler.config.types import default_configuration
from kubeloop.testing import virtual_time
from kubeloop.testing.faults.control_process import ControlProcess
from kubeloop.testing.faults.fault_plan import (
    FaultPlan,
    PlannedFault,
    RunProfile,
    binds_once,
    creates_are_certain,
    creates_are_exact,
)
from kubeloop.testing.faults.run import FaultRun
from support.faults import desired_state, objects
from support.faults.cluster import RESOURCES, Cluster
from support.faults.final_state import final_state
from support.faults.invariants import InvariantChecker, assumed_volumes, cache_differences
from support.faults.scenario import UNTIL_SETTLED, Scenario
from support.faults.trace_collector import ProcessExporter, TraceCollector

LIMIT_SECONDS = 1800.0
CLOCK_LIMIT_SECONDS = 7200.0  # a timer that was set while the clock was an hour behind
REACTION_SECONDS = 3.0  # after the last step, and the last fault, the old state may still look like the desired one
QUIET_SECONDS = 60.0
QUIET_WINDOWS = 20
EVENT_SECONDS = 1.0  # far longer than a watch event takes without faults
STEP_LIMIT_SECONDS = 600.0  # a user does not wait longer for the desired state
_SIGNING_KEY = TokenKey()
_WITHOUT_COMPARISON = {
    f"StaleControllerConsistency{kind}": False for kind in ("DaemonSet", "Job", "ReplicaSet", "StatefulSet")
}
_OWNERS = (REPLICA_SETS, JOBS)
TRACEPARENT_ANNOTATION = "tracing.k8s.io/traceparent"
IDLE_WRITES = "writes although nothing changes"
OTHER_CREATES = "other creates than without faults"
"""Begin of the violation of a control plane that goes on writing in the desired state."""


@dataclass
class Report:
    """Result of a run.

    reached: the faults that had an effect. creates: objects created by the control plane. final: see `final_state`.
    """

    violations: list[str]
    story: list[str]
    writes: list[str]
    reached: set[PlannedFault]
    creates: Mapping[str, int]
    seconds: float
    resources: list[str] = field(default_factory=list)
    final: Counter[str] = field(default_factory=Counter)


def simulate(scenario: Scenario, plan: FaultPlan, seed: str, repetition: int = 0) -> Report:
    """Run a scenario. The same arguments give the same run.

    repetition: runs of one seed with other numbers have the same user and faults, but other delays and names.
    """
    creates = profile_of(scenario).creates if plan.faults and creates_are_exact(plan) else None

    async def run() -> Report:
        return await _Run(scenario, plan, seed, repetition, creates).run()

    return virtual_time.run(run())


@functools.cache
def profile_of(scenario: Scenario) -> RunProfile:
    """Return the profile of the run without faults, which must not fail."""
    report = simulate(scenario, FaultPlan(), "profile")
    if report.violations:
        raise AssertionError("\n".join([f"{scenario.name} fails without faults:", *report.story]))
    return RunProfile(tuple(report.writes), report.seconds, tuple(report.resources), dict(report.creates))


class _Run(FaultRun):
    def __init__(
        self,
        scenario: Scenario,
        plan: FaultPlan,
        seed: str,
        repetition: int,
        expected_creates: Mapping[str, int] | None,
    ) -> None:
        rng = random.Random(f"run/{seed}/{repetition}")
        gates = FeatureGates({**scenario.gates, **({} if plan.compares_versions else _WITHOUT_COMPARISON)})
        settings = Settings(
            controllers=frozenset(scenario.controllers),
            controller_options=dict(scenario.options),
            scheduler=default_configuration(gates),
            feature_gates=gates,
            sign_token=_SIGNING_KEY.sign,
        )
        self._cluster = Cluster(
            seed, repetition, serves_metrics=scenario.serves_metrics, gates=FeatureGates(scenario.gates)
        )
        super().__init__(self._cluster, plan, settings, rng)
        self._scenario = scenario
        self._expected_creates = expected_creates
        self._seed = seed
        self._collector = TraceCollector()

    async def run(self) -> Report:
        loop = asyncio.get_running_loop()
        cluster, network, plan = self._cluster, self.network, self.plan
        checker = InvariantChecker(cluster, certain_creates=creates_are_certain(plan), binds_once=binds_once(plan))
        network.on_request = checker.on_request
        for invariant in self._scenario.invariants:
            invariant(cluster, plan)
        with tempfile.TemporaryDirectory() as folder, cluster.recorded_exceptions():
            journals = Path(folder) if plan.journal else None
            async with cluster.running(self._scenario.nodes), self.running_processes(journals):
                await self._do_steps()
                steps_seconds = loop.time()
                await self.heal()
                self._collector.dead = False
                await asyncio.sleep(REACTION_SECONDS)
                if await self._settled(CLOCK_LIMIT_SECONDS if plan.of_kind("clock") else LIMIT_SECONDS):
                    seconds = loop.time()
                    await self._check_quiet()
                    self._check_traces()
                else:
                    seconds = steps_seconds
                    if not cluster.violations:
                        cluster.violate(f"not settled: {'; '.join(self._missing())}")
                if self._expected_creates is not None:
                    self._check_creates(network.creates, self._expected_creates)
                resources = [informer.resource.plural for informer in self.processes[-1].plane.informers.informers]
                final = final_state(cluster, after_crash=bool(plan.faults))
        return Report(
            cluster.violations,
            cluster.story,
            network.writes,
            network.reached,
            network.creates,
            seconds,
            resources,
            final,
        )

    # --- steps -------------------------------------------------------------------------------------------------------

    async def _do_steps(self) -> None:
        for step in self._scenario.steps:
            if step.after_seconds == UNTIL_SETTLED:
                await self._settled(STEP_LIMIT_SECONDS, final=False)
            else:
                await asyncio.sleep(step.after_seconds)
            self._cluster.tell(f"user: {step.title}")
            self._cluster.rng.seed(f"{self._seed}/{step.title}")
            step.act(self._cluster)

    def _missing(self, *, final: bool = True) -> list[str]:
        scenario = self._scenario
        missing = desired_state.missing(self._cluster, self.plan, orphans=scenario.orphans, stalls=scenario.stalls)
        return [*missing, *scenario.desired(self._cluster)] if final else missing

    async def _settled(self, limit_seconds: float, *, final: bool = True) -> bool:
        """Wait for the desired state, by default that of the scenario. Returns False if it is not reached in time."""
        loop = asyncio.get_running_loop()
        until, pause = loop.time() + limit_seconds, 0.5
        while self._missing(final=final):
            if loop.time() > until or self._cluster.violations:
                return False
            await asyncio.sleep(pause)
            pause = min(5.0, pause * 1.1)
        return True

    # --- final checks ------------------------------------------------------------------------------------------------

    async def _check_quiet(self) -> None:
        """Nothing changes any more: no writes, the same state, caches like the store."""
        for _ in range(QUIET_WINDOWS):  # a watch that is silently broken, and a long backoff, take minutes to end
            before = len(self.network.writes)
            await asyncio.sleep(QUIET_SECONDS)
            leading = self.processes[-1]
            informers = leading.plane.informers.informers
            differences = cache_differences(self._cluster, informers)
            if differences:  # the event of a Lease's renewal may not have arrived yet
                await asyncio.sleep(EVENT_SECONDS)
                differences = sorted({*differences} & {*cache_differences(self._cluster, informers)})
            if not differences and len(self.network.writes) == before:
                break
        else:
            for problem in differences:
                self._cluster.violate(f"cache differs: {problem}")
            if self.network.writes[before:]:
                self._cluster.violate(f"{IDLE_WRITES}: {self.network.writes[before:][:5]}")
        for problem in self._missing():
            self._cluster.violate(f"did not stay as desired: {problem}")
        if leading.plane.scheduler is not None:
            leading.plane.scheduler.cache.check()
            leading.plane.scheduler.queue.check()
            assumed = [pod.key for pod in leading.plane.scheduler.cache.assumed_pods()]
            if assumed := assumed + assumed_volumes(leading.plane.scheduler):
                self._cluster.violate(f"the scheduler still assumes {assumed}")
        await leading.plane.tracing.flush()

    def _check_creates(self, creates: Mapping[str, int], expected: Mapping[str, int]) -> None:
        for resource in self._scenario.exact:
            if creates.get(resource, 0) != expected.get(resource, 0):
                self._cluster.violate(
                    f"{OTHER_CREATES}: {creates.get(resource, 0)} {resource} instead of {expected.get(resource, 0)}"
                )

    def _check_traces(self) -> None:
        """Each pod has one trace. It may be lost without a journal, or if the leader that bound it is cut off."""
        plan = self.plan
        if plan.of_kind("old-lists"):
            return  # a new process may bind a bound pod once more, and record that without success
        complete = not plan.faults or (plan.journal and not plan.of_kind("full-disk", "freeze-leader"))
        for uid, trace_ids in self._collector.by_pod.items():
            if len(trace_ids) > 1:
                self._cluster.violate(f"the pod with UID {uid} has {len(trace_ids)} traces")
        for pod in self._cluster.all(PODS):
            is_traced = TRACEPARENT_ANNOTATION in pod["metadata"].get("annotations", {}) and pod["spec"].get("nodeName")
            if complete and is_traced and objects.uid_of(pod) not in self._collector.by_pod:
                self._cluster.violate(f"Pod {objects.name_of(pod)} has no trace")

    # --- processes and faults ----------------------------------------------------------------------------------------

    def new_process(self, rng: random.Random, journal: Path | None, elects: bool) -> ControlProcess:
        exporter = ProcessExporter(self._collector)
        return ControlProcess(
            self.network,
            self.settings,
            clock=self.clock,
            rng=rng,
            journal=journal,
            elects=elects,
            exporter=exporter,
            on_kill=exporter.end,
        )

    def begin(self, fault: PlannedFault) -> None:
        super().begin(fault)
        if fault.kind == "dead-collector":
            self._collector.dead = True

    def end(self, fault: PlannedFault) -> None:
        super().end(fault)
        if fault.kind == "dead-collector":
            self._collector.dead = False

    def disturb(self, fault: PlannedFault) -> None:
        """Let a user delete, replace or change a random object that a controller created."""
        resource = RESOURCES.get(fault.resource)
        collects = "garbagecollector" in self._scenario.controllers
        if resource is None or (resource in _OWNERS and fault.kind != "touch-object" and not collects):
            return  # nothing would collect what the object owns
        candidates = self._cluster.all(resource, lambda obj: bool(objects.controller_of(obj)))
        if not candidates:
            return
        obj = random.Random(f"{self._seed}/{fault}").choice(candidates)
        self._cluster.tell(f"user: {fault.kind} {resource.plural} {objects.name_of(obj)}")
        match fault.kind:
            case "delete-object":
                self._cluster.remove(resource, obj)
            case "replace-object":
                self._cluster.replace(resource, obj)
            case "touch-object":
                namespace = obj["metadata"].get("namespace", "")
                changes = {"metadata": {"annotations": {"touched": str(fault.at)}}}
                self._cluster.patch(resource, objects.name_of(obj), changes, namespace=namespace)
