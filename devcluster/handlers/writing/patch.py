"""Patches of objects: JSON patch, merge patch, strategic merge patch, and configurations of server-side apply.

Refusals have v1.36's messages. Source: apiserver pkg/endpoints/handlers/patch.go.
"""

from __future__ import annotations

from typing import Any

import msgspec

from kubeloop.devcluster.api import errors
from kubeloop.devcluster.api.request import ApiRequest
from kubeloop.devcluster.api.served_resources import CUSTOM_RESOURCE_PATCHES, ServedResource
from kubeloop.devcluster.api.strategy import CustomResource
from kubeloop.devcluster.languages.go_text import go_print
from kubeloop.devcluster.managedfields.go_types import value_type_of
from kubeloop.devcluster.managedfields.typed_validation import conversion_error, truncate_numbers, type_error
from kubeloop.devcluster.serializer import decoding, patches
from kubeloop.devcluster.serializer.controller_revision_data import record_patched_text
from kubeloop.devcluster.serializer.request_bodies import (
    Body,
    check_type_meta,
    format_strict_errors,
    in_document_order,
    keep_managed_fields_reset,
    kind_mismatch_message,
    parse_json,
    parse_yaml,
    unknown_in_sorted_order,
)
from kubeloop.kube import schema
from kubeloop.kube.json_object import JSON
from kubeloop.kube.objects.resources import Resource
from kubeloop.kube.validation.field_errors import quoted

_encode_sorted = msgspec.json.Encoder(order="sorted").encode

APPLY = "application/apply-patch+yaml"
_JSON_PATCH = "application/json-patch+json"
_MERGE = "application/merge-patch+json"
_STRATEGIC = "application/strategic-merge-patch+json"
PATCH_TYPES = (_JSON_PATCH, _MERGE, _STRATEGIC, APPLY)


def patch_type(request: ApiRequest) -> str:
    """Return the Content-Type up to a semicolon; its case is significant, as in kube-apiserver."""
    return request.headers.get("content-type", "").partition(";")[0]


def check_patch_type(served: ServedResource, media_type: str) -> None:
    """Raise StatusError 415 for a patch of a type that the resource does not support."""
    if served.crd_version is None:
        if media_type not in PATCH_TYPES:
            raise errors.unsupported_media_type()
    elif media_type not in CUSTOM_RESOURCE_PATCHES:
        message = "the body of the request was in an unknown format - accepted media types include: "
        raise errors.StatusError(415, "UnsupportedMediaType", message + ", ".join(CUSTOM_RESOURCE_PATCHES))


def patch_option_causes(request: ApiRequest, kind: str) -> list[JSON]:
    """Return the causes against `fieldManager` and `force` options that do not fit the patch type."""
    causes = []
    if kind == APPLY:
        if not request.option("fieldManager"):
            text = "Required value: is required for apply patch"
            causes.append(errors.cause("FieldValueRequired", "fieldManager", text))
    elif "force" in request.query:
        text = "Forbidden: may not be specified for non-apply patch"
        causes.append(errors.cause("FieldValueForbidden", "force", text))
    return causes


def patched(
    live: JSON, body: bytes, kind: str, resource: Resource[Any], mode: str, *, writes_status: bool = False
) -> Body:
    """Return the live object with the patch, decoded. writes_status: see decode_patched(). Raises StatusError."""
    obj, patch, strict = _applied(live, body, kind, resource)
    result = _decoded(obj, live, patch, strict, resource, mode, kind, writes_status=writes_status)
    record_patched_text(resource, result.obj, live, is_typed=kind == _STRATEGIC)
    return result


