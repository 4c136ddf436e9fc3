"""Syntax errors of Go's JSON decoder, and the summary of a body in error messages.

The text is only scanned after another decoder rejected it, to produce the message known from Kubernetes. Source:
encoding/json scanner.go; summarizeData of apiserver pkg/endpoints/handlers/rest.go.
"""

from __future__ import annotations

import re
from itertools import accumulate
from typing import NoReturn

_SUMMARY_BYTES = 30
_SPACE = re.compile(r"[ \t\r\n]*")
_PLAIN = re.compile(r'[^"\\\x00-\x1f]*')
_ESCAPED = '"\\/bfnrt'
_DIGITS, _HEXADECIMAL = frozenset("0123456789"), frozenset("0123456789abcdefABCDEF")
_LITERALS = ("true", "false", "null")
_END = "unexpected end of JSON input"
_MAX_DEPTH = 10_000
_STRING = re.compile(rb'"(?:[^"\\]|\\.)*"', re.DOTALL)
_NOT_BRACKETS = bytes(set(range(256)) - set(b"[]{}"))
_ESCAPES = {"'": r"\'", "\\": r"\\", **dict(zip("\a\b\t\n\v\f\r", map(r"\{}".format, "abtnvfr"), strict=True))}
_DEPTH_CHANGE = {ord("["): 1, ord("{"): 1, ord("]"): -1, ord("}"): -1}


class _SyntaxError(Exception):
    pass


def summarize_body(body: bytes) -> str:
    """Return the start of a body as errors show it: text if it may be JSON, else hexadecimal."""
    if not body:
        return "<empty>"
    ellipsis = " ..." if len(body) > _SUMMARY_BYTES else ""
    part = body[:_SUMMARY_BYTES]
    return (part.decode("utf-8", "replace") if part.startswith(b"{") else part.hex()) + ellipsis


def exceeds_max_depth(body: bytes) -> bool:
    """Return True if a JSON text nests deeper than Go's decoder allows. Source: encoding/json maxNestingDepth."""
    if body.count(b"[") + body.count(b"{") <= _MAX_DEPTH:
        return False
    brackets = _STRING.sub(b"", body).translate(None, _NOT_BRACKETS)
    return max(accumulate(map(_DEPTH_CHANGE.__getitem__, brackets)), default=0) > _MAX_DEPTH


def go_json_error(body: bytes) -> str:
    """Return the first syntax error of a JSON text, or ""."""
    text = body.decode("latin-1")  # Go's decoder reads bytes, and shows each as a character
    try:
        end = _space(text, _value(text, _space(text, 0), "looking for beginning of value"))
        if end < len(text):
            _fail(text, end, "after top-level value")
    except _SyntaxError as error:
        return str(error)
    except RecursionError:
        return "exceeded max depth"
    return ""


def _fail(text: str, at: int, context: str) -> NoReturn:
    if at >= len(text):
        raise _SyntaxError(_END)
    char = text[at]
    shown = _ESCAPES.get(char) or (char if char.isprintable() else _unprintable(ord(char)))
    raise _SyntaxError(f"invalid character '{shown}' {context}")


def _unprintable(code: int) -> str:
    return f"\\u{code:04x}" if code > 0x7F else f"\\x{code:02x}"


def _space(text: str, at: int) -> int:
    match = _SPACE.match(text, at)
    assert match is not None
    return match.end()


def _value(text: str, at: int, context: str) -> int:
    """Return the index after the value that starts at `at`."""
    char = text[at : at + 1]
    if char == "{":
        return _members(text, at + 1, "}")
    if char == "[":
        return _members(text, at + 1, "]")
    if char == '"':
        return _string(text, at + 1)
    if char == "-" or char in _DIGITS:
        return _number(text, at)
    for literal in _LITERALS:
        if char == literal[0]:
            for index, expected in enumerate(literal):
                if text[at + index : at + index + 1] != expected:
                    _fail(text, at + index, f"in literal {literal} (expecting '{expected}')")
            return at + len(literal)
    _fail(text, at, context)


def _members(text: str, at: int, end: str) -> int:
    """Return the index after the array or object whose members start at `at`; `end` is its closing bracket."""
    at = _space(text, at)
    if text[at : at + 1] == end:
        return at + 1
    while True:
        if end == "}":
            if text[at : at + 1] != '"':
                _fail(text, at, "looking for beginning of object key string")
            at = _space(text, _string(text, at + 1))
            if text[at : at + 1] != ":":
                _fail(text, at, "after object key")
            at = _space(text, at + 1)
        at = _space(text, _value(text, at, "looking for beginning of value"))
        if text[at : at + 1] == end:
            return at + 1
        if text[at : at + 1] != ",":
            _fail(text, at, "after object key:value pair" if end == "}" else "after array element")
        at = _space(text, at + 1)


def _string(text: str, at: int) -> int:
    while True:
        match = _PLAIN.match(text, at)
        assert match is not None
        at = match.end()
        char = text[at : at + 1]
        if char == '"':
            return at + 1
        if char != "\\":
            _fail(text, at, "in string literal")
        if text[at + 1 : at + 2] == "u":
            for index in range(at + 2, at + 6):
                if text[index : index + 1] not in _HEXADECIMAL:
                    _fail(text, index, r"in \u hexadecimal character escape")
            at += 6
        elif text[at + 1 : at + 2] and text[at + 1] in _ESCAPED:
            at += 2
        else:
            _fail(text, at + 1, "in string escape code")


def _number(text: str, at: int) -> int:
    if text[at] == "-":
        at += 1
        if text[at : at + 1] not in _DIGITS:
            _fail(text, at, "in numeric literal")
    at = at + 1 if text[at] == "0" else _digits(text, at)
    if text[at : at + 1] == ".":
        at = _digits(text, at + 1, "after decimal point in numeric literal")
    if text[at : at + 1] in ("e", "E"):
        at += 1 + (text[at + 1 : at + 2] in ("+", "-"))
        at = _digits(text, at, "in exponent of numeric literal")
    return at


def _digits(text: str, at: int, context: str = "") -> int:
    if context and text[at : at + 1] not in _DIGITS:
        _fail(text, at, context)
    while text[at : at + 1] in _DIGITS:
        at += 1
    return at
