"""Constraints over all devices of a claim: matchAttribute and distinctAttribute.

Source: structured/internal/incubating of v1.36.
"""

from __future__ import annotations

from typing import Any, Protocol

from kubeloop.kube.objects.device_types import Device, DeviceAttribute, DeviceConstraint
from kubeloop.scheduler.devices.errors import AllocationError


class Constraint(Protocol):
    name: str

    def add(self, request: str, subrequest: str, driver: str, device: Device) -> bool:
        """Add a device; returns False, without a change, if it violates the constraint."""
        ...

    def remove(self, request: str, subrequest: str) -> None:
        """Undo the last add."""
        ...


def new_constraint(constraint: DeviceConstraint, claim_key: str, index: int) -> Constraint:
    """Raises AllocationError for an unknown kind of constraint."""
    if constraint.match_attribute is not None:
        return _MatchAttribute(constraint.match_attribute, frozenset(constraint.requests))
    if constraint.distinct_attribute is not None:
        return _DistinctAttribute(constraint.distinct_attribute, frozenset(constraint.requests))
    raise AllocationError(f"claim {claim_key}, constraint #{index}: empty constraint (unsupported constraint type?)")


def applies(requests: frozenset[str], request: str, subrequest: str) -> bool:
    return not requests or request in requests or (bool(subrequest) and f"{request}/{subrequest}" in requests)


def attribute_value(device: Device, driver: str, name: str) -> Any | None:
    """Return (type, value) of the scalar attribute with this fully qualified name; None if the device has none."""
    attribute = device.attributes.get(name)
    if attribute is None:
        domain, slash, identifier = name.partition("/")
        if not slash or domain != driver:
            return None
        attribute = device.attributes.get(identifier)
    return None if attribute is None else _scalar(attribute)


def _scalar(attribute: DeviceAttribute) -> tuple[str, Any]:
    if attribute.string_value is not None:
        return "string", attribute.string_value
    if attribute.int_value is not None:
        return "int", attribute.int_value
    if attribute.bool_value is not None:
        return "bool", attribute.bool_value
    return "version", attribute.version_value  # None: a list, which equals nothing


class _MatchAttribute:
    """All devices have the same value of an attribute."""

    def __init__(self, attribute: str, requests: frozenset[str]) -> None:
        self.name = f"matchAttribute {attribute}"
        self._attribute, self._requests = attribute, requests
        self._value: Any = None
        self._count = 0

    def add(self, request: str, subrequest: str, driver: str, device: Device) -> bool:
        if not applies(self._requests, request, subrequest):
            return True
        value = attribute_value(device, driver, self._attribute)
        if value is None:
            return False
        if self._count == 0:
            self._value = value
        elif value != self._value or value[1] is None:
            return False
        self._count += 1
        return True

    def remove(self, request: str, subrequest: str) -> None:
        if applies(self._requests, request, subrequest):
            self._count -= 1


class _DistinctAttribute:
    """All devices have different values of an attribute.

    As in kube-scheduler, only the value of the last device of each request is compared.
    """

    def __init__(self, attribute: str, requests: frozenset[str]) -> None:
        self.name = f"distinctAttribute {attribute}"
        self._attribute, self._requests = attribute, requests
        self._values: dict[str, Any] = {}  # by request
        self._count = 0

    def add(self, request: str, subrequest: str, driver: str, device: Device) -> bool:
        if not applies(self._requests, request, subrequest):
            return True
        value = attribute_value(device, driver, self._attribute)
        if value is None:
            return False
        if self._count and (value in self._values.values() or (value[1] is None and self._values)):
            return False
        self._values[request] = value
        self._count += 1
        return True

    def remove(self, request: str, subrequest: str) -> None:
        if applies(self._requests, request, subrequest):
            self._values.pop(request, None)
            self._count -= 1
