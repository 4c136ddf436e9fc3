"""OTLP exporter: delivery, retries, drops and settings."""

from __future__ import annotations

import logging
import socket

import pytest

from kubeloop.kube.user_error import UserError
from kubeloop.tracing.export import otlp_exporter
from kubeloop.tracing.export.batch_thread import BatchSettings, BatchThread
from kubeloop.tracing.export.otlp_exporter import ExportSettings, OtlpExporter, export_settings
from kubeloop.tracing.metrics_interface import TraceMetrics
from kubeloop.tracing.spans.trace import Span, Trace
from support.processes.cli_processes import TIMEOUT_SECONDS, wait_until
from support.traces.otlp import Collector
from support.traces.trace_metrics import CountingMetrics


def trace(number, count=2):
    root = Span(name="pod", span_id=f"{1:016x}", start_ns=1, end_ns=2)
    children = (
        Span(name="create", span_id=f"{n + 2:016x}", parent_span_id=root.span_id, start_ns=1, end_ns=2)
        for n in range(count - 1)
    )
    return Trace(f"{number + 1:032x}", (root, *children))


@pytest.fixture
def collector():
    with Collector().running() as collector:
        yield collector


def test_traces_arrive_whole_and_are_reported_delivered(collector):
    metrics = CountingMetrics()
    settings = ExportSettings(
        f"{collector.url}/v1/traces", headers={"x-key": "s"}, is_gzip=True, batches=BatchSettings(100, 5)
    )
    exporter = OtlpExporter(settings, metrics)
    for number in range(5):
        exporter.export(trace(number), f"key {number}")
    exporter.shut_down(TIMEOUT_SECONDS)
    assert sorted(exporter.delivered()) == [f"key {number}" for number in range(5)]
    assert exporter.delivered() == []
    assert len(collector.spans()) == metrics.exported == 10
    assert {len({span.trace_id for span in Collector.spans(_One(request))}) for request in collector.requests} <= {1, 2}
    assert collector.headers[0]["x-key"] == "s"
    assert {headers["content-encoding"] for headers in collector.headers} == {"gzip"}


class _One:
    def __init__(self, request):
        self.requests = [request]


def test_unreachable_collector_drops_spans_and_logs_once(caplog):
    with socket.socket() as not_listening:
        not_listening.bind(("127.0.0.1", 0))  # reserves the port
        settings = ExportSettings(
            f"http://127.0.0.1:{not_listening.getsockname()[1]}/v1/traces",
            batches=BatchSettings(queue_spans=10, batch_spans=2, batch_seconds=0.01),
        )
        metrics = CountingMetrics()
        exporter = OtlpExporter(settings, metrics)
        for number in range(50):
            exporter.export(trace(number), str(number))
        exporter.shut_down(TIMEOUT_SECONDS)
    assert metrics.exported == 0
    assert sum(metrics.dropped.values()) == 100
    assert set(metrics.dropped) | {"queue full"} == {"queue full", "unreachable"}
    assert sorted(map(int, exporter.delivered())) == [*range(50)], "the journal deletes dropped traces too"
    assert len([record for record in caplog.records if record.levelno == logging.WARNING]) == 1


def test_rejected_batch_is_not_retried(collector):
    collector.status = 400
    metrics = CountingMetrics()
    exporter = OtlpExporter(ExportSettings(f"{collector.url}/v1/traces"), metrics)
    exporter.export(trace(0))
    exporter.shut_down(TIMEOUT_SECONDS)
    assert metrics.dropped == {"refused": 2}
    assert len(collector.headers) == 1


def test_batch_is_sent_again_after_retryable_status_codes(collector, monkeypatch):
    monkeypatch.setattr(otlp_exporter, "_FIRST_RETRY_SECONDS", 0.001)
    collector.first_statuses = [429, 502, 503, 504]
    metrics = CountingMetrics()
    exporter = OtlpExporter(ExportSettings(f"{collector.url}/v1/traces", batches=BatchSettings(10, 5)), metrics)
    exporter.export(trace(0))
    wait_until(lambda: metrics.exported == 2, "the spans are exported")
    exporter.shut_down(TIMEOUT_SECONDS)
    assert len(collector.headers) == 5
    assert metrics.dropped == {}


