"""Closures that evaluate nodes: each takes a Run, adds its cost to it, and returns a value.

program.py composes them.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Iterable
from math import ceil
from typing import Any, TypeAlias

from kubeloop.cel.costs import runtime_costs
from kubeloop.cel.regex import Pattern
from kubeloop.cel.values import (
    MAX_INT,
    MIN_INT,
    NONE,
    CelError,
    ContainerValue,
    CostExceeded,
    NoOverload,
    Optional,
    Uint,
    display,
    equal,
    is_list,
    is_map,
    lookup,
    no_overload,
    type_name,
)

MISSING: Any = object()
"""Value of a variable that is not set."""


class EvaluationRun:
    """State of one evaluation: variable values by slot, cost so far, cost limit, and context of library functions."""

    __slots__ = ("context", "cost", "limit", "variables")

    def __init__(self, variables: list[Any], limit: float, context: Any) -> None:
        self.variables = variables
        self.context = context
        self.cost = 0
        self.limit = limit


Closure: TypeAlias = Callable[[EvaluationRun], Any]


class ConstantClosure:
    """The closure of a constant; evaluating it costs nothing."""

    __slots__ = ("value",)

    def __init__(self, value: Any) -> None:
        self.value = value

    def __call__(self, _run: EvaluationRun) -> Any:
        return self.value


# --- calls -----------------------------------------------------------------------------------------------------------


def in_string_set(value: Closure, strings: frozenset[str]) -> Closure:
    def contained(run: EvaluationRun) -> bool:
        element = value(run)
        return type(element) is str and element in strings

    return contained


def no_matching_overload(name: str, *values: Any) -> CelError:
    """Return the error for values that no overload of function `name` accepts; "" omits name and types."""
    types = ", ".join(map(type_name, values))
    return CelError(f"no such overload: {name}({types})") if name else no_overload()


TYPE_ERRORS = (NoOverload, TypeError)
"""Errors that functions raise for arguments of unsupported types."""


def library_call(
    function: Callable[..., Any],
    args: list[Closure],
    cost: Callable[[tuple[Any, ...], Any], int] | None,
    name: str,
) -> Closure:
    """Return a call of a library function, which also receives the run's context."""

    def call(run: EvaluationRun) -> Any:
        values = tuple([argument(run) for argument in args])
        try:
            result = function(run.context, *values)
        except TYPE_ERRORS:
            raise no_matching_overload(name, *values) from None
        run.cost += 1 if cost is None else cost(values, result)
        return result

    return call


def function_call(
    function: Callable[..., Any], args: list[Closure], cost: Callable[[tuple[Any, ...]], int] | None, name: str
) -> Closure:
    """Return a function call. name: see no_matching_overload()."""
    if len(args) == 1 and cost is None:
        only = args[0]

        def unary(run: EvaluationRun) -> Any:
            run.cost += 1
            value = only(run)
            try:
                return function(value)
            except TYPE_ERRORS:
                raise no_matching_overload(name, value) from None

        return unary
    if len(args) == 2 and cost is None:
        first, second = args

        def binary(run: EvaluationRun) -> Any:
            run.cost += 1
            one, other = first(run), second(run)
            try:
                return function(one, other)
            except TYPE_ERRORS:
                raise no_matching_overload(name, one, other) from None

        return binary

    def call(run: EvaluationRun) -> Any:
        values = tuple([argument(run) for argument in args])
        run.cost += 1 if cost is None else cost(values)
        if run.cost > run.limit:
            raise CostExceeded
        try:
            return function(*values)
        except TYPE_ERRORS:
            raise no_matching_overload(name, *values) from None

    return call


def constant_pattern_match(text: Closure, pattern: Pattern, size: int) -> Closure:
    """Return a call of matches() with a constant pattern of `size` characters."""
    factor = ceil(size * runtime_costs.REGEX_LENGTH_FACTOR)

    def matches(run: EvaluationRun) -> bool:
        value = text(run)
        if type(value) is not str:
            raise no_overload()
        run.cost += ceil((1 + len(value)) * runtime_costs.STRING_TRAVERSAL_FACTOR) * factor
        if run.cost > run.limit:
            raise CostExceeded
        return pattern.occurs_in(value)

    return matches


# --- fields and elements ----------------------------------------------------------------------------------------------


def get_field(value: Any, field: str) -> Any:
    if type(value) is dict:
        if field in value:
            return value[field]
    elif isinstance(value, ContainerValue) and value.is_map:
        field_value, exists = lookup(value, field)
        if exists:
            return field_value
    elif is_list(value):
        raise CelError(_NO_INDEX)
    raise CelError(f"no such key: {field}")


_NO_INDEX = "unsupported index type 'string' in list"


def has_field(value: Any, field: str) -> Any:
    if type(value) is Optional:
        return value.present and has_field(value.value, field)
    if type(value) is dict:
        return field in value
    if is_list(value):
        raise CelError(_NO_INDEX)
    return isinstance(value, ContainerValue) and value.is_map and bool(lookup(value, field)[1])


