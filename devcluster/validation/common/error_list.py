"""List of the field errors of one object, the causes of an Invalid status, and checks of single fields.

A cause is {"reason", "message", "field"}; paths are text: "spec.containers[0].name". Source: apimachinery
pkg/util/validation/field/errors.go.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from functools import lru_cache
from typing import Any, ClassVar

from kubeloop.devcluster.validation.common.go_values import format_value
from kubeloop.kube.feature_gates import DEFAULT_FEATURE_GATES, FeatureGates
from kubeloop.kube.json_object import JSON
from kubeloop.kube.validation.field_errors import quoted
from kubeloop.kube.validation.name_checks import (
    dns_subdomain,
    label_value,
    port_name,
    port_number,
    qualified_name,
    regex_error,
)
from kubeloop.kube.values.integers import parse_integer


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

    def check(self, path: str, value: Any, problems: Callable[[Any], Iterable[str]]) -> None:
        """Report the problems of a value, such as those of a name; None has none."""
        if value is not None:
            self.invalid_each(path, value, problems(value))

    def check_joined(self, path: str, value: Any, problems: Callable[[Any], Iterable[str]]) -> None:
        """Report all problems of a value in one error."""
        if details := ",".join(problems(value)):
            self.invalid(path, value, details)

    def check_required(self, path: str, value: Any, problems: Callable[[Any], Iterable[str]], detail: str = "") -> None:
        """Require a value without problems; detail: about a missing one."""
        if self.require(path, value, detail):
            self.invalid_each(path, value, problems(value))

    def require(self, path: str, value: Any, detail: str = "") -> bool:
        """Require a value that is not empty; return True if there is one."""
        if not value:
            self.required(path, detail)
        return bool(value)

    def required_fields(self, path: str, obj: JSON, *names: str) -> None:
        """Require these fields of an object to be set and not empty."""
        for name in names:
            self.require(f"{path}.{name}", obj.get(name))

    def one_of(self, path: str, value: Any, supported: Collection[str], type_name: str = "") -> None:
        """Require one of these values, or None."""
        if value is not None and value not in supported:
            self.not_supported(path, value, supported, type_name)

    def required_one_of(self, path: str, value: str | None, supported: Collection[str], detail: str = "") -> None:
        """Require one of these values; detail: about a missing one."""
        if self.require(path, value, detail):
            self.one_of(path, value, supported)

    def unique(self, path: str, key: Any, seen: set[Any]) -> None:
        """Report a key that was seen before, and add it to those seen."""
        if key in seen:
            self.duplicate(path, key)
        seen.add(key)

    def at_most_bytes(self, path: str, text: str, limit: int) -> None:
        if len(text.encode()) > limit:
            self.too_long(path, limit)

    def at_most(self, path: str, items: Sequence[Any] | Mapping[str, Any], limit: int) -> bool:
        """Require at most this number of items; return True if there are no more."""
        if len(items) > limit:
            self.too_many(path, len(items), limit)
        return len(items) <= limit

    def not_negative(self, path: str, value: int | float | None) -> None:
        if value is not None and value < 0:
            self.invalid(path, value, NOT_NEGATIVE)

    def not_negative_fields(self, path: str, obj: JSON, *names: str) -> None:
        """Require these fields of an object not to be negative."""
        for name in names:
            self.not_negative(f"{path}.{name}", obj.get(name))

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


PROTOCOLS = ("SCTP", "TCP", "UDP")


def validate_port_number_or_name(errors: ErrorList, path: str, value: int | str) -> None:
    errors.invalid_each(path, value, port_name(value) if type(value) is str else port_number(int(value)))


_PERCENT_ERROR = regex_error(
    "a valid percent string must be a numeric string followed by an ending '%'", "[0-9]+%", "1%", "93%"
)


def validate_positive_int_or_percent(errors: ErrorList, path: str, value: int | str | None) -> None:
    if type(value) is str:
        if not re.fullmatch("[0-9]+%", value):
            errors.invalid(path, value, _PERCENT_ERROR)
    elif value is not None:
        errors.not_negative(path, int(value))


def validate_at_most_100_percent(errors: ErrorList, path: str, value: int | str | None) -> None:
    if type(value) is str and re.fullmatch("[0-9]+%", value) and parse_integer(value[:-1]) > 100:
        errors.invalid(path, value, "must not be greater than 100%")


def validate_local_path(errors: ErrorList, path: str, value: str) -> None:
    """Require a relative path without ".." segments."""
    if value.startswith("/"):
        errors.invalid(path, value, "must be a relative path")
    if ".." in value.split("/"):
        errors.invalid(path, value, "must not contain '..'")


def validate_local_path_not_reserved(errors: ErrorList, path: str, value: str) -> None:
    """Require a relative path that does not begin with "..": the kubelet reserves such names."""
    validate_local_path(errors, path, value)
    if value.startswith("..") and not value.startswith("../"):
        errors.invalid(path, value, "must not start with '..'")


_HEADER_ERROR = regex_error(
    "a valid HTTP header must consist of alphanumeric characters or '-'", "[-A-Za-z0-9]+", "X-Header-Name"
)


def header_name(text: str) -> tuple[str, ...]:
    return () if re.fullmatch("[-A-Za-z0-9]+", text) else (_HEADER_ERROR,)


_HTTP_PATH = r"[A-Za-z0-9/\-._~%!$&'()*+,;=:]+"
_PATH_ERROR = regex_error("Invalid path", _HTTP_PATH)


def validate_domain_prefixed_path(errors: ErrorList, path: str, text: str) -> None:
    """Validate a domain-prefixed path such as example.com/ingress. Source: validation.IsDomainPrefixedPath."""
    if not errors.require(path, text):
        return
    domain, slash, rest = text.partition("/")
    if not slash or not domain or not rest:
        errors.invalid(path, text, 'must be a domain-prefixed path (such as "acme.io/foo")')
        return
    for detail in dns_subdomain(domain):
        errors.invalid(path, domain, detail)
    if not re.fullmatch(_HTTP_PATH, rest):
        errors.invalid(path, rest, _PATH_ERROR)


def validate_labels(errors: ErrorList, path: str, values: Mapping[str, str] | None) -> None:
    for key, value in sorted(values.items()) if values else ():
        errors.invalid_each(path, key, qualified_name(key))
        errors.invalid_each(path, value, label_value(value))


def validate_label_selector(errors: ErrorList, path: str, selector: JSON | None) -> None:
    """Validate a LabelSelector, without regard to the labels that it has to match."""
    if not selector:
        return
    validate_labels(errors, f"{path}.matchLabels", selector.get("matchLabels"))
    for i, requirement in enumerate(selector.get("matchExpressions", ())):
        where, operator = f"{path}.matchExpressions[{i}]", requirement.get("operator", "")
        values = requirement.get("values", ())
        if operator in ("In", "NotIn"):
            errors.require(f"{where}.values", values, "must be specified when `operator` is 'In' or 'NotIn'")
        elif operator in ("Exists", "DoesNotExist"):
            if values:
                errors.forbidden(
                    f"{where}.values", "may not be specified when `operator` is 'Exists' or 'DoesNotExist'"
                )
        else:
            errors.invalid(f"{where}.operator", operator, "not a valid selector operator")
        errors.check(f"{where}.key", requirement.get("key", ""), qualified_name)
        for j, value in enumerate(values):
            errors.invalid_each(f"{where}.values[{j}]", value, label_value(value))


def is_valid_selector(selector: JSON | None) -> bool:
    """Return True if LabelSelectorAsSelector accepts the selector."""
    problems = ErrorList()
    validate_label_selector(problems, "", selector)
    return not problems


def selector_matches(selector: JSON | None, values: Mapping[str, str]) -> bool:
    """Return True if a valid selector selects these labels; None selects nothing."""
    if selector is None:
        return False
    if any(values.get(key) != value for key, value in selector.get("matchLabels", {}).items()):
        return False
    for requirement in selector.get("matchExpressions", ()):
        key, operator, allowed = requirement["key"], requirement["operator"], requirement.get("values", ())
        if operator == "In" and values.get(key) not in allowed:
            return False
        if operator == "NotIn" and key in values and values[key] in allowed:
            return False
        if operator == "Exists" and key not in values:
            return False
        if operator == "DoesNotExist" and key in values:
            return False
    return True


def is_zero_int_or_percent(value: int | str | None) -> bool:
    """Return True for 0, None and "0%", and for text that is neither a percentage nor a number."""
    return value in (0, None) or (type(value) is str and not re.fullmatch("0*[1-9][0-9]*%|[+-]?0*[1-9][0-9]*", value))
