"""Sizes of a Deployment's ReplicaSets: maxSurge and maxUnavailable, rolling update, proportional scaling.

Pure functions. Source: pkg/controller/deployment/{rolling,sync}.go and util/deployment_util.go.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

import msgspec

from kubeloop.controllers.deployment.replica_sets import (
    DESIRED_REPLICAS,
    MAX_REPLICAS,
    sort_by_creation,
    sort_by_size_newer,
    sort_by_size_older,
)
from kubeloop.controllers.runtime.controller import ReconcileError
from kubeloop.controllers.runtime.integers import (
    InvalidIntOrPercent,
    int_or_none,
    non_negative_int32,
    round_half_away_from_zero,
    scaled_value,
    wrap_int32,
)
from kubeloop.kube.objects.api_types import Deployment, DeploymentSpec, IntOrString, ReplicaSet, RollingUpdateDeployment
from kubeloop.kube.objects.object_fields import replicas_of

ROLLING_UPDATE = "RollingUpdate"
RECREATE = "Recreate"


class UnsupportedStrategy(ReconcileError):
    """spec.strategy.type has an unknown value."""


def resolve_fenceposts(
    max_surge: IntOrString | None, max_unavailable: IntOrString | None, desired: int
) -> tuple[int, int]:
    """Return maxSurge (rounded up) and maxUnavailable (rounded down) in Pods; (0, 1) if both would be 0.

    Both 0 would block every rollout. Raises InvalidIntOrPercent.
    """
    surge = scaled_value(0 if max_surge is None else max_surge, desired, round_up=True)
    unavailable = scaled_value(0 if max_unavailable is None else max_unavailable, desired, round_up=False)
    if surge == 0 and unavailable == 0:
        # Validation never allows both to be 0, but percentages may be rounded to 0.
        unavailable = 1
    return surge, unavailable


def _limits(spec: DeploymentSpec, replicas: int) -> tuple[int, int]:
    rolling_update = spec.strategy.rolling_update or RollingUpdateDeployment()
    try:
        return resolve_fenceposts(rolling_update.max_surge, rolling_update.max_unavailable, replicas)
    except InvalidIntOrPercent:
        return 0, 0


def is_rolling_update(deployment: Deployment) -> bool:
    return deployment.spec.strategy.type == ROLLING_UPDATE


def max_surge(deployment: Deployment) -> int:
    """Return the Pods allowed above spec.replicas; 0 if the strategy has no maxSurge or its value is invalid."""
    return _limits(deployment.spec, replicas_of(deployment))[0] if is_rolling_update(deployment) else 0


def max_unavailable(deployment: Deployment) -> int:
    """Return the Pods allowed to be unavailable; 0 if the strategy has no maxUnavailable or its value is invalid."""
    replicas = replicas_of(deployment)
    if not is_rolling_update(deployment) or replicas == 0:
        return 0
    return min(_limits(deployment.spec, replicas)[1], replicas)


def new_rs_new_replicas(deployment: Deployment, all_rss: Sequence[ReplicaSet], new_rs_replicas: int) -> int:
    """Return the size of the new ReplicaSet that maxSurge allows now. `all_rss` includes the new ReplicaSet.

    Raises InvalidIntOrPercent, UnsupportedStrategy.
    """
    desired = replicas_of(deployment)
    strategy = deployment.spec.strategy
    if strategy.type == RECREATE:
        return desired
    if strategy.type != ROLLING_UPDATE:
        raise UnsupportedStrategy(f"deployment type {strategy.type} isn't supported")
    rolling_update = strategy.rolling_update or RollingUpdateDeployment()
    max_total = desired + scaled_value(rolling_update.max_surge, desired, round_up=True)
    current = sum(map(replicas_of, all_rss))
    if current >= max_total:
        return new_rs_replicas
    return new_rs_replicas + min(max_total - current, desired - new_rs_replicas)


def plan_new_size(deployment: Deployment, all_rss: Sequence[ReplicaSet], new_rs: ReplicaSet) -> int:
    """Return the next size of the new ReplicaSet in a rolling update: up as far as maxSurge allows, or down at once.

    Raises InvalidIntOrPercent, UnsupportedStrategy.
    """
    size, desired = replicas_of(new_rs), replicas_of(deployment)
    return desired if size >= desired else new_rs_new_replicas(deployment, all_rss, size)


def filter_active(replica_sets: Iterable[ReplicaSet]) -> list[ReplicaSet]:
    """Return the ReplicaSets with spec.replicas greater than 0."""
    return [rs for rs in replica_sets if replicas_of(rs) > 0]


class ReplicaSetResize(msgspec.Struct, frozen=True):
    """New size of one ReplicaSet."""

    rs: ReplicaSet
    replicas: int


def plan_scale_down_budget(
    deployment: Deployment, all_rss: Sequence[ReplicaSet], old_rss: Sequence[ReplicaSet], new_rs: ReplicaSet
) -> int:
    """Return the number of old Pods that may be removed now, healthy or not; 0 or less means none.

    Pods of the new ReplicaSet that are not available yet count as unavailable; otherwise old Pods would be removed for
    new ones that never become available. Example: 10 replicas, maxUnavailable 2, maxSurge 3; while 5 new Pods crash,
    13 - 8 - 5 = 0 old ones may be removed.
    """
    if sum(map(replicas_of, old_rss)) == 0:
        return 0
    new_unavailable = replicas_of(new_rs) - new_rs.status.available_replicas
    minimum = replicas_of(deployment) - max_unavailable(deployment)
    return sum(map(replicas_of, all_rss)) - minimum - new_unavailable


def plan_unhealthy_cleanup(old_rss: Sequence[ReplicaSet], budget: int) -> Iterator[ReplicaSetResize]:
    """Yield the removal of unavailable old Pods, oldest ReplicaSet first.

    They serve no traffic and would block the rollout. Raises ValueError for a ReplicaSet that reports more available
    Pods than it has; kube-controller-manager fails in the same case.
    """
    removed = 0
    for rs in old_rss:
        if removed >= budget:
            return
        size, available = replicas_of(rs), rs.status.available_replicas
        if size in (0, available):
            continue
        count = min(budget - removed, size - available)
        if count < 0:
            raise ValueError(f"{rs.key} has {size} replicas and reports {available} of them available: not scaled down")
        removed += count
        yield ReplicaSetResize(rs, size - count)


def plan_old_scale_down(
    deployment: Deployment, all_rss: Sequence[ReplicaSet], old_rss: Sequence[ReplicaSet]
) -> Iterator[ReplicaSetResize]:
    """Yield the removal of old Pods above the minimum that must be available, oldest ReplicaSet first."""
    minimum = replicas_of(deployment) - max_unavailable(deployment)
    surplus = sum(rs.status.available_replicas for rs in all_rss) - minimum
    removed = 0
    for rs in old_rss:
        if removed >= surplus:
            return
        size = replicas_of(rs)
        if size == 0:
            continue
        count = min(size, surplus - removed)
        removed += count
        yield ReplicaSetResize(rs, size - count)


def desired_replicas_annotation(rs: ReplicaSet) -> int | None:
    return non_negative_int32(rs.metadata.annotations.get(DESIRED_REPLICAS))


def max_replicas_annotation(rs: ReplicaSet) -> int | None:
    return non_negative_int32(rs.metadata.annotations.get(MAX_REPLICAS))


def is_saturated(deployment: Deployment, rs: ReplicaSet | None) -> bool:
    """Return True if `rs` has the Deployment's size, was scaled for that size, and all its Pods are available."""
    if rs is None:
        return False
    # The same parsing as in v1.36, which is more lenient than desired_replicas_annotation.
    scaled_for = int_or_none(rs.metadata.annotations.get(DESIRED_REPLICAS))
    desired = replicas_of(deployment)
    return scaled_for is not None and (
        replicas_of(rs) == wrap_int32(scaled_for) == rs.status.available_replicas == desired
    )


