"""Time that a Pod may stay on a node with NoExecute taints.

Pure functions. Source: GetMatchingTolerations in component-helpers' scheduling/corev1, getMinTolerationTime in
pkg/controller/tainteviction/taint_eviction.go.
"""

from __future__ import annotations

from collections.abc import Sequence

from kubeloop.kube.objects.api_types import Node, Taint, Toleration
from kubeloop.kube.objects.taints_and_tolerations import NO_EXECUTE, tolerates
from kubeloop.kube.values.times import go_duration_seconds

_UNLIMITED = (1 << 63) - 1  # seconds


def no_execute_taints(node: Node) -> tuple[Taint, ...]:
    return tuple(taint for taint in node.spec.taints if taint.effect == NO_EXECUTE)


def stay_seconds(
    taints: Sequence[Taint], tolerations: Sequence[Toleration], *, comparison_operators: bool = False
) -> float | None:
    """Return the seconds that a Pod with these tolerations may stay on a node with these NoExecute taints.

    0: evict now; None: no limit. The shortest tolerationSeconds among the matching tolerations counts.
    comparison_operators: see `tolerates`.
    """
    limits: list[int] = []
    for taint in taints:
        for toleration in tolerations:
            if tolerates(toleration, taint, comparison_operators=comparison_operators):  # the first match counts
                if toleration.toleration_seconds is not None:
                    limits.append(toleration.toleration_seconds)
                break
        else:
            return 0.0
    if not limits or min(limits) == _UNLIMITED:
        return None
    return max(0.0, go_duration_seconds(min(limits))) if min(limits) > 0 else 0.0
