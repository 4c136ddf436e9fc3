"""Reading patches: which kind a request brings, what it makes of an object, and what is refused in v1.36's words.

Source: apiserver pkg/endpoints/handlers/patch.go.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import msgspec

from kubeloop.devcluster import decoding, errors, patching
from kubeloop.devcluster.bodies import Body, parse_json
from kubeloop.devcluster.request import Request
from kubeloop.kube import schema
from kubeloop.kube.resources import Resource

JSON = dict[str, Any]
_encode_sorted = msgspec.json.Encoder(order="sorted").encode

APPLY = "application/apply-patch+yaml"
_JSON_PATCH = "application/json-patch+json"
_MERGE = "application/merge-patch+json"
_STRATEGIC = "application/strategic-merge-patch+json"
PATCH_TYPES = (_JSON_PATCH, _MERGE, _STRATEGIC, APPLY)


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


def patched_object(live: JSON, body: bytes, kind: str, resource: Resource[Any]) -> tuple[JSON, list[str]]:
    """The live object with the patch, as plain JSON, and the patch's duplicate fields. Raises StatusError."""
    try:
        patch, duplicates = parse_json(body)
    except ValueError as error:
        raise errors.bad_request("error decoding patch: unexpected end of JSON input") from error
    expected: Callable[[Any], bool] = (lambda value: isinstance(value, list)) if kind == _JSON_PATCH else _is_map
    if not expected(patch):
        target = "jsonpatch.Patch" if kind == _JSON_PATCH else "map[string]interface {}"
        wrong = f"json: cannot unmarshal {_kind_of(patch)} into Go value of type {target}"
        raise errors.bad_request(f"error decoding patch: {wrong}")
    if kind == _JSON_PATCH:
        try:
            return patching.json_patch(live, patch), duplicates
        except patching.PatchError:
            raise patching.refused() from None
    if kind == _MERGE:
        return patching.merge_patch(live, patch), duplicates
    struct = schema.type_for(resource.group, resource.version, resource.kind)
    try:
        return patching.strategic_patch(live, patch, struct), duplicates
    except patching.MalformedPatch as error:
        raise errors.bad_request(str(error)) from error
    except patching.UnfitPatch as error:
        raise errors.unprocessable("the server rejected our request due to an error in our request") from error
    except patching.PatchError as error:
        raise errors.internal(str(error)) from error


def _kind_of(value: Any) -> str:
    return {dict: "object", list: "array", str: "string", bool: "bool", type(None): "null"}.get(type(value), "number")


def _is_map(value: Any) -> bool:
    return isinstance(value, dict)


def quoted(text: str) -> str:
    return '"' + text.replace("\\", "\\\\").replace('"', '\\"') + '"'


def decoded_patch(patched: Any, duplicates: list[str], resource: Resource[Any], mode: str, patch_type: str) -> Body:
    """The patched object in the server's form. Raises StatusError 422 in v1.36's words."""

    def refused(why: str) -> errors.StatusError:
        shown = patching.go_text(patched) if patch_type == _STRATEGIC else _encode_sorted(patched).decode()
        text = f"Invalid value: {quoted(shown)}: {why}"
        failure = errors.invalid("", "", "", [errors.cause("FieldValueInvalid", "patch", text)])
        return failure

    if not isinstance(patched, dict):
        target = "map[string]interface {}"
        raise refused(f"json: cannot unmarshal {_kind_of(patched)} into Go value of type {target}")
    kind, api_version = patched.get("kind", resource.kind), patched.get("apiVersion", resource.api_version)
    if (kind, api_version) != (resource.kind, resource.api_version):
        raise refused(f'no kind "{kind}" is registered for version "{api_version}"')
    try:
        obj, unknown = decoding.decode(resource, patched)
    except decoding.DecodeError as error:
        raise refused(str(error)) from error
    strict = duplicates + unknown
    if strict and mode == "Strict":
        raise refused(f"strict decoding error: {', '.join(strict)}")
    obj.setdefault("metadata", {})
    return Body(obj, strict if mode == "Warn" else [])
