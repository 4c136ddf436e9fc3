"""Cron schedules and time zones."""

from __future__ import annotations

import time
from datetime import UTC, datetime
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kubeloop.kube.values.cron_schedule import is_time_zone, parse_schedule, schedule_error
from kubeloop.kube.values.times import LATEST
from support.comparison.go_numbers import go_numbers


@pytest.mark.parametrize(
    "schedule",
    [
        "*/5 * * * ?",
        "0 0 1,15 JAN-mar sun",
        "@hourly",
        "@every 1h30m",
        "CRON_TZ=UTC 0 0 * * *",
        "59 23 31 12 6",
        "TZ= @daily",
        "TZ=Local @daily",
    ],
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
        pytest.param("", "empty spec string", id="empty"),
        pytest.param(
            "@every 1d",
            'failed to parse duration @every 1d: time: unknown unit "d" in duration "1d"',
            id="unit of a duration",
        ),
        pytest.param(
            "@every 1h1",
            'failed to parse duration @every 1h1: time: missing unit in duration "1h1"',
            id="duration without unit",
        ),
        pytest.param(
            "@every 99999999999h",
            'failed to parse duration @every 99999999999h: time: invalid duration "99999999999h"',
            id="duration beyond int64",
        ),
        pytest.param(
            "*/99999999999999999999 * * * *",
            'failed to parse int from 99999999999999999999: strconv.Atoi: parsing "99999999999999999999": value out of '
            "range",
            id="step beyond int64",
        ),
        pytest.param(
            "TZ=UTC", "invalid schedule format: runtime error: slice bounds out of range [:-1]", id="time zone alone"
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


def times(schedule: str, since: str, number: int = 3) -> list[str]:
    """Return the next times, in UTC."""
    moment: datetime | None = datetime.fromisoformat(since)
    following = []
    for _ in range(number):
        assert moment is not None
        moment = parse_schedule(schedule).next_after(moment)
        if moment is not None:
            following.append(moment.isoformat()[:19])
    return following


@pytest.mark.parametrize(
    ("schedule", "since", "expected"),
    [
        pytest.param(
            "TZ=UTC */20 * * * *",
            "2026-01-01T00:00:30Z",
            ["2026-01-01T00:20:00", "2026-01-01T00:40:00", "2026-01-01T01:00:00"],
            id="step",
        ),
        pytest.param("TZ=UTC 30 6-16/4 * * 1-5", "2026-01-02T15:00:00Z", ["2026-01-05T06:30:00"], id="weekend"),
        pytest.param("TZ=UTC 0 0 1,15 * fri", "2026-01-02T00:00:00Z", ["2026-01-09T00:00:00"], id="day or weekday"),
        pytest.param("TZ=UTC 0 0 */2 * fri", "2026-01-02T00:00:00Z", ["2026-01-03T00:00:00"], id="steps are no star"),
        pytest.param(
            "TZ=Pacific/Chatham 30 2 * * *",
            "2026-09-25T23:00:00Z",
            ["2026-09-26T13:45:00", "2026-09-27T12:45:00", "2026-09-28T12:45:00"],
            id="hour before a transition at 45 minutes",
        ),
        pytest.param(
            "TZ=Pacific/Chatham 30 3 * * 5,0",
            "2026-04-03T00:00:00Z",
            ["2026-04-04T13:45:00", "2026-04-04T14:45:00", "2026-04-09T14:45:00"],
            id="hour that occurs twice, transition at 45 minutes",
        ),
        pytest.param("TZ=UTC * * * * *", "9999-12-31T23:59:59Z", ["9999-12-31T23:59:59"], id="after the year 9999"),
        pytest.param("TZ=America/New_York 0 0 2 1 *", "0001-01-01T00:00:00Z", ["0001-01-02T04:56:02"], id="year 1"),
        pytest.param("TZ=UTC 0 0 29 2 ?", "2026-01-01T00:00:00Z", ["2028-02-29T00:00:00"], id="leap day"),
        pytest.param("TZ=UTC 0 0 31 2 *", "2026-01-01T00:00:00Z", [], id="no such day"),
        pytest.param("TZ=UTC @yearly", "2026-01-01T00:00:00Z", ["2027-01-01T00:00:00"], id="descriptor"),
        pytest.param(
            "@every 90m", "2026-01-01T00:00:00.5Z", ["2026-01-01T01:30:00", "2026-01-01T03:00:00"], id="interval"
        ),
        pytest.param("@every 1ms", "2026-01-01T00:00:00Z", ["2026-01-01T00:00:01"], id="shortest interval"),
        pytest.param(
            "TZ=Europe/Berlin 30 2 * * *",
            "2026-03-28T00:00:00Z",
            ["2026-03-28T01:30:00", "2026-03-30T00:30:00"],
            id="skipped hour",
        ),
        pytest.param(
            "TZ=Europe/Berlin 30 2 * * *",
            "2026-10-24T12:00:00Z",
            ["2026-10-25T00:30:00", "2026-10-25T01:30:00", "2026-10-26T01:30:00"],
            id="repeated hour",
        ),
        pytest.param(
            "CRON_TZ=Asia/Kathmandu 0 9 * * *", "2026-01-01T00:00:00Z", ["2026-01-01T03:15:00"], id="offset of 5:45"
        ),
        pytest.param(
            "TZ=America/Havana 0 0 * * *",
            "2026-03-07T12:00:00Z",
            ["2026-03-09T04:00:00"],
            id="skipped midnight",
        ),
    ],
)
def test_next_times(schedule: str, since: str, expected: list[str]) -> None:
    assert times(schedule, since, len(expected) or 1) == expected


def test_schedule_without_time_zone_is_in_local_time(monkeypatch: pytest.MonkeyPatch) -> None:
    with monkeypatch.context() as context:
        context.setenv("TZ", "America/New_York")
        time.tzset()
        following = times("0 12 * * *", "2026-07-01T00:00:00Z", 1)
    time.tzset()
    assert following == ["2026-07-01T16:00:00"]


RECORDED = Path(__file__).parents[3] / "support" / "comparison" / "cron_times.txt"
"""Zone, schedule and moment, and the next times by github.com/robfig/cron v3: random, around changes of the zone."""


def test_times_are_those_of_kubernetes_parser():
    for line in RECORDED.read_text().splitlines():
        schedule, since, expected = line.split(" | ")
        following = [f"{time}Z" for time in times(f"TZ={schedule}", since, len(expected.split()))]
        assert following == expected.replace("none", "").split(), line


@pytest.mark.parametrize("zone", ["Pacific/Apia", "Pacific/Fakaofo"])
def test_day_that_a_zone_skips_has_no_times(zone: str):
    """2011-12-30; Kubernetes' parser searches for ever."""
    assert times(f"TZ={zone} 0 12 31 * *", "2011-12-28T00:00:00Z", 1)[0].startswith("2011-12-3")
    assert times(f"TZ={zone} 0 12 30 12 *", "2011-12-28T00:00:00Z", 1)[0].startswith("2012-12-")


def test_schedules_with_huge_numbers_have_the_result_of_kubernetes_parser(monkeypatch: pytest.MonkeyPatch) -> None:
    with monkeypatch.context() as context:
        context.setenv("TZ", "UTC")
        time.tzset()
        for schedule, result in go_numbers("schedule"):
            error = schedule_error(schedule)
            if error:
                assert {"error": error} == result, schedule
            else:
                assert [f"{time}Z" for time in times(schedule, result["since"], 2)] == result["next"], schedule
    time.tzset()


@given(
    st.one_of(st.integers(-(2**63) + 1, 2**63 - 1), st.integers(-(10**12), 10**12)),
    st.datetimes(timezones=st.just(UTC)),
)
def test_interval_of_any_duration_is_whole_seconds_and_at_least_one(nanoseconds: int, moment: datetime) -> None:
    following = parse_schedule(f"@every {nanoseconds}ns").next_after(moment)
    assert following is not None
    seconds = max(1, nanoseconds // 10**9)
    start = moment.replace(microsecond=0)
    expected = seconds if seconds < (LATEST - start).total_seconds() else (LATEST - start).total_seconds()
    assert (following - start).total_seconds() == expected


@given(st.one_of(st.integers(2**63, 10**40), st.integers(-(10**40), -(2**63) - 1)))
def test_interval_beyond_int64_is_refused(nanoseconds: int) -> None:
    duration = f"{nanoseconds}ns"
    problem = f'failed to parse duration @every {duration}: time: invalid duration "{duration}"'
    assert schedule_error(f"@every {duration}") == problem
