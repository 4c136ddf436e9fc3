"""Durations in Go's format, as in metav1.Duration and in flags: "1h2m3.5s", "300ms". Source: Go's time package."""

from __future__ import annotations

import re

from kubeloop.kube.user_error import UserError
from kubeloop.kube.values.integers import parse_integer
from kubeloop.kube.values.times import quoted_text

_UNITS = {
    "ns": 1, "us": 1_000, "µs": 1_000, "μs": 1_000, "ms": 1_000_000, "s": 1_000_000_000, "m": 60_000_000_000,
    "h": 3_600_000_000_000,
}  # fmt: skip
_PART = re.compile(r"([0-9]*)(?:(\.)([0-9]*))?([^0-9.]*)")
_SECOND = 1_000_000_000
_MOST = 1 << 63


class InvalidDuration(ValueError):
    """The text is not a duration. The message is that of Go's time.ParseDuration."""


def parse_duration(text: str) -> int:
    """Parse a duration to nanoseconds, an int64. Raises InvalidDuration."""
    rest = text[1:] if text[:1] in ("-", "+") else text
    if rest == "0":
        return 0
    invalid = InvalidDuration(f"time: invalid duration {quoted_text(text)}")
    if not rest:
        raise invalid
    total = 0
    while rest:
        match = _PART.match(rest)
        assert match is not None
        whole, _, fraction, unit_name = match.groups("")
        number = parse_integer(whole)
        if not (whole or fraction) or number > _MOST:
            raise invalid
        if not unit_name:
            raise InvalidDuration(f"time: missing unit in duration {quoted_text(text)}")
        unit = _UNITS.get(unit_name)
        if unit is None:
            raise InvalidDuration(f"time: unknown unit {quoted_text(unit_name)} in duration {quoted_text(text)}")
        part = number * unit + _fraction(fraction, unit)
        total = (total + part) % (1 << 64)  # as in Go, where two parts of 1 << 63 add up to 0
        if part > _MOST or total > _MOST:
            raise invalid
        rest = rest[match.end() :]
    if text.startswith("-"):
        return -total
    if total == _MOST:
        raise invalid
    return total


def _fraction(digits: str, unit: int) -> int:
    """Return the nanoseconds of the digits after a point, rounded as in Go, which ignores those beyond an int64."""
    number, scale = 0, 1.0
    for digit in digits:
        if number > (_MOST - 1) // 10 or number * 10 + int(digit) > _MOST:
            break
        number, scale = number * 10 + int(digit), scale * 10
    return int(number * (unit / scale))


def duration_seconds(text: str) -> float | None:
    """Parse a duration to seconds; None if it is invalid. Any duration but zero needs a unit."""
    try:
        return parse_duration(text) / _SECOND
    except InvalidDuration:
        return None


def parse_duration_seconds(text: str) -> float:
    """Parse a duration to seconds. Raises UserError with Go's message."""
    try:
        return parse_duration(text) / _SECOND
    except InvalidDuration as error:
        raise UserError(str(error), hint='for example "5s" or "1m30s"') from None


def duration_text(seconds: float) -> str:
    """Format a duration, rounded to nanoseconds, as Go does: "1h0m0s", "5s", "300ms"."""
    nanoseconds = round(abs(seconds) * _SECOND)
    sign = "-" if seconds < 0 and nanoseconds else ""
    if not nanoseconds:
        return "0s"
    for unit, name in ((1, "ns"), (1_000, "µs"), (1_000_000, "ms")):
        if nanoseconds < unit * 1000:
            return f"{sign}{_decimal(nanoseconds, unit)}{name}"
    minutes, rest = divmod(nanoseconds, 60 * _SECOND)
    text = f"{_decimal(rest, _SECOND)}s"
    if minutes:
        text = f"{minutes % 60}m{text}"
    if minutes >= 60:
        text = f"{minutes // 60}h{text}"
    return sign + text


def _decimal(number: int, unit: int) -> str:
    """Return number / unit, for a unit that is a power of ten."""
    fraction = str(number % unit + unit)[1:].rstrip("0")
    return f"{number // unit}.{fraction}" if fraction else str(number // unit)
