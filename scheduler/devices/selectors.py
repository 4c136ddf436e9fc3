"""Device selectors: CEL expressions over the attributes and capacity of one device.

Source: staging/src/k8s.io/dynamic-resource-allocation/cel/compile.go of v1.36.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from functools import lru_cache
from typing import Any

from kubeloop.cel.program import CelProgram
from kubeloop.cel.syntax import (
    Call,
    Ident,
    Literal,
    Node,
    Select,
    children,
)
from kubeloop.cel.values import CelError, ContainerValue, equal, type_name
from kubeloop.kube.cel_library import QuantityValue, semver
from kubeloop.kube.objects.device_types import Device, DeviceAttribute
from kubeloop.kube.selectors.device_selectors import DeviceSelectorError, compile_device_selector
from kubeloop.kube.values.quantities import parse_quantity

_MAX_RESULTS = 10_000  # cached per expression


class _ByDomain(ContainerValue):
    """Attributes or capacity by domain and identifier; a missing domain is an empty map."""

    __slots__ = ("domains",)
    is_map = True

    def __init__(self, domains: dict[str, dict[str, Any]]) -> None:
        self.domains = domains

    def __len__(self) -> int:
        return len(self.domains)

    def __iter__(self) -> Iterator[str]:
        return iter(self.domains)

    def find(self, key: Any) -> tuple[Any, bool]:
        return self.domains.get(key, {}), True

    def has_key(self, key: Any) -> bool:
        return key in self.domains

    def equals(self, other: Any) -> bool:
        return equal(self.domains, other.domains if isinstance(other, _ByDomain) else other)


class DeviceSelectors:
    """Compiles and evaluates selectors. Compiled expressions are cached."""

    def __init__(self, *, consumable_capacity: bool, list_attributes: bool = False) -> None:
        """consumable_capacity, list_attributes: the feature gates DRAConsumableCapacity and DRAListTypeAttributes."""
        self._consumable_capacity = consumable_capacity
        self._list_attributes = list_attributes
        self._compiled = lru_cache(maxsize=256)(self._compile)

    def _compile(self, expression: str) -> _Selector | str:
        """Return the compiled selector, or the error as kube-scheduler writes it."""
        try:
            program = compile_device_selector(
                expression, consumable_capacity=self._consumable_capacity, list_attributes=self._list_attributes
            )
        except DeviceSelectorError as error:
            return str(error)
        return _Selector(program, list_attributes=self._list_attributes)

    def matches(self, expression: str, driver: str, device: Device) -> bool:
        """Return True if the expression selects a device. Raises DeviceSelectorError."""
        selector = self._compiled(expression)
        if isinstance(selector, str):
            raise DeviceSelectorError(f"CEL compile error: {selector}")
        return selector.matches(driver, device)


class _Selector:
    """A compiled selector. Devices that are equal in all that it reads have the same result, which is cached."""

    def __init__(self, program: CelProgram, *, list_attributes: bool) -> None:
        self._program = program
        self._list_attributes = list_attributes
        self._reads = fields_read(program.node)
        self._results: dict[tuple[Any, ...], bool] = {}

    def matches(self, driver: str, device: Device) -> bool:
        """Return the result for a device. Raises DeviceSelectorError."""
        if self._reads is None:
            return self._evaluate(driver, device)
        key = tuple([_read(driver, device, *read) for read in self._reads])
        result = self._results.get(key)
        if result is None:
            if len(self._results) >= _MAX_RESULTS:
                self._results.clear()
            result = self._results[key] = self._evaluate(driver, device)
        return result

    def _evaluate(self, driver: str, device: Device) -> bool:
        result = self._program.run(_variables(driver, device, list_attributes=self._list_attributes))
        if result.error:
            raise DeviceSelectorError(f"CEL runtime error: {result.error}")
        if type(result.value) is not bool:
            kind = type_name(result.value)
            raise DeviceSelectorError(
                f"CEL runtime error: CEL result of type {kind} could not be converted to bool: "
                f"unsupported type conversion from '{kind}' to bool"
            )
        return result.value


Read = tuple[str, str, str]
"""Part of a device that an expression reads: (field, domain, identifier); the latter two are "" for scalar fields."""


def fields_read(node: Node) -> tuple[Read, ...] | None:
    """Return the parts of a device that an expression reads; None if it may read anything."""
    reads: set[Read] = set()
    pending = [node]
    while pending:
        part = pending.pop()
        if isinstance(part, Ident) and part.name == "device":
            return None
        read = _field_read(part)
        if read is None:
            pending += children(part)
        else:
            reads.add(read)
    return tuple(sorted(reads))


def _field_read(node: Node) -> Read | None:
    """Return what is read by device.driver or device.attributes["domain"].identifier; None for other expressions."""
    if not isinstance(node, Select):
        return None
    if _is_device(node.operand) and node.field in ("driver", "allowMultipleAllocations"):
        return node.field, "", ""
    domain = node.operand
    if not (isinstance(domain, Call) and domain.name == "_[_]" and isinstance(domain.args[1], Literal)):
        return None
    by_domain = domain.args[0]
    if not (isinstance(by_domain, Select) and _is_device(by_domain.operand)):
        return None
    return by_domain.field, str(domain.args[1].value), node.field


def _is_device(node: Node) -> bool:
    return isinstance(node, Ident) and node.name == "device"


def _read(driver: str, device: Device, field: str, domain: str, identifier: str) -> Any:
    if field == "driver":
        return driver
    if field == "allowMultipleAllocations":
        return device.allow_multiple_allocations
    values: Mapping[str, Any] = device.attributes if field == "attributes" else device.capacity
    value = values.get(f"{domain}/{identifier}")
    return values.get(identifier) if value is None and domain == driver else value


def _variables(driver: str, device: Device, *, list_attributes: bool) -> dict[str, Any]:
    """Return the variables of the expressions for a device. Raises DeviceSelectorError for an invalid attribute."""
    attributes: dict[str, dict[str, Any]] = {}
    for name, attribute in device.attributes.items():
        domain, identifier = _qualified(name, driver)
        try:
            attributes.setdefault(domain, {})[identifier] = _attribute_value(attribute, list_attributes=list_attributes)
        except CelError as error:
            raise DeviceSelectorError(f"CEL runtime error: attribute {name}: {error}") from None
    capacity: dict[str, dict[str, Any]] = {}
    for name, amount in device.capacity.items():
        domain, identifier = _qualified(name, driver)
        capacity.setdefault(domain, {})[identifier] = QuantityValue(parse_quantity(amount.value))
    return {
        "device": {
            "driver": driver,
            "allowMultipleAllocations": bool(device.allow_multiple_allocations),
            "attributes": _ByDomain(attributes),
            "capacity": _ByDomain(capacity),
        }
    }


def _attribute_value(attribute: DeviceAttribute, *, list_attributes: bool) -> Any:
    if list_attributes:
        for values in (attribute.int_values, attribute.bool_values, attribute.string_values):
            if values is not None:
                return [*values]
        if attribute.version_values is not None:
            return [*map(_version, attribute.version_values)]
    for value in (attribute.int_value, attribute.bool_value, attribute.string_value):
        if value is not None:
            return value
    if attribute.version_value is not None:
        return _version(attribute.version_value)
    raise CelError("unsupported attribute value")


def _version(text: str) -> Any:
    try:
        return semver(text)
    except CelError as error:
        raise CelError(f"parse semantic version: {error}") from None


def _qualified(name: str, default_domain: str) -> tuple[str, str]:
    domain, slash, identifier = name.partition("/")
    return (domain, identifier) if slash else (default_domain, name)
