"""Sprig's arithmetic. Source: Sprig's numeric.go, functions.go."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterable
from decimal import ROUND_HALF_UP, Context, Decimal
from typing import Any

from kubeloop.devcluster.languages.gotemplate.signature import Function
from kubeloop.devcluster.languages.gotemplate.values import (
    FunctionError,
    Int64,
    go_print,
    to_float,
    to_int,
    to_int64,
)

MAX_RESULT = 1_000_000
"""Maximum number of elements, or characters, of a result: a wrong count must not exhaust the memory."""

_DECIMALS = Context(prec=800)  # float64 numbers have at most 767 significant digits
_QUOTIENT = Decimal("1e-16")  # shopspring/decimal divides with 16 places


def _divided(left: Any, right: Any) -> int:
    """Divide as Go: towards zero."""
    dividend, divisor = to_int(left), to_int(right)
    if divisor == 0:
        raise FunctionError("integer divide by zero")
    quotient = abs(dividend) // abs(divisor)
    return quotient if (dividend < 0) == (divisor < 0) else -quotient


def _numbers_until(start: int, stop: int, step: int) -> list[int]:
    if (stop < start) != (step < 0) or step == 0:
        return []
    numbers = range(start, stop, step)
    if len(numbers) > MAX_RESULT:
        raise FunctionError(f"a list has at most {MAX_RESULT} elements")
    return list(numbers)


def _sequence(*parameters: int) -> str:
    match parameters:
        case (end,):
            start, step = 1, 1 if end >= 1 else -1
        case (start, end):
            step = 1 if end >= start else -1
        case (start, step, end):
            if end < start and step > 0:
                return ""
        case _:
            return ""
    return " ".join(map(str, _numbers_until(start, end + (1 if end >= start else -1), step)))


def _decimal(operation: Callable[[Decimal, Decimal], Decimal]) -> Callable[..., float]:
    def apply(first: Any, *others: Any) -> float:
        numbers = [to_float(number) for number in (first, *others)]
        if not all(map(math.isfinite, numbers)):
            raise FunctionError("NaN and infinity have no decimal value")
        result, *operands = (Decimal(repr(number)) for number in numbers)
        for operand in operands:
            result = operation(result, operand)
        return float(result)

    return apply


def _quotient(left: Decimal, right: Decimal) -> Decimal:
    if not right:
        raise FunctionError("decimal division by 0")
    return _DECIMALS.divide(left, right).quantize(_QUOTIENT, ROUND_HALF_UP, _DECIMALS)


_SUM = _decimal(_DECIMALS.add)


def _rounded_to(function: Callable[[float], int], value: float) -> float:
    return float(function(value)) if math.isfinite(value) else value


def _rounded(value: Any, places: int, *round_up_from: float) -> float:
    power = 10.0**places
    digit = power * to_float(value)
    up = math.modf(digit)[0] >= (round_up_from[0] if round_up_from else 0.5)
    return _rounded_to(math.ceil if up else math.floor, digit) / power


def _extreme(choose: Callable[[Iterable[float]], float]) -> Callable[..., float]:
    return lambda *values: choose(map(to_float, values))


def _atoi(text: str) -> int:
    return int(text) if re.fullmatch(r"[+-]?\d+", text, re.ASCII) and abs(int(text)) < 2**63 else 0


def _octal(value: Any) -> Int64:
    text = go_print(value, inner=True)
    return to_int64(int(text, 8)) if re.fullmatch(r"[+-]?[0-7]{1,21}", text, re.ASCII) else Int64(0)


_MAX = Function(lambda *values: Int64(max(map(to_int, values))), "any ...any")

FUNCTIONS: dict[str, Function] = {
    "int": Function(to_int, "any"),
    "int64": Function(lambda value: Int64(to_int(value)), "any"),
    "float64": Function(to_float, "any"),
    "atoi": Function(_atoi, "string"),
    "toDecimal": Function(_octal, "any"),
    "add": Function(lambda *values: to_int64(sum(map(to_int, values))), "...any"),
    "add1": Function(lambda value: to_int64(to_int(value) + 1), "any"),
    "sub": Function(lambda left, right: to_int64(to_int(left) - to_int(right)), "any any"),
    "mul": Function(lambda *values: to_int64(math.prod(map(to_int, values))), "any ...any"),
    "div": Function(lambda left, right: to_int64(_divided(left, right)), "any any"),
    "mod": Function(lambda left, right: to_int64(to_int(left) - _divided(left, right) * to_int(right)), "any any"),
    "max": _MAX,
    "biggest": _MAX,
    "min": Function(lambda *values: Int64(min(map(to_int, values))), "any ...any"),
    "addf": Function(lambda *values: _SUM(0.0, *values), "...any"),
    "add1f": Function(lambda value: _SUM(value, 1.0), "any"),
    "subf": Function(_decimal(_DECIMALS.subtract), "any ...any"),
    "mulf": Function(_decimal(_DECIMALS.multiply), "any ...any"),
    "divf": Function(_decimal(_quotient), "any ...any"),
    "maxf": Function(_extreme(max), "any ...any"),
    "minf": Function(_extreme(min), "any ...any"),
    "ceil": Function(lambda value: _rounded_to(math.ceil, to_float(value)), "any"),
    "floor": Function(lambda value: _rounded_to(math.floor, to_float(value)), "any"),
    "round": Function(_rounded, "any int ...float"),
    "until": Function(lambda count: _numbers_until(0, count, -1 if count < 0 else 1), "int"),
    "untilStep": Function(_numbers_until, "int int int"),
    "seq": Function(_sequence, "...int"),
}
