"""Patterns without going back: the same matches as Python's, and no text that takes forever."""

from __future__ import annotations

import random
import re

import pytest

from kubeloop.devcluster.custom.automata import Automaton, may_explode
from kubeloop.devcluster.custom.formats import automaton, matches

PATTERNS = [
    r"^(a+)+\Z", r"(a|b)*abb", r"^[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*\Z", r"(ab?)*?c",
    r"\b(a|ab)+\b", r"^(?:a{2,3}b?)+\Z", r"(?:[^ab]|\d)+", r"(a*)*b", r"a*?b*", r"(?:.a)+", r"(?:\w+\s?)+\Z", r"x*",
]  # fmt: skip


@pytest.mark.parametrize("pattern", PATTERNS)
@pytest.mark.parametrize("flags", [re.ASCII, re.ASCII | re.IGNORECASE | re.MULTILINE])
def test_matches_are_those_of_python(pattern, flags):
    rng = random.Random(f"{pattern} {flags}")
    found = re.compile(pattern, flags)
    ours = Automaton(found)
    for _ in range(150):
        text = "".join(rng.choices("aabbcAB .-1\n", k=rng.randrange(9)))
        assert ours.occurs_in(text) == (found.search(text) is not None), text
        if "*?" not in pattern and "*)*" not in pattern:  # of empty matches next to others Go has its own idea
            told = [each for each in ours.all_in(text) if each]
            assert told == [match[0] for match in found.finditer(text) if match[0]], text


def test_what_would_take_a_century_takes_no_time():
    assert not matches(r"^(a+)+\Z", "a" * 5000 + "b")
    assert not matches(r"^(a|aa)+$", "a" * 5000 + "b")
    assert matches(r"^(\w+\s?)+$", "word " * 500)


def test_ordinary_patterns_are_left_to_python():
    assert automaton(r"^[a-z0-9]([-a-z0-9]*[a-z0-9])?$") is None
    assert automaton(r"^\d+\.\d+$") is None
    assert may_explode(re.compile(r"(x+x+)+y"))
