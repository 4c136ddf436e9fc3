"""Field ownership and server-side apply of custom resources, with field sets computed by an OpenAPI schema.

`devcluster.managedfields` does the same by Go types. By a schema, maps are granular unless declared atomic, and lists
are atomic unless declared as sets or maps; values without a schema have granular maps. Field sets have the form of
FieldsV1. Source: sigs.k8s.io/structured-merge-diff typed and merge, kube-openapi pkg/schemaconv.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Set
from functools import cache, partial
from typing import Any

import msgspec

from kubeloop.devcluster.api.field_access import without_managed_fields
from kubeloop.devcluster.api.served_resources import ServedResource
from kubeloop.devcluster.api.writer import ApplyOptions, Writer
from kubeloop.devcluster.apiextensions.structural_schema import (
    EMBEDDED,
    INT_OR_STRING,
    LIST_KEYS,
    LIST_TYPE,
    MAP_TYPE,
    META,
    PRESERVE,
    Schema,
    additional_properties_of,
)
from kubeloop.devcluster.managedfields.apply import TypeFunctions, merge_applied, merge_items
from kubeloop.devcluster.managedfields.field_sets import (
    Fields,
    initial_entries,
    items_by_key,
    merge_entries,
    owned_fields,
    set_key,
    store_entries,
)
from kubeloop.devcluster.managedfields.typed_validation import scalar_error, struct_errors
from kubeloop.devcluster.serializer.patches import format_go_value
from kubeloop.kube.json_object import JSON
from kubeloop.kube.schema import StructType, type_named

_MISSING: Any = object()
_encode_sorted = msgspec.json.Encoder(order="sorted").encode

_STRING_MAP: Schema = {"type": "object", "additionalProperties": {"type": "string"}}
_OBJECT_META: Schema = {
    "type": "object",
    "properties": {
        "annotations": _STRING_MAP,
        "labels": _STRING_MAP,
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
"""Other fields of ObjectMeta are single values."""


_EMBEDDED_FIELDS: dict[str, Schema] = {
    "apiVersion": {"type": "string"},
    "kind": {"type": "string"},
    "metadata": _OBJECT_META,
}


def with_object_meta(schema: Schema) -> Schema:
    """Return the schema of whole objects, which includes their metadata."""
    return {**schema, "properties": {**(schema.get("properties") or {}), "metadata": _OBJECT_META}}


# --- schemas of values ------------------------------------------------------------------------------------------------


def _field(schema: Schema | None, name: str) -> Schema | None:
    """Return the schema of a field, None if the schema does not specify it."""
    if schema is None:
        return None
    properties = _declared_fields(schema)
    return properties[name] if name in properties else additional_properties_of(schema)[1]


def _declared_fields(schema: Schema) -> dict[str, Schema]:
    """Return the fields that a schema declares, with those of every object for embedded objects."""
    properties: dict[str, Schema] = schema.get("properties") or {}
    return {**properties, **_EMBEDDED_FIELDS} if schema.get(EMBEDDED) else properties


def _is_granular(schema: Schema | None) -> bool:
    return schema is None or (schema.get(MAP_TYPE) != "atomic" and not schema.get(INT_OR_STRING))


def _list_type(schema: Schema | None) -> str:
    return (schema.get(LIST_TYPE) or "atomic") if schema is not None else "atomic"


def item_key(schema: Schema, item: Any) -> str:
    """Return the path element of an item of a list map or set: k:{"name":"a"}, v:"a"."""
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


_SCALARS = {"string": "string", "integer": "int64", "number": "float64", "boolean": "bool"}


def _type_errors(schema: Schema | None, value: Any, path: str) -> Iterator[str]:
    if schema is None or value is None or schema.get(INT_OR_STRING):
        return
    type_ = schema.get("type")
    if type_ == "object" and not isinstance(value, dict):
        yield f"{path}: expected map, got &{{{format_go_value(value)}}}"
    elif type_ == "array" and not isinstance(value, list):
        yield f"{path}: expected list, got &{{{format_go_value(value)}}}"
    elif type_ in _SCALARS and (message := scalar_error(_SCALARS[type_], value)):
        yield f"{path}: {message}"
    elif isinstance(value, dict):
        yield from _map_errors(schema, value, path)
    elif isinstance(value, list):
        keys = [item_key(schema, item) for item in value] if _list_type(schema) != "atomic" else []
        for index, key in enumerate(keys):
            if key in keys[:index]:
                yield f"{path}: duplicate entries for key [{_format_key(key)}]"
                return
        for index, item in enumerate(value):
            element = _format_key(keys[index]) if keys else str(index)
            yield from _type_errors(schema.get("items"), item, f"{path}[{element}]")


def _map_errors(schema: Schema, value: JSON, path: str) -> Iterator[str]:
    properties = schema.get("properties") or {}
    is_open = schema.get(PRESERVE) or schema.get("additionalProperties") is not None or not properties
    for name, field in value.items():
        below = f"{path}.{name}"
        if schema.get(EMBEDDED) and name in META:
            if name == "metadata":
                yield from struct_errors(_object_meta(), field, below)
            elif not isinstance(field, str):
                yield f"{below}: {scalar_error('string', field)}"
        elif name in properties or is_open:
            yield from _type_errors(_field(schema, name), field, below)
        else:
            yield f"{below}: field not declared in schema"
            return


@cache
def _object_meta() -> StructType:
    struct = type_named("meta/v1.ObjectMeta")
    assert struct is not None
    return struct


def _format_key(key: str) -> str:
    """Return an item's key in the form used in errors: name="a"."""
    if key.startswith("v:"):
        return f"={key[2:]}"
    keys = msgspec.json.decode(key[2:])
    return ",".join(f"{name}={msgspec.json.encode(value).decode()}" for name, value in keys.items())


