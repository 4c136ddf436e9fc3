"""Tests of image pulls from the steps that Events and the container's status show."""

from __future__ import annotations

import itertools

import pytest

from kubeloop.tracing.spans.image_pulls import image_pulls
from kubeloop.tracing.spans.pod_milestones import SECOND_NS, ContainerMilestones, Edge, PullMark

PULLED = 'Successfully pulled image "app:1" in {} ({} including waiting). Image size: 5000 bytes.'


def step(second, name, message=""):
    edge = Edge(second * SECOND_NS, (second + 1) * SECOND_NS, "event")
    return PullMark(edge, name, message, second * SECOND_NS)


def pulls(*marks):
    container = ContainerMilestones("app", image="app:1", pulls=list(marks))
    return [
        (
            "back-off" if pull.is_back_off else "pull",
            pull.start and pull.start.high_ns / SECOND_NS,
            pull.end and pull.end.high_ns / SECOND_NS,
            pull.error,
        )
        for pull in image_pulls(container)
    ]


def test_the_duration_in_the_message_narrows_both_edges():
    container = ContainerMilestones("app", image="app:1")
    container.pulls = [step(10, "pulling"), step(12, "pulled", PULLED.format("1.1s", "1.2s"))]
    [pull] = image_pulls(container)
    assert (pull.start, pull.end) == (
        Edge(round(10.8 * SECOND_NS), 11 * SECOND_NS, "event"),
        Edge(12 * SECOND_NS, round(12.2 * SECOND_NS), "event"),
    )
    assert pull.attributes == {
        "container.image.name": "app:1",
        "kubeloop.image.already_present": False,
        "kubeloop.image.pull_ms": 1100,
        "kubeloop.image.waiting_ms": 100,
        "kubeloop.image.size_bytes": 5000,
    }


@pytest.mark.parametrize(
    ("message", "milliseconds"),
    [
        ('Successfully pulled image "app:1" in 1.315633737s (1.315641898s including waiting)', 1316),
        ('Successfully pulled image "app:1" in 843.21ms (843.21ms including waiting)', 843),
        ('Successfully pulled image "app:1" in 1m2.5s (1m2.5s including waiting). Image size: 1 bytes.', 62_500),
        ('Successfully pulled image "app:1" in 120.5µs (120.5µs including waiting)', 0),
        ('Successfully pulled image "app:1" in 2s', 2000),
    ],
)
def test_durations_of_messages(message, milliseconds):
    [pull] = image_pulls(ContainerMilestones("app", pulls=[step(100, "pulled", message)]))
    assert pull.attributes["kubeloop.image.pull_ms"] == milliseconds
    assert pull.end.high_ns - pull.start.high_ns == pytest.approx(milliseconds * 1e6, abs=1e6)


def test_present_image_has_no_duration():
    assert pulls(step(5, "pulled", 'Container image "app:1" already present on machine')) == [("pull", 6, 6, None)]


def test_failed_pull_is_followed_by_a_back_off_until_the_next_pull():
    marks = [
        step(1, "pulling"),
        step(3, "failed", "timeout"),
        step(3, "back-off", "Back-off pulling image"),
        step(13, "pulling"),
        step(15, "pulled", 'Successfully pulled image "app:1" in 2s (2s including waiting)'),
    ]
    expected = [("pull", 2, 4, "timeout"), ("back-off", 4, 14, "timeout"), ("pull", 14, 16, None)]
    for order in itertools.permutations(marks):
        assert pulls(*order) == expected


def test_failure_in_the_second_of_its_start():
    assert pulls(step(1, "pulling"), step(1, "failed", "denied")) == [
        ("pull", 2, 2, "denied"),
        ("back-off", 2, None, "denied"),
    ]


def test_status_is_used_without_events():
    edge = Edge(0, SECOND_NS, "arrival")
    container = ContainerMilestones("app", image="app:1", waits=[PullMark(edge, "failed", "denied")])
    failed, back_off = image_pulls(container)
    assert (failed.start, failed.end, failed.error) == (None, edge, "denied")
    assert (back_off.start, back_off.end, back_off.is_back_off) == (edge, None, True)
