"""Encoder of OTLP protobuf, compared with opentelemetry-proto."""

from __future__ import annotations

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest

from kubeloop.tracing.export.otlp_encoding import TraceEncoder
from kubeloop.tracing.spans.trace import Link, Span, SpanEvent, Trace

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
        return [plain(element) for element in value.array_value.values]
    return getattr(value, kind)


def plain_attributes(attributes):
    return {attribute.key: plain(attribute.value) for attribute in attributes}


# Generating large traces is slow on a busy machine.
@settings(suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large])
@given(trace=st.builds(Trace, ids.map(lambda id_: id_ * 2), st.lists(spans, min_size=1, max_size=3).map(tuple)))
def test_encoding_is_parsed_by_opentelemetry_proto(trace):
    encoder = TraceEncoder({"service.name": "k"}, "scope", "1.2")
    first = encoder.request([encoder.encode(trace)])
    assert encoder.request([encoder.encode(trace)]) == first, "the cached encoding is the same"
    request = ExportTraceServiceRequest.FromString(first)
    (resource_spans,) = request.resource_spans
    (scope_spans,) = resource_spans.scope_spans
    assert plain_attributes(resource_spans.resource.attributes) == {"service.name": "k"}
    assert (scope_spans.scope.name, scope_spans.scope.version) == ("scope", "1.2")
    for expected, parsed in zip(trace.spans, scope_spans.spans, strict=True):
        assert parsed.trace_id.hex() == trace.trace_id
        assert (parsed.span_id.hex(), parsed.parent_span_id.hex()) == (expected.span_id, expected.parent_span_id)
        assert (parsed.name, parsed.start_time_unix_nano, parsed.end_time_unix_nano) == (
            expected.name,
            expected.start_ns,
            expected.end_ns,
        )
        assert parsed.kind == {"internal": 1, "client": 3, "consumer": 5}[expected.kind]
        assert plain_attributes(parsed.attributes) == expected.attributes
        assert [(e.name, e.time_unix_nano, plain_attributes(e.attributes)) for e in parsed.events] == [
            (e.name, e.time_ns, e.attributes) for e in expected.events
        ]
        assert [f"00-{link.trace_id.hex()}-{link.span_id.hex()}-01" for link in parsed.links] == [
            link.traceparent for link in expected.links
        ]
        assert [plain_attributes(link.attributes) for link in parsed.links] == [
            {"kubeloop.link": link.relation} if link.relation else {} for link in expected.links
        ]
        assert (parsed.status.code, parsed.status.message) == (
            (2, expected.error) if expected.error is not None else (0, "")
        )
