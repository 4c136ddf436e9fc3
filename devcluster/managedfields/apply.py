"""Server-side apply: one manager's wishes merged into an object, with conflicts and ownership.

Source: sigs.k8s.io/structured-merge-diff merge/update.go, apimachinery pkg/util/managedfields. Objects here are in the
server's form; the configuration is what the client sent.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import msgspec

from kubeloop.devcluster.api import errors
from kubeloop.devcluster.api.object_metadata import without_managed_fields
from kubeloop.devcluster.api.served_resources import Served
from kubeloop.devcluster.managedfields.field_sets import (
    Fields,
    all_fields,
    distinct,
    fields_set,
    intersect,
    is_atomic,
    item_key,
    new_entry,
    owned_fields,
    sorted_entries,
    subtract,
    union,
)
from kubeloop.devcluster.serializer import decoding
from kubeloop.kube import schema
from kubeloop.kube.json_object import JSON


def apply_configuration(
    served: Served,
    live: JSON | None,
    config: JSON,
    *,
    manager: str,
    force: bool,
    subresource: str,
    now: str,
) -> JSON:
    """The object that `config` makes of `live` (None: a new one), with its managedFields.

    Raises StatusError: 400 without a manager or for a config with managedFields, 409 with a cause per field that others
    own and the config would change.
    """
    if not manager:
        raise errors.bad_request(
            "PatchOptions.meta.k8s.io is invalid: fieldManager: Required value: is required for apply patch"
        )
    if config.get("metadata", {}).get("managedFields"):
        raise errors.bad_request("metadata.managedFields must be nil")
    if served.custom is not None:
        return served.custom.apply(live, config, manager=manager, force=force, subresource=subresource, now=now)
    resource = served.resource
    struct = schema.type_for(resource.group, resource.version, resource.kind)
    if struct is None:
        raise errors.bad_request(f"server-side apply is not supported for {resource.kind}")

    def read(given: JSON) -> Fields:
        decoding.decode_struct(struct, given)
        return owned_fields(served, all_fields(struct, given), subresource=subresource)

    wishes = read(config)
    return with_wishes(
        served,
        live if live is not None else {"metadata": {}},
        config,
        wishes,
        manager=manager,
        force=force,
        subresource=subresource,
        now=now,
        merged=lambda base: _merge_struct(struct, base, config),
        without=lambda merged, dropped: _without(struct, merged, dropped),
        changed=lambda base, merged, wishes: _changed(struct, base, merged, wishes),
        already_set=lambda base: fields_set(served, without_managed_fields(base), subresource=subresource),
        read=read,
    )


def with_wishes(
    served: Served,
    base: JSON,
    config: JSON,
    wishes: Fields,
    *,
    manager: str,
    force: bool,
    subresource: str,
    now: str,
    merged: Callable[[JSON], JSON],
    without: Callable[[JSON, Fields], JSON],
    changed: Callable[[JSON, JSON, Fields], Fields],
    already_set: Callable[[JSON], Fields],
    read: Callable[[JSON], Fields],
) -> JSON:
    """`base` with what the manager wishes, without what it wished before and nobody else does, and who owns what then.

    merged: the object with the wished values; without: one less these fields; changed: those of `wishes` whose value
    differs between two; already_set: those of an object that has no owners yet; read: what a configuration wishes. They
    know the type of the object. Values are compared as they are written: who applies "1000m" where the object says "1"
    is in conflict with its owner. Raises StatusError: see apply_configuration().
    """
    entries = distinct(base["metadata"].get("managedFields", []))
    if not entries and "uid" in base["metadata"] and (present := already_set(base)):
        entries = [new_entry(served, _BEFORE, "Update", subresource, present, now)]
    mine = next((entry for entry in entries if _is(entry, manager, subresource)), None)
    others = [entry for entry in entries if entry is not mine]
    dropped = subtract(mine.get("fieldsV1", {}) if mine is not None else {}, wishes)
    for entry in others:
        dropped = subtract(dropped, entry.get("fieldsV1", {}))
    owned: Fields = {"f:metadata": {}} if "metadata" in config else {}
    for fields in (wishes, *(entry.get("fieldsV1", {}) for entry in others)) if dropped else ():
        dropped = _unless_below(dropped, fields)
        owned = union(owned, fields)
    dropped = _with_parents(dropped, owned)
    result = without(merged(base), dropped)
    overwritten = changed(base, result, wishes)

    conflicts = [(entry, both) for entry in others if (both := intersect(entry.get("fieldsV1", {}), overwritten))]
    if conflicts and not force:
        allowed = _still_as_applied(served, base, changed, read) if manager == _KUBECTL else {}
        conflicts = [(entry, both) for entry, fields in conflicts if (both := subtract(fields, allowed))]
        if conflicts:
            raise _conflict(conflicts)
    if "metadata" not in result:  # nobody owned anything more in it, and the configuration has none
        told = f"the name of the object ({base['metadata']['name']} based on URL) was undeterminable"
        raise errors.bad_request(f"{told}: name must be provided")
    kept = []
    for entry in others:
        fields = entry.get("fieldsV1", {})
        left = subtract(fields, intersect(fields, overwritten))
        if left:
            kept.append(entry if left == fields else {**entry, "fieldsV1": left})
    if wishes:
        # who applies what is already there is noted without a time, or keeps the one it has
        time = (mine or {}).get("time", "") if result == base else now
        own = new_entry(served, manager, "Apply", subresource, wishes, time)
        if not time:
            own.pop("time", None)
        kept.append(own)
    metadata = {**result.get("metadata", {}), "managedFields": sorted_entries(kept)}
    if manager == _KUBECTL and metadata.get("annotations", {}).get(_LAST_APPLIED):
        metadata["annotations"] = _with_last_applied(metadata["annotations"], config)
    return {**result, "metadata": metadata}


def _unless_below(dropped: Fields, wished: Fields) -> Fields:
    """`dropped` without the leaves below which something is wished: what was taken whole before is now by its parts."""
    if not dropped or not wished:
        return dropped
    result: Fields = {}
    for name, inner in dropped.items():
        below = wished.get(name)
        if below is None or not below:
            result[name] = inner
        elif inner and (left := _unless_below(inner, below)):
            result[name] = left
    return result


def _with_parents(dropped: Fields, owned: Fields) -> Fields:
    """`dropped` with the fields in which nobody owns anything more: they go with whatever else is in them."""
    return {
        name: _with_parents(inner, owned[name]) if name in owned else {} if name.startswith("f:") else inner
        for name, inner in dropped.items()
    }


# --- from kubectl's own apply to the server's -------------------------------------------------------------------------

_KUBECTL = "kubectl"
_LAST_APPLIED = "kubectl.kubernetes.io/last-applied-configuration"
_MAX_ANNOTATIONS_BYTES = 256 * 1024
_encode_sorted = msgspec.json.Encoder(order="sorted").encode


def _still_as_applied(
    served: Served,
    live: JSON,
    changed: Callable[[JSON, JSON, Fields], Fields],
    read: Callable[[JSON], Fields],
) -> Fields:
    """What kubectl has applied by itself and is still so: kubectl may take it, whoever owns it."""
    try:
        before = msgspec.json.decode(live["metadata"].get("annotations", {}).get(_LAST_APPLIED, ""))
        if not isinstance(before, dict) or before.get("apiVersion") != served.resource.api_version:
            return {}
        fields = read(before)
    except (msgspec.DecodeError, decoding.DecodeError):
        return {}  # whoever has written it; then these are conflicts
    return subtract(fields, changed(live, before, fields))


def _with_last_applied(annotations: JSON, config: JSON) -> JSON:
    """The annotation follows what is applied, so that kubectl's own apply can go on from there."""
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


