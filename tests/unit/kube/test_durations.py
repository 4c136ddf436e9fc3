"""Durations in Go's text form."""

from __future__ import annotations

import pytest

from kubeloop.kube.durations import duration_seconds, duration_text, parse_duration_seconds
from kubeloop.kube.errors import UserError


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


@pytest.mark.parametrize("text", ["", "10", "s", "1 s", "1d", "1s 2s", "nan", "inf", "--1s", ".s", "1e3s", "٣s"])
def test_invalid_duration_is_none(text):
    assert duration_seconds(text) is None
    with pytest.raises(UserError, match="time: invalid duration"):
        parse_duration_seconds(text)


@pytest.mark.parametrize("text", ["0s", "5s", "300ms", "1m30s", "1h0m0s", "-2s", "-1m0.5s"])
def test_duration_is_formatted_like_go(text):
    assert duration_text(parse_duration_seconds(text)) == text
