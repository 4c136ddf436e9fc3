"""The condition EvictionInProgress of a DeviceTaintRule.

Pure functions. Source: maybeUpdateRuleStatus of v1.36 pkg/controller/devicetainteviction/device_taint_eviction.go.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime

from kubeloop.kube.objects.api_types import Condition
from kubeloop.kube.objects.device_types import DeviceTaintRule
from kubeloop.kube.objects.object_fields import condition_of
from kubeloop.kube.objects.taints_and_tolerations import NO_EXECUTE
from kubeloop.kube.values.times import seconds_between

STATUS_PERIOD_SECONDS = 10.0
"""Shortest time between two updates of a rule's status."""

NO_EFFECT = "None"
"""Effect of a rule that only counts what it would evict as NoExecute."""

_IN_PROGRESS = "EvictionInProgress"


@dataclass(frozen=True, slots=True)
class RuleCounts:
    """pods, namespaces: of the Pods that the rule evicts, or would evict. evicted_pods: since the controller started.

    published_devices, allocated_devices: selected by a rule without effect.
    """

    pods: int = 0
    namespaces: int = 0
    evicted_pods: int = 0
    published_devices: int = 0
    allocated_devices: int = 0


def current_condition(rule: DeviceTaintRule) -> Condition | None:
    return condition_of(rule.status.conditions, _IN_PROGRESS)


def seconds_until_update(rule: DeviceTaintRule, now: datetime) -> float:
    """Return the seconds until the status may be updated; 0 or less: now, as after a change of the spec."""
    condition = current_condition(rule)
    if condition is None or condition.last_transition_time is None:
        return 0.0
    if condition.observed_generation != rule.metadata.generation:
        return 0.0
    return STATUS_PERIOD_SECONDS - seconds_between(condition.last_transition_time, now)


def changed_condition(rule: DeviceTaintRule, counts: RuleCounts, now: datetime) -> Condition | None:
    """Return the rule's new condition; None if it has not changed. Each change sets its time."""
    effect = rule.spec.taint.effect
    status, message = "False", ""
    if effect == NO_EXECUTE and counts.pods:
        status, reason = "True", "PodsPendingEviction"
        message = f"{_pods(counts.pods)} {'needs' if counts.pods == 1 else 'need'} to be evicted in "
        message += f"{_namespaces(counts.namespaces)}."
    elif effect == NO_EXECUTE:
        reason = "Completed" if counts.evicted_pods else "NotStarted"
    elif effect == NO_EFFECT:
        reason = "NoEffect"
        message = (
            f"{_devices('published', counts.published_devices)} selected."
            f" {_devices('allocated', counts.allocated_devices)} selected."
            f" {_pods(counts.pods)} would be evicted in {_namespaces(counts.namespaces)} if the effect was NoExecute."
            " This information will not be updated again. Recreate the DeviceTaintRule to trigger an update."
        )
    else:
        reason, message = "OtherEffect", "Eviction only happens for the NoExecute effect."
    if counts.evicted_pods:
        message = f"{message} {_pods(counts.evicted_pods)} evicted since starting the controller.".lstrip()
    generation = rule.metadata.generation
    old = current_condition(rule)
    if old is not None:
        current = (old.status, old.reason, old.message, old.observed_generation)
        if current == (status, reason, message, generation):
            return None
    return Condition(
        type=_IN_PROGRESS,
        status=status,
        observed_generation=generation,
        last_transition_time=now,
        reason=reason,
        message=message,
    )


def _pods(count: int) -> str:
    return "1 pod" if count == 1 else f"{count} pods"


def _devices(state: str, count: int) -> str:
    return f"1 {state} device" if count == 1 else f"{count} {state} devices"


def _namespaces(count: int) -> str:
    return "1 namespace" if count == 1 else f"{count} different namespaces"
