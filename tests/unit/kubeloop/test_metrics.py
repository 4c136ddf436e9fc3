from prometheus_client import CollectorRegistry, generate_latest

from kubeloop.metrics import PrometheusControllerMetrics, PrometheusSchedulerMetrics, new_registry


class FullQueue:
    def __len__(self):
        return 7

    def unfinished_work_seconds(self):
        return 1.5

    def longest_running_processor_seconds(self):
        return 1.25


def text(registry):
    return generate_latest(registry).decode()


def test_queue_gauges_are_read_when_somebody_scrapes():
    registry = CollectorRegistry()
    queue = PrometheusControllerMetrics(registry).queue("deployment")
    queue.attach(FullQueue())
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


def test_controllers_report_reconciles_and_what_the_replicaset_controller_counts():
    registry = CollectorRegistry()
    metrics = PrometheusControllerMetrics(registry)
    metrics.reconciled("deployment", 0.5, error=True)
    metrics.deletion_age_ratio(0.75)
    metrics.stale_sync_skipped("replicaset")
    page = text(registry)
    for line in (
        'kubeloop_reconcile_duration_seconds_count{controller="deployment"} 1.0',
        'kubeloop_reconcile_errors_total{controller="deployment"} 1.0',
        "replicaset_controller_sorting_deletion_age_ratio_sum 0.75",
        "replicaset_controller_stale_sync_skips_total 1.0",
    ):
        assert line in page


def test_the_scheduler_reports_under_kube_schedulers_names():
    registry = CollectorRegistry()
    metrics = PrometheusSchedulerMetrics(registry)
    metrics.attempt("scheduled", "default-scheduler", 0.5)
    metrics.algorithm(0.25)
    metrics.pod_scheduled(2, 1.5)
    metrics.pod_scheduled(40, 1.5)
    metrics.pending_pods(active=1, backoff=2, unschedulable=3, gated=4)
    metrics.queue_incoming("active", "UnscheduledPodAdd")
    metrics.extension_point("Filter", "Success", "default-scheduler", 0.001)
    metrics.plugin("NodeName", "Filter", "Success", 0.001)
    metrics.preemption(victims=2)
    metrics.preemption(victims=0)
    metrics.permit_wait("allowed", 0.5)
    metrics.cache_size(nodes=5, pods=6, assumed_pods=7)
    page = text(registry)
    for line in (
        'scheduler_schedule_attempts_total{profile="default-scheduler",result="scheduled"} 1.0',
        'scheduler_scheduling_attempt_duration_seconds_sum{profile="default-scheduler",result="scheduled"} 0.5',
        "scheduler_scheduling_algorithm_duration_seconds_sum 0.25",
        "scheduler_pod_scheduling_attempts_sum 42.0",
        'scheduler_pod_scheduling_sli_duration_seconds_sum{attempts="2"} 1.5',
        'scheduler_pod_scheduling_sli_duration_seconds_sum{attempts="16+"} 1.5',
        'scheduler_pending_pods{queue="gated"} 4.0',
        'scheduler_queue_incoming_pods_total{event="UnscheduledPodAdd",queue="active"} 1.0',
        "scheduler_preemption_attempts_total 2.0",
        "scheduler_preemption_victims_count 1.0",
        'scheduler_permit_wait_duration_seconds_sum{result="allowed"} 0.5',
        'scheduler_scheduler_cache_size{type="assumed_pods"} 7.0',
    ):
        assert line in page


def test_a_new_registry_has_the_process_and_the_build():
    page = text(new_registry())
    assert "process_resident_memory_bytes" in page
    assert "kubeloop_build_info{" in page
