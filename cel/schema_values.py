"""CEL values of JSON data with an OpenAPI schema, converted lazily and without copies: `self` of CRD validation rules.

The schema decides the types: a string may be a timestamp, an integer a double. It hides fields of unknown type, makes
lists compare as sets or by keys, and escapes field names to identifiers. Source: k8s.io/apiserver
pkg/cel/common/valuesunstructured.go.
"""

from __future__ import annotations

import re
from base64 import b64decode
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from typing import Any

from kubeloop.cel.go_text import parse_integer
from kubeloop.cel.types import RESERVED, Schema, escape, with_object_meta
from kubeloop.cel.values import (
    CelError,
    ContainerValue,
    Duration,
    Timestamp,
    equal,
    is_list,
    is_map,
    lookup,
)

_GO_TYPES = {bool: "bool", str: "string", int: "int64", float: "float64", list: "[]interface {}"}


class SchemaView:
    """Converts JSON data of one schema to CEL values. Views of nested schemas are created when first needed."""

    __slots__ = (
        "_convert_non_null", "_element", "_is_plain", "_property_views", "_readers",
        "fields", "keys", "list_type", "nullable", "schema",
    )  # fmt: skip

    def __init__(self, schema: Schema, *, root: bool = False) -> None:
        """root: the schema of a resource, whose metadata is visible even if the schema does not declare it."""
        self._is_plain: bool | None = None
        if root or schema.get("x-kubernetes-embedded-resource"):
            schema = with_object_meta(schema)
            self._is_plain = False  # metadata has fields that expressions do not see
        self.schema = schema
        self.nullable = bool(schema.get("nullable"))
        self.list_type = schema.get("x-kubernetes-list-type") or "atomic"
        self.keys: list[str] = list(schema.get("x-kubernetes-list-map-keys") or ())
        self._property_views: dict[str, SchemaView] = {}
        self._element: SchemaView | None = None
        self._readers: dict[str, tuple[str, Callable[[Any], Any]]] = {}
        properties = schema.get("properties")
        self.fields: dict[str, str] | None = None
        """For an object with properties: JSON field names by identifier."""
        if properties is not None:
            self.fields = {name: name for name in properties if name in RESERVED}
            self.fields |= {escaped: name for name in properties if (escaped := escape(name)) is not None}
        self._convert_non_null = self._converter()

    def convert(self, data: Any) -> Any:
        """Return the value of data. Raises CelError for data that does not match the schema."""
        if data is None:
            if self.nullable:
                return None
            raise CelError("invalid data, got null for schema with nullable=false")
        return self._convert_non_null(data)

    def property_view(self, name: str) -> SchemaView:
        view = self._property_views.get(name)
        if view is None:
            view = self._property_views[name] = SchemaView(self.schema["properties"][name])
        return view

    def field_reader(self, key: str) -> tuple[str, Callable[[Any], Any]] | None:
        """Return (JSON name, converter of non-null data) of the field with this identifier."""
        reader = self._readers.get(key)
        if reader is None and self.fields is not None and key in self.fields:
            name = self.fields[key]
            reader = self._readers[key] = name, self.property_view(name)._convert_non_null
        return reader

    def has_field(self, name: str) -> bool:
        """Return True if objects of this schema can have the JSON field `name`."""
        if self.fields is not None:
            return name in self.schema["properties"]
        return self.element is not None

    @property
    def element(self) -> SchemaView | None:
        """View of list items or additional properties."""
        if self._element is None:
            element_schema = self.schema.get("items" if self.schema.get("type") == "array" else "additionalProperties")
            self._element = SchemaView(element_schema) if isinstance(element_schema, dict) else None
        return self._element

    @property
    def is_plain(self) -> bool:
        """True if values are equal exactly if their data are; comparing data is a hundred times faster."""
        if self._is_plain is None:
            self._is_plain = _is_plain(self.schema)
        return self._is_plain

    # --- conversion -----------------------------------------------------------------------------------------------

    def _converter(self) -> Callable[[Any], Any]:
        if self.schema.get("x-kubernetes-int-or-string"):
            return _int_or_string
        match self.schema.get("type"):
            case "object":
                return self._object
            case "array":
                return self._array
            case "string":
                return _STRING_FORMATS.get(self.schema.get("format") or "", _string)
            case "number":
                return _number
            case "integer":
                return _integer
            case "boolean":
                return _boolean
        return UnknownPreserved

    def _object(self, data: Any) -> TypedMap:
        if type(data) is not dict:
            raise CelError("invalid data, expected a map for the provided schema with type=object")
        return TypedMap(data, self)

    def _array(self, data: Any) -> TypedList:
        if type(data) is not list:
            raise CelError("invalid data, expected an array for the provided schema with type=array")
        return TypedList(data, self)


