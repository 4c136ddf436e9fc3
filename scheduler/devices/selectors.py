"""Device selectors: CEL expressions over the attributes and capacity of one device.

Source: staging/src/k8s.io/dynamic-resource-allocation/cel/compile.go of v1.36.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import lru_cache
from typing import Any

from kubeloop.kube.cel.functions.kubernetes_functions import QuantityValue, semver
from kubeloop.kube.cel.program import Library, Program
from kubeloop.kube.cel.syntax import ExpressionError, InstantiationError
from kubeloop.kube.cel.types import BOOL, QUANTITY, STRING, Type, map_of
from kubeloop.kube.cel.values import CelError, ContainerValue, equal, type_name
from kubeloop.kube.objects.device_types import Device, DeviceAttribute
from kubeloop.kube.quantities import parse_quantity

_ANY = Type("any", "any")


class SelectorError(Exception):
    """A selector that does not compile or fails for a device."""


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


_BINDINGS = Library({}, {}, bindings=True)


class DeviceSelectors:
    """Compiles and evaluates selectors. Compiled expressions are cached."""

    def __init__(self, *, consumable_capacity: bool) -> None:
        """consumable_capacity: the feature gate DRAConsumableCapacity."""
        fields = {
            "driver": STRING,
            "attributes": map_of(STRING, map_of(STRING, _ANY)),
            "capacity": map_of(STRING, map_of(STRING, QUANTITY)),
        }
        if consumable_capacity:
            fields["allowMultipleAllocations"] = BOOL
        self._variables = {"device": Type("struct", "kubernetes.DRADevice", fields=fields)}
        self._compiled = lru_cache(maxsize=256)(self._compile)

    def _compile(self, expression: str) -> Program | str:
        """Return the program, or the error as kube-scheduler writes it."""
        try:
            program = Program(expression, self._variables, _BINDINGS)
        except ExpressionError as error:
            return f"compilation failed: {error}"
        except InstantiationError as error:
            return f"program instantiation failed: {error}"
        if program.type.kind not in ("bool", "any"):
            return f"must evaluate to bool or the unknown type, not {program.type}"
        return program

    def compile(self, expression: str) -> Program:
        """Return the compiled expression. Raises SelectorError."""
        program = self._compiled(expression)
        if isinstance(program, str):
            raise SelectorError(f"CEL compile error: {program}")
        return program

    def variables(self, driver: str, device: Device) -> dict[str, Any]:
        """Return the variables of the expressions for a device. Raises SelectorError for an invalid attribute."""
        attributes: dict[str, dict[str, Any]] = {}
        for name, attribute in device.attributes.items():
            domain, identifier = _qualified(name, driver)
            try:
                attributes.setdefault(domain, {})[identifier] = _attribute_value(attribute)
            except CelError as error:
                raise SelectorError(f"CEL runtime error: attribute {name}: {error}") from None
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

    def matches(self, expression: str, variables: dict[str, Any]) -> bool:
        """Return True if the expression selects the device of these variables. Raises SelectorError."""
        result = self.compile(expression).run(variables)
        if result.error:
            raise SelectorError(f"CEL runtime error: {result.error}")
        if type(result.value) is not bool:
            kind = type_name(result.value)
            raise SelectorError(
                f"CEL runtime error: CEL result of type {kind} could not be converted to bool: "
                f"unsupported type conversion from '{kind}' to bool"
            )
        return result.value


def _attribute_value(attribute: DeviceAttribute) -> Any:
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
