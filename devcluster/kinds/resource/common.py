"""Lists, names, taints, tolerations and conditions in several kinds of resource.k8s.io.

A validator takes an ErrorList, the path and the value.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from typing import Any

import msgspec

from kubeloop.devcluster.validation.common.error_list import ErrorList
from kubeloop.devcluster.validation.pod.volumes import validate_csi_driver_name
from kubeloop.kube.json_object import JSON
from kubeloop.kube.validation.name_checks import dns_label, dns_subdomain, label_value, qualified_name, regex_error

Validator = Callable[[ErrorList, str, Any], None]

validate_driver_name = validate_csi_driver_name
EFFECTS = ("NoExecute", "NoSchedule", "None")
_OPERATORS = ("Equal", "Exists")
_MAX_POOL_NAME, _MAX_IDENTIFIER, _MAX_CONDITIONS, _MAX_RAW = 253, 32, 4, 10 * 1024
_IDENTIFIER = "[A-Za-z_][A-Za-z0-9_]*"
_IDENTIFIER_ERROR = regex_error(
    "a valid C identifier must start with alphabetic character or '_', followed by a string of alphanumeric "
    "characters or '_'",
    _IDENTIFIER,
    *("my_name", "MY_NAME", "MyName"),
)


def name_of(item: JSON) -> str:
    """Return the name of an item of a list, "" if it has none."""
    name: str = item.get("name", "")
    return name


def validate_list(
    errors: ErrorList,
    path: str,
    items: Sequence[Any] | None,
    limit: int | None,
    validate_item: Validator,
    key: Callable[[Any], Any] | None = None,
) -> None:
    """Validate size and items of a list, and with `key` that it is unique. Items of a list that is too long do not
    count."""
    items = items or ()
    if limit is not None and len(items) > limit:
        errors.too_many(path, len(items), limit)
        return
    for i, item in enumerate(items):
        validate_item(errors, f"{path}[{i}]", item)
    if key is not None:
        validate_unique(errors, path, [key(item) for item in items])


def validate_unique(errors: ErrorList, path: str, keys: Sequence[Any]) -> None:
    seen: set[Any] = set()
    for i, key in enumerate(keys):
        errors.unique(f"{path}[{i}]", key, seen)


def validate_label(errors: ErrorList, path: str, name: str) -> None:
    errors.check(path, name, dns_label)


def validate_qualified_key(errors: ErrorList, path: str, key: str) -> None:
    """Validate the key of a label, or the type of a condition."""
    errors.check(path, key, qualified_name)


def validate_pool_name(errors: ErrorList, path: str, name: str) -> None:
    if not errors.require(path, name):
        return
    errors.at_most_bytes(path, name, _MAX_POOL_NAME)
    for part in name.split("/"):
        errors.check(path, part, dns_subdomain)


def validate_attribute_name(errors: ErrorList, path: str, name: str) -> None:
    """Validate the name of an attribute or capacity, with or without a domain."""
    domain, slash, identifier = name.partition("/")
    if "/" in identifier:
        return  # as kube-apiserver
    if not slash:
        _validate_identifier(errors, path, name)
        return
    if domain:
        validate_driver_name(errors, path, domain)
    else:
        errors.invalid(path, "", "the domain must not be empty")
    if identifier:
        _validate_identifier(errors, path, identifier)
    else:
        errors.invalid(path, "", "the name must not be empty")


def _validate_identifier(errors: ErrorList, path: str, name: str) -> None:
    errors.at_most_bytes(path, name, _MAX_IDENTIFIER)
    if not re.fullmatch(_IDENTIFIER, name):
        errors.invalid(path, name, _IDENTIFIER_ERROR)


def validate_taint(errors: ErrorList, path: str, taint: JSON, old_effect: str = "") -> None:
    """Validate a taint; old_effect: of a stored taint, which is accepted."""
    key, value, effect = (taint.get(name, "") for name in ("key", "value", "effect"))
    validate_qualified_key(errors, f"{path}.key", key)
    errors.check(f"{path}.value", value or None, label_value)
    if errors.require(f"{path}.effect", effect) and effect not in (old_effect, *EFFECTS):
        errors.not_supported(f"{path}.effect", effect, EFFECTS)


def validate_toleration(errors: ErrorList, path: str, toleration: JSON) -> None:
    key, operator, value, effect = (toleration.get(name, "") for name in ("key", "operator", "value", "effect"))
    if key:
        validate_qualified_key(errors, f"{path}.key", key)
    if operator == "Exists" and value:
        errors.invalid(f"{path}.value", value, "must be empty for operator `Exists`")
    elif operator == "Equal":
        errors.check(f"{path}.value", value, label_value)
    elif operator not in _OPERATORS:
        errors.not_supported(f"{path}.operator", operator, _OPERATORS)
    errors.one_of(f"{path}.effect", effect or None, EFFECTS)


def validate_binding_conditions(errors: ErrorList, path: str, device: JSON) -> None:
    """Validate bindingConditions and bindingFailureConditions of a device, or of its allocation."""
    names = ("bindingConditions", "bindingFailureConditions")
    conditions, failures = ([*(device.get(name) or ())] for name in names)
    for name in names:
        validate_list(errors, f"{path}.{name}", device.get(name), _MAX_CONDITIONS, validate_qualified_key)
    validate_unique(errors, f"{path}.{names[0]}", conditions)
    for i, condition in enumerate(failures):
        if condition in failures[:i]:
            errors.duplicate(f"{path}.{names[1]}[{i}]", condition)
        if condition in conditions:
            detail = "bindingFailureConditions must not overlap with bindingConditions"
            errors.invalid(f"{path}.{names[1]}[{i}]", condition, detail)
    for name, other in (names, names[::-1]):
        if device.get(other) and not device.get(name):
            errors.invalid(f"{path}.{name}", None, f"{name} are required to use {other}")


def validate_raw_object(errors: ErrorList, path: str, value: Any) -> None:
    """Validate opaque data, which must be a JSON object."""
    if value is None:
        errors.required(path)
    elif len(msgspec.json.encode(value)) > _MAX_RAW:
        errors.too_long(path, _MAX_RAW)
    elif type(value) is not dict:
        errors.invalid(path, "<value omitted>", "must be a valid JSON object")
