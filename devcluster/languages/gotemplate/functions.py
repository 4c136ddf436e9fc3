"""Functions of Go templates: text/template's own, those of KWOK that need no cluster, and a subset of Sprig's.

ARITIES lists the supported functions. Sources: text/template, KWOK's pkg/utils/gotpl, Sprig v3.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import json
import re
from collections.abc import Callable
from typing import Any

from kubeloop.devcluster.languages.gotemplate.syntax import Arity
from kubeloop.kube import yaml


class FunctionError(Exception):
    """The function does not accept these arguments."""


def kind_of(value: Any) -> str:
    """Return Go's name of a value's kind."""
    match value:
        case None:
            return "invalid"
        case bool():
            return "bool"
        case int():
            return "int"
        case float():
            return "float64"
        case str():
            return "string"
        case list():
            return "slice"
    return "map"


def truth(value: Any) -> bool:
    """Return Go's truth of a value: nil, false, 0 and empty values are false."""
    return bool(value)


def go_print(value: Any, *, inner: bool = False) -> str:
    """Return a value as Go's print formats it."""
    match value:
        case None:
            return "<nil>" if inner else "<no value>"
        case bool():
            return "true" if value else "false"
        case float():
            return _go_float(value)
        case list():
            return f"[{' '.join(go_print(element, inner=True) for element in value)}]"
        case dict():
            return (
                f"map[{' '.join(f'{key}:{go_print(element, inner=True)}' for key, element in sorted(value.items()))}]"
            )
    return str(value)


def _go_float(value: float) -> str:
    if value.is_integer() and abs(value) < 1e21:
        return str(int(value))
    return re.sub(r"e([+-])(\d)$", r"e\g<1>0\2", repr(value))


# --- text/template --------------------------------------------------------------------------------


def _number(value: Any, what: str = "a number") -> int | float:
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise FunctionError(f"{go_print(value)} is not {what}")
    return value


def _comparable(left: Any, right: Any) -> None:
    numbers = isinstance(left, int | float) and isinstance(right, int | float)
    if (
        isinstance(left, bool)
        or isinstance(right, bool)
        or not (numbers or kind_of(left) == kind_of(right) == "string")
    ):
        raise FunctionError(f"incompatible types for comparison: {kind_of(left)} and {kind_of(right)}")


def _eq(first: Any, *others: Any) -> bool:
    for element in (first, *others):
        if isinstance(element, list | dict):
            raise FunctionError(f"a {kind_of(element)} cannot be compared")
    return any(isinstance(first, bool) == isinstance(other, bool) and first == other for other in others)


def _lt(left: Any, right: Any) -> bool:
    _comparable(left, right)
    return bool(left < right)


def _le(left: Any, right: Any) -> bool:
    _comparable(left, right)
    return bool(left <= right)


def _index(value: Any, *keys: Any) -> Any:
    for key in keys:
        match value:
            case dict():
                if not isinstance(key, str):
                    raise FunctionError(f"a map has keys of type string, not {kind_of(key)}")
                value = value.get(key)
            case list():
                if isinstance(key, bool) or not isinstance(key, int):
                    raise FunctionError(f"cannot index a slice with a {kind_of(key)}")
                if not 0 <= key < len(value):
                    raise FunctionError(f"index {key} is out of range (length {len(value)})")
                value = value[key]
            case None:
                raise FunctionError("index of untyped nil")
            case _:
                raise FunctionError(f"can't index a {kind_of(value)}")
    return value


def _slice(value: Any, *bounds: Any) -> Any:
    if not isinstance(value, list | str):
        raise FunctionError(f"can't slice a {kind_of(value)}")
    limits = [int(_number(element)) for element in bounds]
    start, stop = limits[0] if limits else 0, limits[1] if len(limits) > 1 else len(value)
    if not 0 <= start <= stop <= len(value):
        raise FunctionError(f"{start}:{stop} is out of range (length {len(value)})")
    return value[start:stop]


def _len(value: Any) -> int:
    if not isinstance(value, str | list | dict):
        raise FunctionError(f"a {kind_of(value)} has no length")
    return len(value.encode()) if isinstance(value, str) else len(value)


def _print(*values: Any) -> str:
    text = ""
    for number, value in enumerate(values):
        if number and not isinstance(value, str) and not isinstance(values[number - 1], str):
            text += " "
        text += go_print(value, inner=True)
    return text


def _println(*values: Any) -> str:
    return " ".join(go_print(value, inner=True) for value in values) + "\n"


_VERB = re.compile(r"%([-+# 0]*)(\d*)(?:\.(\d+))?(.)", re.DOTALL)


