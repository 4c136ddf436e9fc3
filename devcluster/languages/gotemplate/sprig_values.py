"""Sprig's functions for defaults, types, JSON and errors. Sources: Sprig's defaults.go, reflect.go."""

from __future__ import annotations

import json
from typing import Any

from kubeloop.devcluster.languages.gotemplate.signature import Function
from kubeloop.devcluster.languages.gotemplate.values import (
    FunctionError,
    deep_equal,
    go_print,
    json_text,
    kind_of,
    truth,
    type_of,
)


def to_string(value: Any) -> str:
    return go_print(value, inner=True)


def _default(fallback: Any, *given: Any) -> Any:
    return given[0] if given and truth(given[0]) else fallback


def _must_from_json(text: str) -> Any:
    try:
        return json.loads(text, parse_int=float)
    except (ValueError, RecursionError) as error:
        raise FunctionError(str(error)) from None


def _from_json(text: str) -> Any:
    try:
        return _must_from_json(text)
    except FunctionError:
        return None


def copied(value: Any) -> Any:
    """Return a deep copy."""
    if isinstance(value, dict):
        return {key: copied(element) for key, element in value.items()}
    return [copied(element) for element in value] if isinstance(value, list) else value


def _fail(message: str) -> Any:
    raise FunctionError(message)


_TO_JSON = Function(json_text, "any")
_TO_PRETTY_JSON = Function(lambda value: json_text(value, indent=2), "any")
_TO_RAW_JSON = Function(lambda value: json_text(value, escapes_html=False), "any")
_DEEP_COPY = Function(copied, "any")

FUNCTIONS: dict[str, Function] = {
    "default": Function(_default, "any ...any"),
    "empty": Function(lambda value: not truth(value), "any"),
    "coalesce": Function(lambda *values: next(filter(truth, values), None), "...any"),
    "all": Function(lambda *values: all(map(truth, values)), "...any"),
    "any": Function(lambda *values: any(map(truth, values)), "...any"),
    "ternary": Function(lambda yes, no, test: yes if test else no, "any any bool"),
    "fromJson": Function(_from_json, "string"),
    "mustFromJson": Function(_must_from_json, "string"),
    "toJson": _TO_JSON,
    "mustToJson": _TO_JSON,
    "toPrettyJson": _TO_PRETTY_JSON,
    "mustToPrettyJson": _TO_PRETTY_JSON,
    "toRawJson": _TO_RAW_JSON,
    "mustToRawJson": _TO_RAW_JSON,
    "deepCopy": _DEEP_COPY,
    "mustDeepCopy": _DEEP_COPY,
    "typeOf": Function(type_of, "any"),
    "typeIs": Function(lambda name, value: name == type_of(value), "string any"),
    "typeIsLike": Function(lambda name, value: type_of(value) in (name, f"*{name}"), "string any"),
    "kindOf": Function(kind_of, "any"),
    "kindIs": Function(lambda name, value: name == kind_of(value), "string any"),
    "deepEqual": Function(deep_equal, "any any"),
    "toString": Function(to_string, "any"),
    "fail": Function(_fail, "string"),
    "hello": Function(lambda: "Hello!", ""),
}