# --- who owns what ----------------------------------------------------------------------------------------------------


_BEFORE = "before-first-apply"
"""Who owns what nobody has owned until somebody applies."""


def _is(entry: JSON, manager: str, subresource: str) -> bool:
    return (
        entry.get("manager") == manager
        and entry.get("operation") == "Apply"
        and entry.get("subresource", "") == subresource
    )


# --- merging ----------------------------------------------------------------------------------------------------------


def overlaid(served: Served, live: JSON, config: JSON) -> JSON:
    """`live` with the values of a configuration that fits its type, whoever owns them."""
    if served.custom is not None:
        return served.custom.overlaid(live, config)
    struct = schema.type_for(served.resource.group, served.resource.version, served.resource.kind)
    assert struct is not None, served.resource
    return _merge_struct(struct, live, config)


def atomic_paths(served: Served, config: JSON) -> list[str]:
    """What of a configuration would replace values whole, as lists without keys are: paths as .spec.args."""
    if served.custom is not None:
        return served.custom.atomic_paths(config)
    struct = schema.type_for(served.resource.group, served.resource.version, served.resource.kind)
    assert struct is not None, served.resource
    return list(_atomic_in(struct, config, ""))


def _atomic_in(struct: schema.StructType, value: JSON, path: str) -> Iterator[str]:
    for name, each in value.items():
        field, below = struct.json.get(name), f"{path}.{name}"
        if field is None:
            continue
        inner = field.type.struct
        if isinstance(each, dict) and field.type.kind in ("struct", "map"):
            if is_atomic(field, field.type):
                yield below
            if inner is not None:
                yield from _atomic_in(inner, each, below)
        elif isinstance(each, list) and field.type.kind == "list":
            if field.list_type not in ("map", "set"):
                yield below
            element = field.type.element.struct if field.type.element is not None else None
            for index, item in enumerate(each):
                if element is not None and isinstance(item, dict):
                    if element.atomic:
                        yield f"{below}[{index}]"
                    yield from _atomic_in(element, item, f"{below}[{index}]")


