"""Human-readable durations and times."""

from __future__ import annotations

import pytest

from kubeloop.tracing.views.time_format import format_duration, format_skew, format_time


@pytest.mark.parametrize(
    ("microseconds", "written"),
    [(0, "0 µs"), (0.4, "< 1 µs"), (850, "850 µs"), (1234, "1.23 ms"), (12_345, "12.3 ms"), (123_456, "123 ms"),
     (999_600, "1.00 s"), (59_990_000, "1 min 00 s"), (125_000_000, "2 min 05 s"), (12_000_000_000, "3 h 20 min")],
)  # fmt: skip
def test_duration_has_three_significant_digits(microseconds, written):
    assert format_duration(microseconds) == written


@pytest.mark.parametrize(
    ("bounds", "written"),
    [
        ((900, 1500), "node-1: 900 ms to 1.50 s ahead"),
        ((2000, None), "node-1: 2.00 s or more ahead"),
        ((-3000, -1000), "node-1: 1.00 s to 3.00 s behind"),
    ],
)
def test_skew_has_its_bounds(bounds, written):
    assert format_skew("node-1", *bounds) == written


def test_time_beyond_calendar_is_formatted():
    assert format_time(1_700_000_000_123_456_789) == "2023-11-14 22:13:20.123 UTC"
    assert format_time((1 << 64) - 1) == "2554-07-21 23:34:33.709 UTC"
    assert format_time(1 << 80).endswith("s after 1970")
