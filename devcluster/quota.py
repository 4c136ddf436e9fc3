"""ResourceQuota: what an object counts for, and whether a namespace still has it.

Source: apiserver pkg/admission/plugin/resourcequota and pkg/quota/v1/evaluator/core of v1.36.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from kubeloop.devcluster import errors
from kubeloop.devcluster.pod_resources import is_pod_level, pod_total
from kubeloop.devcluster.quality_of_service import qos_class
from kubeloop.kube.quantity import Quantity, parse_quantity
from kubeloop.kube.resources import Resource

JSON = dict[str, Any]
Amounts = dict[str, Quantity]

_ZERO, _ONE = parse_quantity(0), parse_quantity(1)
_NOT_COUNTED = ("events", "events.events.k8s.io", "bindings")
_BY_PLURAL = ("configmaps", "resourcequotas", "replicationcontrollers", "secrets")
_COMPUTE, _PARTS = ("cpu", "memory", "ephemeral-storage"), ("requests", "limits")
_OF_PODS = frozenset({"count/pods", "pods", *_COMPUTE, *(f"{part}.{name}" for part in _PARTS for name in _COMPUTE)})
_OF_SERVICES = frozenset({"count/services", "services", "services.nodeports", "services.loadbalancers"})
_OF_CLAIMS = ("persistentvolumeclaims", "requests.storage")
_BY_CLASS = ".storageclass.storage.k8s.io/"


def is_charged(resource: Resource[Any], obj: JSON, old: JSON | None, subresource: str = "") -> bool:
    """Whether this write can change what is used; `old`: the version before, of an update."""
    name = resource.group_resource
    if name in _NOT_COUNTED:
        return False
    if old is None:
        return not subresource
    match name:
        case "pods":
            return subresource == "resize" or (not subresource and _is_terminating(obj) != _is_terminating(old))
        case "services":
            return not subresource
        case "persistentvolumeclaims":
            return subresource in ("", "status")
    return False


def usage(resource: Resource[Any], obj: JSON) -> Amounts:
    """What one object counts for, by the names that a quota may limit."""
    name = resource.group_resource
    counted = {f"count/{name}": _ONE}
    match name:
        case "pods":
            if obj.get("status", {}).get("phase") not in ("Failed", "Succeeded"):
                counted |= {"pods": _ONE, **_compute(pod_total(obj, actual=True))}
        case "persistentvolumeclaims":
            counted |= _claim(obj)
        case "services":
            counted |= {"services": _ONE, **_ports(obj["spec"])}
        case _ if name in _BY_PLURAL:
            counted[name] = _ONE
    return counted


def _compute(resources: Mapping[str, Mapping[str, str]]) -> Amounts:
    """What requests and limits count for. Extended resources count by their requests alone."""
    counted: Amounts = {}
    for name, amount in resources.get("requests", {}).items():
        quantity = parse_quantity(amount)
        if name in _COMPUTE or name.startswith("hugepages-"):
            counted[name] = counted[f"requests.{name}"] = quantity
        elif "/" in name and "kubernetes.io/" not in name:
            counted[f"requests.{name}"] = quantity
    for name, amount in resources.get("limits", {}).items():
        if name in _COMPUTE:
            counted[f"limits.{name}"] = parse_quantity(amount)
    return counted


def _claim(claim: JSON) -> Amounts:
    name = claim["metadata"].get("annotations", {}).get("volume.beta.kubernetes.io/storage-class")
    if name is None:
        name = claim["spec"].get("storageClassName", "")
    counted = {"persistentvolumeclaims": _ONE}
    storage = claim["spec"].get("resources", {}).get("requests", {}).get("storage")
    if storage is not None:
        allocated = claim.get("status", {}).get("allocatedResources", {}).get("storage", 0)
        counted["requests.storage"] = max(_whole(storage), _whole(allocated))
    if name:
        counted |= {f"{name}{_BY_CLASS}{each}": amount for each, amount in counted.items()}
    return counted


def _whole(amount: str | int) -> Quantity:
    quantity = parse_quantity(amount)
    return quantity if quantity.milli_value() % 1000 == 0 else parse_quantity(quantity.value())


def _ports(spec: JSON) -> Amounts:
    kind, ports = spec.get("type", "ClusterIP"), spec.get("ports", ())
    if kind == "LoadBalancer" and spec.get("allocateLoadBalancerNodePorts") is False:
        ports = [port for port in ports if port.get("nodePort")]
    return {
        "services.nodeports": parse_quantity(len(ports)) if kind in ("NodePort", "LoadBalancer") else _ZERO,
        "services.loadbalancers": _ONE if kind == "LoadBalancer" else _ZERO,
    }


def _concerns(resource: Resource[Any], names: Iterable[str]) -> list[str]:
    """Of the names in a quota, those that objects of this kind count for."""
    name = resource.group_resource
    match name:
        case "pods":
            return [each for each in names if each in _OF_PODS or _is_of_pods(each)]
        case "services":
            return [each for each in names if each in _OF_SERVICES]
        case "persistentvolumeclaims":
            by_class = tuple(f"{_BY_CLASS}{each}" for each in _OF_CLAIMS)
            return [each for each in names if each in (f"count/{name}", *_OF_CLAIMS) or each.endswith(by_class)]
    return [each for each in names if each == f"count/{name}" or (each == name and name in _BY_PLURAL)]


def _is_of_pods(name: str) -> bool:
    if name.startswith(("hugepages-", "requests.hugepages-")):
        return True
    return name.startswith("requests.") and "/" in name and "kubernetes.io/" not in name


def charge(
    quotas: Sequence[JSON], resource: Resource[Any], obj: JSON, old: JSON | None = None, subresource: str = ""
) -> list[JSON]:
    """The quotas with `obj` counted in (of an update: what it needs beyond `old`); only those that it changes.

    A quota that nobody has counted yet is taken as it is specified, with nothing used. Raises StatusError 403 if one is
    exceeded, or does not know what is used.
    """
    concerned: list[tuple[JSON, Mapping[str, Any], Mapping[str, Any]]] = []
    for each in quotas:
        hard, used = _status(each)
        names = _concerns(resource, hard)
        if not names or not _in_scope(each, resource, obj):
            continue
        _require_all(each, names, resource, obj)
        if any(name not in used for name in names):
            why = f"status unknown for quota: {each['metadata']['name']}, resources: {','.join(sorted(names))}"
            raise errors.forbidden(resource, obj["metadata"].get("name", ""), why)
        concerned.append((each, hard, used))
    if not concerned:
        return []
    counted = usage(resource, obj)
    if negative := sorted(name for name, amount in counted.items() if amount.sign < 0):
        why = f"quota usage is negative for resource(s): {','.join(negative)}"
        raise errors.forbidden(resource, obj["metadata"].get("name", ""), why)
    before = usage(resource, old) if old is not None else {}
    more = {name: amount - before[name] if name in before else amount for name, amount in counted.items()}
    updated = []
    for each, hard, used in concerned:
        delta = more if old is not None and _in_scope(each, resource, old) else counted
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
        for name in wanted - set(_compute(container.get("resources", {}))):
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
            return all(_claim_in_scope(requirement, obj) for requirement in wanted)
    return not wanted


def _claim_in_scope(requirement: JSON, claim: JSON) -> bool:
    if requirement["scopeName"] != "VolumeAttributesClass":
        return False
    status = claim.get("status", {})
    names = {
        claim["spec"].get("volumeAttributesClassName") or "",
        status.get("currentVolumeAttributesClassName") or "",
        (status.get("modifyVolumeStatus") or {}).get("targetVolumeAttributesClassName") or "",
    }
    return any(_selects(requirement, name) for name in names - {""} or {""})


def _is_terminating(pod: JSON) -> bool:
    return bool(pod["spec"].get("activeDeadlineSeconds", -1) >= 0)


def _pod_in_scope(requirement: JSON, pod: JSON) -> bool:
    spec = pod["spec"]
    match requirement["scopeName"]:
        case "BestEffort":
            return _is_best_effort(pod)
        case "NotBestEffort":
            return not _is_best_effort(pod)
        case "Terminating":
            return _is_terminating(pod)
        case "NotTerminating":
            return not _is_terminating(pod)
        case "PriorityClass":
            return _selects(requirement, spec.get("priorityClassName", ""))
        case "CrossNamespacePodAffinity":
            return _looks_into_other_namespaces(spec.get("affinity") or {})
    return False


def _is_best_effort(pod: JSON) -> bool:
    return (pod.get("status", {}).get("qosClass") or qos_class(pod["spec"])) == "BestEffort"


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
