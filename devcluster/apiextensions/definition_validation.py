"""What a CustomResourceDefinition must be, how it may change, and what its author is warned of.

kube-apiserver looks at a definition in its internal form, where schema, subresources, columns and selectable fields
that all versions share stand beside the versions; paths in its errors are those. Source: apiextensions-apiserver
pkg/apis/apiextensions/validation/validation.go, pkg/registry/customresourcedefinition/strategy.go.
"""

from __future__ import annotations

from urllib.parse import urlsplit

from kubeloop.devcluster.api.conditions import is_true
from kubeloop.devcluster.api.name_checks import dns_1035_label, dns_subdomain
from kubeloop.devcluster.apiextensions.schema_validation import check_schema
from kubeloop.devcluster.apiextensions.structural_schema import Schema, walk
from kubeloop.devcluster.languages import jsonpath
from kubeloop.devcluster.languages.string_formats import is_known_format
from kubeloop.devcluster.registry.custom_resource_definitions import (
    APPROVAL_ANNOTATION,
    approval_condition,
    is_protected_group,
)
from kubeloop.devcluster.validation.common.error_list import ErrorList
from kubeloop.devcluster.validation.kind_validators import KindValidators
from kubeloop.kube.json_object import JSON

_COLUMN_TYPES = ("boolean", "date", "integer", "number", "string")
_COLUMN_FORMATS = ("byte", "date", "date-time", "double", "float", "int32", "int64", "password")
_MAX_SELECTABLE = 8
_SHARED = {
    "schema": "validation",
    "subresources": "subresources",
    "additionalPrinterColumns": "additionalPrinterColumns",
    "selectableFields": "selectableFields",
}
"""Parts of versions, and where they stand if all versions have the same."""


def definition_create(errors: ErrorList, obj: JSON) -> None:
    """A new definition."""
    spec, name = obj["spec"], obj["metadata"].get("name", "")
    if name != f"{(spec.get('names') or {}).get('plural', '')}.{spec.get('group', '')}":
        errors.invalid("metadata.name", name, 'must be spec.names.plural+"."+spec.group')
    _spec(errors, spec)
    _status(errors, obj)
    _stored_versions(errors, obj)
    if is_protected_group(spec.get("group", "")):
        _approval(errors, obj)
    _unknown_fields(errors, spec)


def definition_update(errors: ErrorList, obj: JSON, old: JSON) -> None:
    """A definition against the one before it."""
    if obj["spec"] == old["spec"] and obj["metadata"].get("annotations") == old["metadata"].get("annotations"):
        return
    spec, before = obj["spec"], old["spec"]
    _spec(errors, spec)
    if is_true(old, "Established"):
        errors.immutable("spec.scope", spec.get("scope", ""), before.get("scope", ""))
        errors.immutable(
            "spec.names.kind", (spec.get("names") or {}).get("kind", ""), (before.get("names") or {}).get("kind", "")
        )
    errors.immutable("spec.group", spec.get("group", ""), before.get("group", ""))
    errors.immutable(
        "spec.names.plural", (spec.get("names") or {}).get("plural", ""), (before.get("names") or {}).get("plural", "")
    )
    _status(errors, obj)
    _stored_versions(errors, obj)
    if is_protected_group(spec.get("group", "")) and approval_condition(obj)[1] != approval_condition(old)[1]:
        _approval(errors, obj)
    if not before.get("preserveUnknownFields"):
        _unknown_fields(errors, spec)


def definition_status(errors: ErrorList, obj: JSON, old: JSON) -> None:
    """A status that somebody writes."""
    if obj.get("status") != old.get("status"):
        _status(errors, obj)


def _unknown_fields(errors: ErrorList, spec: JSON) -> None:
    if spec.get("preserveUnknownFields"):
        told = "cannot set to true, set x-kubernetes-preserve-unknown-fields to true in spec.versions[*].schema instead"
        errors.invalid("spec.preserveUnknownFields", True, told)


def _approval(errors: ErrorList, obj: JSON) -> None:
    _, reason, message = approval_condition(obj)
    path = f"metadata.annotations[{APPROVAL_ANNOTATION}]"
    if reason == "MissingAnnotation":
        errors.required(path, message)
    elif reason == "InvalidAnnotation":
        errors.invalid(path, obj["metadata"]["annotations"][APPROVAL_ANNOTATION], message)


# --- status -----------------------------------------------------------------------------------------------------------


def _status(errors: ErrorList, obj: JSON) -> None:
    _names(errors, (obj.get("status") or {}).get("acceptedNames") or {}, "status.acceptedNames")


