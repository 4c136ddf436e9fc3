"""Texts as Go reads and writes them: integers of any length, quoted strings."""

from __future__ import annotations

from collections.abc import Iterable

_READABLE_DIGITS = 40  # int() raises ValueError for some thousand digits, and takes quadratic time


def parse_integer(digits: str) -> int:
    """Parse decimal digits with a sign; a number of more than 40 digits becomes ±10**40, outside of every Go type."""
    sign = -1 if digits.startswith("-") else 1
    digits = digits.lstrip("+-").lstrip("0") or "0"
    return sign * (int(digits) if len(digits) <= _READABLE_DIGITS else 10**_READABLE_DIGITS)


_ESCAPES = {'"': '\\"', "\\": "\\\\", "\a": "\\a", "\b": "\\b", "\f": "\\f", "\n": "\\n", "\r": "\\r", "\t": "\\t"}


def quoted(text: str) -> str:
    """Quote a text as Go's %q does."""
    if text.isascii() and text.isprintable() and '"' not in text and "\\" not in text:
        return f'"{text}"'
    out = []
    for char in text:
        code = ord(char)
        if char in _ESCAPES:
            out.append(_ESCAPES[char])
        elif char == "\v":
            out.append("\\v")
        elif char.isprintable():
            out.append(char)
        elif code < 0x80:
            out.append(f"\\x{code:02x}")
        else:
            out.append(f"\\u{code:04x}" if code < 0x10000 else f"\\U{code:08x}")
    return f'"{"".join(out)}"'


def quoted_list(texts: Iterable[str]) -> str:
    """Quote texts as Go's %q does for a slice of strings."""
    return f"[{' '.join(map(quoted, texts))}]"
