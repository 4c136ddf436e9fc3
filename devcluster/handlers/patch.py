"""Reading patches: which kind a request brings, what it makes of an object, and what is refused in v1.36's words.

Source: apiserver pkg/endpoints/handlers/patch.go.
"""

from __future__ import annotations

from typing import Any

import msgspec

from kubeloop.devcluster.api import errors
from kubeloop.devcluster.api.errors import quoted
from kubeloop.devcluster.api.request import Request
from kubeloop.devcluster.api.served_resources import CustomResource
from kubeloop.devcluster.managedfields.typed_validation import conversion_error, type_error, with_go_numbers
from kubeloop.devcluster.serializer import decoding, patches
from kubeloop.devcluster.serializer.controller_revision_data import keep_patched_text
from kubeloop.devcluster.serializer.request_bodies import (
    Body,
    all_strict,
    check_type_meta,
    keep_reset,
    parse_json,
    strict_text,
    unknown_kind,
)
from kubeloop.kube import schema
from kubeloop.kube.json_object import JSON
from kubeloop.kube.objects.resources import Resource

_encode_sorted = msgspec.json.Encoder(order="sorted").encode

APPLY = "application/apply-patch+yaml"
_JSON_PATCH = "application/json-patch+json"
_MERGE = "application/merge-patch+json"
_STRATEGIC = "application/strategic-merge-patch+json"
PATCH_TYPES = (_JSON_PATCH, _MERGE, _STRATEGIC, APPLY)


def patch_type(request: Request) -> str:
    """The Content-Type up to a semicolon, as it is written: kube-apiserver does not fold its case."""
    return request.headers.get("content-type", "").partition(";")[0]


def check_patch_options(request: Request, kind: str) -> None:
    causes = []
    if kind == APPLY:
        if not request.option("fieldManager"):
            text = "Required value: is required for apply patch"
            causes.append(errors.cause("FieldValueRequired", "fieldManager", text))
    elif "force" in request.query:
        text = "Forbidden: may not be specified for non-apply patch"
        causes.append(errors.cause("FieldValueForbidden", "force", text))
    if causes:
        raise errors.options_invalid("PatchOptions", causes)


def patched(live: JSON, body: bytes, kind: str, resource: Resource[Any], mode: str) -> Body:
    """What the patch makes of the live object, in the server's form. Raises StatusError."""
    obj, patch, strict = _applied(live, body, kind, resource)
    result = _decoded(obj, live, patch, strict, resource, mode, kind)
    keep_patched_text(resource, result.obj, live, is_typed=kind == _STRATEGIC)
    return result


def _applied(live: JSON, body: bytes, kind: str, resource: Resource[Any]) -> tuple[Any, Any, list[str]]:
    """The live object with the patch, as plain JSON; the patch; its strict errors. Raises StatusError."""
    told = "" if kind == _STRATEGIC else "error decoding patch: "
    try:
        patch, strict = parse_json(body)
    except ValueError as error:
        raise errors.bad_request(f"{told}{error}") from error
    if kind == _JSON_PATCH:
        strict = _check_operations(patch) + [f"json patch {each}" for each in strict]
        try:
            return patches.json_patch(live, patch or []), patch, strict
        except patches.PatchError:
            raise patches.refused() from None
    if patch is None:
        if kind == _MERGE:
            raise errors.bad_request("Invalid JSON Patch")
        patch = {}
    if not isinstance(patch, dict):
        wrong = f"json: cannot unmarshal {_kind_of(patch)} into Go value of type map[string]interface {{}}"
        raise errors.bad_request(f"{told}{wrong}")
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
    """The strict errors of a JSON patch. Raises StatusError 400 if it is no list of operations."""

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
                unknown.append(f'json patch unknown field "[{index}].{name}"')
            elif expected is str and value is not None and not isinstance(value, str):
                raise refuse(value, f"struct field jsonPatchOp.{name} of type string")
    if len(patch) > _MAX_OPERATIONS:
        text = f"The allowed maximum operations in a JSON patch is {_MAX_OPERATIONS}, got {len(patch)}"
        raise errors.StatusError(413, "RequestEntityTooLarge", f"Request entity too large: {text}", details={})
    return unknown


_MAX_OPERATIONS = 10_000


