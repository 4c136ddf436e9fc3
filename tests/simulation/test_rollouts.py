"""Random rollouts on simulated nodes, in virtual time: what always holds, whatever the delays."""

from __future__ import annotations

import asyncio
import math
import random
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from kubeloop.controllers.deployment.replica_sets import DESIRED_REPLICAS
from kubeloop.controllers.runtime.pod_status import is_active, is_available, is_ready
from kubeloop.kube.objects.resources import DEPLOYMENTS, PODS, REPLICA_SETS
from kubeloop.testing import virtual_time
from kubeloop.tracing.recording.pod_recorder import NoopRecorder
from kubeloop.tracing.recording.reconcile_recorder import Reconcile
from support.rollout_simulation import (
    RolloutSimulation,
    SimulationSettings,
    deployment,
    pod_is_available,
    pod_not_deleted,
)

Json = Any
QUICK = settings(max_examples=40)
HOUR = 3600.0


def limits(spec: Json) -> tuple[int, int]:
    """maxSurge and maxUnavailable in Pods, worked out here in another way than in the controller."""
    replicas = spec["replicas"]
    rolling = spec["strategy"].get("rollingUpdate")
    if rolling is None:
        return 0, replicas
    surge, unavailable = rolling["maxSurge"], rolling["maxUnavailable"]
    if isinstance(surge, str):
        surge = math.ceil(replicas * int(surge[:-1]) / 100)
    if isinstance(unavailable, str):
        unavailable = replicas * int(unavailable[:-1]) // 100
    if surge == unavailable == 0:
        unavailable = 1
    return surge, min(unavailable, replicas)


@dataclass(frozen=True)
class Seen:
    """A ReplicaSet as the caches showed it when a reconcile began."""

    replicas: int
    available: int
    image: str
    sized_for: str | None  # the annotation with the Deployment's size when it was scaled last


class Decisions(NoopRecorder):
    """What the caches showed at the start of each reconcile: what its decision can know, and is judged by.

    Told by the hook for traces, which every reconcile calls before it decides. No key has two reconciles at a time.
    """

    cluster: RolloutSimulation
    generation = 0  # of the Deployment
    replica_sets: dict[str, Seen]

    def __init__(self) -> None:
        super().__init__()
        self.replica_sets = {}
        self.wanted: dict[str, int] = {}  # Pods, by name of the ReplicaSet

    def reconcile(self, controller: str, key: str, reason: str = "") -> Reconcile:
        cached = self.cluster.informers.informer(REPLICA_SETS).store
        if controller == "deployment":
            self.generation = self.cluster.informers.informer(DEPLOYMENTS).store[key].metadata.generation
            self.replica_sets = {
                rs.metadata.name: Seen(
                    rs.spec.replicas or 0,
                    rs.status.available_replicas,
                    rs.spec.template["spec"]["containers"][0]["image"],
                    rs.metadata.annotations.get(DESIRED_REPLICAS),
                )
                for rs in cached.values()
            }
        elif controller == "replicaset":
            rs = cached[key]
            self.wanted[rs.metadata.name] = rs.spec.replicas or 0
        return super().reconcile(controller, key, reason)


