"""Gnostic protobuf form of an OpenAPI 2 document, which Go clients request from /openapi/v2.

Encodes the keys that `documents` produces; an unknown key raises KeyError, so that none is dropped silently. Source:
github.com/google/gnostic-models openapiv2/OpenAPIv2.proto.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from struct import pack
from typing import Any

import msgspec

from kubeloop.devcluster.serializer.protobuf.wire import BYTES, FIXED64, VARINT, field, write_varint
from kubeloop.kube.json_object import JSON

CONTENT_TYPE = "application/com.github.proto-openapi.spec.v2.v1.0+protobuf"

_METHODS = {"get": 2, "put": 3, "post": 4, "delete": 5, "options": 6, "head": 7, "patch": 8}


def _string(number: int, text: str) -> bytes:
    return field(number, BYTES, text.encode())


def _strings(number: int, strings: Iterable[str]) -> bytes:
    return b"".join(_string(number, text) for text in strings)


def _message(number: int, message: bytes) -> bytes:
    return field(number, BYTES, message)


def _map(number: int, values: Mapping[str, Any], encode_value: Callable[[Any], bytes]) -> bytes:
    """Return a JSON map: a message with its entries."""
    return _message(number, b"".join(_named_entry(1, name, encode_value(item)) for name, item in values.items()))


def _named_entry(number: int, name: str, value: bytes) -> bytes:
    """Return a named entry, the form of a JSON map's entry."""
    return _message(number, _string(1, name) + _message(2, value))


def _any_text(value: Any) -> bytes:
    """Return an Any, whose YAML is written as JSON."""
    return _string(2, msgspec.json.encode(value).decode())


def _any(number: int, value: Any) -> bytes:
    return _message(number, _any_text(value))


def _integer(number: int, value: int) -> bytes:
    """Return an integer or boolean."""
    return field(number, VARINT, int(value))


def _double(number: int, value: float) -> bytes:
    return write_varint(number << 3 | FIXED64) + pack("<d", value)


def _fields(keys: Mapping[str, tuple[int, Callable[[int, Any], bytes]]], extension: int, values: JSON) -> bytes:
    """Return a message: of each key the number and encoder of its field; `extension` is the number of x-* keys."""
    out: list[bytes] = []
    for key, value in values.items():
        if key in keys:
            number, encode_field = keys[key]
            out.append(encode_field(number, value))
        elif key.startswith("x-"):
            out.append(_named_entry(extension, key, _any_text(value)))
        else:
            raise KeyError(key)
    return b"".join(out)


def _additional(number: int, value: bool | JSON) -> bytes:
    return _message(number, _integer(2, value) if isinstance(value, bool) else _message(1, _schema(value)))


_DOCUMENTATION_KEYS = {"description": (1, _string), "url": (2, _string)}
_SCHEMA_KEYS: dict[str, tuple[int, Callable[[int, Any], bytes]]] = {
    "$ref": (1, _string),
    "format": (2, _string),
    "title": (3, _string),
    "description": (4, _string),
    "default": (5, _any),
    "multipleOf": (6, _double),
    "maximum": (7, _double),
    "exclusiveMaximum": (8, _integer),
    "minimum": (9, _double),
    "exclusiveMinimum": (10, _integer),
    "maxLength": (11, _integer),
    "minLength": (12, _integer),
    "pattern": (13, _string),
    "maxItems": (14, _integer),
    "minItems": (15, _integer),
    "uniqueItems": (16, _integer),
    "maxProperties": (17, _integer),
    "minProperties": (18, _integer),
    "required": (19, _strings),
    "enum": (20, lambda number, values: b"".join(_any(number, value) for value in values)),
    "additionalProperties": (21, _additional),
    "type": (22, lambda number, name: _message(number, _string(1, name))),
    "items": (23, lambda number, schema: _message(number, _message(1, _schema(schema)))),
    "allOf": (24, lambda number, schemas: b"".join(_message(number, _schema(schema)) for schema in schemas)),
    "properties": (25, lambda number, schemas: _map(number, schemas, _schema)),
    "discriminator": (26, _string),
    "readOnly": (27, _integer),
    "externalDocs": (29, lambda number, value: _message(number, _fields(_DOCUMENTATION_KEYS, 3, value))),
    "example": (30, _any),
}


