r"""Tracing of one process, put together: recorders, memory, and export by OpenTelemetry where it is asked for.

    recorders --finished record--> memory
                             +--> outbox --run(): spans, in slices--> BatchSpanProcessor --thread--> OTLP/HTTP

The OpenTelemetry SDK is imported only if there is somewhere to export to. May import `kubeloop.kube` and this room.
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
from kubeloop.kube.objects import Pod
from kubeloop.tracing.context import TRACEPARENT_ANNOTATION, parse_traceparent
from kubeloop.tracing.lifecycle import MAX_OPEN, PodTraces
from kubeloop.tracing.memory import MAX_PODS, TraceMemory
from kubeloop.tracing.pod_record import PodRecord, pod_trace
from kubeloop.tracing.reconcile import ReconcileTraces
from kubeloop.tracing.sampling import sampling_from
from kubeloop.tracing.spans import Trace

if TYPE_CHECKING:
    from opentelemetry.sdk.trace import TracerProvider

log = logging.getLogger(__name__)

SWEEP_SECONDS = 1.0
SLICE_LIMIT = 20  # traces turned into spans before other tasks get a turn: some 5 ms
OUTBOX_LIMIT = 20_000  # traces not yet handed to the exporter; beyond, the oldest are dropped, with a log
SHUTDOWN_SECONDS = 5.0


class SpanSink(Protocol):
    """Where finished traces go, out of the process. Called on the event loop; must not block."""

    def export(self, trace: Trace) -> None: ...

    def shut_down(self) -> None:
        """Send what is left, waiting for it; called in a thread."""
        ...


class Tracing:
    """Pod traces, reconcile traces and their memory for one process.

    `environ` holds the standard variables: OTEL_TRACES_SAMPLER(_ARG), OTEL_EXPORTER_OTLP_(TRACES_)ENDPOINT and the
    other OTEL_EXPORTER_OTLP_*, OTEL_SERVICE_NAME, OTEL_RESOURCE_ATTRIBUTES, OTEL_SDK_DISABLED, OTEL_TRACES_EXPORTER.
    """

    def __init__(
        self,
        *,
        clock: Clock,
        rng: random.Random,
        environ: Mapping[str, str] | None = None,
        sink: SpanSink | None = None,
        max_open: int = MAX_OPEN,
        max_kept: int = MAX_PODS,
    ) -> None:
        """`sink` replaces the exporter that `environ` (by default the process' own) asks for."""
        environ = os.environ if environ is None else environ
        sampling = sampling_from(environ)
        rng = random.Random(rng.getrandbits(64))
        self._clock = clock
        self._salt = rng.getrandbits(64)
        if sink is None and sampling.enabled and wants_export(environ):
            from kubeloop.tracing.export import OpenTelemetrySink

            sink = OpenTelemetrySink(environ)
        self._sink = sink
        self._outbox: deque[PodRecord | Trace] = deque()
        self._dropped = 0
        self.pods = PodTraces(clock=clock, rng=rng, sampling=sampling, finished=self._pod_finished, max_open=max_open)
        self.reconciles = ReconcileTraces(clock=clock, rng=rng, sampling=sampling, finished=self._reconcile_finished)
        self.memory = TraceMemory(clock=clock, salt=self._salt, open_records=self.pods.open_records, max_pods=max_kept)

    @property
    def provider(self) -> TracerProvider | None:
        """The SDK's TracerProvider with the same exporter, for a plugin's own spans; None where nothing is exported."""
        return getattr(self._sink, "provider", None)

    async def run(self) -> None:
        """Finish what waits in vain and export, until cancelled; then export the rest."""
        try:
            while True:
                await asyncio.sleep(SWEEP_SECONDS)
                await self.flush()
        finally:
            self._export(len(self._outbox))
            if self._sink is not None:
                await self._shut_down(self._sink)

    async def flush(self) -> None:
        """Hand everything that is finished to the exporter, a slice at a time."""
        self.pods.sweep()
        while self._outbox:
            self._export(SLICE_LIMIT)
            await asyncio.sleep(0)

    def trace_id(self, pod: Pod) -> str:
        """In hexadecimal; empty if the pod is not traced."""
        context = parse_traceparent(self.pods.traceparent_of(pod))
        record = None if context else self.memory.finished(pod.metadata.uid)
        if record is not None:
            context = record.context
        return context.trace_id if context else ""

    def created_to_bound_seconds(self, pod: Pod) -> float | None:
        """From the create request to the bound pod in the informer; None if it is not bound.

        For a pod bound before this process looked, from what stands on the object, in whole seconds.
        """
        record = self.memory.finished(pod.metadata.uid)
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
        record = PodRecord(context, int(creation.timestamp()) * 1_000_000_000)
        record.describe(pod)
        record.node = pod.spec.node_name
        record.reconstructed = True
        record.finish("bound", max(record.start_ns, int(scheduled.timestamp()) * 1_000_000_000))
        return pod_trace(record, salt=self._salt, now_ns=record.end_ns).document()

    def slowest(self) -> dict[str, Any] | None:
        """The longest pod trace there is, as a document."""
        return self.memory.slowest()

    def _pod_finished(self, record: PodRecord) -> None:
        self.memory.add(record)
        self._post(record)

    def _reconcile_finished(self, trace: Trace) -> None:
        self.memory.add_reconcile(trace)
        self._post(trace)

    def _post(self, finished: PodRecord | Trace) -> None:
        if self._sink is None:
            return
        self._outbox.append(finished)
        if len(self._outbox) > OUTBOX_LIMIT:
            self._outbox.popleft()
            self._dropped += 1
            if self._dropped.bit_count() == 1:  # 1, 2, 4, 8, ...
                log.warning(
                    "traces are not exported fast enough, dropping the oldest", extra={"dropped": self._dropped}
                )

    def _export(self, limit: int) -> None:
        for _ in range(min(limit, len(self._outbox))):
            finished = self._outbox.popleft()
            trace = finished if isinstance(finished, Trace) else pod_trace(finished, salt=self._salt, now_ns=0)
            if self._sink is not None:
                self._sink.export(trace)

    async def _shut_down(self, sink: SpanSink) -> None:
        try:
            async with asyncio.timeout(SHUTDOWN_SECONDS):
                await asyncio.to_thread(sink.shut_down)
        except TimeoutError:
            log.warning("the last spans could not be exported in time")


def wants_export(environ: Mapping[str, str]) -> bool:
    """Is there an OTLP endpoint, and OTEL_TRACES_EXPORTER does not say otherwise?"""
    exporters = _exporters(environ)
    endpoint = environ.get("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT") or environ.get("OTEL_EXPORTER_OTLP_ENDPOINT")
    return bool(endpoint) and "otlp" in exporters


def _exporters(environ: Mapping[str, str]) -> Sequence[str]:
    return [name.strip().lower() for name in (environ.get("OTEL_TRACES_EXPORTER") or "otlp").split(",")]


def _scheduled_at(pod: Pod) -> datetime | None:
    for condition in pod.status.conditions:
        if condition.type == "PodScheduled" and condition.status == "True":
            return condition.last_transition_time
    return None
