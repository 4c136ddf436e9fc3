"""Event registrations and queueing hints of the default plugins, compared with kube-scheduler."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import reduce
from typing import Any

from kubeloop.kube.objects import api_types, device_types, storage_types
from kubeloop.kube.objects.api_types import Pod, convert
from kubeloop.scheduler.api import events
from kubeloop.scheduler.api.events import ActionType, ClusterEvent, Hint

Records = Callable[[str], Iterator[dict[str, Any]]]

KINDS: dict[str, Any] = {
    "Pod": Pod,
    "AssignedPod": Pod,
    "UnschedulablePod": Pod,
    "Node": api_types.Node,
    "PersistentVolume": storage_types.PersistentVolume,
    "PersistentVolumeClaim": storage_types.PersistentVolumeClaim,
    "storage.k8s.io/StorageClass": storage_types.StorageClass,
    "storage.k8s.io/CSINode": storage_types.CSINode,
    "storage.k8s.io/CSIDriver": storage_types.CSIDriver,
    "storage.k8s.io/CSIStorageCapacity": storage_types.CSIStorageCapacity,
    "storage.k8s.io/VolumeAttachment": storage_types.VolumeAttachment,
    "resource.k8s.io/DeviceClass": device_types.DeviceClass,
    "resource.k8s.io/ResourceClaim": device_types.ResourceClaim,
}


def actions() -> dict[str, ActionType]:
    return {events.action_name(action): action for action in ActionType} | {
        "Update": events.UPDATE,
        "All": events.ALL,
    }


def convert_object(resource: str, value: Any) -> Any:
    if value is None:
        return None
    return convert(KINDS[resource], value) if resource in KINDS else api_types.without_nulls(value)


def hint_result(plugin: Any, event: ClusterEvent, pod: Pod, old: Any, new: Any) -> str | None:
    """Return the result as the scheduling queue combines it: Queue if one registration returns it."""
    results = []
    registrations = list(plugin.events_to_register())
    for registration in registrations:
        if not events.matches(registration.event, event):
            continue
        if registration.hint is None:
            results.append("Queue")
            continue
        try:
            results.append("Queue" if registration.hint(pod, old, new) is Hint.QUEUE else "QueueSkip")
        except Exception:
            results.append("error")
    if not results and event.resource == "Node" and event.action == ActionType.UPDATE_NODE_TAINT:
        node_events = [registration.event for registration in registrations if registration.event.resource == "Node"]
        if any(node_event.action & ActionType.ADD for node_event in node_events):
            return "Queue"  # the node's taints may have rejected the pod before this plugin ran
    for result in ("error", "Queue", "QueueSkip"):
        if result in results:
            return result
    return None


def test_registrations_match_kube_scheduler(records: Records, make_cluster: Any) -> None:
    plugins = make_cluster({}).plugins
    actions_by_name = actions()
    for record in records("scheduler/hints.jsonl.gz"):
        if record["type"] == "actionTypes":
            assert {name: int(actions_by_name[name]) for name in record["bits"]} == record["bits"]
        if record["type"] != "registration":
            continue
        expected = {
            (
                event["resource"],
                int(reduce(lambda a, b: a | b, (actions_by_name[name] for name in event["actionTypes"]))),
            ): event["hasHintFunction"]
            for event in record["events"]
        }
        registrations = {
            (registration.event.resource, int(registration.event.action)): registration.hint is not None
            for registration in plugins[record["plugin"]].events_to_register()
        }
        assert registrations == expected, record["plugin"]


def test_hints_match_kube_scheduler(records: Records, make_cluster: Any) -> None:
    plugins = make_cluster({}).plugins
    actions_by_name = actions()
    count = 0
    for record in records("scheduler/hints.jsonl.gz"):
        if record["type"] != "hint":
            continue
        count += 1
        resource = record["event"]["resource"]
        event = ClusterEvent(resource, actions_by_name[record["event"]["actionType"]], record["event"]["label"])
        pod = convert(Pod, record["pod"])
        old, new = convert_object(resource, record["oldObj"]), convert_object(resource, record["newObj"])
        results = {
            name: result
            for name, plugin in plugins.items()
            if hasattr(plugin, "events_to_register")
            and (result := hint_result(plugin, event, pod, old, new)) is not None
        }
        expected = {name: "error" if result.startswith("error") else result for name, result in record["hints"].items()}
        assert results == expected, (count, record["event"], pod.key)
    assert count
