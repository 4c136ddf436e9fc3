"""Traces and events of rollouts, for Deployments and ReplicationControllers."""

from __future__ import annotations

import asyncio
import json
import random

import pytest

from kubeloop.kube.objects.resources import DEPLOYMENTS, PODS, REPLICA_SETS, REPLICATION_CONTROLLERS
from kubeloop.testing.virtual_time import VirtualClock
from kubeloop.tracing.recording.open_pod_records import OpenPodRecords
from kubeloop.tracing.recording.pod_recorder import standalone_pod_recorder
from kubeloop.tracing.recording.reconcile_recorder import ReconcileRecorder
from kubeloop.tracing.spans.trace import Link, Trace
from kubeloop.tracing.spans.traceparent import TRACEPARENT_ANNOTATION
from support.apiserver.faulty_transport import injected_error
from support.simulation.recorded_events import RecordedEvents
from support.simulation.rollout_simulation import RolloutSimulation, deployment

pytestmark = pytest.mark.virtual_time


def traced_simulation(clock: VirtualClock, *, annotates: bool = False) -> tuple[RolloutSimulation, list[Trace]]:
    """Return a simulation, and the list of traces of its finished reconciles."""
    finished: list[Trace] = []
    reconciles = ReconcileRecorder(
        clock=clock,
        rng=random.Random(2),
        annotates=annotates,
        on_finished=lambda record, sampled: finished.append(record.trace()),
    )
    pods = standalone_pod_recorder(OpenPodRecords(clock=clock), rng=random.Random(3))
    return RolloutSimulation(1, traces=reconciles, pod_traces=pods), finished


async def run_for(cluster: RolloutSimulation, seconds: float) -> None:
    async with asyncio.TaskGroup() as tasks:
        task = tasks.create_task(cluster.run())
        await asyncio.sleep(seconds)
        task.cancel()


async def test_created_pods_carry_trace_context_but_templates_do_not(clock: VirtualClock):
    cluster, finished = traced_simulation(clock)
    cluster.apply(DEPLOYMENTS, deployment(replicas=3))
    await run_for(cluster, 60.0)

    creates = [
        request
        for request in cluster.server.transport.sent
        if request.method == "POST" and request.path == PODS.path("default")
    ]
    assert len(creates) == 3
    pods = [json.loads(request.body) for request in creates]
    parents = [pod["metadata"]["annotations"][TRACEPARENT_ANNOTATION] for pod in pods]
    assert [request.headers["traceparent"] for request in creates] == parents
    assert len({parent.split("-")[1] for parent in parents}) == 3, "each Pod has a trace of its own"
    (rs,) = cluster.all(REPLICA_SETS)
    assert TRACEPARENT_ANNOTATION not in str(rs["spec"]["template"])

    roots = [trace.spans[0] for trace in finished]
    created = next(root for root in roots if any(Link(parent, "pod") in root.links for parent in parents))
    assert created.name == "reconcile replicaset"
    assert {Link(parent, "pod") for parent in parents} <= set(created.links)
    rolled_out = next(root for root in roots if root.name == "reconcile deployment")
    assert TRACEPARENT_ANNOTATION not in rs["metadata"]["annotations"]
    (cause,) = [link for link in created.links if link.relation == "cause"]
    assert cause.traceparent.split("-")[2] == rolled_out.span_id
    assert created.attributes["kubeloop.reason"]
    assert any(action.startswith("create pod") for action in created.attributes["kubeloop.actions"])
    assert any(root.attributes["kubeloop.key"] == "default/web" for root in roots)


async def test_replica_sets_are_annotated_if_requested(clock: VirtualClock):
    cluster, finished = traced_simulation(clock, annotates=True)
    cluster.apply(DEPLOYMENTS, deployment(replicas=3))
    await run_for(cluster, 60.0)
    (rs,) = cluster.all(REPLICA_SETS)
    rolled_out = next(trace.spans[0] for trace in finished if trace.spans[0].name == "reconcile deployment")
    assert rs["metadata"]["annotations"][TRACEPARENT_ANNOTATION].split("-")[2] == rolled_out.span_id


async def test_every_reconcile_of_a_replica_set_links_to_the_deployments_reconcile(clock: VirtualClock):
    cluster, finished = traced_simulation(clock)
    refused = iter(range(2))
    cluster.server.transport.reject = lambda method, path: (
        injected_error(500) if method == "POST" and path.endswith("/pods") and next(refused, None) is not None else None
    )
    cluster.apply(DEPLOYMENTS, deployment(replicas=5))
    await run_for(cluster, 60.0)
    roots = [trace.spans[0] for trace in finished]
    rolled_out = next(root for root in roots if root.name == "reconcile deployment")
    creating = [
        root
        for root in roots
        if root.name == "reconcile replicaset"
        and any(action.startswith("create pod") for action in root.attributes.get("kubeloop.actions", ()))
    ]
    assert len(cluster.all(PODS)) == 5
    causes = [[link.traceparent.split("-")[2] for link in root.links if link.relation == "cause"] for root in creating]
    assert causes
    assert causes == [[rolled_out.span_id]] * len(creating)


