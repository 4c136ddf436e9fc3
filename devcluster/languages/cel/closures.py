"""What nodes become: closures over closures, which are given a run and return a value.

program.py puts them together. Each adds what it costs to its run.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Iterable
from math import ceil
from typing import TYPE_CHECKING, Any, TypeAlias

from kubeloop.devcluster.languages.cel import runtime_costs
from kubeloop.devcluster.languages.cel.values import (
    MAX_INT,
    MIN_INT,
    NONE,
    CelError,
    Container,
    CostExceeded,
    NoOverload,
    Optional,
    Uint,
    equal,
    is_list,
    is_map,
    lookup,
    no_overload,
    shown,
    type_name,
)

if TYPE_CHECKING:
    from kubeloop.devcluster.languages.regex.patterns import Pattern

MISSING: Any = object()
"""The value of a variable that has none."""


class Run:
    """One evaluation: the variables by their number, what it has cost, and what functions of a library may ask."""

    __slots__ = ("context", "cost", "limit", "variables")

    def __init__(self, variables: list[Any], limit: float, context: Any) -> None:
        self.variables = variables
        self.context = context
        self.cost = 0
        self.limit = limit


Closure: TypeAlias = Callable[[Run], Any]


class Constant:
    """The closure of what is the same in every run, and costs nothing."""

    __slots__ = ("value",)

    def __init__(self, value: Any) -> None:
        self.value = value

    def __call__(self, _run: Run) -> Any:
        return self.value


# --- calls -----------------------------------------------------------------------------------------------------------


def in_texts(value: Closure, known: frozenset[str]) -> Closure:
    def contained(run: Run) -> bool:
        found = value(run)
        return type(found) is str and found in known

    return contained


def refusal(name: str, *values: Any) -> CelError:
    """What a function of that name says to values that it does not take; "" for those that do not tell."""
    types = ", ".join(map(type_name, values))
    return CelError(f"no such overload: {name}({types})") if name else no_overload()


WRONG_TYPE = (NoOverload, TypeError)
"""What functions raise for values of types that they are not for, some of which they find out by trying."""


def with_context(
    function: Callable[..., Any],
    args: list[Closure],
    cost: Callable[[tuple[Any, ...], Any], int] | None,
    name: str,
) -> Closure:
    """A call of a function of one's own."""

    def call(run: Run) -> Any:
        values = tuple([each(run) for each in args])
        try:
            result = function(run.context, *values)
        except WRONG_TYPE:
            raise refusal(name, *values) from None
        run.cost += 1 if cost is None else cost(values, result)
        return result

    return call


def applied(
    function: Callable[..., Any], args: list[Closure], cost: Callable[[tuple[Any, ...]], int] | None, name: str
) -> Closure:
    """A call. name: see refusal()."""
    if len(args) == 1 and cost is None:
        only = args[0]

        def unary(run: Run) -> Any:
            run.cost += 1
            value = only(run)
            try:
                return function(value)
            except WRONG_TYPE:
                raise refusal(name, value) from None

        return unary
    if len(args) == 2 and cost is None:
        first, second = args

        def binary(run: Run) -> Any:
            run.cost += 1
            one, other = first(run), second(run)
            try:
                return function(one, other)
            except WRONG_TYPE:
                raise refusal(name, one, other) from None

        return binary

    def call(run: Run) -> Any:
        values = tuple([each(run) for each in args])
        run.cost += 1 if cost is None else cost(values)
        if run.cost > run.limit:
            raise CostExceeded
        try:
            return function(*values)
        except WRONG_TYPE:
            raise refusal(name, *values) from None

    return call


def matched(text: Closure, pattern: Pattern, size: int) -> Closure:
    """matches() with a pattern that is known, of `size` characters."""
    factor = ceil(size * runtime_costs.REGEX_LENGTH_FACTOR)

    def matches(run: Run) -> bool:
        value = text(run)
        if type(value) is not str:
            raise no_overload()
        run.cost += ceil((1 + len(value)) * runtime_costs.STRING_TRAVERSAL_FACTOR) * factor
        if run.cost > run.limit:
            raise CostExceeded
        return pattern.occurs_in(value)

    return matches


# --- fields and elements ----------------------------------------------------------------------------------------------


def field_of(value: Any, field: str) -> Any:
    if type(value) is dict:
        if field in value:
            return value[field]
    elif isinstance(value, Container) and value.is_map:
        found, there = lookup(value, field)
        if there:
            return found
    elif is_list(value):
        raise CelError(_NO_INDEX)
    raise CelError(f"no such key: {field}")


_NO_INDEX = "unsupported index type 'string' in list"


def present(value: Any, field: str) -> Any:
    if type(value) is Optional:
        return value.present and present(value.value, field)
    if type(value) is dict:
        return field in value
    if is_list(value):
        raise CelError(_NO_INDEX)
    return isinstance(value, Container) and value.is_map and bool(lookup(value, field)[1])


def optional_field(value: Any, field: str) -> Optional:
    return Optional(field_of(value, field)) if present(value, field) else NONE


