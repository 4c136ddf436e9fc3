"""Validation of CustomResourceDefinitions on create and update, and the warnings for their authors.

kube-apiserver validates a definition in its internal version, where a schema, subresources, columns or selectable
fields that are equal in all versions are fields of the spec; its errors have the paths of these fields. Source:
apiextensions-apiserver pkg/apis/apiextensions/validation/validation.go and
pkg/registry/customresourcedefinition/strategy.go.
"""

from __future__ import annotations

from kubeloop.devcluster.api.conditions import is_true
from kubeloop.devcluster.apiextensions.schema_validation import check_schema
from kubeloop.devcluster.apiextensions.structural_schema import Schema, walk
from kubeloop.devcluster.languages import jsonpath
from kubeloop.devcluster.registry.custom_resource_definitions import (
    APPROVAL_ANNOTATION,
    approval_condition,
    is_protected_group,
)
from kubeloop.devcluster.validation.common.error_list import ErrorList
from kubeloop.devcluster.validation.common.webhook_client_config import (
    validate_review_versions,
    validate_webhook_service,
    validate_webhook_url,
)
from kubeloop.kube.json_object import JSON
from kubeloop.kube.validation.name_checks import dns_1035_label, dns_subdomain
from kubeloop.kube.validation.string_formats import is_known_format

_COLUMN_TYPES = ("boolean", "date", "integer", "number", "string")
_COLUMN_FORMATS = ("byte", "date", "date-time", "double", "float", "int32", "int64", "password")
_MAX_SELECTABLE = 8
_SHARED = {
    "schema": "validation",
    "subresources": "subresources",
    "additionalPrinterColumns": "additionalPrinterColumns",
    "selectableFields": "selectableFields",
}
"""Fields of versions, and the field of the internal spec that holds the value if all versions have the same."""


def validate_definition_create(errors: ErrorList, obj: JSON) -> None:
    """Validate a new definition."""
    spec, name = obj["spec"], obj["metadata"].get("name", "")
    if name != f"{(spec.get('names') or {}).get('plural', '')}.{spec.get('group', '')}":
        errors.invalid("metadata.name", name, 'must be spec.names.plural+"."+spec.group')
    _validate_spec(errors, spec)
    _validate_status(errors, obj)
    _validate_stored_versions(errors, obj)
    if is_protected_group(spec.get("group", "")):
        _validate_approval(errors, obj)
    _validate_preserve_unknown_fields(errors, spec)


def validate_definition_update(errors: ErrorList, obj: JSON, old: JSON) -> None:
    """Validate a definition that replaces `old`."""
    if obj["spec"] == old["spec"] and obj["metadata"].get("annotations") == old["metadata"].get("annotations"):
        return
    spec, old_spec = obj["spec"], old["spec"]
    _validate_spec(errors, spec)
    if is_true(old, "Established"):
        errors.immutable("spec.scope", spec.get("scope", ""), old_spec.get("scope", ""))
        errors.immutable(
            "spec.names.kind", (spec.get("names") or {}).get("kind", ""), (old_spec.get("names") or {}).get("kind", "")
        )
    errors.immutable("spec.group", spec.get("group", ""), old_spec.get("group", ""))
    errors.immutable(
        "spec.names.plural",
        (spec.get("names") or {}).get("plural", ""),
        (old_spec.get("names") or {}).get("plural", ""),
    )
    _validate_status(errors, obj)
    _validate_stored_versions(errors, obj)
    if is_protected_group(spec.get("group", "")) and approval_condition(obj)[1] != approval_condition(old)[1]:
        _validate_approval(errors, obj)
    if not old_spec.get("preserveUnknownFields"):
        _validate_preserve_unknown_fields(errors, spec)


def validate_definition_status(errors: ErrorList, obj: JSON, old: JSON) -> None:
    """Validate a write of the status subresource."""
    if obj.get("status") != old.get("status"):
        _validate_status(errors, obj)


def _validate_preserve_unknown_fields(errors: ErrorList, spec: JSON) -> None:
    if spec.get("preserveUnknownFields"):
        message = (
            "cannot set to true, set x-kubernetes-preserve-unknown-fields to true in spec.versions[*].schema instead"
        )
        errors.invalid("spec.preserveUnknownFields", True, message)


