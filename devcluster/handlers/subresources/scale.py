"""The scale subresource: read and write the autoscaling/v1 Scale of an object, and carry field ownership across.

The owner of a Scale's spec.replicas owns the corresponding field of the object: owners are copied from the object to
the Scale before a write, and back afterwards. For custom resources v1.36 cannot convert some Scales: a PUT without
apiVersion leaves the replicas without owner, and an apply that changes them is refused.

Source: apimachinery pkg/util/managedfields/scalehandler.go, pkg/registry/apps/*/storage of v1.36.
"""

from __future__ import annotations

from collections.abc import Mapping

from kubeloop.devcluster.api import errors
from kubeloop.devcluster.api.field_access import without_managed_fields
from kubeloop.devcluster.api.request import ApiRequest
from kubeloop.devcluster.api.request_context import RequestContext
from kubeloop.devcluster.api.request_info import RequestInfo, check_names
from kubeloop.devcluster.api.served_resources import ServedResource
from kubeloop.devcluster.api.writer import Writer
from kubeloop.devcluster.handlers.writing.create_update import ObjectWriter, check_uid
from kubeloop.devcluster.handlers.writing.patch import (
    APPLY,
    check_patch_type,
    patch_option_causes,
    patch_type,
    patched,
    read_configuration,
    repeated_key_warnings,
)
from kubeloop.devcluster.handlers.writing.write_options import apply_options, read_dry_run, writer_of
from kubeloop.devcluster.managedfields.apply import apply_configuration
from kubeloop.devcluster.managedfields.field_sets import Fields, sorted_entries, subtract, track_update
from kubeloop.devcluster.registry.scale import SCALE, scale_of
from kubeloop.devcluster.serializer import decoding
from kubeloop.devcluster.serializer.conversion import from_stored, prepare_conversions
from kubeloop.devcluster.serializer.request_bodies import (
    Body,
    FieldValidation,
    field_validation,
    parse_body,
    read_object,
)
from kubeloop.devcluster.storage.store import StoredObject
from kubeloop.devcluster.validation.common.error_list import ErrorList
from kubeloop.devcluster.validation.common.object_meta import validate_object_meta
from kubeloop.kube.json_object import JSON
from kubeloop.kube.validation.name_checks import dns_subdomain

ReplicasPaths = Mapping[str, tuple[str, ...] | None]
"""Path of the replicas by apiVersion, for example ("spec", "replicas"); None for a version without scale."""

SCALES = ServedResource(SCALE)
REPLICAS = ("spec", "replicas")
_UNREGISTERED_SCALE = (
    "no kind is registered for the type v1.Scale in scheme "
    '"k8s.io/apiextensions-apiserver/pkg/apiserver/customresource_handler.go:781"'
)
"""v1.36's message for any decoding error of a custom resource's Scale."""


def scaled(served: ServedResource, obj: JSON, scale: JSON) -> JSON:
    """Return `obj` with the replicas of `scale`, whose metadata holds the preconditions. Raises StatusError."""
    name = obj["metadata"]["name"]
    metadata_of_scale = scale.get("metadata", {})
    replicas = scale.get("spec", {}).get("replicas", 0)
    error_list = ErrorList()
    validate_object_meta(
        error_list,
        {**metadata_of_scale, "name": name, "namespace": obj["metadata"]["namespace"]},
        namespaced=True,
        name_check=dns_subdomain,
    )
    causes = [*error_list]
    if replicas < 0:
        text = f"Invalid value: {replicas}: must be greater than or equal to 0"
        causes.append(errors.cause("FieldValueInvalid", "spec.replicas", text))
    if causes:
        raise errors.invalid("autoscaling", "Scale", name, causes)
    uid, current_uid = metadata_of_scale.get("uid"), obj["metadata"]["uid"]
    if uid and uid != current_uid:
        raise errors.failed_precondition(served.resource, name, "UID", uid, current_uid, subresource="scale")
    version = metadata_of_scale.get("resourceVersion") or obj["metadata"]["resourceVersion"]
    metadata = {**obj["metadata"], "resourceVersion": version}
    return {**obj, "metadata": metadata, "spec": {**obj["spec"], "replicas": replicas}}


# --- reading and writing ----------------------------------------------------------------------------------------------


