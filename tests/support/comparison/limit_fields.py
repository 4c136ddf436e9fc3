"""Fields of API objects that are times, durations or seconds, found in the schema, and values at their limits."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

from hypothesis import strategies as st

from kubeloop.kube import schema
from kubeloop.kube.values.times import time_text

JSON = dict[str, Any]
Place = tuple[str | int, ...]

_SECONDS = re.compile("seconds|secs", re.IGNORECASE)
_MAX_DEPTH = 7
_CONDITIONS = {
    "core/v1.PodCondition": ("Ready", "PodScheduled", "DisruptionTarget"),
    "core/v1.NodeCondition": ("Ready", "MemoryPressure"),
    "apps/v1.DeploymentCondition": ("Progressing", "Available"),
    "batch/v1.JobCondition": ("Complete", "Suspended"),
}
_YEAR_1, _YEAR_9999 = -62_135_596_800, 253_402_300_799
_LIMITS = (-(2**63), -(2**31), -1, 0, 1, 2**31 - 1, 9_223_372_036, 9_223_372_037, 10**11, 10**12, 2**63 - 1)
SECONDS = st.one_of(st.sampled_from(_LIMITS), st.integers(-(2**63), 2**63 - 1))
TIMES = st.one_of(st.sampled_from((_YEAR_1, _YEAR_1 + 1, _YEAR_9999)), st.integers(_YEAR_1, _YEAR_9999))
DURATIONS = st.sampled_from(
    ("0s", "2562047h47m16.854775807s", "-2562047h47m16.854775808s", "1ns", "99999999999h", "1d")
)


class LimitField:
    """A field of a type. base: an object in which the field may be set."""

    def __init__(self, place: Place, ref: schema.TypeRef, base: JSON) -> None:
        self.place, self._ref, self._base = place, ref, base

    def __repr__(self) -> str:
        return ".".join(map(str, self.place))

    def values(self) -> st.SearchStrategy[Any]:
        """Return a strategy for values of the field, of its whole type."""
        match self._ref.kind:
            case "time":
                return TIMES.map(time_text)
            case "microTime":
                return TIMES.map(lambda seconds: time_text(seconds, 999_999))
            case "duration":
                return DURATIONS
            case "int32":
                return SECONDS.map(lambda seconds: max(-(2**31), min(2**31 - 1, seconds)))
        return SECONDS

    def object_with(self, value: Any) -> JSON:
        """Return a copy of the base with the value."""

        def changed(part: Any, place: Place) -> Any:
            if not place:
                return value
            key, rest = place[0], place[1:]
            if isinstance(key, int):
                return [changed(part[0], rest), *part[1:]]
            return {**part, key: changed(part.get(key, {}), rest)}

        result: JSON = changed(self._base, self.place)
        return result


def limit_fields(type_name: str, base: JSON) -> list[LimitField]:
    """Return the fields of an object's type; those of list items once, those of conditions once per type."""
    struct = schema.type_named(type_name)
    assert struct is not None, type_name
    return [LimitField(place, ref, with_items) for place, ref, with_items in _inside(struct, base, base, (), ())]


def _inside(
    struct: schema.StructType, value: JSON, base: JSON, place: Place, outer: tuple[str, ...]
) -> Iterator[tuple[Place, schema.TypeRef, JSON]]:
    for name, field in struct.json.items():
        ref, at = field.type, (*place, name)
        if ref.kind in ("time", "microTime", "duration") or (ref.kind in ("int32", "int64") and _SECONDS.search(name)):
            yield at, ref, base
        elif ref.struct is not None and ref.named not in outer and len(at) <= _MAX_DEPTH:
            inner = value.get(name)
            yield from _inside(ref.struct, inner if isinstance(inner, dict) else {}, base, at, (*outer, ref.named))
        elif ref.kind in ("list", "map") and ref.element is not None:
            yield from _items(ref, value.get(name), base, at, outer)


def _items(
    ref: schema.TypeRef, items: Any, base: JSON, place: Place, outer: tuple[str, ...]
) -> Iterator[tuple[Place, schema.TypeRef, JSON]]:
    element = ref.element
    assert element is not None
    if ref.kind == "map":
        if element.kind in ("time", "microTime", "duration"):
            yield (*place, "web"), element, base
        return
    if element.struct is None or element.named in outer or len(place) > _MAX_DEPTH:
        return
    for type_ in _CONDITIONS.get(element.named, ("Ready",) if "type" in element.struct.json else ("",)):
        item = {"type": type_, "status": "True", "reason": "Limit", "message": "x"} if type_ else {"name": "web"}
        item = {key: member for key, member in item.items() if key in element.struct.json}
        present = items[0] if isinstance(items, list) and items and not type_ else item
        with_item = LimitField(place, element, base).object_with([present])
        yield from _inside(element.struct, present, with_item, (*place, 0), (*outer, element.named))
