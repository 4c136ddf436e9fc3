"""Field ownership and server-side apply of custom resources: sets of fields by a schema.

What `managed` and `apply` do by Go types, here by an OpenAPI schema: maps are granular unless they say atomic, lists
atomic unless they are sets or have keys, and what no schema describes is granular in its maps. Sets have the form of
FieldsV1, as in `managed`. Source: sigs.k8s.io/structured-merge-diff typed and merge, kube-openapi pkg/schemaconv.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import cache, partial
from typing import Any

import msgspec

from kubeloop.devcluster.api.served_resources import ServedResource
from kubeloop.devcluster.api.writer import Writer
from kubeloop.devcluster.apiextensions.structural_schema import (
    EMBEDDED,
    INT_OR_STRING,
    LIST_KEYS,
    LIST_TYPE,
    MAP_TYPE,
    META,
    PRESERVE,
    Schema,
    additional,
)
from kubeloop.devcluster.managedfields.apply import merge_applied, merge_items, set_key
from kubeloop.devcluster.managedfields.field_sets import (
    Fields,
    duplicate_keys,
    initial_entries,
    merge_entries,
    owned_fields,
    store_entries,
)
from kubeloop.devcluster.managedfields.typed_validation import scalar_error, struct_errors
from kubeloop.devcluster.serializer.patches import format_go_value
from kubeloop.kube.json_object import JSON
from kubeloop.kube.schema import StructType, type_named

_MISSING: Any = object()
_encode_sorted = msgspec.json.Encoder(order="sorted").encode

_TEXTS: Schema = {"type": "object", "additionalProperties": {"type": "string"}}
_OBJECT_META: Schema = {
    "type": "object",
    "properties": {
        "annotations": _TEXTS,
        "labels": _TEXTS,
        "finalizers": {"type": "array", "items": {"type": "string"}, LIST_TYPE: "set"},
        "ownerReferences": {
            "type": "array",
            "items": {"type": "object", MAP_TYPE: "atomic", "additionalProperties": True},
            LIST_TYPE: "map",
            LIST_KEYS: ["uid"],
        },
        "managedFields": {"type": "array", "items": {"type": "object"}},
    },
}
"""What is not listed is a single value."""


_EMBEDDED_FIELDS: dict[str, Schema] = {
    "apiVersion": {"type": "string"},
    "kind": {"type": "string"},
    "metadata": _OBJECT_META,
}


def typed(schema: Schema) -> Schema:
    """The schema of whole objects, metadata included."""
    return {**schema, "properties": {**(schema.get("properties") or {}), "metadata": _OBJECT_META}}


# --- what values are --------------------------------------------------------------------------------------------------


def _field(schema: Schema | None, name: str) -> Schema | None:
    """The schema of a field; None where nothing is said, so that it is taken as it comes."""
    if schema is None:
        return None
    properties = _declared(schema)
    return properties[name] if name in properties else additional(schema)[1]


def _declared(schema: Schema) -> dict[str, Schema]:
    """The fields that a schema names; of an embedded object also those that all objects have."""
    properties: dict[str, Schema] = schema.get("properties") or {}
    return {**properties, **_EMBEDDED_FIELDS} if schema.get(EMBEDDED) else properties


def _is_granular(schema: Schema | None) -> bool:
    return schema is None or (schema.get(MAP_TYPE) != "atomic" and not schema.get(INT_OR_STRING))


def _list_type(schema: Schema | None) -> str:
    return (schema.get(LIST_TYPE) or "atomic") if schema is not None else "atomic"


def item_key(schema: Schema, item: Any) -> str:
    """The path element of an item of a list with keys, or of a set: k:{"name":"a"}, v:"a"."""
    if _list_type(schema) == "set":
        return f"v:{_encode_sorted(item).decode()}"
    items = schema.get("items") or {}
    properties = items.get("properties") or {}
    keys = {}
    for name in sorted(schema.get(LIST_KEYS) or ()):
        value = item.get(name) if isinstance(item, dict) else None
        if value is None:
            value = (properties.get(name) or {}).get("default")
        if value is not None:
            keys[name] = value
    return f"k:{msgspec.json.encode(keys).decode()}"


def type_error(schema: Schema, config: JSON) -> str:
    """All that is wrong with an applied configuration, one per line if it is more than one thing; "" if nothing is."""
    wrong = list(_type_errors({**schema, EMBEDDED: True}, config, ""))
    return wrong[0] if len(wrong) == 1 else "".join(f"\n  {each}" for each in wrong).replace("\n", "errors:\n", 1)


_SCALARS = {"string": "string", "integer": "int64", "number": "float64", "boolean": "bool"}


def _type_errors(schema: Schema | None, value: Any, path: str) -> Iterator[str]:
    if schema is None or value is None or schema.get(INT_OR_STRING):
        return
    type_ = schema.get("type")
    if type_ == "object" and not isinstance(value, dict):
        yield f"{path}: expected map, got &{{{format_go_value(value)}}}"
    elif type_ == "array" and not isinstance(value, list):
        yield f"{path}: expected list, got &{{{format_go_value(value)}}}"
    elif type_ in _SCALARS and (wrong := scalar_error(_SCALARS[type_], value)):
        yield f"{path}: {wrong}"
    elif isinstance(value, dict):
        yield from _map_errors(schema, value, path)
    elif isinstance(value, list):
        keys = [item_key(schema, each) for each in value] if _list_type(schema) != "atomic" else []
        for index, key in enumerate(keys):
            if key in keys[:index]:
                yield f"{path}: duplicate entries for key [{_shown(key)}]"
                return
        for index, each in enumerate(value):
            place = _shown(keys[index]) if keys else str(index)
            yield from _type_errors(schema.get("items"), each, f"{path}[{place}]")


def _map_errors(schema: Schema, value: JSON, path: str) -> Iterator[str]:
    properties = schema.get("properties") or {}
    is_open = schema.get(PRESERVE) or schema.get("additionalProperties") is not None or not properties
    for name, each in value.items():
        below = f"{path}.{name}"
        if schema.get(EMBEDDED) and name in META:
            if name == "metadata":
                yield from struct_errors(_object_meta(), each, below)
            elif not isinstance(each, str):
                yield f"{below}: {scalar_error('string', each)}"
        elif name in properties or is_open:
            yield from _type_errors(_field(schema, name), each, below)
        else:
            yield f"{below}: field not declared in schema"
            return


@cache
def _object_meta() -> StructType:
    struct = type_named("meta/v1.ObjectMeta")
    assert struct is not None
    return struct


def _shown(key: str) -> str:
    """An item's key as an error names it: name="a"."""
    if key.startswith("v:"):
        return f"={key[2:]}"
    keys = msgspec.json.decode(key[2:])
    return ",".join(f"{name}={msgspec.json.encode(value).decode()}" for name, value in keys.items())