# --- field sets -------------------------------------------------------------------------------------------------------


def all_fields(schema: Schema | None, value: Any) -> Fields:
    """Return every field that an applied configuration sets; maps and lists by their members."""
    if isinstance(value, dict) and value and _is_granular(schema):
        declared = _declared_fields(schema) if schema is not None else {}
        fields: Fields = {}
        for name, child in value.items():
            field_schema = _field(schema, name)
            if child == [] and field_schema is not None and _list_type(field_schema) != "atomic":
                continue  # an empty list has no item to own
            child_fields = all_fields(field_schema, child)
            if not child_fields and child and isinstance(child, dict) and _is_granular(field_schema):
                continue  # no field of the map is owned, and it is not empty
            # fields without a schema are also members of their parent, like items of a list
            fields[f"f:{name}"] = {".": {}, **child_fields} if child_fields and name not in declared else child_fields
        return fields
    if isinstance(value, list) and value and schema is not None and _list_type(schema) != "atomic":
        is_map = _list_type(schema) == "map"
        result: Fields = {}
        for item in value:
            below = all_fields(schema.get("items"), item) if is_map else {}
            result[item_key(schema, item)] = {".": {}, **below} if below else {}
        return result
    return {}


def changed_fields(schema: Schema | None, old: Any, new: Any) -> Fields | None:
    """Return the fields of `new` that are missing or different in `old`, None if there are none."""
    if old is not _MISSING and old == new and type(old) is type(new):
        return None
    is_new = old is _MISSING
    result: Fields = {}
    if isinstance(new, dict) and _is_granular(schema) and (is_new or isinstance(old, dict)):
        if not new:
            return {} if is_new else None
        for name, child in new.items():
            old_value = _MISSING if is_new else old.get(name, _MISSING)
            below = changed_fields(_field(schema, name), old_value, child)
            if below is not None:
                result[f"f:{name}"] = below
        return {".": {}, **result} if is_new else result or None
    if isinstance(new, list) and schema is not None and _list_type(schema) != "atomic":
        if not new:
            return {} if is_new else None
        old_list = old if isinstance(old, list) else []
        before_items, after_items, duplicates = items_by_key(partial(item_key, schema), old_list, new)
        if _list_type(schema) == "set":
            result = {key: {} for key in after_items if key not in before_items}
            return {".": {}, **result} if is_new else result or None
        result = {key: {} for key in duplicates.changed}
        for key, item in after_items.items():
            if key in duplicates.after:
                continue
            old_value = before_items.get(key, _MISSING) if key not in duplicates.before else _MISSING
            below = changed_fields(schema.get("items"), old_value, item)
            if below is not None:
                result[key] = below
        return {".": {}, **result} if is_new else result or None
    return {}


