"""Field ownership: tracks metadata.managedFields over creates and updates, and implements sets of fields.

A set of fields is a tree in FieldsV1 form: {"f:spec": {"f:replicas": {}}}; "." marks the parent itself, "k:" a list
item by its keys, "v:" one by its value. Source: sigs.k8s.io/structured-merge-diff and apimachinery
pkg/util/managedfields.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cache, lru_cache, partial
from typing import Any

import msgspec

from kubeloop.devcluster.api.field_access import without_managed_fields
from kubeloop.devcluster.api.served_resources import ServedResource, get_served_resource
from kubeloop.devcluster.api.strategy import strategy_of
from kubeloop.devcluster.api.value_types import ValueType
from kubeloop.devcluster.api.writer import Writer
from kubeloop.devcluster.managedfields.go_types import value_type_of
from kubeloop.devcluster.serializer.decoding import decode
from kubeloop.kube import schema
from kubeloop.kube.json_object import JSON
from kubeloop.kube.objects.resources import PODS, Resource
from kubeloop.kube.validation.field_errors import quoted

Fields = dict[str, Any]
_MISSING: Any = object()

_NEVER_OWNED = ("f:apiVersion", "f:kind")
_NEVER_OWNED_METADATA = (
    ".", "f:name", "f:namespace", "f:creationTimestamp", "f:selfLink", "f:uid", "f:clusterName", "f:generation",
    "f:managedFields", "f:resourceVersion",
)  # fmt: skip


def track_create(
    served: ServedResource, obj: JSON, writer: Writer, now: Callable[[], str], *, subresource: str = ""
) -> None:
    """Make the writer the owner of all fields of a new object, in place, after defaulting and before admission."""
    if writer.applied:
        return
    metadata = obj["metadata"]
    entries = entries_of_known_versions(served, initial_entries(metadata.pop("managedFields", None), []))
    if entries is None:
        return
    if served.resource is PODS and not entries and not subresource:
        fields = _fields_of_new_pod(obj)
        entries = [new_entry(served, writer.manager, "Update", "", fields, now(), in_order=fields)]
    else:
        owned = initial_fields(served, obj, subresource=subresource)
        entries = merge_entries(served, entries, writer.manager, subresource, owned, {}, now())
    store_entries(metadata, entries)


def _fields_of_new_pod(pod: JSON) -> Fields:
    """Return the initial fields in order. Pods of a workload, which differ in few values, share them."""
    metadata = {name: value for name, value in pod["metadata"].items() if name not in _POD_IDENTITY}
    for name in ("labels", "annotations"):
        if name in metadata:
            metadata[name] = dict.fromkeys(metadata[name], "")  # their values make no difference
    encoded = msgspec.json.encode({**pod, "metadata": metadata})
    if len(encoded) > _MAX_CACHED_SET_BYTES:
        return sorted_fields(initial_fields(get_served_resource(PODS), pod, subresource=""))
    return _fields_of_encoded_pod(encoded)


_POD_IDENTITY = frozenset({"name", "namespace", "uid", "creationTimestamp"})


@lru_cache(maxsize=256)
def _fields_of_encoded_pod(encoded: bytes) -> Fields:
    pod = msgspec.json.decode(encoded)
    return sorted_fields(initial_fields(get_served_resource(PODS), pod, subresource=""))


def initial_fields(served: ServedResource, obj: JSON, *, subresource: str) -> Fields:
    """Return the fields in which an object differs from an empty one of its kind."""
    empty = _empty_object(served.resource) if served.crd_version is None else {"metadata": {}}
    fields = changed_fields(value_type_of(served.resource), empty, obj) or {}
    return owned_fields(served, fields, subresource=subresource)


def track_update(
    served: ServedResource, obj: JSON, old: JSON, writer: Writer, now: Callable[[], str], *, subresource: str
) -> None:
    """Update managedFields of `obj`, in place, by its differences from `old`."""
    if writer.applied:
        return
    metadata = obj["metadata"]
    entries = old["metadata"].get("managedFields", [])
    if not subresource:
        entries = initial_entries(metadata.get("managedFields"), entries)
    known_entries = entries_of_known_versions(served, entries)
    if not entries or known_entries is None:
        # an object without entries (its creator owned nothing, or the entries were reset) stays untracked
        metadata.pop("managedFields", None)
        return
    entries = known_entries
    before, after = without_managed_fields(old), without_managed_fields(obj)
    if before == after:
        store_entries(metadata, [entry for entry in entries if entry.get("fieldsV1")])
        return
    value_type = value_type_of(served.resource)
    changed = owned_fields(served, changed_fields(value_type, before, after) or {}, subresource=subresource)
    removed = owned_fields(served, removed_fields(value_type, before, after), subresource=subresource)
    store_entries(metadata, merge_entries(served, entries, writer.manager, subresource, changed, removed, now()))


def initial_entries(requested: Any, current: list[JSON]) -> list[JSON]:
    """Return the entries that a write starts from: those in the request, if valid, else those of the current object.

    Source: apimachinery pkg/util/managedfields decodeLiveOrNew, DecodeManagedFields.
    """
    if requested in ([], [{}]):
        return []  # these values reset the entries
    if not requested or requested == current:
        return current
    try:
        entries = [{**entry, "fieldsV1": sorted_fields(_decode_entry_fields(entry))} for entry in requested]
    except (ValueError, msgspec.DecodeError):
        return current
    return sorted_entries(deduplicate_entries(entries))


def managed_fields_problem(entries: list[JSON]) -> str:
    """Return why kube-apiserver does not decode these managedFields; "" if it does. Source: DecodeManagedFields."""
    for index, entry in enumerate(entries):
        if entry.get("operation") not in ("Apply", "Update"):
            return "operation must be `Apply` or `Update`"
        if not entry.get("apiVersion"):
            return "apiVersion must not be empty"
        if (fields_type := entry.get("fieldsType", "")) != "FieldsV1":
            problem = f"invalid fieldsType {quoted(fields_type)}" if fields_type else "missing fieldsType"
            return f"{problem} in managed fields entry {index}"
        try:
            _decode_fields(entry.get("fieldsV1") or {})
        except (ValueError, msgspec.DecodeError) as error:
            return f"error decoding set: {error}"
    return ""


def deduplicate_entries(entries: list[JSON]) -> list[JSON]:
    """Keep the last of several entries of one manager, which a write to the scale subresource can leave."""
    owners = {
        (
            entry.get("manager", ""),
            entry.get("operation"),
            entry.get("apiVersion") if entry.get("operation") != "Apply" else "",
            entry.get("subresource", ""),
        ): entry
        for entry in entries
    }
    return entries if len(owners) == len(entries) else list(owners.values())


def entries_of_known_versions(served: ServedResource, entries: list[JSON]) -> list[JSON] | None:
    """Return the entries whose version has this kind; None if an entry has no valid version, which drops all entries.

    An unknown version of a custom resource drops all entries, too.

    Source: structured-merge-diff merge/update.go reconcileManagedFieldsWithSchemaChanges.
    """
    own_version = served.resource.api_version
    entries = deduplicate_entries(entries)
    if served.crd_version is not None:
        return entries if {entry["apiVersion"] for entry in entries} <= served.crd_version.api_versions else None
    if all(entry["apiVersion"] == own_version for entry in entries):
        return entries
    if any(entry["apiVersion"].count("/") > 1 for entry in entries):
        return None
    return [entry for entry in entries if _is_convertible(entry["apiVersion"], served.resource)]


def conversion_failure(served: ServedResource, entries: list[JSON]) -> str:
    """Return the error for entries of a custom resource of which entries_of_known_versions() returns None."""
    known = served.crd_version.api_versions if served.crd_version is not None else ()
    version = next(entry["apiVersion"] for entry in entries if entry["apiVersion"] not in known)
    return f"request to convert CR to an invalid group/version: {version}"


def _is_convertible(api_version: str, resource: Resource[Any]) -> bool:
    """Return True if the kind exists in this version. Versions of /api and /apis are not convertible to each other."""
    group, _, version = api_version.rpartition("/")
    return bool(group) == bool(resource.group) and schema.type_for(group, version, resource.kind) is not None


def _decode_entry_fields(entry: JSON) -> Fields:
    """Return the fields of an entry in a request. Raises ValueError if the entry is invalid."""
    if entry.get("operation") not in ("Apply", "Update") or not entry.get("apiVersion"):
        raise ValueError("no operation, or no apiVersion")
    if entry.get("fieldsType") != "FieldsV1":
        raise ValueError("not of type FieldsV1")
    return _decode_fields(entry.get("fieldsV1") or {})


def _decode_fields(fields: Any) -> Fields:
    if not isinstance(fields, dict):
        raise ValueError("a set is a map")
    result: Fields = {}
    for name, inner in fields.items():
        if name != "." and name[1:2] != ":":
            raise ValueError(f"no colon: {name}")
        if name[:2] in ("k:", "v:", "i:"):
            msgspec.json.decode(name[2:])
        if name == "." or name[0] in "fkvi":  # unknown element types of later versions are ignored
            result[name] = _decode_fields(inner)
    return result


def _identity(entry: JSON) -> str:
    """Return an entry's manager identifier, by which Kubernetes orders entries of the same second."""
    applied = entry.get("operation") == "Apply"
    return msgspec.json.encode(
        {
            name: entry[name]
            for name in ("manager", "operation", "apiVersion", "subresource")
            if entry.get(name) and not (applied and name == "apiVersion")
        }
    ).decode()


