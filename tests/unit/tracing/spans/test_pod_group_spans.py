"""Spans of a pod group: they form one tree, and the children of the root have no gaps, whatever was recorded."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis.strategies import builds, integers, lists, none, one_of, sampled_from, text

from kubeloop.tracing.spans.pod_group_record import (
    PlacementFacts,
    PodGroupAttempt,
    PodGroupAttemptFacts,
    PodGroupRecord,
)
from kubeloop.tracing.spans.pod_group_spans import pod_group_trace
from kubeloop.tracing.spans.pod_record import Gap
from kubeloop.tracing.spans.traceparent import TraceContext
from support.traces.span_tree import check_spans

CONTEXT = TraceContext("1" * 32, "2" * 16, True)
TIMES = integers(0, 1_000)
PLACEMENTS = lists(builds(PlacementFacts, text(), TIMES, TIMES, TIMES, text()), max_size=3)
RESULTS = sampled_from(["scheduled", "unschedulable", "preempting", "error"])
FACTS = builds(PodGroupAttemptFacts, RESULTS, TIMES, TIMES, text(), text(), PLACEMENTS, TIMES, TIMES)
ATTEMPTS = builds(
    PodGroupAttempt, TIMES, TIMES, TIMES, one_of(none(), FACTS), TIMES, TIMES, TIMES, text(), TIMES, TIMES
)
GAPS = builds(Gap, TIMES, TIMES, text(), sampled_from([True, False]))


def trace_of(*facts, now_ns=100, **fields):
    return pod_group_trace(PodGroupRecord(CONTEXT, 0, facts=[*facts], **fields), now_ns=now_ns)


def children(trace):
    return [
        (span.name, span.start_ns, span.end_ns) for span in trace.spans[1:] if span.parent_span_id == CONTEXT.span_id
    ]


@given(
    facts=lists(one_of(ATTEMPTS, GAPS), max_size=5),
    end_ns=TIMES,
    complete_ns=TIMES,
    min_count=integers(0, 3),
    quorum_ns=TIMES,
)
def test_children_cover_the_root_without_gaps(facts, end_ns, complete_ns, min_count, quorum_ns):
    facts = sorted(facts, key=lambda fact: fact.start_ns)
    trace = trace_of(*facts, end_ns=end_ns, complete_ns=complete_ns, min_count=min_count, quorum_ns=quorum_ns)
    check_spans(trace)
    until_ns = trace.root.start_ns
    for name, start_ns, span_end_ns in children(trace):
        assert start_ns == until_ns, name
        until_ns = span_end_ns
    assert until_ns == trace.root.end_ns
    assert all(trace.root.start_ns <= event.time_ns <= trace.root.end_ns for event in trace.root.events)


def test_group_without_quorum_waits_for_pods():
    assert children(trace_of(min_count=4, pods=2)) == [("quorum wait", 0, 100)]


def test_open_trace_of_a_bound_group_ends_with_the_last_binding():
    attempt = PodGroupAttempt(10, 1, 20, PodGroupAttemptFacts("scheduled", 1, 1), bound_pods=1, bound_ns=30)
    trace = trace_of(attempt, complete_ns=30)
    assert children(trace) == [("group wait", 0, 10), ("group attempt", 10, 20), ("group binding", 20, 30)]
    assert trace.root.attributes["kubeloop.pod_group.outcome"] == "bound"


def test_binding_lasts_until_the_next_attempt_while_pods_are_not_bound():
    first = PodGroupAttempt(0, 1, 10, PodGroupAttemptFacts("scheduled", 2, 2), bound_pods=1, bound_ns=20)
    second = PodGroupAttempt(40, 2, 50, PodGroupAttemptFacts("unschedulable", 1, message="no room"))
    assert children(trace_of(first, second)) == [
        ("group attempt", 0, 10),
        ("group binding", 10, 40),
        ("group attempt", 40, 50),
        ("group wait", 50, 100),
    ]


@pytest.mark.parametrize("result", ["unschedulable", "preempting", "error"])
def test_failed_attempt_has_its_message(result):
    facts = PodGroupAttemptFacts(
        result, 2, message="0/3 nodes are available", victims=1 if result == "preempting" else 0
    )
    trace = trace_of(PodGroupAttempt(10, 1, 20, facts))
    attempt, wait = (span for span in trace.spans if span.start_ns >= 10 and span.name.startswith("group"))
    assert attempt.error == attempt.attributes["kubeloop.message"] == "0/3 nodes are available"
    reason = {"kubeloop.reason": "preempted pods have not ended"} if result == "preempting" else {}
    assert (wait.name, wait.attributes) == ("group wait", reason)
    assert ("preempting" in [event.name for event in trace.root.events]) is (result == "preempting")


def test_placements_are_children_of_their_attempt():
    placements = [PlacementFacts("rack=a", 11, 14, 1, "1 of 2 pods fit"), PlacementFacts("rack=b", 14, 18, 2)]
    facts = PodGroupAttemptFacts("scheduled", 2, 2, placement="rack=b", placements=placements, placement_count=2)
    trace = trace_of(PodGroupAttempt(10, 1, 20, facts))
    attempt = next(span for span in trace.spans if span.name == "group attempt")
    assert attempt.attributes["kubeloop.placement"] == "rack=b"
    assert [
        (span.attributes["kubeloop.placement"], span.start_ns, span.end_ns, span.error)
        for span in trace.spans
        if span.parent_span_id == attempt.span_id
    ] == [("rack=a", 11, 14, "1 of 2 pods fit"), ("rack=b", 14, 18, None)]


def test_links_lead_to_the_pods():
    (link,) = trace_of(pod_links=[CONTEXT.traceparent]).root.links
    assert (link.traceparent, link.relation) == (CONTEXT.traceparent, "pod")
