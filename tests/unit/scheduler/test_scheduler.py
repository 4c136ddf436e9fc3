"""Scheduling loop: binding, failures, bindings in flight, metrics and traces."""

from __future__ import annotations

import asyncio
import itertools

import pytest

from kubeloop.kube.objects.api_types import Pod
from kubeloop.kube.objects.resources import DEVICE_CLASSES, RESOURCE_CLAIMS, RESOURCE_SLICES
from kubeloop.scheduler.devices.cluster_devices import ClusterDevices
from kubeloop.scheduler.lister_resources import LISTER_RESOURCES
from kubeloop.scheduler.plugins.dynamic_resources.dynamic_resources import DynamicResources
from kubeloop.tracing.spans.pod_record import AttemptFacts, Phase
from support.apiserver.faulty_transport import WatchFault, injected_error
from support.objects.devices import claim, device, device_class, device_slice
from support.traces.disabled_recorders import DisabledPodRecorder

pytestmark = pytest.mark.virtual_time


async def test_pods_are_bound_to_nodes_with_capacity(cluster, scheduling):
    for number in range(3):
        cluster.node(f"n{number}", cpu="1")
    async with scheduling() as scheduler:
        for number in range(6):
            cluster.pod(f"p{number}", cpu="500m")
        await asyncio.sleep(0.5)
        assert sorted(node for _, node in cluster.bindings) == ["n0", "n0", "n1", "n1", "n2", "n2"]
        assert [reason for _, reason, _ in cluster.events] == ["Scheduled"] * 6
        assert cluster.events[0][2] == f"Successfully assigned default/p0 to {cluster.node_of('default/p0')}"
        assert scheduler.cache.assumed_pods() == []
        scheduler.cache.check()
        scheduler.queue.check()


async def test_unschedulable_pod_is_bound_after_a_node_is_added(cluster, scheduling):
    cluster.node("small", cpu="1")
    async with scheduling():
        cluster.pod("big", cpu="2", metadata={"generation": 3})
        await asyncio.sleep(0.5)
        message = "0/1 nodes are available: 1 Insufficient cpu."
        assert [(key, reason) for key, reason, _ in cluster.events] == [("default/big", "FailedScheduling")]
        assert cluster.events[0][2].startswith(message)
        (key, status), *_ = cluster.patches
        assert key == "default/big"
        condition = status["conditions"][0]
        assert (condition["type"], condition["status"], condition["reason"]) == (
            "PodScheduled",
            "False",
            "Unschedulable",
        )
        assert condition["message"].startswith(message)
        assert condition["observedGeneration"] == 3
        cluster.node("large", cpu="4")
        await asyncio.sleep(2)
        assert cluster.bindings == [("default/big", "large")]


async def test_urgent_work_is_pending_until_bind_requests_are_sent(cluster, scheduling):
    cluster.node("n")
    states: list[tuple[int, bool]] = []
    async with scheduling(max_bindings_in_flight=2) as scheduler:
        assert not scheduler.has_urgent_work
        sent: list[str] = []

        async def slow_binding(key: str, node: str) -> None:
            sent.append(key)
            await asyncio.sleep(1)

        cluster.before_bind = slow_binding
        for name in "abc":
            cluster.pod(name)
        async with asyncio.timeout(0.5):
            while len(sent) < 2:
                await asyncio.sleep(0)
                states.append((len(sent), scheduler.has_urgent_work))
        await asyncio.sleep(0.5)
        assert not scheduler.has_urgent_work  # the third pod waits for a slot
        assert (0, True) in states
        await asyncio.sleep(5)
        assert len(cluster.bindings) == 3
        assert not scheduler.has_urgent_work
    assert not scheduler.has_urgent_work


@pytest.mark.parametrize("cpu", ["1m", "1000"])  # bound, unschedulable
async def test_turn_that_ends_urgent_work_is_reported(cluster, scheduling, cpu):
    cluster.node("n", cpu="4")
    urgent: list[bool] = []
    async with scheduling(turn_ended=lambda: urgent.append(scheduler.has_urgent_work)) as scheduler:
        await asyncio.sleep(1)
        urgent.clear()
        cluster.pod("p", cpu=cpu)
        while not scheduler.has_urgent_work:
            await asyncio.sleep(0)
        while scheduler.has_urgent_work:
            assert False not in urgent
            await asyncio.sleep(0)
        assert False in urgent