_HIDDEN_CONTENT = ("x-kubernetes-preserve-unknown-fields", "x-kubernetes-embedded-resource")


def _is_plain(schema: Schema) -> bool:
    if schema.get("x-kubernetes-int-or-string"):
        return True
    if schema.get("x-kubernetes-list-type") in ("set", "map") or any(schema.get(field) for field in _HIDDEN_CONTENT):
        return False
    additional, items = schema.get("additionalProperties"), schema.get("items")
    nested = [
        *(schema.get("properties") or {}).values(),
        *(schema_ for schema_ in (additional, items) if isinstance(schema_, dict)),
    ]
    return (
        "type" in schema
        and additional is not True
        and schema.get("format") not in _STRING_FORMATS
        and all(map(_is_plain, nested))
    )


def _go_type(data: Any) -> str:
    return _GO_TYPES.get(type(data), "map[string]interface {}")


def _int_or_string(data: Any) -> Any:
    if type(data) is str or type(data) is int:
        return data
    raise CelError("invalid data, expected XIntOrString value to be either a string or integer")


def _of_type(kind: type, name: str) -> Callable[[Any], Any]:
    """Return the converter of data that is of one Python type."""

    def checked(data: Any) -> Any:
        if type(data) is not kind:
            raise CelError(f"invalid data, expected {name}, got {_go_type(data)}")
        return data

    return checked


_string, _integer, _boolean = _of_type(str, "string"), _of_type(int, "int"), _of_type(bool, "bool")


def _number(data: Any) -> float:
    if type(data) not in (int, float):
        raise CelError(f"invalid data, expected float, got {_go_type(data)}")
    return float(data)


_UNITS = {"ns": 1, "us": 10**3, "µs": 10**3, "μs": 10**3, "ms": 10**6, "s": 10**9, "m": 60 * 10**9, "h": 3600 * 10**9}
_LONG_UNITS = {"d": 24 * 3600 * 10**9, "w": 7 * 24 * 3600 * 10**9}
_FRACTION_DIGITS = 18  # Go ignores further digits
_PART = re.compile(r"([0-9]+\.?[0-9]*|\.[0-9]+)(ns|us|µs|μs|ms|s|m|h)")
_UNIT_WORDS = re.compile(r"([0-9]+)\s*([A-Za-zµ]+)\s*")


def parse_go_duration(text: str) -> int | None:
    """Return the nanoseconds of a Go duration string, or None if it is invalid."""
    sign, rest = (-1, text[1:]) if text[:1] == "-" else (1, text.removeprefix("+"))
    if rest == "0":
        return 0
    total, at = 0, 0
    while at < len(rest):
        match = _PART.match(rest, at)
        if match is None:
            return None
        integer, _, fraction = match[1].partition(".")
        unit, fraction = _UNITS[match[2]], fraction[:_FRACTION_DIGITS]
        total += parse_integer(integer) * unit + int(
            float(fraction or 0) * (unit / 10 ** len(fraction))
        )  # as Go rounds
        at = match.end()
    return sign * total if at and -(1 << 63) <= sign * total < 1 << 63 else None


