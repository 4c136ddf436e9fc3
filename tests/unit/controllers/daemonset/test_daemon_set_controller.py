"""The DaemonSet controller with an API server in memory and simulated kubelets, in virtual time."""

from __future__ import annotations

import asyncio
import itertools
import random
from collections.abc import AsyncIterator
from datetime import datetime, timedelta
from typing import Any

import pytest
from msgspec import structs

from kubeloop.controllers.daemonset.daemon_pods import PodPlacement
from kubeloop.controllers.daemonset.daemon_set_controller import BURST_REPLICAS, DaemonSetController
from kubeloop.controllers.daemonset.node_states import NodeTracker
from kubeloop.controllers.runtime.controller import StaleCache
from kubeloop.controllers.runtime.owners.owner_references import controller_index_key
from kubeloop.kube.feature_gates import FeatureGates
from kubeloop.kube.objects.api_types import ControllerRevision, Pod, convert, to_json
from kubeloop.kube.objects.resources import CONTROLLER_REVISIONS, DAEMON_SETS, NODES, PODS
from kubeloop.testing.virtual_time import VirtualClock
from kubeloop.tracing.recording.open_pod_records import OpenPodRecords
from kubeloop.tracing.recording.pod_recorder import standalone_pod_recorder
from kubeloop.tracing.recording.reconcile_recorder import ReconcileRecorder
from kubeloop.tracing.spans.trace import Link, Trace
from kubeloop.tracing.spans.traceparent import TRACEPARENT_ANNOTATION
from support.apiserver.faulty_transport import SentRequest, WatchFault, injected_error
from support.comparison import replay_server
from support.objects.daemon_sets import LABELS, NOW, daemon_set, daemon_set_body, node, rolling_update
from support.simulation.daemon_set_simulation import DaemonSetSimulation, node_of
from support.simulation.rollout_simulation import SimulationSettings
from support.simulation.set_clock import SetClock

pytestmark = pytest.mark.virtual_time
NO_EXECUTE = [{"key": "broken", "effect": "NoExecute"}]
NO_SCHEDULE = [{"key": "busy", "effect": "NoSchedule"}]
NAMES = ("node-0", "node-1", "node-2")


@pytest.fixture
async def cluster() -> AsyncIterator[DaemonSetSimulation]:
    """Three nodes and a running controller."""
    cluster = DaemonSetSimulation()
    for name in NAMES:
        cluster.add_node(name)
    cluster.start()
    yield cluster
    cluster.controller.check()
    await cluster.stop()


async def apply(cluster: DaemonSetSimulation, image: str = "agent:1", *, seconds: float = 10, **options: Any) -> None:
    cluster.apply(daemon_set_body(image=image, **options))
    await asyncio.sleep(seconds)


def on_nodes(image: str, names: tuple[str, ...] = NAMES) -> dict[str, list[str]]:
    return {name: [image] for name in names}


async def test_every_node_gets_a_pod_and_status_and_events_follow(cluster):
    await apply(cluster)
    assert cluster.pods_by_node() == on_nodes("agent:1")
    assert cluster.status() == {
        "currentNumberScheduled": 3,
        "desiredNumberScheduled": 3,
        "numberAvailable": 3,
        "numberMisscheduled": 0,
        "numberReady": 3,
        "observedGeneration": 1,
        "updatedNumberScheduled": 3,
    }
    assert cluster.reasons() == {"SuccessfulCreate": 3}
    (name,) = cluster.revisions()
    (revision,) = cluster.store.list(CONTROLLER_REVISIONS)
    hash_ = revision["metadata"]["labels"]["controller-revision-hash"]
    assert name == f"agent-{hash_}"
    assert {pod["metadata"]["labels"]["controller-revision-hash"] for pod in cluster.pods()} == {hash_}
    assert {pod["metadata"]["labels"]["pod-template-generation"] for pod in cluster.pods()} == {"1"}


async def test_nothing_is_written_when_nothing_changes(cluster):
    await apply(cluster)
    writes = len(cluster.server.requests)
    cluster.change_node("node-0", labels={"unrelated": "label"})
    cluster.controller.queue.add("ns/agent")
    await asyncio.sleep(60)
    assert len(cluster.server.requests) == writes


