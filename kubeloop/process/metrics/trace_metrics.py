"""Metrics derived from traces: phase durations of pods with exemplars, and lost spans and traces."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING

from kubeloop.process.metrics.metrics_registry import PrometheusCounter, PrometheusGauge, Registerer
from kubeloop.tracing.metrics_interface import DropReason, LostReason, TracedPod, TraceMetrics

if TYPE_CHECKING:
    from kubeloop.process.metrics.histogram_families import Example, HistogramFamily

_PHASE_BUCKETS = (
    *(0.0001, 0.00025, 0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5),
    *(1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 300.0, 900.0, 3600.0),
)  # seconds


_SLI_BUCKETS = (
    *(0.5, 1.0, 2.0, 3.0, 4.0, 5.0, 6.0, 8.0, 10.0, 20.0, 30.0, 45.0, 60.0, 120.0, 180.0, 240.0, 300.0, 360.0, 480.0),
    *(600.0, 900.0, 1200.0, 1800.0, 2700.0, 3600.0),
)
"""Seconds; those of kubelet_pod_start_sli_duration_seconds."""

MAX_GROUPS = 100  # pairs of namespace and owner kind with metrics of their own
_OTHER_GROUP = ("other", "other")


class _Durations:
    """One labeled histogram: counts per bucket, and the last trace id of each bucket."""

    __slots__ = ("_bounds_ns", "counts", "examples", "sum_ns")

    def __init__(self, bounds_ns: Sequence[int]) -> None:
        self._bounds_ns = bounds_ns
        self.counts = [0] * (len(bounds_ns) + 1)
        self.examples: list[Example | None] = [None] * len(self.counts)
        self.sum_ns = 0

    def observe(self, ns: int, trace_id: str) -> None:
        bucket = bisect_left(self._bounds_ns, ns)
        self.counts[bucket] += 1
        self.examples[bucket] = trace_id, ns / 1e9
        if ns > 0:  # negative after a clock was set back
            self.sum_ns += ns


class _DurationFamily:
    """Histograms by label values, with exemplars. buckets: upper bounds in seconds."""

    def __init__(self, name: str, documentation: str, labels: Sequence[str], buckets: Sequence[float]) -> None:
        self._name, self._documentation, self._labels, self._buckets = name, documentation, labels, buckets
        self._bounds_ns = tuple(round(seconds * 1e9) for seconds in buckets)
        self._histograms: dict[tuple[str, ...], _Durations] = {}

    def histogram(self, labels: tuple[str, ...]) -> _Durations:
        """Return the histogram with these label values, a new one for the first time."""
        histogram = self._histograms.get(labels)
        if histogram is None:
            histogram = self._histograms[labels] = _Durations(self._bounds_ns)
        return histogram

    def collect(self) -> Iterable[HistogramFamily]:
        from kubeloop.process.metrics.histogram_families import HistogramCopy, HistogramFamily

        copies = [
            HistogramCopy(labels, [*histogram.counts], histogram.sum_ns / 1e9, [*histogram.examples])
            for labels, histogram in sorted(self._histograms.items())
        ]
        yield HistogramFamily(self._name, self._documentation, self._labels, self._buckets, copies)


class PrometheusTraceMetrics(TraceMetrics):
    """kubeloop_pod_*_duration_seconds and kubeloop_trace*.

    Durations have the labels namespace and owner_kind; both are "other" for all pairs beyond the first MAX_GROUPS.
    """

    def __init__(self, registry: Registerer) -> None:
        # Histograms by phase, also of "total", of each pair of namespace and owner kind:
        self._groups: dict[tuple[str, str], dict[str, _Durations]] = {}
        self._phases = _DurationFamily(
            "kubeloop_pod_phase_duration_seconds",
            "Duration of each phase of pod creation and start in seconds, summed over a pod's attempts; from traces.",
            ("phase", "namespace", "owner_kind"),
            _PHASE_BUCKETS,
        )
        self._total = _DurationFamily(
            "kubeloop_pod_created_to_bound_duration_seconds",
            "Duration from the creation of a pod until it was bound, in seconds; from traces.",
            ("namespace", "owner_kind"),
            _PHASE_BUCKETS,
        )
        self._start_sli = _DurationFamily(
            "kubeloop_pod_start_sli_duration_seconds",
            "Duration from the creation of a stateless pod until its containers were observed running, in seconds,"
            " without image pulls and init containers; as kubelet_pod_start_sli_duration_seconds.",
            ("namespace", "owner_kind"),
            _SLI_BUCKETS,
        )
        for family in (self._phases, self._total, self._start_sli):
            registry.register(family)
        self._exported = PrometheusCounter(
            "kubeloop_trace_spans_exported_total", "Spans that the collector accepted.", registry=registry
        )
        self._dropped = PrometheusCounter(
            "kubeloop_trace_spans_dropped_total",
            "Spans that could not be exported: the queue was full, or the collector was unreachable or rejected them.",
            ["reason"],
            registry=registry,
        )
        self._lost = PrometheusCounter(
            "kubeloop_traces_lost_total",
            "Traces dropped because too many pods are pending, or too many traces have ended.",
            ["reason"],
            registry=registry,
        )
        self.open = PrometheusGauge("kubeloop_traces_open", "Traces of pods that have not ended.", registry=registry)

    def phases(self, times_ns: Mapping[str, int], pod: TracedPod) -> None:
        group = self._group(pod)
        histograms, trace_id = self._groups[group], pod.trace_id
        for phase, ns in times_ns.items():
            histogram = histograms.get(phase)
            if histogram is None:
                total = phase == "total"
                histogram = histograms[phase] = (
                    self._total.histogram(group) if total else self._phases.histogram((phase.replace(" ", "_"), *group))
                )
            histogram.observe(ns, trace_id)

    def start_sli(self, duration_ns: int, pod: TracedPod) -> None:
        self._start_sli.histogram(self._group(pod)).observe(duration_ns, pod.trace_id)

    def _group(self, pod: TracedPod) -> tuple[str, str]:
        """Return the labels of a pod, for which there is an entry in _groups."""
        group = pod.namespace, pod.owner_kind
        if group not in self._groups:
            if len(self._groups) >= MAX_GROUPS:
                group = _OTHER_GROUP
            self._groups.setdefault(group, {})
        return group

    def spans_exported(self, spans: int) -> None:
        self._exported.inc(spans)

    def spans_dropped(self, reason: DropReason, spans: int) -> None:
        self._dropped.labels(reason.replace(" ", "_")).inc(spans)

    def trace_lost(self, reason: LostReason) -> None:
        self._lost.labels(reason.replace(" ", "_")).inc()
