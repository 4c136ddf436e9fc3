"""InFlightEvents: the events that a pod in flight has missed."""

from __future__ import annotations

import pytest

from kubeloop.scheduler.api import events
from kubeloop.scheduler.queue.in_flight_events import InFlightEvents


def test_each_pod_sees_the_events_since_it_was_popped() -> None:
    log = InFlightEvents()
    log.add_event(events.NODE_ADD, None, "before")  # no pod in flight: not logged
    log.start("uid-a", "n/a")
    log.add_event(events.NODE_ADD, None, "first")
    log.start("uid-b", "n/b")
    log.add_event(events.NODE_ADD, None, "second")
    assert [event.new for event in log.events_since("uid-a")] == ["first", "second"]
    assert [event.new for event in log.events_since("uid-b")] == ["second"]
    assert [kind for kind, _ in log.log()] == ["pod", "event", "pod", "event"]


def test_log_is_truncated_to_the_oldest_pod_in_flight() -> None:
    log = InFlightEvents()
    log.start("uid-a", "n/a")
    log.add_event(events.NODE_ADD, None, "first")
    log.start("uid-b", "n/b")
    log.done("uid-a")
    assert list(log.log()) == [("pod", "n/b")]
    assert log.keys() == ["n/b"]
    with pytest.raises(KeyError):
        log.events_since("uid-a")
    log.done("uid-b")
    log.done("uid-b")
    assert list(log.log()) == []


def test_pods_are_in_flight_until_they_are_done() -> None:
    log = InFlightEvents()
    for uid in ("uid-a", "uid-b"):
        log.start(uid, "n/p")
    log.done("uid-a")
    assert "uid-a" not in log
    assert "uid-b" in log
