"""Field errors with the API server's messages: "spec.replicas: Invalid value: -1: must be ...".

Source: apimachinery pkg/util/validation/field/errors.go. `quoted` is exported for messages of other shapes.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from typing import Any

import msgspec

from kubeloop.cel.go_text import parse_integer
from kubeloop.cel.go_text import quoted as quoted  # noqa: PLC0414 # exported
from kubeloop.cel.go_text import quoted_list as quoted_list  # noqa: PLC0414 # exported

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


_INTEGER = re.compile(r"[+-]?[0-9]+")


def parse_int64(text: str) -> int | None:
    """Parse a decimal integer as Go's strconv.ParseInt does; None if it is invalid or does not fit an int64."""
    if not _INTEGER.fullmatch(text):
        return None
    number = parse_integer(text)
    return number if -(1 << 63) <= number < 1 << 63 else None
