"""Node lifecycle controller in virtual time: failing nodes, their conditions, taints and pods, and their recovery."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from kubeloop.controllers.nodelifecycle.node_health import NodeHealth
from kubeloop.controllers.nodelifecycle.node_lifecycle_controller import NodeLifecycleController
from kubeloop.controllers.podgc.pod_garbage_collector import PodGarbageCollector
from kubeloop.controllers.tainteviction.taint_eviction_controller import TaintEvictionController
from kubeloop.devcluster.api import errors
from kubeloop.devcluster.simulation.node_objects import ANNOTATION_FAIL
from kubeloop.kube.objects.api_types import Node
from kubeloop.kube.objects.resources import EVENTS, LEASES, NODES, PODS
from support.apiserver.faulty_transport import SentRequest
from support.simulation.simulated_cluster import SimulatedCluster

pytestmark = pytest.mark.virtual_time
JSON = dict[str, Any]
CONTROLLERS = (NodeLifecycleController, TaintEvictionController, PodGarbageCollector)
DEFAULT_TOLERATIONS = [
    {"key": f"node.kubernetes.io/{key}", "operator": "Exists", "effect": "NoExecute", "tolerationSeconds": 300}
    for key in ("not-ready", "unreachable")
]


class FailingCluster(SimulatedCluster):
    """Three nodes that tests make fail; pods have the default tolerations of 300 s."""

    def __init__(self, **settings: Any) -> None:
        super().__init__(**{"count": 3, "start_delay_seconds": 0.1, "controllers": CONTROLLERS, **settings})

    def bind(self, name: str = "web", **fields: Any) -> JSON:
        return super().bind(name, **{"tolerations": DEFAULT_TOLERATIONS, **fields})

    def set_failure(self, name: str, mode: str | None) -> None:
        annotations = {k: v for k, v in self.node(name)["metadata"]["annotations"].items() if k != ANNOTATION_FAIL}
        if mode is not None:
            annotations[ANNOTATION_FAIL] = mode
        self.change_metadata(NODES, name, annotations=annotations)

    def node_ready(self, name: str = "node-0") -> tuple[str, str]:
        conditions = self.node(name)["status"]["conditions"]
        ready = next(condition for condition in conditions if condition["type"] == "Ready")
        return ready["status"], ready["reason"]

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

    def event_sources(self) -> list[tuple[str, str, str]]:
        """Return object, reason and component of every event."""
        return [
            (event["involvedObject"]["name"], event["reason"], event["source"]["component"])
            for event in self.store.list(EVENTS)
        ]


async def test_unreachable_node_is_unknown_after_grace_period():
    async with FailingCluster().running() as cluster:
        cluster.bind()
        await asyncio.sleep(20)
        cluster.set_failure("node-0", "unreachable")
        await asyncio.sleep(39)  # the last renewal was up to 10 s before the failure
        assert cluster.node_ready() == ("True", "KubeletReady")
        assert cluster.taints() == set()
        assert cluster.pod_ready() == "True"
        await asyncio.sleep(22)  # nodes are checked every 5 s
        assert cluster.node_ready() == ("Unknown", "NodeStatusUnknown")
        conditions = {condition["type"]: condition["status"] for condition in cluster.node()["status"]["conditions"]}
        assert set(conditions.values()) == {"Unknown"}
        assert "unreachable:NoSchedule" in cluster.taints()
        assert cluster.pod_ready() == "False"
        assert ("node-0", "NodeNotReady", "node-controller") in cluster.event_sources()
        assert ("web", "NodeNotReady", "node-controller") in cluster.event_sources()
        assert cluster.node_ready("node-1") == ("True", "KubeletReady")


async def test_evicted_pods_terminate_when_unreachable_node_recovers():
    async with FailingCluster().running() as cluster:
        cluster.bind()
        await asyncio.sleep(5)
        cluster.set_failure("node-0", "unreachable")
        await asyncio.sleep(65)
        assert cluster.taints() == {"unreachable:NoSchedule", "unreachable:NoExecute"}
        assert not cluster.terminating()
        await asyncio.sleep(300)
        assert cluster.terminating()
        assert ("web", "TaintManagerEviction", "taint-eviction-controller") in cluster.event_sources()
        pod = cluster.pod()
        assert pod is not None
        assert "DeletionByTaintManager" in {condition.get("reason") for condition in pod["status"]["conditions"]}
        await asyncio.sleep(3600)  # no kubelet confirms that it has stopped
        assert cluster.terminating()
        cluster.set_failure("node-0", None)
        await asyncio.sleep(6)
        assert cluster.node_ready() == ("True", "KubeletReady")
        assert cluster.taints() == set()
        assert cluster.pod() is None
        assert ("node-0", "NodeReady", "kubelet") in cluster.event_sources()


async def test_pods_stay_if_node_recovers_within_toleration():
    async with FailingCluster().running() as cluster:
        cluster.bind()
        await asyncio.sleep(5)
        cluster.set_failure("node-0", "unreachable")
        await asyncio.sleep(120)
        assert cluster.pod_ready() == "False"
        cluster.set_failure("node-0", None)
        await asyncio.sleep(1)
        assert cluster.pod_ready() == "True"
        await asyncio.sleep(600)
        assert not cluster.terminating()
        assert cluster.pod_ready() == "True"


@pytest.mark.parametrize(
    ("resource", "name", "content"),
    [
        pytest.param(NODES, "node-0", b"NodeStatusUnknown", id="conditions of a node"),
        pytest.param(NODES, "node-0", b"NoExecute", id="taint of a node"),
        pytest.param(PODS, "web", b"conditions", id="condition of a pod"),
    ],
)
async def test_object_that_is_gone_before_it_is_marked_is_no_error(
    resource: Any, name: str, content: bytes, caplog: pytest.LogCaptureFixture
):
    async with FailingCluster(controllers=[NodeLifecycleController]).running() as cluster:
        cluster.bind()
        await asyncio.sleep(20)
        sent = []

        def delete_first(request: SentRequest) -> None:
            namespace = "default" if resource is PODS else ""
            path = resource.path(namespace, name)
            if request.method == "PATCH" and request.path.startswith(path) and content in request.body:
                sent.append(request)
                cluster.store.delete(resource, namespace, name)

        cluster.server.transport.on_send = delete_first
        cluster.set_failure("node-0", "unreachable")
        await asyncio.sleep(100)
        assert len(sent) == 1
        assert caplog.messages == []
        cluster.set_failure("node-1", "unreachable")
        await asyncio.sleep(100)
        assert cluster.taints("node-1") == {"unreachable:NoSchedule", "unreachable:NoExecute"}


async def test_deleting_unreachable_node_deletes_pods_after_quarantine():
    async with FailingCluster().running() as cluster:
        cluster.bind()
        await asyncio.sleep(5)
        cluster.set_failure("node-0", "unreachable")
        await asyncio.sleep(400)
        assert cluster.terminating()
        cluster.store.delete(NODES, "", "node-0")
        await asyncio.sleep(39)
        assert cluster.terminating()
        await asyncio.sleep(2)
        assert cluster.pod() is None
        assert ("node-0", "RemovingNode", "node-controller") in cluster.event_sources()


async def test_out_of_service_taint_deletes_terminating_pods():
    async with FailingCluster().running() as cluster:
        cluster.bind()
        await asyncio.sleep(5)
        cluster.set_failure("node-0", "unreachable")
        await asyncio.sleep(400)
        assert cluster.terminating()
        node = cluster.node()
        taints = [*node["spec"]["taints"], {"key": "node.kubernetes.io/out-of-service", "effect": "NoExecute"}]
        cluster.store.update(NODES, {**node, "spec": {**node["spec"], "taints": taints}})
        await asyncio.sleep(21)
        assert cluster.pod() is None


async def test_pod_bound_to_unreachable_node_starts_at_recovery():
    async with FailingCluster().running() as cluster:
        cluster.set_failure("node-0", "unreachable")
        cluster.bind(tolerations=[{"operator": "Exists"}])
        await asyncio.sleep(200)
        pod = cluster.pod()
        assert pod is not None
        assert pod["status"]["phase"] == "Pending"
        cluster.set_failure("node-0", None)
        await asyncio.sleep(1)
        assert cluster.pod_ready() == "True"


async def test_not_ready_node_starts_only_host_network_pods():
    async with FailingCluster().running() as cluster:
        cluster.bind("before")
        await asyncio.sleep(5)
        cluster.set_failure("node-0", "not-ready")
        cluster.bind("after", tolerations=[{"operator": "Exists"}])
        cluster.bind("host", tolerations=[{"operator": "Exists"}], hostNetwork=True)
        await asyncio.sleep(10)
        assert cluster.node_ready() == ("False", "KubeletNotReady")
        assert cluster.taints() == {"not-ready:NoSchedule", "not-ready:NoExecute"}
        assert cluster.pod_ready("before") == "True"  # it still runs, and its kubelet reports it
        assert cluster.pod_ready("host") == "True"
        after = cluster.pod("after")
        assert after is not None
        assert after["status"]["phase"] == "Pending"
        assert ("after", "NetworkNotReady", "kubelet") in cluster.event_sources()
        await asyncio.sleep(320)
        assert cluster.pod("before") is None  # evicted, and its kubelet has confirmed the stop
        cluster.set_failure("node-0", None)
        await asyncio.sleep(6)
        assert cluster.node_ready() == ("True", "KubeletReady")
        assert cluster.taints() == set()
        assert cluster.pod_ready("after") == "True"


async def test_not_ready_failure_replaces_condition_of_client():
    async with SimulatedCluster().running() as cluster:
        node = cluster.node()
        conditions = [{"type": "Ready", "status": "False", "reason": "Custom"}]  # no lastTransitionTime
        cluster.store.update(NODES, {**node, "status": {**node["status"], "conditions": conditions}})
        await asyncio.sleep(1)
        cluster.change_metadata(NODES, "node-0", annotations={ANNOTATION_FAIL: "not-ready"})
        await asyncio.sleep(1)
        (ready,) = cluster.node()["status"]["conditions"]
        assert ready["reason"] == "KubeletNotReady"
        assert ready["lastTransitionTime"] == "2026-01-01T00:00:01Z"


async def test_changed_failure_mode_replaces_taints():
    async with FailingCluster().running() as cluster:
        cluster.set_failure("node-0", "not-ready")
        await asyncio.sleep(10)
        cluster.set_failure("node-0", "unreachable")
        await asyncio.sleep(70)
        assert cluster.taints() == {"unreachable:NoSchedule", "unreachable:NoExecute"}
        cluster.set_failure("node-0", "not-ready")
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
async def test_pressure_sets_condition_and_taint_until_recovery(mode, condition, taint):
    async with FailingCluster().running() as cluster:
        before = cluster.node()["status"]["conditions"]
        cluster.set_failure("node-0", mode)
        await asyncio.sleep(1)
        conditions = {condition["type"]: condition["status"] for condition in cluster.node()["status"]["conditions"]}
        assert condition in conditions.items()
        assert conditions["Ready"] == "True"
        assert cluster.taints() == {taint}
        cluster.set_failure("node-0", None)
        await asyncio.sleep(1)
        assert cluster.taints() == set()
        after = cluster.node()["status"]["conditions"]
        assert [condition["type"] for condition in after] == [condition["type"] for condition in before]
        assert [condition["status"] for condition in after] == [condition["status"] for condition in before]


async def test_node_created_with_failure_mode_reports_it():
    async with FailingCluster().running() as cluster:
        metadata = {"name": "late", "uid": "uid-late", "annotations": {ANNOTATION_FAIL: "not-ready"}}
        cluster.store.create(NODES, {"kind": "Node", "apiVersion": "v1", "metadata": metadata, "spec": {}})
        await asyncio.sleep(1)
        assert cluster.node_ready("late") == ("False", "KubeletNotReady")


async def test_grace_period_and_monitor_period_are_options():
    options = {"node_monitor_grace_period": 2.0, "node_monitor_period": 0.2}
    async with FailingCluster(lease_renew_seconds=0.4, options=options).running() as cluster:
        await asyncio.sleep(30)
        assert cluster.node_ready() == ("True", "KubeletReady")
        cluster.set_failure("node-0", "unreachable")
        await asyncio.sleep(3)
        assert cluster.node_ready() == ("Unknown", "NodeStatusUnknown")


async def test_node_with_stale_lease_but_status_reports_is_healthy():
    async with FailingCluster(status_report_seconds=20.0).running() as cluster:
        lease = cluster.store.get(LEASES, "kube-node-lease", "node-0")
        assert lease is not None
        for _ in range(12):
            current = cluster.store.get(LEASES, "kube-node-lease", "node-0")
            assert current is not None
            cluster.store.update(LEASES, {**current, "spec": lease["spec"]})
            await asyncio.sleep(9)
        assert cluster.node_ready() == ("True", "KubeletReady")


async def test_no_eviction_from_small_mostly_unhealthy_zone():
    async with FailingCluster(count=10, zones=("a", "b")).running() as cluster:
        for name in ("node-0", "node-2", "node-4"):  # zone a has five nodes
            cluster.set_failure(name, "not-ready")
        await asyncio.sleep(100)
        assert not any("not-ready:NoExecute" in cluster.taints(name) for name in ("node-0", "node-2", "node-4"))
        assert all("not-ready:NoSchedule" in cluster.taints(name) for name in ("node-0", "node-2", "node-4"))


async def test_one_node_per_zone_is_tainted_every_ten_seconds():
    async with FailingCluster(count=10, zones=("a", "b")).running() as cluster:
        cluster.set_failure("node-0", "not-ready")
        cluster.set_failure("node-2", "not-ready")
        await asyncio.sleep(6)
        assert sum("not-ready:NoExecute" in cluster.taints(name) for name in ("node-0", "node-2")) == 1
        await asyncio.sleep(10)
        assert sum("not-ready:NoExecute" in cluster.taints(name) for name in ("node-0", "node-2")) == 2


async def test_full_disruption_stops_evictions_until_node_recovers():
    async with FailingCluster(count=4, zones=("a", "b")).running() as cluster:
        cluster.bind()
        await asyncio.sleep(5)
        for index in range(4):
            cluster.set_failure(f"node-{index}", "unreachable")
        await asyncio.sleep(1000)
        assert all(cluster.node_ready(f"node-{index}")[0] == "Unknown" for index in range(4))
        assert not any("unreachable:NoExecute" in cluster.taints(f"node-{index}") for index in range(4))
        assert not cluster.terminating()
        cluster.set_failure("node-3", None)
        await asyncio.sleep(330)
        assert cluster.taints("node-3") == set()
        assert "unreachable:NoExecute" in cluster.taints("node-0")
        await asyncio.sleep(60)
        assert cluster.terminating()


async def test_end_of_full_disruption_starts_grace_periods_anew():
    async with FailingCluster().running() as cluster:
        for index in range(3):
            cluster.set_failure(f"node-{index}", "not-ready")
        await asyncio.sleep(30)
        cluster.set_failure("node-0", "unreachable")
        await asyncio.sleep(30)
        cluster.set_failure("node-2", None)
        await asyncio.sleep(45)  # at least 75 s after the last heartbeat of node-0, at most 45 s after the disruption
        assert cluster.node_ready() == ("False", "KubeletNotReady")
        await asyncio.sleep(30)
        assert cluster.node_ready() == ("Unknown", "NodeStatusUnknown")


async def test_finished_pods_of_tainted_node_are_deleted_at_once():
    async with FailingCluster().running() as cluster:
        cluster.bind(tolerations=[])
        pod = cluster.pod()
        assert pod is not None
        cluster.store.update(PODS, {**pod, "status": {**pod["status"], "phase": "Succeeded"}})
        cluster.set_failure("node-0", "not-ready")
        await asyncio.sleep(6)
        assert cluster.pod() is None


async def test_only_marked_nodes_are_simulated_without_every_node():
    async with FailingCluster(count=0, every_node=False, controllers=()).running() as cluster:

        def create(name: str, **metadata: Any) -> None:
            node = {
                "kind": "Node",
                "apiVersion": "v1",
                "metadata": {"name": name, "uid": f"uid-{name}", **metadata},
                "spec": {},
            }
            cluster.store.create(NODES, node)

        create("external")
        create("marked", annotations={"kubeloop.dev/node": "simulated"})
        create("kwok", annotations={"kwok.x-k8s.io/node": "fake"})
        create("labelled", labels={"kubeloop.dev/node": "simulated"})
        await asyncio.sleep(1)
        assert "status" not in cluster.node("external")
        assert (
            cluster.node_ready("marked")[0]
            == cluster.node_ready("kwok")[0]
            == cluster.node_ready("labelled")[0]
            == "True"
        )
        cluster.bind("not-simulated", node="external")
        cluster.bind("missing-node", node="missing")
        cluster.bind("simulated", node="kwok")
        await asyncio.sleep(100)
        assert cluster.pod_ready("simulated") == "True"
        not_simulated = cluster.pod("not-simulated")
        assert not_simulated is not None
        assert not_simulated["status"]["phase"] == "Pending"
        assert cluster.pod("missing-node") is not None


async def test_node_marked_as_external_is_not_simulated():
    async with FailingCluster().running() as cluster:
        node = cluster.node("node-2")
        annotations = {**node["metadata"]["annotations"], "kubeloop.dev/node": "external"}
        cluster.store.update(NODES, {**node, "metadata": {**node["metadata"], "annotations": annotations}})
        await asyncio.sleep(1)
        cluster.bind(node="node-2")
        lease = cluster.store.get(LEASES, "kube-node-lease", "node-2")
        await asyncio.sleep(45)
        assert cluster.store.get(LEASES, "kube-node-lease", "node-2") == lease
        assert cluster.node_ready("node-2")[0] == "True"  # unchanged: an external kubelet reports it
        await asyncio.sleep(15)
        assert cluster.node_ready("node-2") == ("Unknown", "NodeStatusUnknown")
        pod = cluster.pod()
        assert pod is not None
        assert pod["status"]["phase"] == "Pending"


async def test_cordoned_node_has_a_taint_and_an_event_of_its_kubelet():
    async with FailingCluster().running() as cluster:
        cluster.change_node("node-0", unschedulable=True)
        await asyncio.sleep(0.1)
        assert ("node-0", "NodeNotSchedulable", "kubelet") in cluster.event_sources()
        assert cluster.taints() == {"unschedulable:NoSchedule"}
        cluster.change_node("node-0", unschedulable=False)
        await asyncio.sleep(0.1)
        assert cluster.taints() == set()


async def test_same_seed_gives_same_events():
    async def events_of_run() -> list[tuple[str, str]]:
        async with FailingCluster(count=6).running() as cluster:
            for number in range(6):
                cluster.bind(f"web-{number}", node=f"node-{number}")
            await asyncio.sleep(5)
            cluster.set_failure("node-1", "unreachable")
            cluster.set_failure("node-4", "not-ready")
            await asyncio.sleep(500)
            return [(event["metadata"]["uid"], event["message"]) for event in cluster.store.list(EVENTS)]

    first = await events_of_run()
    assert first == await events_of_run()
    assert len(first) > 10


async def test_suspended_process_does_not_mark_nodes_unknown():
    async with FailingCluster().running() as cluster:
        await asyncio.sleep(20)
        asyncio.get_running_loop().advance(600.0)  # as after SIGSTOP and SIGCONT
        await asyncio.sleep(1)
        assert [cluster.node_ready(f"node-{index}")[0] for index in range(3)] == ["True"] * 3
        cluster.set_failure("node-0", "unreachable")
        await asyncio.sleep(61)
        assert cluster.node_ready()[0] == "Unknown"


async def test_pod_bound_to_a_lost_node_is_marked_not_ready():
    async with FailingCluster().running() as cluster:
        cluster.set_failure("node-0", "unreachable")
        await asyncio.sleep(70)
        pod = cluster.bind(tolerations=[{"operator": "Exists"}])
        cluster.store.update(PODS, {**pod, "status": {"conditions": [{"type": "Ready", "status": "True"}]}})
        await asyncio.sleep(1)
        assert cluster.pod_ready() == "False"
        assert ("web", "NodeNotReady", "node-controller") in cluster.event_sources()


async def test_excluded_nodes_do_not_count_in_their_zone():
    async with FailingCluster(count=4, zones=("a",)).running() as cluster:
        for name in ("node-1", "node-2", "node-3"):
            labels = {**cluster.node(name)["metadata"]["labels"], "node.kubernetes.io/exclude-disruption": ""}
            cluster.change_metadata(NODES, name, labels=labels)
            cluster.set_failure(name, "not-ready")
        await asyncio.sleep(40)
        assert all("not-ready:NoExecute" in cluster.taints(name) for name in ("node-1", "node-2", "node-3"))


async def test_beta_label_follows_the_stable_label():
    async with FailingCluster().running() as cluster:
        labels = {**cluster.node()["metadata"]["labels"], "beta.kubernetes.io/os": "windows"}
        cluster.change_metadata(NODES, "node-0", labels=labels)
        await asyncio.sleep(1)
        assert cluster.node()["metadata"]["labels"]["beta.kubernetes.io/os"] == "linux"


async def test_pods_are_marked_again_after_a_failed_write():
    async with FailingCluster().running() as cluster:
        cluster.bind()
        await asyncio.sleep(5)
        transport = cluster.server.transport
        transport.reject = lambda method, path: (
            errors.forbidden(PODS, "", "no") if method == "PATCH" and "/pods/" in path else None
        )
        cluster.set_failure("node-0", "unreachable")
        await asyncio.sleep(70)
        assert cluster.node_ready()[0] == "Unknown"
        assert cluster.pod_ready() == "True"
        transport.reject = lambda _method, _path: None
        await asyncio.sleep(6)
        assert cluster.pod_ready() == "False"


async def test_node_whose_check_failed_is_checked_again(monkeypatch, caplog):
    observe, failed = NodeLifecycleController._observe, []

    def fail_once(self: NodeLifecycleController, node: Node) -> NodeHealth:
        if node.spec.unschedulable and not failed:
            failed.append(node.metadata.name)
            raise RuntimeError("broken")
        return observe(self, node)

    monkeypatch.setattr(NodeLifecycleController, "_observe", fail_once)
    async with FailingCluster().running() as cluster:
        cluster.set_failure("node-0", "unreachable")
        await asyncio.sleep(39)
        cluster.change_node("node-0", unschedulable=True)
        await asyncio.sleep(31)
        assert cluster.node_ready()[0] == "Unknown"
    assert failed == ["node-0"]
    assert "could not check node node-0" in caplog.text


async def test_node_write_is_repeated_after_a_conflict():
    async with FailingCluster().running() as cluster:
        rejected = []

        def reject(method: str, path: str) -> Any:
            if method == "PATCH" and path.endswith("/nodes/node-0") and len(rejected) < 3:
                rejected.append(path)
                return errors.conflict(NODES, "node-0", "the object has been modified")
            return None

        cluster.server.transport.reject = reject
        cluster.change_node("node-0", unschedulable=True)
        await asyncio.sleep(0.1)
        assert len(rejected) == 3
        assert cluster.taints() == {"unschedulable:NoSchedule"}


async def test_metrics_count_nodes_and_evictions_by_zone():
    async with FailingCluster(zones=("a",), region="").running() as cluster:
        cluster.set_failure("node-0", "not-ready")
        await asyncio.sleep(16)
        values = cluster.server.metrics.values("node_collector_")
    zone = ":\x00:a"
    assert values == {
        f"zone_size,{zone}": 3,
        f"zone_health,{zone}": pytest.approx(200 / 3),
        f"unhealthy_nodes_in_zone,{zone}": 1,
        f"evictions_total,{zone}": 1,
        "update_node_health_duration_seconds_count": 8,  # a healthy or tainted node is checked after a heartbeat only
        "update_all_nodes_health_duration_seconds_count": 4,
    }


async def test_taints_and_conditions_of_others_stay():
    """Status patches merge conditions by type; patches of taints replace the list, from which one was removed."""
    async with FailingCluster().running() as cluster:
        cluster.change_node("node-0", taints=[{"key": "dedicated", "effect": "NoSchedule"}])
        node = cluster.node()
        custom = {"type": "example.com/Healthy", "status": "True"}
        status = {**node["status"], "conditions": [*node["status"]["conditions"], custom]}
        cluster.store.update(NODES, {**node, "status": status})
        cluster.set_failure("node-0", "memory-pressure")
        await asyncio.sleep(1)
        assert cluster.taints() == {"dedicated:NoSchedule", "memory-pressure:NoSchedule"}
        cluster.set_failure("node-0", None)
        await asyncio.sleep(1)
        assert cluster.taints() == {"dedicated:NoSchedule"}
        cluster.set_failure("node-0", "unreachable")
        await asyncio.sleep(61)
        conditions = {condition["type"]: condition["status"] for condition in cluster.node()["status"]["conditions"]}
        assert conditions["Ready"] == "Unknown"
        assert conditions["example.com/Healthy"] == "True"
        assert "dedicated:NoSchedule" in cluster.taints()
