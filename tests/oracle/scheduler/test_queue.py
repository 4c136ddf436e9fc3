"""Scheduling queue compared with kube-scheduler after every operation (README of the records: queue)."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from kubeloop.kube.objects.api_types import Pod, convert
from kubeloop.scheduler.api import events
from kubeloop.scheduler.api.events import ActionType, ClusterEvent, Hint
from kubeloop.scheduler.api.queued_pod import QueuedPodInfo
from kubeloop.scheduler.api.status import Code, Status
from kubeloop.scheduler.cache.node_info import PodInfo
from kubeloop.scheduler.queue.nominator import Nominator
from kubeloop.scheduler.queue.queue_settings import QueueSettings
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
    """Hint functions that return recorded results; one plugin and pod may have results for several events."""

    def __init__(self) -> None:
        self.entries: list[dict[str, Any]] = []

    def of(self, plugin: str) -> Callable[[Pod, Any, Any], Hint]:
        def hint(pod: Pod, old: Any, new: Any) -> Hint:
            for entry in self.entries:
                matches_objects = entry["objects"] is None or entry["objects"] == (id(old), id(new))
                if entry["pod"] == pod.key and plugin in entry["answers"] and matches_objects:
                    result = entry["answers"][plugin]
                    if result.startswith("error"):
                        raise ValueError(result)
                    return Hint.QUEUE if result == "Queue" else Hint.SKIP
            raise AssertionError(f"no recorded hint of {plugin} for {pod.key}: {self.entries}")

        return hint


class SchedulingGates:
    name = "SchedulingGates"

    def pre_enqueue(self, pod: Pod) -> Status | None:
        return Status(Code.UNSCHEDULABLE_AND_UNRESOLVABLE, ("gated",)) if pod.spec.scheduling_gates else None


class RecordedSequence:
    """A recorded sequence of operations and the queue that it is applied to."""

    def __init__(self, record: dict[str, Any], registrations_: list[Registration], hints: RecordedHints) -> None:
        self.now_ns = 0
        self.lister: dict[str, Pod] = {}
        self.popped: dict[str, QueuedPodInfo] = {}
        self.hints = hints
        self.queue = SchedulingQueue(
            sort_key=lambda queued: (-(queued.pod.spec.priority or 0), queued.timestamp_ns),
            hint_maps={"default-scheduler": QueueingHintMap(registrations_)},
            pre_enqueue={"default-scheduler": [SchedulingGates()]},
            nominator=Nominator(self.lister.get),
            now_ns=lambda: self.now_ns,
            settings=QueueSettings(
                initial_backoff_seconds=record["podInitialBackoffSeconds"],
                max_backoff_seconds=record["podMaxBackoffSeconds"],
                max_in_unschedulable_seconds=record["podMaxInUnschedulablePodsSeconds"],
            ),
        )

    def run(self, operation: dict[str, Any]) -> None:
        queue = self.queue
        self.now_ns = operation["atMs"] * MS
        self.hints.entries = [entry | {"objects": None} for entry in operation.get("hints", [])]
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
                self.assign_objects_to_hints(queued)
                queue.add_unschedulable_if_not_present(queued)
            case "done":
                queued = self.popped.pop(operation["pod"])
                assert queued.uid == operation["uid"]
                if operation["reason"] == "scheduled":
                    pod = self.lister[queued.key]
                    self.lister[queued.key] = convert(Pod, bound_pod(pod))
                queue.done(queued.uid)
            case "moveAllToActiveOrBackoffQueue":
                event = operation["event"]
                only = operation.get("onlyPodsUpToPriority")
                queue.move_all_to_active_or_backoff(
                    ClusterEvent(event["resource"], ACTIONS[event["actionType"]], event["label"]),
                    operation["oldObj"],
                    operation["newObj"],
                    None if only is None else lambda queued: queued.info.priority <= only,
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

    def assign_objects_to_hints(self, queued: QueuedPodInfo) -> None:
        """Assign events to hint entries, which are in event order; events without a registered rejector have none."""
        entries = iter(self.hints.entries)
        hint_map = self.queue._hint_maps["default-scheduler"]
        for in_flight_event in self.queue.in_flight.events_since(queued.uid):
            if any(
                registration.plugin in queued.rejectors for registration in hint_map.matching(in_flight_event.event)
            ):
                entry = next(entries)
                assert entry["event"] == in_flight_event.event.label
                entry["objects"] = (id(in_flight_event.old), id(in_flight_event.new))

    def state(self) -> dict[str, Any]:
        queue = self.queue
        nominated = {node: [pod.key for pod in queue.nominator.pods_on(node)] for node in queue.nominator.nodes()}
        return {
            "active": [queued.key for queued in queue.pending_pods().active],
            "backoff": [queued.key for queued in queue.pending_pods().backoff],
            "errorBackoff": [queued.key for queued in queue.pending_pods().error_backoff],
            "unschedulable": sorted(queued.key for queued in queue.pending_pods().unschedulable),
            "inFlight": sorted(queue.in_flight.keys()),
            "inFlightEvents": [f"{kind} {label}" for kind, label in queue.in_flight.log()],
            "schedulingCycle": queue.scheduling_cycle,
            **({"nominated": nominated} if nominated else {}),
        }

    def pod_state(self, name: str) -> dict[str, Any]:
        entry = self.queue.get(name)
        queue_name, queued = entry if entry is not None else ("inFlight", self.popped[name])
        if queue_name == "gated":
            queue_name = "unschedulable"
        if queued in self.queue.pending_pods().error_backoff:
            queue_name = "errorBackoff"
        document = {
            "pod": queued.key,
            "uid": queued.uid,
            "queue": queue_name,
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
            document["initialAttemptMs"] = queued.initial_attempt_ns // MS
        if queue_name.endswith("ackoff"):
            document["backoffExpirationMs"] = queued.backoff_expiration_ns // MS
        return document


def bound_pod(pod: Pod) -> dict[str, Any]:
    metadata = {"name": pod.metadata.name, "namespace": pod.metadata.namespace, "uid": pod.metadata.uid}
    return {"metadata": metadata, "spec": {"nodeName": "somewhere"}}


def recorded_registrations(records: Any, hints: RecordedHints) -> list[Registration]:
    """Return the registrations of the default plugins with recorded hints."""
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
            registrations_ = ClusterEvent(event["resource"], action)
            hint = hints.of(plugin) if (event["resource"], action) in with_hint else None
            result.append(Registration(plugin, registrations_, hint))
    return result


def test_queue_matches_kube_scheduler(records):
    hints = RecordedHints()
    registrations_ = recorded_registrations(records, hints)
    operations = 0
    for record in records("scheduler/queue.jsonl.gz"):
        sequence = RecordedSequence(record, registrations_, hints)
        for number, operation in enumerate(record["operations"]):
            queue_name = f"{record['name']} operation {number} {operation['op']}"
            sequence.run(operation)
            expected_state = dict(operation["state"])
            del expected_state["moveRequestCycle"]  # v1.36 decides by in-flight events instead
            assert sequence.state() == expected_state, queue_name
            for expected in operation.get("changedPods", []):
                assert sequence.pod_state(expected["pod"]) == expected, queue_name
            operations += 1
    assert operations > 0


def test_effective_registrations_match_kube_scheduler(records):
    compared = 0
    for record in records("scheduler/hints.jsonl.gz"):
        if record["type"] != "registration":
            continue

        class RegisteringPlugin:
            name = record["plugin"]

            def events_to_register(self, events_of: list[dict[str, Any]] = record["events"]) -> list[Any]:
                from kubeloop.scheduler.api.events import ClusterEventWithHint

                return [
                    ClusterEventWithHint(ClusterEvent(event["resource"], action_of(event["actionTypes"])))
                    for event in events_of
                ]

        effective = {
            (registration.event.resource, int(registration.event.action))
            for registration in registrations([RegisteringPlugin()])
        }
        expected = {(event["resource"], int(action_of(event["actionTypes"]))) for event in record["effectiveEvents"]}
        assert effective == expected, record["plugin"]
        compared += 1
    assert compared > 0
