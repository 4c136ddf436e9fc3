"""Structural schemas at work: which fields stay, which get defaults, which items must be unique.

A schema is the JSON of a CustomResourceDefinition's openAPIV3Schema. Values are never changed in place: what is pruned
is new wherever a schema says anything of it, and may be defaulted in place. Source: apiextensions-apiserver
pkg/apiserver/schema/{pruning,defaulting,objectmeta,listtype}.
"""

from __future__ import annotations

from copy import deepcopy
from typing import Any

import msgspec

from kubeloop.devcluster.api.name_checks import dns_1035_label
from kubeloop.devcluster.serializer import decoding
from kubeloop.devcluster.validation.common.error_list import ErrorList
from kubeloop.devcluster.validation.common.object_meta import path_segment, validate_object_meta
from kubeloop.kube.json_object import JSON

Schema = dict[str, Any]

PRESERVE = "x-kubernetes-preserve-unknown-fields"
EMBEDDED = "x-kubernetes-embedded-resource"
INT_OR_STRING = "x-kubernetes-int-or-string"
LIST_TYPE = "x-kubernetes-list-type"
LIST_KEYS = "x-kubernetes-list-map-keys"
MAP_TYPE = "x-kubernetes-map-type"
RULES = "x-kubernetes-validations"

META = ("apiVersion", "kind", "metadata")
_encode_sorted = msgspec.json.Encoder(order="sorted").encode


class MetadataError(Exception):
    """The metadata of an object, or of one embedded in it, cannot be read. `path` is "" for the object's own."""

    def __init__(self, path: str, value: Any, why: str) -> None:
        super().__init__(why)
        self.path, self.value = path, value


def additional(schema: Schema) -> tuple[bool, Schema | None]:
    """(are fields beyond the properties foreseen, and their schema if they have one)."""
    more = schema.get("additionalProperties")
    return more is not None, more if isinstance(more, dict) else None


def field_schema(schema: Schema | None, name: str) -> Schema | None:
    """The schema of a field, None for one that nothing is said of."""
    if schema is None:
        return None
    properties = schema.get("properties")
    if properties and name in properties:
        found: Schema = properties[name]
        return found
    return additional(schema)[1]


# --- pruning ----------------------------------------------------------------------------------------------------------


def pruned_object(obj: JSON, schema: Schema) -> tuple[JSON, list[str]]:
    """An object with the fields that its schema knows, and the paths of the others as strict decoding tells them.

    Its metadata, and that of objects embedded in it, is brought into its own form. Raises MetadataError.
    """
    unknown: list[str] = []
    metadata, wrong = _metadata(obj.get("metadata"), "")
    unknown += [f"metadata.{path}" for path in wrong]
    found: list[str] = []
    rest = {name: value for name, value in obj.items() if name not in META}
    below: JSON = _pruned(rest, schema, "", found)
    _drop_nulls(below, schema)
    unknown += sorted(found)
    unknown += _embedded(below, schema, "")
    kept: JSON = {}
    for name in ("apiVersion", "kind"):
        if name in obj:
            kept[name] = obj[name]
    return {**kept, "metadata": metadata, **below}, unknown


def pruned_value(value: Any, schema: Schema) -> tuple[Any, list[str]]:
    """As pruned_object(), for a part of an object. Raises MetadataError."""
    unknown: list[str] = []
    result = _pruned(value, schema, "", unknown)
    return result, sorted(unknown) + _embedded(result, schema, "")


def _metadata(given: Any, path: str) -> tuple[JSON, list[str]]:
    """Metadata as an ObjectMeta, and its unknown fields below it."""
    if given is None:
        return {}, []
    try:
        metadata, unknown = decoding.decode_named("meta/v1.ObjectMeta", given)
    except decoding.DecodeError as error:
        raise MetadataError(path, given, str(error)) from error
    return metadata, [text.removeprefix('unknown field "').removesuffix('"') for text in unknown]