def _printf(text: Any, *values: Any) -> str:
    if not isinstance(text, str):
        raise FunctionError("the format is not a string")
    left = list(values)

    def format_verb(match: re.Match[str]) -> str:
        flags, width, precision, verb = match.groups()
        if verb == "%":
            return "%"
        if verb not in "vsdqfgetxXob":
            raise FunctionError(f"%{verb} is not supported")
        if not left:
            return f"%!{verb}(MISSING)"
        value = left.pop(0)
        number = isinstance(value, int | float) and not isinstance(value, bool)
        if verb == "v" or (verb == "s" and isinstance(value, str | list | dict)):
            result = go_print(value, inner=True)
            result = result[: int(precision)] if precision and verb == "s" else result
        elif verb == "q" and isinstance(value, str):
            result = json.dumps(value, ensure_ascii=False)
        elif verb == "t" and isinstance(value, bool):
            result = go_print(value)
        elif verb in "fge" and number:
            result = f"%{flags}.{precision or 6}{verb}" % value
        elif verb in "dob" and number and isinstance(value, int):
            result = ("+" if "+" in flags and value >= 0 else "") + format(value, verb)
        elif verb in "xX" and isinstance(value, int | str) and not isinstance(value, bool):
            result = value.encode().hex() if isinstance(value, str) else format(value, "x")
            result = result.upper() if verb == "X" else result
        else:
            return f"%!{verb}({kind_of(value)}={go_print(value, inner=True)})"
        size = int(width or 0)
        if "-" in flags:
            return result.ljust(size)
        return result.zfill(size) if "0" in flags and number else result.rjust(size)

    formatted = _VERB.sub(format_verb, text)
    return (
        formatted
        if not left
        else f"{formatted}%!(EXTRA {', '.join(f'{kind_of(v)}={go_print(v, inner=True)}' for v in left)})"
    )


# --- KWOK -----------------------------------------------------------------------------------------


def _go_json(value: Any) -> str:
    text = json.dumps(value, ensure_ascii=False, separators=(",", ":"), sort_keys=True)
    for sign in "<>&\u2028\u2029":
        text = text.replace(sign, f"\\u{ord(sign):04x}")
    return text


def _quote_json(value: Any) -> str:
    text = _go_json(value)
    return text if text.startswith('"') else json.dumps(text)


def _yaml(value: Any, indent: Any = 0) -> str:
    text = yaml.write(value)
    levels = int(_number(indent))
    return f"\n{text}".replace("\n", "\n" + "  " * levels) if levels > 0 else text


_CONDITIONS = [
    ("Ready", "True", "KubeletReady", "kubelet is posting ready status"),
    ("MemoryPressure", "False", "KubeletHasSufficientMemory", "kubelet has sufficient memory available"),
    ("DiskPressure", "False", "KubeletHasNoDiskPressure", "kubelet has no disk pressure"),
    ("PIDPressure", "False", "KubeletHasSufficientPID", "kubelet has sufficient PID available"),
    ("NetworkUnavailable", "False", "RouteCreated", "RouteController created a route"),
]


def _node_conditions() -> list[dict[str, str]]:
    """Return the conditions of a healthy node."""
    names = ("type", "status", "reason", "message")
    return [dict(zip(names, condition, strict=True)) for condition in _CONDITIONS]


# --- Sprig ----------------------------------------------------------------------------------------


def _text(value: Any) -> str:
    if not isinstance(value, str):
        raise FunctionError(f"wants a string, got {kind_of(value)}")
    return value


def _to_string(value: Any) -> str:
    return value if isinstance(value, str) else go_print(value, inner=True)


def _int(value: Any) -> int:
    """Convert like cast.ToInt64: values that are not numbers become 0."""
    if isinstance(value, str):
        try:
            return int(value, 0)
        except ValueError:
            try:
                return int(float(value))
            except (ValueError, OverflowError):
                return 0
    return int(value) if isinstance(value, int | float) else 0


def _float(value: Any) -> float:
    try:
        return float(value)
    except (TypeError, ValueError):
        return 0.0


def _list_of(value: Any) -> list[Any]:
    if value is None:
        return []
    if not isinstance(value, list):
        raise FunctionError(f"wants a list, got {kind_of(value)}")
    return value


def _map_of(value: Any) -> dict[str, Any]:
    if not isinstance(value, dict):
        raise FunctionError(f"wants a dict, got {kind_of(value)}")
    return value


def _dict(*pairs: Any) -> dict[str, Any]:
    values = [*pairs, *([""] if len(pairs) % 2 else [])]
    return {_to_string(values[at]): values[at + 1] for at in range(0, len(values), 2)}


def _default(fallback: Any, value: Any = None) -> Any:
    return value if truth(value) else fallback


