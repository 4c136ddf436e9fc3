"""Server-side apply: merges an applied configuration into an object, with conflicts and field ownership.

Source: sigs.k8s.io/structured-merge-diff merge/update.go, apimachinery pkg/util/managedfields. Objects are in decoded
form; the configuration is what the client sent.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import msgspec

from kubeloop.devcluster.api import errors
from kubeloop.devcluster.api.field_access import without_managed_fields
from kubeloop.devcluster.api.served_resources import ServedResource
from kubeloop.devcluster.api.writer import ApplyOptions
from kubeloop.devcluster.managedfields.field_sets import (
    Fields,
    configuration_fields,
    deduplicate_entries,
    initial_fields,
    intersect,
    is_atomic,
    is_entry_of,
    item_key,
    new_entry,
    owned_fields,
    set_key,
    sorted_entries,
    subtract,
    union,
)
from kubeloop.devcluster.serializer import decoding
from kubeloop.kube import schema
from kubeloop.kube.json_object import JSON


class TypeFunctions(msgspec.Struct, frozen=True):
    """Functions of the type of an applied configuration and its object.

    merge(base): the object with the applied values. remove(obj, fields): without these fields. compare(old, new,
    fields): those of `fields` whose values differ. initial(obj): the fields of an object without owners.
    read_fields(config): the fields of a configuration.
    """

    merge: Callable[[JSON], JSON]
    remove: Callable[[JSON, Fields], JSON]
    compare: Callable[[JSON, JSON, Fields], Fields]
    initial: Callable[[JSON], Fields]
    read_fields: Callable[[JSON], Fields]


def apply_configuration(served: ServedResource, current: JSON | None, config: JSON, options: ApplyOptions) -> JSON:
    """Return `current` (None: a new object) with `config` applied, and its managedFields.

    Raises StatusError: 400 without a manager or for a config with managedFields; 409 with one cause per field that
    other managers own and the config would change.
    """
    if not options.manager:
        raise errors.bad_request(
            "PatchOptions.meta.k8s.io is invalid: fieldManager: Required value: is required for apply patch"
        )
    if config.get("metadata", {}).get("managedFields"):
        raise errors.bad_request("metadata.managedFields must be nil")
    if served.crd_version is not None:
        return served.crd_version.ownership.apply(current, config, options)
    resource, subresource = served.resource, options.subresource
    struct = schema.type_for(resource.group, resource.version, resource.kind)
    if struct is None:
        raise errors.bad_request(f"server-side apply is not supported for {resource.kind}")

    def read_fields(configuration: JSON) -> Fields:
        decoding.decode_struct(struct, configuration)
        return owned_fields(served, configuration_fields(struct, configuration), subresource=subresource)

    functions = TypeFunctions(
        merge=lambda base: _merge_struct(struct, base, config),
        remove=lambda obj, dropped: _remove_fields(struct, obj, dropped),
        compare=lambda base, result, applied_fields: _changed(struct, base, result, applied_fields),
        initial=lambda base: initial_fields(served, without_managed_fields(base), subresource=subresource),
        read_fields=read_fields,
    )
    return merge_applied(served, current if current is not None else {"metadata": {}}, config, options, functions)


def merge_applied(
    served: ServedResource, base: JSON, config: JSON, options: ApplyOptions, functions: TypeFunctions
) -> JSON:
    """Return `base` with the applied fields and without those the manager no longer applies, and its managedFields.

    Values are compared as written: applying "1000m" where the object has "1" conflicts with its owner. Raises
    StatusError: see apply_configuration().
    """
    manager, subresource, now = options.manager, options.subresource, options.now
    applied_fields = functions.read_fields(config)
    entries = deduplicate_entries(base["metadata"].get("managedFields", []))
    if not entries and "uid" in base["metadata"] and (unowned := functions.initial(base)):
        entries = [new_entry(served, _BEFORE_FIRST_APPLY, "Update", subresource, unowned, now)]
    own_entry = next((entry for entry in entries if is_entry_of(entry, manager, "Apply", subresource)), None)
    others = [entry for entry in entries if entry is not own_entry]
    dropped = subtract(own_entry.get("fieldsV1", {}) if own_entry is not None else {}, applied_fields)
    for entry in others:
        dropped = subtract(dropped, entry.get("fieldsV1", {}))
    owned: Fields = {"f:metadata": {}} if "metadata" in config else {}
    for fields in (applied_fields, *(entry.get("fieldsV1", {}) for entry in others)) if dropped else ():
        dropped = _keep_applied_children(dropped, fields)
        owned = union(owned, fields)
    dropped = _with_parents(dropped, owned)
    result = functions.remove(functions.merge(base), dropped)
    if dropped:
        result = functions.merge(result)  # an applied empty map stays, although all its former fields are removed
    overwritten = functions.compare(base, result, applied_fields)

    conflicts = [(entry, both) for entry in others if (both := intersect(entry.get("fieldsV1", {}), overwritten))]
    if conflicts and not options.force:
        allowed = _unchanged_since_client_side_apply(served, base, functions) if manager == _KUBECTL else {}
        conflicts = [(entry, both) for entry, fields in conflicts if (both := subtract(fields, allowed))]
        if conflicts:
            raise _conflict(conflicts)
    if "metadata" not in result:  # no manager owned anything else in it, and the configuration has none
        problem = f"the name of the object ({base['metadata']['name']} based on URL) was undeterminable"
        raise errors.bad_request(f"{problem}: name must be provided")
    remaining_entries = []
    for entry in others:
        fields = entry.get("fieldsV1", {})
        remaining = subtract(fields, intersect(fields, overwritten))
        if remaining:
            remaining_entries.append(entry if remaining == fields else {**entry, "fieldsV1": remaining})
    if applied_fields:
        # an apply that changes nothing keeps the entry's time, and a new entry then has none
        time = (own_entry or {}).get("time", "") if result == base else now
        applied_entry = new_entry(served, manager, "Apply", subresource, applied_fields, time)
        if not time:
            applied_entry.pop("time", None)
        remaining_entries.append(applied_entry)
    metadata = {**result.get("metadata", {}), "managedFields": sorted_entries(remaining_entries)}
    if manager == _KUBECTL and metadata.get("annotations", {}).get(_LAST_APPLIED):
        metadata["annotations"] = _with_last_applied(metadata["annotations"], config)
    return {**result, "metadata": metadata}


def _keep_applied_children(dropped: Fields, applied_fields: Fields) -> Fields:
    """Return `dropped` without leaves that have applied fields below: the parts are now owned instead of the whole."""
    if not dropped or not applied_fields:
        return dropped
    result: Fields = {}
    for name, inner in dropped.items():
        applied_below = applied_fields.get(name)
        if applied_below is None or not applied_below:
            result[name] = inner
        elif inner and (remaining := _keep_applied_children(inner, applied_below)):
            result[name] = remaining
    return result


def _with_parents(dropped: Fields, owned: Fields) -> Fields:
    """Return `dropped` extended to whole fields if no manager owns anything in them."""
    return {
        name: _with_parents(inner, owned[name]) if name in owned else {} if name.startswith("f:") else inner
        for name, inner in dropped.items()
    }


# --- migration from client-side apply ---------------------------------------------------------------------------------

_KUBECTL = "kubectl"
_LAST_APPLIED = "kubectl.kubernetes.io/last-applied-configuration"
_MAX_ANNOTATIONS_BYTES = 256 * 1024
_encode_sorted = msgspec.json.Encoder(order="sorted").encode


def _unchanged_since_client_side_apply(
    served: ServedResource,
    current: JSON,
    functions: TypeFunctions,
) -> Fields:
    """Return unchanged fields of kubectl's client-side apply; kubectl may take them from any owner."""
    try:
        last_applied = msgspec.json.decode(current["metadata"].get("annotations", {}).get(_LAST_APPLIED, ""))
        if not isinstance(last_applied, dict) or last_applied.get("apiVersion") != served.resource.api_version:
            return {}
        fields = functions.read_fields(last_applied)
    except (msgspec.DecodeError, decoding.DecodeError):
        return {}  # the annotation is invalid: all fields are conflicts
    return subtract(fields, functions.compare(current, last_applied, fields))


