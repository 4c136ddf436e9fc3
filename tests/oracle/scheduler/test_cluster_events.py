"""Calls to cache and queue for an informer event, compared with kube-scheduler's event handlers."""

from __future__ import annotations

from typing import Any

from kubeloop.kube.objects.api_types import Node, Pod, convert
from kubeloop.scheduler.api import events
from kubeloop.scheduler.api.queued_pod import QueuedPodInfo
from kubeloop.scheduler.cache.cache import CacheError, SchedulerCache
from kubeloop.scheduler.cache.node_info import PodInfo
from kubeloop.scheduler.event_handlers import NodeEvents, PodEvents

CACHE_CALLS = {
    "add_node": "cache.AddNode",
    "update_node": "cache.UpdateNode",
    "remove_node": "cache.RemoveNode",
    "add_pod": "cache.AddPod",
    "update_pod": "cache.UpdatePod",
    "remove_pod": "cache.RemovePod",
    "forget_pod": "cache.ForgetPod",
}


class RecordedCalls:
    """Recorded calls in the format of the records; objects are named by identity."""

    def __init__(self) -> None:
        self.entries: list[dict[str, Any]] = []
        self.names: dict[int, str] = {}

    def name(self, obj: Any) -> str | None:
        return None if obj is None else self.names.get(id(obj), "cached")


class RecordingCache(SchedulerCache):
    """A cache that records the calls of its methods."""

    def __init__(self, calls: RecordedCalls) -> None:
        super().__init__(lambda: 0.0)
        for method, call in CACHE_CALLS.items():
            setattr(self, method, self._recording(getattr(self, method), call, calls))

    @staticmethod
    def _recording(method: Any, call: str, calls: RecordedCalls) -> Any:
        def recorded(*objects: Any) -> None:
            entry = {"call": call}
            calls.entries.append(entry)
            try:
                method(*objects)
            except CacheError as error:
                entry["error"] = str(error)
                raise

        return recorded


class RecordingQueue:
    def __init__(self, calls: RecordedCalls) -> None:
        self.calls = calls

    def add(self, pod: Pod) -> None:
        self.calls.entries.append({"call": "queue.Add", "pod": self.calls.name(pod)})

    def delete(self, pod: Pod) -> None:
        self.calls.entries.append({"call": "queue.Delete", "pod": self.calls.name(pod)})

    def update(self, old: Pod, new: Pod) -> None:
        pod_events = [event_document(event) for event in events.pod_update_events(old, new)]
        call = {"call": "queue.Update", "oldObj": self.calls.name(old), "newObj": self.calls.name(new)}
        self.calls.entries.append(call | {"podEvents": pod_events})

    def move_all_to_active_or_backoff(self, event: Any, old: Any, new: Any, only: Any = None) -> None:
        call = {
            "call": "queue.MoveAll",
            "event": event_document(event),
            "oldObj": self.calls.name(old),
            "newObj": self.calls.name(new),
        }
        if only is not None:
            pods = {p: PodInfo(convert(Pod, {"spec": {"priority": p}})) for p in PRIORITIES}
            allowed = [p for p, info in pods.items() if only(QueuedPodInfo(info, 0))]
            call["onlyPodsUpToPriority"] = max(allowed)
        self.calls.entries.append(call)


PRIORITIES: set[int] = set()


def event_document(event: Any) -> dict[str, str]:
    return {"resource": event.resource, "actionType": events.action_name(event.action), "label": event.label}


def normalized(call: dict[str, Any]) -> dict[str, Any]:
    """Return the call in comparable form: cache calls are compared by name and by whether they fail."""
    if call["call"].startswith("cache."):
        return {"call": call["call"], "failed": "error" in call}
    return call


def test_event_handlers_match_kube_scheduler(records):
    compared = 0
    for number, record in enumerate(records("scheduler/cluster_events.jsonl.gz")):
        kind = Node if record["object"] == "Node" else Pod
        calls = RecordedCalls()
        cache, queue = RecordingCache(calls), RecordingQueue(calls)
        for setup in record.get("setup", []):
            if setup["call"] == "cache.AddNode":
                cache.add_node(convert(Node, setup["node"]))
            elif setup["call"] == "cache.AddPod":
                cache.add_pod(convert(Pod, setup["pod"]))
            else:
                cache.assume_pod(PodInfo(convert(Pod, setup["pod"])))
        calls.entries.clear()
        old = convert(kind, record["oldObj"]) if record.get("oldObj") else None
        new = convert(kind, record["newObj"]) if record.get("newObj") else None
        calls.names = {id(old): "old", id(new): "new"}
        for call in record["calls"]:
            if "onlyPodsUpToPriority" in call:
                limit = call["onlyPodsUpToPriority"]
                PRIORITIES.update((limit - 1, limit, limit + 1))
        if kind is Node:
            handler: Any = NodeEvents(cache, queue)
        else:
            handler = PodEvents(
                cache, queue, scheduler_names={"default-scheduler"}, reject_waiting_pod=lambda uid: False
            )
        if record["op"] == "add":
            handler.on_add(new, False)
        elif record["op"] == "update":
            handler.on_update(old, new)
        else:
            handler.on_delete(old, bool(record.get("finalStateUnknown")))
        entries = [normalized(call) for call in calls.entries]
        assert entries == [normalized(call) for call in record["calls"]], f"record {number}"
        compared += 1
    assert compared > 0
