"""DaemonSets with API faults, stale caches, restarts after any write, and nodes that come and go, in virtual time."""

from __future__ import annotations

import asyncio
import random
from typing import Any

import pytest

from kubeloop.kube.objects.resources import NODES, PODS
from kubeloop.testing import virtual_time
from support.daemon_set_simulation import DaemonSetSimulation, node_of
from support.daemon_sets import daemon_set_body, rolling_update
from support.fake_apiserver import Write
from support.rollout_simulation import SimulationSettings, pod_is_available, pod_not_deleted

JSON = dict[str, Any]
FAULTS = SimulationSettings(fault=0.1)
LOST_RESPONSES = SimulationSettings(fault=0.05, lost_response=0.05)
NO_EXECUTE = [{"key": "broken", "effect": "NoExecute"}]
NO_SCHEDULE = [{"key": "busy", "effect": "NoSchedule"}]
STRATEGIES: tuple[JSON, ...] = (
    rolling_update(maxSurge=0, maxUnavailable=1),
    rolling_update(maxSurge=0, maxUnavailable="50%"),
    rolling_update(maxSurge=1, maxUnavailable=0),
    rolling_update(maxSurge="50%", maxUnavailable=0),
)


def is_running(pod: JSON) -> bool:
    return pod_not_deleted(pod) and pod.get("status", {}).get("phase") not in ("Failed", "Succeeded")


class ChangingCluster:
    """A simulation whose nodes and DaemonSet change at random. crashes: share of writes after which it restarts."""

    def __init__(self, seed: int, pace: SimulationSettings, crashes: float) -> None:
        self.rng = random.Random(seed)
        self.simulation = DaemonSetSimulation(seed, pace)
        self.image = 1
        self.strategy = STRATEGIES[0]
        self.surged = False  # whether any strategy so far allows two pods on a node
        self.min_ready_seconds = self.rng.choice((0, 3))
        self._node_count = 0
        self._crashes = crashes
        self.simulation.server.on_write = self._after_write
        self.simulation.final_phase = lambda pod: "Failed" if self.rng.random() < 0.1 else ""

    def _after_write(self, write: Write) -> None:
        if self.rng.random() < self._crashes:
            self.simulation.crash()

    def apply(self) -> None:
        pod = {"nodeSelector": {"disk": "ssd"}}
        options = {"minReadySeconds": self.min_ready_seconds, **self.strategy}
        self.surged |= bool(self.strategy["updateStrategy"]["rollingUpdate"].get("maxSurge"))
        self.simulation.apply(daemon_set_body(image=f"agent:{self.image}", pod=pod, **options))

    def add_node(self) -> None:
        self.simulation.add_node(f"node-{self._node_count}", labels={"disk": self.rng.choice(("ssd", "ssd", "hdd"))})
        self._node_count += 1

    def change(self) -> None:
        nodes = [node["metadata"]["name"] for node in self.simulation.store.list(NODES)]
        node = self.rng.choice(nodes)
        match self.rng.randrange(7):
            case 0:
                self.add_node()
            case 1 if len(nodes) > 2:
                self.simulation.delete_node(node)
            case 2:
                self.simulation.change_node(node, labels={"disk": self.rng.choice(("ssd", "hdd"))})
            case 3:
                self.simulation.change_node(node, taints=self.rng.choice((NO_EXECUTE, NO_SCHEDULE, [])))
            case 4:
                self.simulation.crash()
            case _:
                self.image += 1
                self.strategy = self.rng.choice(STRATEGIES)
                self.apply()

    def end_changes(self) -> None:
        """Remove what keeps a pod on a node that gets none (NoSchedule), and what makes pods and requests fail."""
        for node in self.simulation.store.list(NODES):
            if node["spec"]["taints"] == NO_SCHEDULE:
                self.simulation.change_node(node["metadata"]["name"], taints=[])
        self._crashes = 0.0
        self.simulation.final_phase = lambda pod: ""
        self.simulation.pace = SimulationSettings()

    def desired(self) -> dict[str, list[str]]:
        nodes = [
            node["metadata"]["name"]
            for node in self.simulation.store.list(NODES)
            if node["metadata"]["labels"]["disk"] == "ssd" and not node["spec"]["taints"]
        ]
        return {name: [f"agent:{self.image}"] for name in sorted(nodes)}

    def is_stable(self) -> bool:
        status, desired = self.simulation.status(), self.desired()
        return (
            self.simulation.pods_by_node() == desired
            and len(self.simulation.pods()) == len(desired)
            and status.get("numberAvailable", 0) == status["desiredNumberScheduled"] == len(desired)
            and status.get("updatedNumberScheduled", 0) == len(desired)
            and status["numberMisscheduled"] == 0
        )

    def check_no_pod_is_doubled(self, _change: Any) -> None:
        running: dict[str, int] = {}
        for pod in self.simulation.pods():
            if is_running(pod):
                running[node_of(pod)] = running.get(node_of(pod), 0) + 1
        assert all(count <= (2 if self.surged else 1) for count in running.values()), running


