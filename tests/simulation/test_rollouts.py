"""Random rollouts on simulated nodes, in virtual time: invariants that hold whatever the delays."""

from __future__ import annotations

import asyncio
import math
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from kubeloop.controllers.deployment.replica_sets import DESIRED_REPLICAS
from kubeloop.controllers.runtime.pods.pod_availability import is_active, is_available
from kubeloop.kube.objects.object_fields import is_ready
from kubeloop.kube.objects.resources import DEPLOYMENTS, PODS, REPLICA_SETS
from kubeloop.testing import virtual_time
from kubeloop.tracing.recording.reconcile_recorder import Reconcile
from support.apiserver.fake_apiserver import Write
from support.apiserver.faulty_transport import SentRequest
from support.simulation.rollout_simulation import (
    RolloutSimulation,
    SimulationSettings,
    deployment,
    pod_is_available,
    pod_not_deleted,
)
from support.traces.disabled_recorders import DisabledReconcileRecorder

Json = Any
QUICK = settings(max_examples=40)
HOUR = 3600.0


def limits(spec: Json) -> tuple[int, int]:
    """Return maxSurge and maxUnavailable in Pods, computed independently of the controller."""
    replicas = spec["replicas"]
    rolling_update = spec["strategy"].get("rollingUpdate")
    if rolling_update is None:
        return 0, replicas
    surge, unavailable = rolling_update["maxSurge"], rolling_update["maxUnavailable"]
    if isinstance(surge, str):
        surge = math.ceil(replicas * int(surge[:-1]) / 100)
    if isinstance(unavailable, str):
        unavailable = replicas * int(unavailable[:-1]) // 100
    if surge == unavailable == 0:
        unavailable = 1
    return surge, min(unavailable, replicas)


@dataclass(frozen=True)
class CachedReplicaSet:
    """A ReplicaSet as cached at the start of a reconcile."""

    replicas: int
    available: int
    image: str
    desired_replicas_annotation: str | None  # size of the Deployment when it was last scaled


class ReconcileInputs(DisabledReconcileRecorder):
    """Contents of the caches at the start of each reconcile, which its decision must be consistent with.

    Recorded by the hook for traces, which every reconcile calls before it decides. A key is never reconciled twice at
    the same time.
    """

    cluster: RolloutSimulation
    generation = 0  # of the Deployment
    replica_sets: dict[str, CachedReplicaSet]

    def __init__(self) -> None:
        super().__init__()
        self.replica_sets = {}
        self.desired_pods: dict[str, int] = {}  # by name of the ReplicaSet

    def reconcile(self, controller: str, key: str, reason: str = "") -> Reconcile:
        cached = self.cluster.informers.informer(REPLICA_SETS).store
        if controller == "deployment":
            self.generation = self.cluster.informers.informer(DEPLOYMENTS).store[key].metadata.generation
            self.replica_sets = {
                rs.metadata.name: CachedReplicaSet(
                    rs.spec.replicas or 0,
                    rs.status.available_replicas,
                    rs.spec.template["spec"]["containers"][0]["image"],
                    rs.metadata.annotations.get(DESIRED_REPLICAS),
                )
                for rs in cached.values()
            }
        elif controller == "replicaset":
            rs = cached[key]
            self.desired_pods[rs.metadata.name] = rs.spec.replicas or 0
        return super().reconcile(controller, key, reason)


