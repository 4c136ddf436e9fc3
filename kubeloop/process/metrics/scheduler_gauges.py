"""Metrics of the scheduler that are computed at each scrape."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from prometheus_client.metrics_core import Metric

    from kubeloop.scheduler.scheduler_gauges import SchedulerGauges


class SchedulerGaugesCollector:
    """scheduler_inflight_events, _unschedulable_pods, _plugin_evaluation_total and _goroutines."""

    def __init__(self, gauges: SchedulerGauges) -> None:
        self._gauges = gauges

    def collect(self) -> Iterable[Metric]:
        from prometheus_client.metrics_core import CounterMetricFamily, GaugeMetricFamily

        in_flight = GaugeMetricFamily(
            "scheduler_inflight_events",
            "Number of events tracked for pods being scheduled, by event.",
            labels=["event"],
        )
        unschedulable = GaugeMetricFamily(
            "scheduler_unschedulable_pods",
            "Number of unschedulable pods by plugin; a pod counts for each plugin that rejected it.",
            labels=["plugin", "profile"],
        )
        evaluations = CounterMetricFamily(
            "scheduler_plugin_evaluation",
            "Number of attempts to schedule pods by plugin and extension point (PreFilter, Filter, PreScore, Score).",
            labels=["plugin", "extension_point", "profile"],
        )
        goroutines = GaugeMetricFamily(
            "scheduler_goroutines", "Number of running tasks, by operation.", labels=["operation"]
        )
        for event, count in self._gauges.in_flight_events().items():
            in_flight.add_metric([event], count)
        for plugin_profile, count in self._gauges.unschedulable_pods().items():
            unschedulable.add_metric(plugin_profile, count)
        for evaluation_labels, count in self._gauges.plugin_evaluations().items():
            evaluations.add_metric(evaluation_labels, count)
        goroutines.add_metric(["binding"], self._gauges.bindings_in_flight())
        return in_flight, unschedulable, evaluations, goroutines
