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
from kubeloop.devcluster.api.value_types import ValueType
from kubeloop.devcluster.api.writer import ApplyOptions
from kubeloop.devcluster.managedfields.field_sets import (
    Fields,
    all_fields,
    conversion_failure,
    entries_of_known_versions,
    initial_fields,
    intersect,
    is_entry_of,
    is_equal,
    item_key,
    items_by_key,
    new_entry,
    owned_fields,
    sorted_entries,
    subtract,
    union,
)
from kubeloop.devcluster.managedfields.go_types import value_type_of
from kubeloop.devcluster.serializer import decoding
from kubeloop.kube import schema
from kubeloop.kube.json_object import JSON


def apply_configuration(served: ServedResource, current: JSON | None, config: JSON, options: ApplyOptions) -> JSON:
    """Return `current` (None: a new object) with `config` applied, and its managedFields.

    Values are compared as written: applying "1000m" where the object has "1" conflicts with its owner. Raises
    StatusError: 400 without a manager or for a config with managedFields; 409 with one cause per field that other
    managers own and the config would change; 500 if a version in managedFields is no longer one of the custom resource.
    """
    if not options.manager:
        raise errors.bad_request(
            "PatchOptions.meta.k8s.io is invalid: fieldManager: Required value: is required for apply patch"
        )
    if config.get("metadata", {}).get("managedFields"):
        raise errors.bad_request("metadata.managedFields must be nil")
    value_type = value_type_of(served.resource)
    base = current if current is not None else {"metadata": {}}
    manager, subresource, now = options.manager, options.subresource, options.now
    applied_fields = _configuration_fields(served, config, subresource)
    stored_entries = base["metadata"].get("managedFields", [])
    entries = entries_of_known_versions(served, stored_entries)
    if entries is None:
        raise errors.internal(conversion_failure(served, stored_entries))
    if not stored_entries and "uid" in base["metadata"]:
        unowned = initial_fields(served, without_managed_fields(base), subresource=subresource)
        entries = [new_entry(served, _BEFORE_FIRST_APPLY, "Update", subresource, unowned, now)] if unowned else []
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
    result = _remove(value_type, merge(value_type, base, config), dropped)
    if dropped:
        # an applied empty map stays, although all its former fields are removed
        result = merge(value_type, result, config)
    overwritten = _overwritten(value_type, base, result, applied_fields) or {}

    conflicts = [(entry, both) for entry in others if (both := intersect(entry.get("fieldsV1", {}), overwritten))]
    if conflicts and not options.force:
        allowed = _unchanged_since_client_side_apply(served, base, subresource) if manager == _KUBECTL else {}
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


def _configuration_fields(served: ServedResource, config: JSON, subresource: str) -> Fields:
    """Return the fields of a configuration. Raises DecodeError if it does not fit its Go type."""
    resource = served.resource
    if (struct := schema.type_for(resource.group, resource.version, resource.kind)) is not None:
        decoding.decode_struct(struct, config)
    return owned_fields(served, all_fields(value_type_of(resource), config), subresource=subresource)


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


def _unchanged_since_client_side_apply(served: ServedResource, current: JSON, subresource: str) -> Fields:
    """Return unchanged fields of kubectl's client-side apply; kubectl may take them from any owner."""
    try:
        last_applied = msgspec.json.decode(current["metadata"].get("annotations", {}).get(_LAST_APPLIED, ""))
        if not isinstance(last_applied, dict) or last_applied.get("apiVersion") != served.resource.api_version:
            return {}
        fields = _configuration_fields(served, last_applied, subresource)
    except (msgspec.DecodeError, decoding.DecodeError):
        return {}  # the annotation is invalid: all fields are conflicts
    return subtract(fields, _overwritten(value_type_of(served.resource), current, last_applied, fields) or {})


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
    result: JSON = merge(value_type_of(served.resource), current, config)
    return result


def atomic_paths(served: ServedResource, config: JSON) -> list[str]:
    """Return the paths (.spec.args) of values in a configuration that are replaced as a whole, such as atomic lists."""
    return list(atomic_paths_in(value_type_of(served.resource), config))


def atomic_paths_in(value_type: ValueType, value: Any, path: str = "") -> Iterator[str]:
    """Yield the paths of the atomic maps and lists in a value."""
    if isinstance(value, dict):
        if value_type.is_atomic:
            yield path
        for name, member in value.items():
            yield from atomic_paths_in(value_type.member(name), member, f"{path}.{name}")
    elif isinstance(value, list):
        if not value_type.list_type:
            yield path
        for index, item in enumerate(value):
            yield from atomic_paths_in(value_type.items, item, f"{path}[{index}]")


def merge(value_type: ValueType, current: Any, applied: Any) -> Any:
    """Return `current` with the applied values; null applies none of the members of a map or list."""
    is_map = isinstance(current, dict) and not value_type.is_atomic
    if applied is None and (is_map or (isinstance(current, list) and value_type.list_type)):
        return current or None
    if is_map and isinstance(applied, dict):
        members = {name: merge(value_type.member(name), current.get(name), value) for name, value in applied.items()}
        return {**current, **members}
    if isinstance(current, list) and isinstance(applied, list) and value_type.list_type:
        return merge_items(partial(item_key, value_type), current, applied, partial(merge, value_type.items))
    return applied


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


def _remove(value_type: ValueType, value: Any, removed: Fields) -> Any:
    """Return `value` without the fields of `removed`, which the manager applied before and no longer applies."""
    if isinstance(value, dict):
        result = dict(value)
        for path, below in removed.items():
            name = path.removeprefix("f:")
            if not path.startswith("f:") or name not in result:
                continue
            remaining = _remove(value_type.member(name), result[name], below) if below else None
            if remaining in (None, {}, []):
                result.pop(name)
            else:
                result[name] = remaining
        return result
    if isinstance(value, list) and value_type.list_type:
        items = []
        for item in value:
            below = removed.get(item_key(value_type, item))
            if below is None:
                items.append(item)
            elif below and "." not in below:
                items.append(_remove(value_type.items, item, below))
        return items
    return None


# --- conflicts --------------------------------------------------------------------------------------------------------


def _overwritten(value_type: ValueType, before: Any, after: Any, applied: Fields) -> Fields | None:
    """Return those of `applied` that are new or change their value, None if there are none.

    Removals alone do not change a map or a list with keys.
    """
    result: Fields = {}
    if isinstance(after, dict) and not value_type.is_atomic:
        if not isinstance(before, dict):
            return _whole_field(applied)
        for path, below in applied.items():
            name = path.removeprefix("f:")
            if not path.startswith("f:") or name not in after:
                continue
            if name not in before:
                result[path] = _whole_field(below)
            elif not is_equal(before[name], after[name]):
                overwritten = _overwritten(value_type.member(name), before[name], after[name], below)
                if overwritten is not None:
                    result[path] = overwritten
        return result or None
    if isinstance(after, list) and value_type.list_type:
        if not isinstance(before, list):
            return _whole_field(applied)
        old_items, items, same = items_by_key(value_type, before, after)
        for key, item in items.items():
            if key not in applied:
                continue
            if key not in old_items or key in same.before:
                result[key] = applied[key]
            elif not is_equal(old_items[key], item):
                overwritten = _overwritten(value_type.items, old_items[key], item, applied[key])
                if overwritten is not None:
                    result[key] = overwritten
        return result or None
    return {}


def _whole_field(fields: Fields) -> Fields:
    """Return a field and all fields below it, each of which is new."""
    return {".": {}, **{name: _whole_field(inner) for name, inner in fields.items()}} if fields else {}


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
