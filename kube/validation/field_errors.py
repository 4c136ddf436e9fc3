"""Field errors with the API server's messages: "spec.replicas: Invalid value: -1: must be ...".

Source: apimachinery pkg/util/validation (field/errors.go, validation.go) and pkg/api/validate/content. `quoted`
is exported for messages of other shapes.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from typing import Any

import msgspec

from kubeloop.cel.go_text import parse_integer
from kubeloop.cel.go_text import quoted as quoted  # noqa: PLC0414 # exported

REQUIRED = "FieldValueRequired"
INVALID = "FieldValueInvalid"
NOT_SUPPORTED = "FieldValueNotSupported"
FORBIDDEN = "FieldValueForbidden"


class FieldError(msgspec.Struct, frozen=True):
    """One error; `reason`, `field` and `body` are reason, field and message of a Status cause."""

    reason: str
    field: str
    body: str

    def __str__(self) -> str:
        return f"{self.field}: {self.body}"


def required(field: str, detail: str = "") -> FieldError:
    return FieldError(REQUIRED, field, f"Required value: {detail}" if detail else "Required value")


def forbidden(field: str, detail: str) -> FieldError:
    return FieldError(FORBIDDEN, field, f"Forbidden: {detail}")


def invalid(field: str, value: Any, detail: str) -> FieldError:
    """`value`: a string, number or bool, or any JSON value."""
    return FieldError(INVALID, field, f"Invalid value: {format_value(value)}: {detail}")


def not_supported(field: str, value: Any, supported: Iterable[str]) -> FieldError:
    choices = ", ".join(quoted(value) for value in supported)
    return FieldError(NOT_SUPPORTED, field, f"Unsupported value: {format_value(value)}: supported values: {choices}")


def aggregate_message(errors: Sequence[object]) -> str:
    """Return several errors as one text without duplicates, "[a, b]"; a single one without brackets."""
    texts = list(dict.fromkeys(str(error) for error in errors))
    return texts[0] if len(texts) == 1 else f"[{', '.join(texts)}]"


def format_value(value: Any) -> str:
    """Format a value for an error: a string in Go's quotes, anything else as compact JSON."""
    if isinstance(value, str):
        return quoted(value)
    import json

    return json.dumps(value, ensure_ascii=False, separators=(",", ":"))


# --- names and label values ------------------------------------------------------------------------------------------

_NAME_FORMAT = "([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9]"
_NAME = re.compile(_NAME_FORMAT)
_NAME_RULE = (
    "must consist of alphanumeric characters, '-', '_' or '.', and must start and end with an alphanumeric character"
    f" (e.g. 'MyName',  or 'my.name',  or '123-abc', regex used for validation is '{_NAME_FORMAT}')"
)
_VALUE_FORMAT = f"({_NAME_FORMAT})?"
_VALUE = re.compile(_VALUE_FORMAT)
_VALUE_RULE = (
    "a valid label must be an empty string or consist of alphanumeric characters, '-', '_' or '.', and must start and"
    " end with an alphanumeric character (e.g. 'MyValue',  or 'my_value',  or '12345', regex used for validation is"
    f" '{_VALUE_FORMAT}')"
)
_SUBDOMAIN_FORMAT = r"[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*"
_SUBDOMAIN = re.compile(_SUBDOMAIN_FORMAT)
_SUBDOMAIN_RULE = (
    "a lowercase RFC 1123 subdomain must consist of lower case alphanumeric characters, '-' or '.', and must start and"
    f" end with an alphanumeric character (e.g. 'example.com', regex used for validation is '{_SUBDOMAIN_FORMAT}')"
)


def _too_long(limit: int) -> str:
    return f"must be no more than {limit} bytes"


def subdomain_errors(text: str) -> list[str]:
    """Return errors of a DNS subdomain: an object name, or the prefix of a key."""
    errors = [_too_long(253)] if len(text.encode()) > 253 else []
    return errors if _SUBDOMAIN.fullmatch(text) else [*errors, _SUBDOMAIN_RULE]


def label_key_errors(key: str) -> list[str]:
    """Return errors of a key of a label, annotation or taint."""
    errors: list[str] = []
    prefix, slash, name = key.rpartition("/")
    if "/" in prefix:
        return [
            f"a valid label key {_NAME_RULE} with an optional DNS subdomain prefix and '/' (e.g. 'example.com/MyName')"
        ]
    if slash and not prefix:
        errors.append("prefix part must be non-empty")
    elif slash:
        errors += [f"prefix part {problem}" for problem in subdomain_errors(prefix)]
    if not name:
        errors.append("name part must be non-empty")
    elif len(name.encode()) > 63:
        errors.append(f"name part {_too_long(63)}")
    if not _NAME.fullmatch(name):
        errors.append(f"name part {_NAME_RULE}")
    return errors


def label_value_errors(value: str) -> list[str]:
    """Return errors of a label value."""
    errors = [_too_long(63)] if len(value.encode()) > 63 else []
    return errors if _VALUE.fullmatch(value) else [*errors, _VALUE_RULE]


_INTEGER = re.compile(r"[+-]?[0-9]+")


def parse_int64(text: str) -> int | None:
    """Parse a decimal integer as Go's strconv.ParseInt does; None if it is invalid or does not fit an int64."""
    if not _INTEGER.fullmatch(text):
        return None
    number = parse_integer(text)
    return number if -(1 << 63) <= number < 1 << 63 else None