def merge_entries(
    served: ServedResource,
    entries: list[JSON],
    manager: str,
    subresource: str,
    changed: Fields,
    removed: Fields,
    now: str,
) -> list[JSON]:
    """Return the entries after an Update that set the fields `changed` and removed the fields `removed`."""
    result = []
    own_entry: JSON | None = None
    own_version = served.resource.api_version
    for entry in entries:
        fields = entry.get("fieldsV1", {})
        if is_entry_of(entry, manager, "Update", subresource) and entry.get("apiVersion") == own_version:
            own_entry = entry
            continue
        remaining = remove_subtrees(subtract(fields, changed), removed)
        if remaining:
            result.append(entry if remaining == fields else {**entry, "fieldsV1": remaining})
    old_fields = own_entry.get("fieldsV1", {}) if own_entry is not None else {}
    fields = union(remove_subtrees(old_fields, removed), changed)
    if fields:
        if own_entry is not None and fields == old_fields and not changed:
            result.append(own_entry)
        else:
            result.append(new_entry(served, manager, "Update", subresource, fields, now, in_order=old_fields))
    return sorted_entries(_cap_update_managers(result))


def is_entry_of(entry: JSON, manager: str, operation: str, subresource: str) -> bool:
    """Return True if the entry has this manager, operation and subresource."""
    identity = (entry.get("manager"), entry.get("operation"), entry.get("subresource", ""))
    return identity == (manager, operation, subresource)


