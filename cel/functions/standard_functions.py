"""Standard functions, and the table of all functions by name.

The checker guarantees little about arguments of type dyn: functions raise CelError for values that they do not accept.
Source: cel-go common/stdlib, common/types.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable
from datetime import datetime
from functools import lru_cache
from typing import Any
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

from kubeloop.cel.functions import list_functions, string_functions
from kubeloop.cel.go_text import parse_integer, quoted
from kubeloop.cel.schema_values import parse_go_duration, parse_timestamp
from kubeloop.cel.values import (
    MAX_INT,
    MAX_UINT,
    MIN_INT,
    NONE,
    CelError,
    ContainerValue,
    Duration,
    NoOverload,
    Opaque,
    Optional,
    Timestamp,
    TypeValue,
    Uint,
    add,
    compare,
    divide,
    has_order,
    is_list,
    is_map,
    lookup,
    modulo,
    multiply,
    negate,
    no_operator,
    no_overload,
    scalar_string,
    subtract,
    timestamp,
    type_name,
)


def _conversion_error(value: Any, target: str) -> CelError:
    """Return the error of a failed conversion to `target`."""
    if type(value) is str:
        return CelError(f"type conversion error from 'string' to '{target}'")
    return no_overload()


def size(value: Any) -> int:
    if type(value) in (str, bytes, list, dict) or isinstance(value, ContainerValue):
        return len(value)
    raise CelError("no such overload: size")


def type_of(value: Any) -> TypeValue:
    return TypeValue(type_name(value))


def to_bool(value: Any) -> bool:
    if type(value) is bool:
        return value
    if type(value) is str and value in ("1", "t", "T", "true", "TRUE", "True"):
        return True
    if type(value) is str and value in ("0", "f", "F", "false", "FALSE", "False"):
        return False
    raise _conversion_error(value, "bool")


def to_bytes(value: Any) -> bytes:
    if type(value) is str:
        return value.encode()
    if type(value) is bytes:
        return value
    raise no_overload()


_FLOAT = re.compile(r"[+-]?(?:inf(?:inity)?|nan|(?:\d+\.?\d*|\.\d+)(?:e[+-]?\d+)?)", re.IGNORECASE | re.ASCII)


def to_double(value: Any) -> float:
    if type(value) in (int, Uint, float):
        return float(value)
    if type(value) is str and _FLOAT.fullmatch(value):
        number = float(value)
        if math.isfinite(number) or not re.search(r"\d", value):
            return number
    raise _conversion_error(value, "double")


def to_duration(value: Any) -> Duration:
    if type(value) is Duration:
        return value
    if type(value) is int:
        return Duration(value)
    nanoseconds = parse_go_duration(value) if type(value) is str else None
    if nanoseconds is None:
        raise _conversion_error(value, "google.protobuf.Duration")
    return Duration(nanoseconds)


def to_timestamp(value: Any) -> Timestamp:
    if type(value) is Timestamp:
        return value
    if type(value) is int:
        return timestamp(value * 10**9)
    parsed = parse_timestamp(value) if type(value) is str and "T" in value and value[-1:] in _TIMESTAMP_ENDS else None
    if parsed is None:
        raise _conversion_error(value, "google.protobuf.Timestamp")
    return timestamp(parsed.nanoseconds, parsed.offset)


_TIMESTAMP_ENDS = frozenset("Z0123456789")


def to_int(value: Any) -> int:
    kind = type(value)
    if kind in (int, Uint):
        if value > MAX_INT:
            raise CelError("integer overflow")
        return int(value)
    if kind is float:
        if math.isnan(value) or not -(2.0**63) < value < 2.0**63:
            raise CelError("integer overflow")
        return int(value)
    if kind is Duration:
        return int(value.nanoseconds)
    if kind is Timestamp:
        return int(value.nanoseconds // 10**9)
    if kind is str and re.fullmatch(r"[+-]?\d+", value, re.ASCII) and MIN_INT <= parse_integer(value) <= MAX_INT:
        return parse_integer(value)
    raise _conversion_error(value, "int")


def to_uint(value: Any) -> Uint:
    kind = type(value)
    if kind in (int, Uint):
        if value < 0:
            raise CelError("unsigned integer overflow")
        return Uint(value)
    if kind is float:
        if math.isnan(value) or not 0 <= value < 2.0**64:
            raise CelError("unsigned integer overflow")
        return Uint(value)
    if kind is str and re.fullmatch(r"\d+", value, re.ASCII) and parse_integer(value) <= MAX_UINT:
        return Uint(parse_integer(value))
    raise _conversion_error(value, "uint")


def to_string(value: Any) -> str:
    kind = type(value)
    if kind is str:
        return str(value)
    if (text := scalar_string(value)) is not None:
        return text
    if kind is bytes:
        try:
            return str(value.decode())
        except UnicodeDecodeError:
            raise CelError("invalid UTF-8 in bytes, cannot convert to string") from None
    if kind in (Timestamp, Duration) or (isinstance(value, Opaque) and value.has_text):
        return str(value)
    raise no_overload()


# --- times ------------------------------------------------------------------------------------------------------------


@lru_cache(maxsize=64)
def _zone(name: str) -> ZoneInfo | int:
    """Return a named time zone, or the UTC offset in seconds of a fixed one."""
    if ":" not in name:
        try:
            return ZoneInfo(name or "UTC")
        except (ZoneInfoNotFoundError, ValueError):
            raise CelError(f"unknown time zone {name}") from None
    hours, _, minutes = name.partition(":")
    for part in (hours, minutes):
        if not re.fullmatch(r"[+-]?\d+", part, re.ASCII):
            raise CelError(f"strconv.Atoi: parsing {quoted(part)}: invalid syntax")
    return 60 * (parse_integer(hours) * 60 + (-1 if name.startswith("-") else 1) * parse_integer(minutes))


_CALENDAR_YEARS = 400
_CALENDAR_SECONDS = 146_097 * 24 * 3600
"""Length of a cycle of the Gregorian calendar: dates and weekdays repeat after it."""


def _date(value: Timestamp, zone: ZoneInfo | int) -> tuple[datetime, int]:
    """Return (date, years to add to it). Dates outside of Python's years 1 to 9999 are moved by a calendar cycle."""
    if isinstance(zone, int):
        value, zone = value.plus_seconds(zone), _UTC
    try:
        return value.date(zone), 0
    except OverflowError:
        ahead = 1 if value.nanoseconds < 0 else -1
    try:
        return value.plus_seconds(ahead * _CALENDAR_SECONDS).date(zone), -ahead * _CALENDAR_YEARS
    except OverflowError:
        raise CelError("timestamp overflow") from None


