"""Character sets of regular expressions."""

from __future__ import annotations

import pytest

from kubeloop.devcluster.languages.regex.unicode_classes import (
    ANY,
    MAX_CHARACTER,
    Ranges,
    character_class,
    joined,
    others,
    with_other_cases,
    within,
)


@pytest.mark.parametrize(
    ("ranges", "expected"),
    [
        ([(5, 7), (1, 2)], ((1, 2), (5, 7))),
        ([(1, 3), (4, 5)], ((1, 5),)),
        ([(1, 9), (2, 3)], ((1, 9),)),
    ],
    ids=["sorted", "adjacent", "overlapping"],
)
def test_ranges_are_merged(ranges: list[tuple[int, int]], expected: Ranges):
    assert joined(ranges) == expected


@pytest.mark.parametrize(
    ("ranges", "expected"),
    [((), ANY), (ANY, ()), (((0, 4), (6, 9)), ((5, 5), (10, MAX_CHARACTER))), (((1, MAX_CHARACTER),), ((0, 0),))],
)
def test_complement_of_ranges(ranges: Ranges, expected: Ranges):
    assert others(ranges) == expected


@pytest.mark.parametrize(("code", "expected"), [(0, False), (1, True), (3, True), (4, False), (7, True)])
def test_membership_in_ranges(code: int, expected: bool):
    assert within(code, ((1, 3), (7, 9))) is expected


@pytest.mark.parametrize(
    ("text", "cases"),
    [("a", "Aa"), ("k", "Kk\u212a"), ("1", "1"), ("\u00e9", "\u00c9\u00e9"), ("\u03c3", "\u03a3\u03c2\u03c3")],
)
def test_characters_that_differ_only_in_case(text: str, cases: str):
    ranges = with_other_cases(((ord(text), ord(text)),))
    assert "".join(chr(code) for low, high in ranges for code in range(low, high + 1)) == cases


@pytest.mark.parametrize(
    ("name", "member", "other"),
    [
        ("Lu", "A", "a"), ("L", "\u00e9", "1"), ("LC", "a", "\u00aa"), ("Greek", "\u03b1", "a"), ("Nd", "1", "a"),
        ("ASCII", "a", "\u00e9"), ("Cn", "\u0378", "a"), ("Uppercase_Letter", "A", "a"),
    ],
)  # fmt: skip
def test_character_class(name: str, member: str, other: str):
    ranges = character_class(name)
    assert ranges is not None
    assert (within(ord(member), ranges), within(ord(other), ranges)) == (True, False)


def test_unknown_character_class():
    assert character_class("Klingon") is None
