"""Metrics derived from traces: how long pods are in each phase, with the trace of an example, and what is lost."""

from __future__ import annotations

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram

from kubeloop.tracing.metrics import DropReason, LostReason, TraceMetrics

_PHASE_BUCKETS = (
    *(0.0001, 0.00025, 0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5),
    *(1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 300.0, 900.0, 3600.0),
)


class PrometheusTraceMetrics(TraceMetrics):
    """kubeloop_pod_*_duration_seconds and kubeloop_trace*."""

    def __init__(self, registry: CollectorRegistry) -> None:
        self._phases = Histogram(
            "kubeloop_pod_phase_duration_seconds",
            "How long pods were in each phase of their creation, summed over a pod's attempts; from their traces.",
            ["phase"],
            buckets=_PHASE_BUCKETS,
            registry=registry,
        )
        self._total = Histogram(
            "kubeloop_pod_created_to_bound_duration_seconds",
            "From the create request to the bound pod in the informer; from their traces.",
            buckets=_PHASE_BUCKETS,
            registry=registry,
        )
        self._exported = Counter(
            "kubeloop_trace_spans_exported_total", "Spans that the collector has taken.", registry=registry
        )
        self._dropped = Counter(
            "kubeloop_trace_spans_dropped_total",
            "Spans that could not be exported: the queue was full, the collector unreachable, or it refused them.",
            ["reason"],
            registry=registry,
        )
        self._lost = Counter(
            "kubeloop_traces_lost_total",
            "Traces given up because too many pods are on their way, or too many have ended.",
            ["reason"],
            registry=registry,
        )
        self.open = Gauge("kubeloop_traces_open", "Pods that are followed and on their way.", registry=registry)
        self._series: dict[str, Histogram] = {}

    def phase(self, phase: str, seconds: float, trace_id: str) -> None:
        if phase == "total":
            self._total.observe(seconds, {"trace_id": trace_id})
            return
        series = self._series.get(phase)
        if series is None:
            series = self._series[phase] = self._phases.labels(phase.replace(" ", "_"))
        series.observe(seconds, {"trace_id": trace_id})

    def spans_exported(self, spans: int) -> None:
        self._exported.inc(spans)

    def spans_dropped(self, reason: DropReason, spans: int) -> None:
        self._dropped.labels(reason.replace(" ", "_")).inc(spans)

    def trace_lost(self, reason: LostReason) -> None:
        self._lost.labels(reason.replace(" ", "_")).inc()
