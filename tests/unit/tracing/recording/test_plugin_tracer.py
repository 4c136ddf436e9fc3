"""Spans of scheduler plugins in the traces of pods."""

from __future__ import annotations

import random
from typing import Any

import pytest
from opentelemetry.trace import SpanKind, Status, StatusCode, get_current_span

from kubeloop.tracing.recording.plugin_tracer import PluginTracer
from kubeloop.tracing.recording.pod_recorder import AttemptFacts
from kubeloop.tracing.spans.pod_record import MAX_PLUGIN_SPANS
from kubeloop.tracing.spans.trace import Span, Trace
from support.traces.pod_traces import bind, finished, request_pod


@pytest.fixture
def tracer(manual_clock: Any) -> PluginTracer:
    return PluginTracer(manual_clock, random.Random(5))


def span_named(trace: Trace, name: str) -> Span:
    (span,) = (span for span in trace.spans if span.name == name)
    return span


def parent_name(trace: Trace, name: str) -> str:
    (parent,) = (span for span in trace.spans if span.span_id == span_named(trace, name).parent_span_id)
    return parent.name


async def test_spans_are_children_of_the_step_in_which_they_start(
    tracing: Any, pod: Any, manual_clock: Any, exporter: Any, tracer: PluginTracer
) -> None:
    clock = manual_clock
    web, traceparent = request_pod(tracing, pod, clock)
    tracing.pods.attempt_started(web, 1)
    clock.pass_ms(1)
    start_ns = clock.ns
    with tracer.start_as_current_span("outer", attributes={"rack": "a"}) as outer:
        clock.pass_ms(1)
        with tracer.start_as_current_span("inner", kind=SpanKind.CLIENT):
            assert get_current_span().get_span_context().trace_id == int(traceparent[3:35], 16)
            clock.pass_ms(2)
        outer.add_event("answered", {"nodes": 3})
    with tracer.start_as_current_span("after"):
        clock.pass_ms(1)
    facts = AttemptFacts("scheduled", filter_start_ns=start_ns, filter_end_ns=clock.ns, node="n1")
    tracing.pods.attempt_finished(web, facts)
    bind(tracing, web, clock, "n1")
    tracing.pods.observed(pod(traceparent=traceparent, node="n1"))
    trace = await finished(tracing, exporter)
    assert [parent_name(trace, name) for name in ("outer", "inner", "after")] == ["filter", "outer", "filter"]
    inner, outer_span = span_named(trace, "inner"), span_named(trace, "outer")
    assert (inner.end_ns - inner.start_ns, outer_span.end_ns - outer_span.start_ns) == (2_000_000, 3_000_000)
    assert (inner.kind, outer_span.kind) == ("client", "internal")
    assert outer_span.attributes == {"rack": "a"}
    assert [(event.name, event.attributes) for event in outer_span.events] == [("answered", {"nodes": 3})]


def followed(tracing: Any, pod: Any, clock: Any) -> Any:
    """Return the record of a pod whose attempt has started."""
    web, _ = request_pod(tracing, pod, clock)
    tracing.pods.attempt_started(web, 1)
    return tracing.open_pods.get(web.metadata.uid)


def test_exception_sets_error_and_adds_event(tracing: Any, pod: Any, manual_clock: Any, tracer: PluginTracer) -> None:
    record = followed(tracing, pod, manual_clock)
    for start in (tracer.start_as_current_span, tracer.start_span):
        with pytest.raises(ValueError, match="broken"), start("broken"):
            raise ValueError("broken")
    for span in record.plugin_spans:
        assert span.error == "ValueError: broken"
        (event,) = span.events
        assert event.attributes["exception.type"] == "ValueError"


@pytest.mark.parametrize(
    ("value", "recorded"),
    [
        pytest.param(True, True, id="bool"),
        pytest.param((1, 2), [1, 2], id="numbers"),
        pytest.param(("a", 1.5), ["a", "1.5"], id="mixed list"),
        pytest.param(b"a", "b'a'", id="bytes"),
        pytest.param(None, "None", id="None"),
    ],
)
def test_attributes_have_types_that_traces_can_hold(
    tracing: Any, pod: Any, manual_clock: Any, tracer: PluginTracer, value: Any, recorded: Any
) -> None:
    record = followed(tracing, pod, manual_clock)
    tracer.start_span("s", attributes={"key": value}).end()
    assert record.plugin_spans[0].attributes == {"key": recorded}


def test_ended_span_does_not_change(tracing: Any, pod: Any, manual_clock: Any, tracer: PluginTracer) -> None:
    record = followed(tracing, pod, manual_clock)
    span = tracer.start_span("first")
    span.update_name("second")
    span.set_status(Status(StatusCode.ERROR, "no answer"))
    span.end(end_time=manual_clock.ns + 5)
    assert not span.is_recording()
    span.end()
    (recorded,) = record.plugin_spans
    assert (recorded.name, recorded.error, recorded.end_ns - recorded.start_ns) == ("second", "no answer", 5)


def test_spans_without_traced_pod_do_not_record(
    tracing: Any, pod: Any, manual_clock: Any, tracer: PluginTracer
) -> None:
    web, _ = request_pod(tracing, pod, manual_clock)
    tracing.pods.attempt_started(web, 1)
    tracing.pods.attempt_finished(web, AttemptFacts("error"))
    with tracer.start_as_current_span("idle") as span:
        assert not span.is_recording()


def test_number_of_spans_is_limited(tracing: Any, pod: Any, manual_clock: Any, tracer: PluginTracer) -> None:
    record = followed(tracing, pod, manual_clock)
    for number in range(MAX_PLUGIN_SPANS + 1):
        tracer.start_span(f"span {number}").end()
    assert len(record.plugin_spans) == MAX_PLUGIN_SPANS
