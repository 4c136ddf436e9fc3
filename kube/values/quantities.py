"""Resource quantities: "1500m", "1.5Gi", "2e3". Exact: integers and powers of ten, never a float.

A Quantity behaves as resource.Quantity of apimachinery v1.36, also beyond int64: there, value() and milli_value()
return what that library returns (0, or a wrapped value), because Kubernetes computes with it. As in that library, a
quantity has one of two states: *small* (an int64 times a power of ten) or a big decimal.

Imports `integers` only.
"""

from __future__ import annotations

import re
from enum import Enum
from functools import lru_cache

from kubeloop.kube.values.integers import parse_integer

_MAX_INT64 = (1 << 63) - 1
_MIN_INT64 = -(1 << 63)
_MAX_INT64_DIGITS = 18
_NANO = -9
_WRAPPING_SHIFTS = frozenset({1, 2, 3, 6, 9})  # Go multiplies once for these; for others digit by digit, ending in 0
_MAX_EXPONENT = 10_000  # of a big decimal; larger ones are only valid in a small quantity (Go would run out of memory)

_WRONG_FORMAT = "quantities must match the regular expression '^([+-]?[0-9.]+)([eEinumkKMGTP]*[-+]?[0-9]*)$'"
_WRONG_NUMBER = "unable to parse numeric part of quantity"
_WRONG_SUFFIX = "unable to parse quantity's suffix"


class QuantityError(ValueError):
    """Invalid quantity; the message is the API server's."""


class Format(Enum):
    """Format of a quantity, from the text that it was parsed from."""

    DECIMAL_SI = "DecimalSI"  # 12M
    BINARY_SI = "BinarySI"  # 12Mi
    DECIMAL_EXPONENT = "DecimalExponent"  # 12e6


_DECIMAL_SUFFIXES = {-9: "n", -6: "u", -3: "m", 0: "", 3: "k", 6: "M", 9: "G", 12: "T", 15: "P", 18: "E"}
_BINARY_SUFFIXES = {1: "Ki", 2: "Mi", 3: "Gi", 4: "Ti", 5: "Pi", 6: "Ei"}
_DECIMAL_EXPONENTS = {suffix: exponent for exponent, suffix in _DECIMAL_SUFFIXES.items()}
_BINARY_EXPONENTS = {suffix: 10 * power for power, suffix in _BINARY_SUFFIXES.items()}

# sign, leading zeros, whole digits, point, fraction, suffix
_SCAN = re.compile(
    r"([+-]?)(0*)([0-9]*)(?:(\.)([0-9]*))?([eEinumkKMGTP]*(?:(?<=[eEinumkKMGTP])[-+]?|[-+]?)[0-9]*)", re.ASCII
)
_SIGNED_INTEGER = re.compile(r"[+-]?[0-9]+", re.ASCII)