def _applied(live: JSON, body: bytes, kind: str, resource: Resource[Any]) -> tuple[Any, Any, list[str]]:
    """Return (patched object as plain JSON, patch, its strict decoding errors). Raises StatusError."""
    prefix = "" if kind == _STRATEGIC else "error decoding patch: "
    try:
        patch, strict = parse_json(body, untyped=True)
    except ValueError as error:
        raise errors.bad_request(f"{prefix}{error}") from error
    if kind == _JSON_PATCH:
        strict = in_document_order(body, strict + _check_operations(patch))
        strict = [f"json patch {error_text}" for error_text in strict]
        try:
            return patches.json_patch(live, patch or []), patch, strict
        except patches.PatchError:
            raise patches.invalid_patch_error() from None
    if patch is None:
        if kind == _MERGE:
            raise errors.bad_request("Invalid JSON Patch")
        patch = {}
    if not isinstance(patch, dict):
        message = f"json: cannot unmarshal {_kind_of(patch)} into Go value of type map[string]interface {{}}"
        raise errors.bad_request(f"{prefix}{message}")
    if kind == _MERGE:
        return patches.merge_patch(live, patch), patch, strict
    struct = schema.type_for(resource.group, resource.version, resource.kind)
    try:
        return patches.strategic_patch(live, patch, struct), patch, strict
    except patches.MalformedPatch as error:
        raise errors.bad_request(str(error)) from error
    except patches.PatchError as error:
        raise errors.internal(str(error)) from error


_OPERATION = {"op": str, "path": str, "from": str, "value": object}


def _check_operations(patch: Any) -> list[str]:
    """Return the strict errors of a JSON patch. Raises StatusError 400 if it is not a list of operations."""

    def refuse(value: Any, into: str) -> errors.StatusError:
        return errors.bad_request(f"error decoding patch: json: cannot unmarshal {_kind_of(value)} into Go {into}")

    if patch is None:
        return []
    if not isinstance(patch, list):
        raise refuse(patch, "value of type []handlers.jsonPatchOp")
    unknown = []
    for index, operation in enumerate(patch):
        if operation is None:
            continue
        if not isinstance(operation, dict):
            raise refuse(operation, "value of type handlers.jsonPatchOp")
        for name, value in operation.items():
            expected = _OPERATION.get(name)
            if expected is None:
                unknown.append(f'unknown field "[{index}].{name}"')
            elif expected is str and value is not None and not isinstance(value, str):
                raise refuse(value, f"struct field jsonPatchOp.{name} of type string")
    if len(patch) > _MAX_OPERATIONS:
        text = f"The allowed maximum operations in a JSON patch is {_MAX_OPERATIONS}, got {len(patch)}"
        raise errors.StatusError(413, "RequestEntityTooLarge", f"Request entity too large: {text}", details={})
    return unknown


_MAX_OPERATIONS = 10_000


def read_configuration(body: bytes, resource: Resource[Any]) -> tuple[JSON, list[str]]:
    """Return an applied configuration and its repeated keys (see repeated_key_warnings()).

    Raises StatusError 400; 500 if it does not fit its type.
    """
    try:
        configuration, repeated = _plain(body)
    except ValueError as error:
        raise errors.bad_request(f"error decoding YAML: error converting YAML to JSON: {error}") from error
    if configuration is None:
        configuration = {}
    if not isinstance(configuration, dict):
        message = f"json: cannot unmarshal {_kind_of(configuration)} into Go value of type map[string]interface {{}}"
        raise errors.bad_request(f"error decoding YAML: error unmarshaling JSON: while decoding JSON: {message}")
    if (configuration.get("apiVersion"), configuration.get("kind")) != (resource.api_version, resource.kind):
        raise errors.bad_request(f"invalid object type: {_go_kind(configuration)}")
    metadata = configuration.get("metadata")
    if isinstance(metadata, dict) and metadata.get("managedFields") is not None:
        raise errors.bad_request("metadata.managedFields must be nil")
    struct = schema.type_for(resource.group, resource.version, resource.kind)
    named = metadata if isinstance(metadata, dict) else {}
    space, name = (text if isinstance(text := named.get(field), str) else "" for field in ("namespace", "name"))
    description = f"({space}/{name}; {_go_kind(configuration)})"
    if type_message := type_error(value_type_of(resource), configuration):
        raise errors.internal(f"failed to create typed patch object {description}: {type_message}")
    if struct is not None:
        ref = schema.TypeRef(struct.name, "struct", named=struct.name)
        conversion_message = conversion_error(ref, configuration)
        configuration = configuration if conversion_message else truncate_numbers(ref, configuration)
    try:
        decoding.decode(resource, configuration)
    except decoding.DecodeError as error:
        converting = f"unable to convert unstructured object to {_go_kind(configuration)}"
        message = (
            f"failed to convert new object {description} to proper version: {converting}: {conversion_message or error}"
        )
        raise errors.internal(message) from error
    return configuration, repeated