_MAX_UPDATE_MANAGERS = 10


def _cap_update_managers(entries: list[JSON]) -> list[JSON]:
    """Limit the entries of updates to ten by merging the oldest of a version. Source: capManagersManager."""
    surplus = len(entries) - _MAX_UPDATE_MANAGERS
    if surplus <= 0:
        return entries
    updaters = [entry for entry in entries if entry["operation"] == "Update"]
    surplus = len(updaters) - _MAX_UPDATE_MANAGERS
    updaters.sort(key=lambda entry: (entry.get("time", ""), _identity(entry)))
    oldest: dict[str, JSON] = {}  # by version
    joined: dict[int, JSON] = {}
    merged_ids: set[int] = set()
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
            "fieldsV1": sorted_fields(fields),
        }
        if "time" in entry:
            joined[id(first)]["time"] = entry["time"]
        merged_ids.add(id(entry))
        surplus -= 1
    return [joined.get(id(entry), entry) for entry in entries if id(entry) not in merged_ids]


def sorted_entries(entries: list[JSON]) -> list[JSON]:
    """Sort by operation (Apply first), time, manager, version, subresource. Source: sortEncodedManagedFields."""
    names = ("operation", "time", "manager", "apiVersion", "subresource")
    return sorted(entries, key=lambda entry: [entry.get(name, "") for name in names])


_NO_FIELDS: Fields = {}


