"""W3C traceparent, and which traces are recorded."""

from __future__ import annotations

import random

import pytest

from kubeloop.kube.errors import UserError
from kubeloop.tracing.sampling.samplers import Sampler, TailRules, parse_tail_rules, sampler_from_environment
from kubeloop.tracing.spans.traceparent import (
    PodTraceAnnotation,
    new_trace_id,
    parse_pod_trace_annotation,
    parse_traceparent,
    request_headers,
)

TRACE, SPAN = "0af7651916cd43dd8448eb211c80319c", "b7ad6b7169203331"


@pytest.mark.parametrize(("flags", "sampled"), [("01", True), ("00", False), ("03", True), ("ff", True), ("02", False)])
def test_a_traceparent_is_read_and_written(flags, sampled):
    context = parse_traceparent(f"00-{TRACE}-{SPAN}-{flags}")
    assert (context.trace_id, context.span_id, context.sampled) == (TRACE, SPAN, sampled)
    assert context.traceparent == f"00-{TRACE}-{SPAN}-{'01' if sampled else '00'}"


@pytest.mark.parametrize(
    "wrong",
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
def test_what_is_no_traceparent_is_none(wrong):
    assert parse_traceparent(wrong) is None


def test_a_version_of_the_future_is_read_as_far_as_it_is_known():
    assert parse_traceparent(f"01-{TRACE}-{SPAN}-01-more").trace_id == TRACE


def test_requests_carry_the_context_only_if_there_is_one():
    assert request_headers("x") == {"traceparent": "x"}
    assert request_headers("") == {}


@pytest.mark.parametrize(
    ("environ", "sampling"),
    [
        ({}, Sampler()),
        ({"OTEL_TRACES_SAMPLER": "always_on"}, Sampler(parent_based=False)),
        ({"OTEL_TRACES_SAMPLER": "always_off"}, Sampler(ratio=0.0, parent_based=False)),
        ({"OTEL_TRACES_SAMPLER": "parentbased_always_off"}, Sampler(ratio=0.0)),
        ({"OTEL_TRACES_SAMPLER": "traceidratio", "OTEL_TRACES_SAMPLER_ARG": "0.25"}, Sampler(0.25, False)),
        ({"OTEL_TRACES_SAMPLER": "parentbased_traceidratio", "OTEL_TRACES_SAMPLER_ARG": "0.5"}, Sampler(0.5)),
        ({"OTEL_TRACES_SAMPLER": "traceidratio"}, Sampler(1.0, False)),
        ({"OTEL_TRACES_SAMPLER": "traceidratio", "OTEL_TRACES_SAMPLER_ARG": "many"}, Sampler(1.0, False)),
        ({"OTEL_TRACES_SAMPLER": "of my own"}, Sampler()),
        ({"OTEL_SDK_DISABLED": "true"}, Sampler(enabled=False)),
        ({"OTEL_SDK_DISABLED": "no"}, Sampler()),
    ],
)
def test_the_sampler_is_the_one_the_environment_names(environ, sampling):
    assert sampler_from_environment(environ) == sampling


def test_a_ratio_decides_by_trace_id_and_as_the_opentelemetry_sdk_does():
    from opentelemetry.sdk.trace.sampling import Decision, TraceIdRatioBased

    rng = random.Random(3)
    theirs, ours = TraceIdRatioBased(0.3), Sampler(0.3)
    ids = [new_trace_id(rng) for _ in range(2000)]
    decisions = [ours.samples_root(each) for each in ids]
    assert decisions == [
        theirs.should_sample(None, int(e, 16), "x").decision == Decision.RECORD_AND_SAMPLE for e in ids
    ]
    assert 500 < sum(decisions) < 700


def test_a_decision_made_elsewhere_is_kept():
    assert Sampler(ratio=0.0).samples_child(TRACE, True)
    assert not Sampler(ratio=1.0).samples_child(TRACE, False)
    assert not Sampler(ratio=0.0, parent_based=False).samples_child(TRACE, True)
    assert Sampler(ratio=1.0, parent_based=False).samples_child(TRACE, False), "always_on asks nobody"


@pytest.mark.parametrize(
    ("text", "rules"),
    [
        ("", TailRules()),
        ("failed", TailRules(failed=True)),
        ("slower-than=2s", TailRules(slower_than_seconds=2.0)),
        ("slower-than=250ms, preempted", TailRules(slower_than_seconds=0.25, preempted=True)),
        ("preempted,failed,slower-than=1.5m", TailRules(90.0, True, True)),
    ],
)
def test_tail_rules_are_read_and_written(text, rules):
    assert parse_tail_rules(text) == rules
    assert parse_tail_rules(str(rules)) == rules
    assert bool(rules) is bool(text)


@pytest.mark.parametrize("wrong", ["slow", "slower-than", "slower-than=2", "slower-than=-1s", "failed=yes"])
def test_a_tail_rule_that_is_none_is_refused_with_an_example(wrong):
    with pytest.raises(UserError, match="--trace-keep"):
        parse_tail_rules(wrong)


@pytest.mark.parametrize(
    ("environ", "keep", "document"),
    [
        ({}, "", {"sampler": "parentbased_always_on"}),
        ({"OTEL_TRACES_SAMPLER": "always_off"}, "failed", {"sampler": "always_off", "keep": ["failed"]}),
        (
            {"OTEL_TRACES_SAMPLER": "parentbased_traceidratio", "OTEL_TRACES_SAMPLER_ARG": "0.1"},
            "",
            {"sampler": "parentbased_traceidratio", "ratio": 0.1},
        ),
        ({"OTEL_SDK_DISABLED": "true"}, "failed", {"sampler": "always_off", "disabled": True}),
    ],
)
def test_what_is_sampled_is_told(environ, keep, document):
    assert sampler_from_environment(environ, parse_tail_rules(keep)).document() == document


@pytest.mark.parametrize(
    "note",
    [
        PodTraceAnnotation(1_700_000_000_123_456_789),
        PodTraceAnnotation(5, "b7ad6b7169203331", f"00-{TRACE}-{SPAN}-01", True),
        PodTraceAnnotation(5, link=f"00-{TRACE}-{SPAN}-01"),
    ],
)
def test_what_a_process_notes_on_a_pod_is_read_by_the_next(note):
    assert parse_pod_trace_annotation(str(note)) == note


@pytest.mark.parametrize("wrong", ["", "soon", "-5", "1" * 20, "5.0", ";by=creator"])
def test_what_is_no_note_is_none(wrong):
    assert parse_pod_trace_annotation(wrong) is None