@dataclass
class Watcher:
    """Sees every write of the controllers, and holds it against what v1.36 guarantees.

    At any time, whatever users do underway:

    - When a ReplicaSet grows, the ReplicaSets together want at most replicas + maxSurge of the Deployment as the sync
      saw it.
    - A ReplicaSet creates a Pod only while it has fewer than it was seen to want, and deletes one only while it keeps
      as many: Pods come and go exactly as often as the ReplicaSets' sizes ask. So Pods beyond replicas + maxSurge are
      only such as their ReplicaSet has been told to delete already. (v1.36 counts a Deployment's Pods by what its
      ReplicaSets are told to have: a new one may get on with creating before an old one has got to deleting.)
    - Of a ReplicaSet's Pods those that are ready go last.
    - A step of a rolling update leaves old Pods wanted and new Pods available that together are at least replicas -
      maxUnavailable, by the statuses the sync saw. (Not where an old ReplicaSet's status tells of more available Pods
      than it is to have, for its own reconcile is still to come: v1.36 counts those Pods as available, and so the next
      step may go too far. That takes two old ReplicaSets, which is to say a change in the middle of a rollout.)

    From rest (`from_rest`: one wish at a time, each fulfilled before the next), by the Pods themselves:

    - An available Pod is deleted only while at least replicas - maxUnavailable stay available.
    """

    cluster: RolloutSimulation
    decisions: Decisions
    specs: list[Json] = field(default_factory=list)  # since the cluster was last at rest
    by_generation: dict[int, Json] = field(default_factory=dict)
    story: list[str] = field(default_factory=list)
    broken: list[str] = field(default_factory=list)
    requested: set[str] = field(default_factory=set)  # Pods whose deletion was asked for
    from_rest: bool = True
    answers_are_lost: bool = False  # then a controller may not know what it did, and do it twice

    def wish(self, obj: Json) -> None:
        """What a user does: `obj` is how the Deployment is to be from now on."""
        self.specs.append(obj["spec"])
        stored = self.cluster.apply("deployments", obj)
        self.by_generation[stored["metadata"]["generation"]] = obj["spec"]
        self.story.append(f"{self.cluster.clock.now():%H:%M:%S} wish {obj['spec']}")

    def on_write(self, verb: str, resource: str, old: Json, new: Json) -> None:
        """Called inside a request of a controller, which would take an error for the server's: `held` raises it."""
        if verb != "status":
            told = (verb, resource, new["metadata"]["name"], new["spec"].get("replicas"))
            self.story.append(f"{self.cluster.clock.now():%H:%M:%S} {told}")
        if resource == "replicasets" and verb in ("create", "scale"):
            before = old["spec"]["replicas"] if old else 0
            if new["spec"]["replicas"] > before:
                self._check_growth()
            elif new["spec"]["replicas"] < before:
                self._check_step(new)
        elif resource == "pods" and not self.answers_are_lost:
            self._check_pods_of(new["metadata"]["ownerReferences"][0]["name"], verb)

    def held(self) -> None:
        assert not self.broken, self.broken[0]

    def _check_growth(self) -> None:
        spec = self.by_generation[self.decisions.generation]
        most = spec["replicas"] + limits(spec)[0]
        total = sum(rs["spec"]["replicas"] for rs in self.cluster.all("replicasets"))
        if total > most:
            self._broke(f"{total} replicas and not {most}")

    def _check_step(self, rs: Json) -> None:
        decisions, spec = self.decisions, self.by_generation[self.decisions.generation]
        image = spec["template"]["spec"]["containers"][0]["image"]
        seen = {name: each for name, each in decisions.replica_sets.items() if each.replicas > 0}
        rolling = spec["strategy"]["type"] == "RollingUpdate" and not spec["paused"]
        scaling = any(each.sized_for not in (None, str(spec["replicas"])) for each in seen.values())
        old = [each for each in seen.values() if each.image != image]
        if not rolling or scaling or rs["spec"]["template"]["spec"]["containers"][0]["image"] == image:
            return
        if any(each.available > each.replicas for each in old):
            return
        old_wanted = sum(
            each["spec"]["replicas"]
            for each in self.cluster.all("replicasets")
            if each["spec"]["template"]["spec"]["containers"][0]["image"] != image
        )
        new_available = sum(each.available for each in decisions.replica_sets.values() if each.image == image)
        least = spec["replicas"] - limits(spec)[1]
        if old_wanted + new_available < least:
            self._broke(f"{old_wanted} old and {new_available} new available, and not {least}")

    def _check_pods_of(self, owner: str, verb: str) -> None:
        wanted = self.decisions.wanted[owner]
        mine = [pod for pod in self.cluster.all("pods") if pod["metadata"]["ownerReferences"][0]["name"] == owner]
        have = sum(map(pod_not_deleted, mine))
        if (verb == "create" and have > wanted) or (verb == "delete" and have < wanted):
            self._broke(f"{verb}: {owner} has {have} Pods and wants {wanted}")

    def on_delete_request(self, name: str) -> None:
        """What was available and what was on its way out is taken from the caches at the moment of the decision."""
        pods = self.cluster.informers.informer(PODS).store
        now = self.cluster.clock.now()
        seconds = max(spec["minReadySeconds"] for spec in self.specs)
        chosen = pods[f"default/{name}"]
        self.requested.add(name)
        if not is_available(chosen, seconds, now):
            return
        staying = [pod for pod in pods.values() if is_active(pod) and pod.metadata.name not in self.requested]
        owner = chosen.metadata.owner_references[0]
        for pod in staying if self.decisions.wanted[owner.name] else ():  # where all go, any may be first
            if pod.metadata.owner_references[0].uid == owner.uid and not is_ready(pod):
                self._broke(f"{name} was available, {pod.metadata.name} is not ready")
        if any(spec["strategy"]["type"] == "Recreate" for spec in self.specs):
            return
        available = sum(is_available(pod, seconds, now) for pod in staying)
        least = min(spec["replicas"] - limits(spec)[1] for spec in self.specs)
        if self.from_rest and available < least:
            self._broke(f"{available} available and not {least}")

    def _broke(self, how: str) -> None:
        self.broken.append("\n".join([how, *self.story[-400:]]))


