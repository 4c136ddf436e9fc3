"""CustomResourceDefinitions. Source: apiextensions-apiserver pkg/registry/customresourcedefinition."""

from __future__ import annotations

from collections.abc import Iterable

from kubeloop.devcluster.api.strategy import Strategy, Write
from kubeloop.devcluster.apiextensions.definition_validation import (
    definition_warnings,
    validate_definition_create,
    validate_definition_status,
    validate_definition_update,
)
from kubeloop.devcluster.kinds.admissionregistration.validating_webhook_configuration import default_service_port
from kubeloop.devcluster.registry.custom_resource_definitions import mark_for_cleanup
from kubeloop.devcluster.registry.disabled_fields import drop_fields, itself
from kubeloop.kube.json_object import JSON


def _default(obj: JSON) -> None:
    spec = obj["spec"]
    names = spec.setdefault("names", {})
    if names.get("kind"):
        names.setdefault("listKind", f"{names['kind']}List")
        names.setdefault("singular", names["kind"].lower())
    conversion = spec.setdefault("conversion", {})
    conversion.setdefault("strategy", "None")
    default_service_port(((conversion.get("webhook") or {}).get("clientConfig") or {}).get("service"))


def _storage_versions(definition: JSON) -> list[str]:
    return [version.get("name", "") for version in definition["spec"].get("versions") or () if version.get("storage")][
        :1
    ]


def _prepare_create(obj: JSON, _write: Write) -> None:
    obj["status"] = {
        "conditions": None,
        "acceptedNames": {"plural": "", "kind": ""},
        "storedVersions": _storage_versions(obj) or None,
    }


def _prepare_update(obj: JSON, _old: JSON, _write: Write) -> None:
    """Add a new storage version to storedVersions; only a status update removes one."""
    stored_versions = obj["status"].get("storedVersions") or []
    new = [name for name in _storage_versions(obj) if name not in stored_versions]
    if new:
        obj["status"] = {**obj["status"], "storedVersions": [*stored_versions, *new]}


def _conditions(status: JSON) -> Iterable[JSON]:
    return status.get("conditions") or ()


def _mark_deleted(definition: JSON, _finalizers: list[str], now: str) -> JSON:
    """Mark a definition; it remains until its objects are deleted (apiextensions.definitions)."""
    return mark_for_cleanup(definition, now)


STRATEGY = Strategy(
    default=_default,
    gated_status_fields=(
        (
            "CRDObservedGenerationTracking",
            drop_fields((itself, ("observedGeneration",)), (_conditions, ("observedGeneration",))),
        ),
    ),
    prepare_create=_prepare_create,
    prepare_update=_prepare_update,
    validate=validate_definition_create,
    validate_update=validate_definition_update,
    validate_subresources={"status": validate_definition_status},
    core_finalizers=False,
    warnings=definition_warnings,
    status_warnings=definition_warnings,
    mark_deleted=_mark_deleted,
)
