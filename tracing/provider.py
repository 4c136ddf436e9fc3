r"""Tracing of one process, put together: recorders, memory, metrics, journal, and export where it is asked for.

    recorders --finished record--> is it kept? --> memory, journal, outbox
    run(): outbox --phases--> metrics
                  --spans, in slices--> sink --thread--> OTLP/HTTP --delivered--> journal

May import `kubeloop.kube` and this room.
"""

from __future__ import annotations

import asyncio
import logging
import os
import random
from collections import deque
from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import TYPE_CHECKING, Any, Protocol

from kubeloop.kube.clock import Clock
from kubeloop.kube.objects.api_types import Pod
from kubeloop.tracing.journal.trace_journal import TraceJournal
from kubeloop.tracing.metrics_interface import LostReason, TraceMetrics
from kubeloop.tracing.recording.apply_recorder import ApplyRecorder
from kubeloop.tracing.recording.pod_recorder import MAX_OPEN, PodRecorder
from kubeloop.tracing.recording.recent_traces import MAX_PODS, RecentTraces
from kubeloop.tracing.recording.reconcile_recorder import ReconcileRecorder
from kubeloop.tracing.sampling.samplers import NO_TAIL_RULES, TailRules, sampler_from_environment
from kubeloop.tracing.sampling.tail_rules import UnsampledReconciles, matching_tail_rule
from kubeloop.tracing.spans.phase_times import phase_times
from kubeloop.tracing.spans.pod_record import PodRecord
from kubeloop.tracing.spans.pod_spans import pod_trace
from kubeloop.tracing.spans.reconcile_record import ReconcileRecord
from kubeloop.tracing.spans.trace import Trace
from kubeloop.tracing.spans.traceparent import (
    POD_TRACE_ANNOTATION,
    TRACEPARENT_ANNOTATION,
    parse_pod_trace_annotation,
    parse_traceparent,
)

if TYPE_CHECKING:
    from opentelemetry.sdk.trace import TracerProvider

log = logging.getLogger(__name__)

SWEEP_SECONDS = 1.0
SLICE_LIMIT = 20  # traces turned into spans before other tasks get a turn: some 1 ms
BUSY_SHARE, IDLE_SHARE = 0.005, 0.25  # of the loop's time that may be spent on that, while traces end, and ...
QUIET_SECONDS = 1.0  # ... when none has ended for so long
LATE_SECONDS, LATE_SHARE = 15.0, 0.1  # where traces go on ending, none waits for long
OUTBOX_LIMIT = 20_000  # finished traces that wait for that; beyond, the oldest are dropped, with a log
SHUTDOWN_SECONDS = 5.0


class TraceExporter(Protocol):
    """Where finished traces go, out of the process. Called on the event loop; must not block."""

    def export(self, trace: Trace, key: str = "") -> None: ...

    def delivered(self) -> list[str]:
        """Keys of the traces that were exported or given up, since last asked."""
        ...

    def shut_down(self) -> None:
        """Send what is left, waiting for it; called in a thread."""
        ...