# --- sets -------------------------------------------------------------------------------------------------------------


def all_fields(schema: Schema | None, value: Any) -> Fields:
    """Every field that an applied configuration sets: parents of maps and lists by their members."""
    if isinstance(value, dict) and value and _is_granular(schema):
        declared = _declared(schema) if schema is not None else {}
        found: Fields = {}
        for name, each in value.items():
            field = _field(schema, name)
            if each == [] and field is not None and _list_type(field) != "atomic":
                continue  # a list by its items, of which there are none
            inner = all_fields(field, each)
            if not inner and each and isinstance(each, dict) and _is_granular(field):
                continue  # none of its fields is owned, and it is not empty itself
            # what no schema names is a member of its parent, as items of a list are
            found[f"f:{name}"] = {".": {}, **inner} if inner and name not in declared else inner
        return found
    if isinstance(value, list) and value and schema is not None and _list_type(schema) != "atomic":
        keyed = _list_type(schema) == "map"
        result: Fields = {}
        for item in value:
            below = all_fields(schema.get("items"), item) if keyed else {}
            result[item_key(schema, item)] = {".": {}, **below} if below else {}
        return result
    return {}


def changed_fields(schema: Schema | None, old: Any, new: Any) -> Fields | None:
    """Fields of `new` that `old` does not have, or has with another value; None if there are none."""
    if old is not _MISSING and old == new and type(old) is type(new):
        return None
    fresh = old is _MISSING
    result: Fields = {}
    if isinstance(new, dict) and _is_granular(schema) and (fresh or isinstance(old, dict)):
        if not new:
            return {} if fresh else None
        for name, each in new.items():
            before = _MISSING if fresh else old.get(name, _MISSING)
            below = changed_fields(_field(schema, name), before, each)
            if below is not None:
                result[f"f:{name}"] = below
        return {".": {}, **result} if fresh else result or None
    if isinstance(new, list) and schema is not None and _list_type(schema) != "atomic":
        if not new:
            return {} if fresh else None
        known = old if isinstance(old, list) else []
        before_items = {item_key(schema, item): item for item in known}
        after_items = {item_key(schema, item): item for item in new}
        if _list_type(schema) == "set":
            result = {key: {} for key in after_items if key not in before_items}
            return {".": {}, **result} if fresh else result or None
        same = duplicate_keys(partial(item_key, schema), known, new, before_items, after_items)
        result = {key: {} for key in same.changed}
        for key, item in after_items.items():
            if key in same.after:
                continue
            before = before_items.get(key, _MISSING) if key not in same.before else _MISSING
            below = changed_fields(schema.get("items"), before, item)
            if below is not None:
                result[key] = below
        return {".": {}, **result} if fresh else result or None
    return {}