@dataclass
class InvariantChecker:
    """Checks every write of the controllers against the guarantees of v1.36.

    At any time, whatever users change during a rollout:

    - When a ReplicaSet is scaled up, the sum of all ReplicaSets is at most replicas + maxSurge of the Deployment that
      the sync has read.
    - A ReplicaSet creates a Pod only while it has fewer than the cached spec.replicas, and deletes one only while it
      has more. So Pods above replicas + maxSurge belong to a ReplicaSet that is scaled down already. (v1.36 limits
      spec.replicas of the ReplicaSets, not Pods: a new one may create Pods before an old one has deleted its own.)
    - A ReplicaSet deletes its ready Pods last.
    - After a scale-down in a rolling update, spec.replicas of old ReplicaSets plus available Pods of the new one are at
      least replicas - maxUnavailable, by the statuses that the sync has read. (Not checked while an old ReplicaSet
      reports more available Pods than its spec.replicas, because it is not reconciled yet: v1.36 counts those Pods as
      available, so the next scale-down may be too large. That requires two old ReplicaSets, and so a change during a
      rollout.)

    With `one_change_at_a_time` (each rolled out before the next), by the Pods themselves:

    - An available Pod is deleted only while at least replicas - maxUnavailable stay available.
    """

    cluster: RolloutSimulation
    inputs: ReconcileInputs
    specs: list[Json] = field(default_factory=list)  # since the last complete rollout
    by_generation: dict[int, Json] = field(default_factory=dict)
    history: list[str] = field(default_factory=list)
    violations: list[str] = field(default_factory=list)
    deletion_requests: set[str] = field(default_factory=set)  # names of Pods
    one_change_at_a_time: bool = True
    responses_are_lost: bool = False  # then a controller may repeat a write that has succeeded

    def apply(self, obj: Json) -> None:
        """Apply the Deployment `obj` as a user does."""
        self.specs.append(obj["spec"])
        stored = self.cluster.apply(DEPLOYMENTS, obj)
        self.by_generation[stored["metadata"]["generation"]] = obj["spec"]
        self.history.append(f"{self.cluster.clock.now():%H:%M:%S} apply {obj['spec']}")

    def on_write(self, kind: str, write: Write) -> None:
        """Check a write. Records violations instead of raising, because the controller would catch the error."""
        old, new = write.before, write.after
        obj = new or old
        assert obj is not None
        if kind != "status":
            summary = (kind, write.resource.plural, obj["metadata"]["name"], obj["spec"].get("replicas"))
            self.history.append(f"{self.cluster.clock.now():%H:%M:%S} {summary}")
        if write.resource is REPLICA_SETS and kind in ("create", "scale"):
            before = old["spec"]["replicas"] if old else 0
            if obj["spec"]["replicas"] > before:
                self._check_growth()
            elif obj["spec"]["replicas"] < before:
                self._check_scale_down(obj)
        elif write.resource is PODS and not self.responses_are_lost:
            self._check_pod_count(obj["metadata"]["ownerReferences"][0]["name"], kind)

    def assert_no_violations(self) -> None:
        assert not self.violations, self.violations[0]

    def _check_growth(self) -> None:
        spec = self.by_generation[self.inputs.generation]
        maximum = spec["replicas"] + limits(spec)[0]
        total = sum(rs["spec"]["replicas"] for rs in self.cluster.all(REPLICA_SETS))
        if total > maximum:
            self._record_violation(f"{total} replicas, maximum {maximum}")

    def _check_scale_down(self, rs: Json) -> None:
        inputs, spec = self.inputs, self.by_generation[self.inputs.generation]
        image = spec["template"]["spec"]["containers"][0]["image"]
        active = {name: cached for name, cached in inputs.replica_sets.items() if cached.replicas > 0}
        is_rolling_update = spec["strategy"]["type"] == "RollingUpdate" and not spec["paused"]
        scaling = any(
            cached.desired_replicas_annotation not in (None, str(spec["replicas"])) for cached in active.values()
        )
        old = [cached for cached in active.values() if cached.image != image]
        if not is_rolling_update or scaling or rs["spec"]["template"]["spec"]["containers"][0]["image"] == image:
            return
        if any(cached.available > cached.replicas for cached in old):
            return
        old_desired = sum(
            replica_set["spec"]["replicas"]
            for replica_set in self.cluster.all(REPLICA_SETS)
            if replica_set["spec"]["template"]["spec"]["containers"][0]["image"] != image
        )
        new_available = sum(cached.available for cached in inputs.replica_sets.values() if cached.image == image)
        minimum = spec["replicas"] - limits(spec)[1]
        if old_desired + new_available < minimum:
            self._record_violation(f"{old_desired} old and {new_available} new available, minimum {minimum}")

    def _check_pod_count(self, owner: str, verb: str) -> None:
        desired = self.inputs.desired_pods[owner]
        owned = [pod for pod in self.cluster.all(PODS) if pod["metadata"]["ownerReferences"][0]["name"] == owner]
        count = sum(map(pod_not_deleted, owned))
        if (verb == "create" and count > desired) or (verb == "delete" and count < desired):
            self._record_violation(f"{verb}: {owner} has {count} Pods instead of {desired}")

    def on_send(self, request: SentRequest) -> None:
        """Check the deletion of a Pod, by the caches at the moment of the request."""
        collection, _, name = request.path.rpartition("/")
        if request.method != "DELETE" or collection != PODS.path("default"):
            return
        pods = self.cluster.informers.informer(PODS).store
        now = self.cluster.clock.now()
        seconds = max(spec["minReadySeconds"] for spec in self.specs)
        deleted = pods[f"default/{name}"]
        self.deletion_requests.add(name)
        if not is_available(deleted, seconds, now):
            return
        remaining = [pod for pod in pods.values() if is_active(pod) and pod.metadata.name not in self.deletion_requests]
        owner = deleted.metadata.owner_references[0]
        for pod in remaining if self.inputs.desired_pods[owner.name] else ():  # any order if all are deleted
            if pod.metadata.owner_references[0].uid == owner.uid and not is_ready(pod):
                self._record_violation(f"{name} was available, {pod.metadata.name} is not ready")
        if any(spec["strategy"]["type"] == "Recreate" for spec in self.specs):
            return
        available = sum(is_available(pod, seconds, now) for pod in remaining)
        minimum = min(spec["replicas"] - limits(spec)[1] for spec in self.specs)
        if self.one_change_at_a_time and available < minimum:
            self._record_violation(f"{available} available, minimum {minimum}")

    def _record_violation(self, violation: str) -> None:
        self.violations.append("\n".join([violation, *self.history[-400:]]))