async def test_node_change_that_moves_no_pod_starts_no_sync(cluster, monkeypatch):
    await apply(cluster)
    enqueued = []
    monkeypatch.setattr(cluster.controller.queue, "add", lambda key, reason: enqueued.append((key, reason)))
    cluster.change_node("node-0", labels={"unrelated": "label"})
    await asyncio.sleep(1)
    assert enqueued == []
    cluster.change_node("node-0", taints=NO_EXECUTE)
    await asyncio.sleep(1)
    assert enqueued == [("ns/agent", "node changed")]


async def test_new_and_deleted_nodes(cluster):
    await apply(cluster)
    cluster.add_node("node-3")
    cluster.delete_node("node-0")
    await asyncio.sleep(10)
    assert cluster.pods_by_node() == on_nodes("agent:1", ("node-1", "node-2", "node-3"))
    assert cluster.status()["desiredNumberScheduled"] == 3


async def test_unbound_pod_of_a_deleted_node_is_deleted(cluster):
    cluster.pace = SimulationSettings(start=1000.0)
    await apply(cluster, seconds=0.1)
    cluster.delete_node("node-1")
    await asyncio.sleep(1)
    assert list(cluster.pods_by_node()) == ["node-0", "node-2"]


async def test_unbound_pod_of_a_node_deleted_before_the_start_is_deleted(cluster):
    cluster.pace = SimulationSettings(start=1000.0)
    await apply(cluster, seconds=0.1)
    await cluster.stop()
    cluster.delete_node("node-1")
    cluster.start()
    await asyncio.sleep(1)
    assert list(cluster.pods_by_node()) == ["node-0", "node-2"]


async def test_relabeled_nodes_gain_and_lose_their_pod(cluster):
    cluster.change_node("node-1", labels={"disk": "ssd"})
    await apply(cluster, pod={"nodeSelector": {"disk": "ssd"}})
    assert list(cluster.pods_by_node()) == ["node-1"]
    cluster.change_node("node-1", labels={})
    cluster.change_node("node-2", labels={"disk": "ssd"})
    await asyncio.sleep(10)
    assert list(cluster.pods_by_node()) == ["node-2"]
    assert cluster.status()["desiredNumberScheduled"] == 1


async def test_taints_evict_or_mark_pods_as_misscheduled(cluster):
    await apply(cluster)
    cluster.change_node("node-0", taints=NO_EXECUTE)
    cluster.change_node("node-1", taints=NO_SCHEDULE)
    await asyncio.sleep(10)
    assert list(cluster.pods_by_node()) == ["node-1", "node-2"]
    assert cluster.status()["numberMisscheduled"] == 1
    assert cluster.status()["desiredNumberScheduled"] == 1
    for name in NAMES[:2]:
        cluster.change_node(name, taints=[])
    await asyncio.sleep(10)
    assert cluster.pods_by_node() == on_nodes("agent:1")
    assert cluster.status()["numberMisscheduled"] == 0


async def test_rolling_update_replaces_one_pod_at_a_time_and_keeps_revisions(cluster):
    await apply(cluster)
    fewest = 3

    def count(_change: Any) -> None:
        nonlocal fewest
        fewest = min(fewest, sum(not pod["metadata"].get("deletionTimestamp") for pod in cluster.pods()))

    cluster.store.subscribe(PODS, count)
    await apply(cluster, "agent:2", seconds=30)
    assert cluster.pods_by_node() == on_nodes("agent:2")
    assert fewest == 2
    assert sorted(cluster.revisions().values()) == [1, 2]
    assert cluster.status()["updatedNumberScheduled"] == 3


async def test_surge_starts_the_new_pod_before_the_old_one_ends(cluster):
    limits = rolling_update(maxSurge=1, maxUnavailable=0)
    await apply(cluster, **limits)
    most = 0

    def check(_change: Any) -> None:
        nonlocal most
        pods = cluster.pods_by_node()
        assert set(pods) == set(NAMES)
        assert all(len(images) <= 2 for images in pods.values())
        most = max(most, sum(map(len, pods.values())))

    cluster.store.subscribe(PODS, check)
    await apply(cluster, "agent:2", seconds=30, **limits)
    assert cluster.pods_by_node() == on_nodes("agent:2")
    assert most == 4


