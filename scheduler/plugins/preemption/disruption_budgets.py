"""PodDisruptionBudgets in a dry run of a preemption: which evictions would violate one.

Source: plugins/defaultpreemption and framework/preemption of v1.36.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from kubeloop.kube.objects.api_types import Pod, PodDisruptionBudget
from kubeloop.kube.selectors.selectors import Selector, selector_from
from kubeloop.scheduler.cache.node_info import PodInfo


class Budget:
    """A PodDisruptionBudget in a dry run."""

    __slots__ = ("disrupted_pods", "disruptions_allowed", "namespace", "selector")

    def __init__(self, budget: PodDisruptionBudget) -> None:
        self.namespace = budget.metadata.namespace
        self.disruptions_allowed = budget.status.disruptions_allowed
        self.disrupted_pods = budget.status.disrupted_pods
        self.selector: Selector | None
        try:
            self.selector = selector_from(budget.spec.selector)
        except ValueError:  # a malformed selector covers no pod
            self.selector = None

    def covers(self, pod: Pod) -> bool:
        metadata = pod.metadata
        if self.selector is None or self.selector.empty or metadata.namespace != self.namespace or not metadata.labels:
            return False
        # Pods in disruptedPods are already counted in the budget's status.
        return self.selector.matches(metadata.labels) and metadata.name not in self.disrupted_pods


def split_by_violation(pods: Iterable[PodInfo], budgets: Sequence[Budget]) -> tuple[list[PodInfo], list[PodInfo]]:
    """Return (pods whose eviction would violate a budget, the others), each in the order of `pods`."""
    remaining = [budget.disruptions_allowed for budget in budgets]
    violating: list[PodInfo] = []
    non_violating: list[PodInfo] = []
    for pod in pods:
        violates = False
        for index, budget in enumerate(budgets):
            if budget.covers(pod.pod):
                remaining[index] -= 1
                violates = violates or remaining[index] < 0
        (violating if violates else non_violating).append(pod)
    return violating, non_violating
