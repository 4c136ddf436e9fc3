"""What is used in a namespace, counted from what informers hold, and whether a quota's status says so.

The arithmetic of one object is `kubeloop.kube.objects.quota_usage`'s. Source: apiserver pkg/quota/v1
(CalculateUsage) and pkg/controller/resourcequota of v1.36.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from datetime import datetime
from typing import Any

from kubeloop.informers.reflector import yield_to_event_loop
from kubeloop.informers.shared_informer import SharedInformer
from kubeloop.kube.objects.api_types import Pod, ResourceQuota, Struct, to_json
from kubeloop.kube.objects.quota_usage import Amounts, attributes_classes, holds_resources, in_scope, usage
from kubeloop.kube.objects.resources import PERSISTENT_VOLUME_CLAIMS, PODS, SERVICES, Resource
from kubeloop.kube.quantities import Quantity, parse_quantity

EVALUATED_RESOURCES: dict[str, Resource[Any]] = {
    each.plural: each for each in (PODS, SERVICES, PERSISTENT_VOLUME_CLAIMS)
}
"""Kinds of which a quota counts more than their number. Of all others, metadata is enough."""

_ZERO = parse_quantity(0)


async def calculate_usage(
    quota: ResourceQuota, kind: str, names: Iterable[str], informer: SharedInformer[Any], now: datetime
) -> tuple[Amounts, int]:
    """What the objects of one kind use of a quota, by `names` (those that the kind counts for), and how many objects
    were looked at one by one.

    Other tasks get their turn while many objects are counted. What changes meanwhile wakes the quota again.
    """
    namespace, wanted = quota.metadata.namespace, tuple(names)
    spec = to_json(quota.spec)
    if kind not in EVALUATED_RESOURCES:
        count = informer.store.count("namespace", namespace) if in_scope(spec, kind, {}) else 0
        return dict.fromkeys(wanted, parse_quantity(count)), 0
    total = dict.fromkeys(wanted, _ZERO)
    objects = informer.store.by_index("namespace", namespace)
    steps = 0
    for each in objects:
        obj = to_plain_json(each)
        if in_scope(spec, kind, obj):
            counted = usage(kind, obj, now)
            for name in wanted:
                if name in counted:
                    total[name] = total[name] + counted[name]
        steps = await yield_to_event_loop(steps)
    return total, len(objects)


def to_plain_json(obj: Struct) -> dict[str, Any]:
    """A cached object as plain JSON."""
    plain: dict[str, Any] = {"spec": {}, **to_json(obj)}
    return plain


def can_free_usage(kind: str, old: Any, new: Any, now: datetime) -> bool:
    """Whether an update can change what is used in a way that admission has not counted."""
    match kind:
        case "pods":
            return _pod_frees_something(old, new, now)
        case "services" | "persistentvolumeclaims":
            before, after = to_plain_json(old), to_plain_json(new)
            if usage(kind, before) != usage(kind, after):
                return True
            return kind != "services" and attributes_classes(before) != attributes_classes(after)
    return False


def _pod_frees_something(old: Pod, new: Pod, now: datetime) -> bool:
    for before, after in (
        (old.status.container_statuses, new.status.container_statuses),
        (old.status.init_container_statuses, new.status.init_container_statuses),
    ):
        resources = {each.name: each.resources for each in before}
        if any(each.name in resources and each.resources != resources[each.name] for each in after):
            return True
    if old.spec.active_deadline_seconds != new.spec.active_deadline_seconds:
        return True
    return _holds_resources(old, now) and not _holds_resources(new, now)


def _holds_resources(pod: Pod, now: datetime) -> bool:
    metadata = to_json(pod.metadata) if pod.metadata.deletion_timestamp is not None else {}
    return holds_resources({"metadata": metadata, "status": {"phase": pod.status.phase}}, now)


def status_patch(quota: ResourceQuota, counted: Mapping[str, Quantity]) -> dict[str, Any] | None:
    """What to change in a quota's status, as a merge patch; None if it says what is so.

    A name that nobody could count keeps what was last known of it. A name that the quota no longer limits goes.
    """
    hard, status = quota.spec.hard, quota.status
    used = {name: parse_quantity(amount) for name, amount in status.used.items()}
    used = {name: amount for name, amount in {**used, **counted}.items() if name in hard}
    if _same(hard, status.hard) and _same(used, status.used):
        return None
    return {
        "hard": {**dict.fromkeys(status.hard), **hard},
        "used": {**dict.fromkeys(status.used), **{name: amount.canonical() for name, amount in used.items()}},
    }


def _same(amounts: Mapping[str, Any], others: Mapping[str, Any]) -> bool:
    return amounts.keys() == others.keys() and all(
        _quantity(amount) == _quantity(others[name]) for name, amount in amounts.items()
    )


def _quantity(amount: Any) -> Quantity:
    return amount if isinstance(amount, Quantity) else parse_quantity(amount)
