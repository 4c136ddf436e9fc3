"""ResourceQuota: what an object counts for, and whether a namespace still has it. Source: pkg/quota/v1 of v1.36."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from kubeloop.devcluster import errors
from kubeloop.devcluster.limits import pod_total
from kubeloop.kube.quantity import Quantity, parse_quantity
from kubeloop.kube.resources import Resource

JSON = dict[str, Any]


def usage(resource: Resource[Any], obj: JSON) -> dict[str, Quantity]:
    """What one object counts for, by the names that a quota may limit."""
    one = parse_quantity(1)
    counted = {f"count/{resource.group_resource}": one}
    if not resource.group:
        counted[resource.plural] = one
    if resource.group_resource == "pods":
        total = pod_total(obj["spec"])
        for name, amount in total["requests"].items():
            counted[f"requests.{name}"] = parse_quantity(amount)
            if name in ("cpu", "memory", "ephemeral-storage"):
                counted[name] = parse_quantity(amount)
        for name, amount in total["limits"].items():
            counted[f"limits.{name}"] = parse_quantity(amount)
    if resource.group_resource == "persistentvolumeclaims":
        storage = obj["spec"].get("resources", {}).get("requests", {}).get("storage")
        if storage is not None:
            counted["requests.storage"] = parse_quantity(storage)
    if resource.group_resource == "services":
        kind = obj["spec"].get("type", "ClusterIP")
        if kind in ("NodePort", "LoadBalancer"):
            counted["services.nodeports"] = parse_quantity(len(obj["spec"].get("ports", ())))
        if kind == "LoadBalancer":
            counted["services.loadbalancers"] = one
    return counted


def charge(quotas: Sequence[JSON], resource: Resource[Any], obj: JSON) -> list[JSON]:
    """The quotas with `obj` counted in; only those it touches. Raises StatusError 403 if one is exceeded."""
    counted = usage(resource, obj)
    updated = []
    for each in quotas:
        if not _in_scope(each, resource, obj):
            continue
        hard: Mapping[str, Any] = each.get("status", {}).get("hard") or each.get("spec", {}).get("hard", {})
        touched = {name: amount for name, amount in counted.items() if name in hard}
        _require_all(each, hard, resource, obj, counted)
        if not touched:
            continue
        used = each.get("status", {}).get("used", {})
        new_used = {name: parse_quantity(used.get(name, 0)) + amount for name, amount in touched.items()}
        exceeded = sorted(name for name, amount in new_used.items() if amount.compare(parse_quantity(hard[name])) > 0)
        if exceeded:
            raise errors.forbidden(
                resource,
                obj["metadata"].get("name", ""),
                f"exceeded quota: {each['metadata']['name']}, "
                f"requested: {_told(exceeded, touched)}, "
                f"used: {','.join(f'{name}={used.get(name, 0)}' for name in exceeded)}, "
                f"limited: {','.join(f'{name}={hard[name]}' for name in exceeded)}",
            )
        status = {
            "hard": dict(hard),
            "used": {**used, **{name: amount.canonical() for name, amount in new_used.items()}},
        }
        updated.append({**each, "status": status})
    return updated


_MUST_BE_SET = {
    "cpu": "requests",
    "memory": "requests",
    "requests.cpu": "requests",
    "requests.memory": "requests",
    "limits.cpu": "limits",
    "limits.memory": "limits",
}


def _require_all(
    each: JSON, hard: Mapping[str, Any], resource: Resource[Any], obj: JSON, counted: Mapping[str, Quantity]
) -> None:
    """A quota on compute makes every container say what it needs."""
    if resource.group_resource != "pods":
        return
    missing: list[str] = []
    for name in sorted(set(hard) & set(_MUST_BE_SET)):
        short = name.rpartition(".")[2]
        part = _MUST_BE_SET[name]
        lacking = [
            container["name"]
            for container in (*(obj["spec"].get("containers") or ()), *obj["spec"].get("initContainers", ()))
            if short not in container.get("resources", {}).get(part, {})
        ]
        if lacking and name not in counted:
            missing.append(f"{name} for: {','.join(lacking)}")
    if missing:
        raise errors.forbidden(
            resource,
            obj["metadata"].get("name", ""),
            f"failed quota: {each['metadata']['name']}: must specify {'; '.join(missing)}",
        )


def _in_scope(each: JSON, resource: Resource[Any], obj: JSON) -> bool:
    scopes = each.get("spec", {}).get("scopes", ())
    if not scopes:
        return True
    if resource.group_resource != "pods":
        return False
    best_effort = obj.get("status", {}).get("qosClass") == "BestEffort"
    terminating = obj["spec"].get("activeDeadlineSeconds") is not None
    holds = {
        "BestEffort": best_effort,
        "NotBestEffort": not best_effort,
        "Terminating": terminating,
        "NotTerminating": not terminating,
    }
    return all(holds.get(scope, False) for scope in scopes)


def _told(names: Sequence[str], amounts: Mapping[str, Quantity]) -> str:
    return ",".join(f"{name}={amounts[name].canonical()}" for name in names)
