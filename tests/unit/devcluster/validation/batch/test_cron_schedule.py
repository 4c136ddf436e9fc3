"""Cron schedules and time zones."""

from __future__ import annotations

import pytest

from kubeloop.devcluster.validation.batch.cron_schedule import is_time_zone, schedule_error


@pytest.mark.parametrize(
    "schedule",
    ["*/5 * * * ?", "0 0 1,15 JAN-mar sun", "@hourly", "@every 1h30m", "CRON_TZ=UTC 0 0 * * *", "59 23 31 12 6"],
)
def test_valid_schedule_has_no_error(schedule: str) -> None:
    assert schedule_error(schedule) == ""


@pytest.mark.parametrize(
    ("schedule", "error"),
    [
        pytest.param("* * * *", "expected exactly 5 fields, found 4: [* * * *]", id="four fields"),
        pytest.param("60 * * * *", "end of range (60) above maximum (59): 60", id="minute 60"),
        pytest.param("* * 0 * *", "beginning of range (0) below minimum (1): 0", id="day 0"),
        pytest.param("30-10 * * * *", "beginning of range (30) beyond end of range (10): 30-10", id="reversed range"),
        pytest.param("*/0 * * * *", "step of range should be a positive number: */0", id="step of zero"),
        pytest.param("1-2-3 * * * *", "too many hyphens: 1-2-3", id="two hyphens"),
        pytest.param("1/2/3 * * * *", "too many slashes: 1/2/3", id="two slashes"),
        pytest.param(
            "a * * * *",
            'failed to parse int from a: strconv.Atoi: parsing "a": invalid syntax',
            id="letter",
        ),
        pytest.param("@fortnightly", "unrecognized descriptor: @fortnightly", id="unknown descriptor"),
        pytest.param(
            "@every day", 'failed to parse duration @every day: time: invalid duration "day"', id="invalid duration"
        ),
        pytest.param(
            "TZ=Mars/Base * * * * *",
            "provided bad location Mars/Base: unknown time zone Mars/Base",
            id="unknown time zone",
        ),
    ],
)
def test_invalid_schedule_error(schedule: str, error: str) -> None:
    assert schedule_error(schedule) == error


@pytest.mark.parametrize(("name", "valid"), [("UTC", True), ("Europe/Berlin", True), ("../etc/passwd", False)])
def test_time_zone_names(name: str, valid: bool) -> None:
    assert is_time_zone(name) == valid
