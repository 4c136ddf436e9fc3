"""Nodes that fail and come back, in virtual time: what the control plane sees, does to their pods, and takes back."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from kubeloop.devcluster.controllers.node_lifecycle import evictions_per_second, zone_state
from kubeloop.devcluster.simulation.node_objects import ANNOTATION_FAIL
from kubeloop.kube.objects.resources import EVENTS, LEASES, NODES, PODS
from support.simulated_cluster import SimulatedCluster

pytestmark = pytest.mark.virtual_time
JSON = dict[str, Any]
TOLERATED = [
    {"key": f"node.kubernetes.io/{key}", "operator": "Exists", "effect": "NoExecute", "tolerationSeconds": 300}
    for key in ("not-ready", "unreachable")
]


class Failures(SimulatedCluster):
    """Three nodes that tests make fail; pods tolerate that for five minutes, as by default."""

    def __init__(self, **settings: Any) -> None:
        super().__init__(**{"count": 3, "start_delay_seconds": 0.1, **settings})

    def bind(self, name: str = "web", **fields: Any) -> JSON:
        return super().bind(name, **{"tolerations": TOLERATED, **fields})

    def annotate(self, name: str, mode: str | None) -> None:
        annotations = {k: v for k, v in self.node(name)["metadata"]["annotations"].items() if k != ANNOTATION_FAIL}
        if mode is not None:
            annotations[ANNOTATION_FAIL] = mode
        self.change_metadata(NODES, name, annotations=annotations)

    def node_ready(self, name: str = "node-0") -> tuple[str, str]:
        found = next(each for each in self.node(name)["status"]["conditions"] if each["type"] == "Ready")
        return found["status"], found["reason"]

    def taints(self, name: str = "node-0") -> set[str]:
        return {
            f"{taint['key'].removeprefix('node.kubernetes.io/')}:{taint['effect']}"
            for taint in self.node(name)["spec"].get("taints") or ()
        }

    def pod_ready(self, name: str = "web") -> str:
        return self.conditions(name)["Ready"][0]

    def terminating(self, name: str = "web") -> bool:
        pod = self.pod(name)
        return pod is not None and "deletionTimestamp" in pod["metadata"]

    def told(self) -> list[tuple[str, str, str]]:
        """Object, reason and sender of every event."""
        return [
            (each["involvedObject"]["name"], each["reason"], each["source"]["component"])
            for each in self.store.list(EVENTS)
        ]


async def test_a_silent_node_becomes_unknown_after_the_grace_period_and_not_before():
    async with Failures().running() as cluster:
        cluster.bind()
        await asyncio.sleep(20)
        cluster.annotate("node-0", "unreachable")
        await asyncio.sleep(39)  # it may have renewed its lease up to 10 s before
        assert cluster.node_ready() == ("True", "KubeletReady")
        assert cluster.taints() == set()
        assert cluster.pod_ready() == "True"
        await asyncio.sleep(17)  # and is looked at every 5 s
        assert cluster.node_ready() == ("Unknown", "NodeStatusUnknown")
        conditions = {each["type"]: each["status"] for each in cluster.node()["status"]["conditions"]}
        assert set(conditions.values()) == {"Unknown"}
        assert "unreachable:NoSchedule" in cluster.taints()
        assert cluster.pod_ready() == "False"
        assert ("node-0", "NodeNotReady", "node-controller") in cluster.told()
        assert ("web", "NodeNotReady", "node-controller") in cluster.told()
        assert cluster.node_ready("node-1") == ("True", "KubeletReady")


async def test_a_lost_nodes_pods_are_evicted_after_their_toleration_and_stay_terminating_until_it_is_back():
    async with Failures().running() as cluster:
        cluster.bind()
        await asyncio.sleep(5)
        cluster.annotate("node-0", "unreachable")
        await asyncio.sleep(65)
        assert cluster.taints() == {"unreachable:NoSchedule", "unreachable:NoExecute"}
        assert not cluster.terminating()
        await asyncio.sleep(300)
        assert cluster.terminating()
        assert ("web", "TaintManagerEviction", "taint-eviction-controller") in cluster.told()
        pod = cluster.pod()
        assert pod is not None
        assert "DeletionByTaintManager" in {each.get("reason") for each in pod["status"]["conditions"]}
        await asyncio.sleep(3600)  # nobody confirms that it has stopped
        assert cluster.terminating()
        cluster.annotate("node-0", None)
        await asyncio.sleep(1)
        assert cluster.node_ready() == ("True", "KubeletReady")
        assert cluster.taints() == set()
        assert cluster.pod() is None
        assert ("node-0", "NodeReady", "kubelet") in cluster.told()


async def test_pods_of_a_node_that_is_back_in_time_stay_and_are_ready_again():
    async with Failures().running() as cluster:
        cluster.bind()
        await asyncio.sleep(5)
        cluster.annotate("node-0", "unreachable")
        await asyncio.sleep(120)
        assert cluster.pod_ready() == "False"
        cluster.annotate("node-0", None)
        await asyncio.sleep(1)
        assert cluster.pod_ready() == "True"
        await asyncio.sleep(600)
        assert not cluster.terminating()
        assert cluster.pod_ready() == "True"


async def test_a_lost_node_that_is_removed_takes_its_pods_with_it_after_the_quarantine():
    async with Failures().running() as cluster:
        cluster.bind()
        await asyncio.sleep(5)
        cluster.annotate("node-0", "unreachable")
        await asyncio.sleep(400)
        assert cluster.terminating()
        cluster.store.delete(NODES, "", "node-0")
        await asyncio.sleep(39)
        assert cluster.terminating()
        await asyncio.sleep(2)
        assert cluster.pod() is None
        assert ("node-0", "RemovingNode", "node-controller") in cluster.told()


async def test_a_lost_node_declared_out_of_service_gives_its_terminating_pods_up_at_once():
    async with Failures().running() as cluster:
        cluster.bind()
        await asyncio.sleep(5)
        cluster.annotate("node-0", "unreachable")
        await asyncio.sleep(400)
        assert cluster.terminating()
        node = cluster.node()
        taints = [*node["spec"]["taints"], {"key": "node.kubernetes.io/out-of-service", "effect": "NoExecute"}]
        cluster.store.update(NODES, {**node, "spec": {**node["spec"], "taints": taints}})
        await asyncio.sleep(1)
        assert cluster.pod() is None


async def test_pods_bound_to_a_silent_node_start_when_it_is_back():
    async with Failures().running() as cluster:
        cluster.annotate("node-0", "unreachable")
        cluster.bind(tolerations=[{"operator": "Exists"}])
        await asyncio.sleep(200)
        pod = cluster.pod()
        assert pod is not None
        assert pod["status"]["phase"] == "Pending"
        cluster.annotate("node-0", None)
        await asyncio.sleep(1)
        assert cluster.pod_ready() == "True"


async def test_a_node_that_is_not_ready_says_so_itself_and_starts_nothing_until_it_is():
    async with Failures().running() as cluster:
        cluster.bind("before")
        await asyncio.sleep(5)
        cluster.annotate("node-0", "not-ready")
        cluster.bind("after", tolerations=[{"operator": "Exists"}])
        cluster.bind("host", tolerations=[{"operator": "Exists"}], hostNetwork=True)
        await asyncio.sleep(10)
        assert cluster.node_ready() == ("False", "KubeletNotReady")
        assert cluster.taints() == {"not-ready:NoSchedule", "not-ready:NoExecute"}
        assert cluster.pod_ready("before") == "True"  # it still runs, and its kubelet says so
        assert cluster.pod_ready("host") == "True"
        after = cluster.pod("after")
        assert after is not None
        assert after["status"]["phase"] == "Pending"
        assert ("after", "NetworkNotReady", "kubelet") in cluster.told()
        await asyncio.sleep(320)
        assert cluster.pod("before") is None  # evicted, and its kubelet has confirmed it
        cluster.annotate("node-0", None)
        await asyncio.sleep(1)
        assert cluster.node_ready() == ("True", "KubeletReady")
        assert cluster.taints() == set()
        assert cluster.pod_ready("after") == "True"


async def test_a_node_that_somebody_else_has_called_not_ready_may_fail_in_that_way():
    async with SimulatedCluster().running() as cluster:
        node = cluster.node()
        conditions = [{"type": "Ready", "status": "False", "reason": "Mine"}]  # and no time
        cluster.store.update(NODES, {**node, "status": {**node["status"], "conditions": conditions}})
        await asyncio.sleep(1)
        cluster.change_metadata(NODES, "node-0", annotations={ANNOTATION_FAIL: "not-ready"})
        await asyncio.sleep(1)
        (ready,) = cluster.node()["status"]["conditions"]
        assert ready["reason"] == "KubeletNotReady"
        assert ready["lastTransitionTime"] == "2026-01-01T00:00:01Z"


async def test_a_failure_may_turn_into_another():
    async with Failures().running() as cluster:
        cluster.annotate("node-0", "not-ready")
        await asyncio.sleep(10)
        cluster.annotate("node-0", "unreachable")
        await asyncio.sleep(70)
        assert cluster.taints() == {"unreachable:NoSchedule", "unreachable:NoExecute"}
        cluster.annotate("node-0", "not-ready")
        await asyncio.sleep(6)
        assert cluster.taints() == {"not-ready:NoSchedule", "not-ready:NoExecute"}


@pytest.mark.parametrize(
    ("mode", "condition", "taint"),
    [
        ("memory-pressure", ("MemoryPressure", "True"), "memory-pressure:NoSchedule"),
        ("disk-pressure", ("DiskPressure", "True"), "disk-pressure:NoSchedule"),
        ("pid-pressure", ("PIDPressure", "True"), "pid-pressure:NoSchedule"),
        ("network-unavailable", ("NetworkUnavailable", "True"), "network-unavailable:NoSchedule"),
    ],
)
async def test_pressure_is_a_condition_and_a_taint_and_goes_again(mode, condition, taint):
    async with Failures().running() as cluster:
        before = cluster.node()["status"]["conditions"]
        cluster.annotate("node-0", mode)
        await asyncio.sleep(1)
        conditions = {each["type"]: each["status"] for each in cluster.node()["status"]["conditions"]}
        assert condition in conditions.items()
        assert conditions["Ready"] == "True"
        assert cluster.taints() == {taint}
        cluster.annotate("node-0", None)
        await asyncio.sleep(1)
        assert cluster.taints() == set()
        after = cluster.node()["status"]["conditions"]
        assert [each["type"] for each in after] == [each["type"] for each in before]
        assert [each["status"] for each in after] == [each["status"] for each in before]


async def test_a_node_that_fails_from_the_start_is_reported_so():
    async with Failures().running() as cluster:
        metadata = {"name": "late", "uid": "uid-late", "annotations": {ANNOTATION_FAIL: "not-ready"}}
        cluster.store.create(NODES, {"kind": "Node", "apiVersion": "v1", "metadata": metadata, "spec": {}})
        await asyncio.sleep(1)
        assert cluster.node_ready("late") == ("False", "KubeletNotReady")


async def test_a_shorter_grace_period_makes_kubelets_renew_more_often():
    async with Failures(monitor_grace_seconds=2.0).running() as cluster:
        await asyncio.sleep(30)
        assert cluster.node_ready() == ("True", "KubeletReady")
        cluster.annotate("node-0", "unreachable")
        await asyncio.sleep(3)
        assert cluster.node_ready() == ("Unknown", "NodeStatusUnknown")


async def test_a_node_whose_lease_is_renewed_by_nobody_but_reports_is_healthy():
    async with Failures(status_report_seconds=20.0).running() as cluster:
        lease = cluster.store.get(LEASES, "kube-node-lease", "node-0")
        assert lease is not None
        for _ in range(12):
            current = cluster.store.get(LEASES, "kube-node-lease", "node-0")
            assert current is not None
            cluster.store.update(LEASES, {**current, "spec": lease["spec"]})
            await asyncio.sleep(9)
        assert cluster.node_ready() == ("True", "KubeletReady")


async def test_nobody_is_evicted_from_a_small_zone_that_is_mostly_unhealthy():
    async with Failures(count=10, zones=("a", "b")).running() as cluster:
        for name in ("node-0", "node-2", "node-4"):  # zone a has five
            cluster.annotate(name, "not-ready")
        await asyncio.sleep(100)
        assert not any("not-ready:NoExecute" in cluster.taints(name) for name in ("node-0", "node-2", "node-4"))
        assert all("not-ready:NoSchedule" in cluster.taints(name) for name in ("node-0", "node-2", "node-4"))


async def test_one_node_of_a_zone_is_tainted_every_ten_seconds():
    async with Failures(count=10, zones=("a", "b")).running() as cluster:
        cluster.annotate("node-0", "not-ready")
        cluster.annotate("node-2", "not-ready")
        await asyncio.sleep(6)
        assert sum("not-ready:NoExecute" in cluster.taints(name) for name in ("node-0", "node-2")) == 1
        await asyncio.sleep(10)
        assert sum("not-ready:NoExecute" in cluster.taints(name) for name in ("node-0", "node-2")) == 2


async def test_nobody_is_evicted_when_every_node_is_lost_and_all_get_time_when_one_is_back():
    async with Failures(count=4, zones=("a", "b")).running() as cluster:
        cluster.bind()
        await asyncio.sleep(5)
        for index in range(4):
            cluster.annotate(f"node-{index}", "unreachable")
        await asyncio.sleep(1000)
        assert all(cluster.node_ready(f"node-{index}")[0] == "Unknown" for index in range(4))
        assert not any("unreachable:NoExecute" in cluster.taints(f"node-{index}") for index in range(4))
        assert not cluster.terminating()
        cluster.annotate("node-3", None)
        await asyncio.sleep(330)
        assert cluster.taints("node-3") == set()
        assert "unreachable:NoExecute" in cluster.taints("node-0")
        await asyncio.sleep(60)
        assert cluster.terminating()


async def test_finished_pods_of_a_tainted_node_are_deleted_at_once():
    async with Failures().running() as cluster:
        cluster.bind(tolerations=[])
        pod = cluster.pod()
        assert pod is not None
        cluster.store.update(PODS, {**pod, "status": {**pod["status"], "phase": "Succeeded"}})
        cluster.annotate("node-0", "not-ready")
        await asyncio.sleep(6)
        assert cluster.pod() is None


async def test_only_marked_nodes_are_simulated_where_others_have_their_own_kubelets():
    async with Failures(count=0, every_node=False).running() as cluster:

        def create(name: str, **metadata: Any) -> None:
            node = {
                "kind": "Node",
                "apiVersion": "v1",
                "metadata": {"name": name, "uid": f"uid-{name}", **metadata},
                "spec": {},
            }
            cluster.store.create(NODES, node)

        create("real")
        create("ours", annotations={"kubeloop.dev/node": "simulated"})
        create("kwoks", annotations={"kwok.x-k8s.io/node": "fake"})
        create("labelled", labels={"kubeloop.dev/node": "simulated"})
        await asyncio.sleep(1)
        assert "status" not in cluster.node("real")
        assert (
            cluster.node_ready("ours")[0]
            == cluster.node_ready("kwoks")[0]
            == cluster.node_ready("labelled")[0]
            == "True"
        )
        cluster.bind("left-alone", node="real")
        cluster.bind("elsewhere", node="nowhere")
        cluster.bind("run", node="kwoks")
        await asyncio.sleep(100)
        assert cluster.pod_ready("run") == "True"
        alone = cluster.pod("left-alone")
        assert alone is not None
        assert alone["status"]["phase"] == "Pending"
        assert cluster.pod("elsewhere") is not None


async def test_a_node_marked_as_external_is_left_to_others():
    async with Failures().running() as cluster:
        node = cluster.node("node-2")
        annotations = {**node["metadata"]["annotations"], "kubeloop.dev/node": "external"}
        cluster.store.update(NODES, {**node, "metadata": {**node["metadata"], "annotations": annotations}})
        await asyncio.sleep(1)
        cluster.bind(node="node-2")
        lease = cluster.store.get(LEASES, "kube-node-lease", "node-2")
        await asyncio.sleep(100)
        assert cluster.store.get(LEASES, "kube-node-lease", "node-2") == lease
        assert cluster.node_ready("node-2")[0] == "True"  # whoever looks after it decides
        pod = cluster.pod()
        assert pod is not None
        assert pod["status"]["phase"] == "Pending"


async def test_cordon_is_told_by_the_kubelet():
    async with Failures().running() as cluster:
        node = cluster.node()
        cluster.store.update(NODES, {**node, "spec": {**node["spec"], "unschedulable": True}})
        await asyncio.sleep(0.1)
        assert ("node-0", "NodeNotSchedulable", "kubelet") in cluster.told()
        assert cluster.taints() == {"unschedulable:NoSchedule"}


async def test_the_same_seed_gives_the_same_run():
    async def story() -> list[tuple[str, str]]:
        async with Failures(count=6).running() as cluster:
            for number in range(6):
                cluster.bind(f"web-{number}", node=f"node-{number}")
            await asyncio.sleep(5)
            cluster.annotate("node-1", "unreachable")
            cluster.annotate("node-4", "not-ready")
            await asyncio.sleep(500)
            return [(each["metadata"]["uid"], each["message"]) for each in cluster.store.list(EVENTS)]

    first = await story()
    assert first == await story()
    assert len(first) > 10


@pytest.mark.parametrize(
    ("ready", "not_ready", "state"),
    [
        pytest.param(0, 1, "full disruption", id="none is left"),
        pytest.param(2, 3, "partial disruption", id="more than 55% and more than two"),
        pytest.param(1, 2, "normal", id="two are no disruption"),
        pytest.param(5, 4, "normal", id="fewer than 55%"),
        pytest.param(0, 0, "normal", id="no nodes at all"),
    ],
)
def test_zone_state(ready, not_ready, state):
    assert zone_state(ready, not_ready) == state


def test_evictions_stop_in_small_zones_under_partial_disruption_and_slow_down_in_large_ones():
    assert evictions_per_second("normal", 5) == 0.1
    assert evictions_per_second("full disruption", 5) == 0.1
    assert evictions_per_second("partial disruption", 50) == 0.0
    assert evictions_per_second("partial disruption", 51) == 0.01


async def test_a_process_that_stood_still_does_not_take_its_own_silence_for_the_kubelets():
    async with Failures().running() as cluster:
        await asyncio.sleep(20)
        simulation = cluster.nodes._simulation
        true_time, stood_still = simulation.now, 0.0
        simulation.now = lambda: true_time() + stood_still
        stood_still = 600.0  # as after SIGSTOP and SIGCONT: monitor and kubelets wake up in any order
        for name in ("node-0", "node-1", "node-2"):
            cluster.nodes._lifecycle.check(name)
        assert [cluster.node_ready(f"node-{index}")[0] for index in range(3)] == ["True"] * 3
        stood_still = 700.0
        for _ in range(12):
            stood_still += 9.0  # nobody renews in these steps: now it is silence
            cluster.nodes._lifecycle.check("node-0")
        assert cluster.node_ready()[0] == "Unknown"
