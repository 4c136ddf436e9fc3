"""Field ownership: metadata.managedFields, as server-side apply and every other write leave it.

A set of fields is a tree in the form of FieldsV1: {"f:spec": {"f:replicas": {}}}; "." marks the parent itself, "k:" an
item of a list by its keys, "v:" one by its value. Source: sigs.k8s.io/structured-merge-diff and apimachinery
pkg/util/managedfields.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cache, partial
from typing import Any

import msgspec

from kubeloop.devcluster.api.object_metadata import without_managed_fields
from kubeloop.devcluster.api.served_resources import Served
from kubeloop.devcluster.api.writer import Writer
from kubeloop.devcluster.serializer.decoding import decode
from kubeloop.kube import schema
from kubeloop.kube.json_object import JSON
from kubeloop.kube.objects.resources import Resource

Fields = dict[str, Any]
_MISSING: Any = object()

_NEVER_OWNED = (
    "f:apiVersion",
    "f:kind",
)
_NEVER_OWNED_METADATA = (
    ".",
    "f:name",
    "f:namespace",
    "f:creationTimestamp",
    "f:selfLink",
    "f:uid",
    "f:clusterName",
    "f:generation",
    "f:managedFields",
    "f:resourceVersion",
)


def track_create(served: Served, obj: JSON, writer: Writer, now: Callable[[], str], *, subresource: str = "") -> None:
    """Give the writer, in place, all fields of a new object (decoded and defaulted, before admission)."""
    if writer.applied:
        return
    if served.custom is not None:
        served.custom.track_create(obj, writer, now)
        return
    metadata = obj["metadata"]
    entries = of_known_versions(served.resource, starting_entries(metadata.pop("managedFields", None), []))
    if _struct(served) is None or entries is None:
        return
    owned = fields_set(served, obj, subresource=subresource)
    set_entries(metadata, merge_entries(served, entries, writer.manager, subresource, owned, {}, now()))


def fields_set(served: Served, obj: JSON, *, subresource: str) -> Fields:
    """What of an object of a built-in kind is more than an empty one has."""
    struct = _struct(served)
    assert struct is not None, served.resource.kind
    return owned_fields(served, _difference_of(struct, _empty(served.resource), obj), subresource=subresource)


def track_update(
    served: Served, obj: JSON, old: JSON, writer: Writer, now: Callable[[], str], *, subresource: str
) -> None:
    """Bring obj's managedFields, in place, to what its difference from `old` makes of them."""
    if writer.applied:
        return
    if served.custom is not None:
        served.custom.track_update(obj, old, writer, now, subresource)
        return
    metadata = obj["metadata"]
    entries = old["metadata"].get("managedFields", [])
    struct = _struct(served)
    if not subresource:
        entries = starting_entries(metadata.get("managedFields"), entries)
    known = of_known_versions(served.resource, entries)
    if struct is None or not entries or known is None:
        # an object that nobody tracks (its creator owns nothing, or somebody has reset them) stays untracked
        metadata.pop("managedFields", None)
        return
    entries = known
    before, after = without_managed_fields(old), without_managed_fields(obj)
    if before == after:
        set_entries(metadata, [each for each in entries if each.get("fieldsV1")])
        return
    changed = owned_fields(served, _difference_of(struct, before, after), subresource=subresource)
    removed = owned_fields(served, _removed_of(struct, before, after), subresource=subresource)
    set_entries(metadata, merge_entries(served, entries, writer.manager, subresource, changed, removed, now()))


def starting_entries(given: Any, live: list[JSON]) -> list[JSON]:
    """The entries that a write starts from: those that its object brings, if they can be read, else the live object's.

    Source: apimachinery pkg/util/managedfields decodeLiveOrNew, DecodeManagedFields.
    """
    if given in ([], [{}]):
        return []  # the way to reset them
    if not given or given == live:
        return live
    try:
        entries = [{**each, "fieldsV1": _checked(each)} for each in given]
    except (ValueError, msgspec.DecodeError):
        return live
    return sorted_entries(distinct(entries))


def distinct(entries: list[JSON]) -> list[JSON]:
    """Of entries that speak of the same writer the last one counts; a write of a scale may leave such ones."""
    owners = {
        (
            each.get("manager", ""),
            each.get("operation"),
            each.get("apiVersion") if each.get("operation") != "Apply" else "",
            each.get("subresource", ""),
        ): each
        for each in entries
    }
    return entries if len(owners) == len(entries) else list(owners.values())