def sorted_fields(fields: Fields, in_order: Fields = _NO_FIELDS) -> Fields:
    """Return a set of fields in the order of Go's encoding, which clients see: "." first, then by name, key or value.

    Sets that are in order already are returned as they are. in_order: a set in order, which may share subsets with
    `fields`; these are not checked. Source: structured-merge-diff fieldpath.PathElement.Less.
    """
    names = _names_in_order(tuple(fields)) if len(fields) > 1 else None
    result = fields if names is None else {name: fields[name] for name in names}
    for name, inner in fields.items():
        if not inner or inner is (before := in_order.get(name)):
            continue
        ordered = sorted_fields(inner, before) if before else sorted_fields(inner)
        if ordered is not inner:
            if result is fields:
                result = {**fields}
            result[name] = ordered
    return result


_MAX_CACHED_SET_BYTES = 4096


def _sorted_new_fields(fields: Fields) -> Fields:
    """Return the set in order. Equal small subsets are one object, never changed in place: that of the spec, often."""
    return {name: inner and _shared(inner) for name, inner in sorted(fields.items())}


def _shared(fields: Fields) -> Fields:
    encoded = msgspec.json.encode(fields)
    return _sorted_encoded(encoded) if len(encoded) <= _MAX_CACHED_SET_BYTES else sorted_fields(fields)


@lru_cache(maxsize=256)
def _sorted_encoded(encoded: bytes) -> Fields:
    return sorted_fields(msgspec.json.decode(encoded))


@lru_cache(maxsize=4096)  # objects of a kind have mostly the same fields
def _names_in_order(names: tuple[str, ...]) -> list[str] | None:
    """Return the members of a set in order; None if they are in order."""
    ordered = sorted(names)
    if ordered[-1][0] != "f":  # the last of a mixed set is a key or value
        ordered.sort(key=_element_order)
    return None if ordered == [*names] else ordered


_KIND_ORDER = {".": 0, "f": 1, "k": 2, "v": 3, "i": 4}


def _element_order(name: str) -> tuple[Any, ...]:
    kind = name[0]
    if kind in ".f":
        return _KIND_ORDER[kind], name
    value = msgspec.json.decode(name[2:])
    if kind == "k":
        return _KIND_ORDER[kind], [(field, _value_order(inner)) for field, inner in sorted(value.items())]
    return _KIND_ORDER[kind], _value_order(value)


def _value_order(value: Any) -> tuple[int, Any]:
    """Sort key of a JSON value: numbers, strings, booleans, then others by their text."""
    if isinstance(value, bool):
        return 2, value
    if isinstance(value, int | float):
        return 0, value
    return (1, value) if isinstance(value, str) else (3, msgspec.json.encode(value))


def new_entry(
    served: ServedResource,
    manager: str,
    operation: str,
    subresource: str,
    fields: Fields,
    now: str,
    *,
    in_order: Fields = _NO_FIELDS,
) -> JSON:
    """Return a new entry of metadata.managedFields. in_order: see sorted_fields()."""
    entry = {
        "manager": manager,
        "operation": operation,
        "apiVersion": served.resource.api_version,
        "time": now,
        "fieldsType": "FieldsV1",
        "fieldsV1": sorted_fields(fields, in_order) if in_order else _sorted_new_fields(fields),
    }
    if subresource:
        entry["subresource"] = subresource
    return entry


def store_entries(metadata: JSON, entries: list[JSON]) -> None:
    """Store the entries in an object's metadata; remove the field if there are none."""
    if entries:
        metadata["managedFields"] = entries
    else:
        metadata.pop("managedFields", None)


@cache
def _empty_object(resource: Resource[Any]) -> JSON:
    """Return the encoding of an empty object of this kind, whose fields have no owner."""
    return decode(resource, {})[0]


def owned_fields(served: ServedResource, fields: Fields, *, subresource: str) -> Fields:
    """Return `fields` without those that no manager owns: identity, and fields that the endpoint resets."""
    strategy, is_status = strategy_of(served.resource), subresource == "status"
    result = {name: inner for name, inner in fields.items() if name not in _NEVER_OWNED}
    metadata = result.pop("f:metadata", {})
    metadata = {name: inner for name, inner in metadata.items() if name not in _NEVER_OWNED_METADATA}
    if metadata and (strategy.status_metadata or not is_status):
        result["f:metadata"] = metadata
    if served.has_status and subresource not in ("status", "approval") and not strategy.owns_status:
        result.pop("f:status", None)
    if is_status or not strategy.owns_spec:
        result.pop("f:spec", None)
    return remove_subtrees(result, strategy.unowned.get(subresource, _NO_FIELDS))


