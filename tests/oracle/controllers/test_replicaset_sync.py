"""ReplicaSet syncs, compared with recorded syncs of v1.36."""

from __future__ import annotations

import re
from typing import Any
from unittest.mock import patch

from msgspec import structs

from kubeloop.controllers.replicaset import replica_set_controller
from kubeloop.controllers.replicaset.pod_deletion_order import deletion_order
from kubeloop.controllers.replicaset.replica_set_controller import ReplicaSetController
from kubeloop.kube.objects.resources import PODS, REPLICA_SETS
from kubeloop.tracing.spans.traceparent import TRACEPARENT_ANNOTATION as TRACEPARENT
from support.comparison import replay_server
from support.simulation.recorded_events import RecordedEvents


def count_events(events: Any) -> list[tuple[Any, ...]]:
    counts: dict[tuple[str, ...], int] = {}
    for event in events:
        about = (event["type"], event["reason"], event["message"], event["object"])
        counts[about] = counts.get(about, 0) + event.get("count", 1)
    return sorted((*about, count) for about, count in counts.items())


def mask_pod_names(events: Any, *, deletions: bool) -> list[Any]:
    """Return events with the names of created Pods masked, as in the records; with `deletions`, of deleted Pods too."""
    result = []
    for event in events:
        message = re.sub(r"^Created pod: .*", "Created pod: <generated name>", event["message"])
        if deletions:
            message = re.sub(r"^Deleted pod: .*", "Deleted pod: <unspecified>", message)
        result.append({**event, "message": message})
    return result


def deletion_ranking(controller: ReplicaSetController, informers: Any, record: Any) -> list[str] | None:
    """Return all candidates in deletion order if recorded; the calls show which of them are deleted."""
    names = record["expect"].get("deletion_ranking")
    if names is None:
        return None
    rs, pods = informers.informer(REPLICA_SETS).store[record["key"]], informers.informer(PODS).store
    candidates = [pods[f"{rs.metadata.namespace}/{name}"] for name in sorted(names)]
    order = deletion_order(candidates, controller.related_pods_per_node(rs), replay_server.moment(record["now"]))
    return [pod.metadata.name for pod in order]


async def sync_recorded(record: Any) -> tuple[Any, Any]:
    clock = replay_server.SetClock(replay_server.moment(record["now"]))
    api, events = replay_server.ReplayServer(record, versions=True), RecordedEvents()
    queue = replay_server.RecordingQueue()
    context = replay_server.replay_context(api, clock, queue)
    informers = context.informers
    controller = ReplicaSetController(structs.replace(context, events=events))
    replay_server.fill(informers, record["state"])
    queue.calls.clear()
    controller.check()
    key = record["key"]
    owner_uid = next(
        (rs["metadata"]["uid"] for rs in record["state"]["replicasets"] if replay_server.key_of(rs) == key), ""
    )
    if record.get("expectations"):
        replay_server.restore_expectations(controller.expectations, clock, key, record["expectations"])
    consistency = record["consistency"]
    for resource in (PODS, REPLICA_SETS):
        version = consistency["store_rv"][resource.group_resource]
        informers.informer(resource)._reflector.resource_version = version
    for resource_name, version in (consistency.get("written") or {}).items():
        controller.consistency.wrote_at(key, owner_uid, resource_name, version)
    before = replay_server.expectations_state(controller.expectations, key)
    ranking = deletion_ranking(controller, informers, record)

    with patch.object(replica_set_controller, "BURST_REPLICAS", record["burst_replicas"]):
        error = await controller._controller.process(key)

    expect = record["expect"]
    exact = expect["deletes_well_defined"]
    creates = [call for call in api.calls if call["verb"] == "create"]
    deletes = [call for call in api.calls if call["verb"] == "delete"]
    assert all(TRACEPARENT not in (call["object"]["metadata"].get("annotations") or {}) for call in creates)
    pods = [call["object"] for call in creates]
    assert all(pod == pods[0] for pod in pods)
    state = replay_server.expectations_state(controller.expectations, key)
    actual: dict[str, Any] = {
        "creates": (len(creates), sum("error" in call for call in creates)),
        "created": replay_server.comparable_object(pods[0], "pods", "", "create") if pods else None,
        "create_errors": sorted({str(call["error"]) for call in creates if "error" in call}),
        "deletes_count": len(deletes),
        "deletes": sorted((call["name"], str(call.get("error"))) for call in deletes) if exact else [],
        "deletion_ranking": ranking,
        "patches": sorted(
            (replay_server.sent_call(call) for call in api.calls if call["verb"] == "patch"),
            key=lambda call: call["name"],
        ),
        "status_updates": [replay_server.sent_call(call) for call in api.calls if call["verb"] == "update"],
        "reads": [(call["resource"], call["namespace"], call["name"]) for call in api.reads],
        "events": count_events(mask_pod_names(replay_server.comparable_events(events), deletions=not exact)),
        "expectations_before": before,
        "expectations": state if exact else {**state, "keys": "masked"},
        "wrote_rv": replay_server.comparable_versions(controller.consistency, record),
        "queue": queue.calls,
        "error": replay_server.comparable_error(error),
    }
    recorded = expect["creates"]
    expected_state = {name: expect["expectations"].get(name) for name in state}
    expected: dict[str, Any] = {
        "creates": (recorded["calls"], recorded["failed"]),
        "created": replay_server.comparable_object(recorded["object"], "pods", "", "create")
        if recorded["calls"]
        else None,
        "create_errors": sorted({str(replay_server.recorded_error(error)) for error in recorded.get("errors") or []}),
        "deletes_count": expect["deletes_count"],
        "deletes": sorted(
            (call["name"], str(replay_server.recorded_error(call.get("error")))) for call in expect["deletes"]
        ),
        "deletion_ranking": expect.get("deletion_ranking"),
        "patches": sorted(
            (replay_server.recorded_call(call) for call in expect["patches"]), key=lambda call: call["name"]
        ),
        "status_updates": [replay_server.recorded_call(call) for call in expect["status_updates"]],
        "reads": [(call["resource"], call["namespace"], call["name"]) for call in expect["reads"]],
        "events": count_events(mask_pod_names(expect["events"], deletions=not exact)),
        "expectations_before": {name: expect["expectations_before"].get(name) for name in before},
        "expectations": expected_state if exact else {**expected_state, "keys": "masked"},
        "wrote_rv": expect.get("wrote_rv") or {},
        "queue": expect["queue"],
        "error": replay_server.recorded_error(expect["error"]),
    }
    return actual, expected


async def test_replica_set_sync_matches_v1_36(records):
    count = 0
    for record in records("controllers/replicaset_sync.jsonl.gz"):
        actual, expected = await sync_recorded(record)
        assert actual == expected, (record["id"], record["scenario"])
        count += 1
    assert count