def of_known_versions(resource: Resource[Any], entries: list[JSON]) -> list[JSON] | None:
    """The entries that are not of a version in which there is no such kind. None: one has no version at all, and with
    it Kubernetes forgets all of them.

    Source: structured-merge-diff merge/update.go reconcileManagedFieldsWithSchemaChanges.
    """
    own = resource.api_version
    entries = distinct(entries)
    if all(each["apiVersion"] == own for each in entries):
        return entries
    if any(each["apiVersion"].count("/") > 1 for each in entries):
        return None
    return [each for each in entries if _is_convertible(each["apiVersion"], resource)]


def _is_convertible(api_version: str, resource: Resource[Any]) -> bool:
    """Between /api and /apis nothing is, so that events have owners by the path of the last write."""
    group, _, version = api_version.rpartition("/")
    return bool(group) == bool(resource.group) and schema.type_for(group, version, resource.kind) is not None


def _checked(entry: JSON) -> Fields:
    """The set of an entry that a client sends. Raises ValueError if the entry cannot be read."""
    if entry.get("operation") not in ("Apply", "Update") or not entry.get("apiVersion"):
        raise ValueError("no operation, or no apiVersion")
    if entry.get("fieldsType") != "FieldsV1":
        raise ValueError("not of type FieldsV1")
    return _checked_set(entry.get("fieldsV1") or {})


def _checked_set(fields: Any) -> Fields:
    if not isinstance(fields, dict):
        raise ValueError("a set is a map")
    result: Fields = {}
    for name, inner in fields.items():
        if name != "." and name[1:2] != ":":
            raise ValueError(f"no colon: {name}")
        if name[:2] in ("k:", "v:", "i:"):
            msgspec.json.decode(name[2:])
        if name == "." or name[0] in "fkvi":  # others may come with later versions
            result[name] = _checked_set(inner)
    return result


def _identity(entry: JSON) -> str:
    """Who an entry speaks of, in the form by which Kubernetes orders entries of one second."""
    applied = entry.get("operation") == "Apply"
    return msgspec.json.encode(
        {
            name: entry[name]
            for name in ("manager", "operation", "apiVersion", "subresource")
            if entry.get(name) and not (applied and name == "apiVersion")
        }
    ).decode()


def merge_entries(
    served: Served, entries: list[JSON], manager: str, subresource: str, changed: Fields, removed: Fields, now: str
) -> list[JSON]:
    """Entries after an Update that set `changed` and took `removed` away."""
    result = []
    own: JSON | None = None
    for entry in entries:
        fields = entry.get("fieldsV1", {})
        same = (
            entry.get("manager") == manager
            and entry.get("operation") == "Update"
            and entry.get("subresource", "") == subresource
            and entry.get("apiVersion") == served.resource.api_version
        )
        if same:
            own = entry
            continue
        kept = without(subtract(fields, changed), removed)
        if kept:
            result.append(entry if kept == fields else {**entry, "fieldsV1": kept})
    old_fields = own.get("fieldsV1", {}) if own is not None else {}
    fields = union(without(old_fields, removed), changed)
    if fields:
        if own is not None and fields == old_fields and not changed:
            result.append(own)
        else:
            result.append(new_entry(served, manager, "Update", subresource, fields, now))
    return sorted_entries(_capped(result))


_MOST_UPDATERS = 10


def _capped(entries: list[JSON]) -> list[JSON]:
    """No more than ten entries of updates: the oldest of a version become one. Source: capManagersManager."""
    surplus = len(entries) - _MOST_UPDATERS
    if surplus <= 0:
        return entries
    updaters = [each for each in entries if each["operation"] == "Update"]
    surplus = len(updaters) - _MOST_UPDATERS
    updaters.sort(key=lambda each: (each.get("time", ""), _identity(each)))
    oldest: dict[str, JSON] = {}  # by version
    joined: dict[int, JSON] = {}
    gone: set[int] = set()
    for entry in updaters:
        if surplus <= 0:
            break
        first = oldest.setdefault(entry["apiVersion"], entry)
        if first is entry:
            continue
        bucket = joined.get(id(first), first)
        fields = union(entry.get("fieldsV1", {}), bucket.get("fieldsV1", {}))
        joined[id(first)] = {
            "manager": "ancient-changes",
            "operation": "Update",
            "apiVersion": entry["apiVersion"],
            "fieldsType": "FieldsV1",
            "fieldsV1": fields,
        }
        if "time" in entry:
            joined[id(first)]["time"] = entry["time"]
        gone.add(id(entry))
        surplus -= 1
    return [joined.get(id(each), each) for each in entries if id(each) not in gone]


