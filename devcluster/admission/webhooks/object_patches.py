"""Patches of mutating webhooks: from the JSON patch of a response to the changed object.

Source: apiserver pkg/admission/plugin/webhook/mutating/dispatcher.go.
"""

from __future__ import annotations

from typing import Any

import msgspec

from kubeloop.devcluster.admission.attributes import decode_admitted
from kubeloop.devcluster.api import errors
from kubeloop.devcluster.api.served_resources import ServedResource
from kubeloop.devcluster.serializer import decoding, patches
from kubeloop.devcluster.serializer.conversion import prepare_conversions, to_stored
from kubeloop.devcluster.serializer.defaulting import apply_defaults
from kubeloop.devcluster.serializer.go_json_errors import go_json_error
from kubeloop.kube.json_object import JSON


class UndecodablePatch(Exception):
    """The patch of a response is no JSON patch."""


def decode_patch(patch: bytes) -> list[JSON | None]:
    """Return the operations of a JSON patch. Raises UndecodablePatch."""
    try:
        operations: Any = msgspec.json.decode(patch)
    except msgspec.DecodeError as error:
        raise UndecodablePatch(go_json_error(patch) or str(error)) from None
    if operations is None:
        return []
    if not isinstance(operations, list):
        raise UndecodablePatch(
            f"json: cannot unmarshal {decoding.json_kind(operations)} into Go value of type jsonpatch.Patch"
        )
    for operation in operations:
        if operation is not None and not isinstance(operation, dict):
            kind = decoding.json_kind(operation)
            raise UndecodablePatch(f"json: cannot unmarshal {kind} into Go value of type jsonpatch.Operation")
    return operations


def patched_object(written: ServedResource, obj: JSON, operations: list[JSON | None]) -> tuple[JSON, bool]:
    """Return an object after a patch, with defaults, and True if the patch has changed it.

    written: the resource that has the object's kind. Raises StatusError 500.
    """
    try:
        changed, _ = decode_admitted(written, patches.json_patch(obj, operations))
        before, _ = decode_admitted(written, obj)
    except (patches.PatchError, decoding.DecodeError) as error:
        raise errors.internal_error(str(error)) from None
    is_changed = changed != before
    apply_defaults(written.resource, changed)
    return changed, is_changed


async def in_request_form(requested: ServedResource, matched: ServedResource, obj: JSON) -> JSON:
    """Return an object, which a webhook has seen as `matched`, in the version of the request's object.

    requested, matched: resources that have the object's kind. Raises StatusError 500 if a conversion webhook fails.
    """
    if requested.crd_version is not None:
        await prepare_conversions(requested, [obj])
        return requested.crd_version.converted(obj)
    if matched.storage_resource is None:
        return obj
    stored = to_stored(matched, obj)
    apply_defaults(matched.storage_resource, stored)
    return stored
