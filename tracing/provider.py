"""Tracing of one process: recorders, recent traces, metrics, journal and export.

recorders --finished record--> sampled, or selected by a tail rule? --> recent traces, journal, outbox
run(): outbox --phases--> metrics
              --spans, in slices--> exporter --thread--> OTLP/HTTP --delivered--> journal
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import random
from collections import deque
from collections.abc import Callable, Mapping
from datetime import datetime
from typing import Any

import msgspec

from kubeloop.kube.clock import Clock, pause
from kubeloop.kube.objects.api_types import Pod
from kubeloop.kube.values.times import epoch_ns
from kubeloop.tracing.export.config_file import process_environment
from kubeloop.tracing.export.exporters import SHUTDOWN_SECONDS, TraceExporter, configured_exporters
from kubeloop.tracing.journal.trace_journal import JournaledRecord, RecoveredRecords, TraceJournal, journal_key
from kubeloop.tracing.metrics_interface import NO_METRICS, LostReason, TracedPod, TraceMetrics
from kubeloop.tracing.recording.apply_recorder import ApplyRecorder
from kubeloop.tracing.recording.open_pod_records import OpenPodRecords
from kubeloop.tracing.recording.pod_group_recorder import PodGroupRecorder
from kubeloop.tracing.recording.pod_recorder import ALL_PODS, PodRecorder, PodScope
from kubeloop.tracing.recording.recent_traces import RecentTraces
from kubeloop.tracing.recording.reconcile_recorder import ReconcileRecorder
from kubeloop.tracing.recording.restored_pod_records import RestoredPodRecords
from kubeloop.tracing.recording.top_owner_lookup import FindTopOwner, TopOwnerLookup, controller_is_top_owner
from kubeloop.tracing.sampling.samplers import NO_TAIL_RULES, TailRules, sampler_from_environment
from kubeloop.tracing.sampling.tail_rules import UnsampledReconciles, matching_group_tail_rule, matching_tail_rule
from kubeloop.tracing.spans.phase_times import phase_times
from kubeloop.tracing.spans.pod_group_record import PodGroupRecord
from kubeloop.tracing.spans.pod_group_spans import pod_group_trace
from kubeloop.tracing.spans.pod_record import PodRecord
from kubeloop.tracing.spans.pod_spans import pod_trace
from kubeloop.tracing.spans.reconcile_record import ReconcileRecord
from kubeloop.tracing.spans.trace import Trace
from kubeloop.tracing.spans.traceparent import (
    SAMPLED,
    TRACEPARENT_ANNOTATION,
    own_root_span,
    parse_traceparent,
)

log = logging.getLogger(__name__)

SWEEP_SECONDS = 1.0
SLICE_LIMIT = 20  # traces turned into spans before other tasks run: some 1 ms
BUSY_SHARE, IDLE_SHARE = 0.005, 0.25  # of the loop's time, for building spans: while traces finish, and ...
QUIET_SECONDS = 1.0  # ... when none has finished for this long
LATE_SECONDS, LATE_SHARE = 15.0, 0.1  # share while traces finish, if the oldest one has waited for LATE_SECONDS
STANDBY_SECONDS = 60.0  # a leader that was killed has not exported what ended this long ago, at most
OUTBOX_LIMIT = 20_000  # finished traces waiting for export; beyond, the oldest are dropped, with a log message


class RecordingSettings(msgspec.Struct, frozen=True):
    """Which traces are recorded, and how far.

    scope: the pods that are recorded.
    tail_rules: traces to export although the sampler rejected them. until_ready: pod traces end when the pod is ready,
    not when it is bound. annotates: workloads get the context of the request or reconcile that writes them as an
    annotation, and pods, which always have their own, the link to their reconcile. standby: what ends while another
    process is the leader is stored for STANDBY_SECONDS, and exported if this one becomes the leader: with the same IDs,
    if they derive from the pod.
    """

    scope: PodScope = ALL_PODS
    tail_rules: TailRules = NO_TAIL_RULES
    until_ready: bool = False
    annotates: bool = False
    standby: bool = False


_DEFAULT_SETTINGS = RecordingSettings()


class Tracing:
    """Recorders and recent traces of one process.

    `environ` holds the standard variables: OTEL_TRACES_SAMPLER(_ARG), OTEL_EXPORTER_OTLP_(TRACES_)ENDPOINT and the
    other OTEL_EXPORTER_OTLP_*, OTEL_BSP_*, OTEL_SERVICE_NAME, OTEL_RESOURCE_ATTRIBUTES, OTEL_SDK_DISABLED,
    OTEL_TRACES_EXPORTER; by default those of the process, or of the file that OTEL_CONFIG_FILE names.

    pods           recorder of pods that this process creates or schedules
    open_pods      records of pods whose trace has not ended, of `pods` and of an ObservedPodRecorder
    restored_pods  those of terminated processes, until the informer has synced
    """

    def __init__(
        self,
        *,
        clock: Clock,
        rng: random.Random,
        environ: Mapping[str, str] | None = None,
        exporter: TraceExporter | None = None,
        settings: RecordingSettings = _DEFAULT_SETTINGS,
        metrics: TraceMetrics = NO_METRICS,
        find_top_owner: FindTopOwner = controller_is_top_owner,
        open_journal: Callable[[], TraceJournal] | None = None,
    ) -> None:
        """
        exporter        replaces the one that `environ` configures
        find_top_owner  returns the topmost owner of pods of Jobs that another process created; must not block
        open_journal    opens the journal, if traces are exported: records are saved in it, and those of terminated
                        processes restored; needs a running event loop
        """
        if environ is None:
            environ = process_environment()
        self.sampler = sampler_from_environment(environ, settings.tail_rules)
        self.until_ready = settings.until_ready
        rng = random.Random(rng.getrandbits(64))
        self._clock = clock
        self._rng = rng
        self._metrics = metrics
        self._exporter = exporter
        if exporter is None and self.sampler.records_traces:
            self._exporter = configured_exporters(environ, self._metrics)
        self._journal = open_journal() if open_journal is not None and self._exporter is not None else None
        self._outbox: deque[JournaledRecord] = deque()
        self._standby: deque[PodRecord] | None = deque(maxlen=OUTBOX_LIMIT) if settings.standby else None
        self._unsampled = UnsampledReconciles()
        self._lost = 0
        self.is_leader = True  # False: another process acts and exports; this one only records
        self.reconciles = ReconcileRecorder(
            clock=clock,
            rng=rng,
            sampler=self.sampler,
            annotates=settings.annotates,
            on_finished=self._reconcile_finished,
        )
        with self._recovered() as recovered:
            self.open_pods = OpenPodRecords(
                clock=clock,
                on_finished=self._pod_finished,
                on_evicted=lambda record: self._open_trace_evicted(),
                until_ready=settings.until_ready,
                store=self._journal,
            )
            self.restored_pods = RestoredPodRecords(self.open_pods, recovered.open)
            self._owners = TopOwnerLookup(find_top_owner)
            self.pods = PodRecorder(
                self.open_pods,
                self.restored_pods,
                self._owners,
                rng=rng,
                sampler=self.sampler,
                scope=settings.scope,
                annotates=settings.annotates,
            )
            self.groups = PodGroupRecorder(
                clock=clock,
                rng=rng,
                pods=self.pods,
                sampler=self.sampler,
                on_finished=self._group_finished,
                on_evicted=lambda record: self._open_trace_evicted(),
                store=self._journal,
                recovered=recovered.open_groups,
            )
            self.recent = RecentTraces(
                clock=clock, open_records=self.open_pods.all, open_groups=self.groups.open_records
            )
            if self._journal is not None:
                self._save_recovered(recovered, self._journal)

    @property
    def exports(self) -> bool:
        return self._exporter is not None

    def document(self) -> dict[str, Any]:
        """Return the JSON for /configz."""
        until = "ready" if self.until_ready else "bound"
        return {**self.sampler.document(), "until": until, "exports": self.exports}

    def _recovered(self) -> contextlib.AbstractContextManager[RecoveredRecords]:
        """Return the records of terminated processes; their files are removed at the end of the context."""
        if self._journal is None:
            return contextlib.nullcontext(RecoveredRecords())
        return self._journal.recover(self._clock.time_ns())

    def _save_recovered(self, recovered: RecoveredRecords, journal: TraceJournal) -> None:
        """Save the records of terminated processes in `journal`, and publish those that are finished."""
        for record, _ in recovered.open:
            journal.save(record)
        for record in recovered.finished:
            self.recent.add(record)
            self._enqueue(record)
        for group, _ in recovered.open_groups:
            journal.save(group)
        for group in recovered.finished_groups:
            self.recent.add_group(group)
            self._enqueue(group)
        for reconcile in recovered.reconciles:
            self._publish_reconcile(reconcile)

    def apply(self) -> ApplyRecorder:
        """Start the trace of an apply command."""
        return ApplyRecorder(
            clock=self._clock,
            rng=self._rng,
            sampler=self.sampler,
            reconciles=self.reconciles,
            on_finished=self._reconcile_finished,
        )

    def start_leading(self) -> None:
        """Start acting and exporting as the leader; until now another process did both."""
        self.is_leader = True
        if self._standby is None:
            self.open_pods.start_leading()
            self.groups.start_leading()
            return
        self._trim_standby(self._standby)
        while self._standby:
            self._enqueue(self._standby.popleft())

    async def run(self) -> None:
        """Finish timed-out records and export until cancelled; then export the rest."""
        try:
            async with asyncio.TaskGroup() as tasks:
                tasks.create_task(self._sweep_forever(), name="tracing/sweep")
                tasks.create_task(self._export_forever(), name="tracing/export")
        finally:
            self._sweep()
            self._export(len(self._outbox))
            if self._exporter is not None:
                await asyncio.to_thread(self._exporter.shut_down, SHUTDOWN_SECONDS)
            if self._journal is not None:
                self._confirm_delivered(self._journal)
                self._journal.close()

    async def _sweep_forever(self) -> None:
        while True:
            due = 0.0 if self.open_pods.awaits_timeout() or self.groups.has_open() else None
            await pause(SWEEP_SECONDS, due, has_work=self._may_sweep)
            self._sweep()
            if self._journal is not None:
                self._confirm_delivered(self._journal)
                self._journal.rotate()

    def _may_sweep(self) -> bool:
        """Return True if a sweep may change something."""
        return (
            self.open_pods.count() > 0
            or self.groups.has_open()
            or self._owners.has_unresolved()
            or self._journal is not None
        )

    def _sweep(self) -> None:
        self._owners.resolve()
        self.open_pods.sweep()
        self.groups.sweep()
        self.recent.sweep()

    async def _export_forever(self) -> None:
        """Build and export spans at low priority: scheduling comes first, and the journal has the records."""
        loop = asyncio.get_running_loop()
        newest: JournaledRecord | None = None
        last_enqueued_at = loop.time()
        while True:
            while not self._outbox:
                await pause(SWEEP_SECONDS, has_work=lambda: bool(self._outbox))
            started = loop.time()
            if self._outbox[-1] is not newest:
                newest, last_enqueued_at = self._outbox[-1], started
            share = self._export_share(quiet=started - last_enqueued_at >= QUIET_SECONDS)
            if not share:
                await asyncio.sleep(QUIET_SECONDS)
                continue
            began_ns = self._clock.time_ns()
            self._export(SLICE_LIMIT)
            spent_seconds = max(loop.time() - started, (self._clock.time_ns() - began_ns) / 1e9)
            await asyncio.sleep(spent_seconds * (1 / share - 1))

    def _export_share(self, *, quiet: bool) -> float:
        """Return the share of the loop's time in which spans are built. quiet: no trace has finished lately."""
        share = BUSY_SHARE
        if quiet:
            share = IDLE_SHARE
        elif self._oldest_waits_ns() > LATE_SECONDS * 1e9:
            share = LATE_SHARE
        elif len(self._outbox) > SLICE_LIMIT:  # a burst, which BUSY_SHARE cannot follow
            share = 0.0
        fullness = max(0.0, 2 * len(self._outbox) / OUTBOX_LIMIT - 1)  # from half full on, before any is dropped
        return share + (1 - share) * fullness

    def _oldest_waits_ns(self) -> int:
        if not self._outbox:
            return 0
        return self._clock.time_ns() - self._outbox[0].end_ns

    async def flush(self) -> None:
        """Pass all finished traces to the exporter, slice by slice."""
        self._sweep()
        while self._outbox:
            self._export(SLICE_LIMIT)
            await asyncio.sleep(0)
        if self._journal is not None:
            self._confirm_delivered(self._journal)
            self._journal.rotate()
            self._journal.write_out()

    def trace_id(self, pod: Pod) -> str:
        """Return the trace ID of the pod in hexadecimal; "" if it is not traced."""
        record = self.recent.finished(pod.metadata.uid) or self.open_pods.get(pod.metadata.uid)
        if record is not None:
            context = record.context if record.tail_rule or record.is_sampled else None
        else:
            context = parse_traceparent(pod.metadata.annotations.get(TRACEPARENT_ANNOTATION, ""))
            context = context if context and context.sampled else None
        return context.trace_id if context else ""

    def created_to_bound_seconds(self, pod: Pod) -> float | None:
        """Return the time from the create request until the informer showed the pod bound; None if it is not bound.

        For a pod bound before this process observed it: from the object's timestamps, in whole seconds.
        """
        record = self.recent.finished(pod.metadata.uid)
        if record is not None and record.bound_ns:
            return (record.bound_ns - record.start_ns) / 1e9
        scheduled = _scheduled_time(pod)
        if not pod.spec.node_name or scheduled is None or pod.metadata.creation_timestamp is None:
            return None
        return max(0.0, (scheduled - pod.metadata.creation_timestamp).total_seconds())

    def reconstructed(self, pod: Pod) -> dict[str, Any] | None:
        """Build a trace document from the object alone, for a pod that was bound before this process observed it.

        It has only the root span, in whole seconds; None if the object has no trace context. It is never exported: the
        process that bound the pod exported the real trace.
        """
        context = parse_traceparent(pod.metadata.annotations.get(TRACEPARENT_ANNOTATION, ""))
        scheduled, creation = _scheduled_time(pod), pod.metadata.creation_timestamp
        if context is None or not context.sampled or scheduled is None or creation is None:
            return None
        own_span = own_root_span(pod.metadata.annotations, context, epoch_ns(creation))
        start_ns = own_span.start_ns if own_span is not None else epoch_ns(creation)
        record = PodRecord(context.traceparent, start_ns)
        record.set_pod(pod)
        record.node = pod.spec.node_name
        record.reconstructed = True
        record.finish("bound", max(record.start_ns, epoch_ns(scheduled)))
        return pod_trace(record).document()

    def _pod_finished(self, record: PodRecord) -> None:
        exported = record.traceparent.endswith(SAMPLED)
        if not exported:
            record.tail_rule = matching_tail_rule(record, self.sampler.tail_rules)
            exported = bool(record.tail_rule)
        if not (self.is_leader and exported):
            if self._journal is not None:
                self._journal.delivered([record.traceparent])
            if exported and self._standby is not None:
                self.recent.add(record)
                self._standby.append(record)
                self._trim_standby(self._standby)
            return
        self.recent.add(record)
        self._enqueue(record)
        if not record.tail_rule:
            return
        if record.group_link:
            self.groups.select(record.group_link, record.tail_rule)
        if record.link:
            reconcile = self._unsampled.take_linked(record.link)
            if reconcile is not None:
                self._publish_reconcile(reconcile)

    def _group_finished(self, record: PodGroupRecord) -> None:
        if not record.context.sampled:
            record.tail_rule = record.tail_rule or matching_group_tail_rule(record, self.sampler.tail_rules)
        if not (self.is_leader and (record.context.sampled or record.tail_rule)):
            if self._journal is not None:
                self._journal.delivered([record.traceparent])
            return
        self.recent.add_group(record)
        if self._exporter is not None:
            self._enqueue(record)

    def _trim_standby(self, standby: deque[PodRecord]) -> None:
        oldest_ns = self._clock.time_ns() - round(STANDBY_SECONDS * 1e9)
        while standby and standby[0].end_ns < oldest_ns:
            standby.popleft()

    def _reconcile_finished(self, reconcile: ReconcileRecord | Trace, sampled: bool) -> None:
        tail_rules = self.sampler.tail_rules
        if sampled or (tail_rules.failed and reconcile.error is not None) or self._unsampled.pop_link(reconcile):
            self._publish_reconcile(reconcile)
        else:
            self._unsampled.add(reconcile)

    def _publish_reconcile(self, reconcile: ReconcileRecord | Trace) -> None:
        self.recent.add_reconcile(reconcile)
        if self._exporter is not None:
            self._enqueue(reconcile)

    def _open_trace_evicted(self) -> None:
        self._trace_lost("too many open", "too many pending pods, dropping the oldest traces")

    def _enqueue(self, finished: JournaledRecord) -> None:
        """Save a finished trace in the journal until it is delivered, and schedule its export."""
        if self._journal is not None:
            self._journal.save(finished)
        outbox = self._outbox
        outbox.append(finished)
        if len(outbox) > OUTBOX_LIMIT:
            dropped = outbox.popleft()
            if self._journal is not None:
                self._journal.delivered([journal_key(dropped)])
            self._trace_lost("too many finished", "traces end faster than they can be exported, dropping the oldest")

    def _trace_lost(self, reason: LostReason, message: str) -> None:
        self._metrics.trace_lost(reason)
        self._lost += 1
        if self._lost == 1:  # the metric counts them
            log.warning("%s; counted in kubeloop_traces_lost_total", message)

    def _export(self, limit: int) -> None:
        if self._journal is not None:
            self._journal.write_out()  # before the collector gets the trace: no other process may continue it then
        self._owners.resolve()
        for _ in range(min(limit, len(self._outbox))):
            finished = self._outbox.popleft()
            try:
                self._export_one(finished)
            except Exception:  # a record that cannot be exported must not stop the others
                log.exception("cannot export a trace", extra={"trace": journal_key(finished)})

    def _export_one(self, finished: JournaledRecord) -> None:
        if isinstance(finished, PodRecord):
            pod = TracedPod(finished.trace_id, finished.namespace, finished.topmost_owner_kind)
            self._metrics.phases(phase_times(finished), pod)
            if finished.start_sli_ns:
                self._metrics.start_sli(finished.start_sli_ns, pod)
        if self._exporter is not None:
            self._exporter.export(_trace(finished), journal_key(finished) if self._journal is not None else "")

    def _confirm_delivered(self, journal: TraceJournal) -> None:
        if self._exporter is not None:
            journal.delivered(self._exporter.delivered())


def _trace(finished: JournaledRecord) -> Trace:
    if isinstance(finished, PodRecord):
        return pod_trace(finished)
    return pod_group_trace(finished) if isinstance(finished, PodGroupRecord) else finished.trace()


def _scheduled_time(pod: Pod) -> datetime | None:
    for condition in pod.status.conditions:
        if condition.type == "PodScheduled" and condition.status == "True":
            return condition.last_transition_time
    return None