def _divided(left: Any, right: Any) -> int:
    divisor = _int(right)
    if divisor == 0:
        raise FunctionError("division by zero")
    quotient = abs(_int(left)) // abs(divisor)
    return quotient if (_int(left) < 0) == (divisor < 0) else -quotient


def _sum(*values: Any) -> int:
    return sum(_int(element) for element in values)


def _product(*values: Any) -> int:
    result = 1
    for element in values:
        result *= _int(element)
    return result


def _merged(target: Any, *others: Any) -> dict[str, Any]:
    result = dict(_map_of(target))
    for other in others:
        result = {**_map_of(other), **result}
    return result


def _replace(old: Any, new: Any, text: Any) -> str:
    return _text(text).replace(_text(old), _text(new))


def _indent(count: Any, text: Any) -> str:
    pad = " " * _int(count)
    return pad + _text(text).replace("\n", "\n" + pad)


def _from_json(text: Any) -> Any:
    try:
        return json.loads(_text(text))
    except ValueError:
        return None


def _b64dec(text: Any) -> str:
    try:
        return base64.b64decode(_text(text), validate=True).decode()
    except (binascii.Error, UnicodeDecodeError) as error:
        return str(error)


def _pick(value: Any, *keys: Any) -> dict[str, Any]:
    return {key: element for key, element in _map_of(value).items() if key in keys}


def _omit(value: Any, *keys: Any) -> dict[str, Any]:
    return {key: element for key, element in _map_of(value).items() if key not in keys}


def _set(value: Any, key: Any, new: Any) -> dict[str, Any]:
    _map_of(value)[_text(key)] = new
    return _map_of(value)


def _unset(value: Any, key: Any) -> dict[str, Any]:
    _map_of(value).pop(_text(key), None)
    return _map_of(value)


def _until(count: Any) -> list[int]:
    return list(range(_int(count))) if _int(count) >= 0 else list(range(0, _int(count), -1))


def _matches(pattern: Any, text: Any) -> bool:
    try:
        return re.search(_text(pattern), _text(text)) is not None
    except re.error as error:
        raise FunctionError(f"{pattern}: {error}") from None


def _required(what: str, value: Any) -> Any:
    if value is None or value == "":
        raise FunctionError(_to_string(what))
    return value


def _fail(message: Any) -> Any:
    raise FunctionError(_to_string(message))