def _pruned(value: Any, schema: Schema | None, path: str, unknown: list[str], *, keeping: bool = False) -> Any:
    """keeping: unknown fields are preserved here; those that are known are looked at all the same."""
    keeping = bool(schema.get(PRESERVE)) or keeping if schema is not None else keeping
    if keeping and schema is None:
        return value
    if isinstance(value, dict):
        if schema is None:
            unknown.extend(f"{path}.{name}" if path else name for name in value)
            return {}
        properties = schema.get("properties") or {}
        foreseen, more = additional(schema)
        embedded = schema.get(EMBEDDED)
        result = {}
        for name, each in value.items():
            below = f"{path}.{name}" if path else name
            if embedded and name in META:
                result[name] = each
            elif name in properties:
                result[name] = _pruned(each, properties[name], below, unknown)
            elif foreseen:
                result[name] = _pruned(each, more, below, unknown)
            elif keeping:
                result[name] = each
            elif path or name not in META:
                unknown.append(below)
        return result
    if isinstance(value, list):
        items = schema.get("items") if schema is not None else None
        return [_pruned(each, items, f"{path}[{index}]", unknown, keeping=keeping) for index, each in enumerate(value)]
    return value


def _drop_nulls(value: Any, schema: Schema | None) -> None:
    """Take out, in place, fields that are null and may neither be that nor have a default."""
    if schema is None:
        return  # below there is nothing whose schema is known
    if isinstance(value, dict):
        for name in [*value]:
            known = field_schema(schema, name)
            if value[name] is None and known is not None and not known.get("nullable") and known.get("default") is None:
                del value[name]
            else:
                _drop_nulls(value[name], known)
    elif isinstance(value, list):
        for each in value:
            _drop_nulls(each, schema.get("items"))


def _embedded(value: Any, schema: Schema | None, path: str) -> list[str]:
    """Bring the metadata of embedded objects, in place, into its form; returns the paths of its unknown fields."""
    if schema is None:
        return []
    unknown: list[str] = []
    if isinstance(value, dict):
        if schema.get(EMBEDDED):
            for name in ("apiVersion", "kind"):
                if name in value and not isinstance(value[name], str):
                    raise MetadataError(f"{path}.{name}" if path else name, value[name], "must be a string")
            if "metadata" in value:
                below = f"{path}.metadata" if path else "metadata"
                value["metadata"], wrong = _metadata(value["metadata"], below)
                unknown += [f"{below}.{each}" for each in wrong]
        for name, each in value.items():
            unknown += _embedded(each, field_schema(schema, name), f"{path}.{name}" if path else name)
    elif isinstance(value, list):
        for index, each in enumerate(value):
            unknown += _embedded(each, schema.get("items"), f"{path}[{index}]")
    return unknown


# --- defaults ---------------------------------------------------------------------------------------------------------


def _is_unfit_null(value: Any, schema: Schema | None) -> bool:
    return value is None and schema is not None and not schema.get("nullable")


def apply_defaults(value: Any, schema: Schema | None) -> None:
    """Fill in, in place, the defaults of fields that are not there, or null where null is not allowed."""
    if schema is None:
        return
    if isinstance(value, dict):
        properties = schema.get("properties") or {}
        for name, known in properties.items():
            default = known.get("default")
            if default is not None and (name not in value or _is_unfit_null(value[name], known)):
                value[name] = deepcopy(default)
        more = additional(schema)[1]
        for name in value:
            if name in properties:
                apply_defaults(value[name], properties[name])
            elif more is not None:
                if _is_unfit_null(value[name], more):
                    value[name] = deepcopy(more.get("default"))
                apply_defaults(value[name], more)
    elif isinstance(value, list):
        items = schema.get("items")
        for index, each in enumerate(value):
            if items is not None and _is_unfit_null(each, items):
                value[index] = deepcopy(items.get("default"))
            apply_defaults(value[index], items)


# --- invariants -------------------------------------------------------------------------------------------------------


def check_embedded(errors: ErrorList, value: Any, schema: Schema | None, path: str = "") -> None:
    """Do embedded objects have an apiVersion, a kind and valid metadata?"""
    if schema is None:
        return
    if isinstance(value, dict):
        if schema.get(EMBEDDED):
            _check_embedded_object(errors, value, path)
        for name, each in value.items():
            below = f"{path}.{name}" if path else name
            if name not in (schema.get("properties") or {}):
                below = f"{path}[{name}]"
            check_embedded(errors, each, field_schema(schema, name), below)
    elif isinstance(value, list):
        for index, each in enumerate(value):
            check_embedded(errors, each, schema.get("items"), f"{path}[{index}]")