class Quantity:
    """unscaled * 10**exponent, exactly. Immutable; compared by value, whatever the format."""

    __slots__ = ("_original_text", "_small", "_unscaled", "exponent", "format")

    def __init__(
        self, unscaled: int, exponent: int, format_: Format, *, small: bool | None = None, original_text: str = ""
    ) -> None:
        """`original_text`: the parsed text, if the quantity is printed the same way."""
        self._unscaled = unscaled
        self.exponent = exponent
        self.format = format_
        self._small = _MIN_INT64 <= unscaled <= _MAX_INT64 if small is None else small
        self._original_text = original_text

    # --- reading ---------------------------------------------------------------------------------------------------

    @property
    def sign(self) -> int:
        """-1, 0 or 1."""
        return (self._unscaled > 0) - (self._unscaled < 0)

    @property
    def parts(self) -> tuple[bool, int, int, str]:
        """Fields of the Go struct: whether it is an int64, unscaled, exponent, cached text."""
        return self._small, self._unscaled, self.exponent, self._original_text

    def value(self) -> int:
        """Return whole units, rounded away from zero."""
        return self.scaled_value(0)

    def milli_value(self) -> int:
        """Return thousandths, rounded away from zero."""
        return self.scaled_value(-3)

    def nano(self) -> int:
        """Return 10**-9 units, the finest resolution, exact (or rounded away from zero if finer), never wrapped."""
        shift = self.exponent + 9
        if shift < 0:
            return _divided_away_from_zero(self._unscaled, -shift)
        factor: int = 10 ** min(shift, _MAX_EXPONENT)
        return self._unscaled * factor

    def scaled_value(self, exponent: int) -> int:
        """Return units of 10**exponent, rounded away from zero, as an int64 (see the module's docstring)."""
        shift = self.exponent - exponent  # digits to add; if negative, to remove
        if self._small:
            if shift < 0:
                return _divided_away_from_zero(self._unscaled, -shift)
            if shift > _MAX_INT64_DIGITS + 1:
                return 0
            scaled: int = self._unscaled * 10**shift
            if _MIN_INT64 <= scaled <= _MAX_INT64:
                return scaled
            return _wrapped(scaled) if shift in _WRAPPING_SHIFTS else 0
        if shift == 0:
            return _wrapped(self._unscaled)
        if shift > 0:
            # in Go, a float power of ten that does not fit becomes the smallest int64
            factor: int = 10**shift if shift <= _MAX_INT64_DIGITS else _MIN_INT64
            return _wrapped(_wrapped(self._unscaled) * factor)
        divisor: int = 10**-shift
        if self._unscaled < _MAX_INT64 and -shift < 19:
            whole, rest = _truncated(_wrapped(self._unscaled), divisor)
        else:
            whole, rest = divmod(self._unscaled, divisor)
        return _wrapped(_wrapped(whole) + 1) if rest else _wrapped(whole)

    def canonical(self) -> str:
        """Return the canonical form: no fraction, the largest suffix without loss."""
        if not self._unscaled:
            return "0"
        format_ = self.format
        if format_ is Format.BINARY_SI:
            whole, exact = self._whole()
            if exact and abs(whole) >= 1024:
                power = 0
                while whole % 1024 == 0 and abs(whole) >= 1024:
                    whole //= 1024
                    power += 1
                return f"{whole}{_BINARY_SUFFIXES.get(power, '')}"
            format_ = Format.DECIMAL_SI
        unscaled, exponent = _without_trailing_zeros(self._unscaled, self.exponent)
        surplus = exponent % 3
        unscaled, exponent = unscaled * 10**surplus, exponent - surplus
        if format_ is Format.DECIMAL_SI:
            # An exponent without a suffix is lost, as in the API server.
            return f"{unscaled}{_DECIMAL_SUFFIXES.get(exponent, '')}"
        return f"{unscaled}e{exponent}" if exponent else str(unscaled)

    def _whole(self) -> tuple[int, bool]:
        if self.exponent >= 0:
            return self._unscaled * 10 ** min(self.exponent, _MAX_EXPONENT), True
        whole, rest = _truncated(self._unscaled, 10**-self.exponent)
        return whole, not rest

    def __str__(self) -> str:
        """Return the text as the API prints it after parsing: the original if it is simple, else canonical."""
        return self._original_text or self.canonical()

    def __repr__(self) -> str:
        return f"Quantity({str(self)!r})"

    # --- comparing -------------------------------------------------------------------------------------------------

    def compare(self, other: Quantity) -> int:
        """Return -1, 0 or 1."""
        if self.sign != other.sign:
            return -1 if self.sign < other.sign else 1
        if not self._unscaled:
            return 0
        # Compare magnitudes first, so that 1e1000000 is not expanded.
        own_magnitude = len(str(abs(self._unscaled))) + self.exponent
        other_magnitude = len(str(abs(other._unscaled))) + other.exponent
        if own_magnitude != other_magnitude:
            return self.sign if own_magnitude > other_magnitude else -self.sign
        a, b, _ = _aligned(self, other)
        return (a > b) - (a < b)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Quantity) and self.compare(other) == 0

    def __hash__(self) -> int:
        return hash(_without_trailing_zeros(self._unscaled, self.exponent if self._unscaled else 0))

    def __lt__(self, other: Quantity) -> bool:
        return self.compare(other) < 0

    def __le__(self, other: Quantity) -> bool:
        return self.compare(other) <= 0

    # --- computing -------------------------------------------------------------------------------------------------

    def __add__(self, other: Quantity) -> Quantity:
        """Return the sum, in this quantity's format, or in `other`'s if this is zero."""
        format_ = self.format if self._unscaled else other.format
        if self._small and other._small:
            if not other._unscaled:
                return Quantity(self._unscaled, self.exponent, format_)
            if not self._unscaled:
                return Quantity(other._unscaled, other.exponent, format_)
        a, b, exponent = _aligned(self, other)
        fits = all(_MIN_INT64 <= number <= _MAX_INT64 for number in (a, b, a + b))
        return Quantity(a + b, exponent, format_, small=self._small and other._small and fits)

    def __sub__(self, other: Quantity) -> Quantity:
        """Return the difference, in this quantity's format, or in `other`'s if this is zero."""
        return self + -other

    def __neg__(self) -> Quantity:
        return Quantity(-self._unscaled, self.exponent, self.format, small=self._small)

    def __mul__(self, factor: int) -> Quantity:
        product = Quantity(self._unscaled * factor, self.exponent, self.format)
        product._small = product._small and self._small
        return product


def _aligned(a: Quantity, b: Quantity) -> tuple[int, int, int]:
    """Return both unscaled values at the smaller exponent, and that exponent."""
    exponent = min(a.exponent, b.exponent)
    if max(a.exponent, b.exponent) - exponent > 2 * _MAX_EXPONENT:
        raise QuantityError(_WRONG_NUMBER)
    return a._unscaled * 10 ** (a.exponent - exponent), b._unscaled * 10 ** (b.exponent - exponent), exponent


def _wrapped(number: int) -> int:
    """Return the low 64 bits, as int64."""
    return number if _MIN_INT64 <= number <= _MAX_INT64 else ((number - _MIN_INT64) & ((1 << 64) - 1)) + _MIN_INT64


def _truncated(number: int, divisor: int) -> tuple[int, int]:
    whole, rest = divmod(abs(number), divisor)
    return (whole, rest) if number >= 0 else (-whole, -rest)


