"""Lexer: tokens of an expression, and values of literals. Source: cel-go parser/gen/CEL.g4, parser/unescape.go."""

from __future__ import annotations

import re

from kubeloop.cel.syntax import Issue

_ESCAPES = r"""\\(?:[abfnrtv"'\\?`]|[xX][0-9a-fA-F]{2}|u[0-9a-fA-F]{4}|U[0-9a-fA-F]{8}|[0-3][0-7]{2})"""
_STRING = rf'''(?:[rR](?:"""(?s:.*?)"""|\'\'\'(?s:.*?)\'\'\'|"[^"\n\r]*"|'[^'\n\r]*')
    |"""(?:{_ESCAPES}|[^\\])*?"""|\'\'\'(?:{_ESCAPES}|[^\\])*?\'\'\'
    |"(?:{_ESCAPES}|[^\\"\n\r])*"|'(?:{_ESCAPES}|[^\\'\n\r])*')'''
_TOKEN = re.compile(
    rf"""(?P<space>[\t\ \r\n\f]+|//[^\n]*)
    |(?P<bytes>[bB]{_STRING})
    |(?P<string>{_STRING})
    |(?P<float>\d+\.\d+(?:[eE][+-]?\d+)?|\d+[eE][+-]?\d+|\.\d+(?:[eE][+-]?\d+)?)
    |(?P<uint>(?:0x[0-9a-fA-F]+|\d+)[uU])
    |(?P<int>0x[0-9a-fA-F]+|\d+)
    |(?P<name>[A-Za-z_][A-Za-z0-9_]*)
    |(?P<escaped>`[A-Za-z0-9_.\-/\ ]+`)
    |(?P<sign>==|!=|<=|>=|&&|\|\||[<>\[\]{{}}().,\-!?:+*/%])""",
    re.VERBOSE,
)


class Token:
    __slots__ = ("kind", "offset", "text")

    def __init__(self, kind: str, text: str, offset: int) -> None:
        self.kind, self.text, self.offset = kind, text, offset


def tokens(source: str) -> tuple[list[Token], list[Issue]]:
    """Return the tokens, followed by one of kind "end", and the issues for unrecognized characters."""
    tokens_, issues, offset = [], [], 0
    while offset < len(source):
        match = _TOKEN.match(source, offset)
        if match is None:
            unrecognized = _unrecognized(source, offset)
            issues.append(Issue(offset, f"Syntax error: token recognition error at: '{unrecognized}'"))
            offset += len(unrecognized)
            continue
        kind = match.lastgroup or ""
        if kind == "name" and match[0] in ("in", "true", "false", "null"):
            kind = "sign" if match[0] == "in" else "constant"
        if kind != "space":
            tokens_.append(Token(kind, match[0], offset))
        offset = match.end()
    tokens_.append(Token("end", "<EOF>", len(source)))
    return tokens_, issues


def _unrecognized(source: str, offset: int) -> str:
    """Return the unrecognized text: an open string literal to its line end, or half an operator and one character."""
    if source[offset] in "\"'":
        return source[offset : source.find("\n", offset) + 1 or None].rstrip()
    return source[offset : offset + 2] if source[offset] in "=&|" else source[offset]


_ESCAPED_CHARACTERS = {"a": "\a", "b": "\b", "f": "\f", "n": "\n", "r": "\r", "t": "\t", "v": "\v"}


def string_value(literal: str) -> str:
    """Return the value of a string literal. Raises ValueError for an invalid code point."""
    literal = literal.replace("\r\n", "\n").replace("\r", "\n")
    raw = literal[0] in "rR"
    inner = _unquoted(literal[1:] if raw else literal)
    if raw or "\\" not in inner:
        return inner

    def replaced(match: re.Match[str]) -> str:
        escape = match[0][1:]
        if escape[0] in "xXuU":
            return _character(int(escape[1:], 16))
        if escape[0] in "0123":
            return _character(int(escape, 8))
        return _ESCAPED_CHARACTERS.get(escape, escape)

    return re.sub(_ESCAPES, replaced, inner)


def _character(code: int) -> str:
    if code > 0x10FFFF or 0xD800 <= code <= 0xDFFF:
        raise ValueError("invalid unicode code point")
    return chr(code)


def bytes_value(literal: str) -> bytes:
    """Return the value of a bytes literal; escapes are byte values. Raises ValueError for a \\u or \\U escape."""
    literal = literal[1:].replace("\r\n", "\n").replace("\r", "\n")
    raw = literal[0] in "rR"
    inner = _unquoted(literal[1:] if raw else literal)
    if raw or "\\" not in inner:
        return inner.encode()
    out, offset = bytearray(), 0
    for match in re.finditer(_ESCAPES, inner):
        out += inner[offset : match.start()].encode()
        escape, offset = match[0][1:], match.end()
        if escape[0] in "uU":
            raise ValueError("unable to unescape string")
        if escape[0] in "xX":
            out.append(int(escape[1:], 16))
        elif escape[0] in "0123":
            out.append(int(escape, 8))
        else:
            out += _ESCAPED_CHARACTERS.get(escape, escape).encode()
    return bytes(out + inner[offset:].encode())


def _unquoted(literal: str) -> str:
    width = 3 if len(literal) >= 6 and literal[:3] in ('"""', "'''") else 1
    return literal[width:-width]