def removed_fields(schema: Schema | None, old: Any, new: Any) -> Fields:
    """Return the fields of `old` that are missing in `new`, as leaves."""
    result: Fields = {}
    if isinstance(old, dict) and isinstance(new, dict) and _is_granular(schema):
        for name, child in old.items():
            if name not in new:
                result[f"f:{name}"] = {}
            elif below := removed_fields(_field(schema, name), child, new[name]):
                result[f"f:{name}"] = below
    elif isinstance(old, list) and isinstance(new, list) and schema is not None and _list_type(schema) != "atomic":
        before, after, duplicates = items_by_key(partial(item_key, schema), old, new)
        for key, item in before.items():
            if key in duplicates.before and key in after:
                continue
            if key not in after or key in duplicates.after:
                result[key] = {}
            elif _list_type(schema) == "map" and (below := removed_fields(schema.get("items"), item, after[key])):
                result[key] = below
    return result


# --- objects ----------------------------------------------------------------------------------------------------------


class SchemaOwnership:
    """Field ownership of one version of a custom resource. api_versions: all versions of its definition."""

    def __init__(self, served: ServedResource, schema: Schema, api_versions: Set[str]) -> None:
        self._served = served
        self._schema = schema
        self._typed_schema = with_object_meta(schema)
        self._api_versions = api_versions

    def track_create(self, obj: JSON, writer: Writer, now: Callable[[], str]) -> None:
        """Add the writer of a new object to its managedFields, as managedfields.field_sets.track_create() does."""
        metadata = obj["metadata"]
        entries = initial_entries(metadata.pop("managedFields", None), [])
        if not self._have_known_versions(entries):
            return
        owned = self._initial_fields(obj, "")
        store_entries(metadata, merge_entries(self._served, entries, writer.manager, "", owned, {}, now()))

    def track_update(self, obj: JSON, old: JSON, writer: Writer, now: Callable[[], str], subresource: str) -> None:
        """Update managedFields for a change, as managedfields.field_sets.track_update() does."""
        metadata = obj["metadata"]
        entries = old["metadata"].get("managedFields", [])
        if not subresource:
            entries = initial_entries(metadata.get("managedFields"), entries)
        if not entries or not self._have_known_versions(entries):
            metadata.pop("managedFields", None)
            return
        before, after = without_managed_fields(old), without_managed_fields(obj)
        changed = self._without_unowned(changed_fields(self._typed_schema, before, after) or {}, subresource)
        removed = self._without_unowned(removed_fields(self._typed_schema, before, after), subresource)
        if changed or removed:
            entries = merge_entries(self._served, entries, writer.manager, subresource, changed, removed, now())
        store_entries(metadata, entries)

    def apply(self, current: JSON | None, config: JSON, options: ApplyOptions) -> JSON:
        """Return the result of a server-side apply, as managedfields.apply does. Raises StatusError."""
        schema, subresource = self._typed_schema, options.subresource
        functions = TypeFunctions(
            merge=lambda base: _merge(schema, base, config),
            remove=lambda merged, dropped: _remove(schema, merged, dropped),
            compare=lambda base, merged, applied: _overwritten_fields(schema, base, merged, applied) or {},
            initial=lambda base: self._initial_fields(base, subresource),
            read_fields=lambda obj: self._without_unowned(all_fields(schema, obj), subresource),
        )
        before = current if current is not None else {"metadata": {}}
        return merge_applied(self._served, before, config, options, functions)

    def merge(self, current: JSON, config: JSON) -> JSON:
        """Return `current` with the values of `config` merged into it."""
        result: JSON = _merge(self._typed_schema, current, config)
        return result

    def atomic_paths(self, config: JSON) -> list[str]:
        """Return the paths of atomic maps and lists in a configuration."""
        return list(_atomic_paths(self._typed_schema, config, ""))

    def type_error(self, config: JSON) -> str:
        """Return all errors of an applied configuration, one per line if there are several; "" if there are none."""
        errors = list(_type_errors({**self._schema, EMBEDDED: True}, config, ""))
        if len(errors) == 1:
            return errors[0]
        return "".join(f"\n  {error}" for error in errors).replace("\n", "errors:\n", 1)

    def _initial_fields(self, obj: JSON, subresource: str) -> Fields:
        """Return the fields of an object that a client has set."""
        content = {name: value for name, value in obj.items() if name not in ("apiVersion", "kind")}
        return self._without_unowned(changed_fields(self._typed_schema, {"metadata": {}}, content) or {}, subresource)

    def _without_unowned(self, fields: Fields, subresource: str) -> Fields:
        """Remove fields that are never owned or that the endpoint resets; for the status, all but the status."""
        result = owned_fields(self._served, fields, subresource=subresource)
        if subresource == "status":
            result.pop("f:metadata", None)
        return result

    def _have_known_versions(self, entries: list[JSON]) -> bool:
        """Return True if the definition has the versions of all entries. Kubernetes drops all if one is unknown."""
        return {entry["apiVersion"] for entry in entries} <= self._api_versions


