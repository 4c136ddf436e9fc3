"""Taints and tolerations. Source: api core/v1/toleration.go, component-helpers scheduling/corev1, core validation.

Imports `api_types` and `field_errors`.
"""

from __future__ import annotations

import re
from collections.abc import Container, Iterable, Sequence

from kubeloop.kube.field_errors import (
    FieldError,
    invalid,
    label_key_errors,
    label_value_errors,
    not_supported,
    parse_int64,
    quoted,
)
from kubeloop.kube.objects.api_types import Taint, Toleration

NO_SCHEDULE = "NoSchedule"
PREFER_NO_SCHEDULE = "PreferNoSchedule"
NO_EXECUTE = "NoExecute"
DO_NOT_SCHEDULE_EFFECTS = frozenset({NO_SCHEDULE, NO_EXECUTE})

_EFFECTS = (NO_SCHEDULE, PREFER_NO_SCHEDULE, NO_EXECUTE)
_CANONICAL_INTEGER = re.compile(r"0|-?[1-9][0-9]*")


def tolerates(toleration: Toleration, taint: Taint, *, comparison_operators: bool = False) -> bool:
    """Return True if the toleration tolerates the taint.

    `comparison_operators` is the feature gate TaintTolerationComparisonOperators (alpha in v1.36): Gt and Lt compare
    the taint's value with the toleration's, as integers; without it they tolerate nothing.
    """
    if toleration.effect and toleration.effect != taint.effect:
        return False
    if toleration.key and toleration.key != taint.key:
        return False
    match toleration.operator:
        case "" | "Equal":
            return toleration.value == taint.value
        case "Exists":
            return True
        case "Gt" | "Lt" if comparison_operators:
            return _compares(toleration.operator, taint.value, toleration.value)
    return False


def _compares(operator: str, taint_value: str, toleration_value: str) -> bool:
    taint_number, number = _canonical_int64(taint_value), _canonical_int64(toleration_value)
    if taint_number is None or number is None:
        return False
    return taint_number > number if operator == "Gt" else taint_number < number


def _canonical_int64(text: str) -> int | None:
    return parse_int64(text) if _CANONICAL_INTEGER.fullmatch(text) else None


def is_tolerated(taint: Taint, tolerations: Iterable[Toleration], *, comparison_operators: bool = False) -> bool:
    """Return True if any of the tolerations tolerates the taint."""
    return any(tolerates(toleration, taint, comparison_operators=comparison_operators) for toleration in tolerations)


def find_untolerated_taint(
    taints: Iterable[Taint],
    tolerations: Sequence[Toleration],
    effects: Container[str] = DO_NOT_SCHEDULE_EFFECTS,
    *,
    comparison_operators: bool = False,
) -> Taint | None:
    """Return the first taint with one of the effects that no toleration tolerates; None if there is none."""
    for taint in taints:
        if taint.effect in effects and not is_tolerated(taint, tolerations, comparison_operators=comparison_operators):
            return taint
    return None


def toleration_errors(
    tolerations: Sequence[Toleration], path: str, *, comparison_operators: bool = False
) -> list[FieldError]:
    """Validate tolerations at `path`. Source: pkg/apis/core/validation, ValidateTolerations."""
    errors: list[FieldError] = []
    for index, toleration in enumerate(tolerations):
        here = f"{path}[{index}]"
        if toleration.key:
            errors += [invalid(f"{here}.key", toleration.key, problem) for problem in label_key_errors(toleration.key)]
        elif toleration.operator != "Exists":
            rule = 'operator must be Exists when `key` is empty, which means "match all values and all keys"'
            errors.append(invalid(f"{here}.operator", toleration.operator, rule))
        if toleration.toleration_seconds is not None and toleration.effect != NO_EXECUTE:
            rule = "effect must be 'NoExecute' when `tolerationSeconds` is set"
            errors.append(invalid(f"{here}.effect", toleration.effect, rule))
        errors += _operator_errors(toleration, here, comparison_operators)
        if toleration.effect and toleration.effect not in _EFFECTS:
            errors.append(not_supported(f"{here}.effect", toleration.effect, _EFFECTS))
    return errors


def _operator_errors(toleration: Toleration, path: str, comparison_operators: bool) -> list[FieldError]:
    operator, value = toleration.operator, toleration.value
    match operator:
        case "" | "Equal":
            # The API server reports an invalid value for the field operator.
            return [
                invalid(f"{path}.operator", value, "; ".join(problems))
                for problems in [label_value_errors(value)]
                if problems
            ]
        case "Exists":
            if value:
                return [invalid(f"{path}.operator", value, "value must be empty when `operator` is 'Exists'")]
            return []
        case "Gt" | "Lt" if comparison_operators:
            return _comparison_errors(value, f"{path}.value")
        case "Gt" | "Lt":
            return [not_supported(f"{path}.operator", operator, ("Equal", "Exists", "Lt", "Gt"))]
    return [not_supported(f"{path}.operator", operator, ("Equal", "Exists"))]


def _comparison_errors(value: str, path: str) -> list[FieldError]:
    errors = []
    if not value:
        errors.append(invalid(path, value, "must be non-empty"))
    elif not _CANONICAL_INTEGER.fullmatch(value):
        errors.append(invalid(path, value, "must be a valid decimal integer in canonical form"))
    if parse_int64(value) is None:
        problem = "value out of range" if re.fullmatch("[+-]?[0-9]+", value) else "invalid syntax"
        errors.append(invalid(path, value, f"strconv.ParseInt: parsing {quoted(value)}: {problem}"))
    return errors
