"""OTLP as it is written here, against opentelemetry-proto; and an exporter that never makes anybody wait."""

from __future__ import annotations

import gzip
import logging
import socket

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest

from kubeloop.kube.errors import UserError
from kubeloop.tracing.export.otlp_encoding import TraceEncoder
from kubeloop.tracing.export.otlp_exporter import ExportSettings, OtlpExporter, export_settings
from kubeloop.tracing.metrics_interface import TraceMetrics
from kubeloop.tracing.spans.trace import Link, Span, SpanEvent, Trace
from support.cli_processes import TIMEOUT_SECONDS
from support.otlp import Collector

ids = st.integers(1, 2**64 - 1).map("{:016x}".format)
times = st.integers(0, 2**63)
values = st.one_of(
    st.text(max_size=200),
    st.integers(-(2**63), 2**63 - 1),
    st.booleans(),
    st.floats(allow_nan=False),
    st.lists(st.text(max_size=5), max_size=4),
    st.lists(st.integers(0, 2**40), max_size=4),
)
attributes = st.dictionaries(st.text(max_size=20), values, max_size=6)
links = st.builds(
    Link,
    st.tuples(ids, ids).map(lambda pair: f"00-{pair[0]}{pair[0]}-{pair[1]}-01"),
    st.sampled_from(["", "pod", "reconcile"]),
)
spans = st.builds(
    Span,
    name=st.text(max_size=200),
    span_id=ids,
    parent_span_id=st.one_of(st.just(""), ids),
    start_ns=times,
    end_ns=times,
    attributes=attributes,
    links=st.lists(links, max_size=2).map(tuple),
    events=st.lists(st.builds(SpanEvent, st.text(max_size=9), times, attributes), max_size=2).map(tuple),
    error=st.one_of(st.none(), st.text(max_size=300)),
    kind=st.sampled_from(["internal", "client", "consumer"]),
)


def plain(value):
    kind = value.WhichOneof("value")
    if kind == "array_value":
        return [plain(each) for each in value.array_value.values]
    return getattr(value, kind)


def plain_attributes(attributes):
    return {each.key: plain(each.value) for each in attributes}


# Traces are large: on a busy machine they take long to make.
@settings(suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large])
@given(trace=st.builds(Trace, ids.map(lambda id_: id_ * 2), st.lists(spans, min_size=1, max_size=3).map(tuple)))
def test_what_is_encoded_is_what_opentelemetrys_own_library_reads(trace):
    encoder = TraceEncoder({"service.name": "k"}, "scope", "1.2")
    first = encoder.request([encoder.encode(trace)])
    assert encoder.request([encoder.encode(trace)]) == first, "with what was kept, too"
    request = ExportTraceServiceRequest.FromString(first)
    (resource_spans,) = request.resource_spans
    (scope_spans,) = resource_spans.scope_spans
    assert plain_attributes(resource_spans.resource.attributes) == {"service.name": "k"}
    assert (scope_spans.scope.name, scope_spans.scope.version) == ("scope", "1.2")
    for ours, theirs in zip(trace.spans, scope_spans.spans, strict=True):
        assert theirs.trace_id.hex() == trace.trace_id
        assert (theirs.span_id.hex(), theirs.parent_span_id.hex()) == (ours.span_id, ours.parent_span_id)
        assert (theirs.name, theirs.start_time_unix_nano, theirs.end_time_unix_nano) == (
            ours.name,
            ours.start_ns,
            ours.end_ns,
        )
        assert theirs.kind == {"internal": 1, "client": 3, "consumer": 5}[ours.kind]
        assert plain_attributes(theirs.attributes) == ours.attributes
        assert [(e.name, e.time_unix_nano, plain_attributes(e.attributes)) for e in theirs.events] == [
            (e.name, e.time_ns, e.attributes) for e in ours.events
        ]
        assert [f"00-{link.trace_id.hex()}-{link.span_id.hex()}-01" for link in theirs.links] == [
            link.traceparent for link in ours.links
        ]
        assert [plain_attributes(link.attributes) for link in theirs.links] == [
            {"kubeloop.link": link.relation} if link.relation else {} for link in ours.links
        ]
        assert (theirs.status.code, theirs.status.message) == ((2, ours.error) if ours.error is not None else (0, ""))


class Counted(TraceMetrics):
    def __init__(self):
        self.exported = 0
        self.dropped = {}

    def spans_exported(self, spans):
        self.exported += spans

    def spans_dropped(self, reason, spans):
        self.dropped[reason] = self.dropped.get(reason, 0) + spans


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


