"""Stabilization and rate limits of a HorizontalPodAutoscaler, and the history that they need.

Pure functions on the history. Source: pkg/controller/podautoscaler/horizontal.go.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from datetime import datetime
from typing import NamedTuple

from kubeloop.controllers.podautoscaler.autoscaler_spec import Behavior, ScalingRules
from kubeloop.controllers.podautoscaler.replica_calculation import MAX_INT32
from kubeloop.kube.values.times import time_plus

_SCALE_UP_FACTOR, _SCALE_UP_MINIMUM = 2, 4

_WITHIN_RANGE = ("DesiredWithinRange", "the desired count is within the acceptable range")
_TOO_FEW = ("TooFewReplicas", "the desired replica count is less than the minimum replica count")
_TOO_MANY = ("TooManyReplicas", "the desired replica count is more than the maximum replica count")
_UP_LIMIT = ("ScaleUpLimit", "the desired replica count is increasing faster than the maximum scale rate")
_DOWN_LIMIT = ("ScaleDownLimit", "the desired replica count is decreasing faster than the maximum scale rate")

SCALE_UP_STABILIZED = (
    "ScaleUpStabilized",
    "recent recommendations were lower than current one, applying the lowest recent recommendation",
)
SCALE_DOWN_STABILIZED = (
    "ScaleDownStabilized",
    "recent recommendations were higher than current one, applying the highest recent recommendation",
)


class Recorded(NamedTuple):
    """A recommended number of replicas, or a change by that number."""

    replicas: int
    at: datetime


class ScaleHistory(NamedTuple):
    """History of one autoscaler in the controller's memory: recommendations before stabilization, and its scalings."""

    recommendations: tuple[Recorded, ...] = ()
    scale_ups: tuple[Recorded, ...] = ()
    scale_downs: tuple[Recorded, ...] = ()

    def with_recommendation(self, replicas: int, now: datetime, keep_seconds: float) -> ScaleHistory:
        """Add a recommendation, and drop those older than `keep_seconds`."""
        return self._replace(recommendations=_added(self.recommendations, replicas, now, keep_seconds))

    def with_scaling(self, current: int, desired: int, behavior: Behavior, now: datetime) -> ScaleHistory:
        """Add a scaling, and drop those of its direction that no policy counts any more."""
        if desired > current:
            keep_seconds = _longest_period(behavior.scale_up)
            return self._replace(scale_ups=_added(self.scale_ups, desired - current, now, keep_seconds))
        keep_seconds = _longest_period(behavior.scale_down)
        return self._replace(scale_downs=_added(self.scale_downs, current - desired, now, keep_seconds))


class LimitedReplicas(NamedTuple):
    """Replicas within limits, and the reason and message of the condition ScalingLimited."""

    replicas: int
    reason: str
    message: str


def _added(entries: tuple[Recorded, ...], replicas: int, now: datetime, keep_seconds: float) -> tuple[Recorded, ...]:
    oldest = time_plus(now, -keep_seconds)
    return (*(entry for entry in entries if entry.at >= oldest), Recorded(replicas, now))


def _longest_period(rules: ScalingRules) -> int:
    return max((policy.period_seconds for policy in rules.policies), default=0)


# --- without spec.behavior --------------------------------------------------------------------------------------------


def stabilized(recommendations: Iterable[Recorded], desired: int, window_seconds: float, now: datetime) -> int:
    """Return the highest recommendation of the window."""
    oldest = time_plus(now, -window_seconds)
    return max([desired, *(entry.replicas for entry in recommendations if entry.at >= oldest)])


def limited(current: int, desired: int, min_replicas: int, max_replicas: int) -> LimitedReplicas:
    """Apply minimum, maximum and the fixed limit of a scale-up."""
    up_limit = max(_SCALE_UP_FACTOR * current, _SCALE_UP_MINIMUM)
    most, reason = (up_limit, _UP_LIMIT) if max_replicas > up_limit else (max_replicas, _TOO_MANY)
    if desired < min_replicas:
        return LimitedReplicas(min_replicas, *_TOO_FEW)
    if desired > most:
        return LimitedReplicas(most, *reason)
    return LimitedReplicas(desired, *_WITHIN_RANGE)


# --- with spec.behavior -----------------------------------------------------------------------------------------------


def stabilized_by_behavior(
    recommendations: Iterable[Recorded],
    current: int,
    desired: int,
    up_window_seconds: float,
    down_window_seconds: float,
    now: datetime,
) -> int:
    """Return the replicas nearest to the current ones that no recommendation of the windows contradicts."""
    up_oldest, down_oldest = time_plus(now, -up_window_seconds), time_plus(now, -down_window_seconds)
    least = most = desired
    for entry in recommendations:
        if entry.at > up_oldest:
            least = min(least, entry.replicas)
        if entry.at > down_oldest:
            most = max(most, entry.replicas)
    return min(max(current, least), most)


def limited_by_behavior(
    current: int,
    desired: int,
    min_replicas: int,
    max_replicas: int,
    behavior: Behavior,
    history: ScaleHistory,
    now: datetime,
) -> LimitedReplicas:
    """Apply minimum, maximum and the policies."""
    if desired > current:
        limit = max(scale_up_limit(current, behavior.scale_up, history, now), current)
        most, reason = (limit, _UP_LIMIT) if max_replicas > limit else (max_replicas, _TOO_MANY)
        if desired > most:
            return LimitedReplicas(most, *reason)
    elif desired < current:
        limit = min(scale_down_limit(current, behavior.scale_down, history, now), current)
        least, reason = (limit, _DOWN_LIMIT) if min_replicas < limit else (min_replicas, _TOO_FEW)
        if desired < least:
            return LimitedReplicas(least, *reason)
    return LimitedReplicas(desired, *_WITHIN_RANGE)


def scale_up_limit(current: int, rules: ScalingRules, history: ScaleHistory, now: datetime) -> int:
    """Return the most replicas that the policies allow."""
    if rules.select_policy == "Disabled":
        return current
    proposals = []
    for policy in rules.policies:
        start = _replicas_at_start(current, history, policy.period_seconds, now)
        percent = math.ceil(start * (1 + policy.value / 100))
        proposals.append(start + policy.value if policy.type == "Pods" else percent)
    if rules.select_policy == "Min":
        return min(proposals, default=MAX_INT32)
    return max(proposals, default=-MAX_INT32)


def scale_down_limit(current: int, rules: ScalingRules, history: ScaleHistory, now: datetime) -> int:
    """Return the fewest replicas that the policies allow."""
    if rules.select_policy == "Disabled":
        return current
    proposals = []
    for policy in rules.policies:
        start = _replicas_at_start(current, history, policy.period_seconds, now)
        percent = int(start * (1 - policy.value / 100))
        proposals.append(start - policy.value if policy.type == "Pods" else percent)
    if rules.select_policy == "Min":
        return max(proposals, default=-MAX_INT32)
    return min(proposals, default=MAX_INT32)


def _replicas_at_start(current: int, history: ScaleHistory, period_seconds: int, now: datetime) -> int:
    """Return the replicas at the start of a policy's period, without the changes of other clients."""
    start = time_plus(now, -period_seconds)

    def change(entries: Iterable[Recorded]) -> int:
        return sum(entry.replicas for entry in entries if entry.at > start)

    return current - change(history.scale_ups) + change(history.scale_downs)