def _with_last_applied(annotations: JSON, config: JSON) -> JSON:
    """Update the last-applied annotation, so that client-side apply can continue from this configuration."""
    metadata = dict(config.get("metadata", {}))
    if annotated := metadata.get("annotations"):
        metadata["annotations"] = {name: value for name, value in annotated.items() if name != _LAST_APPLIED}
    text = _encode_sorted({**config, "metadata": metadata}).decode() + "\n"
    for character in "<>&":  # as Go writes them
        text = text.replace(character, f"\\u{ord(character):04x}")
    result = {**annotations, _LAST_APPLIED: text}
    if sum(len(name.encode()) + len(value.encode()) for name, value in result.items()) > _MAX_ANNOTATIONS_BYTES:
        del result[_LAST_APPLIED]
    return result


_BEFORE_FIRST_APPLY = "before-first-apply"
"""Manager of the fields that have no owner before the first apply."""


# --- merging ----------------------------------------------------------------------------------------------------------


def merge_configuration(served: ServedResource, current: JSON, config: JSON) -> JSON:
    """Return `current` with the values of a valid configuration, regardless of field ownership."""
    if served.crd_version is not None:
        return served.crd_version.ownership.merge(current, config)
    struct = schema.type_for(served.resource.group, served.resource.version, served.resource.kind)
    assert struct is not None, served.resource
    return _merge_struct(struct, current, config)


