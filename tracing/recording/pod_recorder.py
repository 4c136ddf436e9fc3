"""Pod recorder: one trace per pod, from the create request until the informer shows the pod bound (or ready).

On the hot path, a method appends a fact to the pod's record; `pod_spans.pod_trace` builds spans from it on demand. A
record is open from the create request, or from the first observation of a pod that is not bound:

    requested --created/observed--> followed --bound (or ready), deleted--> finished: passed to `on_finished`
        |                              ^                                         ^
        |   restored, of a process ----+--- absent when the informer has synced -+
        |   that was killed                                                      |
        +--create_failed, and not observed for FAILED_CREATE_SECONDS-------------+

If the span in the pod's traceparent annotation is its own (traceparent.own_root_span), it is the root of its trace, and
the process that ends the trace exports the root with that ID. Otherwise it is of another service and the root's parent.
"""

from __future__ import annotations

import random
from typing import Final

import msgspec

from kubeloop.kube.client.current_span import current_span
from kubeloop.kube.objects.api_types import ObjectMeta, OwnerReference, Pod
from kubeloop.kube.objects.object_fields import controller_of
from kubeloop.kube.values.times import epoch_ns
from kubeloop.tracing.recording.open_pod_records import OpenPodRecords
from kubeloop.tracing.recording.restored_pod_records import RestoredPodRecords, second_end_ns, true_since_ns
from kubeloop.tracing.recording.top_owner_lookup import TopOwnerLookup, controller_is_top_owner
from kubeloop.tracing.sampling.samplers import Sampler
from kubeloop.tracing.spans.pod_record import (
    START_PHASES,
    TERMINATING,
    AttemptFacts,
    Phase,
    PodRecord,
    SchedulingAttempt,
    Wait,
)
from kubeloop.tracing.spans.traceparent import (
    POD_TRACE_ANNOTATION,
    SAMPLED,
    TRACEPARENT_ANNOTATION,
    PodTraceAnnotation,
    TraceContext,
    new_span_id,
    own_root_span,
    parse_traceparent,
)

__all__ = ["AttemptFacts", "PodCreateRequest", "PodRecorder", "PodScope"]

DEFAULT_CREATORS: Final = frozenset({"ReplicaSet", "ReplicationController"})
_CONDITIONS: Final = tuple(condition for condition, _ in START_PHASES)


class PodCreateRequest(msgspec.Struct, frozen=True, gc=False):
    """Trace context of the request that creates a pod, and the pod's annotations; both empty without tracing."""

    traceparent: str = ""
    annotations: dict[str, str] = {}

    def log_context(self) -> str:
        return self.traceparent


_UNTRACED_REQUEST = PodCreateRequest()


class PodScope(msgspec.Struct, frozen=True):
    """Which pods are recorded: those of this process's schedulers, and those that its controllers create.

    schedulers: scheduler names, None for all. creators: kinds of owners whose pods this process creates.
    """

    schedulers: frozenset[str] | None = None
    creators: frozenset[str] = DEFAULT_CREATORS

    def schedules(self, scheduler_name: str) -> bool:
        return self.schedulers is None or scheduler_name in self.schedulers


ALL_PODS: Final = PodScope()