Scenario = Callable[[RolloutSimulation, InvariantChecker], Awaitable[None]]


def run_scenario(seed: int, pace: SimulationSettings, scenario: Scenario) -> None:
    """Run `scenario` with a simulation of its own, in virtual time."""

    async def main() -> None:
        inputs = ReconcileInputs()
        cluster = RolloutSimulation(seed, pace, traces=inputs)
        inputs.cluster = cluster
        checker = InvariantChecker(cluster, inputs, responses_are_lost=pace.lost_response > 0)
        cluster.on_write = checker.on_write
        cluster.server.transport.on_send = checker.on_send
        async with asyncio.TaskGroup() as tasks:
            task = tasks.create_task(cluster.run())
            await scenario(cluster, checker)
            task.cancel()
        checker.assert_no_violations()

    virtual_time.run(main())


def is_rolled_out(cluster: RolloutSimulation, spec: Json) -> bool:
    """Return True if all Pods have the desired image and are available, and there are no others."""
    web = cluster.get(DEPLOYMENTS, "web")
    if web is None or web["status"].get("observedGeneration") != web["metadata"]["generation"]:
        return False
    image = spec["template"]["spec"]["containers"][0]["image"]
    pods = cluster.all(PODS)
    status = web["status"]
    return (
        len(pods) == spec["replicas"]
        and all(pod["spec"]["containers"][0]["image"] == image for pod in pods)
        and all(pod_is_available(pod, spec["minReadySeconds"], cluster.clock.now()) for pod in pods)
        and status.get("replicas", 0) == status.get("updatedReplicas", 0) == spec["replicas"]
        and status.get("availableReplicas", 0) == spec["replicas"]
    )


