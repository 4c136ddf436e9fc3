"""Metrics of the scheduler that are computed at each scrape."""

from types import SimpleNamespace

from prometheus_client import CollectorRegistry, generate_latest

from kubeloop.process.metrics.scheduler_gauges import SchedulerGaugesCollector

GAUGES = SimpleNamespace(
    in_flight_events=lambda: {"PodPopped": 2},
    unschedulable_pods=lambda: {("NodeName", "default-scheduler"): 3},
    plugin_evaluations=lambda: {("NodeName", "Filter", "default-scheduler"): 4},
    bindings_in_flight=lambda: 5,
)


def test_scraped_metrics_have_kube_scheduler_names():
    registry = CollectorRegistry()
    registry.register(SchedulerGaugesCollector(GAUGES))
    page = generate_latest(registry).decode()
    for line in (
        'scheduler_inflight_events{event="PodPopped"} 2.0',
        'scheduler_unschedulable_pods{plugin="NodeName",profile="default-scheduler"} 3.0',
        'scheduler_plugin_evaluation_total{extension_point="Filter",plugin="NodeName",profile="default-scheduler"} 4.0',
        'scheduler_goroutines{operation="binding"} 5.0',
    ):
        assert line in page