def _check_embedded_object(errors: ErrorList, obj: JSON, path: str) -> None:
    for name in ("apiVersion", "kind"):
        if name not in obj:
            errors.required(f"{path}.{name}")
        elif not isinstance(obj[name], str):
            errors.invalid(f"{path}.{name}", obj[name], "must be a string")
        elif not obj[name]:
            errors.invalid(f"{path}.{name}", "", "must not be empty")
    api_version, kind = obj.get("apiVersion"), obj.get("kind")
    if isinstance(api_version, str) and api_version.count("/") > 1:
        errors.invalid(f"{path}.apiVersion", api_version, f"unexpected GroupVersion string: {api_version}")
    if isinstance(kind, str) and kind and (wrong := dns_1035_label(kind.lower())):
        told = f"may have mixed case, but should otherwise match: {','.join(wrong)}"
        errors.invalid(f"{path}.kind", kind, told)
    metadata = obj.get("metadata")
    if isinstance(metadata, dict):
        found = ErrorList()
        named = {"name": "fakename", **metadata}
        validate_object_meta(found, named, namespaced=bool(metadata.get("namespace")), name_check=path_segment)
        errors.extend({**each, "field": f"{path}.{each['field']}"} for each in found)


def check_unique_items(errors: ErrorList, value: Any, schema: Schema | None, path: str = "") -> None:
    """Are the items of lists that are sets, or maps by keys, there once only?"""
    if schema is None:
        return
    if isinstance(value, dict):
        properties = schema.get("properties") or {}
        more = additional(schema)[1]
        for name, each in value.items():
            if name in properties:
                check_unique_items(errors, each, properties[name], f"{path}.{name}" if path else name)
            if more is not None:
                check_unique_items(errors, each, more, f"{path}[{name}]")
    elif isinstance(value, list):
        kind = schema.get(LIST_TYPE)
        if kind == "set":
            for index in _repeated(value):
                errors.duplicate(f"{path}[{index}]", value[index])
        elif kind == "map" and not _check_objects(errors, value, path):
            keys = [_keys_of(each, schema.get(LIST_KEYS) or ()) for each in value]
            for index in _repeated(keys):
                errors.duplicate(f"{path}[{index}]", keys[index])
        for index, each in enumerate(value):
            check_unique_items(errors, each, schema.get("items"), f"{path}[{index}]")


def _check_objects(errors: ErrorList, items: list[Any], path: str) -> bool:
    """Tell of the first item that is no object; True if there is one."""
    for index, each in enumerate(items):
        if each is not None and not isinstance(each, dict):
            errors.invalid(f"{path}[{index}]", each, "must be an object for an array of list-type map")
            return True
    return False


def _keys_of(item: JSON | None, keys: Any) -> JSON:
    return {} if item is None else {name: item[name] for name in keys if name in item}


def _repeated(items: list[Any]) -> list[int]:
    """Indices of the second appearances."""
    seen: dict[bytes, int] = {}
    found = []
    for index, each in enumerate(items):
        text = _encode_sorted(each)
        seen[text] = seen.get(text, 0) + 1
        if seen[text] == 2:
            found.append(index)
    return found


def walk(schema: Schema, path: str = "") -> list[tuple[str, Schema]]:
    """A schema and all schemas in it, with their paths as a definition's errors name them."""
    found = [(path, schema)]
    for name, each in (schema.get("properties") or {}).items():
        found += walk(each, f"{path}.properties[{name}]")
    for part in ("additionalProperties", "items", "not"):
        if isinstance(schema.get(part), dict):
            found += walk(schema[part], f"{path}.{part}")
    for part in ("allOf", "anyOf", "oneOf"):
        for index, each in enumerate(schema.get(part) or ()):
            found += walk(each, f"{path}.{part}[{index}]")
    return found
