"""JSON seen through an OpenAPI schema, without copying it: what expressions about custom resources are given.

A schema makes a date of a text and a double of an integer, hides fields whose type nobody knows, has lists that are
compared as sets or by keys, and writes names of fields so that they are identifiers. Source: k8s.io/apiserver
pkg/cel/common/valuesunstructured.go.
"""

from __future__ import annotations

import re
from base64 import b64decode
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from typing import Any

from kubeloop.devcluster.languages.cel.types import RESERVED, Schema, escape, with_object_meta
from kubeloop.devcluster.languages.cel.values import (
    CelError,
    Container,
    Duration,
    Timestamp,
    equal,
    is_list,
    is_map,
    lookup,
    parse_integer,
)

_GO_TYPES = {bool: "bool", str: "string", int: "int64", float: "float64", list: "[]interface {}"}


class SchemaView:
    """A schema, ready to be looked through. What is below it is made ready when it is first needed."""

    __slots__ = (
        "_below", "_convert", "_element", "_is_plain", "_readers", "fields", "keys", "list_type", "nullable", "schema",
    )  # fmt: skip

    def __init__(self, schema: Schema, *, root: bool = False) -> None:
        """root: of a resource, whose metadata is seen whether the schema tells of it or not."""
        self._is_plain: bool | None = None
        if root or schema.get("x-kubernetes-embedded-resource"):
            schema = with_object_meta(schema)
            self._is_plain = False  # there is more in metadata than is seen
        self.schema = schema
        self.nullable = bool(schema.get("nullable"))
        self.list_type = schema.get("x-kubernetes-list-type") or "atomic"
        self.keys: list[str] = list(schema.get("x-kubernetes-list-map-keys") or ())
        self._below: dict[str, SchemaView] = {}
        self._element: SchemaView | None = None
        self._readers: dict[str, tuple[str, Callable[[Any], Any]]] = {}
        properties = schema.get("properties")
        self.fields: dict[str, str] | None = None
        """Of an object with properties: their names, by what they are called in expressions."""
        if properties is not None:
            self.fields = {name: name for name in properties if name in RESERVED}
            self.fields |= {escaped: name for name in properties if (escaped := escape(name)) is not None}
        self._convert = self._converter()

    def of(self, data: Any) -> Any:
        """The value that data of this schema is. Raises CelError for data that is not of it."""
        if data is None:
            if self.nullable:
                return None
            raise CelError("invalid data, got null for schema with nullable=false")
        return self._convert(data)

    def below(self, name: str) -> SchemaView:
        found = self._below.get(name)
        if found is None:
            found = self._below[name] = SchemaView(self.schema["properties"][name])
        return found

    def reader(self, key: str) -> tuple[str, Callable[[Any], Any]] | None:
        """(name in JSON, what makes a value of its data, unless it is null) of a field by its name in expressions."""
        found = self._readers.get(key)
        if found is None and self.fields is not None and key in self.fields:
            name = self.fields[key]
            found = self._readers[key] = name, self.below(name)._convert
        return found

    def knows(self, name: str) -> bool:
        """Has a map of this schema, by the name it has in JSON, this field?"""
        if self.fields is not None:
            return name in self.schema["properties"]
        return self.element is not None

    @property
    def element(self) -> SchemaView | None:
        """What items, or fields beyond properties, are."""
        if self._element is None:
            more = self.schema.get("items" if self.schema.get("type") == "array" else "additionalProperties")
            self._element = SchemaView(more) if isinstance(more, dict) else None
        return self._element

    @property
    def is_plain(self) -> bool:
        """Are values equal if, and only if, their data are? Python compares data a hundred times faster."""
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
                return _TEXTS.get(self.schema.get("format") or "", _text)
            case "number":
                return _number
            case "integer":
                return _integer
            case "boolean":
                return _boolean
        return Unknown

    def _object(self, data: Any) -> TypedMap:
        if type(data) is not dict:
            raise CelError("invalid data, expected a map for the provided schema with type=object")
        return TypedMap(data, self)

    def _array(self, data: Any) -> TypedList:
        if type(data) is not list:
            raise CelError("invalid data, expected an array for the provided schema with type=array")
        return TypedList(data, self)


_MORE_THAN_SEEN = ("x-kubernetes-preserve-unknown-fields", "x-kubernetes-embedded-resource")


def _is_plain(schema: Schema) -> bool:
    if schema.get("x-kubernetes-int-or-string"):
        return True
    if schema.get("x-kubernetes-list-type") in ("set", "map") or any(schema.get(each) for each in _MORE_THAN_SEEN):
        return False
    more, items = schema.get("additionalProperties"), schema.get("items")
    below = [*(schema.get("properties") or {}).values(), *(each for each in (more, items) if isinstance(each, dict))]
    return "type" in schema and more is not True and schema.get("format") not in _TEXTS and all(map(_is_plain, below))


