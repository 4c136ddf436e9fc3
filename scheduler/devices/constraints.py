"""Constraints over all devices of a claim: matchAttribute and distinctAttribute.

With the feature gate DRAListTypeAttributes an attribute is a set of values: matching devices have a value in common,
distinct devices have none. As in the API's documentation, that holds for all devices of a claim; kube-scheduler v1.36
does not apply the gate to constraints.
Source: structured/internal/incubating of v1.36.
"""

from __future__ import annotations

from typing import Any, Protocol

from kubeloop.kube.objects.device_types import Device, DeviceAttribute, DeviceConstraint
from kubeloop.scheduler.devices.errors import AllocationError


class Constraint(Protocol):
    def add(self, request: str, subrequest: str, driver: str, device: Device) -> bool:
        """Add a device; returns False, without a change, if it violates the constraint."""
        ...

    def remove(self, request: str, subrequest: str) -> None:
        """Undo the last add."""
        ...


def new_constraint(constraint: DeviceConstraint, claim_key: str, index: int, *, lists: bool = False) -> Constraint:
    """Return a new constraint without devices. lists: the feature gate DRAListTypeAttributes.

    Raises AllocationError for an unknown kind of constraint.
    """
    if lists and (constraint.match_attribute is not None or constraint.distinct_attribute is not None):
        return _AttributeSets(constraint)
    if constraint.match_attribute is not None:
        return _MatchAttribute(constraint.match_attribute, frozenset(constraint.requests))
    if constraint.distinct_attribute is not None:
        return _DistinctAttribute(constraint.distinct_attribute, frozenset(constraint.requests))
    raise AllocationError(f"claim {claim_key}, constraint #{index}: empty constraint (unsupported constraint type?)")


def applies(requests: frozenset[str], request: str, subrequest: str) -> bool:
    return not requests or request in requests or (bool(subrequest) and f"{request}/{subrequest}" in requests)


def attribute_value(device: Device, driver: str, name: str) -> Any | None:
    """Return (type, value) of the scalar attribute with this fully qualified name; None if the device has none."""
    attribute = _attribute(device, driver, name)
    return None if attribute is None else _scalar(attribute)


def attribute_values(device: Device, driver: str, name: str) -> frozenset[tuple[str, Any]]:
    """Return (type, value) of each value of an attribute, a list or scalar."""
    attribute = _attribute(device, driver, name)
    if attribute is None:
        return frozenset()
    for kind, values in (
        ("int", attribute.int_values),
        ("bool", attribute.bool_values),
        ("string", attribute.string_values),
        ("version", attribute.version_values),
    ):
        if values:
            return frozenset((kind, value) for value in values)
    kind, value = _scalar(attribute)
    return frozenset() if value is None else frozenset({(kind, value)})


def _attribute(device: Device, driver: str, name: str) -> DeviceAttribute | None:
    attribute = device.attributes.get(name)
    if attribute is None:
        domain, slash, identifier = name.partition("/")
        if not slash or domain != driver:
            return None
        attribute = device.attributes.get(identifier)
    return attribute


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


class _AttributeSets:
    """All devices have a value of an attribute in common, or no two devices have one (distinctAttribute)."""

    def __init__(self, constraint: DeviceConstraint) -> None:
        self._is_distinct = constraint.match_attribute is None
        self._attribute = constraint.match_attribute or constraint.distinct_attribute or ""
        self._requests = frozenset(constraint.requests)
        self._values: list[frozenset[tuple[str, Any]]] = []  # after each device: those in common, or of all devices

    def add(self, request: str, subrequest: str, driver: str, device: Device) -> bool:
        if not applies(self._requests, request, subrequest):
            return True
        values = attribute_values(device, driver, self._attribute)
        if not values:
            return False
        if self._values:
            common = self._values[-1] & values
            if bool(common) is self._is_distinct:
                return False
            values = self._values[-1] | values if self._is_distinct else common
        self._values.append(values)
        return True

    def remove(self, request: str, subrequest: str) -> None:
        if applies(self._requests, request, subrequest):
            self._values.pop()