def removed_fields(schema: Schema | None, old: Any, new: Any) -> Fields:
    """Fields of `old` that `new` has no more, as leaves: what was below them is gone as well."""
    result: Fields = {}
    if isinstance(old, dict) and isinstance(new, dict) and _is_granular(schema):
        for name, each in old.items():
            if name not in new:
                result[f"f:{name}"] = {}
            elif below := removed_fields(_field(schema, name), each, new[name]):
                result[f"f:{name}"] = below
    elif isinstance(old, list) and isinstance(new, list) and schema is not None and _list_type(schema) != "atomic":
        before = {item_key(schema, item): item for item in old}
        after = {item_key(schema, item): item for item in new}
        same = duplicate_keys(partial(item_key, schema), old, new, before, after)
        for key, item in before.items():
            if key in same.before and key in after:
                continue
            if key not in after or key in same.after:
                result[key] = {}
            elif _list_type(schema) == "map" and (below := removed_fields(schema.get("items"), item, after[key])):
                result[key] = below
    return result


def _owned(served: ServedResource, fields: Fields, subresource: str) -> Fields:
    """Without what nobody owns, or the endpoint resets: of a status write, all but the status."""
    result = owned_fields(served, fields, subresource=subresource)
    if subresource == "status":
        result.pop("f:metadata", None)
    return result


# --- updates ----------------------------------------------------------------------------------------------------------


def track_create(served: ServedResource, schema: Schema, obj: JSON, writer: Writer, now: Callable[[], str]) -> None:
    """As managed.track_create()."""
    metadata = obj["metadata"]
    entries = initial_entries(metadata.pop("managedFields", None), [])
    if not _are_of_known_versions(served, entries):
        return
    owned = _fields_set(served, schema, obj, "")
    store_entries(metadata, merge_entries(served, entries, writer.manager, "", owned, {}, now()))


def _fields_set(served: ServedResource, schema: Schema, obj: JSON, subresource: str) -> Fields:
    """What of an object somebody has set."""
    given = {name: value for name, value in obj.items() if name not in ("apiVersion", "kind")}
    changed = changed_fields(typed(schema), {"metadata": {}}, given) or {}
    return _owned(served, changed, subresource)


def track_update(
    served: ServedResource,
    schema: Schema,
    obj: JSON,
    old: JSON,
    writer: Writer,
    now: Callable[[], str],
    subresource: str,
) -> None:
    """As managed.track_update()."""
    metadata = obj["metadata"]
    entries = old["metadata"].get("managedFields", [])
    if not subresource:
        entries = initial_entries(metadata.get("managedFields"), entries)
    if not entries or not _are_of_known_versions(served, entries):
        metadata.pop("managedFields", None)
        return
    whole = typed(schema)
    before, after = (
        {**each, "metadata": {name: value for name, value in each["metadata"].items() if name != "managedFields"}}
        for each in (old, obj)
    )
    changed = _owned(served, changed_fields(whole, before, after) or {}, subresource)
    removed = _owned(served, removed_fields(whole, before, after), subresource)
    if changed or removed:
        entries = merge_entries(served, entries, writer.manager, subresource, changed, removed, now())
    store_entries(metadata, entries)


def _are_of_known_versions(served: ServedResource, entries: list[JSON]) -> bool:
    """Has the definition all their versions? Kubernetes forgets all entries with one that it cannot convert to."""
    if all(each["apiVersion"] == served.resource.api_version for each in entries):
        return True
    assert served.crd_version is not None
    return {each["apiVersion"] for each in entries} <= served.crd_version.api_versions


