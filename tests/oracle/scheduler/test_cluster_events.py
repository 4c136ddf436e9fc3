"""What one informer event does to the cache and the queue, call by call, against kube-scheduler's handlers."""

from __future__ import annotations

from typing import Any

from kubeloop.kube.objects.api_types import Node, Pod, convert
from kubeloop.scheduler.api import events
from kubeloop.scheduler.cache.cache import Cache, CacheError
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


class Calls:
    """What was called, in the words of the records. Objects are named by identity."""

    def __init__(self) -> None:
        self.made: list[dict[str, Any]] = []
        self.names: dict[int, str] = {}

    def name(self, obj: Any) -> str | None:
        return None if obj is None else self.names.get(id(obj), "cached")


class RecordingCache(Cache):
    """A cache that notes which of its methods are called."""

    def __init__(self, calls: Calls) -> None:
        super().__init__(lambda: 0.0)
        for method, call in CACHE_CALLS.items():
            setattr(self, method, self._recording(getattr(self, method), call, calls))

    @staticmethod
    def _recording(method: Any, call: str, calls: Calls) -> Any:
        def recorded(*objects: Any) -> None:
            entry = {"call": call}
            calls.made.append(entry)
            try:
                method(*objects)
            except CacheError as error:
                entry["error"] = str(error)
                raise

        return recorded


class RecordingQueue:
    def __init__(self, calls: Calls) -> None:
        self.calls = calls

    def add(self, pod: Pod) -> None:
        self.calls.made.append({"call": "queue.Add", "pod": self.calls.name(pod)})

    def delete(self, pod: Pod) -> None:
        self.calls.made.append({"call": "queue.Delete", "pod": self.calls.name(pod)})

    def update(self, old: Pod, new: Pod) -> None:
        derived = [described(event) for event in events.pod_update_events(old, new)]
        call = {"call": "queue.Update", "oldObj": self.calls.name(old), "newObj": self.calls.name(new)}
        self.calls.made.append(call | {"podEvents": derived})

    def move_all_to_active_or_backoff(self, event: Any, old: Any, new: Any, only: Any = None) -> None:
        call = {
            "call": "queue.MoveAll",
            "event": described(event),
            "oldObj": self.calls.name(old),
            "newObj": self.calls.name(new),
        }
        if only is not None:
            passing = [p for p in PRIORITIES if only(convert(Pod, {"spec": {"priority": p}}))]
            call["onlyPodsUpToPriority"] = max(passing)
        self.calls.made.append(call)


PRIORITIES: set[int] = set()


def described(event: Any) -> dict[str, str]:
    return {"resource": event.resource, "actionType": events.action_name(event.action), "label": event.label}


def normalized(call: dict[str, Any]) -> dict[str, Any]:
    """Cache calls compare by name and by whether they fail."""
    if call["call"].startswith("cache."):
        return {"call": call["call"], "failed": "error" in call}
    return call


def test_events_reach_cache_and_queue_as_in_kube_scheduler(records):
    compared = 0
    for number, record in enumerate(records("scheduler/cluster_events.jsonl.gz")):
        kind = Node if record["object"] == "Node" else Pod
        calls = Calls()
        cache, queue = RecordingCache(calls), RecordingQueue(calls)
        for setup in record.get("setup", []):
            if setup["call"] == "cache.AddNode":
                cache.add_node(convert(Node, setup["node"]))
            elif setup["call"] == "cache.AddPod":
                cache.add_pod(convert(Pod, setup["pod"]))
            else:
                cache.assume_pod(convert(Pod, setup["pod"]))
        calls.made.clear()
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
        made = [normalized(call) for call in calls.made]
        assert made == [normalized(call) for call in record["calls"]], f"record {number}"
        compared += 1
    assert compared > 0
