"""YAML as Kubernetes reads and writes it, in the way of sigs.k8s.io/yaml: the result is always JSON.

Differences to PyYAML: `y` and `n` are booleans; `1e3` and `0o17` are numbers; `12:30` and dates are strings; numeric
and boolean keys become strings; of duplicate keys the last counts, with a warning; what `<<` merges overrides the keys
above it. Source: go.yaml.in/yaml/v2 resolve.go and decode.go, sigs.k8s.io/yaml yaml.go.

Imports PyYAML only, of which it uses the parser, in C if available.
"""

from __future__ import annotations

import base64
import contextlib
import functools
import math
import re
import struct
from collections.abc import Iterator
from typing import Any

import yaml

_RESOLVED_WORDS: dict[str, bool | float | None] = {
    **dict.fromkeys(("y", "Y", "yes", "Yes", "YES", "true", "True", "TRUE", "on", "On", "ON"), True),
    **dict.fromkeys(("n", "N", "no", "No", "NO", "false", "False", "FALSE", "off", "Off", "OFF"), False),
    **dict.fromkeys(("", "~", "null", "Null", "NULL"), None),
    **dict.fromkeys((".nan", ".NaN", ".NAN"), math.nan),
    **dict.fromkeys((".inf", ".Inf", ".INF", "+.inf", "+.Inf", "+.INF"), math.inf),
    **dict.fromkeys(("-.inf", "-.Inf", "-.INF"), -math.inf),
}
_NUMBER_STARTS = frozenset("+-.0123456789")
_MIN_INTEGER, _MAX_INTEGER = -(1 << 63), (1 << 64) - 1
_TAG = "tag:yaml.org,2002:"
_LIBYAML_TOO_DEEP = "exceeded maximum nesting depth"  # since libyaml 0.2.6, in PyYAML 6.0.4: 1,000 levels
_RESOLVED_TAGS = frozenset({"bool", "float", "int", "null"})


class InvalidYaml(ValueError):
    """Invalid YAML, or YAML that cannot be JSON. The message is Go's, "yaml: line 2: did not find expected key".

    `place`: for users, "line 3, column 1: did not find expected key"; the line in Go's message may be the one above.
    """

    def __init__(self, message: str, place: str = "") -> None:
        super().__init__(message)
        self.place = place or message.removeprefix("yaml: ")


def read_first(text: str | bytes) -> tuple[Any, list[str]]:
    """Return the first document as JSON, and a message per duplicate key: 'line 3: key "name" already set in map'.

    The document is None for a text without documents. Raises InvalidYaml.
    """
    reader = _Reader(text)
    return next(reader.documents(), None), reader.duplicate_keys


def read_all(text: str | bytes) -> tuple[list[Any], list[str]]:
    """Return all documents as JSON (None for an empty one), and messages of duplicate keys. Raises InvalidYaml."""
    reader = _Reader(text)
    return list(reader.documents()), reader.duplicate_keys


@contextlib.contextmanager
def yaml_errors() -> Iterator[None]:
    """Convert errors of PyYAML to InvalidYaml."""
    try:
        yield
    except yaml.YAMLError as error:
        raise _invalid_yaml(error) from error
    except RecursionError:
        raise _too_deep() from None


def write(value: Any, *, sort_keys: bool = True) -> str:
    """Write JSON as YAML in the style of kubectl.

    Strings that Kubernetes or YAML 1.1 would read as another type are in double quotes, those of several lines literal,
    and numbers in keys are in numeric order: k2 precedes k10.
    """
    value = _in_kubectl_order(value) if sort_keys else value
    written: str = yaml.dump(value, Dumper=_Writer, default_flow_style=False, sort_keys=False, allow_unicode=True)
    return written.removesuffix("...\n")  # PyYAML's end of a document that is a plain scalar


def resolve_plain_scalar(text: str) -> bool | float | str | None:
    """Return the value of a scalar without quotes and tag; int counts as float here."""
    if text in _RESOLVED_WORDS:
        return _RESOLVED_WORDS[text]
    return _number(text) if text[0] in _NUMBER_STARTS else text


def _number(text: str) -> float | str:
    if not text.isascii() or text[-1].isspace():  # Python would accept other digits and surrounding space
        return text
    plain = text if text[0] == "." else text.replace("_", "")
    if "." not in plain:
        for base in (0, 8):  # 0 takes 0b1, 0o7 and 0xf; only 8 takes 07
            with contextlib.suppress(ValueError):
                if _MIN_INTEGER <= (number := int(plain, base)) <= _MAX_INTEGER:
                    return number
                break
    with contextlib.suppress(ValueError):
        if math.isfinite(decimal := float(plain)):
            return decimal
    return text


