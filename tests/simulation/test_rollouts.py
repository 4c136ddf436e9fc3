"""Random rollouts on simulated nodes, in virtual time: what always holds, whatever the delays."""

from __future__ import annotations

import asyncio
import math
import random
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from typing import Any

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from kubeloop.controllers.pods import is_active, is_available
from kubeloop.kube.resources import PODS
from kubeloop.testing import virtual_time
from support.memory_cluster import MemoryCluster, Pace, deployment, is_running, is_serving

Json = Any
QUICK = settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.too_slow])
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


@dataclass
class Watcher:
    """Sees every write of the controllers, and holds it against every spec since the cluster was last at rest."""

    cluster: MemoryCluster
    specs: list[Json] = field(default_factory=list)
    story: list[str] = field(default_factory=list)
    broken: list[str] = field(default_factory=list)
    requested: set[str] = field(default_factory=set)  # Pods whose deletion was asked for
    from_rest: bool = True  # no spec changes while a rollout is under way

    def on_write(self, verb: str, resource: str, old: Json, new: Json) -> None:
        """Called inside a request of a controller, which would take an error for the server's: `held` raises it."""
        try:
            self._check(verb, resource, old, new)
        except AssertionError as error:
            self.broken.append(str(error))

    def held(self) -> None:
        assert not self.broken, self.broken[0]

    def _check(self, verb: str, resource: str, old: Json, new: Json) -> None:
        cluster, now = self.cluster, self.cluster.clock.now()
        if verb != "status":
            told = (verb, resource, new["metadata"]["name"], new["spec"].get("replicas"))
            self.story.append(f"{now:%H:%M:%S} {told}")
        most = max(spec["replicas"] + limits(spec)[0] for spec in self.specs)
        if self.from_rest and verb == "create" and resource == "pods":
            # In the middle of another rollout a ReplicaSet may not have got to deleting Pods when the next one creates:
            # a Deployment counts what its ReplicaSets are told to have.
            assert sum(map(is_running, cluster.all("pods"))) <= most, f"more Pods than {most}: {self.told()}"
        grows = resource == "replicasets" and verb in ("create", "scale")
        if grows and new["spec"]["replicas"] > (old["spec"]["replicas"] if old else 0):
            assert sum(rs["spec"]["replicas"] for rs in cluster.all("replicasets")) <= most, (
                f"more replicas than {most}: {self.told()}"
            )

    def on_delete_request(self, name: str) -> None:
        """Of a ReplicaSet's Pods the available ones go last, and only while enough of them stay.

        What was available and what was on its way out is taken from the caches at the moment of the decision. While
        users change a Deployment in the middle of a rollout, statuses lag behind by a watch's delay, in Kubernetes as
        here: then (not `from_rest`) only the order is held against the controller.
        """
        pods = self.cluster.informers.informer(PODS).store
        now = self.cluster.clock.now()
        seconds = max(spec["minReadySeconds"] for spec in self.specs)
        chosen = pods[f"default/{name}"]
        self.requested.add(name)
        if not is_available(chosen, seconds, now) or any(spec["strategy"]["type"] == "Recreate" for spec in self.specs):
            return
        staying = [pod for pod in pods.values() if is_active(pod) and pod.metadata.name not in self.requested]
        owner = chosen.metadata.owner_references[0].uid
        for pod in staying:
            if pod.metadata.owner_references[0].uid == owner and not is_available(pod, seconds, now):
                self.broken.append(f"{name} was available, {pod.metadata.name} is not: {self.told()}")
        available = sum(is_available(pod, seconds, now) for pod in staying)
        least = min(spec["replicas"] - limits(spec)[1] for spec in self.specs)
        if self.from_rest and available < least:
            self.broken.append(f"{available} available and not {least}: {self.told()}")

    def told(self) -> str:
        return "\n".join([*self.story[-400:], str(self.specs)])


Play = Callable[[MemoryCluster, Watcher], Awaitable[None]]


def play(seed: int, pace: Pace, acts: Play) -> None:
    """Run `acts` on a cluster of its own, in virtual time."""

    async def main() -> None:
        cluster = MemoryCluster(virtual_time.VirtualClock(), random.Random(seed), pace)
        watcher = Watcher(cluster)
        cluster.on_write = watcher.on_write
        cluster.on_delete_request = watcher.on_delete_request
        async with asyncio.TaskGroup() as tasks:
            running = tasks.create_task(cluster.run())
            await acts(cluster, watcher)
            running.cancel()
        watcher.held()

    virtual_time.run(main())


def is_finished(cluster: MemoryCluster, spec: Json) -> bool:
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
        and all(is_serving(pod, spec["minReadySeconds"], cluster.clock.now()) for pod in pods)
        and status.get("replicas", 0) == status.get("updatedReplicas", 0) == spec["replicas"]
        and status.get("availableReplicas", 0) == spec["replicas"]
    )