def get_optional_field(value: Any, field: str) -> Optional:
    return Optional(get_field(value, field)) if has_field(value, field) else NONE


def _get_element(value: Any, key: Any) -> tuple[Any, bool]:
    """Return (element or value, True), or (None, False). Raises CelError for an invalid index."""
    if is_map(value):
        entry: tuple[Any, bool] = lookup(value, key)
        return entry
    if is_list(value):
        if type(key) is float and key.is_integer():
            key = int(key)
        if type(key) is float:
            raise CelError(f"unsupported index value {display(key)} in list")
        if type(key) not in (int, Uint):
            raise CelError(f"unsupported index type '{type_name(key)}' in list")
        return (value[key], True) if 0 <= key < len(value) else (None, False)
    return None, False


def _index_operator(args: list[Closure]) -> Closure:
    of, by = args

    def index(run: EvaluationRun) -> Any:
        value, key = of(run), by(run)
        run.cost += 1
        if type(value) is Optional:
            return _get_optional_element(value.value, key) if value.present else NONE
        element, exists = _get_element(value, key)
        if not exists:
            message = "index out of bounds" if is_list(value) else "no such key"
            raise CelError(f"{message}: {display(key)}")
        return element

    return index


def _get_optional_element(value: Any, key: Any) -> Optional:
    element, exists = _get_element(value, key)
    return Optional(element) if exists else NONE


def _optional_access(args: list[Closure], get: Callable[[Any, Any], Optional]) -> Closure:
    """Return an access with `get` to a value or to the value of an optional."""
    of, by = args

    def access(run: EvaluationRun) -> Optional:
        value, key = of(run), by(run)
        run.cost += 1
        if type(value) is not Optional:
            return get(value, key)
        return get(value.value, key) if value.present else NONE

    return access


# --- logic ------------------------------------------------------------------------------------------------------------


def _logical(args: list[Closure], *, decides: bool) -> Closure:
    """Return && (decides=False) or || (decides=True): an error counts only if the other operand does not decide."""
    left, right = args

    def either(run: EvaluationRun) -> Any:
        error: CelError | None = None
        try:
            value = left(run)
            if value is decides:
                return decides
            if type(value) is not bool:
                error = no_overload()
        except CelError as failed:
            error = failed
        value = right(run) if error is None else _value_or_none(right, run)
        if value is decides:
            return decides
        if error is not None:
            raise error
        if type(value) is not bool:
            raise no_overload()
        return value

    return either


def _value_or_none(closure: Closure, run: EvaluationRun) -> Any:
    try:
        return closure(run)
    except CelError:
        return None


def _not_operator(args: list[Closure]) -> Closure:
    operand = args[0]

    def negate(run: EvaluationRun) -> bool:
        run.cost += 1
        value = operand(run)
        if type(value) is not bool:
            raise no_overload()
        return not value

    return negate


SAME_NUMBERS = (["int", "int"], ["double", "double"])
SAME_SCALARS = (*SAME_NUMBERS, ["bool", "bool"])
NUMBER_COMPARISONS: dict[str, Callable[[Any, Any], bool]] = {
    "_<_": operator.lt,
    "_<=_": operator.le,
    "_>_": operator.gt,
    "_>=_": operator.ge,
}
INT_ARITHMETIC: dict[str, Callable[[Any, Any], int]] = {"_+_": operator.add, "_-_": operator.sub, "_*_": operator.mul}


def number_comparison(args: list[Closure], order: Callable[[Any, Any], bool]) -> Closure:
    """Return a comparison of numbers of one statically known type."""
    left, right = args

    def compare(run: EvaluationRun) -> bool:
        run.cost += 1
        one, other = left(run), right(run)
        if type(one) is not type(other) or one != one or other != other:  # noqa: PLR0124 # null, or NaN
            raise no_overload() if None in (one, other) else CelError("NaN values cannot be ordered")
        return order(one, other)

    return compare


def int_arithmetic(args: list[Closure], operation: Callable[[Any, Any], int]) -> Closure:
    left, right = args

    def int_arithmetic(run: EvaluationRun) -> int:
        run.cost += 1
        one, other = left(run), right(run)
        if type(one) is not int or type(other) is not int:
            raise no_overload()
        result = operation(one, other)
        if not MIN_INT <= result <= MAX_INT:
            raise CelError("integer overflow")
        return result

    return int_arithmetic


def scalar_equality(args: list[Closure], *, same: bool) -> Closure:
    left, right = args

    def compare(run: EvaluationRun) -> bool:
        run.cost += 1
        return (left(run) == right(run)) is same

    return compare


def _conditional(args: list[Closure]) -> Closure:
    condition, then, otherwise = args

    def choose(run: EvaluationRun) -> Any:
        value = condition(run)
        if value is True:
            return then(run)
        if value is False:
            return otherwise(run)
        raise no_overload()

    return choose


def _equality(args: list[Closure], *, same: bool) -> Closure:
    left, right = args

    def compare(run: EvaluationRun) -> bool:
        one, other = left(run), right(run)
        if type(one) is str and type(other) is str:
            run.cost += (min(len(one), len(other)) + 9) // 10
            return (one == other) is same
        run.cost += runtime_costs.equality(one, other)
        return equal(one, other) is same

    return compare