def _duration(data: Any) -> Duration:
    text = _string(data)
    nanoseconds = parse_go_duration(text)
    if nanoseconds is None:  # "2 days", Scala's form, which go-openapi/strfmt accepts
        total = 0
        for number, word in _UNIT_WORDS.findall(text):
            unit = word.lower() if len(word) < 3 else _short_unit(word.lower())
            total += parse_integer(number) * (_UNITS.get(unit) or _LONG_UNITS.get(unit, 0))
        if not total:
            raise CelError(f"Invalid duration {text}: unable to parse {text} as duration")
        nanoseconds = total
    return Duration(nanoseconds)


def _short_unit(word: str) -> str:
    for start, unit in (("mil", "ms"), ("mic", "us"), ("nan", "ns"), ("sec", "s"), ("min", "m"), ("h", "h")):
        if word.startswith(start):
            return unit
    return word[0]


_TIME = re.compile(
    r"(\d{4})-(\d\d)-(\d\d)(?:[Tt ](\d\d):(\d\d):(\d\d)(?:[.,](\d+))?(?:([Zz])|([+-])(\d\d):?(\d\d))?)?", re.ASCII
)


def parse_timestamp(text: str) -> Timestamp | None:
    """Parse an RFC 3339 time or a date; None for anything else."""
    match = _TIME.fullmatch(text)
    if match is None:
        return None
    year, month, day, hour, minute, second = (int(group or 0) for group in match.group(1, 2, 3, 4, 5, 6))
    try:
        moment = datetime(year, month, day, hour, minute, second, tzinfo=UTC)
    except ValueError:
        return None
    offset = 0
    if match[9]:
        hours, minutes = int(match[10]), int(match[11])
        if hours > 24 or minutes > 60:  # Go's limits
            return None
        offset = (hours * 3600 + minutes * 60) * (-1 if match[9] == "-" else 1)
    seconds = int((moment - datetime(1970, 1, 1, tzinfo=UTC)).total_seconds())
    fraction = int((match[7] or "0")[:9].ljust(9, "0"))
    return Timestamp((seconds - offset) * 10**9 + fraction, offset)


def _date(data: Any) -> Timestamp:
    text = _string(data)
    timestamp = parse_timestamp(text) if len(text) == len("2006-01-02") else None
    if timestamp is None:
        raise CelError(f"Invalid date formatted string {text}: it is no date")
    return timestamp


def _date_time(data: Any) -> Timestamp:
    text = _string(data)
    timestamp = parse_timestamp(text)
    if timestamp is None:
        raise CelError(f"Invalid date-time formatted string {text}: it is no time")
    return timestamp


def _bytes(data: Any) -> bytes:
    text = _string(data)
    try:
        return b64decode(text, validate=True)
    except ValueError as error:
        raise CelError(f"Invalid byte formatted string {text}: {error}") from None


_STRING_FORMATS: dict[str, Callable[[Any], Any]] = {
    "duration": _duration,
    "date": _date,
    "date-time": _date_time,
    "byte": _bytes,
}


class UnknownPreserved(ContainerValue):
    """A value that is preserved without a type; it only supports equality."""

    __slots__ = ("data",)

    def __init__(self, data: Any) -> None:
        self.data = data

    def equals(self, other: Any) -> bool:
        return bool(self.data == (other.data if isinstance(other, UnknownPreserved | TypedList | TypedMap) else other))

    def __len__(self) -> int:
        return 1