class _Reader:
    """Converts the parser's events to JSON.

    `duplicate_keys`: messages about duplicate keys. `_anchors`: by name the value and its number of nodes; None while
    it is being read. `_nodes`, `_aliased`: number of nodes with aliases expanded, and of those within aliases.
    """

    def __init__(self, text: str | bytes) -> None:
        self.duplicate_keys: list[str] = []
        self._text = text
        self._anchors: dict[str, tuple[Any, int] | None] = {}
        self._nodes = self._aliased = 0

    def documents(self) -> Iterator[Any]:
        with yaml_errors():
            self._next = getattr(yaml, "CSafeLoader", yaml.SafeLoader)(self._text).get_event
            while not isinstance(event := self._next(), yaml.StreamEndEvent):
                if isinstance(event, yaml.DocumentStartEvent):
                    self._anchors = {}
                    yield _json(self._value(self._next()))

    def _value(self, event: Any) -> Any:
        self._nodes += 1
        kind = type(event)
        if kind is yaml.AliasEvent:
            return self._alias(event.anchor)
        before = self._nodes
        if event.anchor is not None:
            self._anchors[event.anchor] = None
        if kind is yaml.ScalarEvent:
            value = _scalar(event)
        elif kind is yaml.MappingStartEvent:
            value = self._mapping()
        else:
            value = []
            while type(item := self._next()) is not yaml.SequenceEndEvent:
                value.append(_json(self._value(item)))
        if event.anchor is not None:
            self._anchors[event.anchor] = value, self._nodes - before + 1
        return value

    def _alias(self, anchor: str) -> Any:
        if anchor not in self._anchors:
            raise InvalidYaml(f"yaml: unknown anchor '{anchor}' referenced")
        anchored = self._anchors[anchor]
        if anchored is None:
            raise InvalidYaml(f"yaml: anchor '{anchor}' value contains itself")
        value, nodes = anchored
        self._nodes += nodes
        self._aliased += nodes
        if self._aliased > 100 and self._nodes > 1000 and self._aliased > self._nodes * _aliased_share(self._nodes):
            raise InvalidYaml("yaml: document contains excessive aliasing")
        return value

    def _mapping(self) -> dict[str, Any]:
        mapping: dict[str, Any] = {}
        while type(event := self._next()) is not yaml.MappingEndEvent:
            if type(event) is yaml.ScalarEvent and event.value == "<<" and (event.implicit[0] or event.tag == _MERGE):
                self._nodes += 1
                self._merge(mapping, self._next())
                continue
            key = self._value(event)
            if isinstance(key, dict | list):
                raise InvalidYaml(f"yaml: invalid map key: {_go_repr(key)}", _position(event, "a key must be a string"))
            following = self._next()
            value = self._value(following)
            if key is None:
                message = f"unsupported map key of type: %!s(<nil>), key: <nil>, value: {_go_repr(value)}"
                raise InvalidYaml(message, _position(event, "a key must be a string"))
            self._put(mapping, key, _json(value), following)
        return mapping

    def _put(self, mapping: dict[str, Any], key: Any, value: Any, event: Any) -> None:
        name = _key(key)
        if name in mapping:
            key_text = f'"{key}"' if isinstance(key, str) else name
            self.duplicate_keys.append(f"line {event.start_mark.line + 1}: key {key_text} already set in map")
        mapping[name] = value

    def _merge(self, mapping: dict[str, Any], event: Any) -> None:
        merged = self._value(event)
        several = merged if isinstance(merged, list) and type(event) is yaml.SequenceStartEvent else [merged]
        for source in reversed(several):  # the first one has precedence
            if not isinstance(source, dict):
                raise InvalidYaml("yaml: map merge requires map or sequence of maps as the value")
            for key, value in source.items():
                self._put(mapping, key, value, event)


_MERGE = _TAG + "merge"


def _scalar(event: Any) -> Any:
    text: str = event.value
    if event.tag is None:
        return resolve_plain_scalar(text) if event.implicit[0] else text
    tag = event.tag.removeprefix(_TAG)
    if event.tag == tag:
        return text
    if tag == "binary":
        try:
            return base64.b64decode("".join(text.split()), validate=True).decode("utf-8", "replace")
        except ValueError:
            raise InvalidYaml("yaml: !!binary value contains invalid base64 data") from None
    if tag in _RESOLVED_TAGS:
        value = resolve_plain_scalar(text)
        named = _tag_of(value)
        if named != tag and (named, tag) != ("int", "float"):
            raise InvalidYaml(f"yaml: cannot decode !!{named} `{text}` as a !!{tag}")
        return value
    return text


def _tag_of(value: bool | float | str | None) -> str:
    return {bool: "bool", int: "int", float: "float", str: "str"}.get(type(value), "null")


def _json(value: Any) -> Any:
    """Convert to JSON: a whole number has no decimal point, 1e3 is 1000."""
    if type(value) is not float:
        return value
    if not math.isfinite(value):
        named = "NaN" if math.isnan(value) else "+Inf" if value > 0 else "-Inf"
        raise InvalidYaml(f"json: unsupported value: {named}")
    return int(value) if value.is_integer() and abs(value) < -_MIN_INTEGER else value


