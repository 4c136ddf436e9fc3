"""Usage of a ResourceQuota, computed from the objects that informers hold, and the patch of its status.

`kubeloop.kube.objects.quota_usage` computes the usage of single objects. Source: apiserver pkg/quota/v1
(CalculateUsage) and pkg/controller/resourcequota of v1.36.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from datetime import datetime
from typing import Any

from kubeloop.informers.factory import InformerFactory
from kubeloop.informers.reflector import yield_to_event_loop
from kubeloop.informers.shared_informer import SharedInformer
from kubeloop.kube.objects.api_types import Pod, ResourceQuota, Struct, to_json
from kubeloop.kube.objects.quota_usage import (
    Amounts,
    DeviceQuota,
    counts_against_quota,
    matches_scopes,
    usage,
    volume_attributes_classes,
)
from kubeloop.kube.objects.resources import (
    DEVICE_CLASSES,
    PERSISTENT_VOLUME_CLAIMS,
    PODS,
    RESOURCE_CLAIMS,
    SERVICES,
    Resource,
)
from kubeloop.kube.values.quantities import Quantity, parse_quantity

EVALUATED_RESOURCES: dict[str, Resource[Any]] = {
    resource.group_resource: resource for resource in (PODS, SERVICES, PERSISTENT_VOLUME_CLAIMS, RESOURCE_CLAIMS)
}
"""Kinds for which quotas limit more than the number of objects. For other kinds, metadata is enough."""

_ZERO = parse_quantity(0)


async def calculate_usage(
    quota: ResourceQuota,
    kind: str,
    names: Iterable[str],
    informer: SharedInformer[Any],
    now: datetime,
    devices: DeviceQuota | None = None,
) -> tuple[Amounts, int]:
    """Return the usage of the quota by the objects of one kind, and the number of objects that were evaluated.

    names: the quota names that the kind counts for. devices: what the usage of ResourceClaims depends on. Other tasks
    get a turn while many objects are counted. Changes in the meantime enqueue the quota again.
    """
    namespace, quota_names = quota.metadata.namespace, tuple(names)
    spec = to_json(quota.spec)
    if kind not in EVALUATED_RESOURCES:
        count = informer.store.count("namespace", namespace) if matches_scopes(spec, kind, {}) else 0
        return dict.fromkeys(quota_names, parse_quantity(count)), 0
    total = dict.fromkeys(quota_names, _ZERO)
    objects = informer.store.by_index("namespace", namespace)
    steps = 0
    for cached in objects:
        obj = to_plain_json(cached)
        if matches_scopes(spec, kind, obj):
            object_usage = usage(kind, obj, now, devices)
            for name in quota_names:
                if name in object_usage:
                    total[name] = total[name] + object_usage[name]
        steps = await yield_to_event_loop(steps)
    return total, len(objects)


def device_quota(namespace: str, informers: InformerFactory) -> DeviceQuota:
    """Return what the usage of the ResourceClaims of a namespace depends on.

    From caches that are synced, unless quota names for which pods count are left out: only these depend on pods.
    """
    classes = informers.informer(DEVICE_CLASSES).store
    pods, claims = informers.informer(PODS).store, informers.informer(RESOURCE_CLAIMS).store

    def pod(name: str) -> dict[str, Any] | None:
        cached = pods.get(f"{namespace}/{name}")
        return None if cached is None else to_plain_json(cached)

    return DeviceQuota(
        {entry.metadata.name: entry.spec.extended_resource_name or "" for entry in classes.values()},
        pod,
        lambda uid: [
            to_plain_json(claim)
            for claim in claims.by_index("namespace", namespace)
            if any(owner.uid == uid for owner in claim.metadata.owner_references)
        ],
    )


def to_plain_json(obj: Struct) -> dict[str, Any]:
    """Return a cached object as plain JSON."""
    plain: dict[str, Any] = {"spec": {}, **to_json(obj)}
    return plain


def can_free_usage(kind: str, old: Any, new: Any, now: datetime) -> bool:
    """Return True if an update can change the usage in a way that admission has not counted."""
    match kind:
        case "pods":
            return _pod_can_free_usage(old, new, now)
        case "services" | "persistentvolumeclaims":
            before, after = to_plain_json(old), to_plain_json(new)
            if usage(kind, before) != usage(kind, after):
                return True
            return kind != "services" and volume_attributes_classes(before) != volume_attributes_classes(after)
    return False


def _pod_can_free_usage(old: Pod, new: Pod, now: datetime) -> bool:
    for before, after in (
        (old.status.container_statuses, new.status.container_statuses),
        (old.status.init_container_statuses, new.status.init_container_statuses),
    ):
        resources = {status.name: status.resources for status in before}
        if any(status.name in resources and status.resources != resources[status.name] for status in after):
            return True
    if old.spec.active_deadline_seconds != new.spec.active_deadline_seconds:
        return True
    return _holds_resources(old, now) and not _holds_resources(new, now)


def _holds_resources(pod: Pod, now: datetime) -> bool:
    metadata = to_json(pod.metadata) if pod.metadata.deletion_timestamp is not None else {}
    return counts_against_quota({"metadata": metadata, "status": {"phase": pod.status.phase}}, now)


def status_patch(
    quota: ResourceQuota, usage: Mapping[str, Quantity], *, may_decrease: bool = True
) -> dict[str, Any] | None:
    """Return a merge patch of the quota's status; None if the status is up to date.

    A name whose usage could not be computed keeps its last value. A name that the quota no longer limits is removed.
    may_decrease: False to keep used amounts that are greater than the computed ones.
    """
    hard, status = quota.spec.hard, quota.status
    used = {name: parse_quantity(amount) for name, amount in status.used.items()}
    if not may_decrease:
        usage = {name: max(amount, used.get(name, amount)) for name, amount in usage.items()}
    used = {name: amount for name, amount in {**used, **usage}.items() if name in hard}
    if _same_quantities(hard, status.hard) and _same_quantities(used, status.used):
        return None
    return {
        "hard": {**dict.fromkeys(status.hard), **hard},
        "used": {**dict.fromkeys(status.used), **{name: amount.canonical() for name, amount in used.items()}},
    }


def _same_quantities(amounts: Mapping[str, Any], others: Mapping[str, Any]) -> bool:
    return amounts.keys() == others.keys() and all(
        _quantity(amount) == _quantity(others[name]) for name, amount in amounts.items()
    )


def _quantity(amount: Any) -> Quantity:
    return amount if isinstance(amount, Quantity) else parse_quantity(amount)