def _validate_approval(errors: ErrorList, obj: JSON) -> None:
    _, reason, message = approval_condition(obj)
    path = f"metadata.annotations[{APPROVAL_ANNOTATION}]"
    if reason == "MissingAnnotation":
        errors.required(path, message)
    elif reason == "InvalidAnnotation":
        errors.invalid(path, obj["metadata"]["annotations"][APPROVAL_ANNOTATION], message)


# --- status -----------------------------------------------------------------------------------------------------------


def _validate_status(errors: ErrorList, obj: JSON) -> None:
    _validate_names(errors, (obj.get("status") or {}).get("acceptedNames") or {}, "status.acceptedNames")


def _validate_stored_versions(errors: ErrorList, obj: JSON) -> None:
    stored_versions, path = (obj.get("status") or {}).get("storedVersions"), "status.storedVersions"
    if not stored_versions:
        errors.invalid(path, stored_versions, "must have at least one stored version")
        return
    names = [version.get("name", "") for version in obj["spec"].get("versions") or ()]
    for version in obj["spec"].get("versions") or ():
        if version.get("storage") and version.get("name", "") not in stored_versions:
            errors.invalid(path, stored_versions, f"must have the storage version {version.get('name', '')}")
    for index, name in enumerate(stored_versions):
        if name not in names:
            message = (
                f"missing from spec.versions; {name} was previously a storage version, and must remain in "
                f"spec.versions until a storage migration ensures no data remains persisted in {name} and removes "
                f"{name} from status.storedVersions"
            )
            errors.invalid(f"{path}[{index}]", name, message)


# --- spec -------------------------------------------------------------------------------------------------------------


def _validate_spec(errors: ErrorList, spec: JSON) -> None:
    group, versions = spec.get("group", ""), spec.get("versions") or []
    if not group:
        errors.required("spec.group")
    elif messages := dns_subdomain(group):
        errors.invalid("spec.group", group, ",".join(messages))
    elif "." not in group:
        errors.invalid("spec.group", group, "should be a domain with at least one dot")
    errors.required_one_of("spec.scope", spec.get("scope", ""), ("Cluster", "Namespaced"))
    shared = {part for part in _SHARED if all(version.get(part) == versions[0].get(part) for version in versions)}
    if not any((version.get("schema") or {}).get("openAPIV3Schema") for version in versions[:1] if "schema" in shared):
        for index, version in enumerate(versions):
            if not (version.get("schema") or {}).get("openAPIV3Schema"):
                errors.required(f"spec.versions[{index}].schema.openAPIV3Schema")
    names = [version.get("name", "") for version in versions]
    for index, version in enumerate(versions):
        errors.check_joined(f"spec.versions[{index}].name", names[index], dns_1035_label)
        _validate_deprecation(errors, version, f"spec.versions[{index}]")
        for part in _SHARED:
            if part not in shared and part in version:
                _validate_part(errors, part, version, f"spec.versions[{index}].{part}", has_status=_has_status(version))
    unshared = [{name: value for name, value in version.items() if name not in shared} for version in versions]
    if len({*names}) != len(names):
        errors.invalid("spec.versions", unshared, "must contain unique version names", _VERSION_TYPE)
    if sum(bool(version.get("storage")) for version in versions) != 1:
        message = "must have exactly one version marked as storage version"
        errors.invalid("spec.versions", unshared, message, _VERSION_TYPE)
    if versions and names[0]:
        errors.check_joined("spec.version", names[0], dns_1035_label)
    for name in ("plural", "singular", "kind", "listKind"):
        errors.require(f"spec.names.{name}", (spec.get("names") or {}).get(name))
    _validate_names(errors, spec.get("names") or {}, "spec.names")
    has_status = any(_has_status(version) for version in versions)
    for part, shared_path in _SHARED.items():
        if part in shared and versions and part in versions[0]:
            _validate_part(errors, part, versions[0], f"spec.{shared_path}", has_status=has_status)
    _validate_conversion(errors, spec.get("conversion") or {})


