"""Pod recorder: one trace per pod, from the create request until the informer shows the pod bound (or ready).

On the hot path, a method appends a fact to the pod's record; `pod_spans.pod_trace` builds spans from it on demand. A
record is open from the create request, or from the first observation of a pod that is not bound:

    requested --created/observed--> followed --bound (or ready), deleted--> finished: passed to `on_finished`
        |                              ^                                         ^
        |   restored, of a process ----+--- absent when the informer has synced -+
        |   that was killed                                                      |
        +--create_failed, and not observed for FAILED_CREATE_SECONDS-------------+

If the pod has POD_TRACE_ANNOTATION, the span in its traceparent annotation is the root of its trace, and the process
that ends the trace exports the root with that ID. Otherwise that span is of another service and the root's parent.
"""

from __future__ import annotations

import itertools
import logging
import operator
import random
from collections.abc import Callable, Iterable, Iterator
from datetime import datetime
from typing import TYPE_CHECKING, Protocol

import msgspec

from kubeloop.kube.client.current_span import current_span
from kubeloop.kube.clock import Clock
from kubeloop.kube.objects.api_types import OwnerReference, Pod
from kubeloop.kube.objects.object_fields import controller_of
from kubeloop.kube.objects.resources import JOBS
from kubeloop.kube.times import epoch_ns, time_plus
from kubeloop.tracing.sampling.samplers import Sampler
from kubeloop.tracing.spans.pod_record import (
    MAX_FACTS,
    START_PHASES,
    TERMINATING,
    AttemptFacts,
    Gap,
    Phase,
    PodRecord,
    SchedulingAttempt,
    Wait,
)
from kubeloop.tracing.spans.traceparent import (
    POD_TRACE_ANNOTATION,
    TRACEPARENT_ANNOTATION,
    PodTraceAnnotation,
    TraceContext,
    new_span_id,
    parse_pod_trace_annotation,
    parse_traceparent,
)

if TYPE_CHECKING:  # only `kubeloop observe` needs it
    from kubeloop.kube.objects.observed_types import ObservedPod
    from kubeloop.tracing.spans.pod_milestones import PodMilestones

__all__ = ["AttemptFacts", "OpenRecordStore", "PodCreateRequest", "PodRecorder"]

log = logging.getLogger(__name__)

MAX_OPEN = 100_000  # records; the record of a pending pod takes about 2 KB
MAX_TOTAL_FACTS = 1_000_000  # of all open records, about 200 bytes each
MIN_FACTS = 24  # limit per record that holds even if MAX_TOTAL_FACTS is exceeded
FAILED_CREATE_SECONDS = 10.0  # a pod may exist although the response to its create was lost: the watch shows it by then
BIND_RESPONSE_SECONDS = 60.0  # after which a pod that was observed bound is finished without a response to its bind
DEFAULT_CREATORS = frozenset({"ReplicaSet", "ReplicationController"})
MAX_SAVED_PER_SWEEP = 1_000  # some 10 ms
MAX_COMPARED_PER_SWEEP = 20_000
MAX_UNRESOLVED = 10_000  # records that wait for their topmost owner; further ones show the controller only
_CONDITIONS = tuple(condition for condition, _ in START_PHASES)


FindTopOwner = Callable[[str, OwnerReference], tuple[str, str] | None]
"""Namespace and controller of a pod -> kind and name of its topmost owner; None if it is not known yet."""


class PodCreateRequest(msgspec.Struct, frozen=True, gc=False):
    """Trace context of the request that creates a pod, and the pod's annotations; both empty without tracing."""

    traceparent: str = ""
    annotations: dict[str, str] = {}

    def log_context(self) -> str:
        return self.traceparent


_UNTRACED_REQUEST = PodCreateRequest()


class OpenRecordStore(Protocol):
    """Persistent store of open records, so that the next process can continue them after a crash."""

    def save(self, record: PodRecord) -> None:
        """Store this state of the record, replacing the previous one."""
        ...

    def delete(self, record: PodRecord) -> None: ...