Play = Callable[[RolloutSimulation, Watcher], Awaitable[None]]


def play(seed: int, pace: SimulationSettings, acts: Play) -> None:
    """Run `acts` on a cluster of its own, in virtual time."""

    async def main() -> None:
        decisions = Decisions()
        cluster = RolloutSimulation(virtual_time.VirtualClock(), random.Random(seed), pace, traces=decisions)
        decisions.cluster = cluster
        watcher = Watcher(cluster, decisions, answers_are_lost=pace.lost_answer > 0)
        cluster.on_write = watcher.on_write
        cluster.on_delete_request = watcher.on_delete_request
        async with asyncio.TaskGroup() as tasks:
            running = tasks.create_task(cluster.run())
            await acts(cluster, watcher)
            running.cancel()
        watcher.held()

    virtual_time.run(main())


def is_finished(cluster: RolloutSimulation, spec: Json) -> bool:
    """All Pods are of the wanted image and available, and no others are there."""
    web = cluster.objects.get(("deployments", "default/web"))
    if web is None or web["status"].get("observedGeneration") != web["metadata"]["generation"]:
        return False
    image = spec["template"]["spec"]["containers"][0]["image"]
    pods = cluster.all("pods")
    status = web["status"]
    return (
        len(pods) == spec["replicas"]
        and all(pod["spec"]["containers"][0]["image"] == image for pod in pods)
        and all(pod_is_available(pod, spec["minReadySeconds"], cluster.clock.now()) for pod in pods)
        and status.get("replicas", 0) == status.get("updatedReplicas", 0) == spec["replicas"]
        and status.get("availableReplicas", 0) == spec["replicas"]
    )


async def finish(cluster: RolloutSimulation, watcher: Watcher, limit_seconds: float = HOUR) -> None:
    """Wait until the rollout is finished and everything is at rest."""
    spec = cluster.get_now("deployments", "web")["spec"]
    loop = asyncio.get_running_loop()
    until = loop.time() + limit_seconds
    while not is_finished(cluster, spec):
        watcher.held()
        assert loop.time() < until, f"not finished: {watcher.story[-400:]}\n{cluster.get_now('deployments', 'web')}"
        await asyncio.sleep(1.0)
    await asyncio.sleep(30.0)
    assert is_finished(cluster, spec), watcher.story[-400:]
    cluster.replica_sets.check()
    watcher.specs = [spec]


async def reconciled_again_writes_nothing(cluster: RolloutSimulation) -> None:
    before = cluster.writes.copy()
    for controller, plural in ((cluster.deployments, "deployments"), (cluster.replica_sets, "replicasets")):
        for obj in cluster.all(plural):
            controller.queue.add(f"default/{obj['metadata']['name']}")
    await asyncio.sleep(60.0)
    assert cluster.writes == before, "a second reconcile of a finished state writes nothing"


