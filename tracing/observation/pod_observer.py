"""Pod observer: turns watch events of pods, Events and nodes into records of pods, which ObservedPodRecorder opens.

    first state ----> followed ----ended, and its Events and owner have come or are overdue----> finished
                         |                                                                          ^
    first state of the initial list, ended already: reconstructed for views, not exported-----------+

A pod whose trace is finished, dropped or not sampled is remembered by its UID until it is deleted.
"""

from __future__ import annotations

import heapq
import itertools
import logging
from collections import deque
from collections.abc import Callable, Iterator, Set
from typing import Final, NamedTuple

from kubeloop.kube.objects.object_fields import controller_of
from kubeloop.kube.objects.observed_types import ObservedEvent, ObservedNode, ObservedOwner, ObservedPod
from kubeloop.kube.values.times import epoch_ns
from kubeloop.tracing.observation.clock_skew import API_SERVER, ClockSkew
from kubeloop.tracing.observation.pod_events import add_event
from kubeloop.tracing.observation.pod_states import Skew, add_state, describe, since_last_state, was_ready
from kubeloop.tracing.recording.observed_pod_recorder import ObservedPodRecorder
from kubeloop.tracing.recording.open_pod_records import OpenPodRecords
from kubeloop.tracing.spans.observed_phases import TraceEnd, bound_edge, trace_end
from kubeloop.tracing.spans.phase_times import start_sli_ns
from kubeloop.tracing.spans.pod_milestones import (
    Edge,
    MissedTime,
    PodMilestones,
    arrival_edge,
    later,
    timestamp_edge,
)
from kubeloop.tracing.spans.pod_record import PodRecord

log = logging.getLogger(__name__)

LATE_EVENTS_NS: Final = 5_000_000_000  # kubelets delay Events when they have many; owners are read at a limited rate
FIRST_EVENTS_NS: Final = 15_000_000_000  # after the first list of pods, Events of pods that had ended may come
EARLY_EVENTS_NS: Final = 60_000_000_000  # for which Events wait for their pod; it may be out of scope
MAX_EARLY: Final = 20_000  # pods of which Events came first; beyond, the oldest are dropped
MAX_REMEMBERED: Final = 10_000  # deleted pods, in case that a state comes after the deletion
MAX_RECONSTRUCTED: Final = 1_000  # pods that ended before the first list, the newest
MAX_PUBLISHED: Final = 100  # of those, per sweep: some 7 ms


class TopOwner(NamedTuple):
    """Kind and name of a pod's topmost owner, and the traceparent of its rollout: the annotation of the controller."""

    kind: str
    name: str
    traceparent: str = ""