def atomic_paths(served: ServedResource, config: JSON) -> list[str]:
    """Return the paths (.spec.args) of values in a configuration that are replaced as a whole, such as atomic lists."""
    if served.crd_version is not None:
        return served.crd_version.ownership.atomic_paths(config)
    struct = schema.type_for(served.resource.group, served.resource.version, served.resource.kind)
    assert struct is not None, served.resource
    return list(_atomic_values(struct, config, ""))


def _atomic_values(struct: schema.StructType, value: JSON, path: str) -> Iterator[str]:
    for name, member in value.items():
        field, inner_path = struct.json.get(name), f"{path}.{name}"
        if field is None:
            continue
        inner = field.type.struct
        if isinstance(member, dict) and field.type.kind in ("struct", "map"):
            if is_atomic(field, field.type):
                yield inner_path
            if inner is not None:
                yield from _atomic_values(inner, member, inner_path)
        elif isinstance(member, list) and field.type.kind == "list":
            if field.list_type not in ("map", "set"):
                yield inner_path
            element = field.type.element.struct if field.type.element is not None else None
            for index, item in enumerate(member):
                if element is not None and isinstance(item, dict):
                    if element.atomic:
                        yield f"{inner_path}[{index}]"
                    yield from _atomic_values(element, item, f"{inner_path}[{index}]")


def _merge_struct(struct: schema.StructType, current: JSON, applied: JSON) -> JSON:
    result = dict(current)
    for name, value in applied.items():
        field = struct.json.get(name)
        result[name] = value if field is None else _merge_value(field, current.get(name), value)
    return result


def _merge_value(field: schema.Field, current: Any, applied: Any) -> Any:
    inner = field.type.struct
    if isinstance(current, dict) and not is_atomic(field, field.type):
        if applied is None:
            return current or None  # null applies none of its members
        if isinstance(applied, dict):
            return _merge_struct(inner, current, applied) if inner is not None else {**current, **applied}
    if isinstance(current, list) and field.list_type in ("map", "set"):
        if applied is None:
            return current or None
        element = field.type.element
        struct = element.struct if field.list_type == "map" and element is not None else None
        if isinstance(applied, list) and struct is not None:
            return _merge_keyed(field, struct, current, applied)
        if isinstance(applied, list) and field.list_type == "set":
            return merge_items(set_key, current, applied, lambda _, new: new)
    return applied


