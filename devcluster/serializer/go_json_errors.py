"""What Go's JSON decoder says of a text that is no JSON, and how the API server shows what it was given.

Walks the text only after another decoder has refused it, so that people read the message they know from Kubernetes.
Source: encoding/json scanner.go; summarizeData of apiserver pkg/endpoints/handlers/rest.go.
"""

from __future__ import annotations

import re
from typing import NoReturn

_SUMMARY_BYTES = 30
_SPACE = re.compile(r"[ \t\r\n]*")
_PLAIN = re.compile(r'[^"\\\x00-\x1f]*')
_ESCAPED = '"\\/bfnrt'
_DIGITS, _HEXADECIMAL = frozenset("0123456789"), frozenset("0123456789abcdefABCDEF")
_LITERALS = ("true", "false", "null")
_END = "unexpected end of JSON input"


class _Wrong(Exception):
    pass


def summarize_body(body: bytes) -> str:
    """The beginning of a body as errors show it: as text if it may be JSON, else in hexadecimal."""
    if not body:
        return "<empty>"
    more = " ..." if len(body) > _SUMMARY_BYTES else ""
    part = body[:_SUMMARY_BYTES]
    return (part.decode("utf-8", "replace") if part.startswith(b"{") else part.hex()) + more


def go_json_error(body: bytes) -> str:
    """The first syntax error; "" if there is none."""
    text = body.decode("utf-8", "replace")
    try:
        end = _space(text, _value(text, _space(text, 0), "looking for beginning of value"))
        if end < len(text):
            _refuse(text, end, "after top-level value")
    except _Wrong as wrong:
        return str(wrong)
    except RecursionError:
        return "exceeded max depth"
    return ""


def _refuse(text: str, at: int, where: str) -> NoReturn:
    if at >= len(text):
        raise _Wrong(_END)
    char = text[at]
    if char == "'":
        told = r"'\''"
    elif char == '"':
        told = "'\"'"
    elif char.isprintable() and char != "\ufeff":
        told = f"'{char}'"
    else:
        named = {"\n": r"\n", "\t": r"\t", "\r": r"\r", "\\": "\\\\"}
        told = (
            f"'{named.get(char, f'{chr(92)}u{ord(char):04x}' if ord(char) > 0xFF else f'{chr(92)}x{ord(char):02x}')}'"
        )
    raise _Wrong(f"invalid character {told} {where}")


def _space(text: str, at: int) -> int:
    found = _SPACE.match(text, at)
    assert found is not None
    return found.end()


def _value(text: str, at: int, where: str) -> int:
    """The place after the value that begins at `at`."""
    char = text[at : at + 1]
    if char == "{":
        return _object(text, at + 1)
    if char == "[":
        return _array(text, at + 1)
    if char == '"':
        return _string(text, at + 1)
    if char == "-" or char in _DIGITS:
        return _number(text, at)
    for literal in _LITERALS:
        if char == literal[0]:
            for index, expected in enumerate(literal):
                if text[at + index : at + index + 1] != expected:
                    _refuse(text, at + index, f"in literal {literal} (expecting '{expected}')")
            return at + len(literal)
    _refuse(text, at, where)


def _object(text: str, at: int) -> int:
    at = _space(text, at)
    if text[at : at + 1] == "}":
        return at + 1
    while True:
        if text[at : at + 1] != '"':
            _refuse(text, at, "looking for beginning of object key string")
        at = _space(text, _string(text, at + 1))
        if text[at : at + 1] != ":":
            _refuse(text, at, "after object key")
        at = _space(text, _value(text, _space(text, at + 1), "looking for beginning of value"))
        if text[at : at + 1] == "}":
            return at + 1
        if text[at : at + 1] != ",":
            _refuse(text, at, "after object key:value pair")
        at = _space(text, at + 1)


def _array(text: str, at: int) -> int:
    at = _space(text, at)
    if text[at : at + 1] == "]":
        return at + 1
    while True:
        at = _space(text, _value(text, at, "looking for beginning of value"))
        if text[at : at + 1] == "]":
            return at + 1
        if text[at : at + 1] != ",":
            _refuse(text, at, "after array element")
        at = _space(text, at + 1)


def _string(text: str, at: int) -> int:
    while True:
        found = _PLAIN.match(text, at)
        assert found is not None
        at = found.end()
        char = text[at : at + 1]
        if char == '"':
            return at + 1
        if char != "\\":
            _refuse(text, at, "in string literal")
        if text[at + 1 : at + 2] == "u":
            for index in range(at + 2, at + 6):
                if text[index : index + 1] not in _HEXADECIMAL:
                    _refuse(text, index, r"in \u hexadecimal character escape")
            at += 6
        elif text[at + 1 : at + 2] and text[at + 1] in _ESCAPED:
            at += 2
        else:
            _refuse(text, at + 1, "in string escape code")


def _number(text: str, at: int) -> int:
    if text[at] == "-":
        at += 1
        if text[at : at + 1] not in _DIGITS:
            _refuse(text, at, "in numeric literal")
    at = at + 1 if text[at] == "0" else _digits(text, at)
    if text[at : at + 1] == ".":
        at = _digits(text, at + 1, "after decimal point in numeric literal")
    if text[at : at + 1] in ("e", "E"):
        at += 1 + (text[at + 1 : at + 2] in ("+", "-"))
        at = _digits(text, at, "in exponent of numeric literal")
    return at


def _digits(text: str, at: int, where: str = "") -> int:
    if where and text[at : at + 1] not in _DIGITS:
        _refuse(text, at, where)
    while text[at : at + 1] in _DIGITS:
        at += 1
    return at
