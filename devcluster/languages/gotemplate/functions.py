"""Functions of Go templates: text/template's own, those of KWOK that need no cluster, some of Sprig's.

FUNCTIONS has the supported functions, REFUSED those that KWOK has in addition. Sprig's `slice` replaces that of
text/template, as in KWOK. Sources: text/template, KWOK's pkg/utils/gotpl, Sprig v3.3.
"""

from __future__ import annotations

import re
from typing import Any
from urllib.parse import quote_plus

from kubeloop.devcluster.languages.go_text import go_float, go_print
from kubeloop.devcluster.languages.gotemplate.signature import Function
from kubeloop.devcluster.languages.gotemplate.syntax import Arity
from kubeloop.devcluster.languages.gotemplate.values import (
    FunctionError,
    json_text,
    kind_of,
    to_int,
    to_json,
    type_of,
)
from kubeloop.kube import yaml
from kubeloop.kube.validation.field_errors import quoted

# --- text/template --------------------------------------------------------------------------------

_BASIC_KINDS = {"bool": "bool", "int": "int", "float64": "float", "string": "string"}


def _eq(first: Any, *others: Any) -> bool:
    return any(_is_equal(first, other) for other in others)


def _is_equal(left: Any, right: Any) -> bool:
    if left is None or right is None:
        return left is right
    if _common_kind(left, right) is None:
        raise FunctionError(f"non-comparable types {type_of(left)}, {type_of(right)}")
    return bool(left == right)


def _common_kind(left: Any, right: Any) -> str | None:
    """Return the basic kind of two values, None if they have none."""
    left_kind, right_kind = _BASIC_KINDS.get(kind_of(left)), _BASIC_KINDS.get(kind_of(right))
    if left_kind != right_kind:
        raise FunctionError("incompatible types for comparison")
    return left_kind


def _is_before(left: Any, right: Any) -> bool:
    if not {kind_of(left), kind_of(right)} <= _BASIC_KINDS.keys() or _common_kind(left, right) == "bool":
        raise FunctionError("invalid type for comparison")
    return bool(left < right)


def _index(value: Any, *keys: Any) -> Any:
    for key in keys:
        match value:
            case dict():
                if type(key) is not str:
                    raise FunctionError(f"value has type {type_of(key)}; should be string")
                value = value.get(key)
            case list():
                if kind_of(key) != "int":
                    raise FunctionError(f"cannot index slice/array with type {type_of(key)}")
                if not 0 <= key < len(value):
                    raise FunctionError(f"index {key} is out of range (length {len(value)})")
                value = value[key]
            case None:
                raise FunctionError("index of untyped nil")
            case _:
                raise FunctionError(f"can't index item of type {type_of(value)}")
    return value


def _len(value: Any) -> int:
    if not isinstance(value, str | list | dict):
        raise FunctionError(f"len of type {type_of(value)}")
    return len(value.encode()) if isinstance(value, str) else len(value)


def _print(*values: Any) -> str:
    text = ""
    for number, value in enumerate(values):
        if number and not isinstance(value, str) and not isinstance(values[number - 1], str):
            text += " "
        text += go_print(value)
    return text


def _println(*values: Any) -> str:
    return " ".join(go_print(value) for value in values) + "\n"


_VERB = re.compile(r"%([-+# 0]*)(\d*)(?:\.(\d+))?(.)", re.DOTALL)


def _printf(text: str, *values: Any) -> str:
    left = list(values)

    def format_verb(match: re.Match[str]) -> str:
        flags, width, precision, verb = match.groups()
        if verb == "%":
            return "%"
        if verb not in "vTsdqfgetxXob":
            raise FunctionError(f"%{verb} is not supported")
        if not left:
            return f"%!{verb}(MISSING)"
        value = left.pop(0)
        number = isinstance(value, int | float) and not isinstance(value, bool)
        if verb == "T":
            result = type_of(value)
        elif verb == "v" or (verb == "s" and isinstance(value, str | list | dict)):
            result = go_print(value)
            result = result[: int(precision)] if precision and verb == "s" else result
        elif verb == "q" and isinstance(value, str):
            result = quoted(value)
        elif verb == "t" and isinstance(value, bool):
            result = go_print(value)
        elif verb in "fge" and isinstance(value, float):
            result = go_float(value) if verb == "g" and not precision else f"%{flags}.{precision or 6}{verb}" % value
        elif verb in "dob" and number and isinstance(value, int):
            result = ("+" if "+" in flags and value >= 0 else "") + format(value, verb)
        elif verb in "xX" and isinstance(value, int | str) and not isinstance(value, bool):
            result = value.encode().hex() if isinstance(value, str) else format(value, "x")
            result = result.upper() if verb == "X" else result
        else:
            return f"%!{verb}({_typed(value)})"
        size = int(width or 0)
        if "-" in flags:
            return result.ljust(size)
        return result.zfill(size) if "0" in flags and number else result.rjust(size)

    formatted = _VERB.sub(format_verb, text)
    return formatted if not left else f"{formatted}%!(EXTRA {', '.join(map(_typed, left))})"


def _typed(value: Any) -> str:
    return f"{type_of(value)}={go_print(value)}" if value is not None else "<nil>"


_HTML = str.maketrans({"\0": "\ufffd", '"': "&#34;", "'": "&#39;", "&": "&amp;", "<": "&lt;", ">": "&gt;"})


