"""Validation of values by OpenAPI v3 schemas, with the error texts of kube-apiserver.

Errors are in the order of the schema, where Go iterates over maps in random order. On updates, invalid values that are
unchanged are accepted (ratcheting). Source: kube-openapi pkg/validation/validate, apiextensions-apiserver
pkg/apiserver/validation.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import Any

import msgspec

from kubeloop.cel.regex import matches
from kubeloop.devcluster.apiextensions.structural_schema import (
    INT_OR_STRING,
    LIST_KEYS,
    LIST_TYPE,
    MAP_TYPE,
    Schema,
    field_schema,
)
from kubeloop.devcluster.validation.common.error_list import ErrorList
from kubeloop.kube.json_object import JSON
from kubeloop.kube.validation.field_errors import quoted
from kubeloop.kube.validation.string_formats import NUMBER_FORMATS, has_format, is_known_format

MISSING: Any = object()

_NO_PATH = "<nil>"  # Go's text for the path of an error without one
_MAX_INT32, _MAX_INT64 = (1 << 31) - 1, (1 << 63) - 1
_MAX_FLOAT32 = 3.4028234663852886e38
_NUMBERS = (int, float)


@dataclass(slots=True)
class Result:
    """Errors by their text, and the number of checks made, by which the best of several alternatives is chosen."""

    errors: dict[str, JSON] = field(default_factory=dict)
    checks: int = 0

    def merge(self, other: Result) -> None:
        for text, error in other.errors.items():
            self.errors.setdefault(text, error)
        self.checks += other.checks

    def add(self, reason: str, path: str, message: str, *, value: Any = MISSING, detail: Any = None) -> None:
        error = {"reason": reason, "path": path, "message": message, "value": value, "detail": detail}
        self.errors.setdefault(message, error)

    def add_without_field(self, message: str) -> None:
        """Add an error that belongs to no field."""
        self.add("Invalid", _NO_PATH, message, value="")


class Correlation:
    """An old value and the new value that corresponds to it on an update; `old` is `MISSING` if there is none.

    Fields correspond by name, items of lists of type map by their keys.
    """

    __slots__ = ("_by_keys", "new", "old", "schema")

    def __init__(self, old: Any, new: Any, schema: Schema | None) -> None:
        self.old, self.new, self.schema = old, new, schema
        self._by_keys: dict[tuple[Any, ...] | None, Any] | None = None  # items of `old`, built on first use

    @property
    def unchanged(self) -> bool:
        return self.old is not MISSING and same(self.old, self.new)

    def field(self, name: str) -> Correlation | None:
        schema = self.schema
        if schema is None or schema.get(MAP_TYPE) == "atomic" or not isinstance(self.old, dict):
            return None
        if name not in self.old or (below := field_schema(schema, name)) is None:
            return None
        return Correlation(self.old[name], self.new[name], below)

    def item(self, index: int) -> Correlation | None:
        schema = self.schema
        if schema is None or schema.get(LIST_TYPE) != "map" or not isinstance(self.old, list):
            return None
        new_item = self.new[index]
        if self._by_keys is None:
            self._by_keys = {}
            for item in self.old:
                self._by_keys.setdefault(_item_key(item, schema), item)
        keys = _item_key(new_item, schema)
        old_item = None if keys is None else self._by_keys.get(keys)
        return None if old_item is None else Correlation(old_item, new_item, schema.get("items"))


def _item_key(item: Any, schema: Schema) -> tuple[Any, ...] | None:
    """Return the values of an item's list map keys, None for an item that cannot be identified."""
    if not isinstance(item, dict):
        return None
    keys = tuple(item.get(key, MISSING) for key in schema.get(LIST_KEYS) or ())
    return None if any(isinstance(value, dict | list) for value in keys) else keys


def same(one: Any, other: Any) -> bool:
    """Return True if two values are equal as JSON; true is not equal to 1."""
    return type(one) is type(other) and one == other and msgspec.json.encode(one) == msgspec.json.encode(other)


def validate(errors: ErrorList, value: Any, schema: Schema, *, old: Any = MISSING, path: str = "") -> None:
    """Add a cause for each error of `value`, except in values unchanged since `old`. `path` prefixes all fields."""
    correlation = None if old is MISSING else Correlation(old, value, schema)
    for error in _check_changed(schema, value, "", correlation).errors.values():
        _add_cause(errors, error, path)