def _merge_struct(struct: schema.StructType, live: JSON, wished: JSON) -> JSON:
    result = dict(live)
    for name, value in wished.items():
        field = struct.json.get(name)
        result[name] = value if field is None else _merge_value(field, live.get(name), value)
    return result


def _merge_value(field: schema.Field, live: Any, wished: Any) -> Any:
    inner = field.type.struct
    if isinstance(live, dict) and not is_atomic(field, field.type):
        if wished is None:
            return live or None  # nothing is wished of its members
        if isinstance(wished, dict):
            return _merge_struct(inner, live, wished) if inner is not None else {**live, **wished}
    if isinstance(live, list) and field.list_type in ("map", "set"):
        if wished is None:
            return live or None
        element = field.type.element
        struct = element.struct if field.list_type == "map" and element is not None else None
        if isinstance(wished, list) and struct is not None:
            return _merge_keyed(field, struct, live, wished)
        if isinstance(wished, list) and field.list_type == "set":
            return merge_items(set_key, live, wished, lambda _, new: new)
    return wished


def _merge_keyed(field: schema.Field, struct: schema.StructType, live: list[JSON], wished: list[JSON]) -> list[JSON]:
    def merge(old: JSON, new: JSON) -> JSON:
        return new if struct.atomic else _merge_struct(struct, old, new)

    return merge_items(partial(item_key, field), live, wished, merge)


def set_key(item: Any) -> str:
    """The path element of a member of a set: v:"a"."""
    return f"v:{msgspec.json.encode(item).decode()}"


def merge_items(
    key_of: Callable[[Any], str], live: list[Any], wished: list[Any], merge: Callable[[Any, Any], Any]
) -> list[Any]:
    """Two lists by key: what both have is merged and comes in the order wished, the others stay around them.

    An item that `live` has several times is not merged. Source: structured-merge-diff typed/merge.go visitListItems.
    """
    before, wishes = [key_of(each) for each in live], [key_of(each) for each in wished]
    single: dict[str, int] = {}
    for position, key in enumerate(before):
        single[key] = -1 if key in single else position
    asked = set(wishes)
    shared = iter([key for key in wishes if key in single])
    due = next(shared, None)
    done: set[str] = set()
    result: list[Any] = []
    left = right = 0
    while left < len(before) or right < len(wishes):
        both = left < len(before) and right < len(wishes)
        if both and before[left] != wishes[right] and before[left] in asked and due not in (None, before[left]):
            left += 1  # both have it, but another is due
            continue
        if left < len(before) and before[left] not in asked:
            result.append(live[left])
            left += 1
            continue
        if left < len(before) and (before[left] in done or (both and before[left] == wishes[right])):
            left += 1
        if right < len(wishes):
            key, new = wishes[right], wished[right]
            done.add(key)
            old = single.get(key, -1)
            result.append(new if old < 0 else merge(live[old], new))
            right += 1
            if due == key:
                due = next(shared, None)
    return result


def _without(struct: schema.StructType, obj: JSON, doomed: Fields) -> JSON:
    """`obj` without the fields of `doomed`: what the manager applied before and wishes no more."""
    result = dict(obj)
    for path, below in doomed.items():
        name = path.removeprefix("f:")
        if not path.startswith("f:") or name not in result:
            continue
        field = struct.json.get(name)
        left = _value_without(field, result[name], below) if below else None
        if left in (None, {}, []):
            result.pop(name)
        else:
            result[name] = left
    return result


def _value_without(field: schema.Field | None, value: Any, doomed: Fields) -> Any:
    if field is None:
        return None
    inner = field.type.struct
    if isinstance(value, dict):
        if inner is not None:
            return _without(inner, value, doomed)
        return {name: each for name, each in value.items() if f"f:{name}" not in doomed}
    if isinstance(value, list):
        element = field.type.element
        if field.list_type == "set":
            return [each for each in value if set_key(each) not in doomed]
        if field.list_type == "map" and element is not None and element.struct is not None:
            result = []
            for item in value:
                below = doomed.get(item_key(field, item))
                if below is None:
                    result.append(item)
                elif below and "." not in below:
                    result.append(_without(element.struct, item, below))
            return result
    return None