# --- sets from objects ------------------------------------------------------------------------------------------------


def all_fields(value_type: ValueType, value: Any) -> Fields:
    """Return every field that an applied configuration sets; maps and lists by their members."""
    if isinstance(value, dict) and not value_type.is_atomic:
        declared, fields = value_type.fields, {}
        for name, child in value.items():
            child_type = value_type.member(name)
            if child == [] and child_type.list_type:
                continue  # owned by items, of which there are none
            below = all_fields(child_type, child)
            if not below and child and isinstance(child, dict) and not child_type.is_atomic:
                continue  # not empty, but none of its fields can be owned
            fields[f"f:{name}"] = below if name in declared else _member(below)
        return fields
    if isinstance(value, list) and value_type.list_type:
        return {item_key(value_type, item): _member(all_fields(value_type.items, item)) for item in value}
    return {}


def _member(fields: Fields) -> Fields:
    """Return the fields of a member of a map or list, which is owned itself, too."""
    return {".": {}, **fields} if fields else fields


def item_key(value_type: ValueType, item: Any) -> str:
    """Return the path element of an item: k:{"containerPort":80,"protocol":"TCP"} in a list map, v:"a" in a set."""
    if value_type.list_type == "set":
        return f"v:{msgspec.json.encode(item).decode()}"
    return f"k:{msgspec.json.encode(keys_of(value_type, item)).decode()}"


def keys_of(value_type: ValueType, item: Any) -> JSON:
    """Return the keys of an item of a list map, with the defaults of those that are not set."""
    keys = {}
    for name in value_type.list_keys:
        value = item.get(name) if isinstance(item, dict) else None
        if value is None:
            value = value_type.items.member(name).default
        if value is not None:
            keys[name] = value
    return keys


# --- differences ------------------------------------------------------------------------------------------------------


def is_equal(old: Any, new: Any) -> bool:
    """Compare as JSON does: a boolean is no number."""
    return bool(old == new) and isinstance(old, bool) is isinstance(new, bool)


def changed_fields(value_type: ValueType, old: Any, new: Any) -> Fields | None:
    """Return the fields of `new` that are missing or different in `old`, None if there are none."""
    return None if is_equal(old, new) else _changed_fields(value_type, old, new)


def _changed_fields(value_type: ValueType, old: Any, new: Any) -> Fields | None:
    """Return changed_fields() of two values that differ."""
    is_new = old is _MISSING
    result: Fields = {}
    if isinstance(new, dict) and not value_type.is_atomic and (is_new or old is None or isinstance(old, dict)):
        before, declared, members = {} if is_new else old or {}, value_type.fields, value_type.members
        for name, child in new.items():  # on the path of every write: member() and is_equal() are inlined
            old_child = before.get(name, _MISSING)
            if old_child == child and isinstance(old_child, bool) is isinstance(child, bool):
                continue
            below: Fields | None = {}
            if isinstance(child, dict | list):
                below = _changed_fields(declared.get(name, members), old_child, child)
            if below is not None:
                result[f"f:{name}"] = below
    elif isinstance(new, list) and value_type.list_type:
        before, after, same = items_by_key(value_type, old if isinstance(old, list) else [], new)
        result = {key: {} for key in same.changed}
        for key, item in after.items():
            if key not in same.after:
                old_item = before.get(key, _MISSING) if key not in same.before else _MISSING
                below = changed_fields(value_type.items, old_item, item)
                if below is not None:
                    result[key] = below
    else:
        return {}
    return _member(result) if is_new else result or None


def removed_fields(value_type: ValueType, old: Any, new: Any) -> Fields:
    """Return the fields of `old` that are missing in `new`, as leaves that stand for all fields below."""
    result: Fields = {}
    if isinstance(old, dict) and isinstance(new, dict) and not value_type.is_atomic:
        declared, members = value_type.fields, value_type.members
        for name, child in old.items():
            if name not in new:
                result[f"f:{name}"] = {}
            elif child != new[name] and (below := removed_fields(declared.get(name, members), child, new[name])):
                result[f"f:{name}"] = below
    elif isinstance(old, list) and isinstance(new, list) and value_type.list_type:
        before, after, same = items_by_key(value_type, old, new)
        for key, item in before.items():
            if key in same.before and key in after:
                continue
            if key not in after or key in same.after:
                result[key] = {}
            elif below := removed_fields(value_type.items, item, after[key]):
                result[key] = below
    return result


