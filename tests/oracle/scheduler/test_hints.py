"""Which events plugins want to hear of, and whether they think that an event helps a pending pod."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import reduce
from typing import Any

from kubeloop.kube.objects import api_types, storage_types
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
}


def actions() -> dict[str, ActionType]:
    return {events.action_name(action): action for action in ActionType if action != ActionType.UPDATE_OTHER} | {
        "Update": events.UPDATE,
        "All": events.ALL,
    }


def read(resource: str, value: Any) -> Any:
    if value is None:
        return None
    return convert(KINDS[resource], value) if resource in KINDS else api_types.without_nulls(value)


def answer(plugin: Any, event: ClusterEvent, pod: Pod, old: Any, new: Any) -> str | None:
    """As the scheduling queue asks: Queue as soon as one registration says so."""
    answers = []
    registered = list(plugin.events_to_register())
    for registration in registered:
        if not events.matches(registration.event, event):
            continue
        if registration.hint is None:
            answers.append("Queue")
            continue
        try:
            answers.append("Queue" if registration.hint(pod, old, new) is Hint.QUEUE else "QueueSkip")
        except Exception:
            answers.append("error")
    if not answers and event.resource == "Node" and event.action == ActionType.UPDATE_NODE_TAINT:
        wanted = [each.event for each in registered if each.event.resource == "Node"]
        if any(each.action & ActionType.ADD for each in wanted):
            return "Queue"  # a node's taints may have kept this plugin from seeing it
    for each in ("error", "Queue", "QueueSkip"):
        if each in answers:
            return each
    return None


def test_registrations_are_the_recorded_ones(records: Records, make_cluster: Any) -> None:
    plugins = make_cluster({}).plugins
    known = actions()
    for record in records("scheduler/hints.jsonl.gz"):
        if record["type"] == "actionTypes":
            assert {name: int(known[name]) for name in record["bits"]} == record["bits"]
        if record["type"] != "registration":
            continue
        expected = {
            (each["resource"], int(reduce(lambda a, b: a | b, (known[name] for name in each["actionTypes"])))): each[
                "hasHintFunction"
            ]
            for each in record["events"]
        }
        registered = {
            (each.event.resource, int(each.event.action)): each.hint is not None
            for each in plugins[record["plugin"]].events_to_register()
        }
        assert registered == expected, record["plugin"]


def test_hints_are_the_recorded_ones(records: Records, make_cluster: Any) -> None:
    plugins = make_cluster({}).plugins
    known = actions()
    seen = 0
    for record in records("scheduler/hints.jsonl.gz"):
        if record["type"] != "hint":
            continue
        seen += 1
        resource = record["event"]["resource"]
        event = ClusterEvent(resource, known[record["event"]["actionType"]], record["event"]["label"])
        pod = convert(Pod, record["pod"])
        old, new = read(resource, record["oldObj"]), read(resource, record["newObj"])
        answers = {
            name: given
            for name, plugin in plugins.items()
            if hasattr(plugin, "events_to_register") and (given := answer(plugin, event, pod, old, new)) is not None
        }
        expected = {name: "error" if given.startswith("error") else given for name, given in record["hints"].items()}
        assert answers == expected, (seen, record["event"], pod.key)
    assert seen
