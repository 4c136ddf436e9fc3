"""Work queue and reconcile metrics."""

from prometheus_client import CollectorRegistry, generate_latest

from kubeloop.process.metrics.controller_metrics import PrometheusControllerMetrics


class StubQueue:
    def __len__(self):
        return 7

    def unfinished_work_seconds(self):
        return 1.5

    def longest_running_processor_seconds(self):
        return 1.25


def text(registry):
    return generate_latest(registry).decode()


def test_queue_gauges_are_read_at_each_scrape():
    registry = CollectorRegistry()
    queue = PrometheusControllerMetrics(registry).queue("deployment")
    queue.attach(StubQueue())
    queue.added()
    queue.retried()
    queue.started(waited_seconds=0.5)
    queue.finished(worked_seconds=0.25)
    page = text(registry)
    for line in (
        'workqueue_depth{name="deployment"} 7.0',
        'workqueue_unfinished_work_seconds{name="deployment"} 1.5',
        'workqueue_longest_running_processor_seconds{name="deployment"} 1.25',
        'workqueue_adds_total{name="deployment"} 1.0',
        'workqueue_retries_total{name="deployment"} 1.0',
        'workqueue_queue_duration_seconds_sum{name="deployment"} 0.5',
        'workqueue_work_duration_seconds_sum{name="deployment"} 0.25',
    ):
        assert line in page


def test_reconcile_and_replicaset_metrics():
    registry = CollectorRegistry()
    metrics = PrometheusControllerMetrics(registry)
    metrics.reconciled("deployment", 0.5, error=True)
    metrics.deletion_age_ratio(0.75)
    metrics.stale_sync_skipped("replicaset", "pods")
    metrics.stale_sync_skipped("daemonset", "daemonsets.apps")
    metrics.stale_sync_skipped("job", "jobs.batch")
    metrics.stale_sync_skipped("statefulset", "pods")
    metrics.stale_sync_skipped("endpoint", "pods")  # no such metric
    page = text(registry)
    assert "endpoint_controller" not in page
    for line in (
        'kubeloop_reconcile_duration_seconds_count{controller="deployment"} 1.0',
        'kubeloop_reconcile_errors_total{controller="deployment"} 1.0',
        "replicaset_controller_sorting_deletion_age_ratio_sum 0.75",
        'replicaset_controller_stale_sync_skips_total{group="",resource="pods"} 1.0',
        'daemonset_controller_stale_sync_skips_total{group="apps",resource="daemonsets"} 1.0',
        'job_controller_stale_sync_skips_total{group="batch",resource="jobs"} 1.0',
        'statefulset_controller_stale_sync_skips_total{group="",resource="pods"} 1.0',
    ):
        assert line in page