_VERSION_TYPE = "apiextensions/v1.CustomResourceDefinitionVersion"


def _has_status(version: JSON) -> bool:
    return "status" in (version.get("subresources") or {})


def _validate_names(errors: ErrorList, names: JSON, path: str) -> None:
    for name in ("plural", "singular"):
        if names.get(name):
            errors.check_joined(f"{path}.{name}", names[name], dns_1035_label)
    for name in ("kind", "listKind"):
        if names.get(name) and (messages := dns_1035_label(names[name].lower())):
            message = f"may have mixed case, but should otherwise match: {','.join(messages)}"
            errors.invalid(f"{path}.{name}", names[name], message)
    for index, short in enumerate(names.get("shortNames") or ()):
        errors.check_joined(f"{path}.shortNames[{index}]", short, dns_1035_label)
    if names.get("kind") and names["kind"] == names.get("listKind"):
        errors.invalid(f"{path}.listKind", names["listKind"], "kind and listKind may not be the same")
    for index, category in enumerate(names.get("categories") or ()):
        errors.check_joined(f"{path}.categories[{index}]", category, dns_1035_label)


def _validate_deprecation(errors: ErrorList, version: JSON, path: str) -> None:
    warning, path = version.get("deprecationWarning"), f"{path}.deprecationWarning"
    if warning is None:
        return
    if not version.get("deprecated"):
        errors.invalid(path, warning, "can only be set for deprecated versions")
        return
    if len(warning.encode()) > 256:
        errors.invalid(path, warning, "must be <= 256 characters long")
    if not warning:
        errors.invalid(path, warning, "must not be an empty string")
    for index, char in enumerate(warning):
        if not char.isprintable():
            message = f"must only contain printable UTF-8 characters; non-printable character found at index {index}"
            errors.invalid(path, warning, message)
            break


# --- parts of versions ------------------------------------------------------------------------------------------------


def _validate_part(errors: ErrorList, part: str, version: JSON, path: str, *, has_status: bool) -> None:
    schema: Schema | None = (version.get("schema") or {}).get("openAPIV3Schema")
    match part:
        case "schema":
            if schema is not None:
                causes = ErrorList()
                check_schema(causes, schema, path, has_status=has_status)
                errors.extend(causes)
        case "subresources":
            if (scale := (version["subresources"] or {}).get("scale")) is not None:
                _validate_scale(errors, scale, f"{path}.scale")
        case "additionalPrinterColumns":
            for index, column in enumerate(version[part] or ()):
                _validate_column(errors, column, f"{path}[{index}]")
        case "selectableFields":
            if version[part]:
                _validate_selectable_fields(errors, version[part], schema, path)


def _validate_scale(errors: ErrorList, scale: JSON, path: str) -> None:
    for name, parent in (("specReplicasPath", ".spec."), ("statusReplicasPath", ".status.")):
        field_path = scale.get(name, "")
        if not field_path:
            errors.required(f"{path}.{name}")
        elif not field_path.startswith("."):
            errors.invalid(f"{path}.{name}", field_path, "must be a simple json path starting with .")
        elif not field_path.startswith(parent):
            errors.invalid(f"{path}.{name}", field_path, f"should be a json path under {parent[:-1]}")
    selector = scale.get("labelSelectorPath")
    if selector:
        if not selector.startswith("."):
            message = "must be a simple json path starting with ."
            errors.invalid(f"{path}.labelSelectorPath", selector, message)
        elif not selector.startswith((".spec.", ".status.")):
            message = "should be a json path under either .spec or .status"
            errors.invalid(f"{path}.labelSelectorPath", selector, message)


def _validate_column(errors: ErrorList, column: JSON, path: str) -> None:
    errors.required_fields(path, column, "name")
    types = f"must be one of {','.join(_COLUMN_TYPES)}"
    if errors.require(f"{path}.type", column.get("type"), types) and column["type"] not in _COLUMN_TYPES:
        errors.invalid(f"{path}.type", column["type"], types)
    if column.get("format") and column["format"] not in _COLUMN_FORMATS:
        errors.invalid(f"{path}.format", column["format"], f"must be one of {','.join(_COLUMN_FORMATS)}")
    if errors.require(f"{path}.JSONPath", column.get("jsonPath")) and not column["jsonPath"].startswith("."):
        errors.invalid(f"{path}.JSONPath", column["jsonPath"], "must be a simple json path starting with .")