def read_configuration(body: bytes, resource: Resource[Any]) -> tuple[JSON, list[str]]:
    """An applied configuration and its repeated keys (see told_of_repeated()).

    Raises StatusError 400; 500 where it does not fit its type.
    """
    try:
        given, repeated = _plain(body)
    except ValueError as error:
        raise errors.bad_request(f"error decoding YAML: error converting YAML to JSON: {error}") from error
    if given is None:
        given = {}
    if not isinstance(given, dict):
        wrong = f"json: cannot unmarshal {_kind_of(given)} into Go value of type map[string]interface {{}}"
        raise errors.bad_request(f"error decoding YAML: error unmarshaling JSON: while decoding JSON: {wrong}")
    if (given.get("apiVersion"), given.get("kind")) != (resource.api_version, resource.kind):
        raise errors.bad_request(f"invalid object type: {_go_kind(given)}")
    metadata = given.get("metadata")
    if isinstance(metadata, dict) and metadata.get("managedFields") is not None:
        raise errors.bad_request("metadata.managedFields must be nil")
    struct = schema.type_for(resource.group, resource.version, resource.kind)
    named = metadata if isinstance(metadata, dict) else {}
    space, name = (text if isinstance(text := named.get(each), str) else "" for each in ("namespace", "name"))
    what = f"({space}/{name}; {_go_kind(given)})"
    wrong = type_error(struct, given) if struct is not None else ""
    if isinstance(resource, CustomResource):
        wrong = resource.rules.type_error(given)
    if wrong:
        raise errors.internal(f"failed to create typed patch object {what}: {wrong}")
    if struct is not None:
        ref = schema.TypeRef(struct.name, "struct", named=struct.name)
        wrong = conversion_error(ref, given)
        given = given if wrong else with_go_numbers(ref, given)
    try:
        decoding.decode(resource, given)
    except decoding.DecodeError as error:
        converting = f"unable to convert unstructured object to {_go_kind(given)}"
        told = f"failed to convert new object {what} to proper version: {converting}: {wrong or error}"
        raise errors.internal(told) from error
    return given, repeated


def told_of_repeated(repeated: list[str], mode: str) -> list[str]:
    """The warnings of a configuration that has been applied. Raises StatusError 400 in strict mode."""
    if repeated and mode == "Strict":
        lines = "\n  ".join(repeated)
        wrong = f"error converting YAML to JSON: yaml: unmarshal errors:\n  {lines}"
        raise errors.bad_request(f"error strict decoding YAML: {wrong}")
    return repeated if mode == "Warn" else []


def _plain(body: bytes) -> tuple[Any, list[str]]:
    """YAML; what is JSON without repeated keys is read as such, which takes a hundredth of the time."""
    if body.startswith(b"{"):
        try:
            value, repeated = parse_json(body)
        except ValueError:
            repeated = [""]
        if not repeated:
            return value, []
    from kubeloop.kube import yaml  # once a client sends it

    return yaml.read_first(body)


def _go_kind(obj: JSON) -> str:
    """A GroupVersionKind as Go prints it: "apps/v1, Kind=Deployment", "/v1, Kind=Pod"."""
    group, _, version = str(obj.get("apiVersion") or "").rpartition("/")
    return f"{group}/{version}, Kind={obj.get('kind') or ''}"


def _kind_of(value: Any) -> str:
    return {dict: "object", list: "array", str: "string", bool: "bool", type(None): "null"}.get(type(value), "number")


def _decoded(
    patched: Any, live: JSON, patch: Any, strict: list[str], resource: Resource[Any], mode: str, kind: str
) -> Body:
    """The patched object in the server's form. Raises StatusError 422 in v1.36's words."""

    def refused(why: str) -> errors.StatusError:
        if kind == _STRATEGIC:
            shown = patches.go_text(patches.left_of(patch, live))
        else:
            shown = _encode_sorted(patched).decode()
        text = f"Invalid value: {quoted(shown)}: {why}"
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
    given, api_version = patched.get("kind") or resource.kind, patched.get("apiVersion") or ""
    if (given, api_version or resource.api_version) != (resource.kind, resource.api_version):
        if isinstance(resource, CustomResource):
            raise resource.rules.wrong_kind(patched)
        if kind != _STRATEGIC and not api_version:
            group = quoted(resource.group)
            raise refused(f"no kind {quoted(given)} is registered for the internal version of group {group}")
        if kind != _STRATEGIC:
            raise refused(unknown_kind(api_version, given, resource))
        if isinstance(given, str) and isinstance(api_version, str):
            patched = {**patched, "kind": resource.kind, "apiVersion": resource.api_version}
    if kind != _STRATEGIC and not api_version and not isinstance(resource, CustomResource):
        # read in the server's internal version, whose fields have other names
        strict = [*strict, *(f'unknown field "{name}"' for name in patched if name not in ("kind", "apiVersion"))]
        patched = {"metadata": {}}
    try:
        obj, unknown = decoding.decode(resource, patched)
    except decoding.DecodeError as error:
        struct = schema.type_for(resource.group, resource.version, resource.kind)
        told = ""
        if kind == _STRATEGIC and struct is not None:
            told = conversion_error(schema.TypeRef(struct.name, "struct", named=struct.name), patched)
        raise refused(told or str(error)) from error
    if strict or unknown:
        strict = all_strict(strict, sorted(unknown) if kind == _STRATEGIC else unknown)
        if mode == "Strict":
            raise refused(f"strict decoding error: {strict_text(strict)}")
    obj.setdefault("metadata", {})
    keep_reset(patched, obj)
    return Body(obj, strict if mode == "Warn" else [], patched)