class Tracing:
    """Pod traces, reconcile traces and their memory for one process.

    `environ` holds the standard variables: OTEL_TRACES_SAMPLER(_ARG), OTEL_EXPORTER_OTLP_(TRACES_)ENDPOINT and the
    other OTEL_EXPORTER_OTLP_*, OTEL_BSP_*, OTEL_SERVICE_NAME, OTEL_RESOURCE_ATTRIBUTES, OTEL_SDK_DISABLED,
    OTEL_TRACES_EXPORTER.
    """

    def __init__(
        self,
        *,
        clock: Clock,
        rng: random.Random,
        environ: Mapping[str, str] | None = None,
        sink: TraceExporter | None = None,
        keep: TailRules = NO_TAIL_RULES,
        until_ready: bool = False,
        metrics: TraceMetrics | None = None,
        max_open: int = MAX_OPEN,
        max_recent_pods: int = MAX_PODS,
    ) -> None:
        """`sink` replaces the exporter that `environ` (by default the process' own) asks for. `until_ready`: the traces
        of pods go on until they are ready, and not only until they are bound."""
        environ = os.environ if environ is None else environ
        self.sampling = sampler_from_environment(environ, keep)
        self.until_ready = until_ready
        rng = random.Random(rng.getrandbits(64))
        self._clock = clock
        self._rng = rng
        self._metrics = metrics or TraceMetrics()
        self._sink = sink
        if sink is None and self.sampling.records_traces:
            self._sink = _chosen_sink(environ, self._metrics)
        self._journal: TraceJournal | None = None
        self._outbox: deque[tuple[PodRecord | ReconcileRecord | Trace, str]] = deque()
        self._aside = UnsampledReconciles()
        self._lost = 0
        self._posted = 0
        self.is_leader = True  # False: another process acts, and exports; this one only follows
        self.pods = PodRecorder(
            clock=clock,
            rng=rng,
            sampling=self.sampling,
            finished=self._pod_finished,
            evicted=self._pod_evicted,
            until_ready=until_ready,
            max_open=max_open,
        )
        self.reconciles = ReconcileRecorder(
            clock=clock, rng=rng, sampling=self.sampling, finished=self._reconcile_finished
        )
        self.recent = RecentTraces(clock=clock, open_records=self.pods.open_records, max_pods=max_recent_pods)

    @property
    def exports(self) -> bool:
        return self._sink is not None

    @property
    def provider(self) -> TracerProvider | None:
        """The SDK's TracerProvider, exporting to the same place, for a plugin's own spans; None where nothing is."""
        return getattr(self._sink, "provider", None)

    def document(self) -> dict[str, Any]:
        """For /configz."""
        until = "ready" if self.until_ready else "bound"
        return {**self.sampling.document(), "until": until, "exports": self.exports}

    def use_journal(self, journal: TraceJournal) -> None:
        """Write down what a crash of this process would lose, and take over what others left. Before run()."""
        with journal.recover(self._clock.time_ns()) as left:
            self._journal = self.pods.saved = journal
            for record, until_ns in left.open:
                journal.save(record)
                self.pods.adopt(record, until_ns)
            for record in left.finished:
                self.recent.add(record)
                self._post(record, journal.finished(record))
            for reconcile in left.reconciles:
                self.recent.add_reconcile(reconcile)
                self._post(reconcile, journal.save_reconcile(reconcile))

    def apply(self) -> ApplyRecorder:
        """The trace of applying some objects, from now on."""
        return ApplyRecorder(
            clock=self._clock, rng=self._rng, sampling=self.sampling, finished=self._reconcile_finished
        )

    def start_leading(self) -> None:
        """This process acts from now on; until now another one did, and exported what it did."""
        self.is_leader = True
        self.pods.start_leading()

    async def run(self) -> None:
        """Finish what waits in vain and export, until cancelled; then export the rest."""
        try:
            async with asyncio.TaskGroup() as tasks:
                tasks.create_task(self._sweep_forever(), name="tracing/sweep")
                tasks.create_task(self._export_forever(), name="tracing/export")
        finally:
            self.pods.sweep()
            self._export(len(self._outbox))
            if self._sink is not None:
                await self._shut_down(self._sink)
            if self._journal is not None:
                self._note_delivered(self._journal)
                self._journal.close()

    async def _sweep_forever(self) -> None:
        while True:
            await asyncio.sleep(SWEEP_SECONDS)
            self.pods.sweep()
            if self._journal is not None:
                self._note_delivered(self._journal)
                self._journal.step()

    async def _export_forever(self) -> None:
        """Turn traces into spans at leisure: a rollout under way is worth more than its traces being exported at once,
        and the journal has them."""
        loop = asyncio.get_running_loop()
        seen, seen_at = 0, loop.time()
        while True:
            while not self._outbox:
                await asyncio.sleep(SWEEP_SECONDS)
            started = loop.time()
            if self._posted != seen:
                seen, seen_at = self._posted, started
            began_ns = self._clock.time_ns()
            self._export(SLICE_LIMIT)
            spent = max(loop.time() - started, (self._clock.time_ns() - began_ns) / 1e9)
            share = IDLE_SHARE
            if started - seen_at < QUIET_SECONDS:
                share = LATE_SHARE if self._oldest_waits_ns() > LATE_SECONDS * 1e9 else BUSY_SHARE
            crowded = max(0.0, 2 * len(self._outbox) / OUTBOX_LIMIT - 1)  # from half full on: before any is dropped
            await asyncio.sleep(spent * (1 / (share + (1 - share) * crowded) - 1))

    def _oldest_waits_ns(self) -> int:
        if not self._outbox:
            return 0
        return self._clock.time_ns() - self._outbox[0][0].end_ns

    async def flush(self) -> None:
        """Hand everything that is finished to the exporter, a slice at a time."""
        self.pods.sweep()
        while self._outbox:
            self._export(SLICE_LIMIT)
            await asyncio.sleep(0)
        if self._journal is not None:
            self._note_delivered(self._journal)
            self._journal.step()
            self._journal.write_out()

    def trace_id(self, pod: Pod) -> str:
        """In hexadecimal; empty if the pod is not traced."""
        record = self.recent.finished(pod.metadata.uid) or self.pods.open_record(pod.metadata.uid)
        if record is not None:
            context = record.context if record.tail_rule or record.context.sampled else None
        else:
            context = parse_traceparent(pod.metadata.annotations.get(TRACEPARENT_ANNOTATION, ""))
            context = context if context and context.sampled else None
        return context.trace_id if context else ""

    def created_to_bound_seconds(self, pod: Pod) -> float | None:
        """From the create request to the bound pod in the informer; None if it is not bound.

        For a pod bound before this process looked, from what stands on the object, in whole seconds.
        """
        record = self.recent.finished(pod.metadata.uid)
        if record is not None and record.bound_ns:
            return (record.bound_ns - record.start_ns) / 1e9
        scheduled = _scheduled_at(pod)
        if not pod.spec.node_name or scheduled is None or pod.metadata.creation_timestamp is None:
            return None
        return max(0.0, (scheduled - pod.metadata.creation_timestamp).total_seconds())

    def reconstructed(self, pod: Pod) -> dict[str, Any] | None:
        """What the object itself tells of the trace of a pod that was bound before this process looked.

        None if it tells nothing. A document with the root alone, in whole seconds; never exported, since the process
        that bound the pod has exported the real one.
        """
        context = parse_traceparent(pod.metadata.annotations.get(TRACEPARENT_ANNOTATION, ""))
        scheduled, creation = _scheduled_at(pod), pod.metadata.creation_timestamp
        if context is None or not context.sampled or scheduled is None or creation is None:
            return None
        note = parse_pod_trace_annotation(pod.metadata.annotations.get(POD_TRACE_ANNOTATION, ""))
        start_ns = note.start_ns if note is not None else int(creation.timestamp()) * 1_000_000_000
        record = PodRecord(context, start_ns)
        record.describe(pod)
        record.node = pod.spec.node_name
        record.reconstructed = True
        record.finish("bound", max(record.start_ns, int(scheduled.timestamp()) * 1_000_000_000))
        return pod_trace(record).document()

    def slowest(self) -> dict[str, Any] | None:
        """The longest pod trace there is, as a document."""
        return self.recent.slowest()

    def _pod_finished(self, record: PodRecord) -> None:
        if not record.context.sampled:
            record.tail_rule = matching_tail_rule(record, self.sampling.keep)
        if not (self.is_leader and (record.context.sampled or record.tail_rule)):
            if self._journal is not None:
                self._journal.forget(record)
            return
        self.recent.add(record)
        self._post(record, self._journal.finished(record) if self._journal is not None else "")
        if record.tail_rule and record.link:
            reconcile = self._aside.wanted(record.link)
            if reconcile is not None:
                self._keep_reconcile(reconcile)

    def _reconcile_finished(self, reconcile: ReconcileRecord | Trace, sampled: bool) -> None:
        keep = self.sampling.keep
        if sampled or (keep.failed and reconcile.error is not None) or self._aside.is_wanted(reconcile):
            self._keep_reconcile(reconcile)
        else:
            self._aside.add(reconcile)

    def _keep_reconcile(self, reconcile: ReconcileRecord | Trace) -> None:
        self.recent.add_reconcile(reconcile)
        key = self._journal.save_reconcile(reconcile) if self._journal is not None and self._sink is not None else ""
        self._post(reconcile, key)

    def _pod_evicted(self, record: PodRecord) -> None:
        self._trace_lost("too many open", "too many pods on their way, giving up the oldest traces")

    def _post(self, finished: PodRecord | ReconcileRecord | Trace, key: str) -> None:
        if self._sink is None and not isinstance(finished, PodRecord):
            return
        self._posted += 1
        self._outbox.append((finished, key))
        if len(self._outbox) > OUTBOX_LIMIT:
            _, dropped = self._outbox.popleft()
            if self._journal is not None and dropped:
                self._journal.delivered([dropped])
            self._trace_lost("too many finished", "traces end faster than they can be exported, dropping the oldest")

    def _trace_lost(self, reason: LostReason, message: str) -> None:
        self._metrics.trace_lost(reason)
        self._lost += 1
        if self._lost == 1:  # the metric counts them
            log.warning("%s; counted in kubeloop_traces_lost_total", message)

    def _export(self, limit: int) -> None:
        if self._journal is not None:
            self._journal.write_out()  # that it has ended: what the collector has, no other process may go on with
        for _ in range(min(limit, len(self._outbox))):
            finished, key = self._outbox.popleft()
            if isinstance(finished, PodRecord):
                self._metrics.phases(phase_times(finished), finished.context.trace_id)
            if self._sink is not None:
                self._sink.export(pod_trace(finished) if isinstance(finished, PodRecord) else finished.trace(), key)

    def _note_delivered(self, journal: TraceJournal) -> None:
        if self._sink is not None:
            journal.delivered(self._sink.delivered())

    async def _shut_down(self, sink: TraceExporter) -> None:
        try:
            async with asyncio.timeout(SHUTDOWN_SECONDS):
                await asyncio.to_thread(sink.shut_down)
        except TimeoutError:
            log.warning("the last spans could not be exported in time")