def _add_cause(errors: ErrorList, error: JSON, prefix: str) -> None:
    path, value = error["path"], error["value"]
    if path == _NO_PATH:
        path = prefix or _NO_PATH
    else:
        path = path.removeprefix(".")
        path = f"{prefix}.{path}" if prefix and path else prefix or path or _NO_PATH
    match error["reason"]:
        case "Required":
            errors.required(path)
        case "NotSupported":
            supported = [value if isinstance(value, str) else _compact(value) for value in error["detail"]]
            errors.not_supported(path, value, supported)
        case "TooLong":
            errors.too_long(path, error["detail"])
        case "TooMany":
            errors.too_many(path, value, error["detail"])
        case "TypeInvalid":
            errors.invalid(path, "" if value is None else value, error["message"])
            errors[-1]["reason"] = "FieldValueTypeInvalid"
        case _:
            errors.invalid(path, "" if value is None else value, error["message"])


def _compact(value: Any) -> str:
    return msgspec.json.encode(value).decode()


# --- one value --------------------------------------------------------------------------------------------------------


def _check_changed(schema: Schema, value: Any, path: str, correlation: Correlation | None) -> Result:
    """Return the result of _check(), without errors if the value is unchanged."""
    result = _check(schema, value, path, correlation)
    if result.errors and correlation is not None and correlation.unchanged:
        return Result(checks=result.checks)
    return result


def _check(schema: Schema, value: Any, path: str, correlation: Correlation | None) -> Result:
    result = Result()
    types = _types(schema)
    if value is None:
        if types:
            result.checks += 1
            if not schema.get("nullable"):
                _wrong_type(result, path, ",".join(types), "null")
        _check_enum(result, schema, value, path)
        return result
    format_ = schema.get("format") or ""
    if format_ and not is_known_format(types[0] if len(types) == 1 else "" if not types else "integer,string", format_):
        format_ = ""
    if types or format_:
        _check_type(result, types, format_, value, path)
        result.checks += 1
    _check_alternatives(result, schema, value, path, correlation)
    result.checks += 1
    if isinstance(value, str):
        _check_string(result, schema, value, path)
        result.checks += 1
        if format_ and is_known_format("string", format_):
            if not has_format(format_, value):
                _wrong_type(result, path, format_, value)
            result.checks += 1
    elif isinstance(value, _NUMBERS) and not isinstance(value, bool):
        _check_number(result, schema, types, format_, value, path)
        result.checks += 2
    elif isinstance(value, list):
        _check_list(result, schema, value, path, correlation)
        result.checks += 2
    _check_enum(result, schema, value, path)
    result.checks += 1
    if isinstance(value, dict):
        _check_object(result, schema, value, path, correlation)
        result.checks += 1
    result.checks += 1
    return result


def _types(schema: Schema) -> tuple[str, ...]:
    if schema.get(INT_OR_STRING):
        return ("integer", "string")
    return (schema["type"],) if schema.get("type") else ()


def _wrong_type(result: Result, path: str, expected: str, actual: str) -> None:
    result.add("TypeInvalid", path, f"{path} in body must be of type {expected}: {quoted(actual)}", value=actual)


def _type_of(value: Any) -> tuple[str, str]:
    """Return the JSON type of a value, and the format that Go has for it."""
    if isinstance(value, bool):
        return "boolean", ""
    if isinstance(value, str):
        return "string", ""
    if isinstance(value, int) and -_MAX_INT64 - 1 <= value <= _MAX_INT64:
        return "integer", "int64"
    if isinstance(value, _NUMBERS):
        return "number", "float64"
    return ("array", "") if isinstance(value, list) else ("object", "")


def _check_type(result: Result, types: tuple[str, ...], format_: str, value: Any, path: str) -> None:
    result.checks += 1
    type_, value_format = _type_of(value)
    is_whole = type_ == "number" and float(value).is_integer() and "integer" in types
    fits = type_ in types or is_whole or (type_ == "integer" and "number" in types)
    if type_ not in ("string", "array") and format_ and not (fits or value_format == format_):
        _wrong_type(result, path, format_, value_format)
    elif format_ and type_ in ("string", "array") and not {"number", "integer"} & {*types}:
        return  # the check of the format reports it
    elif not fits:
        _wrong_type(result, path, ",".join(types), type_)


def _check_string(result: Result, schema: Schema, value: str, path: str) -> None:
    max_length, min_length, pattern = schema.get("maxLength"), schema.get("minLength"), schema.get("pattern")
    if max_length is not None and len(value) > max_length:
        message = f"{path} in body should be at most {max_length} chars long"
        result.add("TooLong", path, message, value=value, detail=max_length)
    elif min_length is not None and len(value) < min_length:
        result.add("Invalid", path, f"{path} in body should be at least {min_length} chars long", value=value)
    elif pattern and not matches(pattern, value):
        result.add("Invalid", path, f"{path} in body should match '{pattern}'", value=value)


