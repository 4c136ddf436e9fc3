"""DeviceTaintRules. Source: pkg/apis/resource/validation of Kubernetes v1.36."""

from __future__ import annotations

from collections.abc import Callable

from kubeloop.devcluster.api.strategy import Strategy, Write
from kubeloop.devcluster.kinds.resource.common import (
    validate_driver_name,
    validate_label,
    validate_pool_name,
    validate_taint,
)
from kubeloop.devcluster.kinds.resource.resource_slice import default_taint_time
from kubeloop.devcluster.printers.columns import AGE, age_of, row, text_of
from kubeloop.devcluster.validation.common.error_list import ErrorList
from kubeloop.devcluster.validation.common.status_conditions import validate_conditions
from kubeloop.kube.json_object import JSON

_MAX_CONDITIONS = 8


def validate_device_taint_rule_status_update(errors: ErrorList, obj: JSON, old: JSON) -> None:
    conditions = obj.get("status", {}).get("conditions") or ()
    validate_conditions(errors, "status.conditions", conditions)
    errors.at_most("status.conditions", conditions, _MAX_CONDITIONS)


def validate_device_taint_rule(errors: ErrorList, obj: JSON, old: JSON | None = None) -> None:
    """Validate the spec; the effect only if it changes."""
    spec, old_effect = obj["spec"], "" if old is None else old["spec"]["taint"].get("effect", "")
    selector = spec.get("deviceSelector") or {}
    checks = {"driver": validate_driver_name, "pool": validate_pool_name, "device": validate_label}
    for name, validate in checks.items():
        if (value := selector.get(name)) is not None:
            validate(errors, f"spec.deviceSelector.{name}", value)
    validate_taint(errors, "spec.taint", spec.get("taint") or {}, old_effect)


def _default_times(obj: JSON, now: Callable[[], str]) -> None:
    default_taint_time(obj["spec"]["taint"], now)


def update_taint_time(taint: JSON, old: JSON, now: Callable[[], str]) -> None:
    """Set when the effect of a DeviceTaintRule was added, unless the client does."""
    if taint.get("effect") != old.get("effect") and taint.get("timeAdded") == old.get("timeAdded"):
        taint["timeAdded"] = now()


def _prepare_update(rule: JSON, old: JSON, write: Write) -> None:
    update_taint_time(rule["spec"]["taint"], old["spec"]["taint"], write.now)


STRATEGY = Strategy(
    default_times=_default_times,
    prepare_update=_prepare_update,
    status_metadata=(),
    validate=validate_device_taint_rule,
    validate_update=validate_device_taint_rule,
    validate_subresources={"status": validate_device_taint_rule_status_update},
    cells=row(
        text_of("spec.taint.key"),
        text_of("spec.taint.value"),
        text_of("spec.taint.effect"),
        age_of("spec.taint.timeAdded", ""),
        AGE,
    ),
)
