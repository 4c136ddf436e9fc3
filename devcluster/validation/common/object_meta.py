"""Validation of metadata: on create, and against the stored version.

Source: apimachinery pkg/api/validation/objectmeta.go, apiserver registry/rest/update.go.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from kubeloop.devcluster.validation.common.error_list import ErrorList, validate_labels
from kubeloop.kube.json_object import JSON
from kubeloop.kube.validation.field_errors import quoted
from kubeloop.kube.validation.name_checks import dns_label, prefix_of, qualified_name

NameCheck = Callable[[str], Sequence[str]]
ANNOTATIONS_LIMIT = 256 << 10
MAX_MANAGER = 128
"""Maximum length of a field manager's name, in bytes."""
MAX_SUBRESOURCE = 256


def path_segment(name: str) -> tuple[str, ...]:
    """Return the problems of a name that becomes a segment of an API path."""
    if name in (".", ".."):
        return (f"may not be '{name}'",)
    return tuple(f"may not contain '{bad}'" for bad in ("/", "%") if bad in name)


def validate_path_segment(errors: ErrorList, path: str, name: str, *, needed: bool = True) -> None:
    """Validate a name that becomes a segment of an API path; needed: report an empty one."""
    if name:
        errors.check(path, name, path_segment)
    elif needed:
        errors.required(path)


def validate_annotations(errors: ErrorList, path: str, values: dict[str, str] | None) -> None:
    if not values:
        return
    for key in sorted(values):
        errors.invalid_each(path, key, qualified_name(key.lower()))
    if sum(len(key.encode()) + len(value.encode()) for key, value in values.items()) > ANNOTATIONS_LIMIT:
        errors.too_long(path, ANNOTATIONS_LIMIT)


def validate_owner_references(errors: ErrorList, path: str, references: Sequence[JSON]) -> None:
    first_controller = ""
    for reference in references:
        api_version, kind = reference.get("apiVersion", ""), reference.get("kind", "")
        if not api_version.rpartition("/")[2] or api_version.count("/") > 1:
            errors.invalid(f"{path}.apiVersion", api_version, "version must not be empty")
        for name in ("kind", "name", "uid"):
            if not reference.get(name):
                errors.invalid(f"{path}.{name}", reference.get(name, ""), "must not be empty")
        if api_version == "v1" and kind == "Event":
            errors.invalid(
                path, reference, "/v1, Kind=Event is disallowed from being an owner", "meta/v1.OwnerReference"
            )
        if reference.get("controller"):
            name = f"{kind}/{reference.get('name', '')}"
            if first_controller:
                detail = (
                    "Only one reference can have Controller set to true. "
                    f'Found "true" in references for {first_controller} and {name}'
                )
                errors.invalid(path, list(references), detail, "meta/v1.OwnerReference")
            else:
                first_controller = name


def validate_finalizers(errors: ErrorList, path: str, values: Sequence[str]) -> None:
    for value in values:
        errors.check(path, value, qualified_name)
    if "orphan" in values and "foregroundDeletion" in values:
        errors.invalid(path, list(values), "finalizer orphan and foregroundDeletion cannot be both set")


def validate_object_meta(
    errors: ErrorList, metadata: JSON, *, namespaced: bool, name_check: NameCheck, path: str = "metadata"
) -> None:
    """Validate metadata without a stored version to compare with."""
    generate_name, name = metadata.get("generateName", ""), metadata.get("name", "")
    if generate_name:
        errors.invalid_each(f"{path}.generateName", generate_name, prefix_of(name_check, generate_name))
    if name:
        problems = name_check(name)
        if problems:
            errors.invalid_each(f"{path}.name", name, problems)
    else:
        errors.required(f"{path}.name", "name or generateName is required")
    namespace = metadata.get("namespace", "")
    if namespaced:
        errors.check_required(f"{path}.namespace", namespace, dns_label)
    elif namespace:
        errors.forbidden(f"{path}.namespace", "not allowed on this type")
    errors.not_negative(f"{path}.generation", metadata.get("generation"))
    _validate_mutable_fields(errors, metadata, path)
    if "finalizers" in metadata:
        validate_finalizers(errors, f"{path}.finalizers", metadata["finalizers"])


NOT_STANDARD = "name is neither a standard finalizer name nor is it fully qualified"
STANDARD_FINALIZERS = ("kubernetes", "orphan", "foregroundDeletion")


