"""Tests of phases that are derived from milestones, where watch sequences are not needed."""

from __future__ import annotations

import pytest

from kubeloop.tracing.spans.observed_phases import bound_edge, derive_phases, trace_end
from kubeloop.tracing.spans.pod_milestones import ContainerMilestones, Edge, PodMilestones, Run, SchedulingMark

CREATION = Edge(0, 10, "creation")
BOUND = Edge(10, 20, "condition")


def phases(milestones):
    return [
        (phase.name, phase.start.high_ns, phase.end.high_ns if phase.end is not None else None)
        for phase in derive_phases(milestones)
    ]


def test_nothing_is_known_of_a_pod_of_which_only_events_came():
    assert derive_phases(PodMilestones(scheduled_event=BOUND)) == []


@pytest.mark.parametrize(
    ("event", "expected"),
    [
        pytest.param(None, BOUND, id="no Event"),
        pytest.param(Edge(14, 15, "event"), Edge(10, 15, "event"), id="Event in the second of the condition"),
        pytest.param(Edge(30, 31, "event"), BOUND, id="late Event"),
        pytest.param(Edge(1, 2, "event"), BOUND, id="Event before the condition: of another clock"),
    ],
)
def test_bound_edge(event, expected):
    assert bound_edge(PodMilestones(creation=CREATION, bound=BOUND, scheduled_event=event)) == expected


def test_an_edge_before_the_phase_before_it_is_moved():
    """The clock of the node is behind: the phases on it have no duration, and none is negative."""
    app = ContainerMilestones("app", position=0, runs={0: Run(Edge(1, 2, "container"))})
    ready = {"Ready": Edge(3, 4, "condition")}
    milestones = PodMilestones(creation=CREATION, bound=BOUND, containers={"app": app}, conditions=ready)
    assert phases(milestones) == [("schedule", 10, 20), ("start sandbox", 20, 20)]


def test_of_a_container_with_many_runs_the_first_start_is_that_of_the_event():
    app = ContainerMilestones("app", position=0, has_readiness_probe=True, started_event=Edge(30, 30, "event"))
    app.runs = {
        4: Run(Edge(50, 50, "container"), Edge(60, 60, "container"), 1, "OOMKilled", True),
        5: Run(Edge(90, 90, "container")),
    }
    milestones = PodMilestones(creation=CREATION, bound=BOUND, containers={"app": app})
    assert phases(milestones) == [
        ("schedule", 10, 20),
        ("start sandbox", 20, 30),
        ("container run", 50, 60),
        ("crash back-off", 60, 90),
        ("readiness probe", 90, None),
    ]
    assert derive_phases(milestones)[2].error == "exit code 1 (OOMKilled)"


def test_event_and_condition_of_one_attempt_are_one_phase():
    marks = [
        SchedulingMark(Edge(14, 14, "event"), "unschedulable", "cpu", event_ns=14),
        SchedulingMark(Edge(12, 16, "arrival"), "preempting", "cpu", "node-1"),
    ]
    for order in (marks, marks[::-1]):
        assert phases(PodMilestones(creation=CREATION, scheduling=order)) == [
            ("schedule", 10, 14),
            ("preemption wait", 14, None),
        ]


def test_condition_that_arrives_before_the_time_of_its_event():
    marks = [
        SchedulingMark(Edge(11, 12, "event"), "unschedulable", "cpu", event_ns=11),
        SchedulingMark(Edge(15, 40, "arrival"), "unschedulable", "memory"),
        SchedulingMark(Edge(43, 44, "event"), "unschedulable", "memory", event_ns=43),
    ]
    changed = derive_phases(PodMilestones(creation=CREATION, scheduling=marks))[-1]
    assert changed.start == Edge(40, 40, "event")


def test_removal_of_gates_that_arrives_after_the_time_of_the_event_that_follows():
    marks = [
        SchedulingMark(CREATION, "gated", "g"),
        SchedulingMark(Edge(20, 20, "event"), "unschedulable", "cpu", event_ns=20),
        SchedulingMark(Edge(15, 25, "arrival"), "pending"),
        SchedulingMark(Edge(25, 30, "arrival"), "unschedulable", "cpu"),
    ]
    milestones = PodMilestones(creation=CREATION, scheduling=marks)
    assert phases(milestones) == [("gated", 10, 20), ("schedule", 20, 20), ("unschedulable", 20, None)]


@pytest.mark.parametrize(
    ("fields", "outcome", "reason"),
    [
        pytest.param({"deleted": BOUND}, "deleted", "deleted before it was bound", id="deleted"),
        pytest.param({"bound": BOUND, "deleted": BOUND}, "deleted", "deleted before it was ready", id="bound"),
        pytest.param({"ended": BOUND, "end_phase": "Succeeded"}, "completed", "", id="completed"),
        pytest.param({"ended": BOUND, "end_phase": "Failed"}, "failed", "containers failed", id="failed"),
        pytest.param(
            {"ended": BOUND, "end_phase": "Failed", "end_reason": "DeadlineExceeded", "end_message": "late"},
            "failed",
            "DeadlineExceeded: late",
            id="reason of the status",
        ),
        pytest.param(
            {"ended": BOUND, "end_phase": "Failed", "end_reason": "NodeLost"}, "failed", "node lost", id="node lost"
        ),
        pytest.param({"deleted": BOUND, "conditions": {"Ready": BOUND}}, "ready", "", id="ready before"),
    ],
)
def test_trace_end(fields, outcome, reason):
    end = trace_end(PodMilestones(**fields), until_ready=True)
    assert (end.outcome, end.edge, end.reason) == (outcome, BOUND, reason)


def test_trace_that_has_not_ended():
    assert trace_end(PodMilestones(bound=BOUND), until_ready=True) is None
    assert trace_end(PodMilestones(bound=BOUND), until_ready=False).outcome == "bound"