def _check_enum(result: Result, schema: Schema, value: Any, path: str) -> None:
    allowed = schema.get("enum")
    if not allowed or (value is not None and any(_is_enum_value(value, choice) for choice in allowed)):
        return
    choices = " ".join(_go_value(choice) for choice in allowed)
    message = f"{path} in body should be one of [{choices}]"
    result.add("NotSupported", path, message, value=value, detail=allowed)


def _is_enum_value(value: Any, allowed: Any) -> bool:
    if isinstance(value, bool) or isinstance(allowed, bool):
        return value is allowed
    if isinstance(value, _NUMBERS) and isinstance(allowed, _NUMBERS):
        return value == allowed
    return same(value, allowed)


def _go_value(value: Any) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, _NUMBERS):
        return go_number(value)
    if value is None:
        return "<nil>"
    return value if isinstance(value, str) else _compact(value)


def go_number(value: float) -> str:
    """Return a number as Go formats it with %v."""
    if isinstance(value, int):
        return str(value)
    if value.is_integer() and abs(value) < 1e21:
        return str(int(value))
    mantissa, _, exponent = repr(value).partition("e")
    if not exponent:
        return mantissa
    sign, digits = ("-", exponent[1:]) if exponent.startswith("-") else ("+", exponent.lstrip("+"))
    return f"{mantissa.removesuffix('.0')}e{sign}{digits.zfill(2)}"


# --- numbers ----------------------------------------------------------------------------------------------------------


def _in_range(result: Result, types: tuple[str, ...], format_: str, value: float, label: str, path: str) -> bool:
    """Return True if a number has this type and format; add an error if not."""
    type_ = types[0] if len(types) == 1 and types[0] in NUMBER_FORMATS else ""
    format_ = format_ if format_ in NUMBER_FORMATS.get(type_, ()) else ""
    if type_ == "integer":
        maximum = _MAX_INT32 if format_ == "int32" else _MAX_INT64
        fits = float(value).is_integer() and -maximum - 1 <= value <= maximum
    else:
        fits = format_ != "float" or abs(value) <= _MAX_FLOAT32
    if not fits:
        suffix = f"with format {format_}" if format_ else "(default format)"
        result.add_without_field(f"{label} value must be of type {type_} {suffix} in {path}")
    return fits


def _check_number(
    result: Result, schema: Schema, types: tuple[str, ...], format_: str, value: float, path: str
) -> None:
    _in_range(result, types, format_, value, "Checked", path)
    multiple_of, maximum, minimum = schema.get("multipleOf"), schema.get("maximum"), schema.get("minimum")
    if multiple_of is not None:
        if _in_range(result, types, format_, multiple_of, "MultipleOf", path) and isinstance(value, int):
            multiple_of = int(multiple_of)  # as Go compares whole numbers
        if multiple_of <= 0:
            message = f"factor MultipleOf declared for {path} must be positive: {go_number(multiple_of)}"
            result.add("Invalid", path, message, value=value)
        elif not _is_multiple(value, multiple_of):
            message = f"{path} in body should be a multiple of {go_number(multiple_of)}"
            result.add("Invalid", path, message, value=value)
    if minimum is not None:
        exclusive = schema.get("exclusiveMinimum")
        limit = _limit(result, types, format_, value, minimum, "Minimum boundary", path)
        if value < limit or (exclusive and value == limit):
            comparison = "greater than" if exclusive else "greater than or equal to"
            result.add("Invalid", path, f"{path} in body should be {comparison} {go_number(limit)}", value=value)
    if maximum is not None:
        exclusive = schema.get("exclusiveMaximum")
        limit = _limit(result, types, format_, value, maximum, "Maximum boundary", path)
        if value > limit or (exclusive and value == limit):
            comparison = "less than" if exclusive else "less than or equal to"
            result.add("Invalid", path, f"{path} in body should be {comparison} {go_number(limit)}", value=value)


def _limit(
    result: Result, types: tuple[str, ...], format_: str, value: float, limit: float, label: str, path: str
) -> float:
    """Return the limit to compare with: an integer for integer values."""
    fits = _in_range(result, types, format_, limit, label, path)
    return int(limit) if fits and isinstance(value, int) else limit


