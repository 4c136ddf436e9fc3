"""Rolling update: old pods to delete and nodes to surge on, within maxUnavailable and maxSurge.

Pure functions. Source: v1.36 pkg/controller/daemon/update.go.
"""

from __future__ import annotations

from collections.abc import Iterable
from datetime import datetime
from typing import NamedTuple

import msgspec

from kubeloop.controllers.daemonset.node_states import NodeStates, Revision
from kubeloop.controllers.runtime.controller import ReconcileError
from kubeloop.controllers.runtime.integers import InvalidIntOrPercent, scaled_value
from kubeloop.kube.objects.api_types import DaemonSet, Pod


class InvalidLimits(ReconcileError):
    """maxSurge or maxUnavailable is neither an integer nor a percentage."""


class RollingUpdateLimits(NamedTuple):
    """Numbers of nodes, rounded up from percentages."""

    max_surge: int
    max_unavailable: int


class RollingUpdatePlan(msgspec.Struct):
    """create: names of nodes that get a pod in addition to their old one."""

    create: list[str] = []
    delete: list[Pod] = []


class PodsOfNode(NamedTuple):
    """The pods of a node that are not being deleted."""

    updated: Pod | None
    old: Pod | None


def surge_count(daemon_set: DaemonSet, desired: int) -> int:
    """Return maxSurge in pods; 0 if the update strategy has none. Raises InvalidIntOrPercent."""
    strategy = daemon_set.spec.update_strategy
    rolling_update = strategy.rolling_update
    if strategy.type != "RollingUpdate" or rolling_update is None or rolling_update.max_surge is None:
        return 0
    return scaled_value(rolling_update.max_surge, desired, round_up=True)


def unavailable_count(daemon_set: DaemonSet, desired: int) -> int:
    """Return maxUnavailable in pods; 0 if the update strategy has none. Raises InvalidIntOrPercent."""
    strategy = daemon_set.spec.update_strategy
    if strategy.type != "RollingUpdate" or strategy.rolling_update is None:
        return 0
    return scaled_value(strategy.rolling_update.max_unavailable, desired, round_up=True)


def allows_surge(daemon_set: DaemonSet) -> bool:
    """Return True if a node may have an old and a new pod during an update."""
    try:
        return surge_count(daemon_set, 1) > 0
    except InvalidIntOrPercent:
        return False


def rolling_update_limits(daemon_set: DaemonSet, desired: int) -> RollingUpdateLimits:
    """Return the limits for `desired` nodes; one unavailable pod if both are 0. Raises InvalidLimits."""
    try:
        max_unavailable = unavailable_count(daemon_set, desired)
    except InvalidIntOrPercent as error:
        raise InvalidLimits(f"couldn't get unavailable numbers: invalid value for MaxUnavailable: {error}") from error
    try:
        max_surge = surge_count(daemon_set, desired)
    except InvalidIntOrPercent as error:
        raise InvalidLimits(f"couldn't get unavailable numbers: invalid value for MaxSurge: {error}") from error
    if desired > 0 and max_unavailable == 0 and max_surge == 0:
        max_unavailable = 1
    return RollingUpdateLimits(max_surge, max_unavailable)


def plan_rolling_update(
    nodes: NodeStates, revision: Revision, limits: RollingUpdateLimits, now: datetime
) -> RollingUpdatePlan:
    """Return the next step of an update; an empty one if there is no old pod or the limits are reached."""
    if limits.max_surge == 0:
        return _replace(nodes, revision, limits.max_unavailable, now)
    return _surge(nodes, revision, limits.max_surge, now)


def pods_of_node(pods: Iterable[Pod], revision: Revision) -> PodsOfNode | None:
    """Return the old and the new pod of a node; None if there are more, which `plan_pods` deletes."""
    updated: Pod | None = None
    old: Pod | None = None
    for pod in pods:
        if pod.metadata.deletion_timestamp is not None:
            continue
        if revision.has(pod):
            if updated is not None:
                return None
            updated = pod
        else:
            if old is not None:
                return None
            old = pod
    return PodsOfNode(updated, old)


def _replace(nodes: NodeStates, revision: Revision, max_unavailable: int, now: datetime) -> RollingUpdatePlan:
    """Delete old pods: unavailable ones, and available ones up to the limit. `plan_pods` creates their successors."""
    unavailable = 0
    replaceable: list[Pod] = []
    candidates: list[Pod] = []
    for state in nodes.states:
        if not state.pods and not state.eligibility.should_run:
            continue
        pods = pods_of_node(state.pods, revision)
        if pods is None or (pods.old is None) == (pods.updated is None):
            unavailable += 1
        elif pods.updated is not None:
            unavailable += not revision.is_available(pods.updated, now)
        elif pods.old is not None:
            if revision.is_available(pods.old, now):
                candidates.append(pods.old)
            else:
                replaceable.append(pods.old)
                unavailable += 1
    return RollingUpdatePlan(delete=replaceable + candidates[: max(0, max_unavailable - unavailable)])


def _surge(nodes: NodeStates, revision: Revision, max_surge: int, now: datetime) -> RollingUpdatePlan:
    """Create new pods beside old ones, up to the limit, and delete old pods whose successor is available.

    An available pod on a node that should no longer run one is deleted only when as many pods are available as desired.
    """
    plan = RollingUpdatePlan()
    displaced: list[Pod] = []
    candidates: list[str] = []
    surge = 0
    available = nodes.complete
    for state in nodes.states:
        pods = pods_of_node(state.pods, revision)
        if pods is None:
            surge += 1
            continue
        counted = pods.old or pods.updated
        if counted is not None and revision.is_available(counted, now):
            available += 1
        if pods.old is None:
            continue
        if pods.updated is not None:
            if revision.is_available(pods.updated, now):
                plan.delete.append(pods.old)
            else:
                surge += 1
        elif revision.is_available(pods.old, now):
            if state.eligibility.should_run:
                candidates.append(state.name)
            else:
                displaced.append(pods.old)
        elif state.eligibility.should_run:
            plan.create.append(state.name)
        else:
            plan.delete.append(pods.old)
    plan.delete += displaced[: max(0, available - nodes.desired)]
    plan.create += candidates[: max(0, max_surge - surge)]
    return plan