async def test_on_delete_replaces_only_deleted_pods(cluster):
    on_delete = {"updateStrategy": {"type": "OnDelete"}}
    await apply(cluster, **on_delete)
    await apply(cluster, "agent:2", **on_delete)
    assert cluster.pods_by_node() == on_nodes("agent:1")
    assert cluster.status().get("updatedNumberScheduled") is None
    (pod,) = (pod for pod in cluster.pods() if node_of(pod) == "node-1")
    cluster.server.delete(PODS, pod["metadata"]["name"])
    await asyncio.sleep(10)
    assert cluster.pods_by_node()["node-1"] == ["agent:2"]
    assert cluster.status()["updatedNumberScheduled"] == 1


async def test_rollback_reuses_the_revision_with_a_new_number(cluster):
    for image in ("agent:1", "agent:2", "agent:1"):
        await apply(cluster, image, seconds=30)
    assert cluster.pods_by_node() == on_nodes("agent:1")
    assert sorted(cluster.revisions().values()) == [2, 3]


async def test_history_limit_keeps_revisions_of_live_pods(cluster):
    options = {"updateStrategy": {"type": "OnDelete"}, "revisionHistoryLimit": 1}
    for number in range(1, 5):
        await apply(cluster, f"agent:{number}", **options)
    assert sorted(cluster.revisions().values()) == [1, 4]  # the pods have the first
    cluster.apply(daemon_set_body(image="agent:4", revisionHistoryLimit=1, **rolling_update(maxUnavailable=3)))
    await asyncio.sleep(30)
    assert sorted(cluster.revisions().values()) == [1, 4]
    await apply(cluster, "agent:5", revisionHistoryLimit=1, **rolling_update(maxUnavailable=3))
    assert sorted(cluster.revisions().values()) == [4, 5]


async def test_min_ready_seconds_delay_availability_and_the_update(cluster):
    await apply(cluster, minReadySeconds=60, seconds=30)
    assert (cluster.status()["numberReady"], cluster.status()["numberUnavailable"]) == (3, 3)
    await asyncio.sleep(35)
    assert cluster.status()["numberAvailable"] == 3
    await apply(cluster, "agent:2", minReadySeconds=60, seconds=50)
    assert sorted(cluster.pods_by_node().values()) == [["agent:1"], ["agent:1"], ["agent:2"]]
    await asyncio.sleep(180)
    assert cluster.pods_by_node() == on_nodes("agent:2")


class _UnevenClock(VirtualClock):
    """A clock that moves between two reads of one sync, and that a timer may precede by up to a millisecond."""

    def __init__(self, seed: int) -> None:
        super().__init__()
        self._rng = random.Random(seed)
        self._at, self._offset_seconds = 0.0, 0.0

    def now(self) -> datetime:
        at = asyncio.get_running_loop().time()
        if at != self._at:
            self._at, self._offset_seconds = at, -self._rng.uniform(0.0, 0.001)
        self._offset_seconds += self._rng.uniform(0.0, 0.0005)
        return super().now() + timedelta(seconds=self._offset_seconds)


@pytest.mark.parametrize("limits", [{"maxSurge": 3, "maxUnavailable": 0}, {"maxUnavailable": 2}])
async def test_update_continues_if_a_pod_becomes_available_during_a_sync(limits):
    for seed in range(20):
        cluster = DaemonSetSimulation(seed, clock=_UnevenClock(seed))
        for number in range(9):
            cluster.add_node(f"node-{number}")
        cluster.start()
        await apply(cluster, **rolling_update(**limits))
        await apply(cluster, "agent:2", minReadySeconds=1, seconds=60, **rolling_update(**limits))
        assert {*itertools.chain(*cluster.pods_by_node().values())} == {"agent:2"}, seed
        assert cluster.status()["numberAvailable"] == 9
        await cluster.stop()


