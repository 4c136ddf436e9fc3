"""The scheduling queue against kube-scheduler's, operation by operation (README of the records: queue)."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from kubeloop.kube.objects.api_types import Pod, convert
from kubeloop.scheduler.api import events
from kubeloop.scheduler.api.events import ActionType, ClusterEvent, Hint
from kubeloop.scheduler.api.queued_pod import QueuedPodInfo
from kubeloop.scheduler.api.status import Code, Status
from kubeloop.scheduler.cache.node_info import PodInfo
from kubeloop.scheduler.queue.queueing_hints import QueueingHintMap, Registration, registrations
from kubeloop.scheduler.queue.scheduling_queue import SchedulingQueue

MS = 1_000_000
ACTIONS = {events.action_name(action): action for action in ActionType} | {"Update": events.UPDATE, "All": events.ALL}


def action_of(names: list[str]) -> ActionType:
    result = ActionType(0)
    for name in names:
        result |= ACTIONS[name]
    return result


class RecordedHints:
    """Answers hints from the record. The queue may ask for one plugin and pod about several events in turn."""

    def __init__(self) -> None:
        self.answers: list[dict[str, Any]] = []

    def of(self, plugin: str) -> Callable[[Pod, Any, Any], Hint]:
        def hint(pod: Pod, old: Any, new: Any) -> Hint:
            for entry in self.answers:
                known = entry["objects"] is None or entry["objects"] == (id(old), id(new))
                if entry["pod"] == pod.key and plugin in entry["answers"] and known:
                    answer = entry["answers"][plugin]
                    if answer.startswith("error"):
                        raise ValueError(answer)
                    return Hint.QUEUE if answer == "Queue" else Hint.SKIP
            raise AssertionError(f"no recorded hint of {plugin} for {pod.key}: {self.answers}")

        return hint


class SchedulingGates:
    name = "SchedulingGates"

    def pre_enqueue(self, pod: Pod) -> Status | None:
        return Status(Code.UNSCHEDULABLE_AND_UNRESOLVABLE, ("gated",)) if pod.spec.scheduling_gates else None


class Recorded:
    """One sequence of the records, running."""

    def __init__(self, record: dict[str, Any], registered: list[Registration], hints: RecordedHints) -> None:
        self.now_ns = 0
        self.lister: dict[str, Pod] = {}
        self.popped: dict[str, QueuedPodInfo] = {}
        self.hints = hints
        self.queue = SchedulingQueue(
            sort_key=lambda queued: (-(queued.pod.spec.priority or 0), queued.timestamp_ns),
            hint_maps={"default-scheduler": QueueingHintMap(registered)},
            pre_enqueue={"default-scheduler": [SchedulingGates()]},
            lookup=self.lister.get,
            now_ns=lambda: self.now_ns,
            initial_backoff_seconds=record["podInitialBackoffSeconds"],
            max_backoff_seconds=record["podMaxBackoffSeconds"],
            max_in_unschedulable_seconds=record["podMaxInUnschedulablePodsSeconds"],
        )

    def run(self, operation: dict[str, Any]) -> None:
        queue = self.queue
        self.now_ns = operation["atMs"] * MS
        self.hints.answers = [entry | {"objects": None} for entry in operation.get("hints", [])]
        match operation["op"]:
            case "add":
                pod = convert(Pod, operation["pod"])
                self.lister[pod.key] = pod
                queue.add(pod)
            case "update":
                old, new = convert(Pod, operation["oldPod"]), convert(Pod, operation["newPod"])
                self.lister[new.key] = new
                assert [event.label for event in events.pod_update_events(old, new)] == operation["podEvents"]
                queue.update(old, new)
            case "delete":
                queue.delete(self.lister.pop(operation["pod"]))
            case "activate":
                queue.activate([self.lister[operation["pod"]]])
            case "pop":
                queued = queue.pop()
                assert (queued.key if queued else None) == operation["result"]
                if queued is not None:
                    self.popped[queued.key] = queued
            case "addUnschedulableIfNotPresent":
                queued = self.popped.pop(operation["pod"])
                queued.update(self.lister[queued.key])
                assert queued.pod.metadata.resource_version == operation["podResourceVersion"]
                queued.unschedulable_plugins = set(operation["unschedulablePlugins"])
                queued.pending_plugins = set(operation["pendingPlugins"])
                self.match_hints_to_missed_events(queued)
                queue.add_unschedulable_if_not_present(queued)
            case "done":
                queued = self.popped.pop(operation["pod"])
                assert queued.uid == operation["uid"]
                if operation["reason"] == "scheduled":
                    pod = self.lister[queued.key]
                    self.lister[queued.key] = convert(Pod, with_node(pod))
                queue.done(queued.uid)
            case "moveAllToActiveOrBackoffQueue":
                event = operation["event"]
                only = operation.get("onlyPodsUpToPriority")
                queue.move_all_to_active_or_backoff(
                    ClusterEvent(event["resource"], ACTIONS[event["actionType"]], event["label"]),
                    operation["oldObj"],
                    operation["newObj"],
                    None if only is None else lambda pod: (pod.spec.priority or 0) <= only,
                )
            case "flushBackoffQCompleted":
                queue.flush_backoff_completed()
            case "flushUnschedulablePodsLeftover":
                queue.flush_unschedulable_leftover()
            case "addNominatedPod":
                info = PodInfo(self.lister.get(operation["pod"]) or self.popped[operation["pod"]].pod)
                queue.nominator.add(info, operation["nodeName"] if operation["mode"] == "override" else None)
            case "deleteNominatedPodIfExists":
                queue.nominator.remove(self.lister[operation["pod"]].metadata.uid)
            case unknown:
                raise AssertionError(unknown)
        queue.check()

    def match_hints_to_missed_events(self, queued: QueuedPodInfo) -> None:
        """Recorded in the order of the events; an event without any registered rejector has no entry."""
        entries = iter(self.hints.answers)
        hint_map = self.queue._hint_maps["default-scheduler"]
        for missed in self.queue._in_flight.events_since(queued.uid):
            if any(each.plugin in queued.rejectors for each in hint_map.matching(missed.event)):
                entry = next(entries)
                assert entry["event"] == missed.event.label
                entry["objects"] = (id(missed.old), id(missed.new))

    def state(self) -> dict[str, Any]:
        queue = self.queue
        nominated = {node: [pod.key for pod in queue.nominator.pods_on(node)] for node in queue.nominator.nodes()}
        return {
            "active": [queued.key for queued in queue.active_pods()],
            "backoff": [queued.key for queued in queue.backoff_pods()],
            "errorBackoff": [queued.key for queued in queue.error_backoff_pods()],
            "unschedulable": sorted(queued.key for queued in queue.unschedulable_pods()),
            "inFlight": sorted(queue.in_flight_keys()),
            "inFlightEvents": [f"{kind} {label}" for kind, label in queue.in_flight_log()],
            "schedulingCycle": queue.scheduling_cycle,
            "moveRequestCycle": queue.move_request_cycle,
            **({"nominated": nominated} if nominated else {}),
        }

    def pod_state(self, name: str) -> dict[str, Any]:
        found = self.queue.get(name)
        where, queued = found if found is not None else ("inFlight", self.popped[name])
        if where == "gated":
            where = "unschedulable"
        if queued in self.queue.error_backoff_pods():
            where = "errorBackoff"
        shown = {
            "pod": queued.key,
            "uid": queued.uid,
            "queue": where,
            "attempts": queued.attempts,
            "timestampMs": queued.timestamp_ns // MS,
            "unschedulableCount": queued.unschedulable_count,
            "consecutiveErrorsCount": queued.consecutive_errors_count,
            "unschedulablePlugins": sorted(queued.unschedulable_plugins),
            "pendingPlugins": sorted(queued.pending_plugins),
            "gatingPlugin": queued.gating_plugin,
            "wasFlushedFromUnschedulable": queued.was_flushed_from_unschedulable,
            "podResourceVersion": queued.pod.metadata.resource_version,
        }
        if queued.initial_attempt_ns:
            shown["initialAttemptMs"] = queued.initial_attempt_ns // MS
        if where.endswith("ackoff"):
            shown["backoffExpirationMs"] = queued.backoff_expiration_ns // MS
        return shown


def with_node(pod: Pod) -> dict[str, Any]:
    metadata = {"name": pod.metadata.name, "namespace": pod.metadata.namespace, "uid": pod.metadata.uid}
    return {"metadata": metadata, "spec": {"nodeName": "somewhere"}}


def recorded_registrations(records: Any, hints: RecordedHints) -> list[Registration]:
    """What the default plugins register, with hints that answer from the records."""
    result = []
    for record in records("scheduler/hints.jsonl.gz"):
        if record["type"] != "registration":
            continue
        plugin = record["plugin"]
        with_hint = [
            (event["resource"], action_of(event["actionTypes"]))
            for event in record["events"]
            if event["hasHintFunction"]
        ]
        for event in record["effectiveEvents"]:
            action = action_of(event["actionTypes"])
            registered = ClusterEvent(event["resource"], action)
            asked = hints.of(plugin) if (event["resource"], action) in with_hint else None
            result.append(Registration(plugin, registered, asked))
    return result


def test_the_queue_does_what_kube_schedulers_does(records):
    hints = RecordedHints()
    registered = recorded_registrations(records, hints)
    operations = 0
    for record in records("scheduler/queue.jsonl.gz"):
        running = Recorded(record, registered, hints)
        for number, operation in enumerate(record["operations"]):
            where = f"{record['name']} operation {number} {operation['op']}"
            running.run(operation)
            assert running.state() == operation["state"], where
            for expected in operation.get("changedPods", []):
                assert running.pod_state(expected["pod"]) == expected, where
            operations += 1
    assert operations > 0


def test_what_plugins_register_is_completed_as_kube_scheduler_does(records):
    compared = 0
    for record in records("scheduler/hints.jsonl.gz"):
        if record["type"] != "registration":
            continue

        class Registering:
            name = record["plugin"]

            def events_to_register(self, events_of: list[dict[str, Any]] = record["events"]) -> list[Any]:
                from kubeloop.scheduler.api.events import ClusterEventWithHint

                return [
                    ClusterEventWithHint(ClusterEvent(event["resource"], action_of(event["actionTypes"])))
                    for event in events_of
                ]

        effective = {(each.event.resource, int(each.event.action)) for each in registrations([Registering()])}
        expected = {(event["resource"], int(action_of(event["actionTypes"]))) for event in record["effectiveEvents"]}
        assert effective == expected, record["plugin"]
        compared += 1
    assert compared > 0