def _stored_versions(errors: ErrorList, obj: JSON) -> None:
    stored, path = (obj.get("status") or {}).get("storedVersions"), "status.storedVersions"
    if not stored:
        errors.invalid(path, stored, "must have at least one stored version")
        return
    names = [each.get("name", "") for each in obj["spec"].get("versions") or ()]
    for each in obj["spec"].get("versions") or ():
        if each.get("storage") and each.get("name", "") not in stored:
            errors.invalid(path, stored, f"must have the storage version {each.get('name', '')}")
    for index, name in enumerate(stored):
        if name not in names:
            told = (
                f"missing from spec.versions; {name} was previously a storage version, and must remain in "
                f"spec.versions until a storage migration ensures no data remains persisted in {name} and removes "
                f"{name} from status.storedVersions"
            )
            errors.invalid(f"{path}[{index}]", name, told)


# --- spec -------------------------------------------------------------------------------------------------------------


def _spec(errors: ErrorList, spec: JSON) -> None:
    group, versions = spec.get("group", ""), spec.get("versions") or []
    if not group:
        errors.required("spec.group")
    elif wrong := dns_subdomain(group):
        errors.invalid("spec.group", group, ",".join(wrong))
    elif "." not in group:
        errors.invalid("spec.group", group, "should be a domain with at least one dot")
    _one_of(errors, "spec.scope", spec.get("scope", ""), ("Cluster", "Namespaced"))
    shared = {part for part in _SHARED if all(each.get(part) == versions[0].get(part) for each in versions)}
    if not any((each.get("schema") or {}).get("openAPIV3Schema") for each in versions[:1] if "schema" in shared):
        for index, each in enumerate(versions):
            if not (each.get("schema") or {}).get("openAPIV3Schema"):
                errors.required(f"spec.versions[{index}].schema.openAPIV3Schema")
    names = [each.get("name", "") for each in versions]
    for index, each in enumerate(versions):
        if wrong := dns_1035_label(names[index]):
            errors.invalid(f"spec.versions[{index}].name", names[index], ",".join(wrong))
        _deprecation(errors, each, f"spec.versions[{index}]")
        for part in _SHARED:
            if part not in shared and part in each:
                _part(errors, part, each, f"spec.versions[{index}].{part}", has_status=_has_status(each))
    own = [{name: value for name, value in each.items() if name not in shared} for each in versions]
    if len({*names}) != len(names):
        errors.invalid("spec.versions", own, "must contain unique version names", _VERSION_TYPE)
    if sum(bool(each.get("storage")) for each in versions) != 1:
        told = "must have exactly one version marked as storage version"
        errors.invalid("spec.versions", own, told, _VERSION_TYPE)
    if versions and (wrong := dns_1035_label(names[0])) and names[0]:
        errors.invalid("spec.version", names[0], ",".join(wrong))
    for name in ("plural", "singular", "kind", "listKind"):
        if not (spec.get("names") or {}).get(name):
            errors.required(f"spec.names.{name}")
    _names(errors, spec.get("names") or {}, "spec.names")
    has_status = any(_has_status(each) for each in versions)
    for part, place in _SHARED.items():
        if part in shared and versions and part in versions[0]:
            _part(errors, part, versions[0], f"spec.{place}", has_status=has_status)
    _conversion(errors, spec.get("conversion") or {})


_VERSION_TYPE = "apiextensions/v1.CustomResourceDefinitionVersion"


def _has_status(version: JSON) -> bool:
    return "status" in (version.get("subresources") or {})


def _one_of(errors: ErrorList, path: str, value: str, accepted: tuple[str, ...]) -> None:
    if not value:
        errors.required(path)
    elif value not in accepted:
        errors.not_supported(path, value, accepted)


def _names(errors: ErrorList, names: JSON, path: str) -> None:
    for name in ("plural", "singular"):
        if names.get(name) and (wrong := dns_1035_label(names[name])):
            errors.invalid(f"{path}.{name}", names[name], ",".join(wrong))
    for name in ("kind", "listKind"):
        if names.get(name) and (wrong := dns_1035_label(names[name].lower())):
            told = f"may have mixed case, but should otherwise match: {','.join(wrong)}"
            errors.invalid(f"{path}.{name}", names[name], told)
    for index, short in enumerate(names.get("shortNames") or ()):
        if wrong := dns_1035_label(short):
            errors.invalid(f"{path}.shortNames[{index}]", short, ",".join(wrong))
    if names.get("kind") and names["kind"] == names.get("listKind"):
        errors.invalid(f"{path}.listKind", names["listKind"], "kind and listKind may not be the same")
    for index, category in enumerate(names.get("categories") or ()):
        if wrong := dns_1035_label(category):
            errors.invalid(f"{path}.categories[{index}]", category, ",".join(wrong))