async def change_at_random(seed: int, pace: SimulationSettings, *, crashes: float = 0.0, strict: bool) -> None:
    cluster = ChangingCluster(seed, pace, crashes)
    simulation = cluster.simulation
    for _ in range(6):
        cluster.add_node()
    simulation.start()
    if strict:
        simulation.store.subscribe(PODS, cluster.check_no_pod_is_doubled)
    cluster.apply()
    for _ in range(20):
        await asyncio.sleep(cluster.rng.uniform(0, 6))
        cluster.change()
    cluster.end_changes()
    for _ in range(100):
        await asyncio.sleep(10)
        if cluster.is_stable():
            break
    assert cluster.is_stable(), (cluster.desired(), simulation.pods_by_node(), simulation.status())
    writes = len(simulation.server.requests)
    await asyncio.sleep(120)
    assert cluster.is_stable()
    assert len(simulation.server.requests) == writes
    simulation.controller.check()
    await simulation.stop()


@pytest.mark.parametrize("seed", range(15))
def test_no_pod_is_doubled_or_missing_after_faults(seed: int):
    virtual_time.run(change_at_random(seed, FAULTS, strict=True))


@pytest.mark.parametrize("seed", range(15))
def test_no_pod_is_doubled_or_missing_after_restarts(seed: int):
    virtual_time.run(change_at_random(100 + seed, FAULTS, crashes=0.1, strict=True))


@pytest.mark.parametrize("seed", range(10))
def test_daemon_set_becomes_stable_after_lost_responses(seed: int):
    # A pod whose creation got no response may be created twice, as by kube-controller-manager.
    virtual_time.run(change_at_random(200 + seed, LOST_RESPONSES, crashes=0.02, strict=False))


async def update(seed: int, limits: JSON) -> None:
    """Update a DaemonSet on ten nodes, and check after each change how many pods are available and exist."""
    simulation = DaemonSetSimulation(seed, FAULTS)
    names = [f"node-{number}" for number in range(10)]
    for name in names:
        simulation.add_node(name)
    simulation.start()
    simulation.apply(daemon_set_body(minReadySeconds=2, **rolling_update(**limits)))
    await asyncio.sleep(120)
    fewest, most = 10, 10

    def count(_change: Any) -> None:
        nonlocal fewest, most
        pods, now = simulation.pods(), simulation.clock.now()
        fewest = min(fewest, sum(pod_is_available(pod, 2, now) for pod in pods if "status" in pod))
        most = max(most, sum(map(pod_not_deleted, pods)))

    simulation.store.subscribe(PODS, count)
    simulation.apply(daemon_set_body(image="agent:2", minReadySeconds=2, **rolling_update(**limits)))
    await asyncio.sleep(900)
    assert simulation.pods_by_node() == {name: ["agent:2"] for name in names}
    assert fewest >= 10 - limits["maxUnavailable"]
    assert most <= 10 + limits.get("maxSurge", 0)
    await simulation.stop()


@pytest.mark.parametrize("seed", range(5))
@pytest.mark.parametrize(
    "limits", [{"maxUnavailable": 1}, {"maxUnavailable": 4}, {"maxUnavailable": 0, "maxSurge": 3}], ids=str
)
def test_update_stays_within_its_limits(seed: int, limits: JSON):
    virtual_time.run(update(seed, limits))