async def test_failed_pods_are_replaced_with_backoff(cluster):
    cluster.final_phase = lambda pod: "Failed" if node_of(pod) == "node-0" else ""
    await apply(cluster, seconds=60)
    failures = cluster.reasons()["FailedDaemonPod"]
    assert 4 <= failures <= 7  # after 1, 2, 4, 8, 16 seconds
    assert cluster.status()["numberReady"] == 2
    event = next(event for event in cluster.events.events if event.reason == "FailedDaemonPod")
    assert event.message.startswith("Found failed daemon pod ns/agent-")
    assert event.message.endswith(" on node node-0, will try to kill it")
    cluster.final_phase = lambda pod: ""
    await asyncio.sleep(200)
    assert cluster.status()["numberReady"] == 3


async def test_succeeded_pods_are_replaced(cluster):
    cluster.final_phase = lambda pod: "Succeeded" if len(cluster.events.events) < 4 else ""
    await apply(cluster, seconds=60)
    assert cluster.status()["numberReady"] == 3
    assert cluster.reasons()["SucceededDaemonPod"] == cluster.reasons()["SuccessfulDelete"] > 0


async def test_orphans_are_adopted_and_pods_of_other_labels_released(cluster):
    spec = {"nodeName": "node-1", "containers": [{"name": "c", "image": "agent:0"}]}
    cluster.server.api.create(PODS.path("ns"), {"metadata": {"name": "orphan", "labels": LABELS}, "spec": spec})
    await apply(cluster, updateStrategy={"type": "OnDelete"})
    assert cluster.pods_by_node() == on_nodes("agent:1") | {"node-1": ["agent:0"]}
    (released,) = (pod["metadata"]["name"] for pod in cluster.pods() if node_of(pod) == "node-2")
    path = PODS.path("ns", released)
    cluster.server.api.succeed("PATCH", path, {"metadata": {"labels": {"app": "other"}}})
    await asyncio.sleep(10)
    assert cluster.pods_by_node()["node-2"] == ["agent:1", "agent:1"]
    assert not cluster.store.get(PODS, "ns", released)["metadata"].get("ownerReferences")


async def test_failed_creations_start_few_requests_and_are_reported(cluster):
    for number in range(3, 40):
        cluster.add_node(f"node-{number}")
    rejected: list[str] = []

    def reject(method: str, path: str) -> Any:
        if method == "POST" and path == PODS.path("ns"):
            rejected.append(path)
            return injected_error(403)
        return None

    accepts, cluster.server.transport.reject = cluster.server.transport.reject, reject
    await apply(cluster, seconds=1)
    assert len(rejected) == cluster.reasons()["FailedCreate"] < 20  # each try sends one of 40 requests
    assert cluster.status()["desiredNumberScheduled"] == 40
    cluster.server.transport.reject = accepts
    await asyncio.sleep(60)
    assert cluster.status()["numberReady"] == 40


async def test_pod_that_is_gone_before_its_deletion_is_no_error(cluster):
    await apply(cluster)

    def delete_first(request: SentRequest) -> None:
        if request.method == "DELETE":
            cluster.store.delete(PODS, "ns", request.path.rpartition("/")[2])

    cluster.server.transport.on_send = delete_first
    await apply(cluster, "agent:2", seconds=60)
    assert cluster.pods_by_node() == on_nodes("agent:2")
    assert not any(cluster.server.metrics.values("kubeloop_reconcile_errors").values())


async def test_daemon_set_that_is_created_again_under_its_name_gets_pods_of_its_own(cluster):
    await apply(cluster)
    cluster.server.transport.watch_delay_seconds = 1.0
    cluster.store.delete(DAEMON_SETS, "ns", "agent")
    for pod in cluster.pods():
        cluster.store.delete(PODS, "ns", pod["metadata"]["name"])
    await apply(cluster, "agent:2", seconds=30)
    uid = cluster.store.get(DAEMON_SETS, "ns", "agent")["metadata"]["uid"]
    assert cluster.pods_by_node() == on_nodes("agent:2")
    assert {pod["metadata"]["ownerReferences"][0]["uid"] for pod in cluster.pods()} == {uid}
    assert cluster.status()["numberReady"] == 3


async def test_pods_are_created_in_bursts(cluster):
    for number in range(3, 600):
        cluster.add_node(f"node-{number}")
    sizes: set[int] = set()
    expect = cluster.controller.expectations.expect_creations

    def record(key: str, creations: int) -> None:
        sizes.add(creations)
        expect(key, creations)

    cluster.controller.expectations.expect_creations = record
    await apply(cluster, seconds=60)
    assert sizes == {BURST_REPLICAS, 100}
    assert cluster.status()["numberReady"] == 600


