"""ResourceQuota at admission: whether a namespace still has what an object counts for.

Source: apiserver pkg/admission/plugin/resourcequota and pkg/quota/v1/evaluator/core of v1.36.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from kubeloop.devcluster.api import errors
from kubeloop.kube.json_object import JSON
from kubeloop.kube.objects.pod_resources import is_pod_level
from kubeloop.kube.objects.quota_usage import (
    NOT_COUNTED,
    compute_usage,
    is_terminating,
    matches_scopes,
    matching_resources,
    usage,
)
from kubeloop.kube.objects.resources import Resource
from kubeloop.kube.quantities import Quantity, parse_quantity

Amounts = dict[str, Quantity]


def is_charged(resource: Resource[Any], obj: JSON, old: JSON | None, subresource: str = "") -> bool:
    """Whether this write can change what is used; `old`: the version before, of an update."""
    name = resource.group_resource
    if name in NOT_COUNTED:
        return False
    if old is None:
        return not subresource
    match name:
        case "pods":
            return subresource == "resize" or (not subresource and is_terminating(obj) != is_terminating(old))
        case "services":
            return not subresource
        case "persistentvolumeclaims":
            return subresource in ("", "status")
    return False


def charge(
    quotas: Sequence[JSON], resource: Resource[Any], obj: JSON, old: JSON | None = None, subresource: str = ""
) -> list[JSON]:
    """The quotas with `obj` counted in (of an update: what it needs beyond `old`); only those that it changes.

    A quota that nobody has counted yet is taken as it is specified, with nothing used. Raises StatusError 403 if one is
    exceeded, or does not know what is used.
    """
    charged: list[tuple[JSON, Mapping[str, Any], Mapping[str, Any]]] = []
    kind = resource.group_resource
    for each in quotas:
        hard, used = _status(each)
        names = matching_resources(kind, hard)
        if not names or not matches_scopes(each.get("spec", {}), kind, obj):
            continue
        _require_all(each, names, resource, obj)
        if any(name not in used for name in names):
            why = f"status unknown for quota: {each['metadata']['name']}, resources: {','.join(sorted(names))}"
            raise errors.forbidden(resource, obj["metadata"].get("name", ""), why)
        charged.append((each, hard, used))
    if not charged:
        return []
    counted = usage(kind, obj)
    if negative := sorted(name for name, amount in counted.items() if amount.sign < 0):
        why = f"quota usage is negative for resource(s): {','.join(negative)}"
        raise errors.forbidden(resource, obj["metadata"].get("name", ""), why)
    before = usage(kind, old) if old is not None else {}
    more = {name: amount - before[name] if name in before else amount for name, amount in counted.items()}
    updated = []
    for each, hard, used in charged:
        delta = more if old is not None and matches_scopes(each.get("spec", {}), kind, old) else counted
        asked = {name: amount for name, amount in delta.items() if amount.sign > 0 and name in hard}
        if not asked:
            continue
        now = {name: parse_quantity(used.get(name, 0)) + amount for name, amount in asked.items()}
        exceeded = sorted(name for name, amount in now.items() if amount.compare(parse_quantity(hard[name])) > 0)
        if exceeded and subresource != "status":
            why = (
                f"exceeded quota: {each['metadata']['name']}, requested: {_told(exceeded, asked)}, "
                f"used: {','.join(f'{name}={used.get(name, 0)}' for name in exceeded)}, "
                f"limited: {','.join(f'{name}={hard[name]}' for name in exceeded)}"
            )
            raise errors.forbidden(resource, obj["metadata"].get("name", ""), why)
        status = {"hard": dict(hard), "used": {**used, **{name: amount.canonical() for name, amount in now.items()}}}
        updated.append({**each, "status": status})
    return updated


def _status(each: JSON) -> tuple[Mapping[str, Any], Mapping[str, Any]]:
    status = each.get("status", {})
    if "hard" in status:
        return status["hard"], status.get("used", {})
    hard = each.get("spec", {}).get("hard", {})
    return hard, {**dict.fromkeys(hard, "0"), **status.get("used", {})}


_MUST_BE_SET = frozenset({"cpu", "memory", "requests.cpu", "requests.memory", "limits.cpu", "limits.memory"})


def _require_all(each: JSON, names: Iterable[str], resource: Resource[Any], obj: JSON) -> None:
    """A quota on compute makes every container say what it needs, unless the pod as a whole does."""
    if resource.group_resource != "pods":
        return
    spec = obj["spec"]
    of_pod = spec.get("resources") or {}
    if any(is_pod_level(name) for part in ("requests", "limits") for name in of_pod.get(part, ())):
        return
    wanted = _MUST_BE_SET.intersection(names)
    lacking: dict[str, set[str]] = {}
    for container in (*(spec.get("containers") or ()), *spec.get("initContainers", ())) if wanted else ():
        for name in wanted - set(compute_usage(container.get("resources", {}))):
            lacking.setdefault(name, set()).add(container["name"])
    if lacking:
        told = "; ".join(f"{name} for: {','.join(sorted(lacking[name]))}" for name in sorted(lacking))
        why = f"failed quota: {each['metadata']['name']}: must specify {told}"
        raise errors.forbidden(resource, obj["metadata"].get("name", ""), why)


def _told(names: Sequence[str], amounts: Mapping[str, Quantity]) -> str:
    return ",".join(f"{name}={amounts[name].canonical()}" for name in names)