def replica_set_proportion(rs: ReplicaSet, deployment: Deployment, to_add: int, added: int) -> int:
    """Return the share of `rs` in a scaling by `to_add` (negative: down), of which `added` is distributed already."""
    if replicas_of(rs) == 0 or to_add in (0, added):
        return 0
    fraction = _fraction(rs, deployment)
    allowed = to_add - added
    return min(fraction, allowed) if to_add > 0 else max(fraction, allowed)


def _fraction(rs: ReplicaSet, deployment: Deployment) -> int:
    size = replicas_of(rs)
    if replicas_of(deployment) == 0:
        return -size
    maximum = replicas_of(deployment) + max_surge(deployment)
    maximum_before = max_replicas_annotation(rs)
    if not maximum_before:
        # Without the annotation the former size of the Deployment is unknown; status.replicas approximates it.
        maximum_before = deployment.status.replicas
        if maximum_before == 0:
            return 0
    # v1.36 multiplies in 32 bits. No cluster reaches sizes that overflow, but the result is the same here.
    return wrap_int32(round_half_away_from_zero(wrap_int32(size * maximum) / maximum_before)) - size


class Scaling(msgspec.Struct, frozen=True):
    """New sizes after spec.replicas changed.

    forced: write the size annotations even where the size does not change.
    """

    resizes: tuple[ReplicaSetResize, ...] = ()
    forced: bool = False


