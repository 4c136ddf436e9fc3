"""Tail rules select traces for export."""

from __future__ import annotations

import pytest

from kubeloop.tracing.recording.pod_recorder import AttemptFacts
from kubeloop.tracing.sampling.samplers import TailRules
from kubeloop.tracing.sampling.tail_rules import UnsampledReconciles, matching_group_tail_rule, matching_tail_rule
from kubeloop.tracing.spans.pod_group_record import PodGroupAttempt, PodGroupAttemptFacts, PodGroupRecord
from kubeloop.tracing.spans.pod_record import PodRecord
from kubeloop.tracing.spans.trace import Span, Trace
from kubeloop.tracing.spans.traceparent import TraceContext
from support.traces.pod_traces import attempt, request_pod


@pytest.mark.parametrize(
    ("rules", "tail_rule"),
    [
        ({}, None),
        ({"failed": True}, "failed"),
        ({"preempted": True}, "preempted"),
        ({"slower_than_seconds": 0.05}, "slower-than=0.05s"),
        ({"slower_than_seconds": 5.0}, None),
    ],
)
async def test_tail_rules_select_unsampled_traces(make_tracing, pod, manual_clock, exporter, rules, tail_rule):
    tracing = make_tracing(
        manual_clock, exporter, environ={"OTEL_TRACES_SAMPLER": "always_off"}, tail_rules=TailRules(**rules)
    )
    reconcile = tracing.reconciles.reconcile("replicaset", "shop/web-5f")
    web, traceparent = request_pod(tracing, pod, manual_clock, link=reconcile.traceparent)
    reconcile.finish(changed=True)
    assert traceparent.endswith("-00") if rules else traceparent == ""
    assert tracing.trace_id(web) == ""
    facts = AttemptFacts("unschedulable", nodes=1, nominated_node="n1", victims=2)
    attempt(tracing, web, manual_clock, 1, facts)
    manual_clock.pass_ms(100)
    annotations = web.metadata.annotations
    tracing.pods.observed(pod(annotations=annotations, node="n1"))
    fast = pod("fast", owner="")
    tracing.pods.observed(fast)
    tracing.pods.observed(pod("fast", owner="", node="n1"))
    await tracing.flush()
    pod_roots = [trace.root for trace in exporter.traces if trace.root.name == "pod"]
    selecting_rules = [root.attributes.get("kubeloop.sampled_by") for root in pod_roots]
    assert selecting_rules == ([tail_rule] if tail_rule else [])
    reconciles = [trace for trace in exporter.traces if trace.root.name == "reconcile replicaset"]
    assert len(reconciles) == len(selecting_rules), "the linked reconcile is selected too"
    assert (tracing.trace_id(web) != "") is bool(tail_rule)


def test_first_matching_rule_is_returned():
    record = PodRecord(TraceContext("1" * 32, "2" * 16, False).traceparent, 0)
    record.finish("bound", 2 * 10**9)
    assert matching_tail_rule(record, TailRules(slower_than_seconds=3.0, failed=True)) == ""
    assert matching_tail_rule(record, TailRules(slower_than_seconds=1.0, failed=True)) == "slower-than=1s"
    record.finish("deleted", 2 * 10**9)
    assert matching_tail_rule(record, TailRules(failed=True)) == "failed"


@pytest.mark.parametrize(
    ("fields", "outcome", "tail_rule"),
    [
        pytest.param({"facts": PodGroupAttemptFacts("scheduled")}, "bound", "", id="scheduled at once"),
        pytest.param({"facts": PodGroupAttemptFacts("unschedulable")}, "bound", "failed", id="failed attempt"),
        pytest.param({"permit_rejections": 1}, "bound", "failed", id="rejected on permit"),
        pytest.param({}, "deleted", "failed", id="deleted"),
        pytest.param({"facts": PodGroupAttemptFacts("preempting", victims=2)}, "bound", "failed", id="first rule"),
    ],
)
def test_rule_that_a_group_matches(fields, outcome, tail_rule):
    record = PodGroupRecord(TraceContext("1" * 32, "2" * 16, False), 0)
    record.add(PodGroupAttempt(0, 1, 1, **fields))
    record.finish(outcome, 10**9)
    assert matching_group_tail_rule(record, TailRules(failed=True, preempted=True)) == tail_rule
    preempted = "preempted" if fields.get("facts") and fields["facts"].victims else ""
    assert matching_group_tail_rule(record, TailRules(preempted=True)) == preempted
    assert matching_group_tail_rule(record, TailRules(slower_than_seconds=0.5)) == "slower-than=0.5s"


def test_unsampled_reconcile_is_taken_once_or_expected_later():
    trace = Trace("1" * 32, (Span("reconcile deployment", "2" * 16, 0, 1),))
    traceparent = f"00-{'1' * 32}-{'2' * 16}-00"
    reconciles = UnsampledReconciles()
    reconciles.add(trace)
    assert reconciles.take_linked(traceparent) is trace
    assert reconciles.take_linked(traceparent) is None
    assert reconciles.pop_link(trace)
    assert not reconciles.pop_link(trace)
