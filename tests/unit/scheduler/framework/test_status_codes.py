"""Statuses of rows as an array (framework/status_codes.py)."""

from __future__ import annotations

from kubeloop.scheduler.api.results import unschedulable
from kubeloop.scheduler.framework.status_codes import NO_STATUS, StatusCodes


def test_equal_code_for_the_same_status_only() -> None:
    cached, status = StatusCodes(2), unschedulable("P", "full")
    assert cached.codes.tolist() == [NO_STATUS, NO_STATUS]
    assert [cached.code(status), cached.code(unschedulable("P", "other")), cached.code(status)] == [0, 1, 0]
    assert cached.statuses[0] is status


def test_array_is_full_when_most_statuses_are_unused() -> None:
    cached = StatusCodes(2)
    for number in range(66):
        cached.code(unschedulable("P", str(number)))
    assert not cached.is_full
    cached.code(unschedulable("P", "one more"))
    assert cached.is_full