_UTC = ZoneInfo("UTC")


def _timestamp_getter(read: Callable[[datetime, int], int]) -> Callable[..., int]:
    def get(value: Any, zone: Any = "UTC") -> int:
        if type(value) is not Timestamp or type(zone) is not str:
            raise no_overload()
        return read(*_date(value, _zone(zone)))

    return get


def _time_getter(unit: int, read: Callable[[datetime, int], int]) -> Callable[..., int]:
    """Return the getter of a duration's number of `unit` nanoseconds, or of a timestamp's field."""
    of_timestamp = _timestamp_getter(read)

    def get(value: Any, *zone: Any) -> int:
        if type(value) is not Duration:
            return of_timestamp(value, *zone)
        units = abs(value.nanoseconds) // unit
        return units if value.nanoseconds >= 0 else -units

    return get


# --- optionals --------------------------------------------------------------------------------------------------------


def _of_non_zero(value: Any) -> Optional:
    empty = value is None or ((is_list(value) or is_map(value) or type(value) in (str, bytes)) and not len(value))
    zero = type(value) in (bool, int, Uint, float) and not value
    zero = zero or (type(value) is Duration and not value.nanoseconds)
    return NONE if empty or zero else Optional(value)


def _value(value: Any) -> Any:
    if type(value) is not Optional:
        raise no_overload()
    return value.get()


def _has_value(value: Any) -> bool:
    if type(value) is not Optional:
        raise no_overload()
    return bool(value.present)


# --- operators --------------------------------------------------------------------------------------------------------


def contained(value: Any, container: Any) -> bool:
    """Return the value of `value in container`."""
    if is_list(container):
        return list_functions.contains(container, value)
    if type(container) is dict:
        return bool(lookup(container, value)[1])
    if is_map(container):
        return bool(container.has_key(value))
    raise no_overload()


def _ordering(operator: str, holds: Callable[[int], bool]) -> Callable[[Any, Any], bool]:
    def order(one: Any, other: Any) -> bool:
        try:
            return holds(compare(one, other))
        except NoOverload:
            raise no_overload() if has_order(one) else no_operator(operator, one) from None

    return order


FUNCTIONS: dict[str, Callable[..., Any]] = {
    "_+_": add,
    "_-_": subtract,
    "_*_": multiply,
    "_/_": divide,
    "_%_": modulo,
    "-_": negate,
    "_<_": _ordering("_<_", lambda order: order < 0),
    "_<=_": _ordering("_<=_", lambda order: order <= 0),
    "_>_": _ordering("_>_", lambda order: order > 0),
    "_>=_": _ordering("_>=_", lambda order: order >= 0),
    "@in": contained,
    "size": size,
    "type": type_of,
    "dyn": lambda value: value,
    "bool": to_bool,
    "bytes": to_bytes,
    "double": to_double,
    "duration": to_duration,
    "timestamp": to_timestamp,
    "int": to_int,
    "uint": to_uint,
    "string": to_string,
    "getFullYear": _timestamp_getter(lambda date, years: date.year + years),
    "getMonth": _timestamp_getter(lambda date, _years: date.month - 1),
    "getDayOfYear": _timestamp_getter(lambda date, _years: date.timetuple().tm_yday - 1),
    "getDayOfMonth": _timestamp_getter(lambda date, _years: date.day - 1),
    "getDate": _timestamp_getter(lambda date, _years: date.day),
    "getDayOfWeek": _timestamp_getter(lambda date, _years: date.isoweekday() % 7),
    "getHours": _time_getter(3600 * 10**9, lambda date, _years: date.hour),
    "getMinutes": _time_getter(60 * 10**9, lambda date, _years: date.minute),
    "getSeconds": _time_getter(10**9, lambda date, _years: date.second),
    "getMilliseconds": _time_getter(10**6, lambda date, _years: date.microsecond // 1000),
    "optional.of": Optional,
    "optional.ofNonZeroValue": _of_non_zero,
    "optional.none": lambda: NONE,
    "value": _value,
    "hasValue": _has_value,
    **string_functions.STRING_FUNCTIONS,
    **list_functions.LIST_FUNCTIONS,
}
"""Functions of this package by name, except operators that have closures of their own (closures.OPERATOR_CLOSURES)."""