def _merge_keyed(
    field: schema.Field, struct: schema.StructType, current: list[JSON], applied: list[JSON]
) -> list[JSON]:
    def merge(old: JSON, new: JSON) -> JSON:
        return new if struct.atomic else _merge_struct(struct, old, new)

    return merge_items(partial(item_key, field), current, applied, merge)


def merge_items(
    key_of: Callable[[Any], str], current: list[Any], applied: list[Any], merge: Callable[[Any, Any], Any]
) -> list[Any]:
    """Merge two lists by key: shared items are merged, in the applied order; others keep their place around them.

    An item that is duplicated in `current` is not merged. Source: structured-merge-diff typed/merge.go visitListItems.
    """
    before, applied_keys = [key_of(item) for item in current], [key_of(item) for item in applied]
    unique_positions: dict[str, int] = {}
    for position, key in enumerate(before):
        unique_positions[key] = -1 if key in unique_positions else position
    applied_set = set(applied_keys)
    shared = iter([key for key in applied_keys if key in unique_positions])
    next_shared = next(shared, None)
    done: set[str] = set()
    result: list[Any] = []
    left = right = 0
    while left < len(before) or right < len(applied_keys):
        both = left < len(before) and right < len(applied_keys)
        if (
            both
            and before[left] != applied_keys[right]
            and before[left] in applied_set
            and next_shared not in (None, before[left])
        ):
            left += 1  # a shared item, but another one precedes it in the applied order
            continue
        if left < len(before) and before[left] not in applied_set:
            result.append(current[left])
            left += 1
            continue
        if left < len(before) and (before[left] in done or (both and before[left] == applied_keys[right])):
            left += 1
        if right < len(applied_keys):
            key, new = applied_keys[right], applied[right]
            done.add(key)
            old = unique_positions.get(key, -1)
            result.append(new if old < 0 else merge(current[old], new))
            right += 1
            if next_shared == key:
                next_shared = next(shared, None)
    return result


def _remove_fields(struct: schema.StructType, obj: JSON, removed: Fields) -> JSON:
    """Return `obj` without the fields of `removed`, which the manager applied before and no longer applies."""
    result = dict(obj)
    for path, removed_below in removed.items():
        name = path.removeprefix("f:")
        if not path.startswith("f:") or name not in result:
            continue
        field = struct.json.get(name)
        remaining = _remove_from_value(field, result[name], removed_below) if removed_below else None
        if remaining in (None, {}, []):
            result.pop(name)
        else:
            result[name] = remaining
    return result


def _remove_from_value(field: schema.Field | None, value: Any, removed: Fields) -> Any:
    if field is None:
        return None
    inner = field.type.struct
    if isinstance(value, dict):
        if inner is not None:
            return _remove_fields(inner, value, removed)
        return {name: member for name, member in value.items() if f"f:{name}" not in removed}
    if isinstance(value, list):
        element = field.type.element
        if field.list_type == "set":
            return [item for item in value if set_key(item) not in removed]
        if field.list_type == "map" and element is not None and element.struct is not None:
            result = []
            for item in value:
                removed_below = removed.get(item_key(field, item))
                if removed_below is None:
                    result.append(item)
                elif removed_below and "." not in removed_below:
                    result.append(_remove_fields(element.struct, item, removed_below))
            return result
    return None


# --- conflicts --------------------------------------------------------------------------------------------------------


def _changed(struct: schema.StructType, current: JSON, merged: JSON, applied_fields: Fields) -> Fields:
    """Return those of `applied_fields` that are new in the object or change their value."""
    result: Fields = {}
    for path, fields_below in applied_fields.items():
        name = path.removeprefix("f:")
        if not path.startswith("f:") or name not in merged:
            continue
        after = merged[name]
        if name not in current:
            result[path] = _whole_field(fields_below)
        elif (before := current[name]) != after:
            field = struct.json.get(name)
            changed = {} if field is None else _value_changed(field, before, after, fields_below)
            if changed is not None:
                result[path] = changed
    return result