@dataclass(frozen=True, slots=True)
class DuplicateKeys:
    """Keys that several items of a list have, in the list before and after a write.

    Such items are owned as a whole. Source: structured-merge-diff typed/compare.go visitListItems.
    """

    before: frozenset[str]
    after: frozenset[str]
    changed: frozenset[str]
    """Keys of `after` that were unique, different or missing before."""

    @classmethod
    def of(cls, key_of: Callable[[Any], str], old: list[Any], new: list[Any]) -> DuplicateKeys:
        before, after = ({}, {})  # type: tuple[dict[str, list[Any]], dict[str, list[Any]]]
        for by_key, items in ((before, old), (after, new)):
            for item in items:
                by_key.setdefault(key_of(item), []).append(item)
        now = frozenset(key for key, same in after.items() if len(same) > 1)
        return cls(
            before=frozenset(key for key, same in before.items() if len(same) > 1),
            after=now,
            changed=frozenset(key for key in now if before.get(key) != after[key]),
        )


_NO_DUPLICATES = DuplicateKeys(frozenset(), frozenset(), frozenset())


def items_by_key(
    value_type: ValueType, old: list[Any], new: list[Any]
) -> tuple[dict[str, Any], dict[str, Any], DuplicateKeys]:
    """Return the items of two lists by key, of duplicates the last one, and the duplicate keys."""
    key_of = partial(item_key, value_type)
    before, after = {key_of(item): item for item in old}, {key_of(item): item for item in new}
    is_unique = len(before) == len(old) and len(after) == len(new)
    return before, after, _NO_DUPLICATES if is_unique else DuplicateKeys.of(key_of, old, new)


# --- algebra ----------------------------------------------------------------------------------------------------------


_OWN_MEMBER: Fields = {".": {}}  # a member without members below it is written as a leaf


def union(one: Fields, other: Fields) -> Fields:
    if not one or not other:
        return one or other
    result = dict(one)
    for name, inner in other.items():
        if name not in result:
            result[name] = inner
        elif name != ".":
            own = result[name]
            if not own and inner:
                result[name] = {".": {}, **inner}
            elif own and not inner:
                result[name] = {".": {}, **own}
            else:
                result[name] = union(own, inner)
    return result


def subtract(fields: Fields, other: Fields) -> Fields:
    """Return the members of `fields` that are not in `other`; a parent stays if a child does."""
    if not other:
        return fields
    result: Fields = {}
    for name, inner in fields.items():
        if name not in other:
            result[name] = inner
            continue
        subtracted = other[name]
        if name == "." or (not inner and (not subtracted or "." in subtracted)):
            continue
        if not inner:
            result[name] = inner
            continue
        remaining = subtract({**inner}, subtracted if subtracted else {".": {}})
        if remaining:
            result[name] = {} if remaining == _OWN_MEMBER else remaining
    return result


def remove_subtrees(fields: Fields, removed: Fields) -> Fields:
    """Return `fields` without the subtrees below the leaves of `removed`."""
    if not removed:
        return fields
    result: Fields = {}
    for name, inner in fields.items():
        inner_removed = removed.get(name)
        if inner_removed is None:
            result[name] = inner
        elif inner_removed:
            remaining = remove_subtrees(inner, inner_removed)
            if remaining or not inner:
                result[name] = {} if remaining == _OWN_MEMBER else remaining
    return result


def intersect(one: Fields, other: Fields) -> Fields:
    """Return the members of both sets."""
    result: Fields = {}
    for name, inner in one.items():
        if name not in other:
            continue
        other_inner = other[name]
        if name == ".":
            result[name] = {}
        elif not inner:
            if not other_inner or "." in other_inner:
                result[name] = {}
        elif not other_inner:
            if "." in inner:
                result[name] = {}
        elif both := intersect(inner, other_inner):
            result[name] = both
    return result