# --- conflicts --------------------------------------------------------------------------------------------------------


def _changed(struct: schema.StructType, live: JSON, merged: JSON, wishes: Fields) -> Fields:
    """Those of `wishes` that the object gets, or gets another value for."""
    result: Fields = {}
    for path, below in wishes.items():
        name = path.removeprefix("f:")
        if not path.startswith("f:") or name not in merged:
            continue
        after = merged[name]
        if name not in live:
            result[path] = _with_itself(below)
        elif (before := live[name]) != after:
            field = struct.json.get(name)
            changed = {} if field is None else _value_changed(field, before, after, below)
            if changed is not None:
                result[path] = changed
    return result


def _with_itself(below: Fields) -> Fields:
    """A field with all that is wished below it, each of which is new."""
    return {".": {}, **{name: _with_itself(inner) for name, inner in below.items()}} if below else {}


def _value_changed(field: schema.Field, before: Any, after: Any, wishes: Fields) -> Fields | None:
    """None: nothing of `wishes`. What is only gone from a map or a list with keys is no change of it."""
    if isinstance(after, dict) and not is_atomic(field, field.type):
        if not isinstance(before, dict):
            return _with_itself(wishes)
        inner = field.type.struct
        if inner is not None:
            return _changed(inner, before, after, wishes) or None
        return {path: {} for path in wishes if before.get(path[2:]) != after.get(path[2:])} or None
    if isinstance(after, list) and field.list_type in ("map", "set"):
        if not isinstance(before, list):
            return _with_itself(wishes)
        return _items_changed(field, before, after, wishes) or None
    return {}


def _items_changed(field: schema.Field, before: list[Any], after: list[Any], wishes: Fields) -> Fields:
    element = field.type.element
    if field.list_type == "set" or element is None or element.struct is None:
        present = {set_key(each) for each in before}
        return {path: {} for path in wishes if path not in present}
    known: dict[str, JSON | None] = {}
    for item in before:
        key = item_key(field, item)
        known[key] = None if key in known else item
    result: Fields = {}
    for item in after:
        key = item_key(field, item)
        if key not in wishes:
            continue
        old_item = known.get(key)
        if old_item is None or (element.struct.atomic and old_item != item):
            result[key] = wishes[key]
        elif changed := _changed(element.struct, old_item, item, wishes[key]):
            result[key] = changed
    return result


def _conflict(conflicts: list[tuple[JSON, Fields]]) -> errors.StatusError:
    """409 in the words of managedfields.internal.conflict."""
    causes = []
    lines: dict[str, list[str]] = {}
    for entry, fields in conflicts:
        who = _manager_text(entry)
        for path in _paths(fields):
            lines.setdefault(who, []).append(path)
            causes.append({"reason": "FieldManagerConflict", "message": f"conflict with {who}", "field": path})
    count = len(causes)
    plural = "conflict" if count == 1 else "conflicts"
    if len(lines) == 1 and count == 1:
        who, paths = next(iter(lines.items()))
        message = f"Apply failed with 1 {plural}: conflict with {who}: {paths[0]}"
    else:
        told = []
        for who, paths in sorted(lines.items()):
            told.append(f"conflicts with {who}:")
            told += [f"- {path}" for path in paths]
        message = f"Apply failed with {count} {plural}: " + "\n".join(told)
    return errors.StatusError(409, "Conflict", message, details={"causes": causes})


def _manager_text(entry: JSON) -> str:
    text = f'"{entry.get("manager", "")}"'
    if entry.get("subresource"):
        text += f' with subresource "{entry["subresource"]}"'
    if entry.get("operation") == "Update":
        text += f" using {entry.get('apiVersion', '')}"
    return text


def _paths(fields: Fields, prefix: str = "") -> Iterator[str]:
    """Leaves as fieldpath.Path prints them: .spec.template.spec.containers[name="c"].image

    What is owned itself comes before what is owned below its siblings, as in fieldpath.Set.Iterate.
    """
    named = [(f"{prefix}{_element(name)}", below) for name, below in sorted(fields.items()) if name != "."]
    yield from (path for path, below in named if not below or "." in below)
    for path, below in named:
        yield from _paths(below, path)


def _element(name: str) -> str:
    if name.startswith("f:"):
        return f".{name[2:]}"
    if name.startswith("k:"):
        keys = msgspec.json.decode(name[2:])
        return "[" + ",".join(f"{key}={msgspec.json.encode(value).decode()}" for key, value in keys.items()) + "]"
    return f"[={name[2:]}]"
