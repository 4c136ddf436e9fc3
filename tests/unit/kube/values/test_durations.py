"""Durations in Go's text form."""

from __future__ import annotations

import pytest

from kubeloop.kube.user_error import UserError
from kubeloop.kube.values.durations import duration_seconds, duration_text, parse_duration, parse_duration_seconds


@pytest.mark.parametrize(
    ("text", "seconds"),
    [
        ("10s", 10.0),
        ("1m30s", 90.0),
        ("1h2m3.5s", 3723.5),
        ("250ms", 0.25),
        (".5s", 0.5),
        ("2.h", 7200.0),
        ("3us", 3e-6),
        ("3µs", 3e-6),
        ("3μs", 3e-6),
        ("3ns", 3e-9),
        ("-2s", -2.0),
        ("+2s", 2.0),
        ("0", 0.0),
        ("-0", 0.0),
    ],
)
def test_duration_is_parsed(text, seconds):
    assert duration_seconds(text) == pytest.approx(seconds)
    assert parse_duration_seconds(text) == pytest.approx(seconds)


@pytest.mark.parametrize(
    ("text", "error"),
    [
        *((text, f'invalid duration "{text}"') for text in ("", "-", "s", "nan", "inf", "--1s", ".s", "-.s")),
        ("10", 'missing unit in duration "10"'),
        ("1h1", 'missing unit in duration "1h1"'),
        ("1.5.s", 'missing unit in duration "1.5.s"'),
        ("1d", 'unknown unit "d" in duration "1d"'),
        ("1 s", 'unknown unit " s" in duration "1 s"'),
        ("1s 2s", 'unknown unit "s " in duration "1s 2s"'),
        ("1e3s", 'unknown unit "e" in duration "1e3s"'),
        ("٣s", r'invalid duration "\xd9\xa3s"'),
        ('1"\\', r'unknown unit "\"\\" in duration "1\"\\"'),
        ("99999999999h", 'invalid duration "99999999999h"'),
        ("2562047h47m16.854775808s", 'invalid duration "2562047h47m16.854775808s"'),
        ("9223372036854775809ns", 'invalid duration "9223372036854775809ns"'),
        ("99999999999999999999d", 'invalid duration "99999999999999999999d"'),
    ],
)
def test_invalid_duration_has_the_message_of_go(text, error):
    assert duration_seconds(text) is None
    with pytest.raises(UserError) as caught:
        parse_duration_seconds(text)
    assert str(caught.value) == f"time: {error}"


@pytest.mark.parametrize(
    ("text", "nanoseconds"),
    [
        ("2562047h47m16.854775807s", 2**63 - 1),
        ("-2562047h47m16.854775808s", -(2**63)),
        ("0.33333333333333333333333h", 1_200_000_000_000),
        ("1.00000000000000000000001ns", 1),
        ("9223372036854775808ns9223372036854775808ns", 0),  # an overflow that Go does not detect
    ],
)
def test_duration_at_the_limit_is_exact(text, nanoseconds):
    assert parse_duration(text) == nanoseconds


@pytest.mark.parametrize(
    "text",
    ["0s", "5s", "300ms", "1m30s", "1h0m0s", "-2s", "-1m0.5s", "1.009µs", "9ns", "-1.5ms", "4h52m0.333333333s"],
)
def test_duration_is_formatted_like_go(text):
    assert duration_text(parse_duration_seconds(text)) == text