async def test_scheduler_is_binding_until_a_moment_after_a_bind_request(cluster, scheduling):
    cluster.node("n")

    async def slow_binding(key: str, node: str) -> None:
        await asyncio.sleep(1)

    cluster.before_bind = slow_binding
    async with scheduling() as scheduler:
        await asyncio.sleep(1)
        assert not scheduler.is_binding
        cluster.pod("p")
        for seconds, is_binding in ((0.5, True), (0.55, True), (0.1, False)):
            await asyncio.sleep(seconds)
            assert scheduler.is_binding == is_binding


async def test_scheduler_waits_for_busy_server_while_bind_requests_are_slow(cluster, scheduling):
    cluster.node("n")
    states: list[bool] = []
    numbers = itertools.count()
    async with scheduling() as scheduler:

        async def bind(seconds: float) -> bool:
            async def slow_binding(key: str, node: str) -> None:
                await asyncio.sleep(seconds)
                states.append(scheduler.waits_for_busy_server)

            cluster.before_bind = slow_binding
            for _ in range(20):
                cluster.pod(f"p-{next(numbers)}", cpu="10m")
                await asyncio.sleep(0.05)
            return states[-1]

        assert not await bind(0.01)
        assert await bind(0.1)
        await asyncio.sleep(1)
        assert not scheduler.waits_for_busy_server  # no pod was bound recently
        assert not await bind(0.01)


async def test_message_without_nodes(cluster, scheduling):
    async with scheduling():
        cluster.pod("p")
        await asyncio.sleep(0.5)
        assert cluster.events == [("default/p", "FailedScheduling", "no nodes available to schedule pods")]
        assert cluster.patches[0][1]["conditions"][0]["reason"] == "Unschedulable"


@pytest.mark.parametrize("resource", ["pods", "nodes", *sorted(r.plural for r in LISTER_RESOURCES.values())])
async def test_first_cycle_waits_for_each_informer(cluster, scheduling, resource):
    loop = asyncio.get_running_loop()
    start, bound_at = loop.time(), []
    cluster.before_bind = lambda key, node: bound_at.append(loop.time())
    cluster.server.transport.watch_faults.append(WatchFault("silence", resource=resource))  # a list after 30 s
    cluster.node("n")
    cluster.pod("p")
    async with scheduling():
        await asyncio.sleep(30)
    assert [at - start >= 30 for at in bound_at] == [True]
    assert [reason for _, reason, _ in cluster.events] == ["Scheduled"]


async def test_pods_of_other_schedulers_are_ignored(cluster, scheduling):
    cluster.node("n")
    async with scheduling():
        cluster.pod("theirs", schedulerName="theirs")
        await asyncio.sleep(5)
        assert cluster.bindings == []
        assert cluster.events == []


async def test_gated_pod_is_bound_after_its_gates_are_removed(cluster, scheduling):
    cluster.node("n")
    async with scheduling():
        cluster.pod("p", schedulingGates=[{"name": "wait"}])
        await asyncio.sleep(5)
        assert cluster.bindings == []
        cluster.change_pod("default/p", schedulingGates=[])
        await asyncio.sleep(0.5)
        assert cluster.bindings == [("default/p", "n")]


@pytest.mark.parametrize(("enabled", "bound"), [(True, 1), (False, 4)])
async def test_pod_level_resources_count_if_their_gate_is_on(cluster, scheduling, enabled, bound):
    """Pods that are bound before the scheduler starts, added, updated in the queue or assumed: all count alike."""
    cluster.node("n", cpu="4")
    resources = {"requests": {"cpu": "3"}}
    cluster.pod("first", cpu="1", nodeName="n", resources=resources)
    gates = {"PodLevelResources": enabled, "InPlacePodLevelResourcesVerticalScaling": enabled}
    async with scheduling(gates=gates):
        gated = [{"name": "wait"}]
        cluster.pod("second", cpu="1", resources=resources, schedulingGates=gated)
        await asyncio.sleep(0.1)
        cluster.change_pod("default/second", schedulingGates=[])
        for name in ("third", "fourth", "fifth"):
            cluster.pod(name, cpu="1", resources=resources)
        await asyncio.sleep(30)
        assert sum(cluster.node_of(pod.key) == "n" for pod in cluster.pods()) == bound


