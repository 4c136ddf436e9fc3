"""List of the field errors of one object: the causes of an Invalid status.

A cause is {"reason", "message", "field"}; paths are text: "spec.containers[0].name". Source: apimachinery
pkg/util/validation/field/errors.go.
"""

from __future__ import annotations

from collections.abc import Iterable
from functools import lru_cache
from typing import Any, ClassVar

from kubeloop.devcluster.validation.common.go_values import format_value
from kubeloop.kube.feature_gates import DEFAULT_FEATURE_GATES, FeatureGates
from kubeloop.kube.field_errors import quoted
from kubeloop.kube.json_object import JSON


class ErrorList(list[JSON]):
    """Field errors in the order in which they were detected; `type_name` is the Go type of a value, for its JSON."""

    __slots__ = ()
    gates: ClassVar[FeatureGates] = DEFAULT_FEATURE_GATES
    """Feature gates of the server; see error_list_type()."""

    def _add(self, reason: str, path: str, message: str) -> None:
        self.append({"reason": f"FieldValue{reason}", "message": message, "field": path})

    def required(self, path: str, detail: str = "") -> None:
        self._add("Required", path, f"Required value: {detail}" if detail else "Required value")

    def invalid(self, path: str, value: Any, detail: str, type_name: str = "") -> None:
        message = f"Invalid value: {format_value(value, type_name)}"
        self._add("Invalid", path, f"{message}: {detail}" if detail else message)

    def invalid_without_value(self, path: str, detail: str) -> None:
        self._add("Invalid", path, f"Invalid value: {detail}")

    def invalid_each(self, path: str, value: Any, details: Iterable[str]) -> None:
        for detail in details:
            self.invalid(path, value, detail)

    def duplicate(self, path: str, value: Any, detail: str = "", type_name: str = "") -> None:
        self._add(
            "Duplicate", path, f"Duplicate value: {format_value(value, type_name)}{': ' + detail if detail else ''}"
        )

    def not_found(self, path: str, value: Any, detail: str = "") -> None:
        self._add("NotFound", path, f"Not found: {format_value(value)}{': ' + detail if detail else ''}")

    def not_supported(self, path: str, value: Any, supported: Iterable[str], type_name: str = "") -> None:
        choices = ", ".join(quoted(choice) for choice in supported)
        self._add(
            "NotSupported", path, f"Unsupported value: {format_value(value, type_name)}: supported values: {choices}"
        )

    def forbidden(self, path: str, detail: str = "") -> None:
        self._add("Forbidden", path, f"Forbidden: {detail}" if detail else "Forbidden")

    def internal(self, path: str, detail: str) -> None:
        self.append({"reason": "InternalError", "message": f"Internal error: {detail}", "field": path})

    def too_long(self, path: str, limit: int) -> None:
        self._add("TooLong", path, f"Too long: may not be more than {limit} {'byte' if limit == 1 else 'bytes'}")

    def too_many(self, path: str, actual: int, limit: int) -> None:
        items = "item" if limit == 1 else "items"
        self._add("TooMany", path, f"Too many: {actual}: must have at most {limit} {items}")

    def not_negative(self, path: str, value: int | float | None) -> None:
        if value is not None and value < 0:
            self.invalid(path, value, NOT_NEGATIVE)

    def immutable(self, path: str, new: Any, old: Any, type_name: str = "") -> None:
        if new != old:
            self.invalid(path, new, IMMUTABLE, type_name)


NOT_NEGATIVE = "must be greater than or equal to 0"
NOT_POSITIVE = "must be greater than zero"
IMMUTABLE = "field is immutable"


def error_list_type(gates: FeatureGates) -> type[ErrorList]:
    """Return the class of the error lists of a server with these feature gates, which validators read from it."""
    if not gates.values:
        return ErrorList
    return type("ErrorList", (ErrorList,), {"__slots__": (), "gates": gates})


@lru_cache(maxsize=64)
def enabling(error_list: type[ErrorList], gates: frozenset[str]) -> type[ErrorList]:
    """Return the class with these gates enabled as well."""
    return error_list_type(FeatureGates({**error_list.gates.values, **dict.fromkeys(gates, True)}))