def read_scale(target: ServedResource, stored: StoredObject) -> JSON:
    """Return the Scale of a stored object. Raises StatusError 500 for a custom resource without replicas."""
    obj = from_stored(target, stored.object)
    return scale_of(obj) if target.crd_version is None else target.crd_version.scale.read(obj, strict=True)


async def update_scale(context: RequestContext, writing: ObjectWriter, before: StoredObject | None) -> JSON:
    """Replace the Scale of `before` and return the new one. Raises StatusError, Outdated."""
    request, info = context.request, context.info
    context.dry_run, mode = read_dry_run(request, "UpdateOptions"), field_validation(request, "UpdateOptions")
    try:
        body = read_object(request, SCALE, mode)
    except errors.StatusError as error:
        if error.code == 400 and info.served.crd_version is not None:
            raise errors.bad_request(_UNREGISTERED_SCALE) from error
        raise
    request.warnings += body.warnings
    context.log_request_object(body.obj)
    check_names(info, body.obj)
    before = await _existing(info, before)
    check_uid(context, body.obj["metadata"], before.object["metadata"])
    if info.served.crd_version is not None and not (parse_body(request)[0] or {}).get("apiVersion"):
        body.obj["metadata"].pop("managedFields", None)
    else:
        _track(context, body, _with_owners(info.served, before))
    return await _write_scale(context, writing, before, body.obj)


async def patch_scale(context: RequestContext, writing: ObjectWriter, before: StoredObject | None) -> JSON:
    """Patch the Scale of `before`, or apply a configuration, and return the new one. Raises StatusError, Outdated."""
    request, info = context.request, context.info
    form = patch_type(request)
    check_patch_type(info.served, form)
    context.dry_run = read_dry_run(request, "PatchOptions", patch_option_causes(request, form))
    mode = field_validation(request, "PatchOptions")
    if request.audit is not None:
        request.audit.log_patch(request.body)
    before = await _existing(info, before)
    old = _with_owners(info.served, before)
    body = _applied(context, old, mode) if form == APPLY else _patched(request, old, form, mode)
    request.warnings += body.warnings
    check_names(info, body.obj)
    if form != APPLY:
        _track(context, body, old)
    return await _write_scale(context, writing, before, body.obj)


async def _existing(info: RequestInfo, before: StoredObject | None) -> StoredObject:
    """Return the object, of which conversions are prepared. Raises StatusError 404."""
    if before is None:
        raise errors.not_found(info.served.resource, info.name)
    await prepare_conversions(info.served, [before.object])
    return before


def _track(context: RequestContext, body: Body, old: JSON) -> None:
    track_update(SCALES, body.obj, old, writer_of(context.request), context.now, subresource="scale")


async def _write_scale(context: RequestContext, writing: ObjectWriter, before: StoredObject, scale: JSON) -> JSON:
    """Store the replicas and field owners of a Scale in its object, and return the new Scale."""
    request, target, crd_version = context.request, context.info.served, context.info.served.crd_version
    live = from_stored(target, before.object)
    await writing.dynamic_admission.mutate(context, "UPDATE", scale, _with_owners(target, before))
    updated = scaled(target, live, scale) if crd_version is None else crd_version.scale.apply(live, scale)
    now_owned = owners_of_object(
        live["metadata"].get("managedFields", []),
        scale["metadata"].get("managedFields", []),
        replicas_paths(target),
        target.resource.api_version,
    )
    updated["metadata"] = {**updated["metadata"], "managedFields": now_owned}
    if not now_owned:
        del updated["metadata"]["managedFields"]
    writer = Writer(request.option("fieldManager"), applied=True)
    obj = from_stored(target, await writing.update(context, before, Body(updated), writer))
    return scale_of(obj) if crd_version is None else crd_version.scale.read(obj)


def _applied(context: RequestContext, old: JSON, mode: FieldValidation) -> Body:
    request, info = context.request, context.info
    configuration, repeated = read_configuration(request.body, SCALE)
    configuration["metadata"] = configuration.get("metadata") or {}
    configuration["metadata"].setdefault("name", info.name)
    crd_version = info.served.crd_version is not None
    if crd_version and "managedFields" not in old["metadata"]:
        raise errors.internal(f"failed to create manager for existing fields: {_not_converted('live', '/')}")
    obj = apply_configuration(SCALES, old, configuration, apply_options(context))
    check_names(info, {"metadata": {**configuration["metadata"]}})
    if crd_version and without_managed_fields(obj) != without_managed_fields(old):
        metadata = configuration["metadata"]
        raise errors.internal(_not_converted("new", f"{metadata.get('namespace', '')}/{metadata['name']}"))
    return Body(decoding.normalize(SCALE, obj), repeated_key_warnings(repeated, mode))