async def test_failed_binding_releases_the_node_and_is_retried(cluster, scheduling):
    cluster.node("n", cpu="1")
    failures = [injected_error(500)]
    cluster.server.transport.reject = lambda method, path: (
        failures.pop() if failures and path.endswith("/binding") else None
    )
    async with scheduling() as scheduler:
        cluster.pod("p", cpu="1")
        await asyncio.sleep(0.1)
        assert cluster.bindings == []
        assert scheduler.cache.assumed_pods() == []
        assert cluster.events[0][1] == "FailedScheduling"
        assert 'running Bind plugin "DefaultBinder"' in cluster.events[0][2]
        assert cluster.patches[0][1]["conditions"][0]["reason"] == "SchedulerError"
        await asyncio.sleep(5)
        assert cluster.bindings == [("default/p", "n")]


async def test_binding_with_lost_response_counts_as_bound(cluster, scheduling):
    cluster.node("n")
    cluster.lost_responses = 1
    async with scheduling() as scheduler:
        cluster.pod("p")
        await asyncio.sleep(5)
        assert cluster.bindings == [("default/p", "n")]
        assert [reason for _, reason, _ in cluster.events] == ["Scheduled"]
        assert scheduler.queue.in_flight.keys() == []
        scheduler.cache.check()


async def test_pod_deleted_while_binding_is_forgotten(cluster, scheduling):
    cluster.node("n", cpu="1")
    cluster.before_bind = lambda key, node: asyncio.sleep(1)
    async with scheduling() as scheduler:
        cluster.pod("p", cpu="1")
        await asyncio.sleep(0.5)
        cluster.delete_pod("default/p")
        await asyncio.sleep(0.1)
        assert scheduler.cache.pods() == {}
        await asyncio.sleep(5)
        assert cluster.bindings == []
        assert scheduler.queue.get("default/p") is None
        assert scheduler.queue.in_flight.keys() == []


async def test_pod_that_another_scheduler_binds_meanwhile_is_not_requeued(cluster, scheduling):
    cluster.node("n")
    cluster.node("other", unschedulable=True)

    async def bind_elsewhere(key: str) -> None:
        cluster.change_pod(key, nodeName="other")
        await asyncio.sleep(1)  # until the informer shows it

    cluster.before_bind = lambda key, node: bind_elsewhere(key)
    async with scheduling() as scheduler:
        cluster.pod("p")
        await asyncio.sleep(5)
        assert scheduler.queue.get("default/p") is None
        assert scheduler.queue.in_flight.keys() == []
        assert [(pod.key, pod.spec.node_name) for pod in scheduler.cache.pods().values()] == [("default/p", "other")]
        assert cluster.events == []
        assert cluster.patches == []


async def test_failure_keeps_the_transition_time_of_a_condition_set_meanwhile(cluster, scheduling):
    cluster.node("n")
    since = "2025-12-24T00:00:00Z"
    condition = {"type": "PodScheduled", "status": "False", "reason": "Unschedulable", "lastTransitionTime": since}

    async def fail(key: str) -> None:
        cluster.change_pod(key, status={"phase": "Pending", "conditions": [condition]})
        await asyncio.sleep(1)  # until the informer shows it
        raise injected_error(500)

    cluster.before_bind = lambda key, node: fail(key)
    async with scheduling():
        cluster.pod("p")
        await asyncio.sleep(2)
    (patched,) = cluster.patches[0][1]["conditions"]
    assert (patched["reason"], patched["lastTransitionTime"]) == ("SchedulerError", since)


