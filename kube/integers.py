"""Integers in texts of users, which may have more digits than int() accepts."""

from __future__ import annotations

_READABLE_DIGITS = 40  # int() raises ValueError for some thousand digits, and takes quadratic time


def parse_integer(digits: str) -> int:
    """Parse decimal digits with a sign; a number of more than 40 digits becomes ±10**40, outside of every Go type."""
    sign = -1 if digits.startswith("-") else 1
    digits = digits.lstrip("+-").lstrip("0") or "0"
    return sign * (int(digits) if len(digits) <= _READABLE_DIGITS else 10**_READABLE_DIGITS)
