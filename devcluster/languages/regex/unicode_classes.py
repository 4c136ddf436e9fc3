"""Sets of characters as ranges: what `\\p{...}` means to Go's regular expressions, and what is the same but for case.

unicode.json is read when the first pattern asks for more than ASCII; it is written by generate_unicode.py. Source: Go's
unicode (Unicode 17) and regexp/syntax.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable
from functools import cache
from pathlib import Path
from typing import Any, TypeAlias

import msgspec

Ranges: TypeAlias = tuple[tuple[int, int], ...]
"""First and last of each, in order, and none beside another."""

MAX_CHARACTER = 0x10FFFF
ANY: Ranges = ((0, MAX_CHARACTER),)
_ASCII_LETTERS = "abcdefghijklmnopqrstuvwxyz"
_ASCII_CASES = {
    code: (ord(letter.upper()), ord(letter), *more)
    for letter in _ASCII_LETTERS
    for more in [{"k": (0x212A,), "s": (0x17F,)}.get(letter, ())]  # the signs of Kelvin and of the long s
    for code in (ord(letter.upper()), ord(letter))
}
_CASED = ("Lu", "Ll", "Lt")


def joined(ranges: Iterable[tuple[int, int]]) -> Ranges:
    result: list[tuple[int, int]] = []
    for low, high in sorted(ranges):
        if result and low <= result[-1][1] + 1:
            result[-1] = (result[-1][0], max(high, result[-1][1]))
        else:
            result.append((low, high))
    return tuple(result)


def others(ranges: Ranges) -> Ranges:
    """All characters that are in none of them."""
    found, start = [], 0
    for low, high in ranges:
        if start < low:
            found.append((start, low - 1))
        start = high + 1
    return (*found, (start, MAX_CHARACTER)) if start <= MAX_CHARACTER else tuple(found)


def within(code: int, ranges: Ranges) -> bool:
    at = bisect_right(ranges, (code, MAX_CHARACTER)) - 1
    return at >= 0 and code <= ranges[at][1]


@cache
def _tables() -> dict[str, Any]:
    tables: dict[str, Any] = msgspec.json.decode(Path(__file__).with_name("unicode.json").read_bytes())
    return tables


def _unpacked(packed: list[int]) -> Ranges:
    found, end = [], 0
    for ahead, more in zip(packed[::2], packed[1::2], strict=True):
        found.append((end + ahead, end + ahead + more))
        end += ahead + more
    return tuple(found)


@cache
def _cases() -> dict[int, tuple[int, ...]]:
    return {each: tuple(orbit) for orbit in _tables()["cases"] for each in orbit}


def with_other_cases(ranges: Ranges) -> Ranges:
    """With what is the same but for its case."""
    if all(high < 0x80 for _, high in ranges):
        more = [_ASCII_CASES.get(code, ()) for low, high in ranges for code in range(low, high + 1)]
    else:
        more = [orbit for code, orbit in _cases().items() if within(code, ranges)]
    return joined([*ranges, *((each, each) for orbit in more for each in orbit)])


def _canonical(name: str) -> str:
    """As names are compared: Uppercase_letter is UPPERCASE LETTER."""
    return "".join(char for char in name if char not in "_- ").capitalize()


@cache
def character_class(name: str) -> Ranges | None:
    """What `\\p{name}` means, None if there is nothing of that name."""
    name = _canonical(name)
    match name:
        case "Any":
            return ANY
        case "Ascii":
            return ((0, 0x7F),)
        case "Assigned":
            return others(_category("Cn"))
    tables = _tables()
    if name == "Lc" or name in _KINDS or name in tables["categories"] or name == "Cn":
        return _category("LC" if name == "Lc" else name)
    names = {_canonical(each): each for each in tables["scripts"]}
    if name in names:
        return _unpacked(tables["scripts"][names[name]])
    aliases = {_canonical(each): category for each, category in tables["aliases"].items()}
    return _category(aliases[name]) if name in aliases else None


_KINDS = ("C", "L", "M", "N", "P", "S", "Z")


@cache
def _category(name: str) -> Ranges:
    known = _tables()["categories"]
    if name in known:
        return _unpacked(known[name])
    if name == "Cn":  # what is none of the others
        return others(joined(pair for packed in known.values() for pair in _unpacked(packed)))
    parts = _CASED if name == "LC" else [each for each in known if each.startswith(name)]
    found = [pair for part in parts for pair in _category(part)]
    return joined([*found, *_category("Cn")] if name == "C" else found)