async def test_slow_binding_does_not_block_other_pods(cluster, scheduling):
    cluster.node("n")
    cluster.before_bind = lambda key, node: asyncio.sleep(60) if key == "default/slow" else None
    async with scheduling():
        cluster.pod("slow")
        cluster.pod("quick")
        await asyncio.sleep(0.5)
        assert cluster.bindings == [("default/quick", "n")]
        await asyncio.sleep(60)
        assert ("default/slow", "n") in cluster.bindings


async def test_bindings_in_flight_are_limited(cluster, scheduling):
    cluster.node("n")
    in_flight, max_in_flight = 0, 0

    async def counted() -> None:
        nonlocal in_flight, max_in_flight
        in_flight += 1
        max_in_flight = max(max_in_flight, in_flight)
        await asyncio.sleep(0.1)
        in_flight -= 1

    cluster.before_bind = lambda key, node: counted()
    async with scheduling(max_bindings_in_flight=4):
        for number in range(20):
            cluster.pod(f"p{number}")
        await asyncio.sleep(3)
        assert len(cluster.bindings) == 20
        assert 1 < max_in_flight <= 4


async def test_waiting_pods_are_scheduled_in_one_turn_of_the_event_loop(cluster, scheduling):
    """Time stands still during a turn. A pod per turn would wait for all other work of the process."""
    cluster.node("n")
    waiting: list[int] = []

    async with scheduling() as scheduler:

        async def count_waiting() -> None:
            waiting.append(sum(scheduler.queue.get(f"default/p{number}") is not None for number in range(20)))

        cluster.before_bind = lambda key, node: count_waiting()
        for number in range(20):
            cluster.pod(f"p{number}")
        await asyncio.sleep(1)
    assert waiting == [0] * 20


async def test_shutdown_waits_for_bindings_in_flight(cluster, scheduling):
    cluster.node("n")
    cluster.before_bind = lambda key, node: asyncio.sleep(2)
    async with scheduling():
        cluster.pod("p")
        await asyncio.sleep(0.5)
    assert cluster.bindings == [("default/p", "n")]


async def test_higher_priority_is_scheduled_first(cluster, scheduling):
    async with scheduling():
        cluster.pod("low", priority=1)
        cluster.pod("high", priority=10)
        cluster.node("n", pods="1")
        await asyncio.sleep(5)
        assert cluster.bindings == [("default/high", "n")]


async def test_deleted_pod_releases_its_node(cluster, scheduling):
    cluster.node("n", cpu="1")
    async with scheduling():
        cluster.pod("first", cpu="1")
        await asyncio.sleep(0.5)
        cluster.pod("second", cpu="1")
        await asyncio.sleep(3)
        assert cluster.node_of("default/second") == ""
        cluster.delete_pod("default/first")
        await asyncio.sleep(3)
        assert cluster.node_of("default/second") == "n"


async def test_unconfirmed_assumed_pod_expires_if_configured(cluster, scheduling):
    cluster.node("n", cpu="1")
    # the initial bookmark and the new pod, but not the bound pod
    cluster.server.transport.watch_faults = [WatchFault("silence", lines=2, resource="pods")]
    async with scheduling(assumed_pod_ttl_seconds=30.0) as scheduler:
        cluster.pod("p", cpu="1")
        await asyncio.sleep(1)
        assert len(cluster.bindings) == 1
        assert len(scheduler.cache.assumed_pods()) == 1
        await asyncio.sleep(31)
        assert scheduler.cache.assumed_pods() == []


class RecordedMetrics:
    """Metrics that record all calls."""

    def __init__(self) -> None:
        self.calls: dict[str, list[tuple[object, ...]]] = {}

    def __getattr__(self, name: str) -> object:
        def record(*args: object, **kwargs: object) -> None:
            self.calls.setdefault(name, []).append((*args, *kwargs.values()))

        return record