def _deprecation(errors: ErrorList, version: JSON, path: str) -> None:
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
            told = f"must only contain printable UTF-8 characters; non-printable character found at index {index}"
            errors.invalid(path, warning, told)
            break


# --- parts of versions ------------------------------------------------------------------------------------------------


def _part(errors: ErrorList, part: str, version: JSON, path: str, *, has_status: bool) -> None:
    schema: Schema | None = (version.get("schema") or {}).get("openAPIV3Schema")
    match part:
        case "schema":
            if schema is not None:
                found = ErrorList()
                check_schema(found, schema, path, has_status=has_status)
                errors.extend(found)
        case "subresources":
            if (scale := (version["subresources"] or {}).get("scale")) is not None:
                _scale(errors, scale, f"{path}.scale")
        case "additionalPrinterColumns":
            for index, column in enumerate(version[part] or ()):
                _column(errors, column, f"{path}[{index}]")
        case "selectableFields":
            if version[part]:
                _selectable(errors, version[part], schema, path)


def _scale(errors: ErrorList, scale: JSON, path: str) -> None:
    for name, parent in (("specReplicasPath", ".spec."), ("statusReplicasPath", ".status.")):
        given = scale.get(name, "")
        if not given:
            errors.required(f"{path}.{name}")
        elif not given.startswith("."):
            errors.invalid(f"{path}.{name}", given, "must be a simple json path starting with .")
        elif not given.startswith(parent):
            errors.invalid(f"{path}.{name}", given, f"should be a json path under {parent[:-1]}")
    selector = scale.get("labelSelectorPath")
    if selector:
        if not selector.startswith("."):
            told = "must be a simple json path starting with ."
            errors.invalid(f"{path}.labelSelectorPath", selector, told)
        elif not selector.startswith((".spec.", ".status.")):
            told = "should be a json path under either .spec or .status"
            errors.invalid(f"{path}.labelSelectorPath", selector, told)


def _column(errors: ErrorList, column: JSON, path: str) -> None:
    if not column.get("name"):
        errors.required(f"{path}.name")
    types = f"must be one of {','.join(_COLUMN_TYPES)}"
    if not column.get("type"):
        errors.required(f"{path}.type", types)
    elif column["type"] not in _COLUMN_TYPES:
        errors.invalid(f"{path}.type", column["type"], types)
    if column.get("format") and column["format"] not in _COLUMN_FORMATS:
        errors.invalid(f"{path}.format", column["format"], f"must be one of {','.join(_COLUMN_FORMATS)}")
    if not column.get("jsonPath"):
        errors.required(f"{path}.JSONPath")
    elif not column["jsonPath"].startswith("."):
        errors.invalid(f"{path}.JSONPath", column["jsonPath"], "must be a simple json path starting with .")


def _selectable(errors: ErrorList, fields: list[JSON], schema: Schema | None, path: str) -> None:
    if schema is None:
        told = "may only be set when `version.schema.openAPIV3Schema` is not included"
        errors.invalid(path, "", told if "versions" in path else "may only be set when validations.schema is included")
        return
    seen: list[str] = []
    for index, each in enumerate(fields):
        where, given = f"{path}[{index}].jsonPath", each.get("jsonPath", "")
        if not given:
            errors.required(where)
            continue
        found: Schema | None = schema
        for name in jsonpath.field_names(given):
            found = (found.get("properties") or {}).get(name) if found is not None else None
        if found is None or not given.startswith(".") or "[" in given:
            errors.invalid(where, given, "is an invalid path: does not refer to a valid field")
            continue
        if jsonpath.field_names(given)[0] == "metadata":
            errors.invalid(where, given, "must not point to fields in metadata")
        if found.get("type") not in ("string", "boolean", "integer"):
            told = "must point to a field of type string, boolean or integer. "
            errors.invalid(where, given, f"{told}Enum string fields and strings with formats are allowed.")
        if given in seen:
            errors.duplicate(where, given)
        else:
            seen.append(given)
    if len(seen) > _MAX_SELECTABLE:
        errors.too_many(path, len(seen), _MAX_SELECTABLE)


