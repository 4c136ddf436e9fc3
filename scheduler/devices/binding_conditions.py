"""Binding conditions: a pod is bound only when all conditions that its devices require are true.

Source: plugins/dynamicresources/dynamicresources.go of v1.36.
"""

from __future__ import annotations

from datetime import datetime

from kubeloop.kube.objects.device_types import AllocatedDeviceStatus, DeviceRequestAllocationResult, ResourceClaim
from kubeloop.kube.values.durations import parse_duration_seconds
from kubeloop.kube.values.times import time_plus

_DEFAULT_TIMEOUT_SECONDS = 600.0


class DeviceBindingFailed(Exception):
    """A binding failure condition of a device is true."""


def binding_timeout_seconds(duration: str | None) -> float:
    """Return the plugin argument bindingTimeout in seconds; the default if it is not set."""
    return parse_duration_seconds(duration) if duration else _DEFAULT_TIMEOUT_SECONDS


def has_binding_conditions(claim: ResourceClaim) -> bool:
    allocation = claim.status.allocation
    return allocation is not None and any(result.binding_conditions for result in allocation.devices.results)


def is_ready_for_binding(claim: ResourceClaim) -> bool:
    """Return True if all binding conditions are true. Raises DeviceBindingFailed."""
    allocation = claim.status.allocation
    if allocation is None:
        return False
    for result in allocation.devices.results:
        if not result.binding_conditions:
            continue
        status = _device_status(claim, result)
        if status is None:
            return False
        conditions = {condition.type: condition for condition in status.conditions}
        for name in result.binding_failure_conditions:
            failure = conditions.get(name)
            if failure is not None and failure.status == "True":
                raise DeviceBindingFailed(
                    f"device binding failed: claim={claim.metadata.name}, reason={failure.reason}, "
                    f'message="{failure.message}"'
                )
        for name in result.binding_conditions:
            condition = conditions.get(name)
            if condition is None or condition.status != "True":
                return False
    return True


def has_binding_timed_out(claim: ResourceClaim, now: datetime, timeout_seconds: float) -> bool:
    """Return True if a claim with binding conditions was allocated too long ago."""
    allocation = claim.status.allocation
    if allocation is None or allocation.allocation_timestamp is None or not has_binding_conditions(claim):
        return False
    return time_plus(allocation.allocation_timestamp, timeout_seconds) < now


def _device_status(claim: ResourceClaim, result: DeviceRequestAllocationResult) -> AllocatedDeviceStatus | None:
    for status in claim.status.devices:
        if (status.driver, status.pool, status.device) == (result.driver, result.pool, result.device):
            return status
    return None
