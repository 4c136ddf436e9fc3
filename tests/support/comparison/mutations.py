"""Valid and invalid variants of API objects, generated field by field from the schema.

`mutations(type_name, base)` yields every change of one field: removal, null, an empty value, values of the wrong type,
and values from pools per type, enum and field name. Fields missing in the base are added; lists are emptied, duplicated
and reversed. `combined` applies several changes at once. The mutations are not classified as valid or invalid.
"""

from __future__ import annotations

import random
from collections.abc import Iterator
from copy import deepcopy
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from kubeloop.kube import schema

JSON = dict[str, Any]
Place = tuple[str | int, ...]
REMOVED = object()
LONG_LABEL, LONG_NAME = "a" * 64, "a" * 254

_STRINGS = (
    "", "a", "A_b", "a.b", "-a", "a-", LONG_LABEL, LONG_NAME, " ", "é", "a b", "example.com/x", "/abs/path", "../x",
    "1.2.3.4", "fd00::1", "kubernetes.io/foo", "0", "True", "a\nb", '"q"', "..", ".", "*.example.com", "a:b",
)  # fmt: skip
_NUMBERS = (-2147483648, -1, 0, 1, 2, 3, 100, 101, 3600, 65535, 65536, 2147483647)
_POOLS: dict[str, tuple[Any, ...]] = {
    "string": _STRINGS,
    "bool": (True, False),
    "int32": _NUMBERS,
    "int64": (*_NUMBERS, 2147483648, -(1 << 63), (1 << 63) - 1),
    "float64": (0, 0.5, -1),
    "byte": (0, 1),
    "bytes": ("", "aGVsbG8=", "not base64!"),
    "quantity": (
        "0", "1", "-1", "500m", "1Gi", "0.5", "1e3", "100u", "", "abc", 3, 1.5, "3Mi", "1n", "9E",
    ),
    "intOrString": (0, -1, 1, 80, 65536, "http", "80", "10%", "150%", "-1%", "HTTP_", "", "a" * 16, "--", "1-2"),
    "time": ("2024-01-01T00:00:00Z", "yesterday", "", "2024-01-01T00:00:00.5+02:00"),
    "microTime": ("2024-01-01T00:00:00.000000Z", "2024-01-01T00:00:00Z", "yesterday"),
    "duration": ("1s", "1m30s", "", "x", "-1s"),
    "fieldsV1": ({}, {"f:metadata": {}}),
    "raw": ({}, {"a": 1}, "text"),
    "any": ({}, True, "text"),
}  # fmt: skip
_WRONG_TYPE: dict[str, tuple[Any, ...]] = {
    "string": (7,),
    "bool": ("true",),
    "int32": (1 << 40,),
    "int64": ("7",),
    "quantity": ({},),
    "intOrString": (True,),
    "struct": ("text",),
    "list": ({},),
    "map": ([],),
}
_KEYS = ("a", "", "A b", "example.com/key", "-bad", LONG_LABEL, "kubernetes.io/x", "a/b/c", "example.com/" + LONG_LABEL)
_RESOURCES = (
    "cpu", "memory", "ephemeral-storage", "storage", "hugepages-2Mi", "hugepages-1Gi", "hugepages-x", "example.com/gpu",
    "kubernetes.io/x", "bogus", "requests.example.com/x", "requests.cpu", "pods", "-bad", "", "attachable-volumes-aws",
)  # fmt: skip
_BY_FIELD: dict[str, list[Any]] = yaml.safe_load((Path(__file__).parents[1] / "valid/values.yaml").read_text())


@dataclass(frozen=True)
class Mutation:
    """A change of `base`: `value` at `path`, or no value if REMOVED."""

    path: Place
    value: Any
    base: JSON

    @property
    def changed(self) -> JSON:
        """Return the changed object."""
        return changed(self.base, self.path, self.value)

    @property
    def field(self) -> str:
        """Return the path without indices: "spec.containers.ports.protocol"."""
        return ".".join(part for part in self.path if isinstance(part, str))

    def __str__(self) -> str:
        shown = "removed" if self.value is REMOVED else repr(self.value)
        return f"{dotted(self.path)} = {shown if len(shown) < 160 else shown[:157] + '...'}"