def _key(key: Any) -> str:
    """Convert a key to a string; a float to the shortest text with the same 32-bit value."""
    if isinstance(key, str):
        return key
    if isinstance(key, bool):
        return "true" if key else "false"
    if isinstance(key, int):
        return str(key)
    if not math.isfinite(key):
        return ".nan" if math.isnan(key) else ".inf" if key > 0 else "-.inf"
    for digits in range(9):
        text = f"{key:.{digits}e}"
        if _as_float32(float(text)) == _as_float32(key):
            break
    return text if not -4 <= int(text.partition("e")[2]) < 6 else f"{float(text):.9g}"


def _as_float32(number: float) -> bytes:
    return struct.pack("f", number)


def _go_repr(value: Any) -> str:
    """Format a value read from YAML as Go's %#v does."""
    if isinstance(value, dict):
        pairs = ", ".join(f"{_go_repr(key)}:{_go_repr(value[key])}" for key in sorted(value))
        return f"map[interface {{}}]interface {{}}{{{pairs}}}"
    if isinstance(value, list):
        return f"[]interface {{}}{{{', '.join(map(_go_repr, value))}}}"
    if value is None:
        return "interface {}(nil)"
    if isinstance(value, str):
        escaped = value.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n").replace("\t", "\\t")
        return f'"{escaped}"'
    return _key(value)


def _aliased_share(nodes: int) -> float:
    """Return the share of nodes that may be within aliases: 0.99 up to 400,000 nodes, 0.1 from 4,000,000 on."""
    least, most = 400_000, 4_000_000
    return 0.99 - 0.89 * (min(max(nodes, least), most) - least) / (most - least)


def _position(event: Any, problem: str) -> str:
    return f"line {event.start_mark.line + 1}, column {event.start_mark.column + 1}: {problem}"


def _too_deep() -> InvalidYaml:
    return InvalidYaml("yaml: exceeded max depth", "it is nested too deeply")


def _invalid_yaml(error: yaml.YAMLError) -> InvalidYaml:
    """Convert PyYAML's error to Go's message; Go's parser is derived from libyaml."""
    if not isinstance(error, yaml.MarkedYAMLError):
        return InvalidYaml(f"yaml: {getattr(error, 'reason', None) or str(error).partition(chr(10))[0]}")
    problem, mark = error.problem or error.context or "", error.problem_mark or error.context_mark
    if problem == _LIBYAML_TOO_DEEP:
        return _too_deep()
    if mark is None:
        return InvalidYaml(f"yaml: {problem}")
    place = f"line {mark.line + 1}, column {mark.column + 1}: {problem}"
    line = mark.line
    if line and isinstance(error, yaml.scanner.ScannerError):
        line += 1
    elif not line and error.context_mark is not None:
        line = error.context_mark.line
    return InvalidYaml(f"yaml: line {line}: {problem}" if line else f"yaml: {problem}", place)


class _Writer(getattr(yaml, "CSafeDumper", yaml.SafeDumper)):  # type: ignore[misc]
    def resolve(self, kind: type[yaml.Node], value: str, implicit: Any) -> str:
        """Return the tag that a reader resolves; PyYAML quotes a string if it is not the tag of strings."""
        if kind is yaml.ScalarNode and implicit[0] and (tag := _tag_of(resolve_plain_scalar(value))) != "str":
            return _TAG + tag
        resolved: str = super().resolve(kind, value, implicit)
        return resolved

    def ignore_aliases(self, data: Any) -> bool:
        return True

    def represent_text(self, text: str) -> yaml.Node:
        style = None
        if "\n" in text:
            style = "|"
        elif not text or self.resolve(yaml.ScalarNode, text, (True, False)) != _TEXT:
            style = '"'
        node: yaml.Node = self.represent_scalar(_TEXT, text, style)
        return node


_TEXT = f"{_TAG}str"
_Writer.add_representer(str, _Writer.represent_text)


def _in_kubectl_order(value: Any) -> Any:
    """Return a value with sorted keys."""
    if isinstance(value, dict):
        return {key: _in_kubectl_order(value[key]) for key in sorted(value, key=_BY_NUMBERS)}
    return [*map(_in_kubectl_order, value)] if isinstance(value, list) else value


def _compare_keys(one: str, other: str) -> int:
    """Compare letter by letter; numbers by their value, and before letters. Source: keyList.Less of go.yaml.in/yaml."""
    at = next((at for at, (left, right) in enumerate(zip(one, other, strict=False)) if left != right), None)
    if at is None:
        return len(one) - len(other)
    left, right = one[at], other[at]
    if left.isalpha() or right.isalpha():
        return ord(left) - ord(right) if left.isalpha() and right.isalpha() else left.isalpha() - right.isalpha()
    digits = _DIGITS.search(one[:at]) if "0" in (left, right) else None
    prefix = "1" if digits is not None and digits[0].strip("0") else ""
    runs = [_DIGITS_FIRST.match(text, at)[0] for text in (one, other)]  # type: ignore[index]
    numbers = [int(f"{prefix}{run}" or "0") for run in runs]
    return numbers[0] - numbers[1] or len(runs[0]) - len(runs[1]) or ord(left) - ord(right)


_DIGITS, _DIGITS_FIRST = re.compile(r"[0-9]*\Z"), re.compile("[0-9]*")
_BY_NUMBERS = functools.cmp_to_key(_compare_keys)
