"""Structural schemas applied to objects: pruning, defaulting, embedded objects and unique list items.

A schema is the JSON of a CustomResourceDefinition's openAPIV3Schema. Pruning never changes a value in place: it returns
new dicts and lists wherever a schema applies, which may then be defaulted in place. Source: apiextensions-apiserver
pkg/apiserver/schema/{pruning,defaulting,objectmeta,listtype}.
"""

from __future__ import annotations

from copy import deepcopy
from typing import Any

import msgspec

from kubeloop.devcluster.serializer import decoding
from kubeloop.devcluster.validation.common.error_list import ErrorList
from kubeloop.devcluster.validation.common.object_meta import path_segment, validate_object_meta
from kubeloop.kube.json_object import JSON
from kubeloop.kube.validation.name_checks import dns_1035_label

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
    """Metadata that cannot be decoded. `path` is that of the embedded object's metadata, "" for the object's own."""

    def __init__(self, path: str, value: Any, message: str) -> None:
        super().__init__(message)
        self.path, self.value = path, value


def additional_properties_of(schema: Schema) -> tuple[bool, Schema | None]:
    """Return (True if fields beyond `properties` are allowed, their schema or None)."""
    additional_properties = schema.get("additionalProperties")
    return additional_properties is not None, additional_properties if isinstance(additional_properties, dict) else None


def field_schema(schema: Schema | None, name: str) -> Schema | None:
    """Return the schema of a field, None if the schema does not specify one."""
    if schema is None:
        return None
    properties = schema.get("properties")
    if properties and name in properties:
        property_schema: Schema = properties[name]
        return property_schema
    return additional_properties_of(schema)[1]


# --- pruning ----------------------------------------------------------------------------------------------------------


def pruned_object(obj: JSON, schema: Schema) -> tuple[JSON, list[str]]:
    """Return an object with only the fields of its schema, and the paths of unknown fields for strict decoding.

    Its metadata and that of embedded objects are normalized as ObjectMeta. Raises MetadataError.
    """
    unknown: list[str] = []
    metadata, unknown_metadata = _decode_metadata(obj.get("metadata"), "")
    unknown += [f"metadata.{path}" for path in unknown_metadata]
    pruned_paths: list[str] = []
    fields = {name: value for name, value in obj.items() if name not in META}
    pruned: JSON = _prune(fields, schema, "", pruned_paths)
    _remove_nulls(pruned, schema)
    unknown += sorted(pruned_paths)
    unknown += _normalize_embedded(pruned, schema, "")
    type_meta: JSON = {}
    for name in ("apiVersion", "kind"):
        if name in obj:
            type_meta[name] = obj[name]
    return {**type_meta, "metadata": metadata, **pruned}, unknown


def pruned_value(value: Any, schema: Schema) -> tuple[Any, list[str]]:
    """Prune a part of an object, as pruned_object() does for a whole one. Raises MetadataError."""
    unknown: list[str] = []
    result = _prune(value, schema, "", unknown)
    return result, sorted(unknown) + _normalize_embedded(result, schema, "")


def _decode_metadata(value: Any, path: str) -> tuple[JSON, list[str]]:
    """Return a value decoded as ObjectMeta, and the paths of its unknown fields."""
    if value is None:
        return {}, []
    try:
        metadata, unknown = decoding.decode_named("meta/v1.ObjectMeta", value)
    except decoding.DecodeError as error:
        raise MetadataError(path, value, str(error)) from error
    return metadata, [text.removeprefix('unknown field "').removesuffix('"') for text in unknown]


def _prune(value: Any, schema: Schema | None, path: str, unknown: list[str], *, preserve: bool = False) -> Any:
    """Return a pruned value. preserve: unknown fields are kept here; known fields are still pruned below."""
    preserve = bool(schema.get(PRESERVE)) or preserve if schema is not None else preserve
    if preserve and schema is None:
        return value
    if isinstance(value, dict):
        if schema is None:
            unknown.extend(f"{path}.{name}" if path else name for name in value)
            return {}
        properties = schema.get("properties") or {}
        allows_additional, additional_schema = additional_properties_of(schema)
        embedded = schema.get(EMBEDDED)
        result = {}
        for name, field in value.items():
            below = f"{path}.{name}" if path else name
            if embedded and name in META:
                result[name] = field
            elif name in properties:
                result[name] = _prune(field, properties[name], below, unknown)
            elif allows_additional:
                result[name] = _prune(field, additional_schema, below, unknown)
            elif preserve:
                result[name] = field
            elif path or name not in META:
                unknown.append(below)
        return result
    if isinstance(value, list):
        items = schema.get("items") if schema is not None else None
        return [_prune(item, items, f"{path}[{index}]", unknown, preserve=preserve) for index, item in enumerate(value)]
    return value


def _remove_nulls(value: Any, schema: Schema | None) -> None:
    """Remove, in place, null fields that are not nullable and have no default."""
    if schema is None:
        return
    if isinstance(value, dict):
        for name in [*value]:
            property_schema = field_schema(schema, name)
            if (
                value[name] is None
                and property_schema is not None
                and not property_schema.get("nullable")
                and property_schema.get("default") is None
            ):
                del value[name]
            else:
                _remove_nulls(value[name], property_schema)
    elif isinstance(value, list):
        for item in value:
            _remove_nulls(item, schema.get("items"))


