"""Patterns without going back: the same matches as Python's, and no text that takes forever."""

from __future__ import annotations

import random

import pytest

from kubeloop.devcluster.languages.regex.automata import Automaton, looks_again, may_explode
from kubeloop.devcluster.languages.regex.go_syntax import in_python, read
from kubeloop.devcluster.languages.regex.patterns import Pattern, matches

PATTERNS = [
    r"^(a+)+\z", r"(a|b)*abb", r"^[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*\z", r"(ab?)*?c",
    r"\b(a|ab)+\b", r"^(?:a{2,3}b?)+\z", r"(?:[^ab]|\d)+", r"(a*)*b", r"a*?b*", r"(?:.a)+", r"(?:\w+\s?)+\z", r"x*",
]  # fmt: skip


@pytest.mark.parametrize("pattern", PATTERNS)
@pytest.mark.parametrize("flags", ["", "(?im)"])
def test_matches_are_those_of_python(pattern, flags):
    rng = random.Random(f"{pattern} {flags}")
    node = read(flags + pattern)
    found = in_python(node)
    ours = Automaton(node)
    for _ in range(150):
        text = "".join(rng.choices("aabbcAB .-1\n", k=rng.randrange(9)))
        assert ours.occurs_in(text) == (found.search(text) is not None), text
        if "*?" not in pattern and "*)*" not in pattern:  # of empty matches next to others Go has its own idea
            told = [each for each in ours.all_in(text) if each]
            assert told == [match[0] for match in found.finditer(text) if match[0]], text


def test_what_would_take_a_century_takes_no_time():
    assert not matches(r"^(a+)+\z", "a" * 5000 + "b")
    assert not matches(r"^(a|aa)+$", "a" * 5000 + "b")
    assert matches(r"^(\w+\s?)+$", "word " * 500)


def test_ordinary_patterns_are_left_to_python():
    for each in (r"^[a-z0-9]([-a-z0-9]*[a-z0-9])?$", r"^\d+\.\d+$", r"^(a|b)+$"):
        assert not may_explode(read(each))
    assert may_explode(read(r"(x+x+)+y"))
    assert may_explode(read(r"^(a?b?)*$"))  # "ab" is one round, or two


def test_a_long_text_is_looked_at_once_only():
    assert looks_again(read("a+b"))
    assert not looks_again(read("^a+b"))
    assert not matches("a+b", "a" * 200_000)
    assert matches("a+b", "a" * 200_000 + "b")


def test_an_empty_match_is_told_as_go_tells_it():
    assert [*Pattern("a*").all_in("baac")] == ["", "aa", ""]
    assert [*Pattern("a*?").all_in("aa")] == ["", "", ""]