async def test_complete_nodes_are_not_considered_again(cluster):
    await apply(cluster)
    (tracker,) = cluster.controller._trackers.values()
    assert (tracker.complete, list(tracker.unsettled)) == (set(NAMES), [])


async def test_zone_label_of_a_bound_pod_starts_no_sync(cluster, monkeypatch):
    await apply(cluster)
    enqueued: list[str] = []
    monkeypatch.setattr(cluster.controller.queue, "add", lambda key, reason: enqueued.append(reason))
    path = PODS.path("ns", cluster.pods()[0]["metadata"]["name"])
    cluster.server.api.succeed("PATCH", path, {"metadata": {"labels": {"topology.kubernetes.io/zone": "a"}}})
    await asyncio.sleep(1)
    assert enqueued == []
    cluster.server.api.succeed("PATCH", path, {"metadata": {"labels": {"controller-revision-hash": "other"}}})
    await asyncio.sleep(1)
    assert enqueued == ["pod changed"]


async def test_state_of_a_node_is_computed_again_after_an_adoption(cluster, monkeypatch):
    await apply(cluster)
    (tracker,) = cluster.controller._trackers.values()
    monkeypatch.setattr(cluster.controller.queue, "add", lambda key, reason: None)
    spec = {"nodeName": "node-1", "containers": [{"name": "c", "image": "agent:0"}]}
    cluster.server.api.create(PODS.path("ns"), {"metadata": {"name": "orphan", "labels": LABELS}, "spec": spec})
    await asyncio.sleep(1)
    await cluster.controller.reconcile("ns/agent")
    assert tracker.unsettled == {"node-1": None}


async def test_empty_selector_is_reported(cluster):
    obj = daemon_set_body() | {"metadata": {"name": "agent", "namespace": "ns", "uid": "u", "generation": 1}}
    obj["spec"]["selector"] = {}
    cluster.store.create(DAEMON_SETS, obj)
    await asyncio.sleep(10)
    assert cluster.reasons() == {"SelectingAll": 1}
    assert cluster.pods() == []


async def test_deleted_daemon_set_is_left_to_the_garbage_collector(cluster):
    await apply(cluster)
    cluster.server.delete(DAEMON_SETS, "agent", "Foreground")
    (pod, *_others) = cluster.pods()
    cluster.server.delete(PODS, pod["metadata"]["name"])
    await asyncio.sleep(10)
    assert len(cluster.pods()) == 2
    cluster.store.delete(DAEMON_SETS, "ns", "agent")
    await asyncio.sleep(10)
    assert cluster.controller._trackers == {}


async def test_daemon_set_deleted_during_its_first_sync_leaves_no_state(cluster):
    continued = asyncio.Event()

    async def hold(request: SentRequest) -> None:
        if request.method == "POST" and request.path.endswith("/controllerrevisions"):
            await continued.wait()

    cluster.server.transport.before_request = hold
    await apply(cluster)
    cluster.store.delete(DAEMON_SETS, "ns", "agent")
    await asyncio.sleep(10)
    continued.set()
    await asyncio.sleep(10)
    assert cluster.revisions() != []
    assert (cluster.pods(), cluster.controller._trackers) == ([], {})


async def test_pods_are_linked_with_the_reconcile_that_created_them(clock):
    finished: list[Trace] = []
    reconciles = ReconcileRecorder(
        clock=clock, rng=random.Random(2), on_finished=lambda record, sampled: finished.append(record.trace())
    )
    cluster = DaemonSetSimulation(
        traces=reconciles, pod_traces=standalone_pod_recorder(OpenPodRecords(clock=clock), rng=random.Random(3))
    )
    cluster.add_node("node-0")
    cluster.start()
    await apply(cluster)
    await cluster.stop()
    (pod,) = cluster.pods()
    parent = pod["metadata"]["annotations"][TRACEPARENT_ANNOTATION]
    (created,) = (trace.spans[0] for trace in finished if Link(parent, "pod") in trace.spans[0].links)
    assert created.name == "reconcile daemonset"
    assert [action.split()[:2] for action in created.attributes["kubeloop.actions"]] == [
        ["create", "controllerrevision"],
        ["create", "pod"],
        ["update", "status"],
    ]


