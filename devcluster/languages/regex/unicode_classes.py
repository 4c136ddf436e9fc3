"""Character sets as ranges: `\\p{...}` of Go's regular expressions, and characters that differ only in case.

unicode.json, written by generate_unicode.py, is read when the first pattern needs more than ASCII. Source: Go's unicode
(Unicode 17) and regexp/syntax.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable
from functools import cache
from pathlib import Path
from typing import Any, TypeAlias

import msgspec

Ranges: TypeAlias = tuple[tuple[int, int], ...]
"""First and last character of each range, sorted, with adjacent ranges merged."""

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
    """Return the ranges of all characters outside of `ranges`."""
    gaps, start = [], 0
    for low, high in ranges:
        if start < low:
            gaps.append((start, low - 1))
        start = high + 1
    return (*gaps, (start, MAX_CHARACTER)) if start <= MAX_CHARACTER else tuple(gaps)


def within(code: int, ranges: Ranges) -> bool:
    at = bisect_right(ranges, (code, MAX_CHARACTER)) - 1
    return at >= 0 and code <= ranges[at][1]


@cache
def _tables() -> dict[str, Any]:
    tables: dict[str, Any] = msgspec.json.decode(Path(__file__).with_name("unicode.json").read_bytes())
    return tables


def _unpacked(packed: list[int]) -> Ranges:
    ranges, end = [], 0
    for ahead, more in zip(packed[::2], packed[1::2], strict=True):
        ranges.append((end + ahead, end + ahead + more))
        end += ahead + more
    return tuple(ranges)


@cache
def _cases() -> dict[int, tuple[int, ...]]:
    return {char: tuple(orbit) for orbit in _tables()["cases"] for char in orbit}


def with_other_cases(ranges: Ranges) -> Ranges:
    """Return `ranges` with the characters that differ from one of theirs only in case."""
    if all(high < 0x80 for _, high in ranges):
        more = [_ASCII_CASES.get(code, ()) for low, high in ranges for code in range(low, high + 1)]
    else:
        more = [orbit for code, orbit in _cases().items() if within(code, ranges)]
    return joined([*ranges, *((char, char) for orbit in more for char in orbit)])


def _canonical(name: str) -> str:
    """Return the form in which names are compared: case, spaces, "_" and "-" are ignored."""
    return "".join(char for char in name if char not in "_- ").capitalize()


@cache
def character_class(name: str) -> Ranges | None:
    """Return the characters of `\\p{name}`; None for an unknown name."""
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
    names = {_canonical(name): name for name in tables["scripts"]}
    if name in names:
        return _unpacked(tables["scripts"][names[name]])
    aliases = {_canonical(alias): category for alias, category in tables["aliases"].items()}
    return _category(aliases[name]) if name in aliases else None


_KINDS = ("C", "L", "M", "N", "P", "S", "Z")


@cache
def _category(name: str) -> Ranges:
    categories = _tables()["categories"]
    if name in categories:
        return _unpacked(categories[name])
    if name == "Cn":  # characters in no other category
        return others(joined(pair for packed in categories.values() for pair in _unpacked(packed)))
    parts = _CASED if name == "LC" else [category for category in categories if category.startswith(name)]
    ranges = [pair for part in parts for pair in _category(part)]
    return joined([*ranges, *_category("Cn")] if name == "C" else ranges)