class PodRecorder:
    """Records events of pods. Methods are synchronous, take about a microsecond, and do not raise.

    Times in ns are from `now_ns()`. Not recorded are pods that the sampler leaves out, pods that are bound when first
    observed, and pods outside of the scope (`limit_scope`); calls about them are ignored.
    """

    def __init__(
        self,
        *,
        clock: Clock,
        rng: random.Random,
        sampler: Sampler = Sampler(),  # noqa: B008  # immutable
        on_finished: Callable[[PodRecord], None] = lambda record: None,
        on_evicted: Callable[[PodRecord], None] = lambda record: None,
        until_ready: bool = False,
    ) -> None:
        """`on_finished` receives each finished record, `on_evicted` each record dropped because of MAX_OPEN."""
        self._clock = clock
        self._time_ns = clock.time_ns
        self._rng = rng
        self._uid_rng = random.Random(0)  # seeded with the UID of each observed pod
        self._sampler = sampler
        self._on_finished = on_finished
        self._on_evicted = on_evicted
        self._store: OpenRecordStore | None = None
        self._until_ready = until_ready
        self._max_facts = MAX_FACTS
        self._schedules: Callable[[str], bool] = lambda scheduler_name: True
        self._creators = DEFAULT_CREATORS
        self._requested: dict[str, PodRecord] = {}  # by traceparent: the pod's UID is not known yet
        self._followed: dict[str, PodRecord] = {}  # by UID, oldest first
        self._failed: dict[str, int] = {}  # time of the failed create (ns) by traceparent, for requested pods, in order
        self._awaiting_response: dict[str, int] = {}  # end of the trace (ns) by UID, of pods with a bind in flight
        self._find_top_owner: FindTopOwner = lambda namespace, controller: (controller.kind, controller.name)
        self._unresolved: dict[str, tuple[PodRecord, OwnerReference]] = {}  # by UID: records without topmost owner
        self._to_save: Iterator[PodRecord] | None = None  # rest of the current pass over all open records
        self._starts_traces, self._records_traces = sampler.starts_traces, sampler.records_traces
        self._restored: dict[str, tuple[PodRecord, int]] = {}  # by UID or traceparent; until when it was followed (ns)

    def now_ns(self) -> int:
        return self._time_ns()

    def save_to(self, store: OpenRecordStore) -> None:
        """Save open records in `store` from now on."""
        self._store = store

    def limit_scope(self, *, schedules: Callable[[str], bool], creators: frozenset[str]) -> None:
        """Limit which pods are recorded: those of this process's schedulers (by name), and those created by its
        controllers (owner kinds). By default all pods are."""
        self._schedules = schedules
        self._creators = creators

    def look_up_owners(self, find: FindTopOwner) -> None:
        """Look up the topmost owner of pods of Jobs that another process created. `find` must not block.

        Labels and annotations of a pod name neither the CronJob nor another owner of its Job.
        """
        self._find_top_owner = find

    def resolve_owners(self) -> None:
        """Add the topmost owners that have become known, also to finished records."""
        for uid, (record, controller) in [*self._unresolved.items()]:
            if self._resolve_owner(record, controller):
                del self._unresolved[uid]

    def _resolve_owner(self, record: PodRecord, controller: OwnerReference) -> bool:
        """Add the topmost owner; return False if it is not known yet."""
        top_owner = self._find_top_owner(record.namespace, controller)
        if top_owner is not None and top_owner != (controller.kind, controller.name):
            record.top_owner_kind, record.top_owner_name = top_owner
            record.finished_facts += 1  # views compare it
            record.is_journaled = False
        return top_owner is not None

    def _look_up_owner(self, record: PodRecord, controller: OwnerReference | None) -> None:
        if controller is None or controller.kind != JOBS.kind or record.top_owner_kind:
            return
        if not self._resolve_owner(record, controller) and len(self._unresolved) < MAX_UNRESOLVED:
            self._unresolved[record.uid] = record, controller

    # --- create request --------------------------------------------------------------------------------------------

    def create_requested(
        self,
        *,
        namespace: str,
        owner_kind: str,
        owner_name: str,
        top_owner: OwnerReference | None = None,
        link: str = "",
        inherited: str = "",
        scheduler_name: str = "default-scheduler",
    ) -> PodCreateRequest:
        """Open a record. Call before the request: the watch event may come first.

        `top_owner`: the owner's controller, such as a CronJob. `link`: traceparent of the reconcile. `inherited`: a
        traceparent that the template has: the pod's span becomes a child of it.
        """
        if not (inherited or self._starts_traces):
            return _UNTRACED_REQUEST
        start_ns = self._time_ns()
        parent = parse_traceparent(inherited) if inherited else None
        if parent is not None and self._sampler.enabled:
            sampled = self._sampler.samples_child(parent.trace_id, parent.sampled)
            context = TraceContext(parent.trace_id, new_span_id(self._rng), sampled)
        elif self._starts_traces:
            context = self._sampler.root_context(self._rng)
        else:
            return _UNTRACED_REQUEST
        traceparent = context.traceparent
        annotations = {TRACEPARENT_ANNOTATION: traceparent}
        if not self._sampler.records(context.sampled):
            return PodCreateRequest(traceparent, annotations)
        record = PodRecord(context, start_ns, traceparent)
        record.namespace = namespace
        record.owner_kind, record.owner_name = owner_kind, owner_name
        if top_owner is not None and top_owner.kind != "Deployment":  # a Deployment is derived from the ReplicaSet
            record.top_owner_kind, record.top_owner_name = top_owner.kind, top_owner.name
        record.create_start_ns = start_ns
        record.link = link
        record.parent_span_id = parent.span_id if parent is not None else ""
        by_creator = not self._schedules(scheduler_name)
        if by_creator:
            record.scheduler = scheduler_name
        annotations[POD_TRACE_ANNOTATION] = str(
            PodTraceAnnotation(start_ns, record.parent_span_id, record.link, by_creator)
        )
        self._requested[traceparent] = record
        if self._store is not None:
            self._store.save(record)
        if len(self._requested) + len(self._followed) > MAX_OPEN:
            self._evict()
        return PodCreateRequest(traceparent, annotations)

    def created(self, traceparent: str, pod: Pod) -> None:
        record = self._requested.get(traceparent)
        if record is None:
            record = self._followed.get(pod.metadata.uid)  # the watch event came first
        else:
            self._follow(traceparent, record, pod)
        if record is not None and record.traceparent == traceparent:
            record.create_end_ns = self._time_ns()
            record.is_journaled = False

    def create_failed(self, traceparent: str, error: str) -> None:
        record = self._requested.get(traceparent)
        if record is not None:
            record.create_end_ns, record.create_error = self._time_ns(), error
            record.is_journaled = False
            self._failed[traceparent] = record.create_end_ns

    # --- informer events -------------------------------------------------------------------------------------------

    def observed(self, pod: Pod) -> None:
        """Record that the informer delivered this state of the pod."""
        uid = pod.metadata.uid
        record = self._followed.get(uid)
        node = pod.spec.node_name
        if record is None:
            if not self._records_traces:
                return
            traceparent = pod.metadata.annotations.get(TRACEPARENT_ANNOTATION, "")
            record = self._requested.get(traceparent) if traceparent else None
            if record is not None:
                self._follow(traceparent, record, pod)
            elif self._restored and (uid in self._restored or traceparent in self._restored):
                record = self._follow_restored(uid if uid in self._restored else traceparent, pod)
            elif node or pod.status.phase in ("Succeeded", "Failed"):
                return
            else:
                record = self._follow_unbound(pod, traceparent)
                if record is None:
                    return
        now_ns = self._time_ns()
        if not record.observed_ns:
            record.observed_ns = now_ns
            record.is_journaled = False
        if node:
            record.is_journaled = False
            if not record.bound_ns:
                record.node = node
                record.bound_ns = now_ns
                record.until_ready = self._until_ready
            self._check_end(uid, record, pod, now_ns)
        elif pod.metadata.deletion_timestamp is not None and not record.terminating:
            record.terminating = True
            record.add(Wait(now_ns, TERMINATING), self._max_facts)

    def deleted(self, pod: Pod) -> None:
        uid = pod.metadata.uid
        record = self._followed.get(uid)
        if record is None:
            return
        if record.bound_ns and not self._until_ready:
            self._finish(uid, record, "bound", self._time_ns())
        elif record.bound_ns:
            self._finish(uid, record, "deleted", self._time_ns(), "deleted before it was ready")
        else:
            self._finish(uid, record, "deleted", self._time_ns(), "deleted before it was bound")

    # --- scheduler -------------------------------------------------------------------------------------------------

    def queued(self, pod: Pod, queue: str, reason: str = "") -> None:
        """Start a wait in "active", "backoff", "unschedulable" or "gated", which ends the previous wait.

        `reason`: the event that moved the pod, or why it waits.
        """
        record = self._followed.get(pod.metadata.uid)
        if record is not None:
            record.add(Wait(self._time_ns(), queue, reason), self._max_facts)

    def attempt_started(self, pod: Pod, attempt: int) -> None:
        record = self.enter_span(pod)
        if record is not None:
            record.add(SchedulingAttempt(self._time_ns(), attempt), self._max_facts)

    def attempt_finished(self, pod: Pod, facts: AttemptFacts, reserve: Phase | None = None) -> None:
        """Record the end of the scheduling cycle: a node is selected, or no node fits, or the cycle failed.

        reserve: the run of the Reserve plugins, if there was one.
        """
        current_span.set(None)
        record = self._followed.get(pod.metadata.uid)
        if record is not None:
            record.finish_attempt(self._time_ns(), facts)
            if reserve is not None:
                record.add(reserve, self._max_facts)

    def permit_started(self, pod: Pod) -> None:
        self._phase_started(pod, "permit")

    def permit_finished(self, pod: Pod, error: str | None = None) -> None:
        self._phase_finished(pod, "permit", error)

    def pre_bind_started(self, pod: Pod) -> None:
        self._phase_started(pod, "pre-bind")

    def pre_bind_finished(self, pod: Pod, error: str | None = None) -> None:
        self._phase_finished(pod, "pre-bind", error)

    def bind_started(self, pod: Pod, node: str) -> None:
        record = self.enter_span(pod)
        if record is not None:
            record.bind_in_flight = True
            record.add(Phase(self._time_ns(), "bind", node), self._max_facts)
            if self._store is not None:  # if this process is killed now, only the store has the facts of a bound pod
                self._store.save(record)

    def bind_finished(self, pod: Pod, error: str | None = None) -> None:
        uid = pod.metadata.uid
        record = self._followed.get(uid)
        if record is None:
            return
        now_ns = self._time_ns()
        record.bind_in_flight = False
        record.finish_phase("bind", now_ns, error)
        if uid in self._awaiting_response:
            self._finish(uid, record, self._outcome(record), max(now_ns, self._awaiting_response[uid]))

    def enter_span(self, pod: Pod) -> PodRecord | None:
        """Make the pod's span the current one of the running task, for requests and log records; returns the record.

        A pod without a record has the trace context of its annotation.
        """
        metadata = pod.metadata
        record = self._followed.get(metadata.uid)
        if record is None and TRACEPARENT_ANNOTATION in metadata.annotations:
            current_span.set(parse_traceparent(metadata.annotations[TRACEPARENT_ANNOTATION]))
        else:
            current_span.set(record)
        return record

    def link_group(self, uid: str, traceparent: str) -> PodRecord | None:
        """Link the pod's trace to that of its group; returns its record, None if it has none."""
        record = self._followed.get(uid)
        if record is not None:
            record.group_link = traceparent
            record.finished_facts += 1  # views compare it
            record.is_journaled = False
        return record

    # --- queries ---------------------------------------------------------------------------------------------------

    def open_records(self) -> Iterable[PodRecord]:
        """Iterate over open records. Do not await while iterating."""
        yield from self._requested.values()
        yield from self._followed.values()

    def open_count(self) -> int:
        return len(self._requested) + len(self._followed)

    def open_record(self, uid: str) -> PodRecord | None:
        return self._followed.get(uid)

    def sweep(self) -> None:
        """Finish records whose wait timed out (a pod after a failed create, a response to a bind), and save changes."""
        now_ns = self._time_ns()
        for traceparent, since_ns in [*self._failed.items()]:
            if now_ns - since_ns < FAILED_CREATE_SECONDS * 1e9:
                break
            del self._failed[traceparent]
            record = self._requested.pop(traceparent)
            record.finish("create failed", record.create_end_ns, record.create_error)
            self._on_finished(record)
        for uid, since_ns in [*self._awaiting_response.items()]:
            if now_ns - since_ns < BIND_RESPONSE_SECONDS * 1e9:
                break
            record = self._followed[uid]
            self._finish(uid, record, self._outcome(record), since_ns)
        self.resolve_owners()
        self._max_facts = max(MIN_FACTS, min(MAX_FACTS, MAX_TOTAL_FACTS // (self.open_count() + 1)))
        if self._store is not None:
            self._save_some(self._store)

    def _save_some(self, store: OpenRecordStore) -> None:
        """Save changed records, at most MAX_SAVED_PER_SWEEP; the next sweep continues."""
        if self._to_save is None:
            self._to_save = iter([*self.open_records()])
        remaining = MAX_SAVED_PER_SWEEP
        for record in itertools.islice(self._to_save, MAX_COMPARED_PER_SWEEP):
            if not (record.outcome or (record.is_journaled and record.journaled_facts == len(record.facts))):
                store.save(record)
                remaining -= 1
                if not remaining:
                    return
        if operator.length_hint(self._to_save) == 0:
            self._to_save = None

    def check(self) -> None:
        assert self._failed.keys() <= self._requested.keys()
        assert self._awaiting_response.keys() <= self._followed.keys()
        assert all(record.outcome == "" for record in self.open_records())

    # --- records of other processes --------------------------------------------------------------------------------

    def restore(self, record: PodRecord, until_ns: int) -> None:
        """Restore an open record of a terminated process, which followed the pod until `until_ns`.

        Call it before observed(); call informer_synced() after all pods have been observed.
        """
        self._restored[record.uid or record.traceparent] = record, until_ns

    def informer_synced(self) -> None:
        """Finish restored records of pods that the informer did not deliver: they were deleted."""
        now_ns = self._time_ns()
        restored, self._restored = self._restored, {}
        for record, until_ns in restored.values():
            if record.bound_ns and not self._until_ready:
                record.finish("bound", record.bound_ns)
            elif record.uid:
                if record.milestones is not None:
                    record.milestones.add_missed(until_ns, now_ns, "kubeloop was not running")
                    record.close_phases(now_ns)
                    record.end_source, record.end_uncertainty_ns = "arrival", now_ns - until_ns
                else:
                    record.add(Gap(until_ns, now_ns, "kubeloop was not running"))
                record.finish("deleted", now_ns, "deleted while kubeloop was not running")
            else:
                record.create_error = record.create_error or "kubeloop ended before the response"
                record.create_end_ns = record.create_end_ns or max(until_ns, record.start_ns)
                record.finish("create failed", record.create_end_ns, record.create_error)
            self._on_finished(record)

    def start_leading(self) -> None:
        """Start recording as the leader: what the previous leader did with the pods is not known."""
        now_ns = self._time_ns()
        for record in self._followed.values():
            if record.bound_ns or not record.observed_ns:
                continue
            waits = [fact for fact in record.facts if type(fact) is Wait]
            record.facts = [Gap(record.observed_ns, now_ns, "another kubeloop process was the leader")]
            if waits:
                record.facts.append(Wait(now_ns, waits[-1].queue, waits[-1].reason))
            record.journaled_facts = min(record.journaled_facts, 0)

    # --- pods of other control planes ------------------------------------------------------------------------------

    def follow_observed(self, pod: ObservedPod, milestones: PodMilestones) -> PodRecord | None:
        """Open the record of a pod that kubeloop only observes, or continue that of an earlier process.

        None if the sampler leaves the pod out.
        """
        uid = pod.metadata.uid
        record, until_ns = self._restored.pop(uid, (None, 0))
        if record is not None and record.milestones is not None:
            record.continued_ns = self._time_ns()
            record.milestones.add_missed(until_ns, record.continued_ns, "kubeloop was not running")
        else:
            record = self.observed_record(pod, milestones)
            if record is None:
                return None
        self._followed[uid] = record
        if self._store is not None:  # if this process is killed and the pod is deleted, only the store has its trace
            self._store.save(record)
        return record

    def observed_record(self, pod: ObservedPod, milestones: PodMilestones) -> PodRecord | None:
        """Create the record of a pod that kubeloop only observes; None if the sampler leaves it out.

        The IDs of its trace are derived from its UID: another process that observes the pod has the same.
        """
        traceparent = pod.metadata.annotations.traceparent
        parent = parse_traceparent(traceparent) if traceparent else None
        if not (self._starts_traces or (parent is not None and self._records_traces)):
            return None
        self._uid_rng.seed(pod.metadata.uid)
        context = self._sampler.root_context(self._uid_rng)
        if parent is not None:
            sampled = self._sampler.samples_child(parent.trace_id, parent.sampled)
            context = TraceContext(parent.trace_id, context.span_id, sampled)
        if not self._sampler.records(context.sampled):
            return None
        record = PodRecord(context, self._time_ns())
        record.parent_span_id = parent.span_id if parent is not None else ""
        record.is_observed, record.milestones = True, milestones
        record.set_observed_pod(pod)
        return record

    def is_restored(self, uid: str) -> bool:
        """Return True if an earlier process followed the pod, and it has not been observed yet."""
        return uid in self._restored

    def make_room(self) -> PodRecord | None:
        """Drop the oldest open record if there are MAX_OPEN, and return it."""
        return self._evict() if self.open_count() >= MAX_OPEN else None

    def finish_observed(self, record: PodRecord, outcome: str, end_ns: int, reason: str = "") -> None:
        """Finish the record of a pod that kubeloop only observes, whose phases are closed."""
        self._finish(record.uid, record, outcome, end_ns, reason)

    def drop(self, record: PodRecord) -> None:
        """Drop the record of a pod: its trace does not end."""
        self._followed.pop(record.uid, None)
        self._awaiting_response.pop(record.uid, None)
        if self._store is not None:
            self._store.delete(record)
        self._on_evicted(record)

    # ---------------------------------------------------------------------------------------------------------------

    def _phase_started(self, pod: Pod, phase: str) -> None:
        record = self.enter_span(pod)
        if record is not None:
            record.add(Phase(self._time_ns(), phase), self._max_facts)

    def _phase_finished(self, pod: Pod, phase: str, error: str | None) -> None:
        record = self._followed.get(pod.metadata.uid)
        if record is not None:
            record.finish_phase(phase, self._time_ns(), error)

    def _follow(self, traceparent: str, record: PodRecord, pod: Pod) -> None:
        """Move the record of a create request to the followed pods."""
        del self._requested[traceparent]
        self._failed.pop(traceparent, None)
        record.set_pod(pod)
        self._followed[pod.metadata.uid] = record
        if self._store is not None:  # if this process is killed and the pod is deleted, only the store has its trace
            self._store.save(record)

    def _follow_restored(self, key: str, pod: Pod) -> PodRecord:
        """Follow a pod whose record was restored. Events in between are derived from the pod as far as possible."""
        record, until_ns = self._restored.pop(key)
        now_ns = self._time_ns()
        record.set_pod(pod)
        record.continued_ns = now_ns
        record.bind_in_flight = False
        if record.create_start_ns and not record.create_end_ns:
            record.create_end_ns = max(record.create_start_ns, until_ns)
        observed_ns = now_ns
        if pod.spec.node_name and not record.bound_ns:
            record.node = pod.spec.node_name
            observed_ns = record.bound_ns = max(until_ns, min(now_ns, _since_ns(pod, "PodScheduled") or now_ns))
        elif record.bound_ns:
            observed_ns = until_ns
        if not record.observed_ns:
            record.observed_ns = observed_ns
        if observed_ns > until_ns:
            record.add(Gap(until_ns, observed_ns, "kubeloop was not running"), self._max_facts)
        self._followed[pod.metadata.uid] = record
        self._look_up_owner(record, controller_of(pod.metadata))
        return record

    def _follow_unbound(self, pod: Pod, traceparent: str) -> PodRecord | None:
        """Follow an unbound pod created by another process, or by this one before a restart; None if out of scope."""
        annotations = pod.metadata.annotations
        context = parse_traceparent(traceparent) if traceparent else None
        annotation = (
            parse_pod_trace_annotation(annotations.get(POD_TRACE_ANNOTATION, "")) if context is not None else None
        )
        scheduled_here = self._schedules(pod.spec.scheduler_name)
        owner = controller_of(pod.metadata)
        created_here = owner is not None and owner.kind in self._creators
        if not scheduled_here and not (annotation is not None and annotation.by_creator and created_here):
            return None
        if context is None and not self._starts_traces:
            return None
        now_ns = self._time_ns()
        # creationTimestamp has whole seconds: start at the end of that second, to show no wait that did not happen
        start_ns = min(now_ns, _second_ends_ns(pod.metadata.creation_timestamp) or now_ns)
        parent_span_id = link = ""
        continued = False
        if context is None:
            context = self._sampler.root_context(self._rng)
        elif annotation is not None and (created_here or not annotation.by_creator):
            continued, start_ns = True, min(now_ns, annotation.start_ns)
            parent_span_id, link = annotation.parent_span_id, annotation.link
        else:  # a span of another service is the parent
            parent_span_id = context.span_id
            sampled = self._sampler.samples_child(context.trace_id, context.sampled)
            context = TraceContext(context.trace_id, new_span_id(self._rng), sampled)
        if not self._sampler.records(context.sampled):
            return None
        record = PodRecord(context, start_ns)
        record.parent_span_id, record.link = parent_span_id, link
        record.continued_ns = now_ns if continued else 0
        record.scheduler = "" if scheduled_here else pod.spec.scheduler_name
        record.set_pod(pod)
        self._followed[pod.metadata.uid] = record
        self._look_up_owner(record, owner)
        if len(self._requested) + len(self._followed) > MAX_OPEN:
            self._evict()
        return record

    def _check_end(self, uid: str, record: PodRecord, pod: Pod, now_ns: int) -> None:
        """Finish the record of a bound pod if its trace ends here."""
        end_ns = record.bound_ns
        if self._until_ready:
            for condition in _CONDITIONS:
                if condition not in record.conditions_ns:
                    since_ns = _since_ns(pod, condition)
                    if since_ns is not None:
                        record.conditions_ns[condition] = max(record.bound_ns, min(now_ns, since_ns))
            ended = pod.status.phase in ("Succeeded", "Failed")
            if "Ready" not in record.conditions_ns and not ended:
                return
            if "Ready" not in record.conditions_ns:
                record.end_phase = pod.status.phase
                end_ns = now_ns
            else:
                end_ns = max(record.conditions_ns.values())
        if record.bind_in_flight:
            self._awaiting_response.setdefault(uid, end_ns)
        else:
            self._finish(uid, record, self._outcome(record), end_ns)

    def _outcome(self, record: PodRecord) -> str:
        if not self._until_ready:
            return "bound"
        if "Ready" in record.conditions_ns:
            return "ready"
        return "completed" if record.end_phase == "Succeeded" else "failed"

    def _finish(self, uid: str, record: PodRecord, outcome: str, end_ns: int, reason: str = "") -> None:
        del self._followed[uid]
        self._awaiting_response.pop(uid, None)
        record.finish(outcome, end_ns, reason or ("containers failed" if outcome == "failed" else ""))
        self._on_finished(record)

    def _evict(self) -> PodRecord:
        """Drop the oldest record, and return it."""
        if self._followed:
            record = next(iter(self._followed.values()))
        else:
            traceparent = next(iter(self._requested))
            record = self._requested.pop(traceparent)
            self._failed.pop(traceparent, None)
        self.drop(record)
        return record


def _since_ns(pod: Pod, condition: str) -> int | None:
    """Return when the condition became true (ns), at the latest; None if it is not true."""
    for pod_condition in pod.status.conditions:
        if pod_condition.type == condition and pod_condition.status == "True":
            return _second_ends_ns(pod_condition.last_transition_time)
    return None


def _second_ends_ns(moment: datetime | None) -> int | None:
    return epoch_ns(time_plus(moment.replace(microsecond=0), 1)) if moment is not None else None