@pytest.mark.parametrize(
    ("retry_after", "seconds"),
    [
        pytest.param("7", [(7, True), (7, True), (7, True), (8, True)], id="longer than the first delays"),
        pytest.param("soon", [(1, False), (2, False), (4, False), (8, False)], id="not a number"),
    ],
)
def test_retry_waits_for_retry_after_and_its_own_delay(collector, monkeypatch, retry_after, seconds):
    waits = []

    def wait_for_retry(_thread, seconds, _give_up_at, *, requested):
        waits.append((seconds, requested))
        return True

    monkeypatch.setattr(BatchThread, "wait_for_retry", wait_for_retry)
    collector.first_statuses, collector.retry_after = [429, 502, 503, 504], retry_after
    metrics = CountingMetrics()
    exporter = OtlpExporter(ExportSettings(f"{collector.url}/v1/traces"), metrics)
    exporter.export(trace(0))
    exporter.shut_down(TIMEOUT_SECONDS)
    assert waits == seconds
    assert metrics.exported == 2


def test_queue_is_bounded_with_slow_collector(collector):
    collector.delay_seconds = 0.3
    metrics = CountingMetrics()
    settings = ExportSettings(f"{collector.url}/v1/traces", batches=BatchSettings(queue_spans=20, batch_spans=2))
    exporter = OtlpExporter(settings, metrics)
    for number in range(200):
        exporter.export(trace(number))
    assert exporter._thread._spans <= 20
    exporter.shut_down(0.1)
    exporter._thread._thread.join(TIMEOUT_SECONDS)
    assert metrics.exported + sum(metrics.dropped.values()) == 400


@pytest.mark.parametrize(
    ("environ", "settings"),
    [
        ({"OTEL_EXPORTER_OTLP_ENDPOINT": "http://c:4318/"}, ExportSettings("http://c:4318/v1/traces")),
        ({"OTEL_EXPORTER_OTLP_ENDPOINT": "http://c/p"}, ExportSettings("http://c/p/v1/traces")),
        ({"OTEL_EXPORTER_OTLP_TRACES_ENDPOINT": "https://c/x"}, ExportSettings("https://c/x")),
        (
            {
                "OTEL_EXPORTER_OTLP_ENDPOINT": "http://c",
                "OTEL_EXPORTER_OTLP_HEADERS": "a=1, b=two%20words",
                "OTEL_EXPORTER_OTLP_TRACES_TIMEOUT": "3",
                "OTEL_EXPORTER_OTLP_COMPRESSION": "gzip",
                "OTEL_BSP_MAX_QUEUE_SIZE": "500",
                "OTEL_BSP_SCHEDULE_DELAY": "250",
                "OTEL_BSP_EXPORT_TIMEOUT": "9000",
            },
            ExportSettings(
                "http://c/v1/traces",
                headers={"a": "1", "b": "two words"},
                attempt_seconds=3.0,
                is_gzip=True,
                batches=BatchSettings(queue_spans=500, batch_spans=500, delay_seconds=0.25, batch_seconds=9.0),
            ),
        ),
        (
            {"OTEL_EXPORTER_OTLP_ENDPOINT": "http://c", "OTEL_BSP_MAX_QUEUE_SIZE": "many"},
            ExportSettings("http://c/v1/traces"),
        ),
    ],
)
def test_settings_are_read_from_environment(environ, settings):
    assert export_settings(environ) == settings


def test_invalid_endpoint_is_user_error():
    with pytest.raises(UserError, match="no URL"):
        export_settings({"OTEL_EXPORTER_OTLP_ENDPOINT": "localhost:4318"})


def test_missing_certificate_is_user_error():
    with pytest.raises(UserError, match="certificates"):
        OtlpExporter(ExportSettings("https://c/v1/traces", certificate="/no/such/file"), TraceMetrics())


def test_invalid_numbers_are_replaced_by_defaults(caplog):
    environ = {
        "OTEL_EXPORTER_OTLP_ENDPOINT": "http://collector",
        "OTEL_EXPORTER_OTLP_TIMEOUT": "-3",
        "OTEL_BSP_MAX_QUEUE_SIZE": "nan",
        "OTEL_BSP_SCHEDULE_DELAY": "inf",
        "OTEL_BSP_EXPORT_TIMEOUT": "soon",
    }
    assert export_settings(environ) == ExportSettings(url="http://collector/v1/traces")
    assert len(caplog.records) == 4
