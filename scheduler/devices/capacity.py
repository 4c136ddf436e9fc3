"""Consumable capacity: how much a request consumes of a device, and whether that is left.

Source: structured/internal/incubating/consumable_capacity.go of v1.36.
"""

from __future__ import annotations

from collections.abc import Mapping

from kubeloop.kube.objects.device_types import CapacityRequestPolicyRange, CapacityRequirements, Device, DeviceCapacity
from kubeloop.kube.values.quantities import Format, Quantity, parse_quantity

Amounts = dict[str, Quantity]
"""Amounts of capacity by qualified name."""


def consumed_capacity(device: Device, required: CapacityRequirements | None) -> Amounts:
    """Return what a request consumes of a device that allows multiple allocations."""
    requests = required.requests if required is not None else {}
    return {
        name: _consumed(parse_quantity(requests[name]) if name in requests else None, capacity)
        for name, capacity in device.capacity.items()
    }


def has_capacity(
    device: Device, required: CapacityRequirements | None, allocated: Mapping[str, Quantity], allocating: Amounts
) -> bool:
    """Return True if the device has all requested capacities, and they are left.

    allocated: consumed by other claims; allocating: by devices that are part of this search.
    """
    requests = required.requests if required is not None else {}
    if any(name not in device.capacity for name in requests):
        return False
    for name, capacity in device.capacity.items():
        consumed = _consumed(parse_quantity(requests[name]) if name in requests else None, capacity)
        if _violates_policy(consumed, capacity):
            return False
        for other in (allocated.get(name), allocating.get(name)):
            if other is not None:
                consumed = consumed + other
        if consumed.compare(parse_quantity(capacity.value)) > 0:
            return False
    return True


def _consumed(requested: Quantity | None, capacity: DeviceCapacity) -> Quantity:
    """Return the amount that is consumed: the request or its default, rounded up as the policy says."""
    policy = capacity.request_policy
    if requested is None:
        default = policy.default if policy is not None else None
        return parse_quantity(capacity.value if default is None else default)
    if policy is None:
        return requested
    if policy.valid_range is not None and policy.valid_range.min is not None:
        return _rounded_up(requested, policy.valid_range)
    return next(
        (valid for valid in map(parse_quantity, policy.valid_values) if requested.compare(valid) <= 0), requested
    )


def _rounded_up(requested: Quantity, valid: CapacityRequestPolicyRange) -> Quantity:
    assert valid.min is not None
    minimum = parse_quantity(valid.min)
    if requested.compare(minimum) < 0:
        return minimum
    if valid.step is None:
        return requested
    least, step = minimum.value(), parse_quantity(valid.step).value()
    steps = -(-(requested.value() - least) // step)
    return Quantity(least + step * steps, 0, Format.BINARY_SI)


def _violates_policy(amount: Quantity, capacity: DeviceCapacity) -> bool:
    policy = capacity.request_policy
    if policy is None:
        return False
    if policy.default is not None:
        default = parse_quantity(policy.default)
        if (amount.parts, amount.format) == (default.parts, default.format):  # the same text, as Go compares structs
            return False
    valid = policy.valid_range
    if valid is not None:
        if valid.max is not None and amount.compare(parse_quantity(valid.max)) > 0:
            return True
        if valid.step is None:
            return False
        least = parse_quantity(valid.min).value() if valid.min is not None else 0
        return (amount.value() - least) % parse_quantity(valid.step).value() != 0
    return bool(policy.valid_values) and all(
        amount.compare(parse_quantity(valid_value)) != 0 for valid_value in policy.valid_values
    )
