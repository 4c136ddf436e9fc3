"""The pod lifecycle recorder: one trace per pod, from the create request to the bound pod seen by the informer.

On the hot path a method appends a tuple to a pod's record; spans are built from it when somebody wants to see them
(`pod_record.pod_trace`). A record is open from the create request, or from the first sight of a pod that is not bound:

    requested --created/observed--> followed --bound (or ready), deleted--> finished, handed on
        |                              ^                                         ^
        |   adopted, from a process ---+--- not there any more when all is synced+
        |   that was killed                                                      |
        +--create_failed, and not seen for FAILED_CREATE_SECONDS-----------------+

The span in a pod's annotation is the root if ROOT_ANNOTATION says so: whoever ends the trace exports it under that id.
Any other span there is somebody else's, and the root's parent. May import `kubeloop.kube` and this room.
"""

from __future__ import annotations

import itertools
import logging
import operator
import random
from collections.abc import Callable, Iterable, Iterator
from datetime import datetime
from typing import Protocol

from kubeloop.kube.clock import Clock, SystemClock
from kubeloop.kube.objects.api_types import Pod
from kubeloop.tracing.recording.current_span import current_span
from kubeloop.tracing.recording.reconcile_recorder import ReconcileRecorder
from kubeloop.tracing.sampling.samplers import DISABLED_SAMPLER, Sampler
from kubeloop.tracing.spans.pod_record import (
    ATTEMPT_FINISHED,
    ATTEMPT_STARTED,
    MAX_FACTS,
    PHASE_FINISHED,
    PHASE_STARTED,
    QUEUED,
    START_PHASES,
    TERMINATING,
    UNFOLLOWED,
    AttemptFacts,
    PodRecord,
)
from kubeloop.tracing.spans.traceparent import (
    POD_TRACE_ANNOTATION,
    TRACEPARENT_ANNOTATION,
    PodTraceAnnotation,
    TraceContext,
    new_span_id,
    new_trace_id,
    parse_pod_trace_annotation,
    parse_traceparent,
)

__all__ = ["AttemptFacts", "NoopRecorder", "OpenRecordStore", "PodRecorder"]

log = logging.getLogger(__name__)

MAX_OPEN = 100_000  # records; a pending pod's is about 2 KB
ALL_FACTS = 1_000_000  # of all open records together, about 200 bytes each; but each may have ...
FEWEST_FACTS = 24  # ... so many
FAILED_CREATE_SECONDS = 10.0  # the answer to a create may be lost and the pod be there: the watch shows it by then
UNANSWERED_BIND_SECONDS = 60.0  # after which a pod that was seen bound needs no answer to its bind request any more
DEFAULT_CREATORS = frozenset({"ReplicaSet", "ReplicationController"})
SAVED_AT_ONCE = 1_000  # in one sweep, some 10 ms
COMPARED_AT_ONCE = 20_000
_CONDITIONS = tuple(condition for condition, _ in START_PHASES)


class OpenRecordStore(Protocol):
    """Where open records are kept safe from a crash of this process."""

    def save(self, record: PodRecord) -> None:
        """Keep this state of the record, in place of the one before."""
        ...

    def forget(self, record: PodRecord) -> None: ...