@pytest.mark.parametrize("enabled", [True, False])
async def test_sync_is_postponed_while_the_caches_are_stale_if_the_gate_is_on(enabled):
    gates = FeatureGates.parse({"StaleControllerConsistencyDaemonSet": enabled})
    cluster = DaemonSetSimulation(pace=SimulationSettings(watch=5.0), gates=gates)
    cluster.add_node("node-0")
    cluster.start()
    await apply(cluster, seconds=60)
    assert cluster.pods_by_node() == on_nodes("agent:1", ("node-0",))
    cluster.controller.consistency.wrote_at("ns/agent", "u", "pods", "1000000")
    if enabled:
        with pytest.raises(StaleCache):
            await cluster.controller.reconcile("ns/agent")
    else:
        await cluster.controller.reconcile("ns/agent")
    await cluster.stop()


async def test_sync_is_postponed_until_the_cache_shows_an_adoption(cluster, monkeypatch):
    await apply(cluster)
    monkeypatch.setattr(cluster.controller.queue, "add", lambda key, reason: None)
    spec = {"nodeName": "node-1", "containers": [{"name": "c", "image": "agent:0"}]}
    cluster.server.api.create(PODS.path("ns"), {"metadata": {"name": "orphan", "labels": LABELS}, "spec": spec})
    await asyncio.sleep(1)
    cluster.server.transport.watch_faults.append(WatchFault("silence", resource="pods"))
    cluster.server.transport.break_watches("pods")
    await asyncio.sleep(5)
    await cluster.controller.reconcile("ns/agent")
    with pytest.raises(StaleCache) as stale:
        await cluster.controller.reconcile("ns/agent")
    assert stale.value.group_resource == "pods"
    cluster.server.transport.break_watches("pods")
    await asyncio.sleep(5)
    await cluster.controller.reconcile("ns/agent")


async def test_restarted_controller_changes_nothing(cluster):
    await apply(cluster)
    names = {pod["metadata"]["name"] for pod in cluster.pods()}
    writes = len(cluster.server.requests)
    await cluster.stop()
    cluster.start()
    await asyncio.sleep(60)
    assert {pod["metadata"]["name"] for pod in cluster.pods()} == names
    assert len(cluster.server.requests) == writes


# --- events to keys ---------------------------------------------------------------------------------------------------

TRACKED_NODE = "node-0"
EVICTING = {"labels": {"disk": "ssd"}, "taints": NO_EXECUTE}
REPELLING = {"labels": {"disk": "ssd"}, "taints": NO_SCHEDULE}
FITTING: dict[str, Any] = {"labels": {"disk": "ssd"}}


def owned_pod(name: str = "p", version: str = "1", *, owner: str = "u", deleted: bool = False, **spec: Any) -> Pod:
    """Return a pod on node-0 that a DaemonSet controls, by UID; "" for none."""
    reference = {"apiVersion": "apps/v1", "kind": "DaemonSet", "name": "agent", "uid": owner, "controller": True}
    metadata = {
        "name": name,
        "namespace": "ns",
        "uid": name,
        "resourceVersion": version,
        "labels": spec.pop("labels", LABELS),
        "ownerReferences": [reference] if owner else [],
    }
    if deleted:
        metadata["deletionTimestamp"] = "2026-01-01T11:00:00Z"
    return convert(Pod, {"metadata": metadata, "spec": {"nodeName": TRACKED_NODE, **spec}})