_ALL: dict[str, tuple[Callable[..., Any], int, int | None]] = {
    # text/template; `and` and `or` are the interpreter's, which stops at the argument that decides
    "and": (truth, 1, None),
    "or": (truth, 1, None),
    "not": (lambda value: not truth(value), 1, 1),
    "eq": (_eq, 2, None),
    "ne": (lambda left, right: not _eq(left, right), 2, 2),
    "lt": (_lt, 2, 2),
    "le": (_le, 2, 2),
    "gt": (lambda left, right: _lt(right, left), 2, 2),
    "ge": (lambda left, right: _le(right, left), 2, 2),
    "index": (_index, 1, None),
    "slice": (_slice, 1, 3),
    "len": (_len, 1, 1),
    "print": (_print, 0, None),
    "printf": (_printf, 1, None),
    "println": (_println, 0, None),
    # KWOK
    "Quote": (_quote_json, 1, 1),
    "YAML": (_yaml, 1, 2),
    "NodeConditions": (_node_conditions, 0, 0),
    # Sprig: values
    "default": (_default, 1, 2),
    "empty": (lambda value: not truth(value), 1, 1),
    "coalesce": (lambda *values: next((element for element in values if truth(element)), None), 0, None),
    "ternary": (lambda yes, no, test: yes if truth(test) else no, 3, 3),
    "kindOf": (kind_of, 1, 1),
    "typeOf": (kind_of, 1, 1),
    "kindIs": (lambda kind, value: kind == kind_of(value), 2, 2),
    "toString": (_to_string, 1, 1),
    "toJson": (_go_json, 1, 1),
    "toRawJson": (lambda value: json.dumps(value, ensure_ascii=False, separators=(",", ":"), sort_keys=True), 1, 1),
    "fromJson": (_from_json, 1, 1),
    "required": (_required, 2, 2),
    "fail": (_fail, 1, 1),
    # Sprig: numbers
    "int": (_int, 1, 1),
    "int64": (_int, 1, 1),
    "atoi": (_int, 1, 1),
    "float64": (_float, 1, 1),
    "add": (_sum, 0, None),
    "add1": (lambda value: _int(value) + 1, 1, 1),
    "sub": (lambda left, right: _int(left) - _int(right), 2, 2),
    "mul": (_product, 1, None),
    "div": (_divided, 2, 2),
    "mod": (lambda left, right: _int(left) - _divided(left, right) * _int(right), 2, 2),
    "max": (lambda *values: max(map(_int, values)), 1, None),
    "min": (lambda *values: min(map(_int, values)), 1, None),
    "until": (_until, 1, 1),
    # Sprig: strings
    "quote": (
        lambda *values: " ".join(json.dumps(_to_string(v), ensure_ascii=False) for v in values if v is not None),
        0,
        None,
    ),
    "squote": (lambda *values: " ".join(f"'{_to_string(v)}'" for v in values if v is not None), 0, None),
    "lower": (lambda text: _text(text).lower(), 1, 1),
    "upper": (lambda text: _text(text).upper(), 1, 1),
    "title": (lambda text: re.sub(r"\b\w", lambda match: match[0].upper(), _text(text)), 1, 1),
    "trim": (lambda text: _text(text).strip(), 1, 1),
    "trimAll": (lambda signs, text: _text(text).strip(_text(signs)), 2, 2),
    "trimPrefix": (lambda prefix, text: _text(text).removeprefix(_text(prefix)), 2, 2),
    "trimSuffix": (lambda suffix, text: _text(text).removesuffix(_text(suffix)), 2, 2),
    "hasPrefix": (lambda prefix, text: _text(text).startswith(_text(prefix)), 2, 2),
    "hasSuffix": (lambda suffix, text: _text(text).endswith(_text(suffix)), 2, 2),
    "contains": (lambda part, text: _text(part) in _text(text), 2, 2),
    "replace": (_replace, 3, 3),
    "repeat": (lambda count, text: _text(text) * _int(count), 2, 2),
    "trunc": (lambda count, text: _text(text)[: _int(count)] if _int(count) >= 0 else _text(text)[_int(count) :], 2, 2),
    "indent": (_indent, 2, 2),
    "nindent": (lambda count, text: "\n" + _indent(count, text), 2, 2),
    "nospace": (lambda text: re.sub(r"\s", "", _text(text)), 1, 1),
    "cat": (lambda *values: " ".join(_to_string(v) for v in values if v is not None), 0, None),
    "regexMatch": (_matches, 2, 2),
    "splitList": (lambda sign, text: _text(text).split(_text(sign)), 2, 2),
    "split": (lambda sign, text: {f"_{at}": part for at, part in enumerate(_text(text).split(_text(sign)))}, 2, 2),
    "join": (lambda sign, values: _text(sign).join(_to_string(element) for element in _list_of(values)), 2, 2),
    "b64enc": (lambda text: base64.b64encode(_text(text).encode()).decode(), 1, 1),
    "b64dec": (_b64dec, 1, 1),
    "sha256sum": (lambda text: hashlib.sha256(_text(text).encode()).hexdigest(), 1, 1),
    # Sprig: lists and maps
    "list": (lambda *values: list(values), 0, None),
    "first": (lambda values: next(iter(_list_of(values)), None), 1, 1),
    "last": (lambda values: _list_of(values)[-1] if values else None, 1, 1),
    "rest": (lambda values: _list_of(values)[1:], 1, 1),
    "initial": (lambda values: _list_of(values)[:-1], 1, 1),
    "append": (lambda values, value: [*_list_of(values), value], 2, 2),
    "prepend": (lambda values, value: [value, *_list_of(values)], 2, 2),
    "concat": (lambda *lists: [element for values in lists for element in _list_of(values)], 0, None),
    "has": (lambda value, values: value in _list_of(values), 2, 2),
    "without": (lambda values, *out: [element for element in _list_of(values) if element not in out], 1, None),
    "uniq": (
        lambda values: [element for at, element in enumerate(_list_of(values)) if element not in values[:at]],
        1,
        1,
    ),
    "compact": (lambda values: [element for element in _list_of(values) if truth(element)], 1, 1),
    "reverse": (lambda values: _list_of(values)[::-1], 1, 1),
    "sortAlpha": (lambda values: sorted(_to_string(element) for element in _list_of(values)), 1, 1),
    "dict": (_dict, 0, None),
    "get": (lambda value, key: _map_of(value).get(key, ""), 2, 2),
    "set": (_set, 3, 3),
    "unset": (_unset, 2, 2),
    "hasKey": (lambda value, key: key in _map_of(value), 2, 2),
    "keys": (lambda *maps: [key for element in maps for key in sorted(_map_of(element))], 0, None),
    "values": (lambda value: [element for _, element in sorted(_map_of(value).items())], 1, 1),
    "pick": (_pick, 1, None),
    "omit": (_omit, 1, None),
    "merge": (_merged, 1, None),
}

FUNCTIONS: dict[str, Callable[..., Any]] = {name: function for name, (function, _, _) in _ALL.items()}
ARITIES: dict[str, Arity] = {name: (least, most) for name, (_, least, most) in _ALL.items()}