class PodRecorder:
    """Records events of pods. Methods are synchronous, take about a microsecond, and do not raise.

    Not recorded are pods that the sampler leaves out, pods that are bound when first observed, and pods outside of the
    scope; calls about them are ignored.
    """

    def __init__(
        self,
        records: OpenPodRecords,
        restored: RestoredPodRecords,
        owners: TopOwnerLookup,
        *,
        rng: random.Random,
        sampler: Sampler,
        scope: PodScope = ALL_PODS,
        annotates: bool = False,
    ) -> None:
        """annotates: pods get an annotation with the link to the reconcile, for other processes."""
        self._records = records
        self._restored = restored
        self._owners = owners
        self._rng = rng
        self._sampler = sampler
        self._scope = scope
        self._schedulers = scope.schedulers
        self._annotates = annotates
        self._time_ns = records.now_ns
        self._until_ready = records.until_ready
        self._requested, self._followed = records.requested, records.followed
        self._starts_traces, self._records_traces = sampler.starts_traces, sampler.records_traces
        self._records_unsampled = sampler.records(False)

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
        parent = None
        if inherited and self._sampler.enabled:
            parent = parse_traceparent(inherited)
        if parent is not None:
            start_ns = self._time_ns()
            sampled = self._sampler.samples_child(parent.trace_id, parent.sampled)
            traceparent = TraceContext(parent.trace_id, new_span_id(self._rng), sampled).traceparent
        elif self._starts_traces:
            start_ns = self._time_ns()
            traceparent = self._sampler.root_traceparent(self._rng, start_ns)
        else:
            return _UNTRACED_REQUEST
        annotations = {TRACEPARENT_ANNOTATION: traceparent}
        if not (self._records_unsampled or traceparent.endswith(SAMPLED)):
            return PodCreateRequest(traceparent, annotations)
        record = PodRecord(traceparent, start_ns, namespace, owner_kind, owner_name, link, start_ns)
        if top_owner is not None and top_owner.kind != "Deployment":  # a Deployment is derived from the ReplicaSet
            record.top_owner_kind, record.top_owner_name = top_owner.kind, top_owner.name
        by_creator = self._schedulers is not None and scheduler_name not in self._schedulers
        if by_creator:
            record.scheduler = scheduler_name
        if parent is not None:
            record.parent_span_id = parent.span_id
        if parent is not None or by_creator or self._annotates:
            annotations[POD_TRACE_ANNOTATION] = str(
                PodTraceAnnotation(start_ns, record.parent_span_id, link, by_creator)
            )
        self._records.request(record)
        return PodCreateRequest(traceparent, annotations)

    def created(self, traceparent: str, pod: Pod) -> None:
        record = self._requested.get(traceparent)
        if record is None:
            record = self._followed.get(pod.metadata.uid)  # the watch event came first
        else:
            self._records.follow(record, pod)
        if record is not None and record.traceparent == traceparent:
            record.create_end_ns = self._time_ns()
            record.is_journaled = False

    def create_failed(self, traceparent: str, error: str) -> None:
        record = self._requested.get(traceparent)
        if record is not None:
            record.create_end_ns, record.create_error = self._time_ns(), error
            record.is_journaled = False
            self._records.failed[traceparent] = record.create_end_ns

    # --- informer events -------------------------------------------------------------------------------------------

    def observed(self, pod: Pod) -> None:
        """Record that the informer delivered this state of the pod."""
        metadata, node = pod.metadata, pod.spec.node_name
        uid = metadata.uid
        record = self._followed.get(uid)
        if record is None:
            if not self._records_traces:
                return
            traceparent = metadata.annotations.get(TRACEPARENT_ANNOTATION, "")
            record = self._requested.get(traceparent) if traceparent else None
            if record is not None:
                self._records.follow(record, pod)
            elif self._restored and (record := self._restored.continue_record(traceparent, pod)):
                self._followed[uid] = record
                self._owners.add(record, controller_of(metadata))
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
            if not record.bound_ns:
                record.node, record.bound_ns, record.until_ready = node, now_ns, self._until_ready
                record.is_journaled = False
            end_ns = self._started_ns(record, pod, now_ns) if self._until_ready else record.bound_ns
            if not end_ns:
                return
            if record.bind_in_flight:
                self._records.awaiting_response.setdefault(uid, end_ns)
            else:
                self._records.finish_bound(uid, record, end_ns)
        elif metadata.deletion_timestamp is not None and not record.terminating:
            record.terminating = True
            record.add(Wait(now_ns, TERMINATING), self._records.max_facts)

    def deleted(self, pod: Pod) -> None:
        uid = pod.metadata.uid
        record = self._followed.get(uid)
        if record is None:
            return
        if record.bound_ns and not self._until_ready:
            self._records.finish(uid, record, "bound", self._time_ns())
        elif record.bound_ns:
            self._records.finish(uid, record, "deleted", self._time_ns(), "deleted before it was ready")
        else:
            self._records.finish(uid, record, "deleted", self._time_ns(), "deleted before it was bound")

    # --- scheduler -------------------------------------------------------------------------------------------------

    def queued(self, pod: Pod, queue: str, reason: str = "") -> None:
        """Start a wait in "active", "backoff", "unschedulable" or "gated", which ends the previous wait.

        `reason`: the event that moved the pod, or why it waits.
        """
        record = self._followed.get(pod.metadata.uid)
        if record is not None:
            facts = record.facts
            facts.append(Wait(self._time_ns(), queue, reason))
            if len(facts) > self._records.max_facts:
                record.drop_facts(self._records.max_facts)

    def attempt_started(self, pod: Pod, attempt: int) -> None:
        metadata = pod.metadata
        record = self._followed.get(metadata.uid)
        if record is None:
            _enter_parent(metadata)
            return
        current_span.set(record)
        facts = record.facts
        facts.append(SchedulingAttempt(self._time_ns(), attempt))
        if len(facts) > self._records.max_facts:
            record.drop_facts(self._records.max_facts)

    def attempt_finished(self, pod: Pod, facts: AttemptFacts, reserve: Phase | None = None) -> None:
        """Record the end of the scheduling cycle: a node is selected, or no node fits, or the cycle failed.

        reserve: the run of the Reserve plugins, if there was one.
        """
        current_span.set(None)
        record = self._followed.get(pod.metadata.uid)
        if record is not None:
            record.finish_attempt(self._time_ns(), facts)
            if reserve is not None:
                record.facts.append(reserve)

    def permit_started(self, pod: Pod) -> None:
        self._phase_started(pod, "permit")

    def permit_finished(self, pod: Pod, error: str | None = None) -> None:
        self._phase_finished(pod, "permit", error)

    def pre_bind_started(self, pod: Pod) -> None:
        self._phase_started(pod, "pre-bind")

    def pre_bind_finished(self, pod: Pod, error: str | None = None) -> None:
        self._phase_finished(pod, "pre-bind", error)

    def bind_started(self, pod: Pod, node: str) -> None:
        metadata = pod.metadata
        record = self._followed.get(metadata.uid)
        if record is None:
            _enter_parent(metadata)
            return
        current_span.set(record)
        record.bind_in_flight = True
        record.facts.append(Phase(self._time_ns(), "bind", node))
        if self._records.store is not None:
            self._records.store.save(record)

    def bind_finished(self, pod: Pod, error: str | None = None) -> None:
        uid = pod.metadata.uid
        record = self._followed.get(uid)
        if record is None:
            return
        now_ns = self._time_ns()
        record.bind_in_flight = False
        record.finish_phase("bind", now_ns, error)
        if record.bound_ns and (end_ns := self._records.awaiting_response.get(uid)) is not None:
            self._records.finish_bound(uid, record, max(now_ns, end_ns))

    def enter_span(self, pod: Pod) -> PodRecord | None:
        """Make the pod's span the current one of the running task, for requests and log records; returns the record.

        A pod without a record has the trace context of its annotation.
        """
        metadata = pod.metadata
        record = self._followed.get(metadata.uid)
        if record is None:
            _enter_parent(metadata)
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

    # ---------------------------------------------------------------------------------------------------------------

    def _phase_started(self, pod: Pod, phase: str) -> None:
        record = self.enter_span(pod)
        if record is not None:
            record.facts.append(Phase(self._time_ns(), phase))

    def _phase_finished(self, pod: Pod, phase: str, error: str | None) -> None:
        record = self._followed.get(pod.metadata.uid)
        if record is not None:
            record.finish_phase(phase, self._time_ns(), error)

    def _follow_unbound(self, pod: Pod, traceparent: str) -> PodRecord | None:
        """Follow an unbound pod created by another process, or by this one before a restart; None if out of scope."""
        context = parse_traceparent(traceparent) if traceparent else None
        creation = pod.metadata.creation_timestamp
        creation_ns = epoch_ns(creation) if creation is not None else None
        own_span = own_root_span(pod.metadata.annotations, context, creation_ns) if context is not None else None
        scheduled_here = self._scope.schedules(pod.spec.scheduler_name)
        owner = controller_of(pod.metadata)
        created_here = owner is not None and owner.kind in self._scope.creators
        if not scheduled_here and not (own_span is not None and own_span.by_creator and created_here):
            return None
        if context is None and not self._starts_traces:
            return None
        now_ns = self._time_ns()
        # creationTimestamp has whole seconds: start at the end of that second, to show no wait that did not happen
        start_ns = min(now_ns, second_end_ns(creation) or now_ns)
        parent_span_id = link = ""
        continued = False
        if context is None:
            context = self._sampler.root_context(self._rng)
        elif own_span is not None and (created_here or not own_span.by_creator):
            continued, start_ns = True, min(now_ns, own_span.start_ns)
            parent_span_id, link = own_span.parent_span_id, own_span.link
        else:  # a span of another service is the parent
            parent_span_id = context.span_id
            sampled = self._sampler.samples_child(context.trace_id, context.sampled)
            context = TraceContext(context.trace_id, new_span_id(self._rng), sampled)
        if not self._sampler.records(context.sampled):
            return None
        record = PodRecord(context.traceparent, start_ns)
        record.parent_span_id, record.link = parent_span_id, link
        record.continued_ns = now_ns if continued else 0
        record.scheduler = "" if scheduled_here else pod.spec.scheduler_name
        record.set_pod(pod)
        self._followed[pod.metadata.uid] = record
        self._owners.add(record, owner)
        self._records.evict_surplus()
        return record

    def _started_ns(self, record: PodRecord, pod: Pod, now_ns: int) -> int:
        """Return when a bound pod was ready or terminated (ns), 0 if it is neither, and record its conditions."""
        record.is_journaled = False
        conditions_ns = record.conditions_ns = record.conditions_ns or {}
        for condition in _CONDITIONS:
            if condition not in conditions_ns:
                since_ns = true_since_ns(pod, condition)
                if since_ns is not None:
                    conditions_ns[condition] = max(record.bound_ns, min(now_ns, since_ns))
        if "Ready" in conditions_ns:
            return max(conditions_ns.values())
        if pod.status.phase in ("Succeeded", "Failed"):
            record.end_phase = pod.status.phase
            return now_ns
        return 0


def _enter_parent(metadata: ObjectMeta) -> None:
    """Make the trace context in a pod's annotation the current one of the running task: the pod has no record."""
    traceparent = metadata.annotations.get(TRACEPARENT_ANNOTATION)
    current_span.set(parse_traceparent(traceparent) if traceparent else None)


def standalone_pod_recorder(
    records: OpenPodRecords,
    *,
    rng: random.Random,
    sampler: Sampler = Sampler(),  # noqa: B008  # immutable
) -> PodRecorder:
    """Return a recorder without journal, for one component alone."""
    owners = TopOwnerLookup(controller_is_top_owner)
    return PodRecorder(records, RestoredPodRecords(records), owners, rng=rng, sampler=sampler)
