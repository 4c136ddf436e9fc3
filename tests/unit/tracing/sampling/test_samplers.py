"""Head sampler, and parsing of tail rules."""

from __future__ import annotations

import random

import pytest

from kubeloop.kube.user_error import UserError
from kubeloop.tracing.sampling.samplers import Sampler, TailRules, parse_tail_rules, sampler_from_environment

TRACE, SPAN = "0af7651916cd43dd8448eb211c80319c", "b7ad6b7169203331"


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
def test_sampler_is_read_from_environment(environ, sampling):
    assert sampler_from_environment(environ) == sampling


def test_ratio_decides_by_trace_id_like_opentelemetry_sdk():
    from opentelemetry.sdk.trace.sampling import Decision, TraceIdRatioBased

    rng = random.Random(3)
    sdk_sampler, sampler = TraceIdRatioBased(0.3), Sampler(0.3)
    ids = [f"{rng.getrandbits(128):032x}" for _ in range(2000)]
    decisions = [sampler.samples_root(trace_id) for trace_id in ids]
    assert decisions == [
        sdk_sampler.should_sample(None, int(trace_id, 16), "x").decision == Decision.RECORD_AND_SAMPLE
        for trace_id in ids
    ]
    assert 500 < sum(decisions) < 700


def test_parent_based_sampler_follows_parent():
    assert Sampler(ratio=0.0).samples_child(TRACE, True)
    assert not Sampler(ratio=1.0).samples_child(TRACE, False)
    assert not Sampler(ratio=0.0, parent_based=False).samples_child(TRACE, True)
    assert Sampler(ratio=1.0, parent_based=False).samples_child(TRACE, False), "always_on ignores the parent"


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
def test_tail_rules_round_trip(text, rules):
    assert parse_tail_rules(text) == rules
    assert parse_tail_rules(str(rules)) == rules
    assert bool(rules) is bool(text)


@pytest.mark.parametrize("text", ["slow", "slower-than", "slower-than=2", "slower-than=-1s", "failed=yes"])
def test_invalid_tail_rule_is_user_error(text):
    with pytest.raises(UserError, match="--trace-tail-sampling"):
        parse_tail_rules(text)


@pytest.mark.parametrize(
    ("environ", "tail_rules", "document"),
    [
        ({}, "", {"sampler": "parentbased_always_on"}),
        ({"OTEL_TRACES_SAMPLER": "always_off"}, "failed", {"sampler": "always_off", "tailSampling": ["failed"]}),
        (
            {"OTEL_TRACES_SAMPLER": "parentbased_traceidratio", "OTEL_TRACES_SAMPLER_ARG": "0.1"},
            "",
            {"sampler": "parentbased_traceidratio", "ratio": 0.1},
        ),
        ({"OTEL_SDK_DISABLED": "true"}, "failed", {"sampler": "always_off", "disabled": True}),
    ],
)
def test_configz_document_of_sampler(environ, tail_rules, document):
    assert sampler_from_environment(environ, parse_tail_rules(tail_rules)).document() == document
