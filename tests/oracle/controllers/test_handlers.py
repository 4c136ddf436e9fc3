"""Event handlers: the keys that each recorded watch event enqueues."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

from kubeloop.controllers.deployment.deployment_controller import DeploymentController
from kubeloop.controllers.replicaset.replica_set_controller import ReplicaSetController
from kubeloop.informers.factory import InformerFactory
from kubeloop.kube.objects.api_types import Deployment, Pod, ReplicaSet, convert
from kubeloop.kube.objects.resources import DEPLOYMENTS, PODS, REPLICA_SETS, Resource
from support.comparison import replay_server

TYPES: dict[str, Any] = {"deployment": Deployment, "rs": ReplicaSet, "pod": Pod}
RESOURCES: dict[str, Resource[Any]] = {"deployment": DEPLOYMENTS, "rs": REPLICA_SETS, "pod": PODS}


def call_handlers(record: Any, informers: InformerFactory) -> None:
    """Call the handlers of the record's event."""
    kind, _, verb = record["event"].partition("_")
    tombstone = verb.endswith("_tombstone")
    verb = verb.removesuffix("_tombstone")
    obj = convert(TYPES[kind], record["object"])
    for registration in informers.informer(RESOURCES[kind])._registrations:
        if verb == "update":
            registration.handler.on_update(convert(TYPES[kind], record["old_object"]), obj)
        elif verb == "delete":
            registration.handler.on_delete(obj, tombstone)
        else:
            registration.handler.on_add(obj, False)


async def test_deployment_handlers_enqueue_the_keys_of_v1_36(records):
    count = 0
    for record in records("controllers/deployment_handlers.jsonl.gz"):
        clock = replay_server.SetClock(datetime(2026, 1, 1, tzinfo=UTC))
        queue = replay_server.RecordingQueue()
        context = replay_server.replay_context(replay_server.ReplayServer(record), clock, queue)
        DeploymentController(context)
        replay_server.fill(context.informers, record["state"])
        queue.calls.clear()
        call_handlers(record, context.informers)
        # A key may be recorded twice, which makes no difference to a queue of distinct keys.
        enqueued = {call["key"] for call in queue.calls if call["op"] == "add"}
        assert enqueued == set(record["expect"]["enqueued"]), (record["id"], record["event"])
        count += 1
    assert count


async def test_replica_set_handlers_match_v1_36(records):
    count = 0
    for record in records("controllers/replicaset_handlers.jsonl.gz"):
        clock = replay_server.SetClock(datetime(2026, 1, 1, tzinfo=UTC))
        queue = replay_server.RecordingQueue()
        context = replay_server.replay_context(replay_server.ReplayServer(record), clock, queue)
        controller = ReplicaSetController(context)
        replay_server.fill(context.informers, record["state"])
        queue.calls.clear()
        key, expectations = record["key"], controller.expectations
        expectations.forget(key)
        if record["expectations"] is not None:
            replay_server.restore_expectations(expectations, clock, key, record["expectations"])
        call_handlers(record, context.informers)
        expect = record["expect"]
        assert {(call["op"], call["key"], call.get("after_seconds")) for call in queue.calls} == {
            (recorded["op"], recorded["key"], recorded.get("after_seconds")) for recorded in expect["queue"]
        }, (record["id"], record["event"])
        state = replay_server.expectations_state(expectations, key)
        assert state == {name: expect["expectations"].get(name) for name in state}, (record["id"], record["event"])
        count += 1
    assert count
