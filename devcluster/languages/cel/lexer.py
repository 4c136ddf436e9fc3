"""The tokens of an expression, and what literals stand for. Source: cel-go parser/gen/CEL.g4, parser/unescape.go."""

from __future__ import annotations

import re

from kubeloop.devcluster.languages.cel.syntax import Issue

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
    __slots__ = ("at", "kind", "text")

    def __init__(self, kind: str, text: str, at: int) -> None:
        self.kind, self.text, self.at = kind, text, at


def tokens(source: str) -> tuple[list[Token], list[Issue]]:
    """The tokens, with one of kind "end" behind them, and what belongs to none."""
    found, issues, at = [], [], 0
    while at < len(source):
        match = _TOKEN.match(source, at)
        if match is None:
            shown = _unreadable(source, at)
            issues.append(Issue(at, f"Syntax error: token recognition error at: '{shown}'"))
            at += len(shown)
            continue
        kind = match.lastgroup or ""
        if kind == "name" and match[0] in ("in", "true", "false", "null"):
            kind = "sign" if match[0] == "in" else "constant"
        if kind != "space":
            found.append(Token(kind, match[0], at))
        at = match.end()
    found.append(Token("end", "<EOF>", len(source)))
    return found, issues


def _unreadable(source: str, at: int) -> str:
    """What cannot be read from here: a text to the end of its line, the half of an operator with what follows it."""
    if source[at] in "\"'":
        return source[at : source.find("\n", at) + 1 or None].rstrip()
    return source[at : at + 2] if source[at] in "=&|" else source[at]


_PLAIN = {"a": "\a", "b": "\b", "f": "\f", "n": "\n", "r": "\r", "t": "\t", "v": "\v"}


def text_of(literal: str) -> str:
    """What a string literal stands for. Raises ValueError for code points that are none."""
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
        return _PLAIN.get(escape, escape)

    return re.sub(_ESCAPES, replaced, inner)


def _character(code: int) -> str:
    if code > 0x10FFFF or 0xD800 <= code <= 0xDFFF:
        raise ValueError("invalid unicode code point")
    return chr(code)


def bytes_of(literal: str) -> bytes:
    """What a bytes literal stands for; escapes are bytes here. Raises ValueError for code points."""
    literal = literal[1:].replace("\r\n", "\n").replace("\r", "\n")
    raw = literal[0] in "rR"
    inner = _unquoted(literal[1:] if raw else literal)
    if raw or "\\" not in inner:
        return inner.encode()
    out, at = bytearray(), 0
    for match in re.finditer(_ESCAPES, inner):
        out += inner[at : match.start()].encode()
        escape, at = match[0][1:], match.end()
        if escape[0] in "uU":
            raise ValueError("unable to unescape string")
        if escape[0] in "xX":
            out.append(int(escape[1:], 16))
        elif escape[0] in "0123":
            out.append(int(escape, 8))
        else:
            out += _PLAIN.get(escape, escape).encode()
    return bytes(out + inner[at:].encode())


def _unquoted(literal: str) -> str:
    width = 3 if len(literal) >= 6 and literal[:3] in ('"""', "'''") else 1
    return literal[width:-width]
