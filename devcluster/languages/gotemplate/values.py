"""Values of Go templates: types, JSON, and conversion to integers.

Go's nil, bool, int, float64, string, slice and map are None, bool, int, float, str, list and dict. A further
type differs from these in comparisons and as an argument: JsonNumber. Sources: reflect,
encoding/json, strconv; github.com/spf13/cast.
"""

from __future__ import annotations

import json
import re
from types import NoneType
from typing import Any


class FunctionError(Exception):
    """The function does not accept these arguments."""


class JsonNumber(str):
    """A number of the object. KWOK decodes numbers as json.Number, a string type: 0 is true, and == needs a string."""


_KINDS_AND_TYPES = {
    NoneType: ("invalid", "<nil>"),
    bool: ("bool", "bool"),
    int: ("int", "int"),
    float: ("float64", "float64"),
    str: ("string", "string"),
    JsonNumber: ("string", "json.Number"),
    list: ("slice", "[]interface {}"),
    dict: ("map", "map[string]interface {}"),
}


def kind_of(value: Any) -> str:
    """Return Go's name of a value's kind."""
    return _KINDS_AND_TYPES[type(value)][0]


def type_of(value: Any) -> str:
    """Return Go's name of a value's type."""
    return _KINDS_AND_TYPES[type(value)][1]


# --- JSON ---------------------------------------------------------------------------------------------------------


def from_json(value: Any) -> Any:
    """Return a copy of a JSON value for a template, with JsonNumber for numbers."""
    if isinstance(value, dict):
        return {key: from_json(element) for key, element in value.items()}
    if isinstance(value, list):
        return [from_json(element) for element in value]
    return value if value is None or isinstance(value, str | bool) else JsonNumber(json.dumps(to_json(value)))


def to_json(value: Any) -> Any:
    """Return the JSON value of a template's value: whole float64 numbers below 1e21 are integers."""
    if isinstance(value, dict):
        return {key: to_json(element) for key, element in value.items()}
    if isinstance(value, list):
        return [to_json(element) for element in value]
    if isinstance(value, JsonNumber):
        return json.loads(value)
    return int(value) if isinstance(value, float) and value.is_integer() and abs(value) < 1e21 else value


def json_text(value: Any) -> str:
    """Return the text of json.Marshal: sorted keys; <, > and & are escaped."""
    text = json.dumps(to_json(value), ensure_ascii=False, separators=(",", ":"), sort_keys=True)
    for sign in "<>&\u2028\u2029":
        text = text.replace(sign, f"\\u{ord(sign):04x}")
    return text


# --- numbers ------------------------------------------------------------------------------------------------------

_MIN_INT64 = -(2**63)
_INTEGER = re.compile(r"[+-]?(?:0[xX][\da-fA-F]+|0[bB][01]+|0[oO]?[0-7]+|0|[1-9]\d*)", re.ASCII)


def to_int(value: Any) -> int:
    """Convert as cast.ToInt64: values that are no whole numbers become 0, except float64 numbers, which are cut."""
    if isinstance(value, str):
        text = re.sub(r"\.0+\Z", "", value)
        if _INTEGER.fullmatch(text) is None:
            return 0
        digits = text.lstrip("+-")
        octal = re.fullmatch(r"0[0-7]+", digits) is not None
        number = int(digits, 8 if octal else 0) * (-1 if text[0] == "-" else 1)
        return number if _MIN_INT64 <= number < -_MIN_INT64 else 0
    if isinstance(value, float):
        return int(value) if _MIN_INT64 <= value < -_MIN_INT64 else _MIN_INT64
    return int(value) if isinstance(value, int) else 0
