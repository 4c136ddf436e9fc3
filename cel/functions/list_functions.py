"""List and set functions. Sources: cel-go ext/lists.go, ext/sets.go; k8s.io/apiserver pkg/cel/library/lists.go."""

from __future__ import annotations

from collections.abc import Callable
from functools import cmp_to_key
from itertools import pairwise
from typing import Any

from kubeloop.cel.functions import string_functions
from kubeloop.cel.schema_values import TypedList
from kubeloop.cel.values import (
    NONE,
    CelError,
    Duration,
    NoOverload,
    Optional,
    Uint,
    add,
    compare,
    display,
    equal,
    has_order,
    is_list,
    lookup,
    no_overload,
)

_MAX_RANGE = 10_000_000


def _items(value: Any) -> list[Any]:
    if not is_list(value):
        raise no_overload()
    return list(value)


def _ordered_items(values: Any) -> list[Any]:
    items = _items(values)
    if items and not has_order(items[0]):
        raise no_overload()
    return items


def contains(values: Any, value: Any) -> bool:
    """Return the value of `value in values`."""
    return values.contains(value) if isinstance(values, TypedList) else any(equal(element, value) for element in values)


def _compares_as(one: Any, other: Any, order: int) -> bool:
    """Return True if compare() returns `order`; False for values of different types, which have no order."""
    if not has_order(other):
        raise CelError(str(no_overload()))
    try:
        return compare(one, other) == order
    except CelError:
        return False


def is_sorted(values: Any) -> bool:
    return not any(_compares_as(one, other, 1) for one, other in pairwise(_ordered_items(values)))


_ZEROS: dict[str, Any] = {"int": 0, "uint": Uint(0), "double": 0.0, "duration": Duration(0)}
_ZERO_OF_TYPE = {type(zero): zero for zero in _ZEROS.values()}


def sum_values(overload: str, values: Any) -> Any:
    """Return the sum. The resolved overload, or else the first item, decides the type of the zero to start with."""
    items = _items(values)
    zero_of_items = _ZERO_OF_TYPE.get(type(items[0])) if items else 0
    if zero_of_items is None:
        raise no_overload()
    result = _ZEROS[overload.split("_")[1]] if overload else zero_of_items
    try:
        for item in items:
            result = add(result, item)
    except NoOverload as error:
        raise CelError(str(error)) from None
    return result


def _extreme(name: str, sign: int) -> Callable[[Any], Any]:
    def find(values: Any) -> Any:
        items = _ordered_items(values)
        if not items:
            raise CelError(f"{name} called on empty list")
        best = items[0]
        for item in items[1:]:
            if _compares_as(best, item, sign):
                best = item
        return best

    return find


def index_of(values: Any, value: Any, *offset: Any) -> int:
    if type(values) is str:
        return string_functions.index_of(values, value, *offset)
    return next((index for index, item in enumerate(_items(values)) if equal(item, value)), -1)


def last_index_of(values: Any, value: Any, *offset: Any) -> int:
    if type(values) is str:
        return string_functions.last_index_of(values, value, *offset)
    items = _items(values)
    return next((index for index in range(len(items) - 1, -1, -1) if equal(items[index], value)), -1)


def slice_list(values: Any, start: Any, end: Any) -> list[Any]:
    items = _items(values)
    if start < 0 or end < 0:
        raise CelError(f"cannot slice({start}, {end}), negative indexes not supported")
    if start > end:
        raise CelError(f"cannot slice({start}, {end}), start index must be less than or equal to end index")
    if len(items) < end:
        raise CelError(f"cannot slice({start}, {end}), list is length {len(items)}")
    return items[start:end]


def flatten(values: Any, depth: Any = 1) -> list[Any]:
    if depth < 0:
        raise CelError("level must be non-negative")
    flat = []
    for item in _items(values):
        if depth and is_list(item):
            flat += flatten(item, depth - 1)
        else:
            flat.append(item)
    return flat


def list_range(limit: Any) -> list[int]:
    if limit > _MAX_RANGE:
        raise CelError("lists.range: too many elements")
    return list(range(limit))


def reverse(values: Any) -> list[Any]:
    return _items(values)[::-1]


def distinct(values: Any) -> list[Any]:
    unique: list[Any] = []
    for item in _items(values):
        if not contains(unique, item):
            unique.append(item)
    return unique


def sort(values: Any) -> list[Any]:
    return sort_by_keys(values, values)


def sort_by_keys(values: Any, keys: Any) -> list[Any]:
    """Return the values in the order of their keys."""
    items, sort_keys = _items(values), _items(keys)
    if len(items) != len(sort_keys):
        message = "expected a list of the same size as the associated keys list, but got"
        raise CelError(f"@sortByAssociatedKeys() {message} {len(items)} and {len(sort_keys)} elements respectively")
    if not items:
        return items
    if not has_order(sort_keys[0]):
        raise CelError("list elements must be comparable")
    if any(type(key) is not type(sort_keys[0]) for key in sort_keys):
        raise CelError("list elements must have the same type")

    def in_order(one: int, other: int) -> int:
        return compare(sort_keys[one], sort_keys[other])

    order = sorted(range(len(items)), key=cmp_to_key(in_order))
    return [items[index] for index in order]


def sets_contain(values: Any, part: Any) -> bool:
    items = _items(values)
    return all(contains(items, item) for item in _items(part))


def sets_equivalent(one: Any, other: Any) -> bool:
    return sets_contain(one, other) and sets_contain(other, one)


def sets_intersect(one: Any, other: Any) -> bool:
    items = _items(other)
    return any(contains(items, item) for item in _items(one))


def first(values: Any) -> Optional:
    items = _items(values)
    return Optional(items[0]) if items else NONE


def last(values: Any) -> Optional:
    items = _items(values)
    return Optional(items[-1]) if items else NONE


def unwrap(values: Any) -> list[Any]:
    present = []
    for item in _items(values):
        if not isinstance(item, Optional):
            raise CelError(f"value {display(item)} is not optional")
        if item.present:
            present.append(item.value)
    return present


def insert(into: Any, *entry: Any) -> dict[Any, Any]:
    """Return a map with one entry or the entries of a map added. Raises CelError for a key that exists."""
    entries = [entry] if len(entry) == 2 else [(key, lookup(entry[0], key)[0]) for key in entry[0]]
    result = dict(into)
    for key, value in entries:
        if key in result:
            raise CelError(f"insert failed: key {display(key)} already exists")
        result[key] = value
    return result


LIST_FUNCTIONS: dict[str, Callable[..., Any]] = {
    "isSorted": is_sorted,
    "max": _extreme("max", -1),
    "min": _extreme("min", 1),
    "indexOf": index_of,
    "lastIndexOf": last_index_of,
    "slice": slice_list,
    "flatten": flatten,
    "lists.range": list_range,
    "reverse": reverse,
    "distinct": distinct,
    "sort": sort,
    "@sortByAssociatedKeys": sort_by_keys,
    "sets.contains": sets_contain,
    "sets.equivalent": sets_equivalent,
    "sets.intersects": sets_intersect,
    "first": first,
    "last": last,
    "optional.unwrap": unwrap,
    "unwrapOpt": unwrap,
    "cel.@mapInsert": insert,
}
