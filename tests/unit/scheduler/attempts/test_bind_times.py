"""Durations of bind requests."""

from __future__ import annotations

import pytest

from kubeloop.scheduler.attempts.bind_times import BindTimes

MS, SECOND = 10**6, 10**9


@pytest.fixture
def times() -> BindTimes:
    return BindTimes()


def is_busy(times: BindTimes, *, at_seconds: float = 100.0) -> bool:
    return times.server_is_busy(round(at_seconds * SECOND))


def add(
    times: BindTimes, milliseconds: float, *, at_seconds: float = 100.0, count: int = 50, in_flight: int = 2
) -> None:
    finished_ns = round(at_seconds * SECOND)
    for _ in range(count):
        times.add(finished_ns - round(milliseconds * MS), finished_ns, in_flight)


def test_server_is_not_busy_before_the_first_request(times):
    assert not is_busy(times)


def test_server_is_busy_when_requests_take_longer_than_the_fastest(times):
    add(times, 2)
    assert not is_busy(times)
    add(times, 8)
    assert is_busy(times)
    add(times, 3)
    assert not is_busy(times)


def test_short_requests_do_not_wait_for_a_busy_server(times):
    add(times, 0.5)
    add(times, 3.5)
    assert not is_busy(times)
    add(times, 6)
    assert is_busy(times)


def test_many_bind_requests_wait_for_each_other(times):
    add(times, 2)
    add(times, 12, in_flight=10)
    assert not is_busy(times)
    add(times, 12, in_flight=1)
    assert is_busy(times)


def test_distant_server_is_not_busy(times):
    add(times, 80)
    add(times, 95)
    assert not is_busy(times)


def test_single_slow_request_does_not_count(times):
    add(times, 2)
    add(times, 12, count=1)
    assert not is_busy(times)


def test_server_that_became_slower_counts_as_idle_after_two_minutes(times):
    for at_seconds, milliseconds, expected in ((100, 2, False), (130, 9, True), (165, 9, True), (230, 9, False)):
        add(times, milliseconds, at_seconds=at_seconds)
        assert is_busy(times, at_seconds=at_seconds) == expected


def test_server_is_not_busy_when_no_pod_was_bound_recently(times):
    add(times, 2)
    add(times, 12)
    assert is_busy(times, at_seconds=100.05)
    assert not is_busy(times, at_seconds=100.2)


def test_durations_that_the_clock_cannot_tell_are_ignored(times):
    add(times, 2)
    times.add(100 * SECOND, 40 * SECOND, 1)
    times.add(100 * SECOND, 100 * SECOND, 1)
    add(times, 4)
    assert not is_busy(times)


@pytest.mark.parametrize(("seconds_later", "busy"), [(0.099, True), (0.1, False)])
def test_server_is_busy_for_a_tenth_of_a_second_after_a_request(times, seconds_later, busy):
    add(times, 2)
    add(times, 12)
    assert is_busy(times, at_seconds=100 + seconds_later) is busy


@pytest.mark.parametrize(("seconds_later", "busy"), [(59, True), (60, True), (120, False)])
def test_fastest_request_counts_for_this_and_the_next_minute(times, seconds_later, busy):
    add(times, 2)
    add(times, 9, at_seconds=100 + 60)
    add(times, 9, at_seconds=100 + 60 + seconds_later)
    assert is_busy(times, at_seconds=100 + 60 + seconds_later) is (seconds_later < 60)
