"""Field errors with the API server's messages."""

from __future__ import annotations

import pytest

from kubeloop.kube.validation.field_errors import (
    aggregate_message,
    format_value,
    invalid,
    not_supported,
    parse_int64,
    quoted,
    required,
)


def test_messages_are_those_of_the_api_server():
    assert str(invalid("spec.replicas", -1, "must be positive")) == "spec.replicas: Invalid value: -1: must be positive"
    assert str(required("spec.name")) == "spec.name: Required value"
    error = not_supported("spec.type", "A", ("B", "C"))
    assert str(error) == 'spec.type: Unsupported value: "A": supported values: "B", "C"'


def test_several_errors_are_listed_once():
    assert aggregate_message(["a"]) == "a"
    assert aggregate_message(["a", "b", "a"]) == "[a, b]"


def test_values_are_quoted_like_go():
    assert quoted('a"\n\x01é\u200b') == '"a\\"\\n\\x01é\\u200b"'
    assert format_value({"a": [1, None]}) == '{"a":[1,null]}'


@pytest.mark.parametrize(("text", "number"), [("-5", -5), ("9223372036854775808", None), ("1e3", None), ("", None)])
def test_int64_is_parsed_like_go(text, number):
    assert parse_int64(text) == number


@pytest.mark.parametrize(
    ("text", "literal"),
    [
        ("a", '"a"'), ('a"b\\', r'"a\"b\\"'), ("\n\t", r'"\n\t"'), ("\x00", r'"\x00"'), ("\u200b", r'"\u200b"'),
        ("\U000e0001", r'"\U000e0001"'), ("\u00e9", '"\u00e9"'),
    ],
)  # fmt: skip
def test_quoted_is_the_format_of_go(text: str, literal: str):
    assert quoted(text) == literal