async def test_rollout_steps_are_linked_to_the_pods_they_cause(clock: VirtualClock):
    """A ReplicaSet is reconciled for many reasons, possibly shortly before it is scaled up."""
    cluster, finished = traced_simulation(clock)
    cluster.apply(DEPLOYMENTS, deployment(replicas=6))
    await run_for(cluster, 60.0)
    cluster.apply(DEPLOYMENTS, deployment(replicas=6, image="app:2"))
    await run_for(cluster, 120.0)

    roots = {trace.spans[0].span_id: trace.spans[0] for trace in finished}
    for root in roots.values():
        assert root.attributes.get("kubeloop.actions"), "recorded without an action"
        actions = " ".join(root.attributes["kubeloop.actions"])
        if root.name != "reconcile replicaset" or not ("create pod" in actions or "delete pod" in actions):
            continue
        causes = [roots[link.traceparent.split("-")[2]] for link in root.links if link.relation == "cause"]
        name = root.attributes["kubeloop.key"].removeprefix("default/")
        assert any(
            f"{verb} replicaset {name}" in " ".join(cause.attributes["kubeloop.actions"])
            for cause in causes
            for verb in ("create", "scale")
        ), (root.attributes, causes)
        assert actions.count("create pod") == sum(link.relation == "pod" for link in root.links)


async def test_failed_write_is_recorded_as_span_with_error(clock: VirtualClock):
    cluster, finished = traced_simulation(clock)
    cluster.server.transport.reject = lambda method, path: injected_error(500) if method != "GET" else None
    cluster.apply(DEPLOYMENTS, deployment(replicas=2))
    await run_for(cluster, 1.0)
    root, *children = finished[0].spans
    assert root.error
    assert "kubeloop.actions" not in root.attributes
    assert children[0].name == "create replicaset"
    assert children[0].error == root.error


async def test_reconcile_without_changes_records_no_trace(clock: VirtualClock):
    cluster, finished = traced_simulation(clock)
    cluster.apply(DEPLOYMENTS, deployment(replicas=2))
    await run_for(cluster, 60.0)
    before = len(finished)
    (rs,) = cluster.all(REPLICA_SETS)
    assert await cluster.deployments._controller.process("default/web") is None
    assert await cluster.replica_sets._controller.process(f"default/{rs['metadata']['name']}") is None
    assert len(finished) == before


async def test_rollout_emits_kubernetes_events(clock: VirtualClock):
    events = RecordedEvents()
    cluster = RolloutSimulation(1, events=events)
    cluster.apply(DEPLOYMENTS, deployment(replicas=2))
    await run_for(cluster, 60.0)
    (rs,) = cluster.all(REPLICA_SETS)
    name = rs["metadata"]["name"]
    scaled, *created = events.events
    assert (scaled.regarding.kind, scaled.reason) == ("Deployment", "ScalingReplicaSet")
    assert scaled.message == f"Scaled up replica set {name} from 0 to 2"
    assert {(event.regarding.kind, event.reason) for event in created} == {("ReplicaSet", "SuccessfulCreate")}
    assert created[0].message.startswith(f"Created pod: {name}-")


async def test_replication_controller_maintains_its_pods(clock: VirtualClock):
    events = RecordedEvents()
    cluster = RolloutSimulation(1, events=events)
    labels = {"app": "guestbook"}
    cluster.apply(
        REPLICATION_CONTROLLERS,
        {
            "metadata": {"name": "guestbook"},
            "spec": {
                "replicas": 3,
                "selector": labels,
                "template": {
                    "metadata": {"labels": labels},
                    "spec": {"containers": [{"name": "main", "image": "app:1"}]},
                },
            },
        },
    )
    async with asyncio.TaskGroup() as tasks:
        task = tasks.create_task(cluster.run())
        await asyncio.sleep(60.0)
        pods = cluster.all(PODS)
        assert len(pods) == 3
        assert {pod["metadata"]["ownerReferences"][0]["kind"] for pod in pods} == {"ReplicationController"}
        status = cluster.all(REPLICATION_CONTROLLERS)[0]["status"]
        assert (status["replicas"], status["readyReplicas"], status["availableReplicas"]) == (3, 3, 3)
        assert "terminatingReplicas" not in status, "the API has no such field for ReplicationControllers"
        assert {event.regarding.kind for event in events.events} == {"ReplicationController"}

        cluster.apply(REPLICATION_CONTROLLERS, {"metadata": {"name": "guestbook"}, "spec": {"replicas": 1}})
        await asyncio.sleep(60.0)
        assert len(cluster.all(PODS)) == 1
        task.cancel()
