"""Run-time cost of calls by argument values: one unit per call, a tenth per traversed character.

Sources: cel-go interpreter/runtimecost.go, ext/lists.go, ext/sets.go; k8s.io/apiserver pkg/cel/library/cost.go.
"""

from __future__ import annotations

from collections.abc import Callable
from math import ceil
from typing import Any

from kubeloop.cel.values import ContainerValue, Opaque, Optional, is_list, is_map, lookup

STRING_TRAVERSAL_FACTOR, REGEX_LENGTH_FACTOR = 0.1, 0.25
LIST_CREATE_COST, MAP_CREATE_COST, STRUCT_CREATE_COST = 10, 30, 40


def size_of(value: Any) -> int:
    """Return the number of characters, bytes, items or entries; 1 for other values."""
    kind = type(value)
    if kind in (str, bytes, list, dict) or isinstance(value, ContainerValue):
        return len(value)
    if kind is Optional and value.present:
        return size_of(value.value)
    return int(value.size) if isinstance(value, Opaque) else 1


def _string_cost(size: int, factor: float = STRING_TRAVERSAL_FACTOR) -> int:
    return ceil(size * factor)


def _traverse_first(args: tuple[Any, ...]) -> int:
    return _string_cost(size_of(args[0]))


def _traverse_first_twice(args: tuple[Any, ...]) -> int:
    return _string_cost(size_of(args[0]), 2 * STRING_TRAVERSAL_FACTOR)


def _match_cost(args: tuple[Any, ...]) -> int:
    return _string_cost(1 + size_of(args[0])) * _string_cost(size_of(args[1]), REGEX_LENGTH_FACTOR)


def equality(one: Any, other: Any) -> int:
    """Return the cost of == and of string ordering."""
    if isinstance(one, Opaque):
        return 1
    return _string_cost(min(size_of(one), size_of(other)))


def _ordering(args: tuple[Any, ...]) -> int:
    one = args[0]
    return equality(one, args[1]) if type(one) in (str, bytes) else 1


def _sum(args: tuple[Any, ...]) -> int:
    return _string_cost(size_of(args[0]) + size_of(args[1])) if type(args[0]) in (str, bytes) else 1


def _membership(args: tuple[Any, ...]) -> int:
    return size_of(args[1]) if is_list(args[1]) else 1


def _traverse_first_of_type(kind: type) -> Callable[[tuple[Any, ...]], int]:
    """Return the cost function of a conversion that traverses only values of type `kind`."""
    return lambda args: _traverse_first(args) if type(args[0]) is kind else 1


def traversal(value: Any) -> int:
    """Return the cost of traversing a value with all nested values."""
    if type(value) in (str, bytes):
        return int((len(value.encode()) if type(value) is str else len(value)) * STRING_TRAVERSAL_FACTOR)
    if is_list(value):
        return sum(traversal(element) for element in value)
    if is_map(value):
        return sum(traversal(key) + traversal(lookup(value, key)[0]) for key in value)
    return 1


def _list_result(size: int, factor: float = 1.0) -> int:
    """Return the cost of a call that creates a list of `size` elements."""
    return int(size * factor) + 1 + LIST_CREATE_COST


def _pairwise(value: Any) -> int:
    size = size_of(value)
    factor = 2.0 + (
        STRING_TRAVERSAL_FACTOR if is_list(value) and size and type(next(iter(value))) in (str, bytes) else 0
    )
    return _list_result(size * size, factor)


def _sets(factor: int) -> Callable[[tuple[Any, ...]], int]:
    return lambda args: 1 + size_of(args[0]) * size_of(args[1]) * factor


def _contains_ip(args: tuple[Any, ...]) -> int:
    cost = _string_cost(2 * size_of(args[0]))
    return cost + (_string_cost(size_of(args[1])) if type(args[1]) is str else 0)


def _contains_cidr(args: tuple[Any, ...]) -> int:
    return _contains_ip(args) + _string_cost(size_of(args[0])) + 1


def _validate(args: tuple[Any, ...]) -> int:
    return _string_cost(1 + size_of(args[1])) * _string_cost(getattr(args[0], "regex_size", 1), REGEX_LENGTH_FACTOR)


def _joined(args: tuple[Any, ...]) -> int:
    values, between = args[0], size_of(args[1]) if len(args) > 1 else 0
    if not is_list(values):
        return 1
    size = sum(len(value) for value in values if type(value) is str) + between * max(0, len(values) - 1)
    return _string_cost(size, 2 * STRING_TRAVERSAL_FACTOR)


def _count(value: Any) -> int:
    return max(0, int(value)) if type(value) is int else 0


CALLS: dict[str, Callable[[tuple[Any, ...]], int]] = {
    "_+_": _sum,
    **dict.fromkeys(("_<_", "_<=_", "_>_", "_>=_"), _ordering),
    "@in": _membership,
    **dict.fromkeys(("startsWith", "endsWith", "strings.quote", "format"), _traverse_first),
    "string": _traverse_first_of_type(bytes),
    "bytes": _traverse_first_of_type(str),
    **dict.fromkeys(("matches", "find", "findAll"), _match_cost),
    "contains": lambda args: _string_cost(size_of(args[0])) * _string_cost(size_of(args[1])),
    **dict.fromkeys(("isSorted", "sum", "max", "min", "indexOf", "lastIndexOf"), lambda args: traversal(args[0])),
    **dict.fromkeys(("url", "lowerAscii", "upperAscii", "substring", "trim"), _traverse_first),
    **dict.fromkeys(("cidr", "isIP", "isCIDR", "quantity", "isQuantity", "semver", "isSemver"), _traverse_first),
    **dict.fromkeys(("replace", "split", "ip.isCanonical"), _traverse_first_twice),
    "ip": _traverse_first_of_type(str),
    "join": _joined,
    "containsIP": _contains_ip,
    "containsCIDR": _contains_cidr,
    "validate": _validate,
    "slice": lambda args: _list_result(max(0, min(_count(args[2]), size_of(args[0])) - _count(args[1]))),
    "lists.range": lambda args: _list_result(_count(args[0])),
    "reverse": lambda args: _list_result(size_of(args[0])),
    "flatten": lambda args: _list_result(size_of(args[0]), float(_count(args[1])) if len(args) == 2 else 1.0),
    "distinct": lambda args: _pairwise(args[0]),
    "sort": lambda args: _pairwise(args[0]),
    "@sortByAssociatedKeys": lambda args: _pairwise(args[1]),
    **dict.fromkeys(("sets.contains", "sets.intersects"), _sets(1)),
    "sets.equivalent": _sets(2),
}
"""Cost functions of calls whose cost depends on the arguments; all others cost 1.

The cost is added before the call, so that a call that exceeds the limit is not made.
"""