def sorted_entries(entries: list[JSON]) -> list[JSON]:
    """Apply before Update, then by time, manager, subresource. Source: managedfields.sortEncodedManagedFields."""
    return sorted(
        entries,
        key=lambda each: (
            each.get("operation", ""),
            each.get("time", ""),
            each.get("manager", ""),
            each.get("apiVersion", ""),
            each.get("subresource", ""),
        ),
    )


def new_entry(served: Served, manager: str, operation: str, subresource: str, fields: Fields, now: str) -> JSON:
    """An entry of metadata.managedFields."""
    entry = {
        "manager": manager,
        "operation": operation,
        "apiVersion": served.resource.api_version,
        "time": now,
        "fieldsType": "FieldsV1",
        "fieldsV1": fields,
    }
    if subresource:
        entry["subresource"] = subresource
    return entry


def set_entries(metadata: JSON, entries: list[JSON]) -> None:
    """Put them into an object's metadata; no entries, no field."""
    if entries:
        metadata["managedFields"] = entries
    else:
        metadata.pop("managedFields", None)


@cache
def _empty(resource: Resource[Any]) -> JSON:
    """What Go writes of an object of this kind before anybody has set anything: nobody owns that."""
    return decode(resource, {})[0]


def _struct(served: Served) -> schema.StructType | None:
    resource = served.resource
    return schema.type_for(resource.group, resource.version, resource.kind)


def owned_fields(served: Served, fields: Fields, *, subresource: str) -> Fields:
    """`fields` without those that nobody owns: identity, and what the endpoint resets."""
    result = {name: inner for name, inner in fields.items() if name not in _NEVER_OWNED}
    metadata = result.get("f:metadata")
    if metadata is not None:
        kept = {name: inner for name, inner in metadata.items() if name not in _NEVER_OWNED_METADATA}
        if kept:
            result["f:metadata"] = kept
        else:
            del result["f:metadata"]
    if served.has_status and subresource not in ("status", "approval"):
        result.pop("f:status", None)
    if subresource == "status" or served.resource.group_resource in _SPEC_IS_NOBODYS:
        result.pop("f:spec", None)
    if subresource == "status":
        kept = {
            name: inner
            for name, inner in result.get("f:metadata", {}).items()
            if name not in _RESET_BY_STATUS.get(served.resource.group_resource, ())
        }
        result.pop("f:metadata", None)
        if kept:
            result["f:metadata"] = kept
    return result


_SPEC_IS_NOBODYS = ("certificatesigningrequests.certificates.k8s.io",)
"""Kinds whose spec never changes, and belongs to no field manager."""
_RESET_BY_STATUS = {"deployments.apps": ("f:labels",), "pods": ("f:deletionTimestamp", "f:ownerReferences")}
"""Metadata that a write to the status subresource does not change, by kind. Source: the strategies' GetResetFields."""


# --- sets from objects ------------------------------------------------------------------------------------------------


def all_fields(struct: schema.StructType, obj: JSON) -> Fields:
    """Every field that `obj` sets, as an applied configuration owns it: parents of maps and lists by their items."""
    return _struct_set(struct, obj)


def _struct_set(struct: schema.StructType, obj: JSON) -> Fields:
    result: Fields = {}
    for name, value in obj.items():
        field = struct.json.get(name)
        if value == [] and field is not None and field.list_type in ("map", "set"):
            continue  # a list by its items, of which there are none
        below = {} if field is None else _value_set(field, field.type, value)
        if not below and value and field is not None and _has_fields(field, value):
            continue  # none of them is owned, and it is not empty itself
        result[f"f:{name}"] = below
    return result


def _has_fields(field: schema.Field, value: Any) -> bool:
    """Is it owned by its fields?"""
    return isinstance(value, dict) and field.type.struct is not None and not is_atomic(field, field.type)


def _value_set(field: schema.Field | None, ref: schema.TypeRef, value: Any) -> Fields:
    inner = ref.struct
    if isinstance(value, dict):
        if is_atomic(field, ref) or not value:
            return {}
        if inner is not None:
            return _struct_set(inner, value)
        return {f"f:{name}": {} for name in value}
    if isinstance(value, list) and field is not None and value:
        return _list_set(field, value)
    return {}


