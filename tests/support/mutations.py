"""Wrong, odd and unusual variants of valid API objects, field by field, out of the schema.

`mutations(type_name, base)` yields every change of one field: removal, null, an empty value, values of the wrong type,
and values out of pools per type, per enum and per field name; fields the base does not have are added, lists are
emptied, doubled and reversed. `combined` applies several at once. Nothing here knows which of them are valid.
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
_BY_FIELD: dict[str, list[Any]] = yaml.safe_load((Path(__file__).parent / "valid/values.yaml").read_text())


@dataclass(frozen=True)
class Mutation:
    """`value` at `path` of `base` (REMOVED: nothing there)."""

    path: Place
    value: Any
    base: JSON

    @property
    def changed(self) -> JSON:
        """The whole object after that."""
        return changed(self.base, self.path, self.value)

    @property
    def field(self) -> str:
        """The path without indices: "spec.containers.ports.protocol"."""
        return ".".join(str(each) for each in self.path if type(each) is str)

    def __str__(self) -> str:
        shown = "removed" if self.value is REMOVED else repr(self.value)
        return f"{dotted(self.path)} = {shown if len(shown) < 160 else shown[:157] + '...'}"


@dataclass(frozen=True)
class Several(Mutation):
    """Mutations together: `value` tells them, `base` is the object after them."""

    @property
    def changed(self) -> JSON:
        return self.base


def dotted(path: Place) -> str:
    return "".join(f"[{each}]" if type(each) is int else f".{each}" for each in path).lstrip(".")


def changed(base: JSON, path: Place, value: Any) -> JSON:
    """A copy of `base` with `value` at `path`. Raises LookupError or TypeError where that path leads nowhere."""
    result: Any = dict(base)
    holder = result
    for here in path[:-1]:
        inner = holder[here]
        holder[here] = dict(inner) if type(inner) is dict else list(inner)
        holder = holder[here]
    if value is not REMOVED:
        if type(path[-1]) is int and path[-1] >= len(holder):
            raise IndexError(path)
        holder[path[-1]] = deepcopy(value)
    else:
        del holder[path[-1]]
    final: JSON = result
    return final


def mutations(type_name: str, base: JSON, *, under: Place = ()) -> Iterator[Mutation]:
    """Every change of one field of `base`, an object of this type; `under`: below this path only."""
    struct = schema.type_named(type_name)
    assert struct is not None, type_name
    for path, value in _in_struct(struct, base, ()):
        if path[: len(under)] == under[: len(path)]:
            yield Mutation(path, value, base)


def sends_empty(type_name: str, obj: Any) -> bool:
    """Whether a list or a map in it is there and empty, which Go tells from an absent one."""
    return _holds_empty(schema.type_ref(type_name), obj)


def _holds_empty(ref: schema.TypeRef, value: Any) -> bool:
    if ref.kind in ("list", "map") and type(value) in (list, dict) and ref.element is not None:
        inside = value.values() if type(value) is dict else value
        return not value or any(_holds_empty(ref.element, each) for each in inside)
    if ref.kind == "struct" and ref.struct is not None and type(value) is dict:
        fields = ref.struct.json
        return any(name in fields and _holds_empty(fields[name].type, each) for name, each in value.items())
    return False


def combined(
    all_of_them: list[Mutation], base: JSON, chance: random.Random, count: int, most: int = 3
) -> list[Mutation]:
    """`count` objects with two to `most` of the mutations, as far as they go together."""
    result: list[Mutation] = []
    while all_of_them and len(result) < count:
        parts = chance.sample(all_of_them, min(len(all_of_them), chance.randint(2, most)))
        if chance.random() < 0.5:  # close to each other: rules relate neighbours
            near = parts[0].path[:-1]
            beside = [each for each in chance.sample(all_of_them, min(400, len(all_of_them))) if each.path[:-1] == near]
            parts = [parts[0], *beside[: most - 1]]
        obj, path, values = base, parts[0].path, []
        for part in parts:
            try:
                obj = changed(obj, part.path, part.value)
            except (LookupError, TypeError):
                continue
            values.append(str(part))
        result.append(Several(path, " and ".join(values), obj))
    return result


def _in_struct(struct: schema.StructType, value: JSON, path: Place) -> Iterator[tuple[Place, Any]]:
    for name, field in struct.json.items():
        here = (*path, name)
        if name in value:
            yield here, REMOVED
            yield here, None
        for each in _values(field.type, f"{struct.name}.{name}", name, depth=0):
            yield here, each
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
        for i, each in enumerate(value):
            for other in _values(ref.element, f"{owner}.{path[-1]}[]", str(path[-1]), depth=0):
                yield (*path, i), other
            yield from _inside(ref.element, each, (*path, i), owner)
    elif ref.kind == "map" and type(value) is dict:
        assert ref.element is not None
        for key in _map_keys(ref):
            if key not in value:
                yield (*path, key), _plausible(ref.element, "", 0)
        for key, each in value.items():
            yield (*path, key), REMOVED
            for other in _values(ref.element, f"{owner}.{path[-1]}{{}}", "", depth=0):
                yield (*path, key), other
            yield from _inside(ref.element, each, (*path, key), owner)


def _map_keys(ref: schema.TypeRef) -> tuple[str, ...]:
    return _RESOURCES if ref.named == "core/v1.ResourceList" else _KEYS


def _values(ref: schema.TypeRef, qualified: str, name: str, depth: int) -> Iterator[Any]:
    """Values to try in a place of this type: plausible ones, odd ones, wrong ones."""
    yield from (each for each in _BY_FIELD.get(qualified, _BY_FIELD.get(name, ())) if _may_be(ref, each))
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
            for each in ref.struct.json.values():
                yield {each.name: _plausible(each.type, each.name, depth + 1)}
                if depth < 1 and each.type.kind != "struct":
                    for value in list(_values(each.type, f"{ref.struct.name}.{each.name}", each.name, depth + 1))[:12]:
                        yield {each.name: value}
    elif ref.kind == "list" and ref.element is not None:
        yield []
        yield [None]
        if depth < 1:
            for each in _values(ref.element, f"{qualified}[]", name, depth + 1):
                yield [each]
        one = _plausible(ref.element, name, depth)
        yield [one, one]
        yield [one] * 70
    elif ref.kind == "map" and ref.element is not None:
        yield {}
        for key in _map_keys(ref):
            yield {key: _plausible(ref.element, "", depth)}
        if depth < 1:
            for each in _values(ref.element, f"{qualified}{{}}", name, depth + 1):
                yield {_map_keys(ref)[0]: each}


def _may_be(ref: schema.TypeRef, value: Any) -> bool:
    """Of the field names in values.yaml some stand for another type elsewhere."""
    shape = {"struct": dict, "map": dict, "list": list, "int32": int, "int64": int, "string": str}.get(ref.kind)
    return shape is None or type(value) is shape


def _plausible(ref: schema.TypeRef, name: str, depth: int) -> Any:
    """A value that looks right: the first of its pool, structs with all required fields and the simple ones."""
    if ref.enum:
        return ref.enum[0]
    if _BY_FIELD.get(name) and _may_be(ref, _BY_FIELD[name][0]):
        return _BY_FIELD[name][0]
    if ref.kind == "string":
        return "a"
    if ref.kind == "struct":
        if ref.struct is None or depth > 3:
            return {}
        return {
            each.name: _plausible(each.type, each.name, depth + 1)
            for each in ref.struct.json.values()
            if each.required or (depth < 2 and each.type.kind in ("string", "int32", "quantity", "intOrString"))
        }
    if ref.kind == "list" and ref.element is not None:
        return [_plausible(ref.element, name, depth + 1)]
    if ref.kind == "map" and ref.element is not None:
        return {_map_keys(ref)[0]: _plausible(ref.element, "", depth + 1)}
    return {"int32": 1, "int64": 1, "quantity": "1", "intOrString": 1}.get(ref.kind, _POOLS[ref.kind][0])
