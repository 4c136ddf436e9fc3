"""Automaton for patterns that make Python's re slow: same matches, in linear time."""

from __future__ import annotations

import random

import pytest

from kubeloop.devcluster.languages.regex.automata import Automaton, may_backtrack_exponentially, may_scan_quadratically
from kubeloop.devcluster.languages.regex.go_syntax import parse, to_python
from kubeloop.devcluster.languages.regex.patterns import Pattern, matches

PATTERNS = [
    r"^(a+)+\z", r"(a|b)*abb", r"^[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*\z", r"(ab?)*?c",
    r"\b(a|ab)+\b", r"^(?:a{2,3}b?)+\z", r"(?:[^ab]|\d)+", r"(a*)*b", r"a*?b*", r"(?:.a)+", r"(?:\w+\s?)+\z", r"x*",
]  # fmt: skip


@pytest.mark.parametrize("pattern", PATTERNS)
@pytest.mark.parametrize("flags", ["", "(?im)"])
def test_automaton_matches_like_re(pattern, flags):
    rng = random.Random(f"{pattern} {flags}")
    node = parse(flags + pattern)
    compiled = to_python(node)
    automaton = Automaton(node)
    for _ in range(150):
        text = "".join(rng.choices("aabbcAB .-1\n", k=rng.randrange(9)))
        assert automaton.occurs_in(text) == (compiled.search(text) is not None), text
        if "*?" not in pattern and "*)*" not in pattern:  # Go treats adjacent empty matches differently
            occurrences = [match for match in automaton.all_in(text) if match]
            assert occurrences == [match[0] for match in compiled.finditer(text) if match[0]], text


def test_exponential_patterns_run_in_linear_time():
    assert not matches(r"^(a+)+\z", "a" * 5000 + "b")
    assert not matches(r"^(a|aa)+$", "a" * 5000 + "b")
    assert matches(r"^(\w+\s?)+$", "word " * 500)


def test_may_backtrack_exponentially():
    for pattern in (r"^[a-z0-9]([-a-z0-9]*[a-z0-9])?$", r"^\d+\.\d+$", r"^(a|b)+$"):
        assert not may_backtrack_exponentially(parse(pattern))
    assert may_backtrack_exponentially(parse(r"(x+x+)+y"))
    assert may_backtrack_exponentially(parse(r"^(a?b?)*$"))  # "ab" is one repetition or two


def test_long_text_is_scanned_once():
    assert may_scan_quadratically(parse("a+b"))
    assert not may_scan_quadratically(parse("^a+b"))
    assert not matches("a+b", "a" * 200_000)
    assert matches("a+b", "a" * 200_000 + "b")


def test_empty_matches_are_returned_as_in_go():
    assert [*Pattern("a*").all_in("baac")] == ["", "aa", ""]
    assert [*Pattern("a*?").all_in("aa")] == ["", "", ""]