def _list_set(field: schema.Field, items: list[Any]) -> Fields:
    element = field.type.element
    if field.list_type == "map" and element is not None and element.struct is not None:
        result: Fields = {}
        for item in items:
            below = {} if element.struct.atomic else {".": {}, **_struct_set(element.struct, item)}
            result[item_key(field, item)] = below
        return result
    if field.list_type == "set":
        return {f"v:{msgspec.json.encode(item).decode()}": {} for item in items}
    return {}


def item_key(field: schema.Field, item: JSON) -> str:
    """The path element of one item of a list with keys: k:{"containerPort":80,"protocol":"TCP"}."""
    element = field.type.element
    struct = element.struct if element is not None else None
    keys = {}
    for name in sorted(field.list_map_keys):
        value = item.get(name)
        if value is None and struct is not None and name in struct.json:
            value = struct.json[name].default
        if value is not None:
            keys[name] = value
    return f"k:{msgspec.json.encode(keys).decode()}"


def is_atomic(field: schema.Field | None, ref: schema.TypeRef) -> bool:
    """Whether a map is owned as a whole, as scalars are; a field may say otherwise than the type of its values."""
    if field is not None and (told := field.struct_type or field.map_type):
        return told == "atomic"
    inner = ref.struct
    if inner is not None:
        return inner.atomic
    return ref.kind not in ("map", "struct")


# --- differences ------------------------------------------------------------------------------------------------------


def _difference_of(struct: schema.StructType, old: JSON, new: JSON) -> Fields:
    """Fields of `new` that `old` does not have, or has with another value."""
    result: Fields = {}
    for name, value in new.items():
        before = old.get(name, _MISSING)
        if before is not _MISSING and (before is value or before == value):
            continue
        field = struct.json.get(name)
        changed = {} if field is None else _value_difference(field, field.type, before, value)
        if changed is not None:
            result[f"f:{name}"] = changed
    return result


def _value_difference(field: schema.Field, ref: schema.TypeRef, old: Any, new: Any) -> Fields | None:
    """None: no field of it differs."""
    is_new = old is _MISSING
    inner = ref.struct
    if isinstance(new, dict) and not is_atomic(field, ref):
        before = old if isinstance(old, dict) else {}
        if inner is not None:
            result = _difference_of(inner, before, new)
        else:
            result = {f"f:{name}": {} for name, value in new.items() if before.get(name, _MISSING) != value}
        if not new:
            return {} if is_new else None
        if is_new:
            return {".": {}, **result}
        return result or None
    if isinstance(new, list) and field.list_type in ("map", "set"):
        if not new:
            return {} if is_new else None
        result = _list_difference(field, old if isinstance(old, list) else [], new)
        if is_new:
            return {".": {}, **result}
        return result or None
    return {}


def _list_difference(field: schema.Field, old: list[Any], new: list[Any]) -> Fields:
    element = field.type.element
    if field.list_type == "set" or element is None or element.struct is None:
        return {f"v:{msgspec.json.encode(item).decode()}": {} for item in new if item not in old}
    before = {item_key(field, item): item for item in old}
    after = {item_key(field, item): item for item in new}
    same = repeated(partial(item_key, field), old, new, before, after)
    result: Fields = {key: {} for key in same.changed}
    for key, item in after.items():
        if key in same.after:
            continue
        known = before.get(key) if key not in same.before else None
        if known == item:
            continue
        if element.struct.atomic:
            result[key] = {}
            continue
        changed = _difference_of(element.struct, known or {}, item)
        if known is None:
            result[key] = {".": {}, **changed}
        elif changed:
            result[key] = changed
    return result


@dataclass(frozen=True, slots=True)
class Repeated:
    """The keys that several items of a list have, where a list before a write is compared with the one after it.

    Such items are owned as a whole. Source: structured-merge-diff typed/compare.go visitListItems.
    """

    before: frozenset[str]
    after: frozenset[str]
    changed: frozenset[str]
    """Those of `after` that were single, or others, or not there."""

    @classmethod
    def of(cls, key_of: Callable[[Any], str], old: list[Any], new: list[Any]) -> Repeated:
        before, after = ({}, {})  # type: tuple[dict[str, list[Any]], dict[str, list[Any]]]
        for found, items in ((before, old), (after, new)):
            for item in items:
                found.setdefault(key_of(item), []).append(item)
        now = frozenset(key for key, same in after.items() if len(same) > 1)
        return cls(
            before=frozenset(key for key, same in before.items() if len(same) > 1),
            after=now,
            changed=frozenset(key for key in now if before.get(key) != after[key]),
        )