def _normalize_embedded(value: Any, schema: Schema | None, path: str) -> list[str]:
    """Normalize the metadata of embedded objects in place, and return the paths of its unknown fields."""
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
                value["metadata"], unknown_metadata = _decode_metadata(value["metadata"], below)
                unknown += [f"{below}.{unknown_path}" for unknown_path in unknown_metadata]
        for name, field in value.items():
            unknown += _normalize_embedded(field, field_schema(schema, name), f"{path}.{name}" if path else name)
    elif isinstance(value, list):
        for index, item in enumerate(value):
            unknown += _normalize_embedded(item, schema.get("items"), f"{path}[{index}]")
    return unknown


# --- defaults ---------------------------------------------------------------------------------------------------------


def _is_disallowed_null(value: Any, schema: Schema | None) -> bool:
    return value is None and schema is not None and not schema.get("nullable")


def apply_defaults(value: Any, schema: Schema | None) -> None:
    """Set, in place, defaults of fields that are missing, or null where null is not allowed."""
    if schema is None:
        return
    if isinstance(value, dict):
        properties = schema.get("properties") or {}
        for name, property_schema in properties.items():
            default = property_schema.get("default")
            if default is not None and (name not in value or _is_disallowed_null(value[name], property_schema)):
                value[name] = deepcopy(default)
        additional_schema = additional_properties_of(schema)[1]
        for name in value:
            if name in properties:
                apply_defaults(value[name], properties[name])
            elif additional_schema is not None:
                if _is_disallowed_null(value[name], additional_schema):
                    value[name] = deepcopy(additional_schema.get("default"))
                apply_defaults(value[name], additional_schema)
    elif isinstance(value, list):
        items = schema.get("items")
        for index, item in enumerate(value):
            if items is not None and _is_disallowed_null(item, items):
                value[index] = deepcopy(items.get("default"))
            apply_defaults(value[index], items)


# --- invariants -------------------------------------------------------------------------------------------------------


def check_embedded(errors: ErrorList, value: Any, schema: Schema | None, path: str = "") -> None:
    """Check that embedded objects have an apiVersion, a kind and valid metadata."""
    if schema is None:
        return
    if isinstance(value, dict):
        if schema.get(EMBEDDED):
            _check_embedded_object(errors, value, path)
        for name, field in value.items():
            below = f"{path}.{name}" if path else name
            if name not in (schema.get("properties") or {}):
                below = f"{path}[{name}]"
            check_embedded(errors, field, field_schema(schema, name), below)
    elif isinstance(value, list):
        for index, item in enumerate(value):
            check_embedded(errors, item, schema.get("items"), f"{path}[{index}]")


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
    if isinstance(kind, str) and kind and (messages := dns_1035_label(kind.lower())):
        message = f"may have mixed case, but should otherwise match: {','.join(messages)}"
        errors.invalid(f"{path}.kind", kind, message)
    metadata = obj.get("metadata")
    if isinstance(metadata, dict):
        causes = ErrorList()
        metadata_with_name = {"name": "fakename", **metadata}
        validate_object_meta(
            causes, metadata_with_name, namespaced=bool(metadata.get("namespace")), name_check=path_segment
        )
        errors.extend({**cause, "field": f"{path}.{cause['field']}"} for cause in causes)


def check_unique_items(errors: ErrorList, value: Any, schema: Schema | None, path: str = "") -> None:
    """Check that lists of type set or map have no duplicate items."""
    if schema is None:
        return
    if isinstance(value, dict):
        properties = schema.get("properties") or {}
        additional = additional_properties_of(schema)[1]
        for name, field in value.items():
            if name in properties:
                check_unique_items(errors, field, properties[name], f"{path}.{name}" if path else name)
            if additional is not None:
                check_unique_items(errors, field, additional, f"{path}[{name}]")
    elif isinstance(value, list):
        list_type = schema.get(LIST_TYPE)
        if list_type == "set":
            for index in _duplicate_indexes(value):
                errors.duplicate(f"{path}[{index}]", value[index])
        elif list_type == "map" and not _check_items_are_objects(errors, value, path):
            keys = [_keys_of(item, schema.get(LIST_KEYS) or ()) for item in value]
            for index in _duplicate_indexes(keys):
                errors.duplicate(f"{path}[{index}]", keys[index])
        for index, item in enumerate(value):
            check_unique_items(errors, item, schema.get("items"), f"{path}[{index}]")


def _check_items_are_objects(errors: ErrorList, items: list[Any], path: str) -> bool:
    """Return True, and add a cause, if an item is not an object."""
    for index, item in enumerate(items):
        if item is not None and not isinstance(item, dict):
            errors.invalid(f"{path}[{index}]", item, "must be an object for an array of list-type map")
            return True
    return False


def _keys_of(item: JSON | None, keys: Any) -> JSON:
    return {} if item is None else {name: item[name] for name in keys if name in item}


def _duplicate_indexes(items: list[Any]) -> list[int]:
    """Return the index of the second occurrence of each item that is repeated."""
    counts: dict[bytes, int] = {}
    duplicates = []
    for index, item in enumerate(items):
        text = _encode_sorted(item)
        counts[text] = counts.get(text, 0) + 1
        if counts[text] == 2:
            duplicates.append(index)
    return duplicates


def walk(schema: Schema, path: str = "") -> list[tuple[str, Schema]]:
    """Return a schema and all its subschemas, with the paths that a definition's errors use."""
    subschemas = [(path, schema)]
    for name, subschema in (schema.get("properties") or {}).items():
        subschemas += walk(subschema, f"{path}.properties[{name}]")
    for part in ("additionalProperties", "items", "not"):
        if isinstance(schema.get(part), dict):
            subschemas += walk(schema[part], f"{path}.{part}")
    for part in ("allOf", "anyOf", "oneOf"):
        for index, subschema in enumerate(schema.get(part) or ()):
            subschemas += walk(subschema, f"{path}.{part}[{index}]")
    return subschemas