def _conversion(errors: ErrorList, conversion: JSON) -> None:
    path, strategy = "spec.conversion", conversion.get("strategy", "")
    _one_of(errors, f"{path}.strategy", strategy, ("None", "Webhook"))
    webhook = conversion.get("webhook")
    client, versions = (webhook or {}).get("clientConfig"), (webhook or {}).get("conversionReviewVersions")
    if strategy != "Webhook":
        if client is not None:
            told = "should not be set when strategy is not set to Webhook"
            errors.forbidden(f"{path}.webhookClientConfig", told)
        if versions:
            told = "should not be set when strategy is not set to Webhook"
            errors.forbidden(f"{path}.conversionReviewVersions", told)
        return
    if client is None:
        errors.required(f"{path}.webhookClientConfig", "required when strategy is set to Webhook")
    elif (client.get("url") is None) == (client.get("service") is None):
        errors.required(f"{path}.webhookClientConfig", "exactly one of url or service is required")
    elif client.get("url") is not None:
        _webhook_url(errors, client["url"], f"{path}.webhookClientConfig.url")
    else:
        _webhook_service(errors, client["service"], f"{path}.webhookClientConfig.service")
    _review_versions(errors, versions or [], f"{path}.conversionReviewVersions")


def _review_versions(errors: ErrorList, versions: list[str], path: str) -> None:
    if not versions:
        errors.required(path)
        return
    for index, each in enumerate(versions):
        if each in versions[:index]:
            errors.invalid(f"{path}[{index}]", each, "duplicate version")
            continue
        for wrong in dns_1035_label(each):
            errors.invalid(f"{path}[{index}]", each, wrong)
    if not {"v1", "v1beta1"} & {*versions}:
        errors.invalid(path, versions, "must include at least one of v1, v1beta1")


def _webhook_url(errors: ErrorList, text: str, path: str) -> None:
    """Source: apiserver pkg/util/webhook/validation.go."""
    form = "; desired format: https://host[/path]"
    try:
        url = urlsplit(text)
    except ValueError as error:
        errors.required(path, f"url must be a valid URL: {error}{form}")
        return
    user, at, host = url.netloc.rpartition("@")
    if url.scheme != "https":
        errors.invalid(path, url.scheme, f"'https' is the only allowed URL scheme{form}")
    if not host:
        errors.invalid(path, host, f"host must be specified{form}")
    if at:
        errors.invalid(path, user, "user information is not permitted in the URL")
    if url.fragment:
        errors.invalid(path, url.fragment, "fragments are not permitted in the URL")
    if url.query:
        errors.invalid(path, url.query, "query parameters are not permitted in the URL")


def _webhook_service(errors: ErrorList, service: JSON, path: str) -> None:
    if not service.get("namespace"):
        errors.required(f"{path}.name")  # kube-apiserver takes the one for the other here
    if not service.get("name"):
        errors.required(f"{path}.namespace")
    port = service.get("port", 443)
    if not 1 <= port <= _MAX_PORT:
        errors.invalid(f"{path}.port", port, f"port is not valid: must be between 1 and {_MAX_PORT}, inclusive")
    given = service.get("path") or "/"
    if given == "/":
        return
    if given == "//":
        errors.invalid(f"{path}.path", given, "segment[0] may not be empty")
        return
    if not given.startswith("/"):
        errors.invalid(f"{path}.path", given, "must start with a '/'")
    for index, step in enumerate(given[1:].removesuffix("/").split("/")):
        for wrong in dns_subdomain(step) if step else ():
            errors.invalid(f"{path}.path", given, f"segment[{index}]: {wrong}")
        if not step:
            errors.invalid(f"{path}.path", given, f"segment[{index}] may not be empty")


_MAX_PORT = 65535


# --- warnings ---------------------------------------------------------------------------------------------------------


def definition_warnings(obj: JSON, old: JSON | None) -> list[str]:
    """Formats that Kubernetes does not know, and what this server does not do, as far as that is new."""
    before = [] if old is None else _doubts(old)
    return [each for each in _doubts(obj) if each not in before]


def _doubts(obj: JSON) -> list[str]:
    told: list[str] = []
    for version in obj["spec"].get("versions") or ():
        for _, schema in walk((version.get("schema") or {}).get("openAPIV3Schema") or {}):
            format_ = schema.get("format")
            if format_ and not is_known_format(schema.get("type") or "", format_):
                told.append(f'unrecognized format "{format_}"')
    return list(dict.fromkeys(told))


DEFINITION_VALIDATORS = KindValidators(
    create=definition_create,
    update=definition_update,
    status=definition_status,
    core_finalizers=False,
    warnings=definition_warnings,
)