class TypedMap(ContainerValue):
    """An object or map with a schema."""

    __slots__ = ("data", "view")
    is_map = True

    def __init__(self, data: dict[str, Any], view: SchemaView) -> None:
        self.data, self.view = data, view

    def __len__(self) -> int:
        return len(self.data)

    def __iter__(self) -> Iterator[str]:
        """Iterate over the keys; field names are identifiers."""
        for name in self.data:
            if self.view.has_field(name):
                yield (escape(name) or name) if self.view.fields is not None else name

    def find(self, key: Any) -> tuple[Any, bool]:
        """Return (value, True) or (None, False). A field that is null counts as absent."""
        if type(key) is not str:
            raise CelError("no such overload")
        fields = self.view.fields
        if fields is None:
            element = self.view.element
            return (
                (element.convert(self.data[key]), True) if key in self.data and element is not None else (None, False)
            )
        name = fields.get(key)
        data = self.data.get(name) if name is not None else None
        return (None, False) if data is None or name is None else (self.view.property_view(name).convert(data), True)

    def equals(self, other: Any) -> bool:
        if isinstance(other, TypedMap) and other.view is self.view and self.view.is_plain:
            return self.data == other.data
        if not is_map(other) or len(self) != len(other):
            return False
        for name, data in self.data.items():
            if self.view.has_field(name):
                key = (escape(name) or name) if self.view.fields is not None else name
                value, present = self.find(key)
                other_value, other_present = lookup(other, key)
                if present != other_present or (present and not equal(value, other_value)):
                    return False
            elif isinstance(other, TypedMap) and name in other.data and other.data[name] != data:
                return False
        return True


class TypedList(ContainerValue):
    """A list with a schema. Sets and lists of type map are equal in any order."""

    __slots__ = ("data", "view")

    def __init__(self, data: list[Any], view: SchemaView) -> None:
        self.data, self.view = data, view

    def __len__(self) -> int:
        return len(self.data)

    def __iter__(self) -> Iterator[Any]:
        element = self.view.element
        if element is None:
            raise CelError("invalid array type, expected Items with a non-empty Schema")
        return map(element.convert, self.data)

    def __getitem__(self, index: int) -> Any:
        element = self.view.element
        if element is None:
            raise CelError("invalid array type, expected Items with a non-empty Schema")
        return element.convert(self.data[index])

    def _key(self, data: Any) -> Any:
        if self.view.list_type == "set":
            return _hashable(data)
        return (
            tuple(_hashable(data.get(name)) for name in self.view.keys) if isinstance(data, dict) else _hashable(data)
        )

    def contains(self, value: Any) -> bool:
        """Return True if the value is one of the elements."""
        element = self.view.element
        if isinstance(value, TypedMap) and value.view is element and element.is_plain:
            return value.data in self.data
        return any(equal(element, value) for element in self)

    def equals(self, other: Any) -> bool:
        if isinstance(other, TypedList) and other.view is self.view and self.view.is_plain:
            return self.data == other.data
        if not is_list(other) or len(self) != len(other):
            return False
        if self.view.list_type == "atomic" or not isinstance(other, TypedList):
            if self.view.list_type == "set":
                return all(any(equal(value, other_value) for value in self) for other_value in other)
            return all(equal(value, other_value) for value, other_value in zip(self, other, strict=True))
        items_by_key = {self._key(item): item for item in self.data}
        if self.view.list_type == "set":
            return all(self._key(item) in items_by_key for item in other.data)
        element = self.view.element
        assert element is not None
        return all(
            self._key(data) in items_by_key and equal(element.convert(items_by_key[self._key(data)]), value)
            for data, value in zip(other.data, other, strict=True)
        )

    def concatenate(self, other: Any) -> Any:
        """Return self + other. Elements of a set stay unique; an item replaces the one with the same keys."""
        if self.view.list_type == "atomic":
            return [*self, *other]
        added = other.data if isinstance(other, TypedList) else list(other)
        result = {self._key(item): item for item in self.data}
        if self.view.list_type == "set":
            result |= {self._key(item): item for item in added if self._key(item) not in result}
        else:
            result |= {self._key(item): item for item in added}
        return TypedList(list(result.values()), self.view)


def _hashable(data: Any) -> Any:
    """Return a hashable form of JSON data with the same equality."""
    if isinstance(data, list):
        return tuple(map(_hashable, data))
    if isinstance(data, dict):
        return frozenset((name, _hashable(value)) for name, value in data.items())
    return (type(data) is bool, data)
