"""Integers as Go reads and computes them, for annotations, 32-bit fields and percentages.

May import `kubeloop.kube` only. Source: Go's strconv.ParseInt and ParseUint, apimachinery util/intstr.
"""

from __future__ import annotations

import math
import re

from kubeloop.kube.objects.api_types import IntOrString
from kubeloop.kube.values.integers import parse_integer

MAX_INT32 = (1 << 31) - 1
_INTEGER = re.compile(r"[+-]?[0-9]+", re.ASCII)
_DIGITS = re.compile(r"[0-9]+", re.ASCII)


class InvalidInteger(ValueError):
    """The text is not an integer of that size; `nearest` is the number that Go returns with the error."""

    def __init__(self, text: str, problem: str, nearest: int) -> None:
        super().__init__(f'strconv.ParseInt: parsing "{text}": {problem}')
        self.nearest = nearest


def parse_int(text: str, bits: int = 64) -> int:
    """Return the decimal integer `text` if it fits `bits` bits. Raises InvalidInteger."""
    if _INTEGER.fullmatch(text) is None:
        raise InvalidInteger(text, "invalid syntax", 0)
    number = parse_integer(text)
    lowest, highest = -(1 << (bits - 1)), (1 << (bits - 1)) - 1
    if not lowest <= number <= highest:
        raise InvalidInteger(text, "value out of range", lowest if number < 0 else highest)
    return number


def int_or_none(text: str | None) -> int | None:
    """Return the decimal integer `text` if it fits 64 bits, else None."""
    if text is None:
        return None
    try:
        return parse_int(text)
    except InvalidInteger:
        return None


def non_negative_int32(text: str | None) -> int | None:
    """Return the value of a text of digits (no sign, no space) that fits a non-negative int32, else None."""
    if text is None or _DIGITS.fullmatch(text) is None:
        return None
    number = parse_integer(text)
    return number if number <= MAX_INT32 else None


def wrap_int64(number: int) -> int:
    """Return a number as Go's int64 arithmetic would leave it: values out of range wrap around."""
    return (number + (1 << 63)) % (1 << 64) - (1 << 63)


def wrap_int32(number: int) -> int:
    """Return `number` after 32-bit two's complement overflow."""
    return (number + (1 << 31)) % (1 << 32) - (1 << 31)


def round_half_away_from_zero(number: float) -> int:
    """Return the nearest integer; halves are rounded away from zero."""
    return int(number - 0.5) if number < 0 else int(number + 0.5)


class InvalidIntOrPercent(ValueError):
    """The value is neither an integer nor a percentage."""


def scaled_value(value: IntOrString | None, total: int, *, round_up: bool) -> int:
    """Return an integer unchanged, or a percentage of `total`, rounded up or down. Raises InvalidIntOrPercent."""
    if value is None:
        raise InvalidIntOrPercent("nil value for IntOrString")
    if isinstance(value, int):
        return value
    if not value.endswith("%"):
        raise InvalidIntOrPercent("invalid value for IntOrString: invalid type: string is not a percentage")
    try:
        percent = parse_int(value[:-1])
    except InvalidInteger as error:
        problem = str(error).replace("ParseInt", "Atoi")
        raise InvalidIntOrPercent(f'invalid value for IntOrString: invalid value "{value}": {problem}') from error
    scaled = percent * total / 100
    return math.ceil(scaled) if round_up else math.floor(scaled)