def _not_converted(which: str, named: str) -> str:
    """Return v1.36's message for a Scale that it takes for a custom resource itself."""
    reason = "request to convert CR to an invalid group/version: autoscaling/v1"
    return f"failed to convert {which} object ({named}; autoscaling/v1, Kind=Scale) to proper version: {reason}"


def _patched(request: ApiRequest, old: JSON, patch_type: str, mode: FieldValidation) -> Body:
    # the internal version of a Scale, to which patches apply, always has replicas
    complete = {**old, "spec": {"replicas": 0, **old["spec"]}}
    return patched(complete, request.body, patch_type, SCALE, mode)


def _with_owners(target: ServedResource, stored: StoredObject) -> JSON:
    """Return the Scale of an object for a write, with managedFields."""
    obj = from_stored(target, stored.object)
    scale = scale_of(obj) if target.crd_version is None else target.crd_version.scale.read_for_update(obj)
    if owners := owners_of_scale(obj["metadata"].get("managedFields", []), replicas_paths(target)):
        scale["metadata"]["managedFields"] = owners
    return scale


# --- owners -----------------------------------------------------------------------------------------------------------


def replicas_paths(served: ServedResource) -> ReplicasPaths:
    """Return the path of the replicas in each version of a kind."""
    if served.crd_version is not None:
        return served.crd_version.scale.replicas_paths
    return {served.resource.api_version: REPLICAS}


def owners_of_scale(entries: list[JSON], replicas_paths: ReplicasPaths) -> list[JSON]:
    """Return the managedFields of a Scale: the owners of the replicas in its object, in the Scale's version."""
    result = []
    for entry in _by_owner(entries).values():
        path = replicas_paths.get(entry.get("apiVersion", ""))
        if path is not None and _holds(entry.get("fieldsV1", {}), path):
            result.append({**entry, "apiVersion": SCALE.api_version, "fieldsV1": _only(REPLICAS)})
    return sorted_entries(result)


def owners_of_object(
    entries: list[JSON], of_scale: list[JSON], replicas_paths: ReplicasPaths, api_version: str
) -> list[JSON]:
    """Return the managedFields of an object after a write of its Scale.

    entries: the object's before the write. of_scale: the Scale's after it. Owners of the replicas in the Scale get a
    new entry without time, as in kube-apiserver, because their version in the Scale is another one.
    """
    scale_entries, entries_before = _by_owner(of_scale), _by_owner(entries)
    result = []
    for owner, entry in entries_before.items():
        if entry.get("apiVersion", "") not in replicas_paths:
            continue
        path, fields = replicas_paths[entry["apiVersion"]], entry.get("fieldsV1", {})
        if path is None or not _holds(fields, path) or scale_entries.pop(owner, None) is not None:
            result.append(entry)
        elif remaining := subtract(fields, _only(path)):
            result.append({**entry, "fieldsV1": remaining})
    path = replicas_paths[api_version]
    assert path is not None, "only versions with scale are written through it"
    for owner, entry in scale_entries.items():
        if _holds(entry.get("fieldsV1", {}), REPLICAS):
            own = {**entry, "apiVersion": api_version, "fieldsV1": _only(path)}
            own.pop("time", None)
            if time := entries_before.get(owner, JSON()).get("time"):
                own["time"] = time
            result.append(own)
    return sorted_entries(result)


def _by_owner(entries: list[JSON]) -> dict[tuple[str, str, str, str], JSON]:
    """Return the entries by owner (manager, operation, version, subresource); the last entry of an owner counts."""
    result = {}
    for entry in entries:
        operation = entry.get("operation", "")
        version = entry.get("apiVersion", "") if operation == "Update" else ""
        result[entry.get("manager", ""), operation, version, entry.get("subresource", "")] = entry
    return result


def _only(path: tuple[str, ...]) -> Fields:
    fields: Fields = {}
    for name in reversed(path):
        fields = {f"f:{name}": fields}
    return fields


def _holds(fields: Fields, path: tuple[str, ...]) -> bool:
    """Return True if the path itself is a member of the set."""
    for name in path:
        below = fields.get(f"f:{name}")
        if below is None:
            return False
        fields = below
    return not fields or "." in fields