_NOTHING_REPEATED = Repeated(frozenset(), frozenset(), frozenset())


def repeated(
    key_of: Callable[[Any], str], old: list[Any], new: list[Any], before: dict[str, Any], after: dict[str, Any]
) -> Repeated:
    """Of lists whose items by key are `before` and `after`, which are shorter where a key is repeated."""
    if len(before) == len(old) and len(after) == len(new):
        return _NOTHING_REPEATED
    return Repeated.of(key_of, old, new)


def _removed_of(struct: schema.StructType, old: JSON, new: JSON) -> Fields:
    """Fields of `old` that `new` has no more; everything below them is gone with them, so they are leaves here."""
    result: Fields = {}
    for name, value in old.items():
        field = struct.json.get(name)
        if name not in new:
            result[f"f:{name}"] = {}
            continue
        if (
            field is None
            or new[name] is value
            or (is_atomic(field, field.type) and field.list_type not in ("map", "set"))
        ):
            continue
        removed = _value_removed(field, value, new[name])
        if removed:
            result[f"f:{name}"] = removed
    return result


def _value_removed(field: schema.Field, old: Any, new: Any) -> Fields:
    inner = field.type.struct
    if isinstance(old, dict) and isinstance(new, dict):
        if inner is not None:
            return _removed_of(inner, old, new)
        return {f"f:{name}": {} for name in old if name not in new}
    if isinstance(old, list) and isinstance(new, list) and field.list_type in ("map", "set"):
        element = field.type.element
        if field.list_type == "set" or element is None or element.struct is None:
            return {f"v:{msgspec.json.encode(item).decode()}": {} for item in old if item not in new}
        before = {item_key(field, item): item for item in old}
        after = {item_key(field, item): item for item in new}
        same = repeated(partial(item_key, field), old, new, before, after)
        result: Fields = {}
        for key, item in before.items():
            if key in same.before and key in after:
                continue
            if key not in after or key in same.after:
                result[key] = {}
            elif not element.struct.atomic and (below := _removed_of(element.struct, item, after[key])):
                result[key] = below
        return result
    return {}


# --- algebra ----------------------------------------------------------------------------------------------------------


_ITSELF: Fields = {".": {}}  # a member without members below it is written as a leaf


def _is_leaf(fields: Fields) -> bool:
    return not fields


def union(one: Fields, other: Fields) -> Fields:
    if not one or not other:
        return one or other
    result = dict(one)
    for name, inner in other.items():
        if name not in result:
            result[name] = inner
        elif name != ".":
            mine = result[name]
            if not mine and inner:
                result[name] = {".": {}, **inner}
            elif mine and not inner:
                result[name] = {".": {}, **mine}
            else:
                result[name] = union(mine, inner)
    return result


def subtract(fields: Fields, other: Fields) -> Fields:
    """What of `fields` is not in `other`, member by member: a parent stays while a child of it does."""
    if not other:
        return fields
    result: Fields = {}
    for name, inner in fields.items():
        if name not in other:
            result[name] = inner
            continue
        doomed = other[name]
        if name == "." or (_is_leaf(inner) and (_is_leaf(doomed) or "." in doomed)):
            continue
        if _is_leaf(inner):
            result[name] = inner
            continue
        kept = subtract({**inner}, doomed if doomed else {".": {}})
        if kept:
            result[name] = {} if kept == _ITSELF else kept
    return result


def without(fields: Fields, removed: Fields) -> Fields:
    """`fields` without the subtrees whose roots are the leaves of `removed`."""
    if not removed:
        return fields
    result: Fields = {}
    for name, inner in fields.items():
        doomed = removed.get(name)
        if doomed is None:
            result[name] = inner
        elif doomed:
            kept = without(inner, doomed)
            if kept or not inner:
                result[name] = {} if kept == _ITSELF else kept
    return result


def intersect(one: Fields, other: Fields) -> Fields:
    """The members that both have."""
    result: Fields = {}
    for name, inner in one.items():
        if name not in other:
            continue
        theirs = other[name]
        if name == ".":
            result[name] = {}
        elif _is_leaf(inner):
            if _is_leaf(theirs) or "." in theirs:
                result[name] = {}
        elif _is_leaf(theirs):
            if "." in inner:
                result[name] = {}
        elif both := intersect(inner, theirs):
            result[name] = both
    return result