async def test_metrics_of_attempts_queues_and_plugins(cluster, scheduling):
    metrics = RecordedMetrics()
    cluster.node("a", cpu="1")
    cluster.node("b", cpu="1")
    async with scheduling(metrics=metrics):
        await asyncio.sleep(10)
        for number in range(12):
            cluster.pod(f"p{number}", cpu="10m")
        cluster.pod("big", cpu="2")
        await asyncio.sleep(2)
        calls = metrics.calls
        assert [count() for count in calls["count_pending_pods"][-1]] == [0, 0, 1, 0]
        assert [count() for count in calls["count_cached"][-1]] == [2, 12, 0]
    assert [result for result, *_ in calls["attempt"]].count("scheduled") == 12
    assert ("unschedulable", "default-scheduler") in {call[:2] for call in calls["attempt"]}
    assert len(calls["pod_scheduled"]) == 12
    assert {attempts for attempts, *_ in calls["pod_scheduled"]} == {1}
    assert all(0.0 <= seconds <= 2.0 for _, seconds, *_ in calls["pod_scheduled"])
    assert calls["queue_incoming"][0] == ("active", "UnschedulablePodAdd")
    reported = [call[:2] for call in calls["extension_point"]]
    for point in ("PreFilter", "Filter", "PreScore", "Score", "Reserve", "Permit", "Bind", "PostBind"):
        assert reported.count((point, "Success")) >= 12, point
    assert ("PreBindPreFlight", "Skip") in reported
    assert ("PostFilter", "Unschedulable") in reported
    assert {call[2] for call in calls["extension_point"]} == {"default-scheduler"}
    measured = {call[:3] for call in calls["plugin"]}
    assert ("NodeResourcesFit", "Score", "Success") in measured
    assert ("DefaultBinder", "Bind", "Success") in measured
    assert ("SchedulingGates", "PreEnqueue", "Success") in measured
    assert ("VolumeBinding", "Reserve", "Success") in measured
    assert ("InterPodAffinity", "PreFilter", "Skip") in measured
    assert len(calls["preemption_attempt"]) >= 1


class RecordedTraces(DisabledPodRecorder):
    """Pod recorder that records queueing and attempts."""

    def __init__(self) -> None:
        super().__init__()
        self.entries: list[tuple[str, str | int]] = []

    def queued(self, pod: Pod, queue: str, reason: str = "") -> None:
        self.entries.append((queue, reason))

    def attempt_started(self, pod: Pod, attempt: int) -> None:
        self.entries.append(("attempt", attempt))

    def attempt_finished(self, pod: Pod, facts: AttemptFacts, reserve: Phase | None = None) -> None:
        self.entries.append((facts.result, facts.node))


async def test_traces_record_queueing_and_attempts(cluster, scheduling):
    traces = RecordedTraces()
    cluster.node("small", cpu="1")
    async with scheduling(traces=traces):
        cluster.pod("big", cpu="2")
        await asyncio.sleep(0.5)
        cluster.node("large", cpu="4")
        await asyncio.sleep(2)
    assert traces.entries == [
        ("active", "UnschedulablePodAdd"),
        ("attempt", 1),
        ("unschedulable", ""),
        ("unschedulable", "ScheduleAttemptFailure"),
        ("backoff", "NodeAdd"),
        ("active", "PopFromBackoffQ"),
        ("attempt", 2),
        ("scheduled", "large"),
    ]


async def test_attempt_on_an_inconsistent_snapshot_fails_and_is_retried(cluster, scheduling):
    for number in range(2):
        cluster.node(f"n{number}")
    async with scheduling() as scheduler:
        cluster.pod("first")
        await asyncio.sleep(0.5)
        scheduler.snapshot.update([], ())
        cluster.pod("second")
        await asyncio.sleep(0.5)
        assert cluster.patches[-1][1]["conditions"][0]["reason"] == "SchedulerError"
        assert "snapshot state is not consistent" in cluster.patches[-1][1]["conditions"][0]["message"]
        await asyncio.sleep(5)
        assert {key for key, _ in cluster.bindings} == {"default/first", "default/second"}


@pytest.mark.parametrize("enabled", [True, False])
async def test_pod_in_backoff_is_scheduled_early_if_the_gate_is_on(cluster, scheduling, enabled):
    cluster.node("small", cpu="1")
    async with scheduling(gates={"SchedulerPopFromBackoffQ": enabled}):
        cluster.pod("p", cpu="2")
        await asyncio.sleep(0.1)
        cluster.node("large", cpu="4")
        await asyncio.sleep(0.1)
        assert len(cluster.bindings) == enabled
        await asyncio.sleep(2)
        assert len(cluster.bindings) == 1


