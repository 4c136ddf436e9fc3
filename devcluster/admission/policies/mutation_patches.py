"""Patches of MutatingAdmissionPolicies: apply configurations, JSON patches. Source: policy/mutating/patch of v1.36."""

from __future__ import annotations

from kubeloop.devcluster.admission.attributes import decode_admitted
from kubeloop.devcluster.api.served_resources import BY_KIND, ServedResource
from kubeloop.devcluster.languages.mutation_objects import CreatedObject, to_json
from kubeloop.devcluster.managedfields.apply import atomic_paths, merge_configuration
from kubeloop.devcluster.managedfields.go_types import value_type_of
from kubeloop.devcluster.managedfields.typed_validation import type_error
from kubeloop.devcluster.serializer import decoding, patches
from kubeloop.devcluster.serializer.defaulting import apply_defaults
from kubeloop.devcluster.serializer.request_bodies import format_strict_errors
from kubeloop.kube.json_object import JSON


class PatchFailed(Exception):
    """A mutation does not fit the object."""


class InvalidResult(Exception):
    """The patched object is not a valid object of its kind."""


def apply_configuration(served: ServedResource, obj: JSON, configuration: CreatedObject) -> JSON:
    """Return the object with an Object{...} applied to it. Raises PatchFailed, also for atomic lists; InvalidResult."""
    if detail := configuration.type_name_errors():
        raise PatchFailed(f"type mismatch: {detail}")
    config = {**to_json(configuration), "apiVersion": obj["apiVersion"], "kind": obj["kind"]}
    if detail := _type_error(served, config):
        raise PatchFailed(f"error applying patch: failed to convert patch object to typed object: {detail}")
    if atomic := atomic_paths(served, config):
        message = f"may not mutate atomic arrays, maps or structs: {', '.join(atomic)}"
        raise PatchFailed(f"error applying patch: invalid ApplyConfiguration: {message}")
    result, _ = _decode_and_default(served, merge_configuration(served, obj, config))
    return result


def _type_error(served: ServedResource, config: JSON) -> str:
    resource = served.resource
    is_known = served.crd_version is not None or (resource.api_version, resource.kind) in BY_KIND
    if not is_known:  # the kind of a subresource alone
        return f"no corresponding type for {resource.api_version}, Kind={resource.kind}"
    return type_error(value_type_of(resource), config)


def apply_json_patch(served: ServedResource, obj: JSON, operations: list[CreatedObject]) -> JSON:
    """Return the object after JSONPatch{...} operations; a failed test leaves it unchanged.

    Raises PatchFailed, InvalidResult.
    """
    steps: list[JSON | None] = []
    for operation in operations:
        value = operation.fields.get("value")
        if isinstance(value, CreatedObject) and (detail := value.type_name_errors()):
            raise PatchFailed(f"type mismatch: {detail}")
        step = {name: operation.fields.get(name, "") for name in ("op", "path")}
        if operation.fields.get("from"):
            step["from"] = operation.fields["from"]
        if "value" in operation.fields:
            step["value"] = to_json(value)
        steps.append(step)
    try:
        result = patches.json_patch(obj, steps)
    except patches.PatchTestFailed:
        return obj
    except patches.PatchError as error:
        raise PatchFailed(f"JSON Patch: {error}") from error
    patched, unknown = _decode_and_default(served, result)
    if unknown and served.crd_version is None:
        raise InvalidResult(f"strict decoding error: {format_strict_errors(unknown)}")
    return patched


def _decode_and_default(served: ServedResource, obj: JSON) -> tuple[JSON, list[str]]:
    """Return the decoded object with defaults, and its unknown fields. Raises InvalidResult."""
    try:
        decoded, unknown = decode_admitted(served, obj)
    except decoding.DecodeError as error:
        raise InvalidResult(str(error)) from error
    apply_defaults(served.resource, decoded)
    return decoded, unknown