class Events:
    """A controller with the DaemonSet `agent`, for nodes with the label disk=ssd, that was synced before."""

    def __init__(self, *, misscheduled: int = 0, synced: bool = True) -> None:
        self.queue = replay_server.RecordingQueue()
        context = replay_server.replay_context(replay_server.ReplayServer({"state": {}}), SetClock(NOW), self.queue)
        self.informers = context.informers
        self.controller = DaemonSetController(context)
        agent = daemon_set(pod={"nodeSelector": {"disk": "ssd"}})
        agent = structs.replace(agent, status=structs.replace(agent.status, number_misscheduled=misscheduled))
        self.informers.informer(DAEMON_SETS).apply("ADDED", agent, 0)
        self.tracker = NodeTracker()
        self.tracker.update(1, lambda: PodPlacement(agent, comparison_operators=False), ())
        if synced:
            self.controller._trackers[controller_index_key(agent)] = self.tracker

    def deliver(self, resource: Any, verb: str, obj: Any) -> list[str]:
        """Deliver an event; return the keys that it enqueues."""
        self.queue.calls.clear()
        self.tracker.unsettled.clear()
        self.informers.informer(resource).apply(verb, obj, 0)
        self.controller.check()
        return [call["key"] for call in self.queue.calls]


@pytest.mark.parametrize(
    ("fields", "has_pod", "misscheduled", "enqueued"),
    [
        pytest.param(FITTING, False, 0, True, id="needs a pod"),
        pytest.param(FITTING, True, 0, False, id="has its pod"),
        pytest.param(FITTING, True, 1, True, id="has its pod, others are on wrong nodes"),
        pytest.param({}, False, 0, False, id="needs no pod"),
        pytest.param({}, False, 1, False, id="needs no pod, others are on wrong nodes"),
        pytest.param({}, True, 0, True, id="has a pod too many"),
        pytest.param(REPELLING, False, 0, False, id="taint repels new pods"),
        pytest.param(REPELLING, True, 0, False, id="taint lets the pod run"),
        pytest.param(EVICTING, True, 0, True, id="taint evicts the pod"),
    ],
)
@pytest.mark.parametrize("verb", ["ADDED", "MODIFIED"])
async def test_node_event_enqueues_daemon_sets_with_a_wrong_number_of_pods(
    verb, fields, has_pod, misscheduled, enqueued
):
    events = Events(misscheduled=misscheduled)
    if has_pod:
        events.deliver(PODS, "ADDED", owned_pod())
    if verb == "MODIFIED":
        events.deliver(NODES, "ADDED", node(labels={"other": "label"}, taints=[{"key": "k", "effect": "NoSchedule"}]))
    assert events.deliver(NODES, verb, node(**fields)) == (["ns/agent"] if enqueued else [])
    assert TRACKED_NODE in events.tracker.unsettled, "its state is computed again"


@pytest.mark.parametrize(
    ("fields", "has_pod", "enqueued"),
    [(FITTING, False, True), ({}, True, True), ({}, False, False), (FITTING, True, True)],
)
async def test_deleted_node_enqueues_daemon_sets_that_had_or_needed_a_pod(fields, has_pod, enqueued):
    events = Events()
    events.deliver(NODES, "ADDED", node(**fields))
    if has_pod:
        events.deliver(PODS, "ADDED", owned_pod())
    assert events.deliver(NODES, "DELETED", node(**fields)) == (["ns/agent"] if enqueued else [])
    assert TRACKED_NODE in events.tracker.unsettled


@pytest.mark.parametrize(
    ("after", "considered"),
    [
        ({"labels": {"disk": "ssd"}}, False),
        ({"labels": {"disk": "hdd"}}, True),
        ({"labels": {"disk": "ssd"}, "taints": NO_SCHEDULE}, True),
    ],
)
async def test_only_labels_and_taints_of_nodes_matter(after, considered):
    events = Events()
    events.deliver(NODES, "ADDED", node(**FITTING))
    events.deliver(NODES, "MODIFIED", node(**after))
    assert (TRACKED_NODE in events.tracker.unsettled) is considered


async def test_node_events_before_the_first_sync_enqueue_nothing():
    events = Events(synced=False)
    assert events.deliver(NODES, "ADDED", node(**FITTING)) == []
    assert events.deliver(NODES, "DELETED", node(**FITTING)) == []


UPDATED, GONE = "MODIFIED", "DELETED"


