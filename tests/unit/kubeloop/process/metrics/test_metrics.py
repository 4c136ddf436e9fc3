import itertools
from contextlib import asynccontextmanager

import pytest
from prometheus_client import CollectorRegistry, generate_latest

from kubeloop.kube.client.transport import Response, StreamedResponse, TransportError
from kubeloop.process.metrics.client_metrics import MeasuredTransport
from kubeloop.process.metrics.controller_metrics import PrometheusControllerMetrics
from kubeloop.process.metrics.process_metrics import new_registry
from kubeloop.process.metrics.scheduler_metrics import PrometheusSchedulerMetrics


class FullQueue:
    def __len__(self):
        return 7

    def unfinished_work_seconds(self):
        return 1.5

    def longest_running_processor_seconds(self):
        return 1.25


class SomeState:
    def in_flight_events(self):
        return {"PodPopped": 2}

    def unschedulable_pods(self):
        return {("NodeName", "default-scheduler"): 3}

    def plugin_evaluations(self):
        return {("NodeName", "Filter", "default-scheduler"): 4}

    def bindings_in_flight(self):
        return 5


class AnsweringTransport:
    """Answers 404 to GET, loses any other request."""

    server = "https://10.0.0.1:6443"

    async def request(self, method, target, *, headers, body=b"", timeout_seconds=None):
        if method != "GET":
            raise TransportError("lost", request_sent=True)
        return Response(404, b"{}")

    @asynccontextmanager
    async def stream(self, method, target, *, headers, body=b""):
        async def chunks():
            yield b"{}"

        yield StreamedResponse(200, {}, chunks())

    async def close(self): ...


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
    metrics.pod_scheduled(2, 1.5, after_flush=False)
    metrics.pod_scheduled(40, 1.5, after_flush=True)
    metrics.pending_pods(active=1, backoff=2, unschedulable=3, gated=4)
    metrics.queue_incoming("active", "UnscheduledPodAdd")
    metrics.extension_point("Filter", "Success", "default-scheduler", 0.001)
    metrics.plugin("NodeName", "Filter", "Success", 0.001)
    metrics.preemption(victims=2)
    metrics.preemption(victims=0)
    metrics.victims_evicted("error", 0.25)
    metrics.volume_stage_failed("bind")
    metrics.permit_wait("allowed", 0.5)
    metrics.queueing_hint("NodeName", "NodeAdd", "Queue", 0.25)
    metrics.event_handled("NodeAdd", 0.5)
    metrics.attach(SomeState())
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
        "scheduler_pod_scheduled_after_flush_total 1.0",
        'scheduler_queueing_hint_execution_duration_seconds_sum{event="NodeAdd",hint="Queue",plugin="NodeName"} 0.25',
        'scheduler_event_handling_duration_seconds_sum{event="NodeAdd"} 0.5',
        'scheduler_inflight_events{event="PodPopped"} 2.0',
        'scheduler_unschedulable_pods{plugin="NodeName",profile="default-scheduler"} 3.0',
        'scheduler_plugin_evaluation_total{extension_point="Filter",plugin="NodeName",profile="default-scheduler"} 4.0',
        'scheduler_goroutines{operation="binding"} 5.0',
        "scheduler_preemption_victims_count 1.0",
        'scheduler_preemption_goroutines_execution_total{result="error"} 1.0',
        'scheduler_preemption_goroutines_duration_seconds_sum{result="error"} 0.25',
        'scheduler_volume_scheduling_stage_error_total{operation="bind"} 1.0',
        'scheduler_permit_wait_duration_seconds_sum{result="allowed"} 0.5',
        'scheduler_cache_size{type="assumed_pods"} 7.0',
    ):
        assert line in page


def test_a_new_registry_has_the_process_and_the_build():
    page = text(new_registry())
    assert "process_resident_memory_bytes" in page
    assert "kubeloop_build_info{" in page


async def test_requests_to_the_api_server_count_under_client_gos_names():
    registry = CollectorRegistry()
    seconds = itertools.count(0, 250_000_000)
    transport = MeasuredTransport(AnsweringTransport(), registry, lambda: next(seconds))
    assert transport.server == "https://10.0.0.1:6443"
    assert (await transport.request("GET", "/api", headers={})).status == 404
    with pytest.raises(TransportError):
        await transport.request("POST", "/api", headers={})
    async with transport.stream("GET", "/api?watch=1", headers={}) as answer:
        assert [chunk async for chunk in answer.chunks] == [b"{}"]
    page = text(registry)
    for line in (
        'rest_client_requests_total{code="404",host="10.0.0.1:6443",method="GET"} 1.0',
        'rest_client_requests_total{code="<error>",host="10.0.0.1:6443",method="POST"} 1.0',
        'rest_client_requests_total{code="200",host="10.0.0.1:6443",method="GET"} 1.0',
        'rest_client_request_duration_seconds_sum{host="10.0.0.1:6443",verb="GET"} 0.5',
        'rest_client_request_duration_seconds_count{host="10.0.0.1:6443",verb="POST"} 1.0',
    ):
        assert line in page


async def test_a_broken_watch_breaks_for_its_reader_too():
    class Breaking(AnsweringTransport):
        @asynccontextmanager
        async def stream(self, method, target, *, headers, body=b""):
            raise TransportError("no connection", request_sent=False)
            yield

    registry = CollectorRegistry()
    transport = MeasuredTransport(Breaking(), registry, lambda: 0)
    with pytest.raises(TransportError):
        async with transport.stream("GET", "/api?watch=1", headers={}):
            pass
    assert 'rest_client_requests_total{code="<error>",host="10.0.0.1:6443",method="GET"} 1.0' in text(registry)
