"""Go regular expressions: matches, and errors of invalid patterns."""

from __future__ import annotations

import subprocess
import sys

import pytest

from kubeloop.cel.regex import PatternError, compile_pattern, matches

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
        (r"^\Qa.b\E+$", "a.bb", True),
        (r"^\Qa.b", "a.b", True),
        (r"^\Q\p{greek}\E$", r"\p{greek}", True),
        (r"^\\C$", r"\C", True),
        (r"^\x41\x{3a3}\101$", "A\u03a3A", True),
        (r"^a{,2}$", "a{,2}", True),
        (r"^a{2,3}$", "aa", True),
        (r"^(?P<n>a)(?<m>b)$", "ab", True),
        (r"^(?P<n>a)(?P<n>b)$", "ab", True),  # RE2 refuses a second group of the same name
        (r"^[(?P<n>]+(?P<n>b)$", "?P<n>(b", True),
        (r"\B", "", True),
        (r"\b", "", False),
        (r"^*a", "ba", True),
        (r"[^\x00-\x{10FFFF}]", "a", False),
        (r"^.\z", "\u00e9", True),
        (r"^.\z", "\U0001f600", True),
        (r"^(a{30}){30}$", "a" * 900, True),
        (r"^[\pL\pN]{1000}$", "\u00e9" * 1000, True),  # above RE2's default limit of memory
        ("(" * 1000 + "a" + ")" * 1000, "a", True),
    ],
)
def test_matches_as_in_go(regex: str, text: str, expected: bool):
    assert matches(regex, text) is expected
    assert next(compile_pattern(regex).all_in(text), None) is not None or not expected


@pytest.mark.parametrize(
    ("regex", "members", "others"),
    [
        (r"\p{Greek}", "\u03b1\u03b2", "a"),
        (r"\p{greek}", "\u03b1", "a"),
        (r"\p{old italic}", "\U00010300", "a"),
        (r"\p{Bassa_Vah}", "\U00016ad0", "a"),
        (r"\p{Warang_Citi}", "\U000118a0", "a"),
        (r"\p{Sign_Writing}", "\U0001d800", "a"),
        (r"\pL", "\u00e9", "1"),
        (r"\PN", "x", "1"),
        (r"\p{^Lu}", "a", "A"),
        (r"\P{^Lu}", "A", "a"),
        (r"[\p{Lu}_]", "A_\u00c9", "a"),
        (r"\p{uppercase letter}", "A", "a"),
        (r"(?i)\p{Lu}", "aA", "1"),
        (r"\p{digit}", "1", "a"),
        (r"\p{LC}", "aA\u01c5", "\u00aa"),
        (r"\P{LC}", "\u00aa1\u0378", "aA\u01c5"),
        (r"[\P{LC}a]", "\u00aa1\u0378a", "A\u01c5"),
        (r"\p{ASCII}", "a\x7f", "\u0080"),
        (r"[^\P{ASCII}b]", "a", "b\u0080"),
        (r"\p{Any}", "a\u0378", ""),
        (r"\p{Cn}", "\u0378", "a"),
        (r"[x\p{Cn}]", "\u0378x", "a"),
        (r"\p{Assigned}", "a\x00", "\u0378"),
        (r"[^\p{Assigned}]", "\u0378", "a"),
        (r"\p{C}", "\x00\u0378\ue000", "a"),  # Go counts unassigned characters, RE2 does not
        (r"[x\p{C}]", "\x00\u0378x", "a"),
        (r"[x\P{C}]", "ax", "\x00\u0378"),
    ],
)
def test_character_class(regex: str, members: str, others: str):
    assert [char for char in members + others if matches(rf"^{regex}$", char)] == [*members]


