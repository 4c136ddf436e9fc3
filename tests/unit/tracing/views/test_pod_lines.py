"""Line of a pod: phases, stage and reason."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kubeloop.tracing.views.phases import OTHER, PHASES
from kubeloop.tracing.views.pod_lines import MAX_SEGMENTS, pod_line, pod_span, segments_of
from support.traces.trace_documents import apply_document, document, phases, span


def test_line_has_phases_and_gaps_in_order():
    line = pod_line(
        document(
            span("create", 0, 5),
            span("watch delivery", 5, 8),
            span("queue active", 8, 10),
            span("scheduling attempt 1", 10, 20, span_id="attempt"),
            span("filter", 12, 14, parent="attempt"),
            span("reserve", 20, 21),
            span("bind", 25, 90),
            span("confirmation", 90, 100),
            k8s__deployment__name="web",
            k8s__node__name="n1",
            kubeloop__attempts=1,
        )
    )
    assert phases(line) == [
        ("create", 0, 5),
        ("delivery", 5, 3),
        ("queue", 8, 2),
        ("scheduling", 10, 10),
        ("permit", 20, 1),
        ("other", 21, 4),
        ("bind", 25, 65),
        ("confirmation", 90, 10),
    ]
    assert (line.stage, line.owner, line.node, line.attempts, line.is_open) == (
        "bound",
        "deployment/web",
        "n1",
        1,
        False,
    )
    assert (line.namespace, line.name, line.key) == ("shop", "web-1", "root")


def test_span_within_another_is_drawn_over_it():
    line = pod_line(
        document(
            span("schedule", 0, 10),
            span("start init", 10, 60),
            span("init container", 10, 20),
            span("init container", 30, 40),
            span("image pull", 50, 60),
            span("container start", 60, 100),
        )
    )
    assert phases(line) == [
        ("scheduling", 0, 10),
        ("init", 10, 40),
        ("pull", 50, 10),
        ("start", 60, 40),
    ]


@pytest.mark.parametrize(
    ("last", "stage"),
    [
        ("create", "creating"),
        ("watch delivery", "delivery"),
        ("queue active", "queued"),
        ("queue backoff", "backoff"),
        ("queue unschedulable", "unschedulable"),
        ("queue gated", "gated"),
        ("scheduling attempt 3", "scheduling"),
        ("permit", "binding"),
        ("bind", "binding"),
        ("confirmation", "starting"),
        ("start containers", "starting"),
        ("terminating", "terminating"),
        ("other scheduler", "other scheduler"),
    ],
)
def test_stage_of_open_trace_is_its_last_span(last, stage):
    line = pod_line(document(span("create", 0, 1), span(last, 1, 100), outcome="open"))
    assert line.stage == stage
    assert line.is_open


@pytest.mark.parametrize(
    ("outcome", "stage"), [("bound", "bound"), ("deleted", "deleted"), ("create failed", "failed")]
)
def test_stage_of_finished_trace_is_its_outcome(outcome, stage):
    assert pod_line(document(outcome=outcome)).stage == stage


def test_reason_is_scheduler_message_or_error():
    waiting = document(
        span("scheduling attempt 1", 0, 5, error="0/3 nodes", kubeloop__message="0/3 nodes are available"),
        span("queue unschedulable", 5, 100),
        outcome="open",
    )
    assert pod_line(waiting).reason == "0/3 nodes are available"
    assert pod_line(document(outcome="deleted", error="deleted before it was bound")).reason.startswith("deleted")
    assert pod_line(document(span("scheduling attempt 1", 0, 5, error="no"))).reason == ""


def test_trace_of_reconcile_has_no_line():
    assert pod_line({"traceId": "1" * 32, "spans": [span("reconcile deployment shop/web", 0, 1, parent="")]}) is None


@given(
    st.lists(
        st.tuples(
            st.sampled_from([p.prefixes[0] for p in PHASES if p.prefixes]), st.integers(0, 9000), st.integers(0, 9000)
        )
    )
)
def test_segments_cover_duration_without_overlap(spans):
    children = [
        {"name": name, "start": min(a, b) * 1000, "end": max(a, b) * 1000, "attributes": {}} for name, a, b in spans
    ]
    children.sort(key=lambda child: (child["start"], child["end"]))
    flat, edges = segments_of(children, 1_000_000, 6000)
    triples = [flat[at : at + 3] for at in range(0, len(flat), 3)]
    assert len(triples) <= MAX_SEGMENTS
    assert len(edges) == (len(triples) + 1 if triples else 0)
    covered = 0
    for phase, offset, duration in triples:
        assert 0 <= phase <= OTHER
        assert duration > 0
        assert 0 <= offset - covered <= 12
        covered = offset + duration
    assert 0 <= 6000 - covered <= 12


def test_long_line_has_first_and_last_segments():
    names = ["queue active", "scheduling attempt 1", "queue backoff"]
    children = [span(names[number % 3], number, number + 1) for number in range(300)]
    line = pod_line(document(*children, end_ms=300))
    assert len([*line.triples()]) == MAX_SEGMENTS
    assert sum(duration for _, _, duration in line.triples()) == line.duration_us


def test_line_has_the_group_of_the_pod_after_its_owners(traced_group):
    *pods, group = traced_group
    assert pod_line(group) is None
    for pod in pods:
        line = pod_line(pod)
        assert (line.owner, line.lower_owners) == ("job/web-5f", ["podgroup/train"])
        assert line.group_trace_id == group["traceId"]


def test_apply_of_a_manifest_is_no_pod():
    assert pod_span(apply_document()) is None
    assert pod_line(apply_document()) is None


@pytest.mark.parametrize(
    ("outcome", "node", "is_bound"),
    [("bound", "", True), ("failed", "n1", True), ("deleted", "n1", True), ("deleted", "", False), ("open", "", False)],
)
def test_line_is_bound_whether_or_not_the_pod_exists(outcome, node, is_bound):
    assert pod_line(document(outcome=outcome, **({"k8s__node__name": node} if node else {}))).is_bound is is_bound


def test_long_reason_ends_with_a_word():
    line = pod_line(document(span("queue active", 0, 1, error="insufficient " * 60), outcome="open"))
    assert len(line.reason) <= 400
    assert line.reason.endswith("insufficient ...")


@pytest.mark.parametrize(
    ("spans", "after_ms"),
    [
        ((("queue active", 0, 5),), 0),
        ((("queue active", 0, 5), ("scheduling attempt 1", 5, 8)), 5),
        (
            (
                ("queue gated", 0, 5),
                ("queue active", 5, 6),
                ("scheduling attempt 1", 6, 8),
                ("queue unschedulable", 8, 40),
                ("queue active", 40, 41),
                ("scheduling attempt 2", 41, 42),
                ("queue backoff", 42, 100),
            ),
            0,
        ),
        ((("bind", 0, 8), ("queue unschedulable", 8, 40), ("queue active", 40, 41), ("queue backoff", 41, 100)), 8),
    ],
    ids=["queued", "scheduling", "waiting since it was gated", "waiting since a failed binding"],
)
def test_stage_of_a_waiting_pod_began_before_its_retries(spans, after_ms):
    children = [span(name, start, end) for name, start, end in spans]
    line = pod_line(document(*children, outcome="open", end_ms=spans[-1][2]))
    assert line.stage_after_us == after_ms * 1000


def test_stage_of_a_finished_trace_began_at_its_end():
    assert pod_line(document(span("queue active", 0, 5), end_ms=100)).stage_after_us == 100_000
