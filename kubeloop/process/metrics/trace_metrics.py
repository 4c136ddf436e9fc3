"""Metrics derived from traces: phase durations of pods with exemplars, and lost spans and traces."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any

from kubeloop.process.metrics.metrics_registry import Counter, Gauge, Registerer
from kubeloop.tracing.metrics_interface import DropReason, LostReason, TraceMetrics

if TYPE_CHECKING:
    from prometheus_client.metrics_core import Metric

_PHASE_BUCKETS = (
    *(0.0001, 0.00025, 0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5),
    *(1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 300.0, 900.0, 3600.0),
)  # seconds
_PHASE_BUCKETS_NS = tuple(round(seconds * 1e9) for seconds in _PHASE_BUCKETS)


class _Durations:
    """One labeled histogram: counts per bucket, and the last trace id of each bucket."""

    __slots__ = ("counts", "examples", "sum_ns")

    def __init__(self) -> None:
        self.counts = [0] * (len(_PHASE_BUCKETS) + 1)
        self.examples: list[tuple[str, int] | None] = [None] * len(self.counts)
        self.sum_ns = 0

    def observe(self, ns: int, trace_id: str) -> None:
        bucket = bisect_left(_PHASE_BUCKETS_NS, ns)
        self.counts[bucket] += 1
        self.examples[bucket] = trace_id, ns
        self.sum_ns += max(0, ns)  # negative after a clock was set back

    def buckets(self) -> list[Any]:
        """Return (upper bound, cumulative count, exemplar or None) as HistogramMetricFamily takes them."""
        from prometheus_client.samples import Exemplar

        buckets: list[Any] = []
        total = 0
        for bound, count, example in zip((*_PHASE_BUCKETS, float("inf")), self.counts, self.examples, strict=True):
            total += count
            exemplar = Exemplar({"trace_id": example[0]}, example[1] / 1e9) if example is not None else None
            buckets.append((("+Inf" if bound == float("inf") else str(bound)), total, exemplar))
        return buckets


class PrometheusTraceMetrics(TraceMetrics):
    """kubeloop_pod_*_duration_seconds and kubeloop_trace*."""

    def __init__(self, registry: Registerer) -> None:
        self._total = _Durations()
        self._phases: dict[str, _Durations] = {"total": self._total}
        registry.register(self)
        self._exported = Counter(
            "kubeloop_trace_spans_exported_total", "Spans that the collector accepted.", registry=registry
        )
        self._dropped = Counter(
            "kubeloop_trace_spans_dropped_total",
            "Spans that could not be exported: the queue was full, or the collector was unreachable or rejected them.",
            ["reason"],
            registry=registry,
        )
        self._lost = Counter(
            "kubeloop_traces_lost_total",
            "Traces dropped because too many pods are pending, or too many traces have ended.",
            ["reason"],
            registry=registry,
        )
        self.open = Gauge("kubeloop_traces_open", "Traces of pods that have not ended.", registry=registry)

    def phases(self, times_ns: Mapping[str, int], trace_id: str) -> None:
        for phase, ns in times_ns.items():
            histogram = self._phases.get(phase)
            if histogram is None:
                histogram = self._phases[phase] = _Durations()
            histogram.observe(ns, trace_id)

    def collect(self) -> Iterable[Metric]:
        """Return the histograms of phase durations, with exemplars."""
        from prometheus_client.metrics_core import HistogramMetricFamily

        phases = HistogramMetricFamily(
            "kubeloop_pod_phase_duration_seconds",
            "Duration of each phase of pod creation in seconds, summed over a pod's attempts; from traces.",
            labels=["phase"],
        )
        for phase, histogram in sorted(self._phases.items()):
            if histogram is self._total:
                continue
            phases.add_metric([phase.replace(" ", "_")], histogram.buckets(), histogram.sum_ns / 1e9)
        total = HistogramMetricFamily(
            "kubeloop_pod_created_to_bound_duration_seconds",
            "Duration from the create request to the bound pod in the informer, in seconds; from traces.",
        )
        total.add_metric([], self._total.buckets(), self._total.sum_ns / 1e9)
        return (phases, total)

    def spans_exported(self, spans: int) -> None:
        self._exported.inc(spans)

    def spans_dropped(self, reason: DropReason, spans: int) -> None:
        self._dropped.labels(reason.replace(" ", "_")).inc(spans)

    def trace_lost(self, reason: LostReason) -> None:
        self._lost.labels(reason.replace(" ", "_")).inc()
