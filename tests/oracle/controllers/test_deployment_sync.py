"""Deployment syncs, compared with recorded syncs of v1.36."""

from __future__ import annotations

from typing import Any

from msgspec import structs

from kubeloop.controllers.deployment.deployment_controller import DeploymentController
from kubeloop.controllers.deployment.new_replica_set import replica_set_name
from kubeloop.controllers.runtime.revisions.pod_template_hash import pod_template_hash
from support.comparison import replay_server
from support.simulation.recorded_events import RecordedEvents


async def sync_recorded(record: Any) -> tuple[Any, Any]:
    clock = replay_server.SetClock(replay_server.moment(record["now"]))
    api, events = replay_server.ReplayServer(record), RecordedEvents()
    queue = replay_server.RecordingQueue(record["num_requeues"])
    context = replay_server.replay_context(api, clock, queue)
    controller = DeploymentController(structs.replace(context, events=events))
    replay_server.fill(context.informers, record["state"])
    queue.calls.clear()
    error = await controller._controller.process(record["key"])
    actual = {
        "actions": replay_server.runs_of_patches_sorted(replay_server.sent_call(call) for call in api.calls),
        "reads": [(call["resource"], call["namespace"], call["name"]) for call in api.reads],
        "events": replay_server.comparable_events(events),
        "error": replay_server.comparable_error(error),
        "queue": queue.calls,
    }
    expect = record["expect"]
    expected = {
        "actions": replay_server.runs_of_patches_sorted(
            replay_server.recorded_call(call) for call in expect["actions"]
        ),
        "reads": [(call["resource"], call["namespace"], call["name"]) for call in expect["reads"]],
        "events": expect["events"],
        "error": replay_server.recorded_error(expect["error"]),
        "queue": expect["queue"],
    }
    return actual, expected


async def test_deployment_sync_matches_v1_36(records):
    count = 0
    for record in records("controllers/deployment_sync.jsonl.gz"):
        actual, expected = await sync_recorded(record)
        assert actual == expected, (record["id"], record["scenario"])
        count += 1
    assert count


def test_pod_template_hash_and_name_match_v1_36(records):
    for record in records("controllers/deployment_sync.jsonl.gz"):
        for deployment in record["state"].get("deployments", []):
            metadata = deployment["metadata"]
            if "hash" in record and f"{metadata['namespace']}/{metadata['name']}" == record["key"]:
                collisions = deployment.get("status", {}).get("collisionCount")
                template_hash = pod_template_hash(deployment["spec"]["template"], collisions)
                assert template_hash == record["hash"]["template_hash"], record["id"]
                assert replica_set_name(metadata["name"], template_hash) == record["hash"]["new_rs_name"]