class PodObserver:
    """Observes the pods of a cluster. Methods are synchronous, take some ten microseconds, and do not raise.

    `arrival_ns`: when the watch event was read, by the clock of `records`. `late_since_ns`: the state may be as old as
    this, because the watch was disconnected; 0: it was sent within a second. States and Events may come late, twice,
    in any order, or never.

    _done        UIDs of pods whose trace is finished, dropped or not sampled
    _early       milestones of pods of which only Events have come, and the first arrival (ns), in order
    _ended       end of the wait for late Events and owners (ns), of pods whose trace has ended
    _on_node     UIDs of followed pods by node
    _lost_nodes  since when a node is not ready, or gone
    _last_missed  the last time in which pods were not observed, which also concerns pods that were created in it
    _newest, _reconstructed  pods that ended before the first list: while it comes, and while their Events come
    """

    def __init__(
        self,
        records: OpenPodRecords,
        recorder: ObservedPodRecorder,
        *,
        until_ready: bool,
        skew: ClockSkew,
        top_owner: Callable[[str, ObservedOwner], TopOwner | None],
        has_events: bool = True,
        on_reconstructed: Callable[[PodRecord], None] = lambda record: None,
    ) -> None:
        """
        top_owner         returns the topmost owner above a pod's controller (namespace, controller); None if it is not
                          known yet: the observer calls again when the trace has ended. Must not block.
        has_events        Events are watched: a trace that has ended waits for those that are late
        on_reconstructed  receives records of pods that ended before the first list; for views, not for export
        """
        self._records = records
        self._recorder = recorder
        self._until_ready = until_ready
        self._skew = skew
        self._top_owner = top_owner
        self._has_events = has_events
        self._on_reconstructed = on_reconstructed
        self._done: set[str] = set()
        self._deleted: deque[str] = deque()
        self._early: dict[str, tuple[PodMilestones, int]] = {}
        self._ended: dict[str, int] = {}
        self._on_node: dict[str, set[str]] = {}
        self._lost_nodes: dict[str, Edge] = {}
        self._last_missed: MissedTime | None = None
        self._newest: list[tuple[int, str, ObservedPod, int]] = []  # heap
        self._reconstructed: dict[str, tuple[ObservedPod, PodMilestones]] = {}
        self._reconstructed_until_ns = 0
        self._owners: dict[str, ObservedOwner] = {}  # controllers of followed pods without a topmost owner
        self.events_dropped = 0  # Events dropped because their pods did not come

    def pod_observed(self, pod: ObservedPod, arrival_ns: int, late_since_ns: int = 0, *, initial: bool = False) -> None:
        """Record a state of a pod. `initial`: it is of the first list, and the pod may be older than the observer."""
        uid = pod.metadata.uid
        if uid in self._done:
            return
        record = self._records.get(uid)
        if record is None:
            record = self._follow(pod, arrival_ns, initial=initial)
            if record is None:
                return
        milestones = record.milestones
        if milestones is None or uid in self._ended:
            return
        was_acknowledged = milestones.acknowledged is not None
        if not add_state(milestones, pod, arrival_edge(arrival_ns, late_since_ns), self._skew_of(pod)):
            return
        _changed(record)
        if milestones.acknowledged is not None and not was_acknowledged:
            self._compare_node_clock(milestones, pod, arrival_ns)
        if milestones.bound is not None and uid not in self._on_node.get(milestones.node, ()):
            self._bound(record, milestones)
        if trace_end(milestones, until_ready=self._until_ready) is None:
            return
        if self._is_complete(record, milestones):
            self._finish(record)
        else:
            self._ended[uid] = self._records.now_ns() + LATE_EVENTS_NS

    def pod_deleted(self, pod: ObservedPod, arrival_ns: int, late_since_ns: int = 0) -> None:
        """Record that a pod was deleted; `pod` is its last state, or has only metadata."""
        uid = pod.metadata.uid
        record = self._records.get(uid)
        if record is not None and record.milestones is not None:
            milestones = record.milestones
            arrival = arrival_edge(arrival_ns, late_since_ns)
            milestones.deleted = since_last_state(milestones, arrival)
            if pod.spec.containers:
                add_state(milestones, pod, arrival, self._skew_of(pod))
            self._finish(record)
        self._done.add(uid)
        self._deleted.append(uid)
        if len(self._deleted) > MAX_REMEMBERED:
            self._done.discard(self._deleted.popleft())

    def event_observed(self, event: ObservedEvent, arrival_ns: int) -> None:
        """Record an Event. Events of other objects than pods are ignored."""
        involved = event.involved_object
        uid = involved.uid
        if involved.kind != "Pod":
            return
        if uid in self._done:
            if uid in self._reconstructed:
                add_event(self._reconstructed[uid][1], event, arrival_ns, self._skew.certain_ns(event.source.host))
            return
        record = self._records.get(uid)
        if record is not None and record.milestones is not None:
            if add_event(record.milestones, event, arrival_ns, self._skew.certain_ns(event.source.host)):
                _changed(record)
                if uid in self._ended and self._is_complete(record, record.milestones):
                    self._finish(record)
            return
        milestones, _ = self._early.setdefault(uid, (PodMilestones(), arrival_ns))
        if len(self._early) > MAX_EARLY:
            del self._early[next(iter(self._early))]
            self.events_dropped += 1
        add_event(milestones, event, arrival_ns, self._skew.certain_ns(event.source.host))

    def expect_events(self) -> None:
        """Record that Events are watched from now on: a trace that has ended waits for those that are late."""
        self._has_events = True

    def node_observed(self, node: ObservedNode, arrival_ns: int, late_since_ns: int = 0) -> None:
        """Record a state of a node."""
        name = node.metadata.name
        ready = next((condition for condition in node.status.conditions if condition.type == "Ready"), None)
        if ready is None or (ready.status == "True") is (name not in self._lost_nodes):
            return
        changed = ready.last_transition_time
        if changed is not None:
            edge = timestamp_edge(changed, "condition", arrival_ns)
        else:
            edge = arrival_edge(arrival_ns, late_since_ns)
        if ready.status == "True":
            del self._lost_nodes[name]
            for record, milestones in self._followed_on(name):
                milestones.node_back = edge
                _changed(record)
        else:
            self._node_lost(name, edge)

    def node_deleted(self, node: ObservedNode, arrival_ns: int, late_since_ns: int = 0) -> None:
        """Record that a node was deleted."""
        name = node.metadata.name
        self._node_lost(name, arrival_edge(arrival_ns, late_since_ns))
        del self._lost_nodes[name]

    def interrupted(self, resource: str, since_ns: int, until_ns: int) -> None:
        """Record that the watch of `resource` ("pods", "events", "nodes") missed changes: it was listed again.

        Call it before the states of the new list are passed to pod_observed().
        """
        if resource == "nodes":
            return  # a pod's phases do not depend on them
        missed = MissedTime(since_ns, until_ns, f"the watch of {resource} was interrupted")
        if resource == "pods":
            self._last_missed = missed
        for record in self._records.all():
            milestones = record.milestones
            if milestones is not None:
                _add_missed(record, milestones, missed)
                if resource == "pods":
                    milestones.version = 0  # resource versions start over if etcd was restored
                _changed(record)

    def retain(self, uids: Set[str]) -> None:
        """Forget finished pods that are not in a complete list of pods: they were deleted while no watch showed it."""
        self._done &= uids

    def synced(self) -> None:
        """Record that the first list of pods was passed: pods of earlier processes that it lacks were deleted."""
        for _, uid, pod, arrival_ns in sorted(self._newest, key=lambda entry: entry[:2]):
            milestones, _ = self._early.pop(uid, (PodMilestones(), 0))
            skew = self._skew_of(pod)
            describe(milestones, pod, arrival_ns, skew)
            add_state(milestones, pod, arrival_edge(arrival_ns), skew)
            self._reconstructed[uid] = pod, milestones
        self._newest = []
        self._reconstructed_until_ns = self._records.now_ns() + (FIRST_EVENTS_NS if self._has_events else 0)
        self._recorder.informer_synced()

    def sweep(self) -> None:
        """Finish traces that have waited long enough for late Events and owners. Call it about every second."""
        now_ns = self._records.now_ns()
        for uid, until_ns in [*self._ended.items()]:
            record = self._records.get(uid)
            if record is None or record.milestones is None:
                del self._ended[uid]
            elif until_ns <= now_ns or self._is_complete(record, record.milestones):
                self._finish_guarded(record)
        while self._early:
            uid, (_, since_ns) = next(iter(self._early.items()))
            if since_ns + EARLY_EVENTS_NS > now_ns:
                break
            del self._early[uid]
        if self._reconstructed and now_ns >= self._reconstructed_until_ns:
            for uid in [*itertools.islice(self._reconstructed, MAX_PUBLISHED)]:
                pod, milestones = self._reconstructed.pop(uid)
                try:
                    self._publish_reconstructed(pod, milestones)
                except Exception:
                    log.exception("cannot reconstruct the trace of a pod", extra={"pod": pod.key})

    def check(self) -> None:
        assert self._done.isdisjoint(record.uid for record in self._records.all())
        assert len(self._early) <= MAX_EARLY

    # ---------------------------------------------------------------------------------------------------------------

    def _follow(self, pod: ObservedPod, arrival_ns: int, *, initial: bool) -> PodRecord | None:
        """Start to follow a pod; None if its trace is not recorded."""
        uid = pod.metadata.uid
        if initial and self._has_ended(pod) and not self._recorder.is_restored(uid):
            self._done.add(uid)
            self._add_newest(pod, arrival_ns)
            return None
        milestones, _ = self._early.pop(uid, (PodMilestones(), 0))
        dropped = self._records.make_room()
        if dropped is not None:
            self._forget(dropped.uid, dropped.node)
        record = self._recorder.follow(pod, milestones)
        if record is None:
            self._done.add(uid)
            return None
        if record.milestones is milestones:
            describe(milestones, pod, arrival_ns, self._skew_of(pod))
            _set_start(record, milestones)
            record.reconstructed = initial
            if self._last_missed is not None:
                _add_missed(record, milestones, self._last_missed)
            created = pod.metadata.creation_timestamp
            if not initial and created is not None:
                self._skew.timestamp(API_SERVER, epoch_ns(created), arrival_ns)
        self._add_owner(record, pod)
        return record

    def _has_ended(self, pod: ObservedPod) -> bool:
        if pod.status.phase in ("Succeeded", "Failed"):
            return True
        return was_ready(pod) if self._until_ready else bool(pod.spec.node_name)

    def _add_owner(self, record: PodRecord, pod: ObservedPod) -> None:
        """Add the topmost owner, or remember the controller until it is known."""
        controller = controller_of(pod.metadata)
        if controller is None:
            return
        self._owners[record.uid] = controller
        self._resolve_owner(record)

    def _resolve_owner(self, record: PodRecord) -> None:
        controller = self._owners.get(record.uid)
        if controller is None:
            return
        top_owner = self._top_owner(record.namespace, controller)
        if top_owner is not None:
            record.top_owner_kind, record.top_owner_name, record.link = top_owner
            del self._owners[record.uid]

    def _is_complete(self, record: PodRecord, milestones: PodMilestones) -> bool:
        """Return True if a trace that has ended needs to wait neither for late Events nor for its topmost owner."""
        self._resolve_owner(record)
        return record.uid not in self._owners and not (self._has_events and _lacks_events(milestones))

    def _bound(self, record: PodRecord, milestones: PodMilestones) -> None:
        edge = bound_edge(milestones)
        assert edge is not None
        record.node, record.bound_ns, record.until_ready = milestones.node, edge.high_ns, self._until_ready
        self._on_node.setdefault(milestones.node, set()).add(record.uid)
        milestones.node_lost = self._lost_nodes.get(milestones.node)

    def _node_lost(self, node: str, edge: Edge) -> None:
        if node in self._lost_nodes:
            return
        self._lost_nodes[node] = edge
        for record, milestones in self._followed_on(node):
            milestones.node_lost, milestones.node_back = edge, None
            _changed(record)

    def _followed_on(self, node: str) -> Iterator[tuple[PodRecord, PodMilestones]]:
        for uid in self._on_node.get(node, ()):
            record = self._records.get(uid)
            if record is not None and record.milestones is not None:
                yield record, record.milestones

    def _skew_of(self, pod: ObservedPod) -> Skew:
        return Skew(self._skew.certain_ns(API_SERVER), self._skew.certain_ns(pod.spec.node_name))

    def _compare_node_clock(self, milestones: PodMilestones, pod: ObservedPod, arrival_ns: int) -> None:
        """Compare the node's clock: startTime was set after the pod was bound, by the clock of the API server."""
        start_time, server = pod.status.start_time, self._skew.estimate(API_SERVER)
        if start_time is None or any(owner.kind == "Node" for owner in pod.metadata.owner_references):
            return  # a static pod may start before it exists in the API server
        after_ns = 0
        if milestones.bound is not None and server is not None and server.highest_ns is not None:
            after_ns = milestones.bound.low_ns - max(0, server.highest_ns)
        self._skew.timestamp(pod.spec.node_name, epoch_ns(start_time), arrival_ns, after_ns=after_ns)

    def _finish(self, record: PodRecord) -> None:
        """Finish the record of a pod whose trace has ended."""
        milestones = record.milestones
        assert milestones is not None
        end = trace_end(milestones, until_ready=self._until_ready)
        assert end is not None
        self._resolve_owner(record)
        record.start_sli_ns = 0 if record.reconstructed else start_sli_ns(milestones)
        self._records.finish(record.uid, record, end.outcome, _close(record, milestones, end), end.reason)
        self._forget(record.uid, milestones.node)

    def _finish_guarded(self, record: PodRecord) -> None:
        """Finish a record, or drop it; a failure is logged, and must not stop the observation of other pods."""
        try:
            self._finish(record)
        except Exception:
            log.exception("cannot finish the trace of a pod", extra={"pod": f"{record.namespace}/{record.name}"})
            self._records.drop(record)
            self._forget(record.uid, record.node)

    def _forget(self, uid: str, node: str) -> None:
        """Remember only that the pod's trace is done."""
        self._done.add(uid)
        self._ended.pop(uid, None)
        self._owners.pop(uid, None)
        uids = self._on_node.get(node)
        if uids is not None:
            uids.discard(uid)
            if not uids:
                del self._on_node[node]

    def _add_newest(self, pod: ObservedPod, arrival_ns: int) -> None:
        """Remember a pod that ended before the first list, if it is one of the newest."""
        uid, created = pod.metadata.uid, pod.metadata.creation_timestamp
        entry = epoch_ns(created) if created is not None else 0, uid, pod, arrival_ns
        if len(self._newest) < MAX_RECONSTRUCTED:
            heapq.heappush(self._newest, entry)
        else:
            entry = heapq.heappushpop(self._newest, entry)
            self._early.pop(entry[1], None)

    def _publish_reconstructed(self, pod: ObservedPod, milestones: PodMilestones) -> None:
        end = trace_end(milestones, until_ready=self._until_ready)
        record = self._recorder.new_record(pod, milestones)
        if end is None or record is None:  # was Ready before, and it is not known when
            return
        _set_start(record, milestones)
        record.node, record.until_ready, record.reconstructed = milestones.node, self._until_ready, True
        self._add_owner(record, pod)
        self._owners.pop(record.uid, None)
        record.finish(end.outcome, _close(record, milestones, end), end.reason)
        self._on_reconstructed(record)


