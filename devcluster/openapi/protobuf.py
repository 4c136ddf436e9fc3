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


def _named_entry(number: int, name: str, value: bytes) -> bytes:
    """Return a named entry, the form of a JSON map's entry."""
    return _message(number, _string(1, name) + _message(2, value))


def _any(value: Any) -> bytes:
    """Return an Any, whose YAML is written as JSON."""
    return _string(2, msgspec.json.encode(value).decode())


_CONSTRAINTS = {
    "title": 3, "multipleOf": 6, "maximum": 7, "exclusiveMaximum": 8, "minimum": 9, "exclusiveMinimum": 10,
    "maxLength": 11, "minLength": 12, "pattern": 13, "maxItems": 14, "minItems": 15, "uniqueItems": 16,
    "maxProperties": 17, "minProperties": 18,
}  # fmt: skip
"""Field numbers of keywords that only schemas of custom resources have."""


def _double(number: int, value: float) -> bytes:
    return write_varint(number << 3 | FIXED64) + pack("<d", value)


def _schema(schema: JSON) -> bytes:
    out: list[bytes] = []
    for key, value in schema.items():
        match key:
            case "$ref":
                out.append(_string(1, value))
            case "format":
                out.append(_string(2, value))
            case "description":
                out.append(_string(4, value))
            case "default":
                out.append(_message(5, _any(value)))
            case "title" | "pattern":
                out.append(_string(_CONSTRAINTS[key], value))
            case "multipleOf" | "maximum" | "minimum":
                out.append(_double(_CONSTRAINTS[key], value))
            case "example":
                out.append(_message(30, _any(value)))
            case "externalDocs":
                numbers = {"description": 1, "url": 2}
                out.append(_message(29, b"".join(_string(numbers[name], text) for name, text in value.items())))
            case _ if key in _CONSTRAINTS:
                out.append(field(_CONSTRAINTS[key], VARINT, int(value)))
            case "required":
                out.append(_strings(19, value))
            case "enum":
                out.extend(_message(20, _any(item)) for item in value)
            case "additionalProperties":
                allowed = field(2, VARINT, int(value)) if isinstance(value, bool) else _message(1, _schema(value))
                out.append(_message(21, allowed))
            case "type":
                out.append(_message(22, _string(1, value)))
            case "items":
                out.append(_message(23, _message(1, _schema(value))))
            case "properties":
                named = (_named_entry(1, name, _schema(property_schema)) for name, property_schema in value.items())
                out.append(_message(25, b"".join(named)))
            case _:
                out.append(_extension(31, key, value))
    return b"".join(out)


def _extension(number: int, key: str, value: Any) -> bytes:
    if not key.startswith("x-"):
        raise KeyError(key)
    return _named_entry(number, key, _any(value))


def _parameter(parameter: JSON) -> bytes:
    """Return a Parameter: body, query or path; query and path parameters have different field numbers."""
    location, required = parameter["in"], int(parameter.get("required", False))
    name, description = parameter["name"], parameter.get("description", "")
    if location == "body":
        body = _optional_string(1, description) + _string(2, name) + _string(3, location) + _optional_int(4, required)
        return _message(1, body + _message(5, _schema(parameter["schema"])))
    type_number, unique_number, choice = (6, 20, 3) if location == "query" else (5, 19, 4)
    value = _optional_int(1, required) + _string(2, location) + _optional_string(3, description) + _string(4, name)
    value += _string(type_number, parameter["type"]) + _optional_int(
        unique_number, int(parameter.get("uniqueItems", False))
    )
    return _message(2, _message(choice, value))


def _optional_int(number: int, value: int) -> bytes:
    """Return a field, or nothing if the value is zero."""
    return field(number, VARINT, value) if value else b""


def _optional_string(number: int, text: str) -> bytes:
    return _string(number, text) if text else b""


def _parameters_item(item: JSON) -> bytes:
    """Return a ParametersItem: a parameter, or a reference to a shared one."""
    return _message(2, _string(1, item["$ref"])) if "$ref" in item else _message(1, _parameter(item))


def _response(response: JSON) -> bytes:
    out = _string(1, response["description"])
    if "schema" in response:
        out += _message(2, _message(1, _schema(response["schema"])))
    return _message(1, out)


def _operation(operation: JSON) -> bytes:
    out: list[bytes] = []
    for key, value in operation.items():
        match key:
            case "tags":
                out.append(_strings(1, value))
            case "description":
                out.append(_string(3, value))
            case "operationId":
                out.append(_string(5, value))
            case "produces":
                out.append(_strings(6, value))
            case "consumes":
                out.append(_strings(7, value))
            case "parameters":
                out.extend(_message(8, _parameters_item(item)) for item in value)
            case "responses":
                out.append(
                    _message(9, b"".join(_named_entry(1, code, _response(item)) for code, item in value.items()))
                )
            case "schemes":
                out.append(_strings(10, value))
            case _:
                out.append(_extension(13, key, value))
    return b"".join(out)


def _path(item: JSON) -> bytes:
    operations = b"".join(_message(_METHODS[key], _operation(item[key])) for key in item if key != "parameters")
    return operations + b"".join(_message(9, _parameters_item(item)) for item in item.get("parameters", ()))


def _security(scheme: JSON) -> bytes:
    """Return a SecurityDefinitionsItem with an API key."""
    key = (
        _string(1, scheme["type"])
        + _string(2, scheme["name"])
        + _string(3, scheme["in"])
        + _string(4, scheme["description"])
    )
    return _message(2, key)


def encode(document: JSON) -> bytes:
    """Return the document as a gnostic openapi.v2.Document. Raises KeyError for unknown keys."""
    info = _string(1, document["info"]["title"]) + _string(2, document["info"]["version"])
    security = (
        _message(12, b"".join(_named_entry(1, name, _strings(1, requirement[name])) for name in requirement))
        for requirement in document["security"]
    )
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


def _map(number: int, values: Mapping[str, JSON], encode_value: Callable[[JSON], bytes]) -> bytes:
    return _message(number, b"".join(_named_entry(1, name, encode_value(item)) for name, item in values.items()))
