"""Exporters selected by OTEL_TRACES_EXPORTER."""

from __future__ import annotations

import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor

import pytest

from kubeloop.kube.user_error import UserError
from kubeloop.tracing.export.exporters import Exporters, configured_exporters
from kubeloop.tracing.metrics_interface import TraceMetrics
from kubeloop.tracing.spans.trace import Span, Trace
from support.processes.cli_processes import TIMEOUT_SECONDS
from support.traces.installed_exporter import install_exporter
from support.traces.otlp import Collector

ENDPOINT = {"OTEL_EXPORTER_OTLP_ENDPOINT": "http://localhost:4318"}
TRACE = Trace("b" * 32, (Span("pod", "a" * 16, 1, 2),))


@pytest.mark.parametrize(
    ("environ", "kinds"),
    [
        ({}, []),
        (ENDPOINT, ["OtlpExporter"]),
        ({"OTEL_EXPORTER_OTLP_TRACES_ENDPOINT": "http://localhost:4318/v1/traces"}, ["OtlpExporter"]),
        ({**ENDPOINT, "OTEL_TRACES_EXPORTER": "none"}, []),
        ({**ENDPOINT, "OTEL_TRACES_EXPORTER": "OTLP"}, ["OtlpExporter"]),
        ({"OTEL_TRACES_EXPORTER": "otlp"}, []),
        ({**ENDPOINT, "OTEL_TRACES_EXPORTER": "console"}, ["SdkExporter"]),
        ({**ENDPOINT, "OTEL_TRACES_EXPORTER": "otlp, console,"}, ["OtlpExporter", "SdkExporter"]),
    ],
)
def test_environment_selects_exporters(environ, kinds):
    exporters = configured_exporters(environ, TraceMetrics())
    assert [type(exporter).__name__ for exporter in (exporters._exporters if exporters else ())] == kinds


@pytest.mark.parametrize("names", ["zipkin", "otlp,zipkin", "none,otlp"])
def test_unusable_names_are_user_errors(names):
    with pytest.raises(UserError, match="OTEL_TRACES_EXPORTER"):
        configured_exporters({**ENDPOINT, "OTEL_TRACES_EXPORTER": names}, TraceMetrics())


def test_grpc_without_its_package_is_an_error_that_names_it(monkeypatch):
    monkeypatch.setattr("kubeloop.tracing.export.sdk_exporter.entry_points", lambda group: ())
    with pytest.raises(UserError, match="grpc needs the exporter of another package") as raised:
        configured_exporters({**ENDPOINT, "OTEL_EXPORTER_OTLP_PROTOCOL": "grpc"}, TraceMetrics())
    assert "pip install opentelemetry-exporter-otlp-proto-grpc" in raised.value.hint


def test_otlp_over_grpc_delivers_spans(monkeypatch):
    grpc = pytest.importorskip("grpc", reason="opentelemetry-exporter-otlp-proto-grpc is not installed")
    service = pytest.importorskip("opentelemetry.proto.collector.trace.v1.trace_service_pb2")
    requests = []

    def export(request, context):
        requests.append(request)
        return service.ExportTraceServiceResponse()

    handler = grpc.unary_unary_rpc_method_handler(
        export, service.ExportTraceServiceRequest.FromString, service.ExportTraceServiceResponse.SerializeToString
    )
    name = "opentelemetry.proto.collector.trace.v1.TraceService"
    server = grpc.server(ThreadPoolExecutor(1))
    server.add_generic_rpc_handlers((grpc.method_handlers_generic_handler(name, {"Export": handler}),))
    port = server.add_insecure_port("127.0.0.1:0")
    server.start()
    try:
        environ = {"OTEL_EXPORTER_OTLP_ENDPOINT": f"http://127.0.0.1:{port}", "OTEL_EXPORTER_OTLP_PROTOCOL": "grpc"}
        for variable, value in environ.items():
            monkeypatch.setenv(variable, value)
        exporters = configured_exporters(environ, TraceMetrics())
        exporters.export(TRACE, "key")
        exporters.shut_down(TIMEOUT_SECONDS)
    finally:
        server.stop(None)
    assert exporters.delivered() == ["key"]
    (request,) = requests
    assert request.resource_spans[0].scope_spans[0].spans[0].name == "pod"


def test_installed_exporter_and_otlp_get_every_trace(tmp_path, monkeypatch):
    install_exporter(tmp_path)
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setenv("SPAN_FILE", str(tmp_path / "spans"))
    with Collector().running() as collector:
        environ = {"OTEL_EXPORTER_OTLP_ENDPOINT": collector.url, "OTEL_TRACES_EXPORTER": "otlp,file"}
        exporters = configured_exporters(environ, TraceMetrics())
        exporters.export(TRACE, "key")
        exporters.shut_down(TIMEOUT_SECONDS)
        assert [span.name for span in collector.spans()] == ["pod"]
    assert (tmp_path / "spans").read_text() == "pod kubeloop\nshut down\n"
    assert exporters.delivered() == ["key"]
    assert exporters.delivered() == []


class SlowExporter:
    def __init__(self, keys=()):
        self.keys = list(keys)

    def export(self, trace, key=""):
        """Discard the trace."""

    def delivered(self):
        keys, self.keys = self.keys, []
        return keys

    def shut_down(self, within_seconds):
        time.sleep(60)


def test_trace_is_delivered_when_all_exporters_delivered_it():
    first, second = SlowExporter(), SlowExporter()
    exporters = Exporters([first, second])
    for key in ("a", "b"):
        exporters.export(TRACE, key)
    first.keys = ["a", "b"]
    assert exporters.delivered() == []
    second.keys = ["b"]
    assert exporters.delivered() == ["b"]
    second.keys = ["a"]
    assert exporters.delivered() == ["a"]


def test_shutdown_does_not_wait_for_blocked_exporter():
    Exporters([SlowExporter(), SlowExporter()]).shut_down(-0.9)


def test_sdk_is_not_imported_without_export():
    code = (
        "import random, sys; from kubeloop.kube.clock import SystemClock; "
        "from kubeloop.tracing.provider import Tracing; "
        "Tracing(clock=SystemClock(), rng=random.Random(1), environ={}); "
        "print([name for name in sys.modules if name.startswith('opentelemetry')])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"
