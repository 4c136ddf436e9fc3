"""Syntax errors of Go's JSON decoder, and summaries of bodies."""

from __future__ import annotations

import json
from typing import Any

import pytest

from kubeloop.devcluster.serializer.go_json_errors import exceeds_max_depth, go_json_error, summarize_body


@pytest.mark.parametrize(("text", "message"), [
    ("", "unexpected end of JSON input"),
    ("{}x", "invalid character 'x' after top-level value"),
    ('{"a" 1}', "invalid character '1' after object key"),
    ('{"a":1 "b":2}', "invalid character '\"' after object key:value pair"),
    ("[1 2]", "invalid character '2' after array element"),
    ("{'a':1}", r"invalid character '\'' looking for beginning of object key string"),
    ('{"a":1,}', "invalid character '}' looking for beginning of object key string"),
    ("nul", "unexpected end of JSON input"),
    ("trux", "invalid character 'x' in literal true (expecting 'e')"),
    ('"a\nb"', r"invalid character '\n' in string literal"),
    (r'"\x"', "invalid character 'x' in string escape code"),
    ("\ufeff{}", "invalid character 'ï' looking for beginning of value"),
    ("é", "invalid character 'Ã' looking for beginning of value"),
    ("\\", r"invalid character '\\' looking for beginning of value"),
    ("\x07", r"invalid character '\a' looking for beginning of value"),
    ("\x7f", r"invalid character '\x7f' looking for beginning of value"),
    ('{"a":\xa0}', "invalid character 'Â' looking for beginning of value"),
    (r'"\u12G4"', r"invalid character 'G' in \u hexadecimal character escape"),
    ("-a", "invalid character 'a' in numeric literal"),
    ("1.x", "invalid character 'x' after decimal point in numeric literal"),
    ("1e", "unexpected end of JSON input"),
    ("[" * 100_000, "exceeded max depth"),
])  # fmt: skip
def test_syntax_error_has_go_message(text: str, message: str):
    assert go_json_error(text.encode()) == message


@pytest.mark.parametrize(
    "value", [None, True, -1.5e-7, 'a"\\\u2028ü', [[], {}], {"a": [1, {"b": None}]}, 12345678901234]
)
def test_valid_json_has_no_error(value: Any):
    assert go_json_error(json.dumps(value, indent=1).encode()) == ""


def test_summarize_body():
    assert summarize_body(b"") == "<empty>"
    assert summarize_body(b'{"kind": "ConfigMap", "apiVersion": "v1"}') == '{"kind": "ConfigMap", "apiVers ...'
    assert summarize_body(b"[1]") == "5b315d"


@pytest.mark.parametrize(
    ("body", "expected"),
    [
        pytest.param(b"[" * 10_000 + b"]" * 10_000, False, id="Go's limit"),
        pytest.param(b'{"a":' * 10_001 + b"1" + b"}" * 10_001, True, id="one level more"),
        pytest.param(b"[" + b"[]," * 20_000 + b"[]]", False, id="many brackets, two levels"),
        pytest.param(b'["' + b"[" * 20_000 + b'"]', False, id="brackets in a string"),
        pytest.param(b'["\\"' + b"[" * 20_000 + b'"]', False, id="brackets behind an escaped quote"),
    ],
)
def test_exceeds_max_depth(body: bytes, expected: bool):
    assert exceeds_max_depth(body) is expected