def _divided_away_from_zero(number: int, digits: int) -> int:
    if digits > _MAX_INT64_DIGITS + 1:
        return (number > 0) - (number < 0)
    whole, rest = _truncated(number, 10**digits)
    return whole + ((number > 0) - (number < 0) if rest else 0)


def _without_trailing_zeros(unscaled: int, exponent: int) -> tuple[int, int]:
    digits = str(unscaled)
    zeros = len(digits) - len(digits.rstrip("0"))
    return (int(digits[:-zeros]), exponent + zeros) if zeros and unscaled else (unscaled, exponent)


_MAX_TEXT_LENGTH = 4000  # characters; Python does not parse longer numbers, Go does


@lru_cache(maxsize=1 << 14)
def _parse(text: str) -> Quantity:
    if text == "0":
        return Quantity(0, 0, Format.DECIMAL_SI, original_text="0")
    scan_match = _SCAN.fullmatch(text)
    if scan_match is None or not text:
        raise QuantityError(_WRONG_FORMAT)
    if len(text) > _MAX_TEXT_LENGTH:
        raise QuantityError(_WRONG_NUMBER)
    sign, _, whole, point, fraction, suffix = scan_match.groups(default="")
    whole = whole or "0"
    exponent, format_ = _parse_suffix(suffix)
    shifted = whole + fraction
    unit, power = 1, 0
    if format_ is Format.BINARY_SI:
        unit = 1 << exponent
        free_digits = 15 - len(whole) - exponent * 3 // 10 - 1 if not fraction else -1
    else:
        power = exponent
        free_digits = _MAX_INT64_DIGITS - len(shifted)
    if free_digits >= 0 and power - len(fraction) >= _NANO:
        power -= len(fraction)
        product = int(shifted) * unit
        if product <= _MAX_INT64:
            if format_ is Format.BINARY_SI:
                simple = int(shifted) & 7 != 0
            else:
                simple = power % 3 == 0 and not shifted.endswith("000") and shifted[0] != "0"
            # For zeros only, Go drops the text after the sign before it reads the suffix.
            bare_zero = not (scan_match[3] or point or suffix)
            original_text = text if simple and not bare_zero else ""
            return Quantity(
                -product if sign == "-" else product, power, format_, small=True, original_text=original_text
            )
    if not (scan_match[2] or scan_match[3] or fraction):
        raise QuantityError(_WRONG_NUMBER)
    if power > _MAX_EXPONENT:
        raise QuantityError(_WRONG_NUMBER)
    return _big_quantity(sign, int(shifted) * unit, power - len(fraction), format_)


def _big_quantity(sign: str, unscaled: int, exponent: int, format_: Format) -> Quantity:
    """Return a big quantity: rounded up to nano; a binary one is capped at int64."""
    if unscaled:
        if exponent >= _NANO:
            unscaled *= 10 ** (exponent - _NANO)
        elif _NANO - exponent > len(str(unscaled)):
            unscaled = 1  # a positive quantity stays positive
        else:
            unscaled = -(-unscaled // 10 ** (_NANO - exponent))
        exponent = _NANO
    if format_ is Format.BINARY_SI and unscaled:
        if unscaled > _MAX_INT64 * 10**-exponent:
            unscaled, exponent = _MAX_INT64, 0
        elif unscaled < 10**-exponent:
            format_ = Format.DECIMAL_SI
    return Quantity(-unscaled if sign == "-" else unscaled, exponent, format_, small=False)


def _parse_suffix(suffix: str) -> tuple[int, Format]:
    """Return exponent (base 10, or base 2 for binary suffixes) and format of a suffix."""
    if suffix in _DECIMAL_EXPONENTS:
        return _DECIMAL_EXPONENTS[suffix], Format.DECIMAL_SI
    if suffix in _BINARY_EXPONENTS:
        return _BINARY_EXPONENTS[suffix], Format.BINARY_SI
    if suffix[0] in "eE" and _SIGNED_INTEGER.fullmatch(suffix, 1):
        exponent = parse_integer(suffix[1:])
        if _MIN_INT64 <= exponent <= _MAX_INT64:
            return ((exponent + (1 << 31)) & ((1 << 32) - 1)) - (1 << 31), Format.DECIMAL_EXPONENT  # an int32
    raise QuantityError(_WRONG_SUFFIX)


def parse_quantity(quantity: str | int | float) -> Quantity:
    """Parse a quantity from JSON or YAML: a string or a number. Raises QuantityError.

    Source: apimachinery pkg/api/resource/quantity.go, ParseQuantity. Strings are not trimmed.
    """
    return _parse(quantity if isinstance(quantity, str) else repr(quantity))


@lru_cache(maxsize=1 << 16)
def milli_value(quantity: str | int | float) -> int:
    """Return thousandths (CPU: millicores), rounded away from zero. Cached. Raises QuantityError."""
    return parse_quantity(quantity).milli_value()


@lru_cache(maxsize=1 << 16)
def value(quantity: str | int | float) -> int:
    """Return whole units (memory: bytes), rounded away from zero. Cached. Raises QuantityError."""
    return parse_quantity(quantity).value()