GPUS = [{"name": "c", "image": "i", "resources": {"requests": {"example.com/gpu": "1"}}}]


async def test_device_of_a_class_is_allocated_for_an_extended_resource(cluster, scheduling):
    cluster.node("plain")
    cluster.node("devices")
    cluster.put(DEVICE_CLASSES, device_class(extendedResourceName="example.com/gpu"))
    cluster.put(RESOURCE_SLICES, device_slice("devices", device("d")))
    async with scheduling():
        for name in ("first", "second"):
            cluster.pod(name, containers=GPUS)
        await asyncio.sleep(5)
        assert [node for _, node in cluster.bindings] == ["devices"]
        (bound,) = [key.partition("/")[2] for key, _ in cluster.bindings]
        (claim,) = cluster.server.objects(RESOURCE_CLAIMS)
        status = cluster.stored_pod(f"default/{bound}")["status"]["extendedResourceClaimStatus"]
        assert status["resourceClaimName"] == claim["metadata"]["name"]
        assert claim["status"]["reservedFor"][0]["name"] == bound


async def test_pods_that_wait_for_devices_are_queued_once_for_all_listed_objects(cluster, scheduling, monkeypatch):
    checks = []
    pre_enqueue = DynamicResources.pre_enqueue
    monkeypatch.setattr(DynamicResources, "pre_enqueue", lambda *args: checks.append(args) or pre_enqueue(*args))
    cluster.put(DEVICE_CLASSES, device_class())
    pods = [f"pod-{number}" for number in range(30)]
    for number, name in enumerate(pods):
        cluster.node(f"node-{number}")
        cluster.put(RESOURCE_SLICES, device_slice(f"node-{number}", device("d")))
        cluster.put(RESOURCE_CLAIMS, claim(name))
        cluster.pod(name, resourceClaims=[{"name": "gpu", "resourceClaimName": name}])
    async with scheduling():
        await asyncio.sleep(5)
    assert len(cluster.bindings) == len(pods)
    # when they are listed, after the other lists, and after each of the three lists of devices
    assert len(checks) <= 5 * len(pods)


async def test_pods_wait_a_limited_time_for_classes_that_the_server_does_not_serve(
    cluster, scheduling, monkeypatch, caplog
):
    async def never(devices):
        await asyncio.Event().wait()

    monkeypatch.setattr(ClusterDevices, "has_synced", property(lambda devices: False))
    monkeypatch.setattr(ClusterDevices, "wait_synced", never)
    allocatable = {"cpu": "4", "memory": "8Gi", "pods": "110", "example.com/gpu": "1"}
    cluster.node("n", status={"allocatable": allocatable})
    async with scheduling():
        cluster.pod("p", containers=GPUS)
        await asyncio.sleep(5)
        assert cluster.bindings == []
        await asyncio.sleep(10)
        assert cluster.bindings == [("default/p", "n")]
    assert "pods with extended resources are scheduled without devices" in caplog.text


async def test_pod_that_waits_for_devices_is_queued_when_an_unwritten_allocation_is_undone(cluster, scheduling):
    cluster.node("n")
    cluster.put(DEVICE_CLASSES, device_class())
    cluster.put(RESOURCE_SLICES, device_slice("n", device("d")))
    for name in ("first", "second"):
        cluster.put(RESOURCE_CLAIMS, claim(name))

    async def slow_write(request):
        if request.path.endswith("resourceclaims/first"):
            await asyncio.sleep(10)
            raise injected_error(403)

    async with scheduling():
        cluster.server.transport.before_request = slow_write
        for name in ("first", "second"):
            cluster.pod(name, resourceClaims=[{"name": "gpu", "resourceClaimName": name}])
            await asyncio.sleep(1)
        cluster.delete_pod("default/first")
        await asyncio.sleep(30)
        assert cluster.bindings == [("default/second", "n")]
