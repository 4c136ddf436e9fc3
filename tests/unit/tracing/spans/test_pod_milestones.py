"""Tests of edges: intervals of timestamps and arrivals, and their order."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kubeloop.tracing.spans.pod_milestones import (
    MAX_MARKS,
    MAX_MISSED,
    SECOND_NS,
    Edge,
    PodMilestones,
    PullMark,
    add_mark,
    earliest,
    later,
    no_later,
    timestamp_edge,
)

MOMENT = datetime(2026, 1, 1, 12, 0, 5, tzinfo=UTC)
NS = int(MOMENT.timestamp()) * SECOND_NS
edges = st.builds(
    lambda low, length, source: Edge(low, low + length, source),
    st.integers(0, 20),
    st.integers(0, 5),
    st.sampled_from(("arrival", "event", "condition")),
)


@pytest.mark.parametrize(
    ("arrival_ns", "skew_ns", "expected"),
    [
        pytest.param(NS + 2 * SECOND_NS, 0, Edge(NS, NS + SECOND_NS, "event"), id="in its second"),
        pytest.param(NS + 300, 0, Edge(NS, NS + 300, "event"), id="not after its arrival"),
        pytest.param(NS - 1, 0, Edge(NS - 1 - SECOND_NS, NS - 1, "arrival"), id="clock that is ahead"),
        pytest.param(NS, 2 * SECOND_NS, Edge(NS - 2 * SECOND_NS, NS - SECOND_NS, "event"), id="corrected clock"),
    ],
)
def test_timestamp_edge(arrival_ns, skew_ns, expected):
    assert timestamp_edge(MOMENT, "event", arrival_ns, skew_ns) == expected


def test_a_micro_time_has_microseconds():
    moment = MOMENT.replace(microsecond=250)
    assert timestamp_edge(moment, "event", NS + SECOND_NS, resolution_ns=1000) == Edge(
        NS + 250_000, NS + 251_000, "event"
    )


def test_a_timestamp_is_better_than_an_arrival():
    arrival, late, early = Edge(0, 1, "arrival"), Edge(5, 6, "event"), Edge(2, 3, "event")
    assert earliest(arrival, late) == late
    assert earliest(late, early) == earliest(early, late) == early
    assert earliest(Edge(2, 4, "event"), early) == early
    assert earliest(None, arrival) == arrival


@given(st.lists(edges, min_size=1), st.randoms())
def test_earliest_does_not_depend_on_the_order(choices, rng):
    def chosen(order):
        best = None
        for edge in order:
            best = earliest(best, edge)
        return best

    shuffled = [*choices, *choices]
    rng.shuffle(shuffled)
    assert chosen(choices) == chosen(shuffled)


@given(edges, edges)
def test_later_and_no_later_are_intervals(one, other):
    both = later(one, other)
    assert (both.low_ns, both.high_ns) == (max(one.low_ns, other.low_ns), max(one.high_ns, other.high_ns))
    assert later(other, one).high_ns == both.high_ns
    limited = no_later(one, other)
    assert limited.low_ns <= limited.high_ns <= other.high_ns
    assert no_later(one, None) == one


def test_marks_are_limited_and_repeated_ones_are_ignored():
    marks = []
    for number in range(200):
        assert add_mark(marks, PullMark(Edge(number, number, "event"), "pulling", event_ns=number))
    assert not add_mark(marks, PullMark(Edge(0, 9, "event"), "pulling", event_ns=0))
    assert (len(marks), marks[0].event_ns, marks[-1].event_ns) == (MAX_MARKS, 0, 199)


def test_missed_times_are_limited():
    milestones = PodMilestones()
    for number in range(50):
        milestones.add_missed(10 * number, 10 * number + 5, "watch")
    assert len(milestones.missed) == MAX_MISSED
    assert (milestones.missed[-1].since_ns, milestones.missed[-1].until_ns) == (10 * (MAX_MISSED - 1), 495)
