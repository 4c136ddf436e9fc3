"""StorageVersionMigrations. Sources: pkg/apis/storagemigration/validation, printers.go of Kubernetes v1.36."""

from __future__ import annotations

import re
from datetime import datetime

from kubeloop.devcluster.api.conditions import is_true
from kubeloop.devcluster.api.strategy import Strategy
from kubeloop.devcluster.printers.columns import row
from kubeloop.devcluster.validation.common.error_list import ErrorList
from kubeloop.devcluster.validation.common.status_conditions import validate_conditions
from kubeloop.kube.json_object import JSON
from kubeloop.kube.validation.name_checks import dns_1035_label, dns_subdomain

_RESOURCE_VERSION = re.compile("[1-9][0-9]*")
_CONDITIONS = "status.conditions"


def validate_storage_version_migration(errors: ErrorList, obj: JSON) -> None:
    target, path = (obj.get("spec") or {}).get("resource") or {}, "spec.resource"
    resource, group = target.get("resource", ""), target.get("group", "")
    if errors.require(f"{path}.resource", resource, "resource is required to be set"):
        errors.check_joined(f"{path}.resource", resource, dns_1035_label)
    errors.check(f"{path}.group", group or None, dns_subdomain)


def validate_storage_version_migration_update(errors: ErrorList, obj: JSON, old: JSON) -> None:
    validate_storage_version_migration(errors, obj)
    # as the internal type is written, whose field has no JSON name
    new, before = ({"Resource": (version.get("spec") or {}).get("resource")} for version in (obj, old))
    errors.immutable("spec", new, before)


def validate_storage_version_migration_status(errors: ErrorList, obj: JSON, old: JSON) -> None:
    status, before = obj.get("status") or {}, old.get("status") or {}
    version, path = status.get("resourceVersion", ""), "status.resourceVersion"
    if version and not _RESOURCE_VERSION.fullmatch(version):
        errors.invalid(path, version, f"resource version is not well formed: {version}")
    conditions = status.get("conditions") or []
    validate_conditions(errors, _CONDITIONS, conditions)
    if before.get("resourceVersion") and before["resourceVersion"] != version:
        errors.invalid(path, version, "field is immutable")
    type_name = "[]v1.Condition"
    if is_true(obj, "Succeeded") and is_true(obj, "Failed"):
        detail = "Both success and failed conditions cannot be true at the same time"
        errors.invalid(_CONDITIONS, conditions, detail, type_name)
    for type_, word in (("Succeeded", "Success"), ("Failed", "Failed")):
        if is_true(old, type_) and not is_true(obj, type_):
            detail = f"{word} condition cannot be set to false once it is true"
            errors.invalid(_CONDITIONS, conditions, detail, type_name)


def _resource(obj: JSON, _now: datetime) -> str:
    target = (obj.get("spec") or {}).get("resource") or {}
    return ".".join(filter(None, (target.get("resource"), target.get("group"))))


def _status(obj: JSON, _now: datetime) -> str:
    conditions = (obj.get("status") or {}).get("conditions") or ()
    types = [condition["type"] for condition in conditions if condition.get("status") == "True"]
    return next((type_ for type_ in reversed(types) if type_ in ("Running", "Failed", "Succeeded")), "Unknown")


STRATEGY = Strategy(
    status_metadata=(),
    validate=validate_storage_version_migration,
    validate_update=validate_storage_version_migration_update,
    validate_subresources={"status": validate_storage_version_migration_status},
    cells=row(_resource, _status),
)