def _schema(schema: JSON) -> bytes:
    return _fields(_SCHEMA_KEYS, 31, schema)


_CHOICES = {"header": 1, "query": 3, "path": 4}


def _parameter(parameter: JSON) -> bytes:
    """Return a Parameter: body, query, path or header; those of the query have other field numbers."""
    location, required = parameter["in"], parameter.get("required", False)
    name, description = parameter["name"], parameter.get("description", "")
    if location == "body":
        body = _optional(1, description) + _string(2, name) + _string(3, location) + _optional(4, required)
        return _message(1, body + _message(5, _schema(parameter["schema"])))
    type_number, unique_number = (6, 20) if location == "query" else (5, 19)
    value = _optional(1, required) + _string(2, location) + _optional(3, description) + _string(4, name)
    value += _string(type_number, parameter["type"]) + _optional(unique_number, parameter.get("uniqueItems", False))
    return _message(2, _message(_CHOICES[location], value))


def _optional(number: int, value: str | bool) -> bytes:
    """Return a field, or nothing if the value is empty."""
    if not value:
        return b""
    return _string(number, value) if isinstance(value, str) else _integer(number, value)


def _parameters_item(item: JSON) -> bytes:
    """Return a ParametersItem: a parameter, or a reference to a shared one."""
    return _message(2, _string(1, item["$ref"])) if "$ref" in item else _message(1, _parameter(item))


def _response(response: JSON) -> bytes:
    out = _string(1, response.get("description", ""))
    if "schema" in response:
        out += _message(2, _message(1, _schema(response["schema"])))
    return _message(1, out)


def _parameters(number: int, items: Iterable[JSON]) -> bytes:
    return b"".join(_message(number, _parameters_item(item)) for item in items)


_OPERATION_KEYS: dict[str, tuple[int, Callable[[int, Any], bytes]]] = {
    "tags": (1, _strings),
    "summary": (2, _string),
    "description": (3, _string),
    "operationId": (5, _string),
    "produces": (6, _strings),
    "consumes": (7, _strings),
    "parameters": (8, _parameters),
    "responses": (9, lambda number, responses: _map(number, responses, _response)),
    "schemes": (10, _strings),
    "deprecated": (11, _integer),
}


def _path(item: JSON) -> bytes:
    methods = (key for key in item if key != "parameters" and not key.startswith("x-"))
    operations = (_message(_METHODS[key], _fields(_OPERATION_KEYS, 13, item[key])) for key in methods)
    return b"".join(operations) + _parameters(9, item.get("parameters", ()))


_SECURITY_KEYS = {"type": (1, _string), "name": (2, _string), "in": (3, _string), "description": (4, _string)}


def _security(scheme: JSON) -> bytes:
    """Return a SecurityDefinitionsItem with an API key."""
    return _message(2, _fields(_SECURITY_KEYS, 5, scheme))


def encode(document: JSON) -> bytes:
    """Return the document as a gnostic openapi.v2.Document. Raises KeyError for unknown keys."""
    info = _string(1, document["info"]["title"]) + _string(2, document["info"]["version"])
    security = (_map(12, requirement, lambda scopes: _strings(1, scopes)) for requirement in document["security"])
    return b"".join(
        (
            _string(1, document["swagger"]),
            _message(2, info),
            _message(8, b"".join(_named_entry(2, path, _path(item)) for path, item in document["paths"].items())),
            _map(9, document["definitions"], _schema),
            _map(10, document["parameters"], _parameter),
            *security,
            _map(13, document["securityDefinitions"], _security),
        )
    )
