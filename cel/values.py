"""Run-time values: classes for CEL types that Python lacks; types, equality, ordering and arithmetic of all values.

    CEL         Python          CEL         Python
    bool        bool            null        None
    int         int             list        list or schema_values.TypedList
    uint        Uint            map         dict or schema_values.TypedMap
    double      float           timestamp   Timestamp
    string      str             duration    Duration
    bytes       bytes           type        TypeValue
    optional    Optional        others      subclasses of Opaque

CEL errors are exceptions. Sources: cel-go common/types, common/types/overflow.go.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Callable
from datetime import UTC, datetime, timedelta, tzinfo
from typing import Any, Final

MAX_INT, MIN_INT, MAX_UINT = (1 << 63) - 1, -(1 << 63), (1 << 64) - 1
_MIN_UNIX, _MAX_UNIX = -62135596800, 253402300799
_SECOND = 1_000_000_000


class CelError(Exception):
    """Evaluation error of an expression."""


class CostExceeded(Exception):
    """The cost limit is exceeded; unlike a CelError, no operator of the expression can absorb it."""


class NoOverload(CelError):
    """No overload of the function accepts these argument types."""


def no_overload() -> NoOverload:
    return NoOverload("no such overload")


def no_operator(operator: str, value: Any) -> CelError:
    """Return the error for an operator that the value's type lacks; types with methods omit the operator's name."""
    error = no_overload()
    return error if type(value) in (str, Timestamp, Duration) else CelError(f"{error}: {operator}")


class Uint(int):
    """An unsigned integer. Arithmetic returns plain ints, which callers convert back."""

    __slots__ = ()

    def __repr__(self) -> str:
        return f"{int(self)}u"


class Duration:
    """A duration in nanoseconds."""

    __slots__ = ("nanoseconds",)

    def __init__(self, nanoseconds: int) -> None:
        self.nanoseconds = nanoseconds

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Duration) and self.nanoseconds == other.nanoseconds

    def __hash__(self) -> int:
        return hash(self.nanoseconds)

    def __str__(self) -> str:
        """Return the seconds in the shortest form that is the same 64-bit float, as Go writes them."""
        return f"{decimal_string(self.nanoseconds / _SECOND)}s"


class Timestamp:
    """Nanoseconds since 1970, and the UTC offset in seconds, which only affects the string form."""

    __slots__ = ("nanoseconds", "offset")

    def __init__(self, nanoseconds: int, offset: int = 0) -> None:
        self.nanoseconds, self.offset = nanoseconds, offset

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Timestamp) and self.nanoseconds == other.nanoseconds

    def __hash__(self) -> int:
        return hash(self.nanoseconds)

    def date(self, zone: tzinfo = UTC) -> datetime:
        """Return the time with microsecond precision. Raises OverflowError for the years 0 and 10000."""
        moment = datetime(1970, 1, 1, tzinfo=UTC) + timedelta(microseconds=self.nanoseconds // 1000)
        return moment.astimezone(zone)

    def plus_seconds(self, seconds: int) -> Timestamp:
        return Timestamp(self.nanoseconds + seconds * _SECOND, self.offset)

    def __str__(self) -> str:
        local = self.plus_seconds(self.offset).date()
        fraction = f"{self.nanoseconds % _SECOND:09d}".rstrip("0")
        text = f"{local.year:04d}-{local:%m-%dT%H:%M:%S}" + (f".{fraction}" if fraction else "")
        if not self.offset:
            return f"{text}Z"
        hours, minutes = divmod(abs(self.offset) // 60, 60)
        return f"{text}{'-' if self.offset < 0 else '+'}{hours:02d}:{minutes:02d}"


def timestamp(nanoseconds: int, offset: int = 0) -> Timestamp:
    """Return a timestamp. Raises CelError outside of the years 1 to 9999."""
    if not _MIN_UNIX <= nanoseconds // _SECOND <= _MAX_UNIX:
        raise CelError("timestamp overflow")
    return Timestamp(nanoseconds, offset)


def duration(nanoseconds: int) -> Duration:
    if not MIN_INT <= nanoseconds <= MAX_INT:
        raise CelError("duration overflow")
    return Duration(nanoseconds)


class TypeValue:
    """A type as a value, the result of type()."""

    __slots__ = ("name",)

    def __init__(self, name: str) -> None:
        self.name = name

    def __eq__(self, other: object) -> bool:
        return isinstance(other, TypeValue) and self.name == other.name

    def __hash__(self) -> int:
        return hash(self.name)

    def __str__(self) -> str:
        return self.name


class Optional:
    """An optional value (cel-go's optional_type)."""

    __slots__ = ("present", "value")

    def __init__(self, value: Any, *, present: bool = True) -> None:
        self.value, self.present = value, present

    def get(self) -> Any:
        if not self.present:
            raise CelError("optional.none() dereference")
        return self.value

    def __str__(self) -> str:
        return f"optional({display(self.value)})" if self.present else "optional.none()"


NONE: Final = Optional(None, present=False)


class Opaque(ABC):
    """A value of a type that a library adds; equal only to values of its own class.

    size: its size in costs. has_text: string() accepts the value.
    """

    __slots__ = ()
    type_name = ""
    size = 1
    has_text = False

    @abstractmethod
    def equals(self, other: Any) -> bool: ...

    def operate(self, operator: str, other: Any) -> Any:
        """Return the result of "+", "-", "*" or "/", or -1, 0 or 1 for "<=>"."""
        raise no_overload()


class ContainerValue(ABC):
    """A list or map other than Python's own (schema_values.TypedList and TypedMap)."""

    __slots__ = ()
    is_map = False
    type_name = ""  # set by classes that expressions see as a type of their own

    @abstractmethod
    def __len__(self) -> int: ...

    @abstractmethod
    def equals(self, other: Any) -> bool: ...

    def has_key(self, key: Any) -> bool:
        """Return the value of `key in self` for a map."""
        return bool(lookup(self, key)[1])


# --- type names and string forms --------------------------------------------------------------------------------------

_NAMES: dict[type, str] = {
    bool: "bool",
    int: "int",
    Uint: "uint",
    float: "double",
    str: "string",
    bytes: "bytes",
    type(None): "null_type",
    list: "list",
    dict: "map",
    Timestamp: "google.protobuf.Timestamp",
    Duration: "google.protobuf.Duration",
    TypeValue: "type",
    Optional: "optional_type",
}


def type_name(value: Any) -> str:
    """Return the name of a value's type, as type() and error messages show it."""
    name = _NAMES.get(type(value))
    if name is not None:
        return name
    if isinstance(value, ContainerValue):
        return value.type_name or ("map" if value.is_map else "list")
    return str(value.type_name) if isinstance(value, Opaque) else "unknown"


def is_list(value: Any) -> bool:
    return type(value) is list or (isinstance(value, ContainerValue) and not value.is_map)


def is_map(value: Any) -> bool:
    return type(value) is dict or (isinstance(value, ContainerValue) and value.is_map)


def decimal_string(number: float) -> str:
    """Return the shortest digits of a float, without an exponent."""
    text = repr(number)
    if "e" not in text:
        return text.removesuffix(".0")
    mantissa, _, exponent = text.partition("e")
    sign = "-" if mantissa.startswith("-") else ""
    whole, _, fraction = mantissa.lstrip("-").partition(".")
    digits, point = whole + fraction, len(whole) + int(exponent)
    if point <= 0:
        return f"{sign}0.{'0' * -point}{digits}".rstrip("0")
    return f"{sign}{digits.ljust(point, '0')}"


def scalar_string(value: Any) -> str | None:
    """Return a bool or number as a string, or None for other types."""
    kind = type(value)
    if kind is bool:
        return "true" if value else "false"
    if kind in (int, Uint):
        return str(int(value))
    return go_float(value) if kind is float else None


def go_float(number: float) -> str:
    """Format a float as Go's %g."""
    if math.isnan(number):
        return "NaN"
    if math.isinf(number):
        return "+Inf" if number > 0 else "-Inf"
    text = repr(number)
    mantissa, _, exponent = text.partition("e")
    digits = mantissa.replace(".", "").replace("-", "").lstrip("0").rstrip("0")
    if not digits:
        return "-0" if text.startswith("-") else "0"
    power = math.floor(math.log10(abs(number))) if not exponent else int(exponent)
    if -5 < power < 6:
        return decimal_string(number)
    sign = "-" if number < 0 else ""
    head = digits[0] + (f".{digits[1:]}" if digits[1:] else "")
    return f"{sign}{head}e{'-' if power < 0 else '+'}{abs(power):02d}"


def display(value: Any) -> str:
    """Return a value as error messages show it."""
    match value:
        case None:
            return "null"
        case bool():
            return "true" if value else "false"
        case int():
            return str(int(value))
        case float():
            return go_float(value)
        case bytes():
            return value.decode(errors="replace")
        case list():
            return f"[{', '.join(map(display, value))}]"
        case dict():
            return "{" + ", ".join(f"{display(key)}: {display(element)}" for key, element in value.items()) + "}"
    return str(value)


# --- equality and order -----------------------------------------------------------------------------------------------

_SCALAR_TYPES = frozenset({bool, int, Uint, float, str, bytes, type(None), Timestamp, Duration, TypeValue})


def equal(one: Any, other: Any) -> bool:
    """Return True if the values are equal; numbers of different types may be. Raises CelError if undefined."""
    kind, other_kind = type(one), type(other)
    if kind is other_kind and kind in _SCALAR_TYPES:
        return bool(one == other)
    if one is None or other is None:
        return one is other
    if isinstance(one, ContainerValue):
        return one.equals(other)
    if kind is list:
        if not is_list(other):
            return False
        return len(one) == len(other) and all(equal(a, b) for a, b in zip(one, other, strict=True))
    if kind is dict:
        return is_map(other) and len(one) == len(other) and all(_has_equal(other, key, one[key]) for key in one)
    if isinstance(one, Opaque):
        return one.equals(other)
    if kind is Optional:
        if other_kind is not Optional or one.present != other.present:
            return False
        return not one.present or equal(one.value, other.value)
    if kind in _NUMBERS and other_kind in _NUMBERS:
        return bool(one == other)
    return False


_NUMBERS = frozenset({int, Uint, float})


def _has_equal(container: Any, key: Any, value: Any) -> bool:
    other_value, present = lookup(container, key)
    return present and equal(value, other_value)


def lookup(container: Any, key: Any) -> tuple[Any, bool]:
    """Return (value of the map's key, True), or (None, False)."""
    if type(container) is dict:
        if type(key) is bool or type(key) not in (str, int, Uint, float):
            return (container[key], True) if _hashable(key) and _has_exact_key(container, key) else (None, False)
        return (container[key], True) if key in container and _has_exact_key(container, key) else (None, False)
    entry: tuple[Any, bool] = container.find(key)
    return entry


def _hashable(key: Any) -> bool:
    return type(key) in _SCALAR_TYPES


def _has_exact_key(container: dict[Any, Any], key: Any) -> bool:
    """Return True if the key is present with the same type: Python equates True with 1, CEL does not."""
    if key not in container:
        return False
    if type(key) is str or (key not in (0, 1)):
        return True
    return any(existing == key and (type(existing) is bool) == (type(key) is bool) for existing in container)


def compare(one: Any, other: Any) -> int:
    """Return -1, 0 or 1. Raises CelError if the values have no order."""
    kind, other_kind = type(one), type(other)
    if kind in _NUMBERS and other_kind in _NUMBERS:
        if one != one or other != other:  # noqa: PLR0124 # NaN
            raise CelError("NaN values cannot be ordered")
        return int(one > other) - int(one < other)
    if isinstance(one, Opaque):
        return int(one.operate("<=>", other))
    if kind is not other_kind or kind not in (str, bytes, bool, Timestamp, Duration):
        raise no_overload()
    if kind in (Timestamp, Duration):
        one, other = one.nanoseconds, other.nanoseconds
    elif kind is str and not (one.isascii() and other.isascii()):
        one, other = one.encode(), other.encode()
    return int(one > other) - int(one < other)


def has_order(value: Any) -> bool:
    return type(value) in (bool, int, Uint, float, str, bytes, Timestamp, Duration)


# --- arithmetic -------------------------------------------------------------------------------------------------------


def _checked_integer(kind: type, result: int) -> Any:
    if kind is Uint:
        if not 0 <= result <= MAX_UINT:
            raise CelError("unsigned integer overflow")
        return Uint(result)
    if not MIN_INT <= result <= MAX_INT:
        raise CelError("integer overflow")
    return result


def add(one: Any, other: Any) -> Any:
    kind, other_kind = type(one), type(other)
    if kind is other_kind:
        if kind is int or kind is Uint:
            return _checked_integer(kind, int(one) + int(other))
        if kind in (str, float, bytes):
            return one + other
        if kind is Duration:
            return duration(one.nanoseconds + other.nanoseconds)
    if kind is Timestamp and other_kind is Duration:
        return timestamp(one.nanoseconds + other.nanoseconds, one.offset)
    if kind is Duration and other_kind is Timestamp:
        return timestamp(one.nanoseconds + other.nanoseconds, other.offset)
    if is_list(one) and is_list(other):
        concatenate = getattr(one, "concatenate", None)
        return concatenate(other) if concatenate is not None else [*one, *other]
    if isinstance(one, Opaque):
        return one.operate("+", other)
    if is_map(one) or kind in (bool, type(None), Optional, TypeValue):
        raise no_operator("_+_", one)
    raise no_overload()


def subtract(one: Any, other: Any) -> Any:
    kind, other_kind = type(one), type(other)
    if kind is other_kind:
        if kind is int or kind is Uint:
            return _checked_integer(kind, int(one) - int(other))
        if kind is float:
            return one - other
        if kind is Duration:
            return duration(one.nanoseconds - other.nanoseconds)
        if kind is Timestamp:
            return duration(one.nanoseconds - other.nanoseconds)
    if kind is Timestamp and other_kind is Duration:
        return timestamp(one.nanoseconds - other.nanoseconds, one.offset)
    if isinstance(one, Opaque):
        return one.operate("-", other)
    if kind not in (int, Uint, float, Timestamp, Duration):
        raise no_operator("_-_", one)
    raise no_overload()


def _numeric(
    operator: str, on_integer: Callable[[type, Any, Any], Any], on_float: Callable[[float, float], float] | None
) -> Callable[[Any, Any], Any]:
    def apply(one: Any, other: Any) -> Any:
        kind = type(one)
        if kind is type(other):
            if kind is int or kind is Uint:
                return on_integer(kind, int(one), int(other))
            if kind is float and on_float is not None:
                return on_float(one, other)
        if isinstance(one, Opaque):
            return one.operate(operator[1], other)
        if kind not in (int, Uint, float) or (kind is float and on_float is None):
            raise no_operator(operator, one)
        raise no_overload()

    return apply


def _divided(kind: type, one: int, other: int) -> Any:
    if not other:
        raise CelError("division by zero")
    quotient = abs(one) // abs(other)
    return _checked_integer(kind, quotient if (one < 0) == (other < 0) else -quotient)


def _remainder(kind: type, one: int, other: int) -> Any:
    if not other:
        raise CelError("modulus by zero")
    remainder = abs(one) % abs(other)
    return _checked_integer(kind, -remainder if one < 0 else remainder)


def _float_divided(one: float, other: float) -> float:
    if other:
        return one / other
    if not one or one != one:  # noqa: PLR0124 # NaN
        return math.nan
    return math.copysign(math.inf, one) * math.copysign(1.0, other)


multiply = _numeric("_*_", lambda kind, one, other: _checked_integer(kind, one * other), lambda one, other: one * other)
divide = _numeric("_/_", _divided, _float_divided)
modulo = _numeric("_%_", _remainder, None)


def negate(value: Any) -> Any:
    kind = type(value)
    if kind is int:
        return _checked_integer(int, -value)
    if kind is float:
        return -value
    if kind is Duration:
        return duration(-value.nanoseconds)
    raise no_overload() if kind is bool else no_operator("-_", value)
