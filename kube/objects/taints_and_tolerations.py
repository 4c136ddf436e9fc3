"""Taints and tolerations. Source: api core/v1/toleration.go, component-helpers scheduling/corev1."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from kubeloop.kube.objects.api_types import Taint, Toleration

NO_SCHEDULE = "NoSchedule"
PREFER_NO_SCHEDULE = "PreferNoSchedule"
NO_EXECUTE = "NoExecute"


def tolerates(toleration: Toleration, taint: Taint) -> bool:
    """Return True if the toleration tolerates the taint.

    Gt and Lt tolerate nothing: the feature gate TaintTolerationComparisonOperators is off (alpha in v1.36).
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
    return False


def is_tolerated(taint: Taint, tolerations: Iterable[Toleration]) -> bool:
    """Return True if any of the tolerations tolerates the taint."""
    return any(tolerates(toleration, taint) for toleration in tolerations)


def find_untolerated_taint(taints: Iterable[Taint], tolerations: Sequence[Toleration]) -> Taint | None:
    """Return the first taint NoSchedule or NoExecute that no toleration tolerates; None if there is none."""
    for taint in taints:
        if taint.effect in (NO_SCHEDULE, NO_EXECUTE) and not is_tolerated(taint, tolerations):
            return taint
    return None
