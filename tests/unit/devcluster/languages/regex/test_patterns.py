"""Go regular expressions: matches, and errors of invalid patterns."""

from __future__ import annotations

import pytest

from kubeloop.devcluster.languages.regex.automata import Automaton
from kubeloop.devcluster.languages.regex.go_syntax import PatternError, parse
from kubeloop.devcluster.languages.regex.patterns import compile_pattern, matches

LONG_S, KELVIN = "\u017f", "\u212a"


@pytest.mark.parametrize(
    ("regex", "text", "expected"),
    [
        (r"^[[:alpha:]_]+$", "ab_", True),
        (r"[[:^digit:]]", "12", False),
        (r"^\d+\z", "12", True),
        (r"^\d+$", "\uff11\uff12", False),  # Go's digits are ASCII
        (r"^a$", "a\n", False),
        (r"(?m)^b$", "a\nb\nc", True),
        (r"(?i)^ABC$", "abc", True),
        (r"^(?i:a)b$", "Ab", True),
        (r"^(?i:a)b$", "AB", False),
        (r"(?i)^k+s$", f"kK{KELVIN}{LONG_S}", True),
        (r"(?i)^[^k]$", KELVIN, False),
        (r"a(?i)b|c", "C", True),  # flags apply to the end of the group, across alternatives
        (r"a.b", "a\nb", False),
        (r"(?s)a.b", "a\nb", True),
        (r"a$|b", "xb", True),
        (r"[]a]", "]", True),
        (r"[^]a]", "]", False),
        (r"[$]", "$", True),
        (r"[a-]", "-", True),
        (r"^\p{Greek}+$", "\u03b1\u03b2", True),
        (r"^\p{Greek}+$", "ab", False),
        (r"^\pL\PN$", "\u00e9x", True),
        (r"^\p{^Lu}$", "A", False),
        (r"^[\p{Lu}_]+$", "A_\u00c9", True),
        (r"^\p{uppercase letter}$", "A", True),
        (r"(?i)^\p{Lu}$", "a", True),
        (r"^\Qa.b\E+$", "a.bb", True),
        (r"^\Qa.b", "a.b", True),
        (r"^\x41\x{3a3}\101$", "A\u03a3A", True),
        (r"^a{,2}$", "a{,2}", True),
        (r"^a{2,3}$", "aa", True),
        (r"^(?P<n>a)(?<m>b)$", "ab", True),
        (r"\B", "", True),
        (r"\b", "", False),
        (r"^*a", "ba", True),
        (r"[^\x00-\x{10FFFF}]", "a", False),
    ],
)
def test_matches_as_in_go(regex: str, text: str, expected: bool):
    assert matches(regex, text) is expected
    assert Automaton(parse(regex)).occurs_in(text) is expected


@pytest.mark.parametrize(
    ("regex", "message"),
    [
        ("[", "missing closing ]: `[`"),
        ("x[a-", "missing closing ]: `[a-`"),
        ("(a", "missing closing ): `(a`"),
        ("a)", "unexpected ): `a)`"),
        ("a**", "invalid nested repetition operator: `**`"),
        ("a+?+", "invalid nested repetition operator: `+?+`"),
        ("a++", "invalid nested repetition operator: `++`"),  # possessive in other dialects
        ("*a", "missing argument to repetition operator: `*`"),
        ("a|{2}", "missing argument to repetition operator: `{2}`"),
        ("a{1001}", "invalid repeat count: `{1001}`"),
        ("a{3,1}", "invalid repeat count: `{3,1}`"),
        ("(a{100}){11}", "invalid repeat count: `{11}`"),
        ("[z-a]", "invalid character class range: `z-a`"),
        ("[[:foo:]]", "invalid character class range: `[:foo:]`"),
        (r"\p{Foo}", r"invalid character class range: `\p{Foo}`"),
        (r"\q", r"invalid escape sequence: `\q`"),
        (r"(a)\1", r"invalid escape sequence: `\1`"),
        (r"\C", r"invalid escape sequence: `\C`"),
        (r"\Z", r"invalid escape sequence: `\Z`"),
        ("a\\", "trailing backslash at end of expression: ``"),
        ("a(?=b)", "invalid or unsupported Perl syntax: `(?=`"),
        ("(?<!b)a", "invalid named capture: `(?<!b)a`"),
        ("(?P<1 a>b)", "invalid named capture: `(?P<1 a>`"),
        ("(?>a)", "invalid or unsupported Perl syntax: `(?>`"),
        ("(?x)a", "invalid or unsupported Perl syntax: `(?x`"),
    ],
)
def test_invalid_pattern_has_go_error_and_accepts_any_value(regex: str, message: str):
    with pytest.raises(PatternError) as raised:
        compile_pattern(regex)
    assert str(raised.value) == f"error parsing regexp: {message}"
    assert matches(regex, "anything")


def test_deeply_nested_pattern_is_rejected():
    with pytest.raises(PatternError, match="nests too deeply"):
        compile_pattern("(a" * 5000 + ")" * 5000)
