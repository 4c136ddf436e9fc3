"""Exporter through span exporters of the OpenTelemetry SDK."""

from __future__ import annotations

import io
import json
import re

import pytest
from opentelemetry.sdk.trace.export import ConsoleSpanExporter, SpanExporter, SpanExportResult

from kubeloop.kube.user_error import UserError
from kubeloop.tracing.export.batch_thread import BatchSettings
from kubeloop.tracing.export.sdk_exporter import SdkExporter, new_span_exporter
from kubeloop.tracing.spans.trace import Link, Span, SpanEvent, Trace
from support.processes.cli_processes import TIMEOUT_SECONDS
from support.traces.installed_exporter import install_exporter
from support.traces.trace_metrics import CountingMetrics

SETTINGS = BatchSettings(queue_spans=100, batch_spans=10)
LINK = Link(f"00-{'1' * 32}-{'2' * 16}-01", "cause")
ROOT = Span("pod", "a" * 16, 1, 2, attributes={"k": "v"}, links=(LINK,), events=(SpanEvent("e", 1),), error="failed")
CHILD = Span("create", "c" * 16, 1, 2, parent_span_id=ROOT.span_id, kind="client")


def test_sdk_exporter_receives_complete_spans():
    output, metrics = io.StringIO(), CountingMetrics()
    exporter = SdkExporter("console", ConsoleSpanExporter(out=output), SETTINGS, metrics)
    exporter.export(Trace("b" * 32, (ROOT, CHILD)), "key")
    exporter.shut_down(TIMEOUT_SECONDS)
    decoder, printed, rest = json.JSONDecoder(), [], output.getvalue()
    while rest:
        span, end = decoder.raw_decode(rest)
        printed.append(span)
        rest = rest[end:].lstrip()
    root, child = printed
    assert (root["name"], root["attributes"]) == ("pod", {"k": "v"})
    assert root["status"] == {"status_code": "ERROR", "description": "failed"}
    assert root["resource"]["attributes"]["service.name"] == "kubeloop"
    assert root["links"][0]["attributes"] == {"kubeloop.link": "cause"}
    assert root["events"][0]["name"] == "e"
    assert (child["parent_id"], child["kind"]) == (f"0x{'a' * 16}", "SpanKind.CLIENT")
    assert exporter.delivered() == ["key"]
    assert metrics.exported == 2


class FailingExporter(SpanExporter):
    def __init__(self, result):
        self._result = result

    def export(self, spans):
        if isinstance(self._result, Exception):
            raise self._result
        return self._result


@pytest.mark.parametrize("result", [SpanExportResult.FAILURE, RuntimeError("no route")], ids=["result", "exception"])
def test_failed_export_is_counted_and_logged(result, caplog):
    metrics = CountingMetrics()
    exporter = SdkExporter("failing", FailingExporter(result), SETTINGS, metrics)
    exporter.export(Trace("b" * 32, (ROOT, CHILD)), "key")
    exporter.shut_down(TIMEOUT_SECONDS)
    assert metrics.dropped == {"export failed": 2}
    assert exporter.delivered() == ["key"]
    assert "cannot export traces to failing" in caplog.text


def test_exporter_is_found_by_its_entry_point():
    assert type(new_span_exporter("Console")) is ConsoleSpanExporter


def test_unknown_name_is_error_that_lists_installed_exporters(tmp_path, monkeypatch):
    install_exporter(tmp_path)
    monkeypatch.syspath_prepend(tmp_path)
    with pytest.raises(UserError, match="'zipkin' is installed") as error:
        new_span_exporter("zipkin")
    assert re.search(r"broken, console, file, (otlp_proto_grpc, )?otlp_proto_http, wrong", error.value.hint)


@pytest.mark.parametrize(
    ("name", "problem"),
    [
        ("wrong", "is no span exporter"),
        ("broken", "ModuleNotFoundError: No module named 'kubeloop_no_such_module'"),
        ("file", "KeyError: 'SPAN_FILE'"),
    ],
)
def test_unusable_exporter_is_user_error(tmp_path, monkeypatch, name, problem):
    install_exporter(tmp_path)
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.delenv("SPAN_FILE", raising=False)
    with pytest.raises(UserError, match=problem):
        new_span_exporter(name)
