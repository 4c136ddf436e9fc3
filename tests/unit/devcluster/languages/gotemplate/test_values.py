"""Values of Go templates: types, printing, JSON and conversion to integers."""

from __future__ import annotations

from typing import Any

import pytest

from kubeloop.devcluster.languages.gotemplate.values import (
    JsonNumber,
    from_json,
    json_text,
    kind_of,
    to_int,
    to_json,
    type_of,
)
from kubeloop.kube.validation.field_errors import quoted


@pytest.mark.parametrize(
    ("value", "kind", "type_name"),
    [
        (None, "invalid", "<nil>"),
        (True, "bool", "bool"),
        (3, "int", "int"),
        (0.5, "float64", "float64"),
        ("a", "string", "string"),
        (JsonNumber("3"), "string", "json.Number"),
        ([1, None, "a"], "slice", "[]interface {}"),
        ({"b": 1, "a": []}, "map", "map[string]interface {}"),
    ],
)
def test_kind_and_type_of_a_value(value: Any, kind: str, type_name: str):
    assert (kind_of(value), type_of(value)) == (kind, type_name)


def test_zero_of_the_object_is_true():
    assert from_json({"replicas": 0})["replicas"]


@pytest.mark.parametrize(
    ("text", "literal"),
    [
        ('a"b\\', r'"a\"b\\"'),
        ("\a\b\f\n\r\t\v", r'"\a\b\f\n\r\t\v"'),
        ("\0\x1f\x7f", r'"\x00\x1f\x7f"'),
        ("\x80\u2028\ue000", r'"\u0080\u2028\ue000"'),
        ("\U000e0001", r'"\U000e0001"'),
        ("é😀 ", '"é😀 "'),
    ],
)
def test_quoted_text_is_a_go_literal(text: str, literal: str):
    assert quoted(text) == literal


def test_numbers_of_an_object_keep_their_text_and_type():
    obj = {"a": [1, 0.25, 2**53], "b": {"c": True, "d": None}, "e": "1"}
    converted = from_json(obj)
    assert [type_of(element) for element in converted["a"]] == ["json.Number"] * 3
    assert converted["a"] == ["1", "0.25", "9007199254740992"]
    assert converted["b"] == obj["b"]
    assert type_of(converted["e"]) == "string"
    assert to_json(converted) == obj
    converted["b"]["c"] = False
    assert obj["b"]["c"] is True


@pytest.mark.parametrize(
    ("value", "text"),
    [
        ({"b": [1.0, 2, JsonNumber("3"), 0.5], "a": None}, '{"a":null,"b":[1,2,3,0.5]}'),
        ("<a> & 'b' \u2028", "\"\\u003ca\\u003e \\u0026 'b' \\u2028\""),
    ],
)
def test_json_text_is_that_of_go(value: Any, text: str):
    assert json_text(value) == text


@pytest.mark.parametrize(
    ("value", "number"),
    [
        ("7", 7),
        ("+7", 7),
        ("-7", -7),
        ("0x1F", 31),
        ("-010", -8),
        ("0o17", 15),
        ("0b11", 3),
        ("8.00", 8),
        ("8.5", 0),
        ("8.", 0),
        ("08", 0),
        (" 7", 0),
        ("seven", 0),
        ("", 0),
        ("9223372036854775807", 2**63 - 1),
        ("9223372036854775808", 0),
        (JsonNumber("12"), 12),
        (-7.9, -7),
        (1e300, -(2**63)),
        (True, 1),
        (None, 0),
        ([1], 0),
    ],
)
def test_conversion_to_int_is_that_of_cast(value: Any, number: int):
    assert to_int(value) == number
