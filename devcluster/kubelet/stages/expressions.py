"""CEL in stages: expressions about one object, `self`, with KWOK's functions for time, random numbers and quantities.

Source: KWOK's pkg/utils/cel, where functions are methods as well and quantities support arithmetic operators.
"""

from __future__ import annotations

import math
import random
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from kubeloop.cel.declarations import Overload
from kubeloop.cel.program import CelProgram
from kubeloop.cel.schema_values import parse_timestamp
from kubeloop.cel.syntax import ExpressionError, InstantiationError
from kubeloop.cel.types import DOUBLE, DYN, STRING, TIMESTAMP, Type
from kubeloop.cel.values import CelError, Duration, Timestamp, Uint, no_overload
from kubeloop.kube.cel_library import KUBERNETES_LIBRARY, QuantityValue
from kubeloop.kube.cel_library import quantity as parse_amount
from kubeloop.kube.json_object import JSON
from kubeloop.kube.values.quantities import Format, Quantity


@dataclass(frozen=True, slots=True)
class Moment:
    """Context of an evaluation: time and random numbers."""

    now: datetime
    rng: random.Random


class _Amount(QuantityValue):
    """A quantity that supports arithmetic and comparison."""

    __slots__ = ()

    def equals(self, other: Any) -> bool:
        return isinstance(other, QuantityValue) and self.quantity == other.quantity

    def operate(self, operator: str, other: Any) -> Any:
        if isinstance(other, QuantityValue):
            match operator:
                case "+":
                    return _Amount(self.quantity + other.quantity)
                case "-":
                    return _Amount(self.quantity - other.quantity)
                case "<=>":
                    return self.quantity.compare(other.quantity)
        elif type(other) in (int, Uint, float) and operator in ("*", "/"):
            milli = self.quantity.milli_value()
            if operator == "/" and not other:
                raise CelError("division by zero")
            scaled = milli * other if operator == "*" else milli / other
            return _Amount(Quantity(int(scaled), -3, Format.DECIMAL_SI))
        raise no_overload()


def _now(moment: Moment) -> Timestamp:
    return Timestamp(int(moment.now.timestamp() * 1_000_000) * 1000)


def _since_second(moment: Moment, obj: Any) -> float:
    """Return the age of an object in seconds."""
    created = ((obj.get("metadata") or {}).get("creationTimestamp") or "") if isinstance(obj, dict) else ""
    created_at = parse_timestamp(created)
    if created_at is None:
        raise CelError("SinceSecond: the object has no creationTimestamp")
    return moment.now.timestamp() - created_at.nanoseconds / 1e9


def _unix_second(_moment: Moment, time: Any) -> float:
    if type(time) is not Timestamp:
        raise no_overload()
    return float(time.nanoseconds / 1e9)


def _quantity(_moment: Moment, text: Any) -> _Amount:
    return _Amount(parse_amount(text).quantity)


def _declared(name: str, result: Type, *arguments: Type) -> list[Overload]:
    """Declare a function, and a method of its first argument."""
    overloads = [Overload(f"stage_{name}", arguments, result, False, frozenset())]
    return (
        [*overloads, Overload(f"stage_method_{name}", arguments, result, True, frozenset())] if arguments else overloads
    )


_LIBRARY = KUBERNETES_LIBRARY.extended(
    {
        "Now": _declared("Now", TIMESTAMP),
        "Rand": _declared("Rand", DOUBLE),
        "SinceSecond": _declared("SinceSecond", DOUBLE, DYN),
        "UnixSecond": _declared("UnixSecond", DOUBLE, TIMESTAMP),
        "Quantity": _declared("Quantity", DYN, STRING),
    },
    {
        "Now": _now,
        "Rand": lambda moment: moment.rng.random(),
        "SinceSecond": _since_second,
        "UnixSecond": _unix_second,
        "Quantity": _quantity,
    },
)


class InvalidExpression(ValueError):
    """The text is not a valid expression."""


class StageExpression:
    """A compiled expression about an object."""

    def __init__(self, text: str) -> None:
        """Raises WrongExpression."""
        try:
            self._program = CelProgram(text, {"self": DYN}, _LIBRARY)
        except (ExpressionError, InstantiationError) as error:
            raise InvalidExpression(str(error)) from None

    def value(self, obj: JSON, moment: Moment) -> Any:
        """Evaluate the expression. Raises CelError if it fails for this object."""
        outcome = self._program.run({"self": obj}, context=moment)
        if outcome.error:
            raise CelError(outcome.error)
        return outcome.value

    def holds(self, obj: JSON, moment: Moment) -> bool:
        """Return True if the result is true; an expression that fails does not select the object."""
        try:
            return self.value(obj, moment) is True
        except CelError:
            return False

    def whole(self, obj: JSON, moment: Moment) -> int | None:
        """Return the result as a weight; None if it is not a number."""
        try:
            value = self.value(obj, moment)
        except CelError:
            return None
        if type(value) in (int, Uint, float, bool):
            return max(0, int(value)) if math.isfinite(value) else None
        return max(0, value.nanoseconds) if type(value) is Duration else None

    def seconds(self, obj: JSON, moment: Moment) -> float | str | None:
        """Return the result as a delay: a duration or a number of nanoseconds; a string is returned unparsed."""
        try:
            value = self.value(obj, moment)
        except CelError:
            return None
        if type(value) is Duration:
            return float(value.nanoseconds / 1e9)
        if type(value) in (int, Uint, float):
            return float(value / 1e9) if math.isfinite(value) else None
        return value if type(value) is str else None