def find_active_or_latest(new_rs: ReplicaSet | None, old_rss: Sequence[ReplicaSet]) -> ReplicaSet | None:
    """Return the only active ReplicaSet; if none is active, the new or else the newest one; if several are, None."""
    if new_rs is None and not old_rss:
        return None
    newest_first = sort_by_creation(old_rss)[::-1]
    candidates = filter_active(newest_first if new_rs is None else [*newest_first, new_rs])
    if not candidates:
        return new_rs if new_rs is not None else newest_first[0]
    return candidates[0] if len(candidates) == 1 else None


def plan_scaling(deployment: Deployment, new_rs: ReplicaSet | None, old_rss: Sequence[ReplicaSet]) -> Scaling:
    """Distribute a change of spec.replicas over the ReplicaSets, in proportion to their sizes."""
    desired = replicas_of(deployment)
    only = find_active_or_latest(new_rs, old_rss)
    if only is not None:
        return Scaling((ReplicaSetResize(only, desired),)) if replicas_of(only) != desired else Scaling()
    old_rss = sort_by_creation(old_rss)[::-1]
    if is_saturated(deployment, new_rs):
        # The rollout is complete. Remaining old ReplicaSets, for example a newly adopted one, are scaled to 0.
        return Scaling(tuple(ReplicaSetResize(rs, 0) for rs in filter_active(old_rss)))
    if not is_rolling_update(deployment):
        return Scaling()
    all_rss = filter_active(old_rss if new_rs is None else [*old_rss, new_rs])
    allowed = desired + max_surge(deployment) if desired > 0 else 0
    to_add = allowed - sum(map(replicas_of, all_rss))
    if to_add > 0:
        all_rss = sort_by_size_newer(all_rss)
    elif to_add < 0:
        all_rss = sort_by_size_older(all_rss)
    sizes = []
    added = 0
    for rs in all_rss:
        share = replica_set_proportion(rs, deployment, to_add, added)
        added += share
        sizes.append(replicas_of(rs) + share)
    if to_add != 0 and sizes:
        sizes[0] = max(0, sizes[0] + to_add - added)  # the largest gets the remainder of the rounding
    return Scaling(tuple(ReplicaSetResize(rs, size) for rs, size in zip(all_rss, sizes, strict=True)), forced=True)


def is_scaling_event(deployment: Deployment, all_rss: Sequence[ReplicaSet]) -> bool:
    """Return True if spec.replicas differs from the size for which an active ReplicaSet was last scaled."""
    desired = replicas_of(deployment)
    return any(
        annotation is not None and annotation != desired
        for annotation in map(desired_replicas_annotation, filter_active(all_rss))
    )


def replicas_annotations(deployment: Deployment) -> dict[str, str]:
    """Return the annotations that record the Deployment's size when a ReplicaSet was last scaled."""
    desired = replicas_of(deployment)
    return {DESIRED_REPLICAS: str(desired), MAX_REPLICAS: str(desired + max_surge(deployment))}


def changed_replicas_annotations(deployment: Deployment, rs: ReplicaSet) -> dict[str, str]:
    """Return the annotations of the Deployment's size that `rs` lacks or has with another value."""
    annotations = rs.metadata.annotations
    replicas = replicas_annotations(deployment)
    return {name: value for name, value in replicas.items() if annotations.get(name) != value}