# --- KWOK -----------------------------------------------------------------------------------------


def _quote_json(value: Any) -> str:
    text = json_text(value)
    return text if text.startswith('"') else quoted(text)


def _yaml(value: Any, *indents: int) -> str:
    text = yaml.write(to_json(value))
    return f"\n{text}".replace("\n", "\n" + "  " * indents[0]) if len(indents) == 1 and indents[0] > 0 else text


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


def _default(fallback: Any, *values: Any) -> Any:
    return values[0] if values and values[0] else fallback


def _dict(*pairs: Any) -> dict[str, Any]:
    values = [*pairs, *([""] if len(pairs) % 2 else [])]
    return {go_print(values[at]): values[at + 1] for at in range(0, len(values), 2)}


def _list(*values: Any) -> list[Any]:
    return list(values)


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


BUILT_IN: dict[str, Function] = {
    # `and` and `or` are the interpreter's, which stops at the argument that decides
    "and": Function(bool, "any ...any"),
    "or": Function(bool, "any ...any"),
    "not": Function(lambda value: not value, "any"),
    "eq": Function(_eq, "any any ...any"),
    "ne": Function(lambda left, right: not _is_equal(left, right), "any any"),
    "lt": Function(_is_before, "any any"),
    "le": Function(lambda left, right: not _is_before(right, left), "any any"),
    "gt": Function(lambda left, right: _is_before(right, left), "any any"),
    "ge": Function(lambda left, right: not _is_before(left, right), "any any"),
    "index": Function(_index, "any ...any"),
    "len": Function(_len, "any"),
    "print": Function(_print, "...any"),
    "printf": Function(_printf, "string ...any"),
    "println": Function(_println, "...any"),
    "html": Function(lambda *values: _print(*values).translate(_HTML), "...any"),
    "urlquery": Function(lambda *values: quote_plus(_print(*values), safe="~"), "...any"),
}
"""Functions of text/template without `slice`, which Sprig replaces."""

KWOK: dict[str, Function] = {
    "Quote": Function(_quote_json, "any"),
    "YAML": Function(_yaml, "any ...int"),
    "NodeConditions": Function(_node_conditions, ""),
}

SPRIG: dict[str, Function] = {
    "default": Function(_default, "any ...any"),
    "dict": Function(_dict, "...any"),
    "int": Function(to_int, "any"),  # the numbers of an object are strings to comparisons
    "list": Function(_list, "...any"),
    "slice": Function(_slice, "any ...any"),
}
"""Functions of Sprig that KWOK's stages use, and `int`, `list` and `slice` for numbers and lists of objects."""

FUNCTIONS: dict[str, Function] = {**BUILT_IN, **SPRIG, **KWOK}
ARITIES: dict[str, Arity] = {name: function.arity for name, function in FUNCTIONS.items()}

_REFUSED_OF_SPRIG = """
abbrev abbrevboth add add1 add1f addf adler32sum ago all any append atoi b32dec b32enc b64dec b64enc base bcrypt
biggest buildCustomCert camelcase cat ceil chunk clean coalesce compact concat contains date dateInZone dateModify
date_in_zone date_modify decryptAES deepCopy deepEqual derivePassword dig dir div divf duration durationRound empty
encryptAES env expandenv ext fail first float64 floor fromJson genCA genCAWithKey genPrivateKey genSelfSignedCert
genSelfSignedCertWithKey genSignedCert genSignedCertWithKey get getHostByName has hasKey hasPrefix hasSuffix hello
htmlDate htmlDateInZone htpasswd indent initial initials int64 isAbs join kebabcase keys kindIs kindOf last lower
max maxf merge mergeOverwrite min minf mod mul mulf mustAppend mustChunk mustCompact mustDateModify mustDeepCopy
mustFirst mustFromJson mustHas mustInitial mustLast mustMerge mustMergeOverwrite mustPrepend mustPush mustRegexFind
mustRegexFindAll mustRegexMatch mustRegexReplaceAll mustRegexReplaceAllLiteral mustRegexSplit mustRest mustReverse
mustSlice mustToDate mustToJson mustToPrettyJson mustToRawJson mustUniq mustWithout must_date_modify nindent nospace
now omit osBase osClean osDir osExt osIsAbs pick pluck plural prepend push quote randAlpha randAlphaNum randAscii
randBytes randInt randNumeric regexFind regexFindAll regexMatch regexQuoteMeta regexReplaceAll regexReplaceAllLiteral
regexSplit repeat replace rest reverse round semver semverCompare seq set sha1sum sha256sum sha512sum shuffle
snakecase sortAlpha split splitList splitn squote sub subf substr swapcase ternary title toDate toDecimal toJson
toPrettyJson toRawJson toString toStrings trim trimAll trimPrefix trimSuffix trimall trunc tuple typeIs typeIsLike
typeOf uniq unixEpoch unset until untilStep untitle upper urlJoin urlParse uuidv4 values without wrap wrapWith
"""
REFUSED: dict[str, str] = {
    **dict.fromkeys(_REFUSED_OF_SPRIG.split(), f"of Sprig, there are only {', '.join(SPRIG)}"),
    "call": "no value is a function",
    "js": "templates contain no scripts",
}
"""Functions that KWOK has and this server has not, with the reason."""