def _is_multiple(value: float, factor: float) -> bool:
    if isinstance(value, int) and float(factor).is_integer():
        return value % int(factor) == 0
    ratio = value * (1 / factor) if factor < 1 else value / factor
    return math.isfinite(ratio) and abs(ratio - round(ratio)) < 1e-9


# --- containers -------------------------------------------------------------------------------------------------------


def _check_list(result: Result, schema: Schema, value: list[Any], path: str, correlation: Correlation | None) -> None:
    items = schema.get("items")
    if isinstance(items, dict):
        for index, item in enumerate(value):
            below = correlation.item(index) if correlation is not None else None
            result.merge(_check_changed(items, item, f"{path}[{index}]", below))
    min_items, max_items = schema.get("minItems"), schema.get("maxItems")
    if min_items is not None and len(value) < min_items:
        result.add("Invalid", path, f"{path} in body should have at least {min_items} items", value=len(value))
    if max_items is not None and len(value) > max_items:
        message = f"{path} in body should have at most {max_items} items"
        result.add("TooMany", path, message, value=len(value), detail=max_items)


def _check_object(result: Result, schema: Schema, value: JSON, path: str, correlation: Correlation | None) -> None:
    min_properties, max_properties = schema.get("minProperties"), schema.get("maxProperties")
    if min_properties is not None and len(value) < min_properties:
        result.add(
            "Invalid", path, f"{path} in body should have at least {min_properties} properties", value=len(value)
        )
    if max_properties is not None and len(value) > max_properties:
        message = f"{path} in body should have at most {max_properties} properties"
        result.add("TooMany", path, message, value=len(value), detail=max_properties)
    properties, additional = schema.get("properties") or {}, schema.get("additionalProperties")

    def below(name: str) -> Correlation | None:
        if correlation is None or (not path and name in ("apiVersion", "kind")):
            return None
        return correlation.field(name)

    for name, field_value in value.items():
        if name in properties:
            continue
        if additional is False:
            result.add("Invalid", path, f"{path}.{name} in body is a forbidden property", value=name)
        elif isinstance(additional, dict):
            result.merge(_check_changed(additional, field_value, f"{path}.{name}", below(name)))
    for name, property_schema in properties.items():
        if name in value:
            result.merge(_check_changed(property_schema, value[name], f"{path}.{name}" if path else name, below(name)))
    for name in schema.get("required") or ():
        if name not in value:
            required_path = f"{path}.{name}"
            result.add("Required", required_path, f"{required_path} in body is required")


# --- alternatives -----------------------------------------------------------------------------------------------------


def _check_alternatives(result: Result, schema: Schema, value: Any, path: str, correlation: Correlation | None) -> None:
    if any_of := schema.get("anyOf"):
        _check_any(result, any_of, value, path, correlation)
    if one_of := schema.get("oneOf"):
        _check_one(result, one_of, value, path, correlation)
    if all_of := schema.get("allOf"):
        valid = 0
        for subschema in all_of:
            attempt = _check(subschema, value, path, correlation)
            valid += not attempt.errors
            result.merge(attempt)
        if valid != len(all_of):
            suffix = "" if valid else ". None validated"
            result.add_without_field(f"{quoted(path)} must validate all the schemas (allOf){suffix}")
    not_ = schema.get("not")
    if not_ is not None and not _check(not_, value, path, correlation).errors:
        result.add_without_field(f"{quoted(path)} must not validate the schema (not)")
    result.checks += 1


def _check_any(result: Result, choices: list[Schema], value: Any, path: str, correlation: Correlation | None) -> None:
    best: Result | None = None
    for subschema in choices:
        attempt = _check(subschema, value, path, correlation)
        if not attempt.errors:
            result.merge(attempt)
            return
        if best is None or attempt.checks > best.checks:
            best = attempt
    result.add_without_field(f"{quoted(path)} must validate at least one schema (anyOf)")
    if best is not None:
        result.merge(best)


def _check_one(result: Result, choices: list[Schema], value: Any, path: str, correlation: Correlation | None) -> None:
    best: Result | None = None
    valid: list[Result] = []
    for subschema in choices:
        attempt = _check(subschema, value, path, correlation)
        if not attempt.errors:
            valid.append(attempt)
            best = None
        elif not valid and (best is None or attempt.checks > best.checks):
            best = attempt
    if len(valid) == 1:
        result.merge(valid[0])
        return
    outcome = f"Found {len(valid)} valid alternatives" if valid else "Found none valid"
    result.add_without_field(f"{quoted(path)} must validate one and only one schema (oneOf). {outcome}")
    if best is not None:
        result.merge(best)
