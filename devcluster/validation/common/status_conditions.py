"""Validation of meta/v1 Conditions. Source: ValidateConditions in apimachinery pkg/apis/meta/v1/validation."""

from __future__ import annotations

import re
from collections.abc import Sequence

from kubeloop.devcluster.validation.common.error_list import ErrorList
from kubeloop.kube.json_object import JSON
from kubeloop.kube.validation.name_checks import qualified_name, regex_error

_CONDITION_STATUSES = ("False", "True", "Unknown")
_REASON = "[A-Za-z]([A-Za-z0-9_,:]*[A-Za-z0-9_])?"
_REASON_MATCHES = re.compile(_REASON).fullmatch
_NO_REASON = regex_error(
    "a condition reason must start with alphabetic character, optionally followed by a string of alphanumeric "
    "characters or '_,:', and must end with an alphanumeric character or '_'",
    _REASON,
    *("my_name", "MY_NAME", "MyName", "ReasonA,ReasonB", "ReasonA:ReasonB"),
)


def validate_conditions(errors: ErrorList, path: str, conditions: Sequence[JSON]) -> None:
    seen: set[str] = set()
    for i, condition in enumerate(conditions):
        where, kind, reason = f"{path}[{i}]", condition.get("type", ""), condition.get("reason", "")
        errors.unique(f"{where}.type", kind, seen)
        errors.check(f"{where}.type", kind, qualified_name)
        errors.one_of(f"{where}.status", condition.get("status", ""), _CONDITION_STATUSES)
        if condition.get("observedGeneration", 0) < 0:
            detail = "must be greater than or equal to zero"
            errors.invalid(f"{where}.observedGeneration", condition["observedGeneration"], detail)
        errors.required_fields(where, condition, "lastTransitionTime")
        if errors.require(f"{where}.reason", reason) and not _REASON_MATCHES(reason):
            errors.invalid(f"{where}.reason", reason, _NO_REASON)
        errors.at_most_bytes(f"{where}.reason", reason, _MAX_REASON)
        errors.at_most_bytes(f"{where}.message", condition.get("message", ""), _MAX_MESSAGE)


_MAX_REASON, _MAX_MESSAGE = 1024, 32 * 1024  # bytes
