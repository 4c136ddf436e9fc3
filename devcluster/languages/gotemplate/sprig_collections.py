"""Sprig's functions for lists and dicts. Sources: Sprig's list.go, dict.go; dario.cat/mergo.

Go's maps have no order: `keys` and `values` follow the sorted keys here.
"""

from __future__ import annotations

from typing import Any

from kubeloop.devcluster.languages.gotemplate.signature import Function
from kubeloop.devcluster.languages.gotemplate.sprig_values import to_string
from kubeloop.devcluster.languages.gotemplate.values import FunctionError, deep_equal, kind_of, to_int, truth

# --- lists --------------------------------------------------------------------------------------------------------


def _list(value: Any, verb: str) -> list[Any]:
    if not isinstance(value, list):
        raise FunctionError(f"Cannot {verb} type {kind_of(value)}")
    return value


def _contains(values: list[Any], value: Any) -> bool:
    return any(deep_equal(element, value) for element in values)


def _uniq(value: Any) -> list[Any]:
    unique: list[Any] = []
    for element in _list(value, "find uniq on"):
        if not _contains(unique, element):
            unique.append(element)
    return unique


def _slice(value: Any, *bounds: Any) -> Any:
    if not isinstance(value, list):
        raise FunctionError(f"list should be type of slice or array but {kind_of(value)}")
    if not value:
        return None
    start = to_int(bounds[0]) if bounds else 0
    stop = to_int(bounds[1]) if len(bounds) > 1 else len(value)
    if not 0 <= start <= stop <= len(value):
        raise FunctionError(f"{start}:{stop} is out of range (length {len(value)})")
    return value[start:stop]


def _chunk(size: int, value: Any) -> list[list[Any]]:
    values = _list(value, "chunk")
    if size <= 0:
        raise FunctionError("the size of chunks must be positive")
    return [values[at : at + size] for at in range(0, len(values), size)]


def _concat(*lists: Any) -> list[Any]:
    return [element for value in lists for element in _list(value, "concat a")]


def to_strings(value: Any) -> list[str]:
    """Return the texts of a list without its nil elements; another value becomes the only element."""
    if value is None:
        return []
    elements = value if isinstance(value, list) else [value]
    return [to_string(element) for element in elements if element is not None]


_APPEND = Function(lambda values, value: [*_list(values, "push on"), value], "any any")
_PREPEND = Function(lambda values, value: [value, *_list(values, "prepend on")], "any any")
_FIRST = Function(lambda values: next(iter(_list(values, "find first on")), None), "any")
_REST = Function(lambda values: values[1:] if _list(values, "find rest on") else None, "any")
_LAST = Function(lambda values: next(reversed(_list(values, "find last on")), None), "any")
_INITIAL = Function(lambda values: values[:-1] if _list(values, "find initial on") else None, "any")
_REVERSE = Function(lambda values: _list(values, "find reverse on")[::-1], "any")
_COMPACT = Function(lambda values: list(filter(truth, _list(values, "compact on"))), "any")
_UNIQ = Function(_uniq, "any")
_WITHOUT = Function(
    lambda values, *omitted: [
        element for element in _list(values, "find without on") if not _contains(list(omitted), element)
    ],
    "any ...any",
)
_HAS = Function(lambda value, values: values is not None and _contains(_list(values, "find has on"), value), "any any")
_SLICE = Function(_slice, "any ...any")
_CHUNK = Function(_chunk, "int any")
_LIST = Function(lambda *values: list(values), "...any")

