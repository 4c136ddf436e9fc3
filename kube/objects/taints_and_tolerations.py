"""Taints and tolerations. Source: api core/v1/toleration.go, component-helpers scheduling/corev1."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence

from kubeloop.kube.objects.api_types import Taint, Toleration
from kubeloop.kube.values.integers import parse_integer

NO_SCHEDULE = "NoSchedule"
PREFER_NO_SCHEDULE = "PreferNoSchedule"
NO_EXECUTE = "NoExecute"


_INTEGER = re.compile(r"0|-?[1-9][0-9]*")
_INT64 = range(-(1 << 63), 1 << 63)


def tolerates(toleration: Toleration, taint: Taint, *, comparison_operators: bool = False) -> bool:
    """Return True if the toleration tolerates the taint.

    comparison_operators: the feature gate TaintTolerationComparisonOperators; if False, Gt and Lt tolerate nothing.
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
        case "Lt" | "Gt" if comparison_operators:
            limit, value = _int64(toleration.value), _int64(taint.value)
            if limit is None or value is None:
                return False
            return value < limit if toleration.operator == "Lt" else value > limit
    return False


def _int64(text: str) -> int | None:
    """Return the integer in canonical decimal form; None for any other text."""
    if not _INTEGER.fullmatch(text):
        return None
    number = parse_integer(text)
    return number if number in _INT64 else None


def is_tolerated(taint: Taint, tolerations: Iterable[Toleration], *, comparison_operators: bool = False) -> bool:
    """Return True if any of the tolerations tolerates the taint."""
    return any(tolerates(toleration, taint, comparison_operators=comparison_operators) for toleration in tolerations)


def find_untolerated_taint(
    taints: Iterable[Taint], tolerations: Sequence[Toleration], *, comparison_operators: bool = False
) -> Taint | None:
    """Return the first taint NoSchedule or NoExecute that no toleration tolerates; None if there is none."""
    for taint in taints:
        if taint.effect in (NO_SCHEDULE, NO_EXECUTE) and not is_tolerated(
            taint, tolerations, comparison_operators=comparison_operators
        ):
            return taint
    return None