def _go_type(data: Any) -> str:
    return _GO_TYPES.get(type(data), "map[string]interface {}")


def _int_or_string(data: Any) -> Any:
    if type(data) is str or type(data) is int:
        return data
    raise CelError("invalid data, expected XIntOrString value to be either a string or integer")


def _text(data: Any) -> str:
    if type(data) is not str:
        raise CelError(f"invalid data, expected string, got {_go_type(data)}")
    return data


def _number(data: Any) -> float:
    if type(data) not in (int, float):
        raise CelError(f"invalid data, expected float, got {_go_type(data)}")
    return float(data)


def _integer(data: Any) -> int:
    if type(data) is not int:
        raise CelError(f"invalid data, expected int, got {_go_type(data)}")
    return data


def _boolean(data: Any) -> bool:
    if type(data) is not bool:
        raise CelError(f"invalid data, expected bool, got {_go_type(data)}")
    return data


_UNITS = {"ns": 1, "us": 10**3, "µs": 10**3, "μs": 10**3, "ms": 10**6, "s": 10**9, "m": 60 * 10**9, "h": 3600 * 10**9}
_LONG_UNITS = {"d": 24 * 3600 * 10**9, "w": 7 * 24 * 3600 * 10**9}
_FRACTION_DIGITS = 18  # Go drops the rest
_PART = re.compile(r"([0-9]+\.?[0-9]*|\.[0-9]+)(ns|us|µs|μs|ms|s|m|h)")
_WORDS = re.compile(r"([0-9]+)\s*([A-Za-zµ]+)\s*")


def parse_go_duration(text: str) -> int | None:
    """Nanoseconds of a duration as Go writes it; None if it is none."""
    sign, rest = (-1, text[1:]) if text[:1] == "-" else (1, text.removeprefix("+"))
    if rest == "0":
        return 0
    total, at = 0, 0
    while at < len(rest):
        match = _PART.match(rest, at)
        if match is None:
            return None
        whole, _, fraction = match[1].partition(".")
        unit, fraction = _UNITS[match[2]], fraction[:_FRACTION_DIGITS]
        total += parse_integer(whole) * unit + int(float(fraction or 0) * (unit / 10 ** len(fraction)))  # as Go rounds
        at = match.end()
    return sign * total if at and -(1 << 63) <= sign * total < 1 << 63 else None


def _duration(data: Any) -> Duration:
    text = _text(data)
    found = parse_go_duration(text)
    if found is None:  # "2 days", as Scala writes it
        total = 0
        for number, word in _WORDS.findall(text):
            unit = word.lower() if len(word) < 3 else _short(word.lower())
            total += parse_integer(number) * (_UNITS.get(unit) or _LONG_UNITS.get(unit, 0))
        if not total:
            raise CelError(f"Invalid duration {text}: unable to parse {text} as duration")
        found = total
    return Duration(found)


def _short(word: str) -> str:
    for start, unit in (("mil", "ms"), ("mic", "us"), ("nan", "ns"), ("sec", "s"), ("min", "m"), ("h", "h")):
        if word.startswith(start):
            return unit
    return word[0]


_TIME = re.compile(
    r"(\d{4})-(\d\d)-(\d\d)(?:[Tt ](\d\d):(\d\d):(\d\d)(?:[.,](\d+))?(?:([Zz])|([+-])(\d\d):?(\d\d))?)?", re.ASCII
)


def parse_timestamp(text: str) -> Timestamp | None:
    """RFC 3339, or a date alone; None for anything else."""
    match = _TIME.fullmatch(text)
    if match is None:
        return None
    year, month, day, hour, minute, second = (int(each or 0) for each in match.group(1, 2, 3, 4, 5, 6))
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
    text = _text(data)
    found = parse_timestamp(text) if len(text) == len("2006-01-02") else None
    if found is None:
        raise CelError(f"Invalid date formatted string {text}: it is no date")
    return found


def _date_time(data: Any) -> Timestamp:
    text = _text(data)
    found = parse_timestamp(text)
    if found is None:
        raise CelError(f"Invalid date-time formatted string {text}: it is no time")
    return found


def _bytes(data: Any) -> bytes:
    text = _text(data)
    try:
        return b64decode(text, validate=True)
    except ValueError as error:
        raise CelError(f"Invalid byte formatted string {text}: {error}") from None


_TEXTS: dict[str, Callable[[Any], Any]] = {
    "duration": _duration,
    "date": _date,
    "date-time": _date_time,
    "byte": _bytes,
}


