"""Tests of milestones from single states of a pod."""

from __future__ import annotations

import pytest

from kubeloop.tracing.observation.pod_states import add_state, describe, scheduling_status, was_ready
from kubeloop.tracing.spans.pod_milestones import MAX_RUNS, Edge, PodMilestones, SchedulingMark, arrival_edge
from support.traces.observed_pods import PodStory, ns

EDGE = Edge(0, 1, "arrival")


def milestones_of(story):
    milestones = PodMilestones()
    for pod, arrival_ns in story.states:
        if not milestones.seen_ns:
            describe(milestones, pod, arrival_ns)
        add_state(milestones, pod, arrival_edge(arrival_ns))
    return milestones


def test_an_older_or_repeated_state_is_not_added():
    story = PodStory().create().after(1).bind()
    milestones = milestones_of(story)
    for pod, _ in story.states:
        assert not add_state(milestones, pod, arrival_edge(ns(50)))
    assert milestones.seen_ns == story.states[-1][1]


def test_container_kinds_and_their_order():
    sidecar = {"name": "proxy", "restartPolicy": "Always"}
    containers = milestones_of(PodStory(init=("setup", sidecar), containers=("app",)).create()).containers
    assert [(container.name, container.kind, container.position) for container in containers.values()] == [
        ("setup", "init", 0),
        ("proxy", "sidecar", 1),
        ("app", "app", 2),
    ]


def test_runs_of_a_container_by_restart_count():
    """While it waits, its last state is the run of its restart count; while it runs, that of the run before."""
    story = PodStory().create().after(1).bind().accept().start("app").write().after(3).exit("app", 1)
    milestones = milestones_of(story.crash_back_off("app"))
    run = milestones.containers["app"].runs[0]
    assert (run.exit_code, run.reason, run.backed_off) == (1, "Error", True)
    story.after(10).start("app", restarts=1).write()
    runs = milestones_of(story).containers["app"].runs
    assert [*runs] == [0, 1]
    assert runs[0].finished.low_ns == run.finished.low_ns
    assert (runs[1].exit_code, runs[1].finished) == (0, None)


def test_runs_are_limited():
    story = PodStory().create().after(1).bind().accept().start("app").write()
    for restarts in range(1, 40):
        story.after(1).exit("app", 1).write().after(1).start("app", restarts=restarts).write()
    runs = milestones_of(story).containers["app"].runs
    assert len(runs) == MAX_RUNS
    assert {0, 1, 38, 39} <= runs.keys()


@pytest.mark.parametrize(
    ("reason", "message", "nominated", "last", "expected"),
    [
        pytest.param("", "", "", None, ("pending", "", ""), id="no condition"),
        pytest.param("Unschedulable", "cpu", "", None, ("unschedulable", "cpu", ""), id="unschedulable"),
        pytest.param("SchedulerError", "", "", None, ("unschedulable", "SchedulerError", ""), id="no message"),
        pytest.param("SchedulingGated", "gated", "", None, ("pending", "", ""), id="gates were removed"),
        pytest.param("Unschedulable", "cpu", "n1", None, ("preempting", "cpu", "n1"), id="preempts"),
        pytest.param("", "", "n1", None, ("binding", "", "n1"), id="binding is delayed"),
        pytest.param(
            "Unschedulable",
            "cpu",
            "n1",
            SchedulingMark(EDGE, "unschedulable", "cpu"),
            ("binding", "cpu", "n1"),
            id="binding after a failed attempt",
        ),
        pytest.param(
            "Unschedulable",
            "cpu",
            "n1",
            SchedulingMark(EDGE, "binding", "cpu", "n1"),
            ("binding", "cpu", "n1"),
            id="binding continues",
        ),
        pytest.param(
            "Unschedulable",
            "cpu",
            "n1",
            SchedulingMark(EDGE, "preempting", "cpu", "n1"),
            ("preempting", "cpu", "n1"),
            id="preemption continues",
        ),
    ],
)
def test_scheduling_status(reason, message, nominated, last, expected):
    story = PodStory()
    if reason:
        story.condition("PodScheduled", "False", reason, message)
    story.pod["status"]["nominatedNodeName"] = nominated
    pod, _ = story.write().states[-1]
    condition = pod.status.conditions[0] if pod.status.conditions else None
    assert scheduling_status(pod, condition, last) == expected


def test_was_ready():
    story = PodStory().create().after(1).bind().accept().after(5).write()
    assert not was_ready(story.states[-1][0])
    assert was_ready(story.start("app").ready().states[-1][0])
    story.after(60).condition("Ready", "False").write()
    assert was_ready(story.states[-1][0])


def test_deletion_is_when_it_was_requested():
    story = PodStory().create().after(1).bind().after(2).request_deletion(grace=30)
    assert milestones_of(story).deletion == Edge(ns(2.6), ns(3.01), "deletion")


def test_state_of_an_older_pod_shows_nothing_about_when():
    """The first state of a pod that is older than the observer: what has no timestamp is as old as the pod."""
    milestones = PodMilestones()
    pod, _ = PodStory().create().after(0.1).bind().accept().start("app").write().states[-1]
    describe(milestones, pod, ns(600))
    add_state(milestones, pod, arrival_edge(ns(600)))
    assert milestones.containers["app"].ready == Edge(ns(-0.4), ns(600), "arrival")


@pytest.mark.parametrize(
    ("disruption", "reason", "expected"),
    [
        pytest.param("", "", Edge(ns(3.6), ns(4.11), "container"), id="containers"),
        pytest.param("", "DeadlineExceeded", Edge(ns(89.11), ns(90.11), "arrival"), id="reason of the status"),
        pytest.param("TerminationByKubelet", "Evicted", Edge(ns(89.6), ns(90.11), "condition"), id="evicted"),
    ],
)
def test_end_of_a_failed_pod(disruption, reason, expected):
    story = PodStory(init=("setup",)).create().after(0.1).bind().accept().start("setup").write().after(4).exit("setup")
    story.write().after(86)
    if disruption:
        story.condition("DisruptionTarget", "True", disruption)
    assert milestones_of(story.fail(reason)).ended == expected