def validate_template_metadata(errors: ErrorList, path: str, metadata: JSON) -> None:
    """Validate the metadata of a template of claims, which may have labels and annotations only."""
    validate_annotations(errors, f"{path}.annotations", metadata.get("annotations"))
    validate_labels(errors, f"{path}.labels", metadata.get("labels"))
    for name in _TEMPLATE_METADATA_FORBIDDEN if metadata else ():
        if metadata.get(name) or (name == "deletionGracePeriodSeconds" and name in metadata):
            errors.forbidden(f"{path}.{'uID' if name == 'uid' else name}", "cannot be set")


_TEMPLATE_METADATA_FORBIDDEN = (
    "name", "generateName", "namespace", "selfLink", "uid", "resourceVersion", "generation", "creationTimestamp",
    "deletionTimestamp", "deletionGracePeriodSeconds", "ownerReferences", "finalizers", "managedFields",
)  # fmt: skip
"""All fields of ObjectMeta but labels and annotations, in the order of the Go struct."""


def validate_core_finalizers(errors: ErrorList, metadata: JSON, path: str = "metadata") -> None:
    """Require the unqualified finalizers of core kinds to be standard ones."""
    for i, finalizer in enumerate(metadata.get("finalizers", ())):
        if "/" not in finalizer and finalizer not in STANDARD_FINALIZERS:
            errors.invalid(f"{path}.finalizers[{i}]", finalizer, NOT_STANDARD)


def _validate_mutable_fields(errors: ErrorList, metadata: JSON, path: str) -> None:
    validate_labels(errors, f"{path}.labels", metadata.get("labels"))
    validate_annotations(errors, f"{path}.annotations", metadata.get("annotations"))
    if "ownerReferences" in metadata:
        validate_owner_references(errors, f"{path}.ownerReferences", metadata["ownerReferences"])
    if "managedFields" in metadata:
        validate_managed_fields(errors, metadata["managedFields"], f"{path}.managedFields")


_IMMUTABLE = ("name", "namespace", "uid", "creationTimestamp", "deletionTimestamp", "deletionGracePeriodSeconds")


def validate_object_meta_update(errors: ErrorList, metadata: JSON, old: JSON, path: str = "metadata") -> None:
    """Validate metadata against the stored version."""
    if "deletionTimestamp" in old:
        added = sorted(set(metadata.get("finalizers", ())) - set(old.get("finalizers", ())))
        if added:
            detail = "[]string{" + ", ".join(map(quoted, added)) + "}"
            errors.forbidden(
                f"{path}.finalizers",
                f"no new finalizers can be added if the object is being deleted, found new finalizers {detail}",
            )
    if metadata.get("generation", 0) < old.get("generation", 0):
        errors.invalid(f"{path}.generation", metadata.get("generation", 0), "must not be decremented")
    for name in _IMMUTABLE:
        new = metadata.get(name)
        if new != old.get(name):
            reported = "" if new is None and name in ("name", "namespace", "uid") else new
            errors.immutable(f"{path}.{name}", reported, old.get(name))
    _validate_mutable_fields(errors, metadata, path)


def validate_managed_fields(errors: ErrorList, entries: Sequence[JSON], path: str) -> None:
    for i, entry in enumerate(entries):
        where = f"{path}[{i}]"
        if entry.get("operation") not in ("Apply", "Update"):
            errors.invalid(f"{where}.operation", entry.get("operation", ""), "must be `Apply` or `Update`")
        if entry.get("fieldsType") not in ("", None, "FieldsV1"):
            errors.invalid(f"{where}.fieldsType", entry.get("fieldsType"), "must be `FieldsV1`")
        validate_field_manager(errors, f"{where}.manager", entry.get("manager", ""))
        errors.at_most_bytes(f"{where}.subresource", entry.get("subresource", ""), MAX_SUBRESOURCE)


def validate_field_manager(errors: ErrorList, path: str, manager: str) -> None:
    """Validate the name of a field manager: length, printable characters."""
    errors.at_most_bytes(path, manager, MAX_MANAGER)
    if manager.isprintable():
        return
    for place, char in enumerate(manager):
        if not char.isprintable():
            position = len(manager[:place].encode())
            errors.invalid(path, manager, f"invalid character U+{ord(char):04X} (at position {position})")