def _validate_selectable_fields(errors: ErrorList, fields: list[JSON], schema: Schema | None, path: str) -> None:
    if schema is None:
        message = "may only be set when `version.schema.openAPIV3Schema` is not included"
        errors.invalid(
            path, "", message if "versions" in path else "may only be set when validations.schema is included"
        )
        return
    json_paths: list[str] = []
    for index, field in enumerate(fields):
        field_path, json_path = f"{path}[{index}].jsonPath", field.get("jsonPath", "")
        if not errors.require(field_path, json_path):
            continue
        field_schema: Schema | None = schema
        for name in jsonpath.field_names(json_path):
            field_schema = (field_schema.get("properties") or {}).get(name) if field_schema is not None else None
        if field_schema is None or not json_path.startswith(".") or "[" in json_path:
            errors.invalid(field_path, json_path, "is an invalid path: does not refer to a valid field")
            continue
        if jsonpath.field_names(json_path)[0] == "metadata":
            errors.invalid(field_path, json_path, "must not point to fields in metadata")
        if field_schema.get("type") not in ("string", "boolean", "integer"):
            message = "must point to a field of type string, boolean or integer. "
            errors.invalid(field_path, json_path, f"{message}Enum string fields and strings with formats are allowed.")
        if json_path in json_paths:
            errors.duplicate(field_path, json_path)
        else:
            json_paths.append(json_path)
    errors.at_most(path, json_paths, _MAX_SELECTABLE)


def _validate_conversion(errors: ErrorList, conversion: JSON) -> None:
    path, strategy = "spec.conversion", conversion.get("strategy", "")
    errors.required_one_of(f"{path}.strategy", strategy, ("None", "Webhook"))
    webhook = conversion.get("webhook")
    client, versions = (webhook or {}).get("clientConfig"), (webhook or {}).get("conversionReviewVersions")
    if strategy != "Webhook":
        if client is not None:
            message = "should not be set when strategy is not set to Webhook"
            errors.forbidden(f"{path}.webhookClientConfig", message)
        if versions:
            message = "should not be set when strategy is not set to Webhook"
            errors.forbidden(f"{path}.conversionReviewVersions", message)
        return
    if client is None:
        errors.required(f"{path}.webhookClientConfig", "required when strategy is set to Webhook")
    elif (client.get("url") is None) == (client.get("service") is None):
        errors.required(f"{path}.webhookClientConfig", "exactly one of url or service is required")
    elif client.get("url") is not None:
        validate_webhook_url(errors, client["url"], f"{path}.webhookClientConfig.url")
    else:
        # kube-apiserver also confuses name and namespace here
        confused = {"name": client["service"].get("namespace"), "namespace": client["service"].get("name")}
        service = {**client["service"], **confused}
        validate_webhook_service(errors, service, f"{path}.webhookClientConfig.service")
    validate_review_versions(errors, versions or [], f"{path}.conversionReviewVersions")


# --- warnings ---------------------------------------------------------------------------------------------------------


def definition_warnings(obj: JSON, old: JSON | None) -> list[str]:
    """Return warnings for unrecognized formats that `old` does not have."""
    old_warnings = [] if old is None else _format_warnings(old)
    return [warning for warning in _format_warnings(obj) if warning not in old_warnings]


def _format_warnings(obj: JSON) -> list[str]:
    warnings: list[str] = []
    for version in obj["spec"].get("versions") or ():
        for _, schema in walk((version.get("schema") or {}).get("openAPIV3Schema") or {}):
            format_ = schema.get("format")
            if format_ and not is_known_format(schema.get("type") or "", format_):
                warnings.append(f'unrecognized format "{format_}"')
    return list(dict.fromkeys(warnings))
