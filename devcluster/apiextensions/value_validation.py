"""Validation of values by OpenAPI v3 schemas, in the words that kube-apiserver has for it.

Errors come in the order of the schema, where Go's comes in the random one of its maps. On an update, what is wrong but
has not changed is left alone. Source: kube-openapi pkg/validation/validate, apiextensions-apiserver
pkg/apiserver/validation.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import Any

import msgspec

from kubeloop.devcluster.api.errors import quoted
from kubeloop.devcluster.apiextensions.structural_schema import (
    INT_OR_STRING,
    LIST_KEYS,
    LIST_TYPE,
    MAP_TYPE,
    Schema,
    field_schema,
)
from kubeloop.devcluster.languages.regex.patterns import matches
from kubeloop.devcluster.languages.string_formats import NUMBER_FORMATS, has_format, is_known_format
from kubeloop.devcluster.validation.common.error_list import ErrorList
from kubeloop.kube.json_object import JSON

MISSING: Any = object()

_ANONYMOUS = "<nil>"  # how Go prints the path of an error that has none
_MAX_INT32, _MAX_INT64 = (1 << 31) - 1, (1 << 63) - 1
_MAX_FLOAT32 = 3.4028234663852886e38
_NUMBERS = (int, float)


@dataclass(slots=True)
class Result:
    """What validation found: errors by their text, and how many checks were made, which tells alternatives apart."""

    errors: dict[str, JSON] = field(default_factory=dict)
    checks: int = 0

    def merge(self, other: Result) -> None:
        for text, each in other.errors.items():
            self.errors.setdefault(text, each)
        self.checks += other.checks

    def tell(self, reason: str, path: str, told: str, *, value: Any = MISSING, detail: Any = None) -> None:
        self.errors.setdefault(told, {"reason": reason, "path": path, "told": told, "value": value, "detail": detail})

    def tell_apart(self, told: str) -> None:
        """An error that belongs to no field."""
        self.tell("Invalid", _ANONYMOUS, told, value="")


class Correlation:
    """The value before an update that corresponds to one after it; `MISSING` where there is none.

    Fields correspond by their names, items of lists by their keys if they have such.
    """

    __slots__ = ("_by_keys", "new", "old", "schema")

    def __init__(self, old: Any, new: Any, schema: Schema | None) -> None:
        self.old, self.new, self.schema = old, new, schema
        self._by_keys: dict[tuple[Any, ...] | None, Any] | None = None  # items of `old`, once one is asked for

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
        now = self.new[index]
        if self._by_keys is None:
            self._by_keys = {}
            for each in self.old:
                self._by_keys.setdefault(_keys_of(each, schema), each)
        keys = _keys_of(now, schema)
        before = None if keys is None else self._by_keys.get(keys)
        return None if before is None else Correlation(before, now, schema.get("items"))


def _keys_of(item: Any, schema: Schema) -> tuple[Any, ...] | None:
    """What tells an item of a list from others; None for what cannot be told."""
    if not isinstance(item, dict):
        return None
    keys = tuple(item.get(key, MISSING) for key in schema.get(LIST_KEYS) or ())
    return None if any(isinstance(each, dict | list) for each in keys) else keys


def same(one: Any, other: Any) -> bool:
    """Equal as JSON: true is not 1."""
    return type(one) is type(other) and one == other and msgspec.json.encode(one) == msgspec.json.encode(other)


def validate(errors: ErrorList, value: Any, schema: Schema, *, old: Any = MISSING, path: str = "") -> None:
    """Tell what is wrong with `value`; what is as it was in `old` is right. `path` stands before all fields."""
    correlation = None if old is MISSING else Correlation(old, value, schema)
    for each in _checked(schema, value, "", correlation).errors.values():
        _add(errors, each, path)


def _add(errors: ErrorList, each: JSON, prefix: str) -> None:
    path, value = each["path"], each["value"]
    if path == _ANONYMOUS:
        path = prefix or _ANONYMOUS
    else:
        path = path.removeprefix(".")
        path = f"{prefix}.{path}" if prefix and path else prefix or path or _ANONYMOUS
    match each["reason"]:
        case "Required":
            errors.required(path)
        case "NotSupported":
            supported = [value if isinstance(value, str) else _compact(value) for value in each["detail"]]
            errors.not_supported(path, value, supported)
        case "TooLong":
            errors.too_long(path, each["detail"])
        case "TooMany":
            errors.too_many(path, value, each["detail"])
        case "TypeInvalid":
            errors.invalid(path, "" if value is None else value, each["told"])
            errors[-1]["reason"] = "FieldValueTypeInvalid"
        case _:
            errors.invalid(path, "" if value is None else value, each["told"])


def _compact(value: Any) -> str:
    return msgspec.json.encode(value).decode()


# --- one value --------------------------------------------------------------------------------------------------------


def _checked(schema: Schema, value: Any, path: str, correlation: Correlation | None) -> Result:
    """As _check; errors of what has not changed are left out."""
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
        _check_text(result, schema, value, path)
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


def _wrong_type(result: Result, path: str, wanted: str, found: str) -> None:
    result.tell("TypeInvalid", path, f"{path} in body must be of type {wanted}: {quoted(found)}", value=found)


def _type_of(value: Any) -> tuple[str, str]:
    """JSON type and format of a value, as Go has them in memory."""
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
    type_, its_format = _type_of(value)
    whole = type_ == "number" and float(value).is_integer() and "integer" in types
    fits = type_ in types or whole or (type_ == "integer" and "number" in types)
    if type_ not in ("string", "array") and format_ and not (fits or its_format == format_):
        _wrong_type(result, path, format_, its_format)
    elif format_ and type_ in ("string", "array") and not {"number", "integer"} & {*types}:
        return  # the format will tell
    elif not fits:
        _wrong_type(result, path, ",".join(types), type_)


def _check_text(result: Result, schema: Schema, value: str, path: str) -> None:
    longest, shortest, pattern = schema.get("maxLength"), schema.get("minLength"), schema.get("pattern")
    if longest is not None and len(value) > longest:
        told = f"{path} in body should be at most {longest} chars long"
        result.tell("TooLong", path, told, value=value, detail=longest)
    elif shortest is not None and len(value) < shortest:
        result.tell("Invalid", path, f"{path} in body should be at least {shortest} chars long", value=value)
    elif pattern and not matches(pattern, value):
        result.tell("Invalid", path, f"{path} in body should match '{pattern}'", value=value)


def _check_enum(result: Result, schema: Schema, value: Any, path: str) -> None:
    allowed = schema.get("enum")
    if not allowed or (value is not None and any(_equal(value, each) for each in allowed)):
        return
    shown = " ".join(_go_value(each) for each in allowed)
    told = f"{path} in body should be one of [{shown}]"
    result.tell("NotSupported", path, told, value=value, detail=allowed)


def _equal(value: Any, allowed: Any) -> bool:
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
    """A number as Go prints it with %v."""
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


def _in_range(result: Result, types: tuple[str, ...], format_: str, value: float, what: str, path: str) -> bool:
    """Can a number be one of this type and format? Tells if not."""
    type_ = types[0] if len(types) == 1 and types[0] in NUMBER_FORMATS else ""
    format_ = format_ if format_ in NUMBER_FORMATS.get(type_, ()) else ""
    if type_ == "integer":
        largest = _MAX_INT32 if format_ == "int32" else _MAX_INT64
        fits = float(value).is_integer() and -largest - 1 <= value <= largest
    else:
        fits = format_ != "float" or abs(value) <= _MAX_FLOAT32
    if not fits:
        told = f"with format {format_}" if format_ else "(default format)"
        result.tell_apart(f"{what} value must be of type {type_} {told} in {path}")
    return fits


def _check_number(
    result: Result, schema: Schema, types: tuple[str, ...], format_: str, value: float, path: str
) -> None:
    _in_range(result, types, format_, value, "Checked", path)
    factor, most, least = schema.get("multipleOf"), schema.get("maximum"), schema.get("minimum")
    if factor is not None:
        if _in_range(result, types, format_, factor, "MultipleOf", path) and isinstance(value, int):
            factor = int(factor)  # as Go compares whole numbers
        if factor <= 0:
            told = f"factor MultipleOf declared for {path} must be positive: {go_number(factor)}"
            result.tell("Invalid", path, told, value=value)
        elif not _is_multiple(value, factor):
            told = f"{path} in body should be a multiple of {go_number(factor)}"
            result.tell("Invalid", path, told, value=value)
    if least is not None:
        above = schema.get("exclusiveMinimum")
        limit = _limit(result, types, format_, value, least, "Minimum boundary", path)
        if value < limit or (above and value == limit):
            words = "greater than" if above else "greater than or equal to"
            result.tell("Invalid", path, f"{path} in body should be {words} {go_number(limit)}", value=value)
    if most is not None:
        below = schema.get("exclusiveMaximum")
        limit = _limit(result, types, format_, value, most, "Maximum boundary", path)
        if value > limit or (below and value == limit):
            words = "less than" if below else "less than or equal to"
            result.tell("Invalid", path, f"{path} in body should be {words} {go_number(limit)}", value=value)


def _limit(
    result: Result, types: tuple[str, ...], format_: str, value: float, limit: float, what: str, path: str
) -> float:
    """The limit as it is compared: whole for whole numbers."""
    fits = _in_range(result, types, format_, limit, what, path)
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
        for index, each in enumerate(value):
            below = correlation.item(index) if correlation is not None else None
            result.merge(_checked(items, each, f"{path}[{index}]", below))
    fewest, most = schema.get("minItems"), schema.get("maxItems")
    if fewest is not None and len(value) < fewest:
        result.tell("Invalid", path, f"{path} in body should have at least {fewest} items", value=len(value))
    if most is not None and len(value) > most:
        told = f"{path} in body should have at most {most} items"
        result.tell("TooMany", path, told, value=len(value), detail=most)


def _check_object(result: Result, schema: Schema, value: JSON, path: str, correlation: Correlation | None) -> None:
    fewest, most = schema.get("minProperties"), schema.get("maxProperties")
    if fewest is not None and len(value) < fewest:
        result.tell("Invalid", path, f"{path} in body should have at least {fewest} properties", value=len(value))
    if most is not None and len(value) > most:
        told = f"{path} in body should have at most {most} properties"
        result.tell("TooMany", path, told, value=len(value), detail=most)
    properties, more = schema.get("properties") or {}, schema.get("additionalProperties")

    def below(name: str) -> Correlation | None:
        if correlation is None or (not path and name in ("apiVersion", "kind")):
            return None
        return correlation.field(name)

    for name, each in value.items():
        if name in properties:
            continue
        if more is False:
            result.tell("Invalid", path, f"{path}.{name} in body is a forbidden property", value=name)
        elif isinstance(more, dict):
            result.merge(_checked(more, each, f"{path}.{name}", below(name)))
    for name, known in properties.items():
        if name in value:
            result.merge(_checked(known, value[name], f"{path}.{name}" if path else name, below(name)))
    for name in schema.get("required") or ():
        if name not in value:
            where = f"{path}.{name}"
            result.tell("Required", where, f"{where} in body is required")


# --- alternatives -----------------------------------------------------------------------------------------------------


def _check_alternatives(result: Result, schema: Schema, value: Any, path: str, correlation: Correlation | None) -> None:
    if any_of := schema.get("anyOf"):
        _check_any(result, any_of, value, path, correlation)
    if one_of := schema.get("oneOf"):
        _check_one(result, one_of, value, path, correlation)
    if all_of := schema.get("allOf"):
        valid = 0
        for each in all_of:
            found = _check(each, value, path, correlation)
            valid += not found.errors
            result.merge(found)
        if valid != len(all_of):
            none = "" if valid else ". None validated"
            result.tell_apart(f"{quoted(path)} must validate all the schemas (allOf){none}")
    not_ = schema.get("not")
    if not_ is not None and not _check(not_, value, path, correlation).errors:
        result.tell_apart(f"{quoted(path)} must not validate the schema (not)")
    result.checks += 1


def _check_any(result: Result, choices: list[Schema], value: Any, path: str, correlation: Correlation | None) -> None:
    best: Result | None = None
    for each in choices:
        found = _check(each, value, path, correlation)
        if not found.errors:
            result.merge(found)
            return
        if best is None or found.checks > best.checks:
            best = found
    result.tell_apart(f"{quoted(path)} must validate at least one schema (anyOf)")
    if best is not None:
        result.merge(best)


def _check_one(result: Result, choices: list[Schema], value: Any, path: str, correlation: Correlation | None) -> None:
    best: Result | None = None
    valid: list[Result] = []
    for each in choices:
        found = _check(each, value, path, correlation)
        if not found.errors:
            valid.append(found)
            best = None
        elif not valid and (best is None or found.checks > best.checks):
            best = found
    if len(valid) == 1:
        result.merge(valid[0])
        return
    told = f"Found {len(valid)} valid alternatives" if valid else "Found none valid"
    result.tell_apart(f"{quoted(path)} must validate one and only one schema (oneOf). {told}")
    if best is not None:
        result.merge(best)
