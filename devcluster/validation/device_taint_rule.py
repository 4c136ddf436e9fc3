"""Validation of DeviceTaintRules. Source: pkg/apis/resource/validation/validation.go of Kubernetes v1.36."""

from __future__ import annotations

from kubeloop.devcluster.validation.common.error_list import ErrorList
from kubeloop.devcluster.validation.common.status_conditions import validate_conditions
from kubeloop.devcluster.validation.pod.volumes import validate_csi_driver_name
from kubeloop.kube.json_object import JSON
from kubeloop.kube.name_checks import dns_label, dns_subdomain, label_value, qualified_name

_EFFECTS = ("NoExecute", "NoSchedule", "None")
_MAX_POOL_NAME, _MAX_CONDITIONS = 253, 8


def validate_device_taint_rule(errors: ErrorList, obj: JSON) -> None:
    _validate_spec(errors, obj["spec"], "")


def validate_device_taint_rule_update(errors: ErrorList, obj: JSON, old: JSON) -> None:
    _validate_spec(errors, obj["spec"], old["spec"]["taint"].get("effect", ""))


def validate_device_taint_rule_status_update(errors: ErrorList, obj: JSON, old: JSON) -> None:
    conditions = obj.get("status", {}).get("conditions") or ()
    validate_conditions(errors, "status.conditions", conditions)
    if len(conditions) > _MAX_CONDITIONS:
        errors.too_many("status.conditions", len(conditions), _MAX_CONDITIONS)


def _validate_spec(errors: ErrorList, spec: JSON, old_effect: str) -> None:
    """Validate the spec; the effect only if it changes."""
    _validate_selector(errors, spec.get("deviceSelector") or {})
    taint = spec.get("taint") or {}
    key, value, effect = (taint.get(name, "") for name in ("key", "value", "effect"))
    errors.invalid_each("spec.taint.key", key, qualified_name(key))
    if value:
        errors.invalid_each("spec.taint.value", value, label_value(value))
    if not effect:
        errors.required("spec.taint.effect")
    elif effect not in (old_effect, *_EFFECTS):
        errors.not_supported("spec.taint.effect", effect, _EFFECTS)


def _validate_selector(errors: ErrorList, selector: JSON) -> None:
    path = "spec.deviceSelector"
    if (driver := selector.get("driver")) is not None:
        validate_csi_driver_name(errors, f"{path}.driver", driver)
    if (pool := selector.get("pool")) is not None:
        _validate_pool_name(errors, f"{path}.pool", pool)
    if (device := selector.get("device")) is not None:
        errors.invalid_each(f"{path}.device", device, dns_label(device))


def _validate_pool_name(errors: ErrorList, path: str, name: str) -> None:
    if not name:
        errors.required(path)
        return
    if len(name.encode()) > _MAX_POOL_NAME:
        errors.too_long(path, _MAX_POOL_NAME)
    for part in name.split("/"):
        errors.invalid_each(path, part, dns_subdomain(part))