@dataclass(frozen=True)
class CombinedMutation(Mutation):
    """Several mutations: `value` describes them, `base` is the changed object."""

    @property
    def changed(self) -> JSON:
        return self.base


def dotted(path: Place) -> str:
    return "".join(f"[{part}]" if type(part) is int else f".{part}" for part in path).lstrip(".")


def changed(base: JSON, path: Place, value: Any) -> JSON:
    """Return a copy of `base` with `value` at `path`. Raises LookupError or TypeError if the path does not exist."""
    result: Any = dict(base)
    parent = result
    for part in path[:-1]:
        inner = parent[part]
        parent[part] = dict(inner) if type(inner) is dict else list(inner)
        parent = parent[part]
    if value is not REMOVED:
        if type(path[-1]) is int and path[-1] >= len(parent):
            raise IndexError(path)
        parent[path[-1]] = deepcopy(value)
    else:
        del parent[path[-1]]
    final: JSON = result
    return final


def mutations(type_name: str, base: JSON, *, under: Place = ()) -> Iterator[Mutation]:
    """Yield every change of one field of `base`, an object of this type. under: only below this path."""
    struct = schema.type_named(type_name)
    assert struct is not None, type_name
    for path, value in _in_struct(struct, base, ()):
        if path[: len(under)] == under[: len(path)]:
            yield Mutation(path, value, base)


def sends_empty(type_name: str, obj: Any) -> bool:
    """Return True if the object contains an empty list or map, which Go distinguishes from an absent one."""
    return _contains_empty(schema.type_ref(type_name), obj)


def _contains_empty(ref: schema.TypeRef, value: Any) -> bool:
    if ref.kind in ("list", "map") and type(value) in (list, dict) and ref.element is not None:
        inside = value.values() if type(value) is dict else value
        return not value or any(_contains_empty(ref.element, item) for item in inside)
    if ref.kind == "struct" and ref.struct is not None and type(value) is dict:
        fields = ref.struct.json
        return any(name in fields and _contains_empty(fields[name].type, member) for name, member in value.items())
    return False


def combined(single: list[Mutation], base: JSON, rng: random.Random, count: int, most: int = 3) -> list[Mutation]:
    """Return `count` combinations of two to `most` mutations. Incompatible mutations are left out."""
    result: list[Mutation] = []
    while single and len(result) < count:
        parts = rng.sample(single, min(len(single), rng.randint(2, most)))
        if rng.random() < 0.5:  # of the same parent: rules often relate sibling fields
            parent = parts[0].path[:-1]
            siblings = [part for part in rng.sample(single, min(400, len(single))) if part.path[:-1] == parent]
            parts = [parts[0], *siblings[: most - 1]]
        obj, path, values = base, parts[0].path, []
        for part in parts:
            try:
                obj = changed(obj, part.path, part.value)
            except (LookupError, TypeError):
                continue
            values.append(str(part))
        result.append(CombinedMutation(path, " and ".join(values), obj))
    return result


def _in_struct(struct: schema.StructType, value: JSON, path: Place) -> Iterator[tuple[Place, Any]]:
    for name, field in struct.json.items():
        here = (*path, name)
        if name in value:
            yield here, REMOVED
            yield here, None
        for tried in _values(field.type, f"{struct.name}.{name}", name, depth=0):
            yield here, tried
        if name in value:
            yield from _inside(field.type, value[name], here, struct.name)
    yield (*path, "unknownField"), 1