async def finish(cluster: MemoryCluster, watcher: Watcher, limit_seconds: float = HOUR) -> None:
    """Wait until the rollout is finished and everything is at rest."""
    spec = cluster.get_now("deployments", "web")["spec"]
    loop = asyncio.get_running_loop()
    until = loop.time() + limit_seconds
    while not is_finished(cluster, spec):
        watcher.held()
        assert loop.time() < until, f"not finished: {watcher.told()}\n{cluster.get_now('deployments', 'web')}"
        await asyncio.sleep(1.0)
    await asyncio.sleep(30.0)
    assert is_finished(cluster, spec), watcher.told()
    cluster.replica_sets.check()
    watcher.specs = [spec]


def set_spec(cluster: MemoryCluster, watcher: Watcher, obj: Json) -> None:
    watcher.specs.append(obj["spec"])
    cluster.apply("deployments", obj)


strategies = st.one_of(
    st.just({"strategy": "Recreate"}),
    st.fixed_dictionaries(
        {
            "max_surge": st.sampled_from([0, 1, 3, "10%", "25%", "50%", "100%"]),
            "max_unavailable": st.sampled_from([1, 2, "0%", "10%", "25%", "50%", "100%"]),
        }
    ),
)
paces = st.builds(
    Pace,
    request=st.sampled_from([0.0, 0.02, 0.3]),
    watch=st.sampled_from([0.0, 0.1, 2.0]),
    start=st.sampled_from([0.1, 3.0, 20.0]),
    stop=st.sampled_from([0.1, 3.0, 30.0]),
)
seeds = st.integers(0, 2**32 - 1)
sizes = st.integers(0, 14)


@QUICK
@given(seed=seeds, pace=paces, replicas=sizes, strategy=strategies, min_ready=st.sampled_from([0, 0, 5]))
def test_a_rollout_keeps_its_limits_creates_and_deletes_each_pod_once_and_then_rests(
    seed, pace, replicas, strategy, min_ready
):
    async def acts(cluster: MemoryCluster, watcher: Watcher) -> None:
        first = deployment(replicas=replicas, min_ready_seconds=min_ready, **strategy)
        set_spec(cluster, watcher, first)
        await finish(cluster, watcher)
        assert cluster.writes["create pods"] == replicas
        assert cluster.writes["delete pods"] == 0

        set_spec(
            cluster, watcher, deployment(replicas=replicas, image="app:2", min_ready_seconds=min_ready, **strategy)
        )
        await finish(cluster, watcher)
        assert cluster.writes["create pods"] == 2 * replicas
        assert cluster.writes["delete pods"] == replicas
        assert cluster.writes["create replicasets"] == 2

        before = cluster.writes.copy()
        for controller, plural in ((cluster.deployments, "deployments"), (cluster.replica_sets, "replicasets")):
            for obj in cluster.all(plural):
                controller.queue.add(f"default/{obj['metadata']['name']}")
        await asyncio.sleep(60.0)
        assert cluster.writes == before, "a second reconcile of a finished state writes nothing"

    play(seed, pace, acts)


changes = st.lists(
    st.tuples(
        st.sampled_from(["image", "bad image", "scale", "pause", "resume"]),
        sizes,
        st.floats(0.0, 40.0),  # seconds until the next change
    ),
    max_size=6,
)


@QUICK
@given(seed=seeds, pace=paces, replicas=sizes, strategy=strategies, story=changes)
def test_whatever_users_change_underway_the_limits_hold_and_the_last_wish_is_fulfilled(
    seed, pace, replicas, strategy, story
):
    async def acts(cluster: MemoryCluster, watcher: Watcher) -> None:
        watcher.from_rest = False
        wish = {"replicas": replicas, "image": "app:1", "paused": False}
        set_spec(cluster, watcher, deployment(**wish, **strategy))
        for number, (change, size, seconds) in enumerate(story):
            await asyncio.sleep(seconds)
            match change:
                case "image":
                    wish["image"] = f"app:{number}"
                case "bad image":
                    wish["image"] = f"bad:{number}"
                case "scale":
                    wish["replicas"] = size
                case "pause":
                    wish["paused"] = True
                case "resume":
                    wish["paused"] = False
            set_spec(cluster, watcher, deployment(**wish, **strategy))
        await asyncio.sleep(5.0)
        wish |= {"image": "app:final", "paused": False}
        set_spec(cluster, watcher, deployment(**wish, **strategy))
        await finish(cluster, watcher)

    play(seed, pace, acts)


@QUICK
@given(seed=seeds, replicas=sizes, strategy=strategies, fault=st.sampled_from([0.02, 0.2]))
def test_a_rollout_finishes_though_requests_fail_and_answers_are_lost(seed, replicas, strategy, fault):
    async def acts(cluster: MemoryCluster, watcher: Watcher) -> None:
        # What was created or deleted unknown to us may be one too many.
        cluster.on_write = lambda verb, resource, old, new: None
        cluster.on_delete_request = lambda name: None
        set_spec(cluster, watcher, deployment(replicas=replicas, **strategy))
        await asyncio.sleep(10.0)
        set_spec(cluster, watcher, deployment(replicas=replicas, image="app:2", **strategy))
        await finish(cluster, watcher, limit_seconds=3 * HOUR)

    play(seed, Pace(fault=fault, lost_answer=fault / 4), acts)
