"""String functions, and format(). Sources: cel-go ext/strings.go, ext/formatting.go; k8s.io/apiserver regex.go."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import islice
from typing import Any

from kubeloop.cel.go_text import parse_integer, quoted
from kubeloop.cel.regex import Pattern, PatternError, compile_pattern
from kubeloop.cel.values import (
    MAX_INT,
    CelError,
    CostExceeded,
    Duration,
    Timestamp,
    TypeValue,
    Uint,
    display,
    go_float,
    is_list,
    is_map,
    lookup,
    no_overload,
    scalar_string,
    type_name,
)


def _require_strings(*values: Any) -> None:
    if any(type(value) is not str for value in values):
        raise no_overload()


def contains(text: Any, part: Any) -> bool:
    _require_strings(text, part)
    return part in text


def starts_with(text: Any, part: Any) -> bool:
    _require_strings(text, part)
    return bool(text.startswith(part))


def ends_with(text: Any, part: Any) -> bool:
    _require_strings(text, part)
    return bool(text.endswith(part))


def compiled_pattern(regex: str) -> Pattern:
    """Compile a regular expression. Raises CelError if it is invalid."""
    try:
        return compile_pattern(regex)
    except PatternError as error:
        raise CelError(str(error)) from None


def matches(text: Any, regex: Any) -> bool:
    _require_strings(text, regex)
    return compiled_pattern(regex).occurs_in(text)


def find(text: Any, regex: Any) -> str:
    _require_strings(text, regex)
    return next(_compiled_or_illegal(regex).all_in(text), "")


def find_all(text: Any, regex: Any, limit: Any = -1) -> list[str]:
    _require_strings(text, regex)
    matches_: list[str] = []
    for match in _compiled_or_illegal(regex).all_in(text):
        if 0 <= limit <= len(matches_):
            break
        matches_.append(match)
    return matches_


def _compiled_or_illegal(regex: str) -> Pattern:
    try:
        return compiled_pattern(regex)
    except CelError as error:
        raise CelError(f"Illegal regex: {error}") from None


def char_at(text: Any, index: Any) -> str:
    _require_strings(text)
    if not 0 <= index <= len(text):
        raise CelError(f"index out of range: {index}")
    return str(text[index : index + 1])


def index_of(text: Any, part: Any, offset: Any = 0) -> int:
    _require_strings(text, part)
    if not part:
        return int(offset)
    if offset < 0:
        raise CelError(f"index out of range: {offset}")
    return int(text.find(part, offset))


def last_index_of(text: Any, part: Any, offset: Any = None) -> int:
    _require_strings(text, part)
    if offset is None:
        return int(text.rfind(part)) if part else len(text)
    if not part:
        return int(offset)
    if offset < 0:
        raise CelError(f"index out of range: {offset}")
    return -1 if offset >= len(text) else int(text.rfind(part, 0, offset + len(part)))


_LOWER = {code: code + 32 for code in range(ord("A"), ord("Z") + 1)}
_UPPER = {code: code - 32 for code in range(ord("a"), ord("z") + 1)}


def lower_ascii(text: Any) -> str:
    _require_strings(text)
    return str(text.translate(_LOWER))


def upper_ascii(text: Any) -> str:
    _require_strings(text)
    return str(text.translate(_UPPER))


_MAX_REPLACED_LENGTH = 1 << 26  # characters; the cost limit does not bound the length of the result


def replace(text: Any, old: Any, new: Any, limit: Any = -1) -> str:
    _require_strings(text, old, new)
    count = text.count(old)
    if (count if limit < 0 else min(count, limit)) * len(new) > _MAX_REPLACED_LENGTH:
        raise CostExceeded
    return str(text.replace(old, new, limit if limit >= 0 else -1))


def split(text: Any, separator: Any, limit: Any = -1) -> list[str]:
    _require_strings(text, separator)
    if limit == 0:
        return []
    if separator:
        return list(text.split(separator, limit - 1 if limit > 0 else -1))
    parts = list(text)
    if 0 < limit < len(parts):
        return [*parts[: limit - 1], "".join(parts[limit - 1 :])]
    return parts


def substring(text: Any, start: Any, end: Any = None) -> str:
    _require_strings(text)
    if end is not None and start > end:
        raise CelError(f"invalid substring range. start: {start}, end: {end}")
    for index in (start, end):
        if index is not None and not 0 <= index <= len(text):
            raise CelError(f"index out of range: {index}")
    return str(text[start:end])


def trim(text: Any) -> str:
    _require_strings(text)
    return str(
        text.strip(" \t\n\v\f\r\x85\xa0\u1680\u2028\u2029\u202f\u205f\u3000" + "".join(map(chr, range(0x2000, 0x200B))))
    )


def join(values: Any, separator: Any = "") -> str:
    if not is_list(values):
        raise no_overload()
    _require_strings(separator, *islice(values, 1))
    strings = []
    for value in values:
        if type(value) is not str:
            raise CelError(f"join: invalid input: {display(value)}")
        strings.append(value)
    return str(separator.join(strings))


_QUOTES = {"\a": "\\a", "\b": "\\b", "\f": "\\f", "\n": "\\n", "\r": "\\r", "\t": "\\t", "\v": "\\v", "\\": "\\\\",
           '"': '\\"'}  # fmt: skip


def quote(text: Any) -> str:
    _require_strings(text)
    return '"' + "".join(_QUOTES.get(char, char) for char in text) + '"'


# --- format() ---------------------------------------------------------------------------------------------------------

_DEFAULT_PRECISION = 6


@dataclass(frozen=True, slots=True)
class FormatClause:
    """A formatting clause such as %.2f."""

    letter: str
    precision: int = _DEFAULT_PRECISION


_ANY = ("list", "map", "int", "uint", "double", "bool", "string", "timestamp", "bytes", "duration", "type", "null")
_STRING_CLAUSE_ERROR = (
    "string clause can only be used on strings, bools, bytes, ints, doubles, maps, lists, types, durations, and "
    "timestamps"
)
CLAUSE_TYPES: dict[str, tuple[tuple[str, ...], str]] = {
    "s": (_ANY, _STRING_CLAUSE_ERROR),
    "d": (("int", "uint"), "decimal clause can only be used on integers"),
    "f": (("double", "string"), "fixed-point clause can only be used on doubles"),
    "e": (("double", "string"), "scientific clause can only be used on doubles"),
    "b": (("int", "uint", "bool"), "only integers and bools can be formatted as binary"),
    "x": (("int", "uint", "string", "bytes"), "only integers, byte buffers, and strings can be formatted as hex"),
    "o": (("int", "uint"), "octal clause can only be used on integers"),
}
"""Kinds of types that a clause accepts, and the error message for others."""

_CLAUSE = re.compile(r"%(?:%|(\.\d*)?(.?))", re.S)


def clauses(text: str) -> Iterator[str | FormatClause]:
    """Yield literal text and formatting clauses. Raises CelError for an invalid clause."""
    at = 0
    for match in _CLAUSE.finditer(text):
        yield text[at : match.start()]
        at = match.end()
        if match[0] == "%%":
            yield "%"
            continue
        prefix = "could not parse formatting clause: "
        if not match[2]:
            if match[1]:
                raise CelError(f"{prefix}error while parsing precision: could not find end of precision specifier")
            raise CelError("unexpected end of string")
        precision = _DEFAULT_PRECISION
        if match[1]:
            digits = match[1][1:]
            precision = parse_integer(digits or "0")
            if not digits or precision > MAX_INT:
                problem = "error while parsing precision: error while converting precision to integer"
                reason = "value out of range" if digits else "invalid syntax"
                raise CelError(f"{prefix}{problem}: strconv.Atoi: parsing {quoted(digits)}: {reason}")
        if match[2] not in "sdfebxXo":
            raise CelError(f'{prefix}unrecognized formatting clause "{match[2]}"')
        yield FormatClause(match[2], precision)
    yield text[at:]


_MAX_PRECISION = 100_000  # see _MAX_REPLACED_LENGTH


def format_text(text: Any, arguments: Any) -> str:
    """Return '%s of %d'.format([...])."""
    if type(text) is not str or not is_list(arguments):
        raise no_overload()
    values, used, out = list(arguments), 0, []
    for clause in clauses(text):
        if isinstance(clause, str):
            out.append(clause)
            continue
        if used >= len(values):
            raise CelError(f"index {used} out of range")
        if clause.precision > _MAX_PRECISION:
            raise CostExceeded
        try:
            out.append(_CLAUSES[clause.letter](values[used], clause))
        except CelError as error:
            raise CelError(f"error during formatting: {error}") from None
        used += 1
    return "".join(out)


def _clause_error(letter: str, value: Any) -> CelError:
    return CelError(f"{CLAUSE_TYPES[letter][1]}, was given {type_name(value)}")


def format_string(value: Any) -> str:
    """Format the %s clause."""
    if value is None:
        return "null"
    kind = type(value)
    if is_list(value):
        return f"[{', '.join(_nested_string(element) for element in value)}]"
    if is_map(value):
        pairs = sorted((_nested_string(key), _nested_string(lookup(value, key)[0])) for key in value)
        return "{" + ", ".join(f"{key}:{element}" for key, element in pairs) + "}"
    if (text := scalar_string(value)) is not None:
        return text
    if kind is bytes:
        try:
            return str(value.decode())
        except UnicodeDecodeError:
            raise CelError(
                'could not convert argument "invalid UTF-8 in bytes, cannot convert to string" to string'
            ) from None
    if kind in (str, Timestamp, Duration, TypeValue):
        return str(value)
    raise _clause_error("s", value)


def _nested_string(value: Any) -> str:
    """Return a value nested in a list or map as a CEL literal."""
    kind = type(value)
    if kind is str:
        return quoted(value)
    if kind is bytes:
        return f"b{quoted(format_string(value))}"
    if kind is float:
        if math.isnan(value) or math.isinf(value):
            return quoted(go_float(value))
        return f"{value:.{_DEFAULT_PRECISION}f}"
    if kind is Timestamp:
        return f"timestamp({quoted(str(value))})"
    if kind is Duration:
        return f"duration({quoted(str(value))})"
    if kind in (bool, int, Uint, type(None), TypeValue) or is_list(value) or is_map(value):
        return format_string(value)
    raise CelError(f"no formatting function for {type_name(value)}")


def _integer(value: Any, clause: FormatClause) -> str:
    """Format the clauses %b, %d and %o."""
    if type(value) not in (int, Uint) and not (clause.letter == "b" and type(value) is bool):
        raise _clause_error(clause.letter, value)
    return f"{int(value):{clause.letter}}"


def _float(value: Any, clause: FormatClause) -> str:
    """Format the clauses %e and %f."""
    if type(value) is str and value in ("NaN", "Infinity", "-Infinity"):
        value = float(value)
    if type(value) is not float:
        raise _clause_error(clause.letter, value)
    if not math.isfinite(value):
        return "NaN" if math.isnan(value) else ("∞" if value > 0 else "-∞")
    if clause.letter == "f":
        return f"{value:,.{clause.precision}f}"
    mantissa, _, power = f"{value:.{clause.precision}e}".partition("e")
    raised = "".join("⁰¹²³⁴⁵⁶⁷⁸⁹"[int(digit)] if digit.isdigit() else "⁻" for digit in power.lstrip("+"))
    return f"{mantissa}\u00d710{raised}"


def _hexadecimal(value: Any, clause: FormatClause) -> str:
    kind = type(value)
    if kind in (str, bytes):
        digits = (value.encode() if kind is str else value).hex()
    elif kind in (int, Uint):
        digits = f"{int(value):x}"
    else:
        raise _clause_error("x", value)
    return str(digits.upper() if clause.letter == "X" else digits)


_CLAUSES: dict[str, Callable[[Any, FormatClause], str]] = {
    "s": lambda value, _clause: format_string(value),
    **dict.fromkeys("bdo", _integer),
    **dict.fromkeys("ef", _float),
    **dict.fromkeys("xX", _hexadecimal),
}

STRING_FUNCTIONS: dict[str, Callable[..., Any]] = {
    "contains": contains,
    "startsWith": starts_with,
    "endsWith": ends_with,
    "matches": matches,
    "find": find,
    "findAll": find_all,
    "charAt": char_at,
    "lowerAscii": lower_ascii,
    "upperAscii": upper_ascii,
    "replace": replace,
    "split": split,
    "substring": substring,
    "trim": trim,
    "join": join,
    "strings.quote": quote,
    "format": format_text,
}
