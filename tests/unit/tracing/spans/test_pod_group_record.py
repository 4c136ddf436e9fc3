"""Record of a pod group."""

from __future__ import annotations

import msgspec

from kubeloop.tracing.spans.pod_group_record import (
    MAX_FACTS,
    PlacementFacts,
    PodGroupAttempt,
    PodGroupAttemptFacts,
    PodGroupRecord,
)
from kubeloop.tracing.spans.pod_record import Gap
from kubeloop.tracing.spans.traceparent import TraceContext


def record():
    return PodGroupRecord(TraceContext("1" * 32, "2" * 16, True), 0, namespace="shop", name="train")


def test_long_history_has_a_gap_in_the_middle():
    group = record()
    for number in range(1, 10 * MAX_FACTS):
        group.add(PodGroupAttempt(number, number))
    assert len(group.facts) <= MAX_FACTS
    (gap,) = (fact for fact in group.facts if isinstance(fact, Gap))
    assert gap.dropped
    first, last = group.facts[0], group.facts[-1]
    assert (first.number, last.number) == (1, 10 * MAX_FACTS - 1)
    starts = [fact.start_ns for fact in group.facts]
    assert starts == sorted(starts)


def test_only_the_last_attempts_have_their_placements():
    group = record()
    for number in range(1, 20):
        facts = PodGroupAttemptFacts("unschedulable", placements=[PlacementFacts("rack=a", 1, 2)], placement_count=1)
        group.add(PodGroupAttempt(number, number, number, facts))
    counts = [(len(attempt.facts.placements), attempt.facts.placement_count) for attempt in group.facts]
    assert counts == [(0, 1)] * 9 + [(1, 1)] * 10


def test_last_attempt_is_the_one_that_no_gap_follows():
    group = record()
    assert group.last_attempt is None
    attempt = PodGroupAttempt(1, 1)
    group.add(attempt)
    assert group.last_attempt is attempt
    group.add(Gap(2, 3, "kubeloop was not running"))
    assert group.last_attempt is None


def test_record_survives_encoding():
    group = record()
    facts = PodGroupAttemptFacts("unschedulable", 2, message="too small", placements=[PlacementFacts("rack=a", 1, 2)])
    group.add(PodGroupAttempt(1, 1, 2, facts))
    group.add(Gap(3, 4, "kubeloop was not running"))
    group.pod_links.append(group.traceparent)
    group.finish("deleted", 5, "deleted")
    decoded = msgspec.msgpack.decode(msgspec.msgpack.encode(group), type=PodGroupRecord)
    assert msgspec.structs.asdict(decoded) == msgspec.structs.asdict(group)
    assert (decoded.key, decoded.duration_ns) == ("shop/train", 5)
