"""Disruption controller: status of PodDisruptionBudgets, and stale conditions of pods, in virtual time."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import UTC, datetime
from typing import Any

import pytest
from msgspec import structs

from kubeloop.controllers.disruption.disruption_controller import DisruptionController
from kubeloop.kube.clock import rfc3339
from kubeloop.kube.objects.api_types import Pod, PodDisruptionBudget, convert
from kubeloop.kube.objects.resources import DEPLOYMENTS, POD_DISRUPTION_BUDGETS, PODS, REPLICA_SETS
from support.apiserver.fake_apiserver import FakeApiServer
from support.apiserver.faulty_transport import SentRequest, injected_error
from support.simulation.recorded_events import RecordedEvents
from support.simulation.set_clock import SetClock

pytestmark = pytest.mark.virtual_time
JSON = dict[str, Any]


class Cluster:
    """A store with a ReplicaSet, its pods and a PodDisruptionBudget, and the controller."""

    def __init__(self) -> None:
        self.server = FakeApiServer()
        self.clock, self.store = self.server.clock, self.server.store
        self.recorded = RecordedEvents()
        self.controller = DisruptionController(structs.replace(self.server.context, events=self.recorded))

    def workload(self, replicas: int, *, ready: int | None = None, deployment: int | None = None) -> None:
        """Create a ReplicaSet with its pods. deployment: replicas of the Deployment that owns it, if any."""
        metadata: JSON = {"name": "web-1", "namespace": "default", "uid": "rs"}
        if deployment is not None:
            deployment_metadata = {"name": "web", "namespace": "default", "uid": "deploy"}
            obj = {
                "kind": "Deployment",
                "apiVersion": "apps/v1",
                "metadata": deployment_metadata,
                "spec": {"replicas": deployment},
            }
            self.store.create(DEPLOYMENTS, obj)
            metadata["ownerReferences"] = [owner_reference("Deployment", "web", "deploy")]
        obj = {"kind": "ReplicaSet", "apiVersion": "apps/v1", "metadata": metadata, "spec": {"replicas": replicas}}
        self.store.create(REPLICA_SETS, obj)
        for number in range(replicas):
            is_ready = ready is None or number < ready
            self.pod(f"web-{number}", ready=is_ready, owner_references=[owner_reference("ReplicaSet", "web-1", "rs")])

    def pod(self, name: str, *, ready: bool = True, owner_references: list[JSON] | None = None) -> JSON:
        metadata: JSON = {"name": name, "namespace": "default", "uid": name, "labels": {"app": "web"}}
        if owner_references:
            metadata["ownerReferences"] = owner_references
        conditions = [{"type": "Ready", "status": str(ready)}]
        obj = {"kind": "Pod", "apiVersion": "v1", "metadata": metadata, "spec": {}}
        return self.store.create(PODS, {**obj, "status": {"phase": "Running", "conditions": conditions}})

    def budget(self, status: JSON | None = None, **spec: Any) -> JSON:
        metadata = {"name": "web", "namespace": "default", "uid": "pdb", "generation": 1}
        obj = {"kind": "PodDisruptionBudget", "apiVersion": "policy/v1", "metadata": metadata}
        selector = {"matchLabels": {"app": "web"}}
        return self.store.create(
            POD_DISRUPTION_BUDGETS, {**obj, "spec": {"selector": selector, **spec}, "status": status or {}}
        )

    def status(self) -> JSON:
        budget = self.store.get(POD_DISRUPTION_BUDGETS, "default", "web")
        assert budget is not None
        status: JSON = budget["status"]
        return status

    def counts(self) -> tuple[int, int, int, int]:
        """Return disruptionsAllowed, currentHealthy, desiredHealthy, expectedPods."""
        status = self.status()
        fields = ("disruptionsAllowed", "currentHealthy", "desiredHealthy", "expectedPods")
        allowed, healthy, desired, expected = (status[field] for field in fields)
        return allowed, healthy, desired, expected

    def events(self) -> list[str]:
        return [event.reason for event in self.recorded.events]


def owner_reference(kind: str, name: str, uid: str, api_version: str = "apps/v1") -> JSON:
    return {"apiVersion": api_version, "kind": kind, "name": name, "uid": uid, "controller": True}


@asynccontextmanager
async def running() -> AsyncIterator[Cluster]:
    cluster = Cluster()
    async with asyncio.TaskGroup() as group:
        tasks = [group.create_task(part.run()) for part in (cluster.server.informers, cluster.controller)]
        await asyncio.sleep(0.1)
        yield cluster
        for task in tasks:
            task.cancel()


@pytest.mark.parametrize(
    ("spec", "counts"),
    [
        pytest.param({"minAvailable": 3}, (1, 4, 3, 5), id="minAvailable: number"),
        pytest.param({"minAvailable": "50%"}, (1, 4, 3, 5), id="minAvailable: percentage of the replicas, rounded up"),
        pytest.param({"maxUnavailable": 2}, (1, 4, 3, 5), id="maxUnavailable: number, unready pod counts"),
        pytest.param({"maxUnavailable": "50%"}, (2, 4, 2, 5), id="maxUnavailable: percentage, rounded up"),
        pytest.param({"minAvailable": 9}, (0, 4, 9, 5), id="minAvailable: more than the replicas"),
        pytest.param({"maxUnavailable": 9}, (4, 4, 0, 5), id="maxUnavailable: more than the replicas"),
        pytest.param({}, (0, 4, 0, 0), id="neither field"),
    ],
)
async def test_disruptions_allowed_by_min_available_or_max_unavailable(spec, counts):
    async with running() as cluster:
        cluster.workload(5, ready=4)
        cluster.budget(**spec)
        await asyncio.sleep(0.1)
        assert cluster.counts() == counts
        assert cluster.status()["observedGeneration"] == 1
        (condition,) = cluster.status()["conditions"]
        sufficient = cluster.counts()[0] > 0
        assert (condition["type"], condition["status"]) == ("DisruptionAllowed", str(sufficient))
        assert condition["reason"] == ("SufficientPods" if sufficient else "InsufficientPods")


async def test_expected_pods_are_replicas_of_owning_deployment():
    async with running() as cluster:
        cluster.workload(2, deployment=6)
        cluster.budget(maxUnavailable=3)
        await asyncio.sleep(0.1)
        assert cluster.counts() == (0, 2, 3, 6)


async def test_status_is_updated_when_pods_change():
    async with running() as cluster:
        cluster.workload(3)
        cluster.budget(minAvailable=2)
        await asyncio.sleep(0.1)
        first = cluster.status()["conditions"][0]["lastTransitionTime"]
        assert cluster.counts() == (1, 3, 2, 3)
        cluster.store.delete(PODS, "default", "web-0")
        await asyncio.sleep(2)
        assert cluster.counts() == (0, 2, 2, 2)
        cluster.pod("web-9")
        await asyncio.sleep(2)
        assert cluster.counts() == (1, 3, 2, 3)
        assert cluster.status()["conditions"][0]["lastTransitionTime"] > first


async def test_disrupted_pod_is_not_healthy_until_deletion_timeout():
    async with running() as cluster:
        cluster.workload(3)
        cluster.budget(
            minAvailable=1,
            status={"disruptedPods": {"web-0": rfc3339(cluster.clock.now()), "missing": "2026-01-01T00:00:00Z"}},
        )
        await asyncio.sleep(1)
        assert cluster.counts() == (1, 2, 1, 3)
        assert list(cluster.status()["disruptedPods"]) == ["web-0"]
        await asyncio.sleep(118)
        assert cluster.counts() == (1, 2, 1, 3)
        await asyncio.sleep(4)
        assert cluster.counts() == (2, 3, 1, 3)
        assert "disruptedPods" not in cluster.status()


async def test_budget_without_pods_allows_nothing_and_records_an_event():
    async with running() as cluster:
        cluster.budget(maxUnavailable="100%")
        await asyncio.sleep(0.1)
        assert cluster.counts() == (0, 0, 0, 0)
        assert set(cluster.events()) == {"NoPods"}


async def test_pods_without_controller_are_reported_in_event():
    async with running() as cluster:
        cluster.pod("alone")
        cluster.budget(maxUnavailable=1)
        await asyncio.sleep(0.1)
        assert cluster.counts() == (0, 1, 0, 0)
        assert set(cluster.events()) == {"UnmanagedPods"}
        message = cluster.recorded.events[0].message
        assert "(selector: &LabelSelector{MatchLabels:map[string]string{app: web,},MatchExpressions:" in message


async def test_pods_of_controller_without_scale_fail_sync():
    async with running() as cluster:
        cluster.pod("work-0", owner_references=[owner_reference("Job", "work", "j", "batch/v1")])
        cluster.budget(maxUnavailable=1)
        await asyncio.sleep(0.1)
        (condition,) = cluster.status()["conditions"]
        assert (condition["status"], condition["reason"]) == ("False", "SyncFailed")
        assert condition["message"] == "jobs.batch does not implement the scale subresource"
        assert cluster.status()["disruptionsAllowed"] == 0
        assert set(cluster.events()) == {"CalculateExpectedPodCountFailed"}


async def test_status_is_written_after_repeated_failures():
    async with running() as cluster:
        cluster.workload(3)
        cluster.budget(minAvailable=2)
        await asyncio.sleep(0.1)

        async def reject(request: SentRequest) -> None:
            if request.method == "PATCH" and b"SyncFailed" not in request.body:
                raise injected_error(500)

        cluster.server.transport.before_request = reject
        cluster.store.delete(PODS, "default", "web-0")
        await asyncio.sleep(30)
        assert cluster.status()["conditions"][0]["reason"] == "SyncFailed"
        cluster.server.transport.before_request = None
        await asyncio.sleep(60)
        assert cluster.counts() == (0, 2, 2, 2)


async def test_pod_that_is_no_longer_selected_does_not_count():
    async with running() as cluster:
        cluster.workload(2)
        cluster.budget(minAvailable=1)
        await asyncio.sleep(0.1)
        assert cluster.counts() == (1, 2, 1, 2)
        pod = cluster.store.get(PODS, "default", "web-0")
        assert pod is not None
        cluster.store.update(PODS, {**pod, "metadata": {**pod["metadata"], "labels": {}}})
        await asyncio.sleep(0.1)
        assert cluster.counts() == (0, 1, 1, 1)


async def test_pod_of_a_missing_replica_set_fails_sync():
    async with running() as cluster:
        cluster.pod("web-0", owner_references=[owner_reference("ReplicaSet", "gone", "r")])
        cluster.budget(maxUnavailable=1)
        await asyncio.sleep(0.1)
        assert cluster.status()["conditions"][0]["message"] == 'found no controllers for pod "web-0"'


async def test_pod_with_several_budgets_is_reported():
    async with running() as cluster:
        cluster.workload(1)
        cluster.budget(minAvailable=1)
        budget = cluster.store.get(POD_DISRUPTION_BUDGETS, "default", "web")
        assert budget is not None
        cluster.store.create(
            POD_DISRUPTION_BUDGETS, {**budget, "metadata": {**budget["metadata"], "name": "other", "uid": "u2"}}
        )
        await asyncio.sleep(0.1)
        cluster.store.update(PODS, cluster.store.get(PODS, "default", "web-0"))
        await asyncio.sleep(0.1)
        assert "MultiplePodDisruptionBudgets" in cluster.events()


def add_disrupted_pod(cluster: Cluster) -> None:
    pod = cluster.pod("web-0")
    now = rfc3339(cluster.clock.now())
    condition = {"type": "DisruptionTarget", "status": "True", "reason": "X", "lastTransitionTime": now}
    cluster.store.update(PODS, {**pod, "status": {**pod["status"], "conditions": [condition]}})


def disruption_target(cluster: Cluster) -> str:
    """Return the status of the condition."""
    stored = cluster.store.get(PODS, "default", "web-0")
    assert stored is not None
    return {it["type"]: it["status"] for it in stored["status"]["conditions"]}["DisruptionTarget"]


async def test_stale_disruption_target_is_reset_after_two_minutes():
    async with running() as cluster:
        add_disrupted_pod(cluster)
        await asyncio.sleep(118)
        assert disruption_target(cluster) == "True"
        await asyncio.sleep(4)
        assert disruption_target(cluster) == "False"


async def test_reset_of_a_disruption_target_is_retried_after_a_conflict():
    async with running() as cluster:
        add_disrupted_pod(cluster)
        cluster.server.transport.reject = lambda method, path: injected_error(409) if method == "PATCH" else None
        await asyncio.sleep(180)
        assert disruption_target(cluster) == "True"
        cluster.server.transport.reject = lambda method, path: None
        await asyncio.sleep(180)
        assert disruption_target(cluster) == "False"


async def test_pod_that_is_gone_needs_no_reset_of_its_disruption_target():
    async with running() as cluster:
        add_disrupted_pod(cluster)
        resets = []

        def delete_first(request: SentRequest) -> None:
            if (request.method, request.path) == ("PATCH", PODS.path("default", "web-0", "status")):
                resets.append(request)
                cluster.store.delete(PODS, "default", "web-0")

        cluster.server.transport.on_send = delete_first
        await asyncio.sleep(180)
        assert len(resets) == 1
        assert not any(cluster.server.metrics.values("kubeloop_reconcile_errors").values())


async def test_unchanged_status_is_not_written():
    async with running() as cluster:
        cluster.workload(2)
        cluster.budget(minAvailable=1)
        await asyncio.sleep(0.1)
        revision = cluster.store.revision
        cluster.store.update(PODS, cluster.store.get(PODS, "default", "web-0"))
        await asyncio.sleep(10)
        assert cluster.store.revision == revision + 1


async def test_deleted_budget_selects_no_pods():
    controller = DisruptionController(FakeApiServer().context)
    budgets = [
        convert(
            PodDisruptionBudget,
            {
                "metadata": {"name": name, "namespace": "ns"},
                "spec": {"selector": {"matchLabels": {"app": "web"}}},
            },
        )
        for name in ("a", "b")
    ]
    pod = convert(Pod, {"metadata": {"name": "p", "namespace": "ns", "labels": {"app": "web"}}})
    for budget in budgets:
        controller._budgets.put(budget.key, budget)
        controller.on_budget(budget)
    assert controller._enqueue_budgets(pod) == ["a", "b"]
    for budget, left in zip(budgets, (["b"], []), strict=True):
        controller._budgets.remove(budget.key)
        controller.on_budget_delete(budget)
        assert controller._enqueue_budgets(pod) == left
    assert controller._selectors == {}, "no entry remains of a deleted budget"


@pytest.mark.parametrize(
    ("selector", "selected"),
    [
        pytest.param({"matchLabels": {"app": "web"}}, ["a"], id="one label"),
        pytest.param({"matchLabels": {"app": "web", "tier": "front"}}, ["a"], id="two labels"),
        pytest.param({"matchLabels": {"app": "web", "tier": "back"}}, [], id="one of two labels"),
        pytest.param({"matchExpressions": [{"key": "app", "operator": "In", "values": ["web"]}]}, ["a"], id="values"),
        pytest.param({"matchExpressions": [{"key": "x", "operator": "DoesNotExist"}]}, ["a", "b"], id="no label"),
        pytest.param({}, ["a", "b"], id="everything"),
    ],
)
async def test_budget_and_its_pods_find_each_other(selector: dict[str, Any], selected: list[str]):
    """Pods of another namespace, whose labels are the same, do not count."""
    async with running() as cluster:
        for namespace in ("default", "other"):
            for name, labels in (("a", {"app": "web", "tier": "front"}), ("b", {})):
                cluster.store.create(PODS, {"metadata": {"name": name, "namespace": namespace, "labels": labels}})
        cluster.budget(minAvailable=1, selector=selector)
        await asyncio.sleep(1)
        assert cluster.status()["expectedPods"] == len(selected)
        labels = {"app": "web", "tier": "front"}
        cluster.store.create(PODS, {"metadata": {"name": "c", "namespace": "default", "labels": labels}})
        await asyncio.sleep(1)
        assert cluster.status()["expectedPods"] == len(selected) + ("a" in selected)


@pytest.mark.parametrize(
    ("conditions", "expected"),
    [
        pytest.param([], None, id="no condition"),
        pytest.param([{"status": "True", "lastTransitionTime": "2026-01-01T00:00:00Z"}], 60.0, id="one minute is left"),
        pytest.param([{"status": "False", "lastTransitionTime": "2026-01-01T00:00:00Z"}], None, id="reset"),
    ],
)
async def test_stale_disruption_target_waits_for_two_minutes(conditions, expected):
    server = FakeApiServer()
    context = structs.replace(server.context, clock=SetClock(datetime(2026, 1, 1, 0, 1, tzinfo=UTC)))
    controller = DisruptionController(context)
    status = {"conditions": [{"type": "DisruptionTarget", "reason": "x", "message": "", **it} for it in conditions]}
    pod = convert(Pod, {"metadata": {"name": "p", "namespace": "ns", "uid": "u"}, "status": status})
    controller._pods.put("ns/p", pod)
    assert await controller.reset_condition("ns/p") == expected
    assert await controller.reset_condition("ns/gone") is None