# --- apply ------------------------------------------------------------------------------------------------------------


def apply_configuration(
    served: ServedResource,
    schema: Schema,
    live: JSON | None,
    config: JSON,
    *,
    manager: str,
    force: bool,
    subresource: str,
    now: str,
) -> JSON:
    """As apply.apply_configuration(). Raises StatusError."""
    whole = typed(schema)

    def read(given: JSON) -> Fields:
        return _owned(served, all_fields(whole, given), subresource)

    return merge_applied(
        served,
        live if live is not None else {"metadata": {}},
        config,
        read(config),
        manager=manager,
        force=force,
        subresource=subresource,
        now=now,
        merge=lambda base: _merged(whole, base, config),
        remove=lambda merged, dropped: _without(whole, merged, dropped),
        compare=lambda base, merged, wishes: _overwritten(whole, base, merged, wishes) or {},
        initial=lambda base: _fields_set(served, schema, base, subresource),
        read_fields=read,
    )


def merge_configuration(schema: Schema, live: JSON, config: JSON) -> JSON:
    """As apply.overlaid()."""
    result: JSON = _merged(typed(schema), live, config)
    return result


def atomic_paths(schema: Schema | None, value: Any, path: str) -> Iterator[str]:
    """As apply.atomic_paths()."""
    if isinstance(value, dict):
        if not _is_granular(schema):
            yield path
        for name, each in value.items():
            yield from atomic_paths(_field(schema, name), each, f"{path}.{name}")
    elif isinstance(value, list) and schema is not None:
        if _list_type(schema) == "atomic":
            yield path
        for index, each in enumerate(value):
            yield from atomic_paths(schema.get("items"), each, f"{path}[{index}]")


def _merged(schema: Schema | None, live: Any, wished: Any) -> Any:
    if isinstance(wished, dict) and isinstance(live, dict) and _is_granular(schema):
        result = dict(live)
        for name, value in wished.items():
            result[name] = _merged(_field(schema, name), live.get(name), value)
        return result
    if isinstance(wished, list) and isinstance(live, list) and schema is not None:
        if _list_type(schema) == "set":
            return merge_items(set_key, live, wished, lambda _, new: new)
        if _list_type(schema) == "map":
            return merge_items(partial(item_key, schema), live, wished, partial(_merged, schema.get("items")))
    return wished


def _without(schema: Schema | None, value: Any, doomed: Fields) -> Any:
    """`value` without the fields of `doomed`: what the manager applied before and wishes no more."""
    if isinstance(value, dict):
        result = dict(value)
        for path, below in doomed.items():
            name = path.removeprefix("f:")
            if not path.startswith("f:") or name not in result:
                continue
            left = _without(_field(schema, name), result[name], below) if below else None
            if left in (None, {}, []):
                result.pop(name)
            else:
                result[name] = left
        return result
    if isinstance(value, list) and schema is not None and _list_type(schema) != "atomic":
        items = []
        for item in value:
            found = doomed.get(item_key(schema, item))
            if found is None:
                items.append(item)
            elif found and "." not in found:
                items.append(_without(schema.get("items"), item, found))
        return items
    return None


def _overwritten(schema: Schema | None, before: Any, after: Any, wishes: Fields) -> Fields | None:
    """Those of `wishes` whose value in the object changes; None if none does."""
    if before == after and type(before) is type(after):
        return None
    if not wishes:
        return {}
    if isinstance(after, dict):
        old = before if isinstance(before, dict) else {}
        result: Fields = {}
        for path, below in wishes.items():
            if path.startswith("f:"):
                name = path[2:]
                found = _overwritten(_field(schema, name), old.get(name), after.get(name), below)
                if found is not None:
                    result[path] = found
        return result or None
    if isinstance(after, list) and schema is not None and _list_type(schema) != "atomic":
        known = {item_key(schema, item): item for item in before} if isinstance(before, list) else {}
        found_items: Fields = {}
        for item in after:
            key = item_key(schema, item)
            if key not in wishes:
                continue
            if key not in known:
                found_items[key] = wishes[key]
            elif _list_type(schema) == "map":
                found = _overwritten(schema.get("items"), known[key], item, wishes[key])
                if found is not None:
                    found_items[key] = found
        return found_items or None
    return {}
