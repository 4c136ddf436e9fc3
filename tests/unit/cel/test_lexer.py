"""Tokens of an expression and values of literals."""

from __future__ import annotations

import pytest

from kubeloop.cel.lexer import bytes_value, string_value, tokens


@pytest.mark.parametrize(
    ("source", "kinds"),
    [
        ("a.b", "name sign name end"),
        ("1u + 0x1F - 2.5e3", "uint sign int sign float end"),
        ("a in b // c", "name sign name end"),
        ("true && null", "constant sign constant end"),
        ("r'a' b\"c\" `x-y`", "string bytes escaped end"),
    ],
)
def test_kinds_of_tokens(source: str, kinds: str):
    tokenized, issues = tokens(source)
    assert (" ".join(token.kind for token in tokenized), issues) == (kinds, [])


@pytest.mark.parametrize(
    ("source", "offset", "text"), [("a # b", 2, "#"), ("a = 1", 2, "= "), ("x + 'open", 4, "'open"), ("a | b", 2, "| ")]
)
def test_unrecognized_characters_are_issues(source: str, offset: int, text: str):
    _, (issue,) = tokens(source)
    assert (issue.offset, issue.message) == (offset, f"Syntax error: token recognition error at: '{text}'")


@pytest.mark.parametrize(
    ("literal", "value"),
    [
        ("'a'", "a"), (r"'\n\t\x41\u00e9\101'", "\n\tA\u00e9A"), (r"r'\n'", r"\n"), ("'''a\r\nb'''", "a\nb"),
        ('"""a"b"""', 'a"b'), (r"'\''", "'"),
    ],
)  # fmt: skip
def test_value_of_a_string_literal(literal: str, value: str):
    assert string_value(literal) == value


@pytest.mark.parametrize("literal", [r"'\ud800'", r"'\U00110000'"])
def test_invalid_code_point_of_a_string_literal(literal: str):
    with pytest.raises(ValueError, match="invalid unicode code point"):
        string_value(literal)


@pytest.mark.parametrize(
    ("literal", "value"), [("b'\u00e9'", b"\xc3\xa9"), (r"b'\xff\377'", b"\xff\xff"), (r"br'\x'", rb"\x")]
)
def test_value_of_a_bytes_literal(literal: str, value: bytes):
    assert bytes_value(literal) == value