@pytest.mark.parametrize(
    ("regex", "message"),
    [
        ("[", "missing closing ]: `[`"),
        ("x[a-", "missing closing ]: `[a-`"),
        (r"x[\p{greek}", r"missing closing ]: `[\p{greek}`"),
        ("(a", "missing closing ): `(a`"),
        (r"(\p{greek}", r"missing closing ): `(\p{greek}`"),
        ("a)", "unexpected ): `a)`"),
        ("a**", "invalid nested repetition operator: `**`"),
        ("a+?+", "invalid nested repetition operator: `+?+`"),
        ("a++", "invalid nested repetition operator: `++`"),  # possessive in other dialects
        ("a*{2}", "invalid nested repetition operator: `*{2}`"),
        ("a*{2000}", "invalid repeat count: `{2000}`"),
        ("*a", "missing argument to repetition operator: `*`"),
        ("a|{2}", "missing argument to repetition operator: `{2}`"),
        ("a{1001}", "invalid repeat count: `{1001}`"),
        ("a{1001}?", "invalid repeat count: `{1001}`"),
        ("a{3,1}", "invalid repeat count: `{3,1}`"),
        ("a{2,99999999999}b", "invalid repeat count: `{2,99999999999}`"),
        ("(a{100}){11}", "invalid repeat count: `{11}`"),
        ("(a{100}){11}?", "invalid repeat count: `{11}?`"),
        ("[z-a]", "invalid character class range: `z-a`"),
        ("[[:foo:]]", "invalid character class range: `[:foo:]`"),
        (r"\p{Foo}", r"invalid character class range: `\p{Foo}`"),
        (r"[\p{foo}]", r"invalid character class range: `\p{foo}`"),
        (r"\p{Foo", r"invalid character class range: `\p{Foo`"),
        (r"\q", r"invalid escape sequence: `\q`"),
        (r"(a)\1", r"invalid escape sequence: `\1`"),
        (r"\C", r"invalid escape sequence: `\C`"),
        (r"\Z", r"invalid escape sequence: `\Z`"),
        ("a\\", "trailing backslash at end of expression: ``"),
        ("a(?=b)", "invalid or unsupported Perl syntax: `(?=`"),
        ("(?<!b)a", "invalid named capture: `(?<!b)a`"),
        ("(?<=b)a>", "invalid named capture: `(?<=b)a>`"),
        (r"(\p{greek})(?<!b", "invalid named capture: `(?<!b`"),
        ("(?P<1 a>b)", "invalid named capture: `(?P<1 a>`"),
        ("(?P<\u00e9>b)", "invalid named capture: `(?P<\u00e9>`"),
        ("x(?P<nb)", "invalid named capture: `(?P<nb)`"),
        ("(?>a)", "invalid or unsupported Perl syntax: `(?>`"),
        ("(?x)a", "invalid or unsupported Perl syntax: `(?x`"),
    ],
)
def test_invalid_pattern_has_go_error_and_accepts_any_value(regex: str, message: str):
    with pytest.raises(PatternError) as raised:
        compile_pattern(regex)
    assert str(raised.value) == f"error parsing regexp: {message}"
    assert matches(regex, "anything")


@pytest.mark.parametrize(
    ("regex", "problem"),
    [
        ("(a" * 5000 + ")" * 5000, "expression nests too deeply"),
        (r"[\pL\pN]{1000}" * 50, "expression too large"),
    ],
    ids=["nested", "large"],
)
def test_excessive_pattern_is_rejected(regex: str, problem: str):
    with pytest.raises(PatternError) as raised:
        compile_pattern(regex)
    assert str(raised.value) == f"error parsing regexp: {problem}: `{regex}`"


@pytest.mark.parametrize(
    ("regex", "text", "expected"),
    [
        ("a*", "baac", ["", "aa", ""]),
        ("a*?", "aa", ["", "", ""]),
        ("(|a)*", "aa", ["", "", ""]),  # the empty alternative is preferred
        ("(|a)+", "aa", ["", "", ""]),
        ("(a|)*", "aa", ["aa"]),
        ("x*", "\u00e9\U0001f600", ["", "", ""]),
        (r"\b", "\u00e9a b", ["", "", "", ""]),
        (r"^a", "aa", ["a"]),
        (r"a\b", "aa a", ["a", "a"]),
        (r"\pL+", "\u03b1\u03b2 \u00e9", ["\u03b1\u03b2", "\u00e9"]),
        ("$", "ab", [""]),
        ("b", "a", []),
    ],
)
def test_all_matches_are_those_of_go(regex: str, text: str, expected: list[str]):
    assert [*compile_pattern(regex).all_in(text)] == expected


def test_nested_repetitions_run_in_linear_time():
    assert not matches(r"^(a+)+\z", "a" * 5000 + "b")
    assert not matches(r"^(a|aa)+$", "a" * 5000 + "b")
    assert matches(r"^(\w+\s?)+$", "word " * 500)
    assert not matches("a+b", "a" * 200_000)


def test_re2_is_imported_with_the_first_pattern_and_logs_nothing():
    program = (
        "import sys; from kubeloop.cel.regex import matches;"
        r"imported = 're2' in sys.modules; matches('[', ''); matches(r'[\pL\pN]{1000}', '');"
        "print(imported, 're2' in sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert (done.stdout, done.stderr) == ("False True\n", "")


def test_patterns_are_errors_that_name_the_package_where_re2_is_missing(monkeypatch):
    monkeypatch.setitem(sys.modules, "re2", None)
    with pytest.raises(PatternError, match="google-re2 is not installed: `pip install google-re2` compiles it"):
        compile_pattern("^only-in-this-test$")
