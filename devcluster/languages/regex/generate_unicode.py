"""Generates unicode.json: characters of `\\p{...}` in Go, and characters that differ only in case.

    python -m kubeloop.devcluster.languages.regex.generate_unicode GOROOT/src/unicode/tables.go

A range is stored as its distance from the end of the previous one, and the number of characters after its first.
"""

from __future__ import annotations

import json
import re
import sys
from itertools import pairwise
from pathlib import Path

Ranges = list[tuple[int, int]]

_MAX = 0x10FFFF


def _ranges(code: str) -> Ranges:
    ranges: Ranges = []
    for low, high, step in re.findall(r"\{0x([0-9a-f]+), 0x([0-9a-f]+), (\d+)\}", code):
        first, last = int(low, 16), int(high, 16)
        ranges += (
            [(first, last)]
            if step == "1"
            else [(code_point, code_point) for code_point in range(first, last + 1, int(step))]
        )
    return joined(ranges)


def joined(ranges: Ranges) -> Ranges:
    """Return the ranges sorted, with adjacent ones merged."""
    result: Ranges = []
    for low, high in sorted(ranges):
        if result and low <= result[-1][1] + 1:
            result[-1] = (result[-1][0], max(high, result[-1][1]))
        else:
            result.append((low, high))
    return result


def _packed(ranges: Ranges) -> list[int]:
    packed, end = [], 0
    for low, high in ranges:
        packed += [low - end, high - low]
        end = high
    return packed


def _map(code: str, name: str) -> dict[str, str]:
    block = re.search(rf"^var {name} = map\[string\][^{{]*\{{\n(.*?)^\}}", code, re.M | re.S)
    assert block is not None, name
    return dict(re.findall(r'"([^"]+)":\s*"?([A-Za-z_]+)', block[1]))


def _orbits(code: str) -> list[list[int]]:
    """Return groups of two or more characters that differ only in case."""
    same: dict[int, set[int]] = {}

    def join(one: int, other: int) -> None:
        whole = same.get(one, {one}) | same.get(other, {other})
        for char in whole:
            same[char] = whole

    table = re.search(r"^var _CaseRanges = (.*?)^\}", code, re.M | re.S)
    orbit = re.search(r"^var caseOrbit = (.*?)^\}", code, re.M | re.S)
    assert table is not None
    assert orbit is not None
    special = [(int(one, 16), int(other, 16)) for one, other in re.findall(r"\{0x(\w+), 0x(\w+)\}", orbit[1])]
    handled = {one for one, _ in special}  # the other table is ignored for these
    for low, high, upper, lower in re.findall(r"\{0x(\w+), 0x(\w+), d\{(-?\w+), (-?\w+), -?\w+\}\}", table[1]):
        first = int(low, 16)
        for char in range(first, int(high, 16) + 1):
            if upper == "UpperLower":
                join(first + (char - first & ~1), first + (char - first | 1))
            elif char not in handled:
                join(char, char + (int(lower) or int(upper)))
    for one, other in special:
        join(one, other)
    return sorted(sorted(orbit) for orbit in {frozenset(orbit) for orbit in same.values()} if len(orbit) > 1)


def generate(code: str) -> dict[str, object]:
    tables = {
        name: _ranges(body) for name, body in re.findall(r"^var _(\w+) = &RangeTable\{(.*?)^\}", code, re.M | re.S)
    }
    variables = dict(re.findall(r"^\s+(\w+)\s+= _(\w+)", code, re.M))
    categories = {name: tables[variables[of]] for name, of in _map(code, "Categories").items()}
    short = {name: ranges for name, ranges in categories.items() if len(name) == 2 and name not in ("Cn", "LC")}
    for name, ranges in categories.items():
        parts = [
            part_ranges
            for part, part_ranges in short.items()
            if part.startswith(name) or (name == "LC" and part in _CASED)
        ]
        rest = [] if name in short else _unassigned(short) if name in ("C", "Cn") else []
        assert joined([pair for part_ranges in (*parts, rest) for pair in part_ranges]) == ranges, name
    scripts = {name: tables[variables[of]] for name, of in _map(code, "Scripts").items()}
    return {
        "categories": {name: _packed(ranges) for name, ranges in short.items()},
        "scripts": {name: _packed(ranges) for name, ranges in scripts.items()},
        "aliases": _map(code, "CategoryAliases"),
        "cases": _orbits(code),
    }


_CASED = ("Lu", "Ll", "Lt")


def _unassigned(short: dict[str, Ranges]) -> Ranges:
    assigned = joined([pair for part_ranges in short.values() for pair in part_ranges])
    edges = [(-1, -1), *assigned, (_MAX + 1, _MAX + 1)]
    return [(one[1] + 1, other[0] - 1) for one, other in pairwise(edges) if one[1] + 1 < other[0]]


if __name__ == "__main__":
    tables = generate(Path(sys.argv[1]).read_text())
    Path(__file__).with_name("unicode.json").write_text(json.dumps(tables, separators=(",", ":")) + "\n")
