"""An OpenAPI 2 document in the protobuf form of gnostic, in which Go clients ask for /openapi/v2.

Takes the document as plain JSON and writes what `openapi` puts into one; unknown keys fail loudly, so that none is lost
in silence. Source: github.com/google/gnostic-models openapiv2/OpenAPIv2.proto.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from struct import pack
from typing import Any

import msgspec

from kubeloop.devcluster.serializer.protobuf.wire import BYTES, FIXED64, VARINT, field, write_varint

JSON = Mapping[str, Any]

CONTENT_TYPE = "application/com.github.proto-openapi.spec.v2.v1.0+protobuf"

_METHODS = {"get": 2, "put": 3, "post": 4, "delete": 5, "options": 6, "head": 7, "patch": 8}


def _text(number: int, text: str) -> bytes:
    return field(number, BYTES, text.encode())


def _texts(number: int, texts: Iterable[str]) -> bytes:
    return b"".join(_text(number, text) for text in texts)


def _message(number: int, message: bytes) -> bytes:
    return field(number, BYTES, message)


def _named(number: int, name: str, value: bytes) -> bytes:
    """An entry of what is a map in JSON."""
    return _message(number, _text(1, name) + _message(2, value))


def _any(value: Any) -> bytes:
    """Any: its YAML, for which JSON serves."""
    return _text(2, msgspec.json.encode(value).decode())


_CONSTRAINTS = {
    "title": 3, "multipleOf": 6, "maximum": 7, "exclusiveMaximum": 8, "minimum": 9, "exclusiveMinimum": 10,
    "maxLength": 11, "minLength": 12, "pattern": 13, "maxItems": 14, "minItems": 15, "uniqueItems": 16,
    "maxProperties": 17, "minProperties": 18,
}  # fmt: skip
"""Numbers of the fields that only schemas of custom resources have."""


def _double(number: int, value: float) -> bytes:
    return write_varint(number << 3 | FIXED64) + pack("<d", value)


def _schema(schema: JSON) -> bytes:
    out: list[bytes] = []
    for key, value in schema.items():
        match key:
            case "$ref":
                out.append(_text(1, value))
            case "format":
                out.append(_text(2, value))
            case "description":
                out.append(_text(4, value))
            case "default":
                out.append(_message(5, _any(value)))
            case "title" | "pattern":
                out.append(_text(_CONSTRAINTS[key], value))
            case "multipleOf" | "maximum" | "minimum":
                out.append(_double(_CONSTRAINTS[key], value))
            case "example":
                out.append(_message(30, _any(value)))
            case "externalDocs":
                texts = {"description": 1, "url": 2}
                out.append(_message(29, b"".join(_text(texts[name], each) for name, each in value.items())))
            case _ if key in _CONSTRAINTS:
                out.append(field(_CONSTRAINTS[key], VARINT, int(value)))
            case "required":
                out.append(_texts(19, value))
            case "enum":
                out.extend(_message(20, _any(each)) for each in value)
            case "additionalProperties":
                allowed = field(2, VARINT, int(value)) if isinstance(value, bool) else _message(1, _schema(value))
                out.append(_message(21, allowed))
            case "type":
                out.append(_message(22, _text(1, value)))
            case "items":
                out.append(_message(23, _message(1, _schema(value))))
            case "properties":
                named = (_named(1, name, _schema(each)) for name, each in value.items())
                out.append(_message(25, b"".join(named)))
            case _:
                out.append(_extension(31, key, value))
    return b"".join(out)


def _extension(number: int, key: str, value: Any) -> bytes:
    if not key.startswith("x-"):
        raise KeyError(key)
    return _named(number, key, _any(value))


def _parameter(parameter: JSON) -> bytes:
    """A Parameter: a body, or a value in the query or the path; the last two number their fields differently."""
    place, required = parameter["in"], int(parameter.get("required", False))
    name, told = parameter["name"], parameter.get("description", "")
    if place == "body":
        said = _some_text(1, told) + _text(2, name) + _text(3, place) + _some(4, required)
        return _message(1, said + _message(5, _schema(parameter["schema"])))
    type_number, unique_number, choice = (6, 20, 3) if place == "query" else (5, 19, 4)
    value = _some(1, required) + _text(2, place) + _some_text(3, told) + _text(4, name)
    value += _text(type_number, parameter["type"]) + _some(unique_number, int(parameter.get("uniqueItems", False)))
    return _message(2, _message(choice, value))


def _some(number: int, value: int) -> bytes:
    """A field that is left out if it is zero."""
    return field(number, VARINT, value) if value else b""


def _some_text(number: int, text: str) -> bytes:
    return _text(number, text) if text else b""


def _parameters_item(item: JSON) -> bytes:
    """A ParametersItem: a parameter, or a reference to one that is shared."""
    return _message(2, _text(1, item["$ref"])) if "$ref" in item else _message(1, _parameter(item))


def _response(response: JSON) -> bytes:
    out = _text(1, response["description"])
    if "schema" in response:
        out += _message(2, _message(1, _schema(response["schema"])))
    return _message(1, out)


def _operation(operation: JSON) -> bytes:
    out: list[bytes] = []
    for key, value in operation.items():
        match key:
            case "tags":
                out.append(_texts(1, value))
            case "description":
                out.append(_text(3, value))
            case "operationId":
                out.append(_text(5, value))
            case "produces":
                out.append(_texts(6, value))
            case "consumes":
                out.append(_texts(7, value))
            case "parameters":
                out.extend(_message(8, _parameters_item(each)) for each in value)
            case "responses":
                out.append(_message(9, b"".join(_named(1, code, _response(each)) for code, each in value.items())))
            case "schemes":
                out.append(_texts(10, value))
            case _:
                out.append(_extension(13, key, value))
    return b"".join(out)


def _path(item: JSON) -> bytes:
    operations = b"".join(_message(_METHODS[key], _operation(item[key])) for key in item if key != "parameters")
    return operations + b"".join(_message(9, _parameters_item(each)) for each in item.get("parameters", ()))


def _security(scheme: JSON) -> bytes:
    """A SecurityDefinitionsItem: of those, an API key."""
    key = _text(1, scheme["type"]) + _text(2, scheme["name"]) + _text(3, scheme["in"]) + _text(4, scheme["description"])
    return _message(2, key)


def encode(document: JSON) -> bytes:
    """The document as a gnostic openapi.v2.Document. Raises KeyError for keys that have no place in one."""
    info = _text(1, document["info"]["title"]) + _text(2, document["info"]["version"])
    wanted = (
        _message(12, b"".join(_named(1, name, _texts(1, each[name])) for name in each)) for each in document["security"]
    )
    return b"".join(
        (
            _text(1, document["swagger"]),
            _message(2, info),
            _message(8, b"".join(_named(2, path, _path(item)) for path, item in document["paths"].items())),
            _map(9, document["definitions"], _schema),
            _map(10, document["parameters"], _parameter),
            *wanted,
            _map(13, document["securityDefinitions"], _security),
        )
    )


def _map(number: int, values: Mapping[str, JSON], encoded: Callable[[JSON], bytes]) -> bytes:
    return _message(number, b"".join(_named(1, name, encoded(each)) for name, each in values.items()))