def _atomic_paths(schema: Schema | None, value: Any, path: str) -> Iterator[str]:
    """Yield the paths of atomic maps and lists in a value."""
    if isinstance(value, dict):
        if not _is_granular(schema):
            yield path
        for name, child in value.items():
            yield from _atomic_paths(_field(schema, name), child, f"{path}.{name}")
    elif isinstance(value, list) and schema is not None:
        if _list_type(schema) == "atomic":
            yield path
        for index, child in enumerate(value):
            yield from _atomic_paths(schema.get("items"), child, f"{path}[{index}]")


def _merge(schema: Schema | None, current: Any, applied: Any) -> Any:
    if isinstance(applied, dict) and isinstance(current, dict) and _is_granular(schema):
        result = dict(current)
        for name, value in applied.items():
            result[name] = _merge(_field(schema, name), current.get(name), value)
        return result
    if isinstance(applied, list) and isinstance(current, list) and schema is not None:
        if _list_type(schema) == "set":
            return merge_items(set_key, current, applied, lambda _, new: new)
        if _list_type(schema) == "map":
            return merge_items(partial(item_key, schema), current, applied, partial(_merge, schema.get("items")))
    return applied


def _remove(schema: Schema | None, value: Any, removed: Fields) -> Any:
    """Return `value` without the fields that the manager applied before and no longer applies."""
    if isinstance(value, dict):
        result = dict(value)
        for path, below in removed.items():
            name = path.removeprefix("f:")
            if not path.startswith("f:") or name not in result:
                continue
            remaining = _remove(_field(schema, name), result[name], below) if below else None
            if remaining in (None, {}, []):
                result.pop(name)
            else:
                result[name] = remaining
        return result
    if isinstance(value, list) and schema is not None and _list_type(schema) != "atomic":
        items = []
        for item in value:
            item_fields = removed.get(item_key(schema, item))
            if item_fields is None:
                items.append(item)
            elif item_fields and "." not in item_fields:
                items.append(_remove(schema.get("items"), item, item_fields))
        return items
    return None


def _overwritten_fields(schema: Schema | None, before: Any, after: Any, applied: Fields) -> Fields | None:
    """Return the applied fields whose value changes in the object, None if there are none."""
    if before == after and type(before) is type(after):
        return None
    if not applied:
        return {}
    if isinstance(after, dict):
        old_fields = before if isinstance(before, dict) else {}
        result: Fields = {}
        for path, below in applied.items():
            if path.startswith("f:"):
                name = path[2:]
                overwritten = _overwritten_fields(_field(schema, name), old_fields.get(name), after.get(name), below)
                if overwritten is not None:
                    result[path] = overwritten
        return result or None
    if isinstance(after, list) and schema is not None and _list_type(schema) != "atomic":
        old_items = {item_key(schema, item): item for item in before} if isinstance(before, list) else {}
        overwritten_items: Fields = {}
        for item in after:
            key = item_key(schema, item)
            if key not in applied:
                continue
            if key not in old_items:
                overwritten_items[key] = applied[key]
            elif _list_type(schema) == "map":
                overwritten = _overwritten_fields(schema.get("items"), old_items[key], item, applied[key])
                if overwritten is not None:
                    overwritten_items[key] = overwritten
        return overwritten_items or None
    return {}