class Unknown(Container):
    """What is preserved without a type: it can be compared, and no more."""

    __slots__ = ("data",)

    def __init__(self, data: Any) -> None:
        self.data = data

    def equals(self, other: Any) -> bool:
        return bool(self.data == (other.data if isinstance(other, Unknown | TypedList | TypedMap) else other))

    def __len__(self) -> int:
        return 1


class TypedMap(Container):
    """An object, or a map, of a schema."""

    __slots__ = ("data", "view")
    is_map = True

    def __init__(self, data: dict[str, Any], view: SchemaView) -> None:
        self.data, self.view = data, view

    def __len__(self) -> int:
        return len(self.data)

    def __iter__(self) -> Iterator[str]:
        """Keys, those of fields as expressions write them."""
        for name in self.data:
            if self.view.knows(name):
                yield (escape(name) or name) if self.view.fields is not None else name

    def find(self, key: Any) -> tuple[Any, bool]:
        """(value, is it there). A field that is null counts as absent."""
        if type(key) is not str:
            raise CelError("no such overload")
        fields = self.view.fields
        if fields is None:
            element = self.view.element
            return (element.of(self.data[key]), True) if key in self.data and element is not None else (None, False)
        name = fields.get(key)
        data = self.data.get(name) if name is not None else None
        return (None, False) if data is None or name is None else (self.view.below(name).of(data), True)

    def equals(self, other: Any) -> bool:
        if isinstance(other, TypedMap) and other.view is self.view and self.view.is_plain:
            return self.data == other.data
        if not is_map(other) or len(self) != len(other):
            return False
        for name, data in self.data.items():
            if self.view.knows(name):
                key = (escape(name) or name) if self.view.fields is not None else name
                mine, there = self.find(key)
                theirs, also = lookup(other, key)
                if there != also or (there and not equal(mine, theirs)):
                    return False
            elif isinstance(other, TypedMap) and name in other.data and other.data[name] != data:
                return False
        return True


class TypedList(Container):
    """A list of a schema. Sets and lists with keys are the same in any order."""

    __slots__ = ("data", "view")

    def __init__(self, data: list[Any], view: SchemaView) -> None:
        self.data, self.view = data, view

    def __len__(self) -> int:
        return len(self.data)

    def __iter__(self) -> Iterator[Any]:
        element = self.view.element
        if element is None:
            raise CelError("invalid array type, expected Items with a non-empty Schema")
        return map(element.of, self.data)

    def __getitem__(self, index: int) -> Any:
        element = self.view.element
        if element is None:
            raise CelError("invalid array type, expected Items with a non-empty Schema")
        return element.of(self.data[index])

    def _key(self, data: Any) -> Any:
        if self.view.list_type == "set":
            return _frozen(data)
        return tuple(_frozen(data.get(name)) for name in self.view.keys) if isinstance(data, dict) else _frozen(data)

    def holds(self, value: Any) -> bool:
        """Is the value one of the elements?"""
        element = self.view.element
        if isinstance(value, TypedMap) and value.view is element and element.is_plain:
            return value.data in self.data
        return any(equal(each, value) for each in self)

    def equals(self, other: Any) -> bool:
        if isinstance(other, TypedList) and other.view is self.view and self.view.is_plain:
            return self.data == other.data
        if not is_list(other) or len(self) != len(other):
            return False
        if self.view.list_type == "atomic" or not isinstance(other, TypedList):
            if self.view.list_type == "set":
                return all(any(equal(mine, theirs) for mine in self) for theirs in other)
            return all(equal(mine, theirs) for mine, theirs in zip(self, other, strict=True))
        known = {self._key(each): each for each in self.data}
        if self.view.list_type == "set":
            return all(self._key(each) in known for each in other.data)
        element = self.view.element
        assert element is not None
        return all(
            self._key(data) in known and equal(element.of(known[self._key(data)]), value)
            for data, value in zip(other.data, other, strict=True)
        )

    def joined(self, other: Any) -> Any:
        """self + other: a set has each element once, and of items with the same keys the second one counts."""
        if self.view.list_type == "atomic":
            return [*self, *other]
        added = other.data if isinstance(other, TypedList) else list(other)
        result = {self._key(each): each for each in self.data}
        if self.view.list_type == "set":
            result |= {self._key(each): each for each in added if self._key(each) not in result}
        else:
            result |= {self._key(each): each for each in added}
        return TypedList(list(result.values()), self.view)


def _frozen(data: Any) -> Any:
    """Something that can stand in a set, and is as equal as the data."""
    if isinstance(data, list):
        return tuple(map(_frozen, data))
    if isinstance(data, dict):
        return frozenset((name, _frozen(each)) for name, each in data.items())
    return (type(data) is bool, data)