def _set_start(record: PodRecord, milestones: PodMilestones) -> None:
    creation = milestones.creation
    assert creation is not None
    record.start_ns, record.start_uncertainty_ns = creation.high_ns, creation.uncertainty_ns


def _add_missed(record: PodRecord, milestones: PodMilestones, missed: MissedTime) -> None:
    """Record a time in which the pod was not observed, as far as it existed."""
    if missed.until_ns > record.start_ns:
        milestones.add_missed(max(missed.since_ns, record.start_ns), missed.until_ns, missed.reason)


def _close(record: PodRecord, milestones: PodMilestones, end: TraceEnd) -> int:
    """Replace the milestones of a record by phases, and return its end (ns)."""
    bound, edge = bound_edge(milestones), end.edge
    if milestones.creation is not None:
        edge = later(milestones.creation, edge)
    record.bound_ns = bound.high_ns if bound is not None else 0
    record.end_phase = milestones.end_phase
    record.end_source, record.end_uncertainty_ns = edge.source, edge.uncertainty_ns
    end_ns = max(record.start_ns, edge.high_ns)
    record.close_phases(end_ns)
    return end_ns


def _changed(record: PodRecord) -> None:
    record.finished_facts += 1  # views compare it
    record.is_journaled = False


def _lacks_events(milestones: PodMilestones) -> bool:
    """Return True if the pod has run containers, but the Event of the start of one has not come.

    The kubelet sends the Events of a pod in order: that of a start is the last one that the trace needs.
    """
    return any(container.runs and container.started_event is None for container in milestones.containers.values())
