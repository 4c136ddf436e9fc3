"""Metrics of the observation of a cluster: interrupted watches, dropped Events, clock skew."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING

from kubeloop.process.metrics.metrics_registry import PrometheusCounter, Registerer
from kubeloop.tracing.observation.clock_skew import API_SERVER, ClockSkew

if TYPE_CHECKING:
    from prometheus_client.metrics_core import Metric


class ObservationMetrics:
    """kubeloop_observe_*. events_dropped: returns the number of Events dropped because their pods did not come."""

    def __init__(self, registry: Registerer, skew: ClockSkew, events_dropped: Callable[[], int]) -> None:
        self.watch_gaps = PrometheusCounter(
            "kubeloop_observe_watch_gaps_total",
            "Interruptions of a watch in which changes were missed, by resource.",
            ["resource"],
            registry=registry,
        )
        self._skew = skew
        self._events_dropped = events_dropped
        registry.register(self)

    def collect(self) -> Iterable[Metric]:
        """Return the skew of the API server's clock, and of the node's with the largest one."""
        from prometheus_client.metrics_core import CounterMetricFamily, GaugeMetricFamily

        dropped = CounterMetricFamily(
            "kubeloop_observe_events_dropped_total", "Events dropped because their pods did not come."
        )
        dropped.add_metric([], self._events_dropped())
        skew = GaugeMetricFamily(
            "kubeloop_observe_clock_skew_seconds",
            "Least difference of a clock from that of this process in seconds, positive if ahead; 0 if they may be"
            " equal. nodes: of the node with the largest difference.",
            labels=["clock"],
        )
        differences = {clock: estimate["certainMs"] / 1000 for clock, estimate in self._skew.document().items()}
        skew.add_metric(["api_server"], differences.pop(API_SERVER, 0.0))
        skew.add_metric(["nodes"], max(differences.values(), key=abs, default=0.0))
        return (dropped, skew)
