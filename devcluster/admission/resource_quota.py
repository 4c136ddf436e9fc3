"""ResourceQuota: reject writes that exceed a namespace's quotas, and compute the new usage.

Source: apiserver pkg/admission/plugin/resourcequota and pkg/quota/v1/evaluator/core of v1.36.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from kubeloop.devcluster.api import errors
from kubeloop.devcluster.api.strategy import strategy_of
from kubeloop.kube.json_object import JSON
from kubeloop.kube.objects.pod_resources import is_pod_level
from kubeloop.kube.objects.quota_usage import (
    NOT_COUNTED,
    DeviceQuota,
    compute_usage,
    matches_scopes,
    matching_resources,
    usage,
)
from kubeloop.kube.objects.resources import PODS, Resource
from kubeloop.kube.values.quantities import Quantity, parse_quantity

Amounts = dict[str, Quantity]


def is_charged(resource: Resource[Any], obj: JSON, old: JSON | None, subresource: str = "") -> bool:
    """Return True if this write can change the usage of quotas; `old`: the object before an update."""
    if resource.group_resource in NOT_COUNTED:
        return False
    if old is None:
        return not subresource
    is_charged = strategy_of(resource).is_charged
    return is_charged is not None and is_charged(obj, old, subresource)


def charge(
    quotas: Sequence[JSON],
    resource: Resource[Any],
    obj: JSON,
    old: JSON | None = None,
    subresource: str = "",
    devices: DeviceQuota | None = None,
) -> list[JSON]:
    """Return the quotas whose usage changes, with the new usage: `obj` is added, or its increase over `old`.

    A quota whose usage was never computed counts as unused. Raises StatusError 403 if a quota is exceeded, or lacks the
    usage of a resource.
    """
    charged: list[tuple[JSON, Mapping[str, Any], Mapping[str, Any]]] = []
    kind, check_quota = resource.group_resource, strategy_of(resource).check_quota
    for quota in quotas:
        hard, used = _hard_and_used(quota)
        names = matching_resources(kind, hard, devices)
        if not names or not matches_scopes(quota.get("spec", {}), kind, obj):
            continue
        if check_quota is not None:
            check_quota(quota, names, obj)
        if any(name not in used for name in names):
            message = f"status unknown for quota: {quota['metadata']['name']}, resources: {','.join(sorted(names))}"
            raise errors.forbidden(resource, obj["metadata"].get("name", ""), message)
        charged.append((quota, hard, used))
    if not charged:
        return []
    counted = usage(kind, obj, devices=devices)
    if negative := sorted(name for name, amount in counted.items() if amount.sign < 0):
        message = f"quota usage is negative for resource(s): {','.join(negative)}"
        raise errors.forbidden(resource, obj["metadata"].get("name", ""), message)
    before = usage(kind, old, devices=devices) if old is not None else {}
    increase = {name: amount - before[name] if name in before else amount for name, amount in counted.items()}
    updated = []
    for quota, hard, used in charged:
        delta = increase if old is not None and matches_scopes(quota.get("spec", {}), kind, old) else counted
        requested = {name: amount for name, amount in delta.items() if amount.sign > 0 and name in hard}
        if not requested:
            continue
        new_usage = {name: parse_quantity(used.get(name, 0)) + amount for name, amount in requested.items()}
        exceeded = sorted(name for name, amount in new_usage.items() if amount.compare(parse_quantity(hard[name])) > 0)
        if exceeded and subresource != "status":
            message = (
                f"exceeded quota: {quota['metadata']['name']}, requested: {_format_amounts(exceeded, requested)}, "
                f"used: {','.join(f'{name}={used.get(name, 0)}' for name in exceeded)}, "
                f"limited: {','.join(f'{name}={hard[name]}' for name in exceeded)}"
            )
            raise errors.forbidden(resource, obj["metadata"].get("name", ""), message)
        status = {
            "hard": dict(hard),
            "used": {**used, **{name: amount.canonical() for name, amount in new_usage.items()}},
        }
        updated.append({**quota, "status": status})
    return updated


def _hard_and_used(quota: JSON) -> tuple[Mapping[str, Any], Mapping[str, Any]]:
    status = quota.get("status", {})
    if "hard" in status:
        return status["hard"], status.get("used", {})
    hard = quota.get("spec", {}).get("hard", {})
    return hard, {**dict.fromkeys(hard, "0"), **status.get("used", {})}


_REQUIRED_COMPUTE_RESOURCES = frozenset(
    {"cpu", "memory", "requests.cpu", "requests.memory", "limits.cpu", "limits.memory"}
)


def require_compute_resources(quota: JSON, names: Iterable[str], pod: JSON) -> None:
    """Require compute resources of every container that the quota limits, unless they are set at pod level.

    Raises StatusError 403.
    """
    spec = pod["spec"]
    pod_resources = spec.get("resources") or {}
    if any(is_pod_level(name) for part in ("requests", "limits") for name in pod_resources.get(part, ())):
        return
    required = _REQUIRED_COMPUTE_RESOURCES.intersection(names)
    containers_by_missing_name: dict[str, set[str]] = {}
    for container in (*(spec.get("containers") or ()), *spec.get("initContainers", ())) if required else ():
        for name in required - set(compute_usage(container.get("resources", {}))):
            containers_by_missing_name.setdefault(name, set()).add(container["name"])
    if containers_by_missing_name:
        detail = "; ".join(
            f"{name} for: {','.join(sorted(containers_by_missing_name[name]))}"
            for name in sorted(containers_by_missing_name)
        )
        message = f"failed quota: {quota['metadata']['name']}: must specify {detail}"
        raise errors.forbidden(PODS, pod["metadata"].get("name", ""), message)


def _format_amounts(names: Sequence[str], amounts: Mapping[str, Quantity]) -> str:
    return ",".join(f"{name}={amounts[name].canonical()}" for name in names)