def exports_otlp(environ: Mapping[str, str]) -> bool:
    """Is there an OTLP endpoint, and OTEL_TRACES_EXPORTER does not say otherwise?"""
    endpoint = environ.get("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT") or environ.get("OTEL_EXPORTER_OTLP_ENDPOINT")
    return bool(endpoint) and "otlp" in _exporters(environ)


def _chosen_sink(environ: Mapping[str, str], metrics: TraceMetrics) -> TraceExporter | None:
    """As OTEL_TRACES_EXPORTER says; None: nothing is exported. The SDK is imported only where it is needed."""
    exporters = _exporters(environ)
    unknown = [name for name in exporters if name not in ("otlp", "console", "none")]
    if unknown:
        log.warning("OTEL_TRACES_EXPORTER may be otlp, console or none; ignored: %s", ", ".join(unknown))
    if exports_otlp(environ):
        if "console" in exporters:
            log.warning("OTEL_TRACES_EXPORTER: traces go to one place, by OTLP, and not to the console")
        from kubeloop.tracing.export.otlp_exporter import OtlpExporter, export_settings

        return OtlpExporter(export_settings(environ), metrics)
    if "console" in exporters:
        from kubeloop.tracing.export.console import ConsoleExporter
        from kubeloop.tracing.export.otlp_exporter import resource_attributes

        return ConsoleExporter(resource_attributes())
    return None


def _exporters(environ: Mapping[str, str]) -> Sequence[str]:
    return [name.strip().lower() for name in (environ.get("OTEL_TRACES_EXPORTER") or "otlp").split(",")]


def _scheduled_at(pod: Pod) -> datetime | None:
    for condition in pod.status.conditions:
        if condition.type == "PodScheduled" and condition.status == "True":
            return condition.last_transition_time
    return None