_LISTS = {
    "list": _LIST, "tuple": _LIST,
    "append": _APPEND, "mustAppend": _APPEND, "push": _APPEND, "mustPush": _APPEND,
    "prepend": _PREPEND, "mustPrepend": _PREPEND,
    "first": _FIRST, "mustFirst": _FIRST,
    "rest": _REST, "mustRest": _REST,
    "last": _LAST, "mustLast": _LAST,
    "initial": _INITIAL, "mustInitial": _INITIAL,
    "reverse": _REVERSE, "mustReverse": _REVERSE,
    "compact": _COMPACT, "mustCompact": _COMPACT,
    "uniq": _UNIQ, "mustUniq": _UNIQ,
    "without": _WITHOUT, "mustWithout": _WITHOUT,
    "has": _HAS, "mustHas": _HAS,
    "slice": _SLICE, "mustSlice": _SLICE,
    "chunk": _CHUNK, "mustChunk": _CHUNK,
    "concat": Function(_concat, "...any"),
    "sortAlpha": Function(lambda values: sorted(to_strings(values)), "any"),
    "toStrings": Function(to_strings, "any"),
    "join": Function(lambda separator, values: separator.join(to_strings(values)), "string any"),
}  # fmt: skip

# --- dicts --------------------------------------------------------------------------------------------------------

Dict = dict[str, Any]


def _dict(*pairs: Any) -> Dict:
    values = [*pairs, *([""] if len(pairs) % 2 else [])]
    return {to_string(values[at]): values[at + 1] for at in range(0, len(values), 2)}


def _get(value: Dict | None, key: str) -> Any:
    return (value or {}).get(key, "")


def _set(value: Dict | None, key: str, new: Any) -> Dict:
    if value is None:
        raise FunctionError("assignment to entry in nil map")
    value[key] = new
    return value


def _unset(value: Dict | None, key: str) -> Dict | None:
    if value is not None:
        value.pop(key, None)
    return value


def _keys(*maps: Dict | None) -> list[str]:
    return [key for value in maps for key in sorted(value or {})]


def _pick(value: Dict | None, *keys: str) -> Dict:
    return {key: element for key, element in (value or {}).items() if key in keys}


def _omit(value: Dict | None, *keys: str) -> Dict:
    return {key: element for key, element in (value or {}).items() if key not in keys}


def _merged(target: Dict | None, sources: tuple[Dict | None, ...], *, overwrite: bool) -> Dict:
    """Merge `sources` into `target`, which is changed. overwrite: also what is not empty there."""
    result = {} if target is None else target
    for source in sources:
        for key, value in (source or {}).items():
            old = result.get(key)
            if isinstance(value, dict) and isinstance(old, dict):
                _merged(old, (value,), overwrite=overwrite)
            elif overwrite or (value is not None and not truth(old)):
                result[key] = value
    return result


def _dig(*arguments: Any) -> Any:
    *keys, default, value = arguments
    for key in keys:
        if not isinstance(value, dict) or type(key) is not str:
            raise FunctionError(f"a dict is needed for {to_string(key)}, but there is a {kind_of(value)}")
        if key not in value:
            return default
        value = value[key]
    return value


_MERGE = Function(lambda target, *sources: _merged(target, sources, overwrite=False), "map ...map")
_MERGE_OVERWRITE = Function(lambda target, *sources: _merged(target, sources, overwrite=True), "map ...map")

_DICTS = {
    "dict": Function(_dict, "...any"),
    "get": Function(_get, "map string"),
    "set": Function(_set, "map string any"),
    "unset": Function(_unset, "map string"),
    "hasKey": Function(lambda value, key: key in (value or {}), "map string"),
    "pluck": Function(lambda key, *maps: [value[key] for value in maps if value and key in value], "string ...map"),
    "keys": Function(_keys, "...map"),
    "values": Function(lambda value: [element for _, element in sorted((value or {}).items())], "map"),
    "pick": Function(_pick, "map ...string"),
    "omit": Function(_omit, "map ...string"),
    "merge": _MERGE,
    "mustMerge": _MERGE,
    "mergeOverwrite": _MERGE_OVERWRITE,
    "mustMergeOverwrite": _MERGE_OVERWRITE,
    "dig": Function(_dig, "any any any ...any"),
}

FUNCTIONS: dict[str, Function] = {**_LISTS, **_DICTS}