async def wait_until_rolled_out(
    cluster: RolloutSimulation, checker: InvariantChecker, limit_seconds: float = HOUR
) -> None:
    """Wait until the rollout is complete, and check that it stays complete."""
    spec = checker.specs[-1]
    loop = asyncio.get_running_loop()
    deadline = loop.time() + limit_seconds
    while not is_rolled_out(cluster, spec):
        checker.assert_no_violations()
        assert loop.time() < deadline, f"not finished: {checker.history[-400:]}\n{cluster.get(DEPLOYMENTS, 'web')}"
        await asyncio.sleep(1.0)
    await asyncio.sleep(30.0)
    assert is_rolled_out(cluster, spec), checker.history[-400:]
    cluster.replica_sets.check()
    checker.specs = [spec]


async def assert_reconciles_write_nothing(cluster: RolloutSimulation) -> None:
    before = cluster.writes.copy()
    for controller, resource in ((cluster.deployments, DEPLOYMENTS), (cluster.replica_sets, REPLICA_SETS)):
        for obj in cluster.all(resource):
            controller.queue.add(f"default/{obj['metadata']['name']}")
    await asyncio.sleep(60.0)
    assert cluster.writes == before, "a second reconcile of a finished state writes nothing"


rolling_updates = st.fixed_dictionaries(
    {
        "max_surge": st.sampled_from([0, 1, 3, "10%", "25%", "50%", "100%"]),
        "max_unavailable": st.sampled_from([1, 2, "0%", "10%", "25%", "50%", "100%"]),
    }
).filter(lambda update: (update["max_surge"], update["max_unavailable"]) != (0, "0%"))  # invalid
strategies = st.one_of(rolling_updates, rolling_updates, st.just({"strategy": "Recreate"}))
paces = st.builds(
    SimulationSettings,
    request=st.sampled_from([0.0, 0.02, 0.3]),
    watch=st.sampled_from([0.0, 0.1, 2.0]),
    start=st.sampled_from([0.1, 3.0, 20.0]),
    stop=st.sampled_from([0.1, 3.0, 30.0]),
)
seeds = st.integers(0, 2**32 - 1)
sizes = st.integers(0, 14)


@QUICK
@given(seed=seeds, pace=paces, replicas=sizes, strategy=strategies, min_ready=st.sampled_from([0, 0, 5]))
def test_rollout_keeps_limits_and_replaces_each_pod_once(seed, pace, replicas, strategy, min_ready):
    async def scenario(cluster: RolloutSimulation, checker: InvariantChecker) -> None:
        new_deployment = partial(deployment, replicas=replicas, min_ready_seconds=min_ready, **strategy)
        checker.apply(new_deployment())
        await wait_until_rolled_out(cluster, checker)
        assert cluster.writes["create pods"] == replicas
        assert cluster.writes["delete pods"] == 0

        checker.apply(new_deployment(image="app:2"))
        await wait_until_rolled_out(cluster, checker)
        assert cluster.writes["create pods"] == 2 * replicas
        assert cluster.writes["delete pods"] == replicas
        assert cluster.writes["create replicasets"] == 2
        await assert_reconciles_write_nothing(cluster)

    run_scenario(seed, pace, scenario)


changes = st.lists(
    st.tuples(
        st.sampled_from(["image", "bad image", "undo", "scale", "pause", "resume", "limits"]),
        sizes,
        strategies,
        st.floats(0.0, 40.0),  # seconds until the next change
    ),
    max_size=6,
)


