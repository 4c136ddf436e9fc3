"""Parsing and formatting of traceparent and of the pod trace annotation."""

from __future__ import annotations

import random

import pytest

from kubeloop.tracing.sampling.samplers import Sampler
from kubeloop.tracing.spans.traceparent import (
    PodTraceAnnotation,
    TraceContext,
    own_root_span,
    parse_pod_trace_annotation,
    parse_traceparent,
)

TRACE, SPAN = "0af7651916cd43dd8448eb211c80319c", "b7ad6b7169203331"


@pytest.mark.parametrize(("flags", "sampled"), [("01", True), ("00", False), ("03", True), ("ff", True), ("02", False)])
def test_traceparent_round_trip(flags, sampled):
    context = parse_traceparent(f"00-{TRACE}-{SPAN}-{flags}")
    assert (context.trace_id, context.span_id, context.sampled) == (TRACE, SPAN, sampled)
    assert context.traceparent == f"00-{TRACE}-{SPAN}-{'01' if sampled else '00'}"


@pytest.mark.parametrize(
    "text",
    [
        "",
        "00",
        f"ff-{TRACE}-{SPAN}-01",
        f"00-{'0' * 32}-{SPAN}-01",
        f"00-{TRACE}-{'0' * 16}-01",
        f"00-{TRACE.upper()}-{SPAN}-01",
        f"00-{TRACE}-{SPAN}-01-more",
        f"00-{TRACE}-{SPAN}-1",
        f"00-{TRACE}-{SPAN}-01\n",
    ],
)
def test_invalid_traceparent_is_none(text):
    assert parse_traceparent(text) is None


def test_later_version_is_parsed_as_version_00():
    assert parse_traceparent(f"01-{TRACE}-{SPAN}-01-more").trace_id == TRACE


@pytest.mark.parametrize(
    "annotation",
    [
        PodTraceAnnotation(1_700_000_000_123_456_789),
        PodTraceAnnotation(5, "b7ad6b7169203331", f"00-{TRACE}-{SPAN}-01", True),
        PodTraceAnnotation(5, link=f"00-{TRACE}-{SPAN}-01"),
    ],
)
def test_pod_trace_annotation_round_trip(annotation):
    assert parse_pod_trace_annotation(str(annotation)) == annotation


@pytest.mark.parametrize("text", ["", "soon", "-5", "1" * 20, "5.0", ";by=creator"])
def test_invalid_pod_trace_annotation_is_none(text):
    assert parse_pod_trace_annotation(text) is None


def test_former_name_of_the_annotation_is_read():
    old, new = PodTraceAnnotation(1), PodTraceAnnotation(2)
    context = parse_traceparent(f"00-{TRACE}-{SPAN}-01")
    assert own_root_span({"kubeloop.io/pod-trace": str(old)}, context, None) == old
    annotations = {"kubeloop.dev/pod-trace": str(new), "kubeloop.io/pod-trace": str(old)}
    assert own_root_span(annotations, context, None) == new


@pytest.mark.parametrize("seconds", [-599, -1, 0, 0.4, 1, 30, 599])
@pytest.mark.parametrize("annotations", [{}, {"kubeloop.dev/pod-trace": "soon"}])
def test_trace_id_with_the_time_of_the_create_is_own_span(annotations, seconds):
    start_ns = 1_767_268_800_400_000_000
    context = Sampler().root_context(random.Random(1), start_ns)
    creation_ns = start_ns + round(seconds * 1e9)
    assert own_root_span(annotations, context, creation_ns) == PodTraceAnnotation(start_ns)


@pytest.mark.parametrize("creation_ns", [None, 1_767_268_800_400_000_000])
@pytest.mark.parametrize("start_ns", [0, 1_767_268_199 * 10**9, 1_767_269_402 * 10**9, (1 << 64) - 1])
def test_trace_id_with_another_time_is_of_another_service(start_ns, creation_ns):
    context = TraceContext(f"{start_ns:016x}{TRACE[:16]}", SPAN, True)
    assert own_root_span({}, context, creation_ns) is None
