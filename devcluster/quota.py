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
    match resource.group_resource:
        case "pods":
            counted |= _compute(pod_total(obj["spec"]))
        case "persistentvolumeclaims":
            storage = obj["spec"].get("resources", {}).get("requests", {}).get("storage")
            name = obj["spec"].get("storageClassName")
            if name:
                counted[f"{name}.storageclass.storage.k8s.io/persistentvolumeclaims"] = one
            if storage is not None:
                counted["requests.storage"] = parse_quantity(storage)
                if name:
                    counted[f"{name}.storageclass.storage.k8s.io/requests.storage"] = parse_quantity(storage)
        case "services":
            counted |= _ports(obj["spec"])
    return counted


def _compute(resources: Mapping[str, Mapping[str, str]]) -> dict[str, Quantity]:
    """What requests and limits count for. Extended resources count by their requests alone."""
    counted: dict[str, Quantity] = {}
    for name, amount in resources.get("requests", {}).items():
        quantity = parse_quantity(amount)
        if name in _COUNTED_COMPUTE or name.startswith("hugepages-"):
            counted[name] = counted[f"requests.{name}"] = quantity
        elif "/" in name and "kubernetes.io/" not in name:
            counted[f"requests.{name}"] = quantity
    for name, amount in resources.get("limits", {}).items():
        if name in _COUNTED_COMPUTE:
            counted[f"limits.{name}"] = parse_quantity(amount)
    return counted


_COUNTED_COMPUTE = ("cpu", "memory", "ephemeral-storage")


def _ports(spec: JSON) -> dict[str, Quantity]:
    kind, ports = spec.get("type", "ClusterIP"), spec.get("ports", ())
    if kind == "LoadBalancer" and spec.get("allocateLoadBalancerNodePorts") is False:
        ports = [port for port in ports if port.get("nodePort")]
    counted = {}
    if kind in ("NodePort", "LoadBalancer") and ports:
        counted["services.nodeports"] = parse_quantity(len(ports))
    if kind == "LoadBalancer":
        counted["services.loadbalancers"] = parse_quantity(1)
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
        _require_all(each, hard, resource, obj)
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


_MUST_BE_SET = frozenset({"cpu", "memory", "requests.cpu", "requests.memory", "limits.cpu", "limits.memory"})


def _require_all(each: JSON, hard: Mapping[str, Any], resource: Resource[Any], obj: JSON) -> None:
    """A quota on compute makes every container say what it needs, unless the pod as a whole does."""
    if resource.group_resource != "pods":
        return
    spec = obj["spec"]
    if any((spec.get("resources") or {}).get(part) for part in ("requests", "limits")):
        return
    lacking: dict[str, set[str]] = {}
    for container in (*(spec.get("containers") or ()), *spec.get("initContainers", ())):
        for name in (_MUST_BE_SET & set(hard)) - set(_compute(container.get("resources", {}))):
            lacking.setdefault(name, set()).add(container["name"])
    if lacking:
        told = "; ".join(f"{name} for: {','.join(sorted(lacking[name]))}" for name in sorted(lacking))
        why = f"failed quota: {each['metadata']['name']}: must specify {told}"
        raise errors.forbidden(resource, obj["metadata"].get("name", ""), why)


def _in_scope(each: JSON, resource: Resource[Any], obj: JSON) -> bool:
    """Does this quota count the object? Scopes choose among pods, and claims by their VolumeAttributesClass."""
    spec = each.get("spec", {})
    wanted = [{"scopeName": scope, "operator": "Exists"} for scope in spec.get("scopes") or ()]
    wanted += (spec.get("scopeSelector") or {}).get("matchExpressions") or ()
    match resource.group_resource:
        case "pods":
            return all(_pod_in_scope(requirement, obj) for requirement in wanted)
        case "persistentvolumeclaims":
            name = obj["spec"].get("volumeAttributesClassName", "")
            return all(each["scopeName"] == "VolumeAttributesClass" and _selects(each, name) for each in wanted)
    return not wanted


def _pod_in_scope(requirement: JSON, pod: JSON) -> bool:
    spec = pod["spec"]
    best_effort = bool(pod.get("status", {}).get("qosClass") == "BestEffort")
    terminating = spec.get("activeDeadlineSeconds") is not None
    match requirement["scopeName"]:
        case "BestEffort":
            return best_effort
        case "NotBestEffort":
            return not best_effort
        case "Terminating":
            return terminating
        case "NotTerminating":
            return not terminating
        case "PriorityClass":
            return _selects(requirement, spec.get("priorityClassName", ""))
        case "CrossNamespacePodAffinity":
            return _looks_into_other_namespaces(spec.get("affinity") or {})
    return False


def _selects(requirement: JSON, name: str) -> bool:
    """Whether a scope's requirement holds for this value; "" is none."""
    values: Sequence[str] = requirement.get("values") or ()
    match requirement.get("operator"):
        case "Exists":
            return bool(name)
        case "DoesNotExist":
            return not name
        case "In":
            return name != "" and name in values
        case "NotIn":
            return name not in values
    return False


def _looks_into_other_namespaces(affinity: JSON) -> bool:
    terms: list[JSON] = []
    for kind in ("podAffinity", "podAntiAffinity"):
        pods = affinity.get(kind) or {}
        terms += pods.get("requiredDuringSchedulingIgnoredDuringExecution", ())
        preferred = pods.get("preferredDuringSchedulingIgnoredDuringExecution", ())
        terms += [each.get("podAffinityTerm", {}) for each in preferred]
    return any(bool(term.get("namespaces")) or term.get("namespaceSelector") is not None for term in terms)


def _told(names: Sequence[str], amounts: Mapping[str, Quantity]) -> str:
    return ",".join(f"{name}={amounts[name].canonical()}" for name in names)