def _index(value: Any, key: Any) -> tuple[Any, bool]:
    """(element or value, is it there). Raises CelError for what cannot be an index."""
    if is_map(value):
        found: tuple[Any, bool] = lookup(value, key)
        return found
    if is_list(value):
        if type(key) is float and key.is_integer():
            key = int(key)
        if type(key) is float:
            raise CelError(f"unsupported index value {shown(key)} in list")
        if type(key) not in (int, Uint):
            raise CelError(f"unsupported index type '{type_name(key)}' in list")
        return (value[key], True) if 0 <= key < len(value) else (None, False)
    return None, False


def _indexed(args: list[Closure]) -> Closure:
    of, by = args

    def index(run: Run) -> Any:
        value, key = of(run), by(run)
        run.cost += 1
        if type(value) is Optional:
            found, there = _index(value.value, key) if value.present else (None, False)
            return Optional(found) if there else NONE
        found, there = _index(value, key)
        if not there:
            told = "index out of bounds" if is_list(value) else "no such key"
            raise CelError(f"{told}: {shown(key)}")
        return found

    return index


def _indexed_if_present(args: list[Closure]) -> Closure:
    of, by = args

    def index(run: Run) -> Any:
        value, key = of(run), by(run)
        run.cost += 1
        if type(value) is Optional:
            if not value.present:
                return NONE
            value = value.value
        found, there = _index(value, key)
        return Optional(found) if there else NONE

    return index


def _selected_if_present(args: list[Closure]) -> Closure:
    of, name = args

    def select(run: Run) -> Any:
        value, field = of(run), name(run)
        run.cost += 1
        if type(value) is Optional:
            return optional_field(value.value, field) if value.present else NONE
        return optional_field(value, field)

    return select


# --- logic ------------------------------------------------------------------------------------------------------------


def _logical(args: list[Closure], *, decides: bool) -> Closure:
    """&& (decided by False) or || (by True): an error counts only if the other side does not decide."""
    left, right = args

    def either(run: Run) -> Any:
        error: CelError | None = None
        try:
            value = left(run)
            if value is decides:
                return decides
            if type(value) is not bool:
                error = no_overload()
        except CelError as failed:
            error = failed
        value = right(run) if error is None else _attempted(right, run)
        if value is decides:
            return decides
        if error is not None:
            raise error
        if type(value) is not bool:
            raise no_overload()
        return value

    return either


def _attempted(closure: Closure, run: Run) -> Any:
    try:
        return closure(run)
    except CelError:
        return None


def _negated(args: list[Closure]) -> Closure:
    operand = args[0]

    def negate(run: Run) -> bool:
        run.cost += 1
        value = operand(run)
        if type(value) is not bool:
            raise no_overload()
        return not value

    return negate


SAME_NUMBERS = (["int", "int"], ["double", "double"])
SAME_SCALARS = (*SAME_NUMBERS, ["bool", "bool"])
ORDERS: dict[str, Callable[[Any, Any], bool]] = {
    "_<_": operator.lt,
    "_<=_": operator.le,
    "_>_": operator.gt,
    "_>=_": operator.ge,
}
SUMS: dict[str, Callable[[Any, Any], int]] = {"_+_": operator.add, "_-_": operator.sub, "_*_": operator.mul}


def ordered(args: list[Closure], order: Callable[[Any, Any], bool]) -> Closure:
    """Numbers of one type, which is known."""
    left, right = args

    def compare(run: Run) -> bool:
        run.cost += 1
        one, other = left(run), right(run)
        if type(one) is not type(other) or one != one or other != other:  # noqa: PLR0124 # null, or NaN
            raise no_overload() if None in (one, other) else CelError("NaN values cannot be ordered")
        return order(one, other)

    return compare


def summed(args: list[Closure], reckon: Callable[[Any, Any], int]) -> Closure:
    left, right = args

    def summed(run: Run) -> int:
        run.cost += 1
        one, other = left(run), right(run)
        if type(one) is not int or type(other) is not int:
            raise no_overload()
        result = reckon(one, other)
        if not MIN_INT <= result <= MAX_INT:
            raise CelError("integer overflow")
        return result

    return summed


def scalar_equality(args: list[Closure], *, same: bool) -> Closure:
    left, right = args

    def compare(run: Run) -> bool:
        run.cost += 1
        return (left(run) == right(run)) is same

    return compare


def _conditional(args: list[Closure]) -> Closure:
    condition, then, otherwise = args

    def choose(run: Run) -> Any:
        value = condition(run)
        if value is True:
            return then(run)
        if value is False:
            return otherwise(run)
        raise no_overload()

    return choose


def _equality(args: list[Closure], *, same: bool) -> Closure:
    left, right = args

    def compare(run: Run) -> bool:
        one, other = left(run), right(run)
        if type(one) is str and type(other) is str:
            run.cost += (min(len(one), len(other)) + 9) // 10
            return (one == other) is same
        run.cost += runtime_costs.equality(one, other)
        return equal(one, other) is same

    return compare


