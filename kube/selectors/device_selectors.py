"""CEL selectors of devices: their variables and functions, and the errors of expressions that do not compile.

Source: staging/src/k8s.io/dynamic-resource-allocation/cel/compile.go of v1.36, without the estimate of costs.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from kubeloop.cel.declarations import Overload
from kubeloop.cel.program import CelProgram
from kubeloop.cel.syntax import ExpressionError, InstantiationError
from kubeloop.cel.types import BOOL, DYN, QUANTITY, STRING, Type, map_of
from kubeloop.cel.values import CelError, equal, is_list
from kubeloop.kube.cel_library import KUBERNETES_LIBRARY

_ANY = Type("any", "any")
_MAX_ATTRIBUTE_VALUES = 48  # of all lists of a device


class DeviceSelectorError(Exception):
    """A selector that does not compile or fails for a device."""


def _includes(_context: Any, target: Any, value: Any) -> bool:
    """Return True if a list has the value, or a single value is equal to it."""
    if not is_list(target):
        return _equals(target, value)
    for index, item in enumerate(target):
        if index >= _MAX_ATTRIBUTE_VALUES:
            raise CelError(f"'includes' function cannot be applied to lists longer than {_MAX_ATTRIBUTE_VALUES} values")
        if _equals(item, value):
            return True
    return False


def _equals(one: Any, other: Any) -> bool:
    try:
        return equal(one, other)
    except CelError:
        return False


_BINDINGS = replace(KUBERNETES_LIBRARY, bindings=True)
_INCLUDES = Overload("dra_includes_dyn_dyn", (DYN, DYN), BOOL, True, frozenset())
_BINDINGS_AND_INCLUDES = _BINDINGS.extended({"includes": [_INCLUDES]}, {"includes": _includes})


def compile_device_selector(expression: str, *, consumable_capacity: bool, list_attributes: bool) -> CelProgram:
    """Return the compiled expression. Raises DeviceSelectorError with Kubernetes' message.

    consumable_capacity, list_attributes: the feature gates DRAConsumableCapacity and DRAListTypeAttributes.
    """
    fields = {
        "driver": STRING,
        "attributes": map_of(STRING, map_of(STRING, DYN if list_attributes else _ANY)),
        "capacity": map_of(STRING, map_of(STRING, QUANTITY)),
        **({"allowMultipleAllocations": BOOL} if consumable_capacity else {}),
    }
    variables = {"device": Type("struct", "kubernetes.DRADevice", fields=fields)}
    try:
        program = CelProgram(expression, variables, _BINDINGS_AND_INCLUDES if list_attributes else _BINDINGS)
    except ExpressionError as error:
        raise DeviceSelectorError(f"compilation failed: {error}") from None
    except InstantiationError as error:
        raise DeviceSelectorError(f"program instantiation failed: {error}") from None
    if program.type.kind not in ("bool", "any", *(("dyn",) if list_attributes else ())):
        raise DeviceSelectorError(f"must evaluate to bool or the unknown type, not {program.type}")
    return program
