"""Times and durations at the limits of Go's types; the expected values are those of Go 1.26."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta, timezone

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kubeloop.kube.values import times
from kubeloop.kube.values.times import EARLIEST, LATEST

INT64 = st.integers(-(2**63), 2**63 - 1)
MOMENTS = st.datetimes(timezones=st.just(UTC))
T0 = datetime(2026, 1, 1, tzinfo=UTC)


@pytest.mark.parametrize(
    ("seconds", "nanoseconds"),
    [
        (0, 0),
        (-3, -3_000_000_000),
        (9_223_372_036, 9_223_372_036_000_000_000),
        (9_223_372_037, -9_223_372_036_709_551_616),
        (-9_223_372_037, 9_223_372_036_709_551_616),
        (10**12, 3_875_820_019_684_212_736),
        (10**11, 7_766_279_631_452_241_920),
        (2**63 - 1, -1_000_000_000),
        (-(2**63), 0),
    ],
)
def test_seconds_wrap_around_as_in_go(seconds, nanoseconds):
    assert times.go_duration(seconds) == nanoseconds
    assert times.go_duration_seconds(seconds) == pytest.approx(nanoseconds / 1e9)
    assert times.time_plus(T0, seconds) - T0 == timedelta(microseconds=nanoseconds // 1000)


@given(MOMENTS, INT64)
def test_time_plus_seconds_is_go_s_restricted_to_years(moment, seconds):
    exact = (moment - EARLIEST) // timedelta(microseconds=1) + times.go_duration(seconds) // 1000
    last = (LATEST - EARLIEST) // timedelta(microseconds=1)
    expected = EARLIEST + timedelta(microseconds=min(last, max(0, exact)))
    assert abs(times.time_plus(moment, seconds) - expected) <= timedelta(microseconds=1)


@given(MOMENTS, st.floats(-1e12, 1e12))
def test_time_plus_parsed_duration_does_not_wrap(moment, seconds):
    result = times.time_plus(moment, seconds)
    assert result == (LATEST if seconds > 0 else EARLIEST) or (abs((result - moment).total_seconds() - seconds) < 1e-3)


@given(MOMENTS, MOMENTS)
def test_seconds_between_times_are_at_most_292_years(start, end):
    seconds = times.seconds_between(start, end)
    assert seconds == max(-(2**63) / 1e9, min((2**63 - 1) / 1e9, (end - start).total_seconds()))


@given(MOMENTS)
def test_epoch_of_a_time(moment):
    assert times.epoch_seconds(moment) == (moment - datetime(1970, 1, 1, tzinfo=UTC)) // timedelta(seconds=1)
    assert 0 <= times.epoch_ns(moment) < 2**63


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (0, "1970-01-01T00:00:00Z"),
        (-62_135_596_800, "0001-01-01T00:00:00Z"),
        (-62_135_596_801, "0000-12-31T23:59:59Z"),
        (-62_167_219_201, "-0001-12-31T23:59:59Z"),
        (253_402_300_799, "9999-12-31T23:59:59Z"),
        (253_402_300_800, "10000-01-01T00:00:00Z"),
        (2**62, "146138514283-06-19T07:45:04Z"),
        (-(2**62), "-146138510344-07-14T16:14:56Z"),
        (2**63 - 1, "292277026596-12-04T15:30:07Z"),
        (-(2**63), "292277026596-12-04T15:30:08Z"),  # Go's calendar wraps around
        (-9_223_372_028_741_760_000, "-292277022400-03-01T00:00:00Z"),
        (-9_223_372_028_715_321_601, "-292277022400-12-31T23:59:59Z"),
    ],
)
def test_text_of_every_int64(seconds, text):
    assert times.time_text(seconds) == text
    assert times.time_text(seconds, 7) == text.replace("Z", ".000007Z")


@given(INT64, st.integers(0, 999_999))
def test_text_has_the_seconds_that_it_was_made_of(seconds, microseconds):
    text = times.time_text(seconds, microseconds)
    parsed, fraction = times.text_seconds(text)
    assert ((parsed - seconds) % 2**64, fraction) == (0, microseconds)
    assert EARLIEST <= times.parse_time(text) <= LATEST


@given(MOMENTS)
def test_text_of_a_datetime_is_parsed_to_it(moment):
    assert times.parse_time(moment.isoformat()) == moment
    assert times.parse_time(f"{moment.isoformat()[:19]}Z") == moment.replace(microsecond=0)


@pytest.mark.parametrize("text", ["", "2026-01-01", "2026-01-01T00:00:00", "2026-13-01T00:00:00Z", "x", "10000-99-01T"])
def test_other_texts_are_no_times(text):
    with pytest.raises(ValueError, match=r"."):
        times.parse_time(text)


def test_offset_is_subtracted():
    assert times.text_seconds("0001-01-01T00:00:00+14:00") == (times.ZERO_TIME_SECONDS - 14 * 3600, 0)
    assert times.parse_time("2026-01-01T02:00:00+02:00") == T0
    assert times.parse_time("10000-01-01T00:00:00Z") == LATEST
    assert times.parse_time("-0001-01-01T00:00:00Z") == EARLIEST


@pytest.mark.parametrize(
    ("text", "readable"),
    [
        ("0000-01-01T00:00:00Z", "0001-01-01T00:00:00Z"),
        ("-0001-01-01T00:00:00Z", "0001-01-01T00:00:00Z"),
        ("12345-01-01T00:00:00.000000Z", "9999-12-31T23:59:59Z"),
        ("2026-01-01T00:00:00Z", "2026-01-01T00:00:00Z"),
        ("web", "web"),
    ],
)
def test_readable_time(text, readable):
    assert times.readable_time(text) == readable


def test_time_in_another_zone_is_added_to():
    zone = timezone(timedelta(hours=14))
    assert times.time_plus(datetime(1, 1, 1, tzinfo=zone), -(2**33)) == EARLIEST