def _or_optional(args: list[Closure]) -> Closure:
    left, right = args

    def choose(run: Run) -> Any:
        value = left(run)
        if type(value) is not Optional:
            return value
        return value if value.present else right(run)

    return choose


def _or_value(args: list[Closure]) -> Closure:
    left, right = args

    def choose(run: Run) -> Any:
        value = left(run)
        if type(value) is not Optional:
            return value
        return value.value if value.present else right(run)

    return choose


SPECIAL: dict[str, Callable[[list[Closure]], Closure]] = {
    "_&&_": lambda args: _logical(args, decides=False),
    "_||_": lambda args: _logical(args, decides=True),
    "!_": _negated,
    "_?_:_": _conditional,
    "_==_": lambda args: _equality(args, same=True),
    "_!=_": lambda args: _equality(args, same=False),
    "_[_]": _indexed,
    "_[?_]": _indexed_if_present,
    "_?._": _selected_if_present,
    "or": _or_optional,
    "orValue": _or_value,
}


# --- loops ------------------------------------------------------------------------------------------------------------


def singles(value: Any) -> Iterable[tuple[Any, ...]]:
    if is_list(value) or is_map(value):
        return zip(value)
    raise CelError(f"got '{_GO_TYPES.get(type(value), type_name(value))}', expected iterable type")


_GO_TYPES = {
    bool: "types.Bool",
    int: "types.Int",
    Uint: "types.Uint",
    float: "types.Double",
    str: "types.String",
    bytes: "types.Bytes",
    type(None): "types.Null",
}


def pairs(value: Any) -> Iterable[tuple[Any, ...]]:
    if is_list(value):
        return enumerate(value)
    if is_map(value):
        return ((key, lookup(value, key)[0]) for key in value)
    raise CelError(f"unsupported comprehension range type: {_GO_TYPES.get(type(value), type_name(value))}")


_Elements: TypeAlias = Callable[[Any], Iterable[tuple[Any, ...]]]


def _set(run: Run, slots: tuple[int, ...], element: tuple[Any, ...]) -> None:
    """Give the loop's variables their values, and see whether the loop has cost too much."""
    if run.cost > run.limit:
        raise CostExceeded
    run.variables[slots[0]] = element[0]
    if len(slots) > 1:
        run.variables[slots[1]] = element[1]


def quantified(
    over: Closure, elements: _Elements, slots: tuple[int, ...], predicate: Closure, *, ends_at: bool
) -> Closure:
    """all(), which ends at False, or exists(), which ends at True."""
    each_costs = 4 if ends_at else 3
    slot = slots[0] if len(slots) == 1 else -1

    def quantify(run: Run) -> Any:
        error: CelError | None = None
        run.cost += 1
        for element in elements(over(run)):
            if slot >= 0:
                if run.cost > run.limit:
                    raise CostExceeded
                run.variables[slot] = element[0]
            else:
                _set(run, slots, element)
            run.cost += each_costs
            try:
                value = predicate(run)
            except CelError as failed:
                error = error or failed
                continue
            if value is ends_at:
                run.cost += each_costs - 1
                return ends_at
            if type(value) is not bool:
                error = error or no_overload()
        if error is not None:
            raise error
        return not ends_at

    return quantify


def counted(over: Closure, elements: _Elements, slots: tuple[int, ...], condition: Closure) -> Closure:
    """exists_one()"""

    def count(run: Run) -> bool:
        found = 0
        run.cost += 2
        for element in elements(over(run)):
            _set(run, slots, element)
            run.cost += 1
            value = condition(run)
            if value is True:
                run.cost += 1
                found += 1
            elif value is not False:
                raise no_overload()
        return found == 1

    return count


def _passes(condition: Closure, run: Run) -> bool:
    value = condition(run)
    if type(value) is not bool:
        raise no_overload()
    return value


def listed(
    over: Closure, elements: _Elements, slots: tuple[int, ...], condition: Closure | None, made: Closure
) -> Closure:
    """map(), filter(), transformList()"""

    def collect(run: Run) -> list[Any]:
        found: list[Any] = []
        run.cost += 1 + runtime_costs.LIST_CREATE_COST
        for element in elements(over(run)):
            _set(run, slots, element)
            run.cost += 1
            if condition is None or _passes(condition, run):
                run.cost += 1 + runtime_costs.LIST_CREATE_COST
                found.append(made(run))
        return found

    return collect


def folded(
    over: Closure,
    elements: _Elements,
    slots: tuple[int, ...],
    init: Closure,
    condition: Closure | None,
    step: Closure,
) -> Closure:
    """transformMap(), transformMapEntry(); the last slot is the accumulator's."""
    accumulated = slots[-1]

    def fold(run: Run) -> Any:
        run.cost += 1
        run.variables[accumulated] = init(run)
        for element in elements(over(run)):
            _set(run, slots[:-1], element)
            if condition is None or _passes(condition, run):
                run.variables[accumulated] = step(run)
        return run.variables[accumulated]

    return fold
