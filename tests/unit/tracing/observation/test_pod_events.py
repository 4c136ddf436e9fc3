"""Tests of milestones from single Events."""

from __future__ import annotations

import pytest

from kubeloop.tracing.observation.pod_events import add_event
from kubeloop.tracing.spans.pod_milestones import Edge, PodMilestones, ProbeFailures
from support.traces.observed_pods import PodStory, ns


def milestones_of(story, **arrival):
    milestones = PodMilestones()
    for event, arrival_ns in story.events:
        add_event(milestones, event, arrival.get("arrival_ns", arrival_ns))
    return milestones


def test_events_of_the_scheduler_have_microseconds():
    story = PodStory().after(0.25).event("Scheduled", "assigned", component="default-scheduler")
    assert milestones_of(story).scheduled_event == Edge(ns(0.25), ns(0.25) + 1000, "event")


def test_events_of_the_kubelet_have_seconds():
    story = PodStory().after(0.25).event("Started", "Container started", container="app")
    assert milestones_of(story).containers["app"].started_event == Edge(ns(-0.4), ns(0.27), "event")


def test_a_repeated_event_has_its_first_and_last_time():
    story = PodStory().after(90).event("Pulling", 'Pulling image "app:1"', container="app", count=3, first=0)
    marks = milestones_of(story).containers["app"].pulls
    assert [mark.event_ns for mark in marks] == [ns(-0.4), ns(89.6)]


@pytest.mark.parametrize(
    ("reason", "message", "container"),
    [
        ("Killing", "Stopping container app", "app"),
        ("Failed", "Error: ErrImagePull", "app"),
        ("BackOff", "Back-off restarting failed container app in pod web", "app"),
        ("NodeNotReady", "Node is not ready", ""),
        ("Unhealthy", "unknown", "app"),
    ],
)
def test_events_that_show_nothing(reason, message, container):
    [(event, arrival_ns)] = PodStory().event(reason, message, container=container).events
    assert not add_event(PodMilestones(), event, arrival_ns)


def test_failures_of_probes_are_counted_by_probe():
    story = PodStory().event("Unhealthy", "Readiness probe failed: HTTP 503", container="app", count=4, first=0)
    story.event("Unhealthy", "Readiness probe failed: HTTP 500", container="app", count=2, first=0)
    story.event("Unhealthy", "Startup probe failed: timeout", container="app")
    assert milestones_of(story).containers["app"].probe_failures == {
        "readiness": ProbeFailures(4, "Readiness probe failed: HTTP 503"),
        "startup": ProbeFailures(1, "Startup probe failed: timeout"),
    }


def test_a_repeated_failed_attempt_is_added_once():
    story = PodStory().event("FailedScheduling", "cpu", component="default-scheduler").after(400)
    story.event("FailedScheduling", "cpu", component="default-scheduler", count=2, first=0)
    milestones = milestones_of(story)
    assert [mark.message for mark in milestones.scheduling] == ["cpu"]
    assert milestones.was_unschedulable