rolling = st.fixed_dictionaries(
    {
        "max_surge": st.sampled_from([0, 1, 3, "10%", "25%", "50%", "100%"]),
        "max_unavailable": st.sampled_from([1, 2, "0%", "10%", "25%", "50%", "100%"]),
    }
)
strategies = st.one_of(rolling, rolling, st.just({"strategy": "Recreate"}))
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
    async def acts(cluster: RolloutSimulation, watcher: Watcher) -> None:
        wish = partial(deployment, replicas=replicas, min_ready_seconds=min_ready, **strategy)
        watcher.wish(wish())
        await finish(cluster, watcher)
        assert cluster.writes["create pods"] == replicas
        assert cluster.writes["delete pods"] == 0

        watcher.wish(wish(image="app:2"))
        await finish(cluster, watcher)
        assert cluster.writes["create pods"] == 2 * replicas
        assert cluster.writes["delete pods"] == replicas
        assert cluster.writes["create replicasets"] == 2
        await reconciled_again_writes_nothing(cluster)

    play(seed, pace, acts)


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
class Wish:
    """What a user wants of the Deployment, change by change."""

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

    def obj(self) -> Json:
        return deployment(replicas=self.replicas, image=self.images[-1], paused=self.paused, **self.strategy)


@QUICK
@given(seed=seeds, pace=paces, replicas=sizes, strategy=strategies, story=changes)
def test_successive_changes_create_and_delete_only_needed_pods(seed, pace, replicas, strategy, story):
    async def acts(cluster: RolloutSimulation, watcher: Watcher) -> None:
        wish = Wish(replicas, strategy)
        watcher.wish(wish.obj())
        await finish(cluster, watcher)
        for change, size, limits, _ in story:
            if change in ("bad image", "pause", "resume"):
                continue  # nothing that would ever finish
            before, image, had = cluster.writes.copy(), wish.images[-1], wish.replicas
            wish.change(change, size, limits)
            watcher.wish(wish.obj())
            await finish(cluster, watcher)
            created, deleted = (
                cluster.writes[f"{verb} pods"] - before[f"{verb} pods"] for verb in ("create", "delete")
            )
            if wish.images[-1] == image:
                assert (created, deleted) == (max(0, wish.replicas - had), max(0, had - wish.replicas))
            else:
                assert (created, deleted) == (wish.replicas, had)
        await reconciled_again_writes_nothing(cluster)

    play(seed, pace, acts)


@QUICK
@given(seed=seeds, pace=paces, replicas=sizes, strategy=strategies, story=changes, fault=st.sampled_from([0, 0, 0.1]))
def test_changes_during_rollout_keep_limits_and_reach_last_spec(seed, pace, replicas, strategy, story, fault):
    """The limits are those `Watcher` says; `fault` is the share of requests that the server refuses."""

    async def acts(cluster: RolloutSimulation, watcher: Watcher) -> None:
        watcher.from_rest = False
        wish = Wish(replicas, strategy)
        watcher.wish(wish.obj())
        for change, size, limits, seconds in story:
            await asyncio.sleep(seconds)
            wish.change(change, size, limits)
            watcher.wish(wish.obj())
        await asyncio.sleep(5.0)
        wish.images.append("app:final")
        wish.paused = False
        watcher.wish(wish.obj())
        await finish(cluster, watcher, limit_seconds=3 * HOUR)
        await reconciled_again_writes_nothing(cluster)

    play(seed, replace(pace, fault=fault), acts)


@QUICK
@given(seed=seeds, replicas=sizes, strategy=strategies, fault=st.sampled_from([0.02, 0.2]))
def test_rollout_finishes_with_failed_requests_and_lost_responses(seed, replicas, strategy, fault):
    """Where answers are lost, Pods that were created or deleted unknown to us may be one too many: what ReplicaSets are
    told to have keeps its limits all the same."""

    async def acts(cluster: RolloutSimulation, watcher: Watcher) -> None:
        cluster.on_delete_request = lambda name: None
        watcher.wish(deployment(replicas=replicas, **strategy))
        await asyncio.sleep(10.0)
        watcher.wish(deployment(replicas=replicas, image="app:2", **strategy))
        await finish(cluster, watcher, limit_seconds=3 * HOUR)
        await reconciled_again_writes_nothing(cluster)

    play(seed, SimulationSettings(fault=fault, lost_answer=fault / 4), acts)