def _whole_field(fields: Fields) -> Fields:
    """Return a field and all fields below it, each of which is new."""
    return {".": {}, **{name: _whole_field(inner) for name, inner in fields.items()}} if fields else {}


def _value_changed(field: schema.Field, before: Any, after: Any, applied_fields: Fields) -> Fields | None:
    """Return the changed fields, or None. Removals alone do not change a map or a list with keys."""
    if isinstance(after, dict) and not is_atomic(field, field.type):
        if not isinstance(before, dict):
            return _whole_field(applied_fields)
        inner = field.type.struct
        if inner is not None:
            return _changed(inner, before, after, applied_fields) or None
        return {path: {} for path in applied_fields if before.get(path[2:]) != after.get(path[2:])} or None
    if isinstance(after, list) and field.list_type in ("map", "set"):
        if not isinstance(before, list):
            return _whole_field(applied_fields)
        return _items_changed(field, before, after, applied_fields) or None
    return {}


def _items_changed(field: schema.Field, before: list[Any], after: list[Any], applied_fields: Fields) -> Fields:
    element = field.type.element
    if field.list_type == "set" or element is None or element.struct is None:
        present = {set_key(item) for item in before}
        return {path: {} for path in applied_fields if path not in present}
    old_items: dict[str, JSON | None] = {}
    for item in before:
        key = item_key(field, item)
        old_items[key] = None if key in old_items else item
    result: Fields = {}
    for item in after:
        key = item_key(field, item)
        if key not in applied_fields:
            continue
        old_item = old_items.get(key)
        if old_item is None or (element.struct.atomic and old_item != item):
            result[key] = applied_fields[key]
        elif changed := _changed(element.struct, old_item, item, applied_fields[key]):
            result[key] = changed
    return result


def _conflict(conflicts: list[tuple[JSON, Fields]]) -> errors.StatusError:
    """Return the 409 error of managedfields.internal.conflict."""
    causes = []
    lines: dict[str, list[str]] = {}
    for entry, fields in conflicts:
        manager = _manager_text(entry)
        for path in _paths(fields):
            lines.setdefault(manager, []).append(path)
            causes.append({"reason": "FieldManagerConflict", "message": f"conflict with {manager}", "field": path})
    if len(causes) == 1:
        message = f"Apply failed with 1 conflict: {causes[0]['message']}: {causes[0]['field']}"
    else:
        parts = (f"conflicts with {manager}:\n- " + "\n- ".join(paths) for manager, paths in sorted(lines.items()))
        message = f"Apply failed with {len(causes)} conflicts: " + "\n".join(parts)
    return errors.StatusError(409, "Conflict", message, details={"causes": causes})


def _manager_text(entry: JSON) -> str:
    text = f'"{entry.get("manager", "")}"'
    if entry.get("subresource"):
        text += f' with subresource "{entry["subresource"]}"'
    if entry.get("operation") == "Update":
        text += f" using {entry.get('apiVersion', '')}"
    return text


def _paths(fields: Fields, prefix: str = "") -> Iterator[str]:
    """Yield the leaves as fieldpath.Path prints them: .spec.template.spec.containers[name="c"].image

    As in fieldpath.Set.Iterate, owned values come before the fields below their siblings.
    """
    leaves = [
        (f"{prefix}{_element(name)}", fields_below) for name, fields_below in sorted(fields.items()) if name != "."
    ]
    yield from (path for path, fields_below in leaves if not fields_below or "." in fields_below)
    for path, fields_below in leaves:
        yield from _paths(fields_below, path)


def _element(name: str) -> str:
    if name.startswith("f:"):
        return f".{name[2:]}"
    if name.startswith("k:"):
        keys = msgspec.json.decode(name[2:])
        return "[" + ",".join(f"{key}={msgspec.json.encode(value).decode()}" for key, value in keys.items()) + "]"
    return f"[={name[2:]}]"