def _inside(ref: schema.TypeRef, value: Any, path: Place, owner: str) -> Iterator[tuple[Place, Any]]:
    if ref.kind == "struct" and ref.struct is not None and type(value) is dict:
        yield from _in_struct(ref.struct, value, path)
    elif ref.kind == "list" and type(value) is list:
        assert ref.element is not None
        if value:
            yield path, [*value, value[0]]
            yield path, [*value, None]
            if len(value) > 1:
                yield path, value[::-1]
        for i, item in enumerate(value):
            for other in _values(ref.element, f"{owner}.{path[-1]}[]", str(path[-1]), depth=0):
                yield (*path, i), other
            yield from _inside(ref.element, item, (*path, i), owner)
    elif ref.kind == "map" and type(value) is dict:
        assert ref.element is not None
        for key in _map_keys(ref):
            if key not in value:
                yield (*path, key), _plausible(ref.element, "", 0)
        for key, member in value.items():
            yield (*path, key), REMOVED
            for other in _values(ref.element, f"{owner}.{path[-1]}{{}}", "", depth=0):
                yield (*path, key), other
            yield from _inside(ref.element, member, (*path, key), owner)


def _map_keys(ref: schema.TypeRef) -> tuple[str, ...]:
    return _RESOURCES if ref.named == "core/v1.ResourceList" else _KEYS


def _values(ref: schema.TypeRef, qualified: str, name: str, depth: int) -> Iterator[Any]:
    """Yield values for a field of this type: plausible, unusual and invalid ones."""
    yield from (value for value in _BY_FIELD.get(qualified, _BY_FIELD.get(name, ())) if _fits_type(ref, value))
    if depth == 0:
        yield from _WRONG_TYPE.get(ref.kind, ())
    if ref.enum:
        yield from (*ref.enum, "Bogus", "", ref.enum[0].lower(), LONG_LABEL)
    elif ref.kind in _POOLS:
        yield from _POOLS[ref.kind]
    elif ref.kind == "struct":
        yield {}
        if ref.struct is not None:
            yield _plausible(ref, name, depth)
            for field in ref.struct.json.values():
                yield {field.name: _plausible(field.type, field.name, depth + 1)}
                if depth < 1 and field.type.kind != "struct":
                    qualified_name = f"{ref.struct.name}.{field.name}"
                    for value in list(_values(field.type, qualified_name, field.name, depth + 1))[:12]:
                        yield {field.name: value}
    elif ref.kind == "list" and ref.element is not None:
        yield []
        yield [None]
        if depth < 1:
            for value in _values(ref.element, f"{qualified}[]", name, depth + 1):
                yield [value]
        one = _plausible(ref.element, name, depth)
        yield [one, one]
        yield [one] * 70
    elif ref.kind == "map" and ref.element is not None:
        yield {}
        for key in _map_keys(ref):
            yield {key: _plausible(ref.element, "", depth)}
        if depth < 1:
            for value in _values(ref.element, f"{qualified}{{}}", name, depth + 1):
                yield {_map_keys(ref)[0]: value}


def _fits_type(ref: schema.TypeRef, value: Any) -> bool:
    """Return False if the value is for another type: some field names of values.yaml have several types."""
    shape = {"struct": dict, "map": dict, "list": list, "int32": int, "int64": int, "string": str}.get(ref.kind)
    return shape is None or type(value) is shape


def _plausible(ref: schema.TypeRef, name: str, depth: int) -> Any:
    """Return a plausible value: the first of its pool; structs with all required and simple fields."""
    if ref.enum:
        return ref.enum[0]
    if _BY_FIELD.get(name) and _fits_type(ref, _BY_FIELD[name][0]):
        return _BY_FIELD[name][0]
    if ref.kind == "string":
        return "a"
    if ref.kind == "struct":
        if ref.struct is None or depth > 3:
            return {}
        return {
            field.name: _plausible(field.type, field.name, depth + 1)
            for field in ref.struct.json.values()
            if field.required or (depth < 2 and field.type.kind in ("string", "int32", "quantity", "intOrString"))
        }
    if ref.kind == "list" and ref.element is not None:
        return [_plausible(ref.element, name, depth + 1)]
    if ref.kind == "map" and ref.element is not None:
        return {_map_keys(ref)[0]: _plausible(ref.element, "", depth + 1)}
    return {"int32": 1, "int64": 1, "quantity": "1", "intOrString": 1}.get(ref.kind, _POOLS[ref.kind][0])
