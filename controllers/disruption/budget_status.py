"""Status of a PodDisruptionBudget: how many of its Pods are healthy, and how many evictions that allows.

Pure functions. Source: pkg/controller/disruption/disruption.go, UpdateDisruptionAllowedCondition in
apimachinery's component-helpers policy/v1.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from datetime import datetime

from msgspec.structs import replace

from kubeloop.controllers.runtime.integers import scaled_value
from kubeloop.kube.clock import rfc3339
from kubeloop.kube.objects.api_types import (
    Condition,
    JSONValue,
    Pod,
    PodDisruptionBudget,
    PodDisruptionBudgetStatus,
)
from kubeloop.kube.objects.object_fields import condition_of, is_finished, is_ready, replace_condition
from kubeloop.kube.values.times import seconds_between, time_plus

DELETION_TIMEOUT_SECONDS = 120
"""Time for which a pod with an allowed eviction counts as disrupted if it is not deleted."""

STALE_DISRUPTION_SECONDS = 120
"""Time after which the condition DisruptionTarget of a pod that is not deleted is set to False."""

_ALLOWED = "DisruptionAllowed"
_TERMINATION_BY_KUBELET = "TerminationByKubelet"


def needs_scale(budget: PodDisruptionBudget) -> bool:
    """Return True if the expected pods are the replicas of the pods' controllers."""
    spec = budget.spec
    return spec.max_unavailable is not None or isinstance(spec.min_available, str)


def desired_healthy(budget: PodDisruptionBudget, expected: int) -> int:
    """Return the number of pods that must stay healthy. Raises InvalidIntOrPercent."""
    spec = budget.spec
    if spec.max_unavailable is not None:
        return max(0, expected - scaled_value(spec.max_unavailable, expected, round_up=True))
    return 0 if spec.min_available is None else scaled_value(spec.min_available, expected, round_up=True)


def pending_disruptions(budget: PodDisruptionBudget, pods: Iterable[Pod], now: datetime) -> dict[str, datetime]:
    """Return the pods with an allowed eviction whose deletion is pending, with the time of the eviction."""
    disrupted = budget.status.disrupted_pods
    return {
        name: disrupted[name]
        for pod in pods
        if pod.metadata.deletion_timestamp is None
        and (name := pod.metadata.name) in disrupted
        and now <= time_plus(disrupted[name], DELETION_TIMEOUT_SECONDS)
    }


def overdue_disruptions(budget: PodDisruptionBudget, pods: Iterable[Pod], now: datetime) -> list[Pod]:
    """Return the pods with an allowed eviction that were not deleted in time."""
    disrupted = budget.status.disrupted_pods
    return [
        pod
        for pod in pods
        if pod.metadata.deletion_timestamp is None
        and pod.metadata.name in disrupted
        and now > time_plus(disrupted[pod.metadata.name], DELETION_TIMEOUT_SECONDS)
    ]


def healthy_count(pods: Iterable[Pod], disrupted: Mapping[str, datetime]) -> int:
    return sum(
        pod.metadata.deletion_timestamp is None and pod.metadata.name not in disrupted and is_ready(pod) for pod in pods
    )


def budget_status(
    budget: PodDisruptionBudget,
    healthy: int,
    desired: int,
    expected: int,
    disrupted: dict[str, datetime],
    now: datetime,
) -> PodDisruptionBudgetStatus:
    """Return the status; without expected pods no disruption is allowed, so new pods are protected until counted."""
    allowed = max(0, healthy - desired) if expected > 0 else 0
    generation = budget.metadata.generation
    condition = _condition(budget, generation, "SufficientPods" if allowed else "InsufficientPods", "", now)
    return PodDisruptionBudgetStatus(
        disruptions_allowed=allowed,
        current_healthy=healthy,
        desired_healthy=desired,
        expected_pods=expected,
        disrupted_pods=disrupted,
        observed_generation=generation,
        conditions=replace_condition(budget.status.conditions, condition),
    )


def failed_status(budget: PodDisruptionBudget, problem: str, now: datetime) -> PodDisruptionBudgetStatus:
    """Return the status after a failed sync: no disruption is allowed."""
    status = budget.status
    condition = _condition(budget, status.observed_generation, "SyncFailed", problem, now)
    return replace(status, disruptions_allowed=0, conditions=replace_condition(status.conditions, condition))


def _condition(budget: PodDisruptionBudget, generation: int, reason: str, message: str, now: datetime) -> Condition:
    existing = condition_of(budget.status.conditions, _ALLOWED)
    state = "True" if reason == "SufficientPods" else "False"
    since = existing.last_transition_time if existing is not None and existing.status == state else now
    return Condition(
        type=_ALLOWED,
        status=state,
        observed_generation=generation,
        last_transition_time=since,
        reason=reason,
        message=message,
    )


def status_json(old: PodDisruptionBudgetStatus, new: PodDisruptionBudgetStatus) -> JSONValue:
    """Return the merge patch of the status; null removes a disrupted pod."""
    disrupted: dict[str, JSONValue] = dict.fromkeys(old.disrupted_pods)
    disrupted |= {name: rfc3339(time) for name, time in new.disrupted_pods.items()}
    return {
        "disruptedPods": disrupted if new.disrupted_pods else None,
        "disruptionsAllowed": new.disruptions_allowed,
        "currentHealthy": new.current_healthy,
        "desiredHealthy": new.desired_healthy,
        "expectedPods": new.expected_pods,
        "observedGeneration": new.observed_generation,
        "conditions": [
            {
                "type": condition.type,
                "status": condition.status,
                "observedGeneration": condition.observed_generation,
                "lastTransitionTime": _time_json(condition.last_transition_time),
                "reason": condition.reason,
                "message": condition.message,
            }
            for condition in new.conditions
        ],
    }


def _time_json(time: datetime | None) -> str | None:
    return None if time is None else rfc3339(time)


def stale_disruption_seconds(pod: Pod, now: datetime) -> float | None:
    """Return the seconds after which the condition DisruptionTarget of a pod that is not deleted is stale.

    None without such a condition; that of a kubelet, and that of a finished pod, never is.
    """
    if pod.metadata.deletion_timestamp is not None:
        return None
    condition = condition_of(pod.status.conditions, "DisruptionTarget")
    if condition is None or condition.status != "True" or condition.reason == _TERMINATION_BY_KUBELET:
        return None
    if is_finished(pod) or condition.last_transition_time is None:
        return None
    return max(0.0, seconds_between(now, time_plus(condition.last_transition_time, STALE_DISRUPTION_SECONDS)))