def repeated_key_warnings(repeated: list[str], mode: str) -> list[str]:
    """Return the warnings for repeated keys of a configuration. Raises StatusError 400 in strict mode."""
    if repeated and mode == "Strict":
        lines = "\n  ".join(repeated)
        message = f"error converting YAML to JSON: yaml: unmarshal errors:\n  {lines}"
        raise errors.bad_request(f"error strict decoding YAML: {message}")
    return repeated if mode == "Warn" else []


def _plain(body: bytes) -> tuple[Any, list[str]]:
    """Parse YAML; JSON without repeated keys is parsed as JSON, in a hundredth of the time."""
    if body.startswith(b"{"):
        try:
            value, repeated = parse_json(body)
        except ValueError:
            repeated = [""]
        if not repeated:
            return value, []
    return parse_yaml(body)


def _go_kind(obj: JSON) -> str:
    """Return a GroupVersionKind in Go's format: "apps/v1, Kind=Deployment", "/v1, Kind=Pod"."""
    group, _, version = str(obj.get("apiVersion") or "").rpartition("/")
    return f"{group}/{version}, Kind={obj.get('kind') or ''}"


def _kind_of(value: Any) -> str:
    return {dict: "object", list: "array", str: "string", bool: "bool", type(None): "null"}.get(type(value), "number")


def _decoded(
    patched: Any,
    live: JSON,
    patch: Any,
    strict: list[str],
    resource: Resource[Any],
    mode: str,
    kind: str,
    *,
    writes_status: bool,
) -> Body:
    """Decode the patched object. Raises StatusError 422 with v1.36's messages."""

    def refused(reason: str) -> errors.StatusError:
        if kind == _STRATEGIC:
            value = go_print(patches.remaining_patch(patch, live))
        else:
            value = _encode_sorted(patched).decode()
        text = f"Invalid value: {quoted(value)}: {reason}"
        return errors.invalid("", "", "", [errors.cause("FieldValueInvalid", "patch", text)])

    if not isinstance(patched, dict):
        target = "map[string]interface {}"
        raise refused(f"json: cannot unmarshal {_kind_of(patched)} into Go value of type {target}")
    if kind != _STRATEGIC:
        try:
            check_type_meta(patched)
        except ValueError as error:
            raise refused(str(error)) from error
    if isinstance(resource, CustomResource) and not patched.get("kind"):
        raise refused(f"Object 'Kind' is missing in '{_encode_sorted(patched).decode()}'")
    patched_kind, api_version = patched.get("kind") or resource.kind, patched.get("apiVersion") or ""
    if (patched_kind, api_version or resource.api_version) != (resource.kind, resource.api_version):
        if isinstance(resource, CustomResource):
            raise resource.rules.wrong_kind(patched)
        if kind != _STRATEGIC and not api_version:
            group = quoted(resource.group)
            raise refused(f"no kind {quoted(patched_kind)} is registered for the internal version of group {group}")
        if kind != _STRATEGIC:
            raise refused(kind_mismatch_message(api_version, patched_kind, resource))
        if isinstance(patched_kind, str) and isinstance(api_version, str):
            patched = {**patched, "kind": resource.kind, "apiVersion": resource.api_version}
    if kind != _STRATEGIC and not api_version and not isinstance(resource, CustomResource):
        # kube-apiserver decodes it in the internal version, whose fields have other names
        strict = [*strict, *(f'unknown field "{name}"' for name in patched if name not in ("kind", "apiVersion"))]
        patched = {"metadata": {}}
    try:
        obj, unknown = decoding.decode_patched(resource, patched, live, writes_status=writes_status)
    except decoding.DecodeError as error:
        struct = schema.type_for(resource.group, resource.version, resource.kind)
        message = ""
        if kind == _STRATEGIC and struct is not None:
            message = conversion_error(schema.TypeRef(struct.name, "struct", named=struct.name), patched)
        raise refused(message or str(error)) from error
    if strict or unknown:
        # the patch and the patched object are decoded one after the other
        strict = strict + (
            sorted(unknown) if kind == _STRATEGIC else unknown_in_sorted_order(resource, patched, unknown)
        )
        if mode == "Strict":
            raise refused(f"strict decoding error: {format_strict_errors(strict)}")
    obj.setdefault("metadata", {})
    keep_managed_fields_reset(patched, obj)
    return Body(obj, strict if mode == "Warn" else [], patched)