def test_whole_traces_arrive_and_are_reported_delivered(collector):
    metrics = Counted()
    settings = ExportSettings(f"{collector.url}/v1/traces", headers={"x-key": "s"}, is_gzip=True, batch_spans=5)
    sink = OtlpExporter(settings, metrics)
    for number in range(5):
        sink.export(trace(number), f"key {number}")
    sink.shut_down(TIMEOUT_SECONDS)
    assert sorted(sink.delivered()) == [f"key {number}" for number in range(5)]
    assert sink.delivered() == []
    assert len(collector.spans()) == metrics.exported == 10
    assert {len({span.trace_id for span in Collector.spans(_One(request))}) for request in collector.requests} <= {1, 2}
    assert collector.headers[0]["x-key"] == "s"
    assert collector.headers[0]["content-encoding"] == "gzip"
    assert gzip  # the collector unpacked it


class _One:
    def __init__(self, request):
        self.requests = [request]


def test_a_dead_collector_costs_counted_spans_and_one_line_in_the_log(caplog):
    with socket.socket() as nobody:
        nobody.bind(("127.0.0.1", 0))  # ours, and not listening
        settings = ExportSettings(
            f"http://127.0.0.1:{nobody.getsockname()[1]}/v1/traces", batch_spans=2, queue_spans=10, batch_seconds=0.01
        )
        metrics = Counted()
        sink = OtlpExporter(settings, metrics)
        for number in range(50):
            sink.export(trace(number), str(number))
        sink.shut_down(TIMEOUT_SECONDS)
    assert metrics.exported == 0
    assert sum(metrics.dropped.values()) == 100
    assert set(metrics.dropped) | {"queue full"} == {"queue full", "unreachable"}
    assert sorted(map(int, sink.delivered())) == [*range(50)], "the journal must not keep what is lost"
    assert len([record for record in caplog.records if record.levelno == logging.WARNING]) == 1


def test_what_the_collector_refuses_is_not_sent_again(collector):
    collector.status = 400
    metrics = Counted()
    sink = OtlpExporter(ExportSettings(f"{collector.url}/v1/traces"), metrics)
    sink.export(trace(0))
    sink.shut_down(TIMEOUT_SECONDS)
    assert metrics.dropped == {"refused": 2}
    assert len(collector.headers) == 1


def test_the_queue_is_bounded_while_the_collector_is_slow(collector):
    collector.delay_seconds = 0.3
    metrics = Counted()
    sink = OtlpExporter(ExportSettings(f"{collector.url}/v1/traces", batch_spans=2, queue_spans=20), metrics)
    for number in range(200):
        sink.export(trace(number))
    assert sink._spans <= 20
    sink.shut_down(0.1)
    sink._thread.join(TIMEOUT_SECONDS)
    assert metrics.exported + sum(metrics.dropped.values()) == 400


def test_a_service_that_is_named_in_the_environment_keeps_its_name(monkeypatch, collector):
    monkeypatch.setenv("OTEL_SERVICE_NAME", "mine")
    sink = OtlpExporter(ExportSettings(f"{collector.url}/v1/traces"))
    sink.export(trace(0))
    sink.shut_down(TIMEOUT_SECONDS)
    assert collector.resources()[0]["service.name"] == "mine"


def test_plugins_get_a_tracer_of_the_sdk_that_exports_to_the_same_place(monkeypatch, collector):
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", collector.url)
    sink = OtlpExporter(export_settings({"OTEL_EXPORTER_OTLP_ENDPOINT": collector.url}))
    with sink.provider.get_tracer("mine").start_as_current_span("thinking"):
        pass
    sink.shut_down(TIMEOUT_SECONDS)
    assert [span.name for span in collector.spans()] == ["thinking"]


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
                queue_spans=500,
                batch_spans=500,
                delay_seconds=0.25,
                batch_seconds=9.0,
            ),
        ),
        (
            {"OTEL_EXPORTER_OTLP_ENDPOINT": "http://c", "OTEL_BSP_MAX_QUEUE_SIZE": "many"},
            ExportSettings("http://c/v1/traces"),
        ),
    ],
)
def test_the_standard_variables_say_where_and_how(environ, settings):
    assert export_settings(environ) == settings


def test_an_endpoint_that_is_no_url_is_the_users_mistake():
    with pytest.raises(UserError, match="no URL"):
        export_settings({"OTEL_EXPORTER_OTLP_ENDPOINT": "localhost:4318"})


def test_a_certificate_that_is_not_there_is_the_users_mistake():
    with pytest.raises(UserError, match="certificates"):
        OtlpExporter(ExportSettings("https://c/v1/traces", certificate="/no/such/file"))


def test_numbers_that_make_no_sense_count_as_the_defaults(caplog):
    environ = {
        "OTEL_EXPORTER_OTLP_ENDPOINT": "http://collector",
        "OTEL_EXPORTER_OTLP_TIMEOUT": "-3",
        "OTEL_BSP_MAX_QUEUE_SIZE": "nan",
        "OTEL_BSP_SCHEDULE_DELAY": "inf",
        "OTEL_BSP_EXPORT_TIMEOUT": "soon",
    }
    assert export_settings(environ) == ExportSettings(url="http://collector/v1/traces")
    assert len(caplog.records) == 4