@dataclass
class DesiredDeployment:
    """The Deployment that a user has applied, change by change."""

    replicas: int
    strategy: dict[str, Any]
    images: list[str] = field(default_factory=lambda: ["app:1"])
    paused: bool = False

    def change(self, change: str, size: int, strategy: dict[str, Any]) -> None:
        match change:
            case "image":
                self.images.append(f"app:{len(self.images) + 1}")
            case "bad image":
                self.images.append(f"bad:{len(self.images) + 1}")
            case "undo":
                self.images.append(self.images[-2:][0])
            case "scale":
                self.replicas = size
            case "pause" | "resume":
                self.paused = change == "pause"
            case "limits":
                self.strategy = strategy

    def manifest(self) -> Json:
        return deployment(replicas=self.replicas, image=self.images[-1], paused=self.paused, **self.strategy)


@QUICK
@given(seed=seeds, pace=paces, replicas=sizes, strategy=strategies, change_list=changes)
def test_successive_changes_create_and_delete_only_needed_pods(seed, pace, replicas, strategy, change_list):
    async def scenario(cluster: RolloutSimulation, checker: InvariantChecker) -> None:
        desired = DesiredDeployment(replicas, strategy)
        checker.apply(desired.manifest())
        await wait_until_rolled_out(cluster, checker)
        for change, size, limits, _ in change_list:
            if change in ("bad image", "pause", "resume"):
                continue  # no complete rollout to wait for
            before, image, old_replicas = cluster.writes.copy(), desired.images[-1], desired.replicas
            desired.change(change, size, limits)
            checker.apply(desired.manifest())
            await wait_until_rolled_out(cluster, checker)
            created, deleted = (
                cluster.writes[f"{verb} pods"] - before[f"{verb} pods"] for verb in ("create", "delete")
            )
            if desired.images[-1] == image:
                assert (created, deleted) == (
                    max(0, desired.replicas - old_replicas),
                    max(0, old_replicas - desired.replicas),
                )
            else:
                assert (created, deleted) == (desired.replicas, old_replicas)
        await assert_reconciles_write_nothing(cluster)

    run_scenario(seed, pace, scenario)


@QUICK
@given(
    seed=seeds, pace=paces, replicas=sizes, strategy=strategies, change_list=changes, fault=st.sampled_from([0, 0, 0.1])
)
def test_changes_during_rollout_keep_limits_and_reach_last_spec(seed, pace, replicas, strategy, change_list, fault):
    """Check the limits of `InvariantChecker`; `fault` is the share of requests that the server rejects."""

    async def scenario(cluster: RolloutSimulation, checker: InvariantChecker) -> None:
        checker.one_change_at_a_time = False
        desired = DesiredDeployment(replicas, strategy)
        checker.apply(desired.manifest())
        for change, size, limits, seconds in change_list:
            await asyncio.sleep(seconds)
            desired.change(change, size, limits)
            checker.apply(desired.manifest())
        await asyncio.sleep(5.0)
        desired.images.append("app:final")
        desired.paused = False
        checker.apply(desired.manifest())
        await wait_until_rolled_out(cluster, checker, limit_seconds=3 * HOUR)
        await assert_reconciles_write_nothing(cluster)

    run_scenario(seed, replace(pace, fault=fault), scenario)


@QUICK
@given(seed=seeds, replicas=sizes, strategy=strategies, fault=st.sampled_from([0.02, 0.2]))
def test_rollout_finishes_with_failed_requests_and_lost_responses(seed, replicas, strategy, fault):
    """A lost response may cause one Pod too many to be created or deleted; spec.replicas still keep the limits."""

    async def scenario(cluster: RolloutSimulation, checker: InvariantChecker) -> None:
        cluster.server.transport.on_send = lambda request: None
        checker.apply(deployment(replicas=replicas, **strategy))
        await asyncio.sleep(10.0)
        checker.apply(deployment(replicas=replicas, image="app:2", **strategy))
        await wait_until_rolled_out(cluster, checker, limit_seconds=3 * HOUR)
        await assert_reconciles_write_nothing(cluster)

    run_scenario(seed, SimulationSettings(fault=fault, lost_response=fault / 4), scenario)