def _or_method(args: list[Closure], *, unwraps: bool) -> Closure:
    """Return or(), or orValue() (unwraps=True)."""
    left, right = args

    def choose(run: EvaluationRun) -> Any:
        value = left(run)
        if type(value) is not Optional:
            return value
        if not value.present:
            return right(run)
        return value.value if unwraps else value

    return choose


OPERATOR_CLOSURES: dict[str, Callable[[list[Closure]], Closure]] = {
    "_&&_": lambda args: _logical(args, decides=False),
    "_||_": lambda args: _logical(args, decides=True),
    "!_": _not_operator,
    "_?_:_": _conditional,
    "_==_": lambda args: _equality(args, same=True),
    "_!=_": lambda args: _equality(args, same=False),
    "_[_]": _index_operator,
    "_[?_]": lambda args: _optional_access(args, _get_optional_element),
    "_?._": lambda args: _optional_access(args, get_optional_field),
    "or": lambda args: _or_method(args, unwraps=False),
    "orValue": lambda args: _or_method(args, unwraps=True),
}


# --- loops ------------------------------------------------------------------------------------------------------------


def single_elements(value: Any) -> Iterable[tuple[Any, ...]]:
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


def element_pairs(value: Any) -> Iterable[tuple[Any, ...]]:
    if is_list(value):
        return enumerate(value)
    if is_map(value):
        return ((key, lookup(value, key)[0]) for key in value)
    raise CelError(f"unsupported comprehension range type: {_GO_TYPES.get(type(value), type_name(value))}")


_Elements: TypeAlias = Callable[[Any], Iterable[tuple[Any, ...]]]


def _start_iteration(run: EvaluationRun, slots: tuple[int, ...], element: tuple[Any, ...]) -> None:
    """Set the iteration variables to `element`. Raises CostExceeded if the cost is above the limit."""
    if run.cost > run.limit:
        raise CostExceeded
    run.variables[slots[0]] = element[0]
    if len(slots) > 1:
        run.variables[slots[1]] = element[1]


def all_or_exists(
    over: Closure, elements: _Elements, slots: tuple[int, ...], predicate: Closure, *, ends_at: bool
) -> Closure:
    """Return all(), which stops at False, or exists(), which stops at True."""
    iteration_cost = 4 if ends_at else 3
    slot = slots[0] if len(slots) == 1 else -1

    def quantify(run: EvaluationRun) -> Any:
        error: CelError | None = None
        run.cost += 1
        for element in elements(over(run)):
            if slot >= 0:
                if run.cost > run.limit:
                    raise CostExceeded
                run.variables[slot] = element[0]
            else:
                _start_iteration(run, slots, element)
            run.cost += iteration_cost
            try:
                value = predicate(run)
            except CelError as failed:
                error = error or failed
                continue
            if value is ends_at:
                run.cost += iteration_cost - 1
                return ends_at
            if type(value) is not bool:
                error = error or no_overload()
        if error is not None:
            raise error
        return not ends_at

    return quantify


def exists_one(over: Closure, elements: _Elements, slots: tuple[int, ...], condition: Closure) -> Closure:
    """Return exists_one()."""

    def count(run: EvaluationRun) -> bool:
        matches = 0
        run.cost += 2
        for element in elements(over(run)):
            _start_iteration(run, slots, element)
            run.cost += 1
            value = condition(run)
            if value is True:
                run.cost += 1
                matches += 1
            elif value is not False:
                raise no_overload()
        return matches == 1

    return count


def _passes(condition: Closure, run: EvaluationRun) -> bool:
    value = condition(run)
    if type(value) is not bool:
        raise no_overload()
    return value


def map_or_filter(
    over: Closure, elements: _Elements, slots: tuple[int, ...], condition: Closure | None, transform: Closure
) -> Closure:
    """Return map(), filter() or transformList()."""

    def collect(run: EvaluationRun) -> list[Any]:
        result: list[Any] = []
        run.cost += 1 + runtime_costs.LIST_CREATE_COST
        for element in elements(over(run)):
            _start_iteration(run, slots, element)
            run.cost += 1
            if condition is None or _passes(condition, run):
                run.cost += 1 + runtime_costs.LIST_CREATE_COST
                result.append(transform(run))
        return result

    return collect


def fold_map(
    over: Closure,
    elements: _Elements,
    slots: tuple[int, ...],
    init: Closure,
    condition: Closure | None,
    step: Closure,
) -> Closure:
    """Return transformMap() or transformMapEntry(). The last slot is the accumulator's."""
    accumulated = slots[-1]

    def fold(run: EvaluationRun) -> Any:
        run.cost += 1
        run.variables[accumulated] = init(run)
        for element in elements(over(run)):
            _start_iteration(run, slots[:-1], element)
            if condition is None or _passes(condition, run):
                run.variables[accumulated] = step(run)
        return run.variables[accumulated]

    return fold