@pytest.mark.parametrize(
    ("former", "verb", "pod", "keys", "observed", "nodes"),
    [
        pytest.param(None, "ADDED", owned_pod(), ["ns/agent"], (1, 1), {"node-0"}, id="added"),
        pytest.param(None, "ADDED", owned_pod(owner="x"), [], (2, 1), set(), id="added, of another owner"),
        pytest.param(None, "ADDED", owned_pod(owner=""), ["ns/agent"], (2, 1), set(), id="orphan added"),
        pytest.param(
            None, "ADDED", owned_pod(deleted=True), ["ns/agent"], (2, 0), {"node-0"}, id="added while terminating"
        ),
        pytest.param(None, "ADDED", owned_pod(owner="", deleted=True), [], (2, 1), set(), id="terminating orphan"),
        pytest.param(owned_pod(), UPDATED, owned_pod(), [], (2, 1), set(), id="the same version"),
        pytest.param(
            owned_pod(),
            UPDATED,
            owned_pod(version="2", nodeName="node-1"),
            ["ns/agent"],
            (2, 1),
            {"node-0", "node-1"},
            id="on another node",
        ),
        pytest.param(
            owned_pod(),
            UPDATED,
            owned_pod(version="2", deleted=True),
            ["ns/agent"],
            (2, 0),
            {"node-0"},
            id="marked for deletion",
        ),
        pytest.param(
            owned_pod(),
            UPDATED,
            owned_pod(version="2", labels={"app": "x"}),
            ["ns/agent"],
            (2, 1),
            {"node-0"},
            id="other labels",
        ),
        pytest.param(
            owned_pod(),
            UPDATED,
            owned_pod(version="2", owner=""),
            ["ns/agent", "ns/agent"],
            (2, 1),
            {"node-0"},
            id="released",
        ),
        pytest.param(owned_pod(), GONE, owned_pod(version="2"), ["ns/agent"], (2, 0), {"node-0"}, id="deleted"),
        pytest.param(
            owned_pod(owner="x"), GONE, owned_pod(owner="x"), [], (2, 1), set(), id="deleted, of another owner"
        ),
    ],
)
async def test_pod_event_enqueues_its_daemon_set_and_meets_expectations(former, verb, pod, keys, observed, nodes):
    events = Events()
    if former is not None:
        events.deliver(PODS, "ADDED", former)
    creations, deletions = 2, 1
    events.controller.expectations.expect("ns/agent", creations, [f"ns/{name}" for name in "p"[:deletions]])
    assert events.deliver(PODS, verb, pod) == keys
    expected = events.controller.expectations._expected["ns/agent"]
    assert (expected.creations, expected.deletions) == observed
    assert set(events.tracker.unsettled) == nodes


@pytest.mark.parametrize(
    ("owner", "deleted", "enqueued"), [("", False, True), ("", True, False), ("u", False, False), ("x", False, False)]
)
async def test_added_revision_without_owner_enqueues_its_possible_owners(owner, deleted, enqueued):
    metadata = to_json(owned_pod("r", owner=owner, deleted=deleted).metadata)
    revision = convert(ControllerRevision, {"metadata": metadata, "revision": 1})
    events = Events()
    assert events.deliver(CONTROLLER_REVISIONS, "ADDED", revision) == (["ns/agent"] if enqueued else [])
    assert events.deliver(CONTROLLER_REVISIONS, "DELETED", revision) == (["ns/agent"] if owner == "u" else [])


async def test_deleted_daemon_set_is_forgotten():
    events = Events()
    agent = events.informers.informer(DAEMON_SETS).store.get("ns/agent")
    events.controller.expectations.expect("ns/agent", 1, [])
    events.controller.consistency.wrote_at("ns/agent", "u", PODS.group_resource, "7")
    events.controller._backoff.deleted("u", 1, TRACKED_NODE, NOW)
    assert events.deliver(DAEMON_SETS, "DELETED", agent) == ["ns/agent"]
    assert events.controller._trackers == {}
    assert events.controller.expectations.met("ns/agent")
    events.controller.consistency.ensure_ready("ns/agent")
    assert events.controller._backoff.seconds("u", 1, TRACKED_NODE, NOW) == Events().controller._backoff.seconds(
        "u", 1, TRACKED_NODE, NOW
    )


async def test_check_reports_pods_that_differ_from_the_store():
    events = Events()
    events.deliver(PODS, "ADDED", owned_pod())
    events.informers.informer(PODS).store.remove("ns/p")
    with pytest.raises(AssertionError):
        events.controller.check()