class PodRecorder:
    """Records what happens to pods. Methods are synchronous, cost about a microsecond, and do not raise.

    Times in ns are `now_ns()`'s. Pods that the sampler leaves out, pods that are bound when first seen, and pods that
    this process has no part in are not recorded, and every call about them is ignored.
    """

    def __init__(
        self,
        *,
        clock: Clock,
        rng: random.Random,
        sampling: Sampler = Sampler(),  # noqa: B008  # immutable
        finished: Callable[[PodRecord], None] = lambda record: None,
        evicted: Callable[[PodRecord], None] = lambda record: None,
        saved: OpenRecordStore | None = None,
        until_ready: bool = False,
        max_open: int = MAX_OPEN,
    ) -> None:
        """`finished` is given each record that is complete, `evicted` each one that is given up for want of memory."""
        self._clock = clock
        self._time_ns = clock.time_ns
        self._rng = rng
        self._sampling = sampling
        self._finished = finished
        self._evicted = evicted
        self.saved = saved
        self._until_ready = until_ready
        self._max_open = max_open
        self._max_facts = MAX_FACTS
        self._schedules: Callable[[str], bool] = lambda scheduler_name: True
        self._creators = DEFAULT_CREATORS
        self._requested: dict[str, PodRecord] = {}  # by traceparent: the pod's uid is not known yet
        self._followed: dict[str, PodRecord] = {}  # by uid, oldest first
        self._failed: dict[str, int] = {}  # by traceparent, of those requested: since when, in order
        self._awaiting_answer: dict[str, int] = {}  # by uid, of those followed: seen bound since, in order
        self._to_save: Iterator[PodRecord] | None = None  # in this round
        self._made: tuple[str, TraceContext | None] = "", None  # the last traceparent, and what it says
        self._begins_any, self._records_any = sampling.starts_traces, sampling.records_traces
        self._adopted: dict[str, tuple[PodRecord, int]] = {}  # by uid or traceparent; until when it was followed

    def now_ns(self) -> int:
        return self._time_ns()

    def limit_scope(self, *, schedules: Callable[[str], bool], creators: frozenset[str]) -> None:
        """Say whose pods are followed: those of the schedulers (by name) that run here, and those that controllers
        here create (kinds of owners). By default all are."""
        self._schedules = schedules
        self._creators = creators

    # --- creating --------------------------------------------------------------------------------------------------

    def new_traceparent(self, inherited: str = "") -> str:
        """For a pod about to be created: goes into the create request's header. "": no tracing.

        `inherited`: a traceparent that the template has: the pod's span becomes a child of it.
        """
        parent = parse_traceparent(inherited) if inherited else None
        if parent is not None and self._sampling.enabled:
            sampled = self._sampling.samples_child(parent.trace_id, parent.sampled)
            context = TraceContext(parent.trace_id, new_span_id(self._rng), sampled)
        elif self._begins_any:
            trace_id = new_trace_id(self._rng)
            context = TraceContext(trace_id, new_span_id(self._rng), self._sampling.samples_root(trace_id))
        else:
            return ""
        traceparent = context.traceparent
        self._made = traceparent, context
        return traceparent

    def create_requested(
        self,
        traceparent: str,
        *,
        namespace: str,
        owner_kind: str,
        owner_name: str,
        start_ns: int,
        link: str | None = None,
        inherited: str = "",
        scheduler_name: str = "default-scheduler",
    ) -> dict[str, str]:
        """Call before the request is sent: the watch may be faster than the answer. Returns the pod's annotations.

        `link`: of the reconcile's span. `inherited`: as in new_traceparent.
        """
        made, context = self._made
        if traceparent != made:
            context = parse_traceparent(traceparent)
        if context is None:
            return {}
        annotations = {TRACEPARENT_ANNOTATION: traceparent}
        if not self._sampling.records(context.sampled):
            return annotations
        record = PodRecord(context, start_ns, traceparent)
        record.namespace = namespace
        record.owner_kind, record.owner_name = owner_kind, owner_name
        record.create_start_ns = start_ns
        record.link = link or ""
        parent = parse_traceparent(inherited) if inherited else None
        record.parent_span_id = parent.span_id if parent is not None else ""
        by_creator = not self._schedules(scheduler_name)
        if by_creator:
            record.scheduler = scheduler_name
        annotations[POD_TRACE_ANNOTATION] = str(
            PodTraceAnnotation(start_ns, record.parent_span_id, record.link, by_creator)
        )
        self._requested[traceparent] = record
        if self.saved is not None:
            self.saved.save(record)
        if len(self._requested) + len(self._followed) > self._max_open:
            self._evict()
        return annotations

    def created(self, traceparent: str, pod: Pod, end_ns: int) -> None:
        record = self._requested.get(traceparent)
        if record is None:
            record = self._followed.get(pod.metadata.uid)  # the watch was faster
        else:
            self._follow(traceparent, record, pod)
        if record is not None and record.traceparent == traceparent:
            record.create_end_ns = end_ns
            record.is_saved = False

    def create_failed(self, traceparent: str, error: str, end_ns: int) -> None:
        record = self._requested.get(traceparent)
        if record is not None:
            record.create_end_ns, record.create_error = end_ns, error
            record.is_saved = False
            self._failed[traceparent] = end_ns

    # --- what the informer shows -----------------------------------------------------------------------------------

    def observed(self, pod: Pod) -> None:
        """The informer delivered this state of the pod."""
        uid = pod.metadata.uid
        record = self._followed.get(uid)
        node = pod.spec.node_name
        if record is None:
            if not self._records_any:
                return
            traceparent = pod.metadata.annotations.get(TRACEPARENT_ANNOTATION, "")
            record = self._requested.get(traceparent) if traceparent else None
            if record is not None:
                self._follow(traceparent, record, pod)
            elif self._adopted and (uid in self._adopted or traceparent in self._adopted):
                record = self._go_on(uid if uid in self._adopted else traceparent, pod)
            elif node or pod.status.phase in ("Succeeded", "Failed"):
                return
            else:
                record = self._join(pod, traceparent)
                if record is None:
                    return
        now_ns = self._time_ns()
        if not record.observed_ns:
            record.observed_ns = now_ns
            record.is_saved = False
        if node:
            record.is_saved = False
            if not record.bound_ns:
                record.node = node
                record.bound_ns = now_ns
                record.until_ready = self._until_ready
            self._bound(uid, record, pod, now_ns)
        elif pod.metadata.deletion_timestamp is not None and not record.terminating:
            record.terminating = True
            record.add((QUEUED, now_ns, TERMINATING, ""), self._max_facts)

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

    # --- what the scheduler does -----------------------------------------------------------------------------------

    def queued(self, pod: Pod, queue: str, reason: str = "") -> None:
        """A wait begins in "active", "backoff", "unschedulable" or "gated"; the wait before it, if any, ends.
        `reason`: the event that moved the pod, or why it must wait."""
        record = self._followed.get(pod.metadata.uid)
        if record is not None:
            record.add((QUEUED, self._time_ns(), queue, reason), self._max_facts)

    def attempt_started(self, pod: Pod, attempt: int) -> None:
        record = self._followed.get(pod.metadata.uid)
        current_span.set(record)
        if record is not None:
            record.add((ATTEMPT_STARTED, self._time_ns(), attempt, None), self._max_facts)

    def attempt_finished(self, pod: Pod, facts: AttemptFacts) -> None:
        """The scheduling cycle is over: a node is chosen, or none fits, or it failed."""
        current_span.set(None)
        record = self._followed.get(pod.metadata.uid)
        if record is not None:
            record.add((ATTEMPT_FINISHED, self._time_ns(), facts, None), self._max_facts)

    def reserved(self, pod: Pod, node: str, start_ns: int, error: str | None = None) -> None:
        """The Reserve plugins have run, from `start_ns` to now."""
        record = self._followed.get(pod.metadata.uid)
        if record is not None:
            record.add((PHASE_STARTED, start_ns, "reserve", node), self._max_facts)
            record.add((PHASE_FINISHED, self._time_ns(), "reserve", error), self._max_facts)

    def permit_started(self, pod: Pod) -> None:
        self._phase_started(pod, "permit")

    def permit_finished(self, pod: Pod, error: str | None = None) -> None:
        self._phase_finished(pod, "permit", error)

    def pre_bind_started(self, pod: Pod) -> None:
        self._phase_started(pod, "pre-bind")

    def pre_bind_finished(self, pod: Pod, error: str | None = None) -> None:
        self._phase_finished(pod, "pre-bind", error)

    def bind_started(self, pod: Pod, node: str) -> None:
        record = self._followed.get(pod.metadata.uid)
        current_span.set(record)
        if record is not None:
            record.bind_in_flight = True
            record.add((PHASE_STARTED, self._time_ns(), "bind", node), self._max_facts)
            if self.saved is not None:  # if we are killed now, the pod may be bound, and nobody else knows how it came
                self.saved.save(record)

    def bind_finished(self, pod: Pod, error: str | None = None) -> None:
        uid = pod.metadata.uid
        record = self._followed.get(uid)
        if record is None:
            return
        now_ns = self._time_ns()
        record.bind_in_flight = False
        record.add((PHASE_FINISHED, now_ns, "bind", error), self._max_facts)
        if uid in self._awaiting_answer:
            self._finish(uid, record, self._outcome(record), max(now_ns, self._awaiting_answer[uid]))

    # --- asking ----------------------------------------------------------------------------------------------------

    def traceparent_of(self, pod: Pod) -> str:
        """The pod's trace context, for the headers of requests about it; "" if there is none."""
        record = self._followed.get(pod.metadata.uid)
        if record is not None:
            return record.traceparent
        return pod.metadata.annotations.get(TRACEPARENT_ANNOTATION, "")

    def open_records(self) -> Iterable[PodRecord]:
        """Of the pods on their way. A live view: do not await while iterating."""
        yield from self._requested.values()
        yield from self._followed.values()

    def open_count(self) -> int:
        return len(self._requested) + len(self._followed)

    def open_record(self, uid: str) -> PodRecord | None:
        return self._followed.get(uid)

    def sweep(self) -> None:
        """Finish what waited in vain: for a sign of a pod whose creation failed, for the answer to a bind request.
        And keep safe what has been noted since the last sweep."""
        now_ns = self._time_ns()
        for traceparent, since_ns in [*self._failed.items()]:
            if now_ns - since_ns < FAILED_CREATE_SECONDS * 1e9:
                break
            del self._failed[traceparent]
            record = self._requested.pop(traceparent)
            record.finish("create failed", record.create_end_ns, record.create_error)
            self._finished(record)
        for uid, since_ns in [*self._awaiting_answer.items()]:
            if now_ns - since_ns < UNANSWERED_BIND_SECONDS * 1e9:
                break
            record = self._followed[uid]
            self._finish(uid, record, self._outcome(record), since_ns)
        self._max_facts = max(FEWEST_FACTS, min(MAX_FACTS, ALL_FACTS // (self.open_count() + 1)))
        if self.saved is not None:
            self._save_some(self.saved)

    def _save_some(self, saved: OpenRecordStore) -> None:
        """Of those that changed; what is left over is next second's."""
        if self._to_save is None:
            self._to_save = iter([*self.open_records()])
        left = SAVED_AT_ONCE
        for record in itertools.islice(self._to_save, COMPARED_AT_ONCE):
            if not (record.outcome or (record.is_saved and record.saved_facts == len(record.facts))):
                saved.save(record)
                left -= 1
                if not left:
                    return
        if operator.length_hint(self._to_save) == 0:
            self._to_save = None

    def check(self) -> None:
        assert self._failed.keys() <= self._requested.keys()
        assert self._awaiting_answer.keys() <= self._followed.keys()
        assert all(record.outcome == "" for record in self.open_records())

    # --- from one process to the next ------------------------------------------------------------------------------

    def adopt(self, record: PodRecord, until_ns: int) -> None:
        """An open record of a process that is gone, which followed the pod until then. To be called before observed()
        is, and everything_seen() when all pods have been observed."""
        self._adopted[record.uid or record.traceparent] = record, until_ns

    def informer_synced(self) -> None:
        """The informer has delivered all pods: what was adopted and is not among them, is gone."""
        now_ns = self._time_ns()
        adopted, self._adopted = self._adopted, {}
        for record, until_ns in adopted.values():
            if record.bound_ns and not self._until_ready:
                record.finish("bound", record.bound_ns)
            elif record.uid:
                record.add((UNFOLLOWED, until_ns, now_ns, "kubeloop did not run"))
                record.finish("deleted", now_ns, "deleted while kubeloop did not run")
            else:
                record.create_error = record.create_error or "kubeloop ended before the answer"
                record.create_end_ns = record.create_end_ns or max(until_ns, record.start_ns)
                record.finish("create failed", record.create_end_ns, record.create_error)
            self._finished(record)

    def start_leading(self) -> None:
        """This process acts from now on, and another one did until now: what it did is not known here."""
        now_ns = self._time_ns()
        for record in self._followed.values():
            if record.bound_ns or not record.observed_ns:
                continue
            waits = [fact for fact in record.facts if fact[0] == QUEUED]
            record.facts = [(UNFOLLOWED, record.observed_ns, now_ns, "another process of kubeloop was leading")]
            if waits:
                record.facts.append((QUEUED, now_ns, waits[-1][2], waits[-1][3]))
            record.saved_facts = min(record.saved_facts, 0)

    # ---------------------------------------------------------------------------------------------------------------

    def _phase_started(self, pod: Pod, phase: str) -> None:
        record = self._followed.get(pod.metadata.uid)
        current_span.set(record)
        if record is not None:
            record.add((PHASE_STARTED, self._time_ns(), phase, None), self._max_facts)

    def _phase_finished(self, pod: Pod, phase: str, error: str | None) -> None:
        record = self._followed.get(pod.metadata.uid)
        if record is not None:
            record.add((PHASE_FINISHED, self._time_ns(), phase, error), self._max_facts)

    def _follow(self, traceparent: str, record: PodRecord, pod: Pod) -> None:
        """The pod that was asked for is there."""
        del self._requested[traceparent]
        self._failed.pop(traceparent, None)
        record.describe(pod)
        self._followed[pod.metadata.uid] = record
        if self.saved is not None:  # if we are killed and it is deleted meanwhile, nobody else knows whose trace it was
            self.saved.save(record)

    def _go_on(self, key: str, pod: Pod) -> PodRecord:
        """Follow a pod whose record was adopted: what happened since nobody did is told by the pod, as far as it is."""
        record, until_ns = self._adopted.pop(key)
        now_ns = self._time_ns()
        record.describe(pod)
        record.continued_ns = now_ns
        record.bind_in_flight = False
        if record.create_start_ns and not record.create_end_ns:
            record.create_end_ns = max(record.create_start_ns, until_ns)
        seen_ns = now_ns
        if pod.spec.node_name and not record.bound_ns:
            record.node = pod.spec.node_name
            seen_ns = record.bound_ns = max(until_ns, min(now_ns, _since_ns(pod, "PodScheduled") or now_ns))
        elif record.bound_ns:
            seen_ns = until_ns
        if not record.observed_ns:
            record.observed_ns = seen_ns
        if seen_ns > until_ns:
            record.add((UNFOLLOWED, until_ns, seen_ns, "kubeloop did not run"), self._max_facts)
        self._followed[pod.metadata.uid] = record
        return record

    def _join(self, pod: Pod, traceparent: str) -> PodRecord | None:
        """Begin to follow a pod that another process created, or ours before it was restarted; None if it shall not
        be followed."""
        annotations = pod.metadata.annotations
        context = parse_traceparent(traceparent) if traceparent else None
        note = parse_pod_trace_annotation(annotations.get(POD_TRACE_ANNOTATION, "")) if context is not None else None
        scheduled_here = self._schedules(pod.spec.scheduler_name)
        created_here = any(owner.controller and owner.kind in self._creators for owner in pod.metadata.owner_references)
        if not scheduled_here and not (note is not None and note.by_creator and created_here):
            return None
        if context is None and not self._begins_any:
            return None
        now_ns = self._time_ns()
        # objects tell the second of their creation only: we begin at its end, so that no wait is made up
        start_ns = min(now_ns, _second_ends_ns(pod.metadata.creation_timestamp) or now_ns)
        parent_span_id = link = ""
        continued = False
        if context is None:
            trace_id = new_trace_id(self._rng)
            context = TraceContext(trace_id, new_span_id(self._rng), self._sampling.samples_root(trace_id))
        elif note is not None and (created_here or not note.by_creator):
            continued = True
            start_ns, parent_span_id, link = min(now_ns, note.start_ns), note.parent_span_id, note.link
        else:  # somebody else's span: ours is its child
            parent_span_id = context.span_id
            sampled = self._sampling.samples_child(context.trace_id, context.sampled)
            context = TraceContext(context.trace_id, new_span_id(self._rng), sampled)
        if not self._sampling.records(context.sampled):
            return None
        record = PodRecord(context, start_ns)
        record.parent_span_id, record.link = parent_span_id, link
        record.continued_ns = now_ns if continued else 0
        record.scheduler = "" if scheduled_here else pod.spec.scheduler_name
        record.describe(pod)
        self._followed[pod.metadata.uid] = record
        if len(self._requested) + len(self._followed) > self._max_open:
            self._evict()
        return record

    def _bound(self, uid: str, record: PodRecord, pod: Pod, now_ns: int) -> None:
        """The pod has a node: is its trace at its end?"""
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
                record.ended_as = pod.status.phase
                end_ns = now_ns
            else:
                end_ns = max(record.conditions_ns.values())
        if record.bind_in_flight:
            self._awaiting_answer.setdefault(uid, end_ns)
        else:
            self._finish(uid, record, self._outcome(record), end_ns)

    def _outcome(self, record: PodRecord) -> str:
        if not self._until_ready:
            return "bound"
        if "Ready" in record.conditions_ns:
            return "ready"
        return "completed" if record.ended_as == "Succeeded" else "failed"

    def _finish(self, uid: str, record: PodRecord, outcome: str, end_ns: int, reason: str = "") -> None:
        del self._followed[uid]
        self._awaiting_answer.pop(uid, None)
        record.finish(outcome, end_ns, reason or ("its containers failed" if outcome == "failed" else ""))
        self._finished(record)

    def _evict(self) -> None:
        if self._followed:
            uid = next(iter(self._followed))
            record = self._followed.pop(uid)
            self._awaiting_answer.pop(uid, None)
        else:
            traceparent = next(iter(self._requested))
            record = self._requested.pop(traceparent)
            self._failed.pop(traceparent, None)
        if self.saved is not None:
            self.saved.forget(record)
        self._evicted(record)


def _since_ns(pod: Pod, condition: str) -> int | None:
    """Since when it holds, at the latest; None if it does not."""
    for each in pod.status.conditions:
        if each.type == condition and each.status == "True":
            return _second_ends_ns(each.last_transition_time)
    return None


def _second_ends_ns(moment: datetime | None) -> int | None:
    return (int(moment.timestamp()) + 1) * 1_000_000_000 if moment is not None else None


class NoopRecorder(PodRecorder, ReconcileRecorder):
    """Traces nothing: for those who do not want to, and for tests and benchmarks of other things."""

    def __init__(self) -> None:
        clock, rng = SystemClock(), random.Random(0)
        PodRecorder.__init__(self, clock=clock, rng=rng, sampling=DISABLED_SAMPLER)
        ReconcileRecorder.__init__(self, clock=clock, rng=rng, sampling=DISABLED_SAMPLER)
