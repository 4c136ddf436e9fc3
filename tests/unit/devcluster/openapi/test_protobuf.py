"""Gnostic protobuf form of OpenAPI 2 documents."""

from __future__ import annotations

from typing import Any

import pytest

from kubeloop.devcluster.openapi.protobuf import encode

JSON = dict[str, Any]


def document(**fields: Any) -> JSON:
    empty: JSON = {"paths": {}, "definitions": {}, "parameters": {}, "security": [], "securityDefinitions": {}}
    return {"swagger": "2.0", "info": {"title": "K", "version": "v1"}, **empty, **fields}


def test_document_without_paths():
    # field 1: swagger; 2: info with title (1) and version (2); 8, 9, 10, 13: empty messages
    assert encode(document()).hex(" ") == "0a 03 32 2e 30 12 07 0a 01 4b 12 02 76 31 42 00 4a 00 52 00 6a 00"


def test_definition_is_a_named_schema():
    encoded = encode(document(definitions={"T": {"type": "object", "description": "d"}}))
    assert b"\x12\x01T" not in encoded
    assert b"\n\x01T" in encoded
    assert b"\n\x06object" in encoded


@pytest.mark.parametrize(
    "definition", [{"unknown": 1}, {"type": "object", "properties": {"a": {"oneOf": []}}}], ids=["schema", "nested"]
)
def test_unknown_key_is_an_error(definition: JSON):
    with pytest.raises(KeyError):
        encode(document(definitions={"T": definition}))


def test_keys_of_other_api_servers_are_encoded():
    definition = {"allOf": [{"type": "number"}], "discriminator": "kind", "readOnly": True}
    header = {"name": "h", "in": "header", "type": "string"}
    operation = {"summary": "s", "deprecated": True, "parameters": [header], "responses": {"200": {}}}
    encoded = encode(document(definitions={"T": definition}, paths={"/a": {"get": operation, "x-own": 1}}))
    # field 24: allOf of a schema with the type (22) number; 26: discriminator; 27: readOnly
    assert bytes.fromhex("c2 01 0b b2 01 08 0a 06") + b"number" in encoded
    assert bytes.fromhex("d2 01 04") + b"kind" + bytes.fromhex("d8 01 01") in encoded
    # fields of an operation: 2: summary; 11: deprecated; 8: parameters with the form header (1)
    assert bytes.fromhex("12 01 73 58 01 42") in encoded
    assert bytes.fromhex("12 15 0a 13") + b"\x12\x06header" in encoded
