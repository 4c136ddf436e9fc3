"""What objects count for in a ResourceQuota: which names, how much of each, and in which scopes.

Kinds go by their group resource, as in "count/<group resource>": "pods", "deployments.apps". Objects are plain JSON.
Source: apiserver pkg/quota/v1/generic and pkg/quota/v1/evaluator/core of v1.36.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime, timedelta

from kubeloop.kube.json_object import JSON
from kubeloop.kube.objects.pod_resources import pod_resource_totals
from kubeloop.kube.objects.qos import qos_class
from kubeloop.kube.quantities import Quantity, parse_quantity

Amounts = dict[str, Quantity]

NOT_COUNTED = frozenset({"events", "events.events.k8s.io", "bindings"})
BY_PLURAL = frozenset({"configmaps", "resourcequotas", "replicationcontrollers", "secrets"})
"""Kinds of which a quota may also limit the number under their bare name."""

_ZERO, _ONE = parse_quantity(0), parse_quantity(1)
_COMPUTE, _PARTS = ("cpu", "memory", "ephemeral-storage"), ("requests", "limits")
_OF_PODS = frozenset({"count/pods", "pods", *_COMPUTE, *(f"{part}.{name}" for part in _PARTS for name in _COMPUTE)})
_OF_SERVICES = frozenset({"count/services", "services", "services.nodeports", "services.loadbalancers"})
_OF_CLAIMS = ("persistentvolumeclaims", "requests.storage")
_BY_CLASS = ".storageclass.storage.k8s.io/"


def usage(kind: str, obj: JSON, now: datetime | None = None) -> Amounts:
    """What one object counts for, by the names that a quota may limit.

    now: a pod that should be gone by then counts for its existence alone; without it, time does not matter.
    """
    counted = {f"count/{kind}": _ONE}
    match kind:
        case "pods":
            if counts_against_quota(obj, now):
                counted |= {"pods": _ONE, **compute_usage(pod_resource_totals(obj, actual=True))}
        case "persistentvolumeclaims":
            counted |= _claim(obj)
        case "services":
            counted |= {"services": _ONE, **_ports(obj["spec"])}
        case _ if kind in BY_PLURAL:
            counted[kind] = _ONE
    return counted


def counts_against_quota(pod: JSON, now: datetime | None = None) -> bool:
    """Whether a pod has not ended, and is not left over from a deletion whose grace period is long over."""
    if pod.get("status", {}).get("phase") in ("Failed", "Succeeded"):
        return False
    metadata = pod.get("metadata", {})
    deleted, grace = metadata.get("deletionTimestamp"), metadata.get("deletionGracePeriodSeconds")
    if now is None or deleted is None or grace is None:
        return True
    return now <= datetime.fromisoformat(deleted) + timedelta(seconds=grace)


def compute_usage(resources: Mapping[str, Mapping[str, str]]) -> Amounts:
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


def matching_resources(kind: str, names: Iterable[str]) -> list[str]:
    """Of the names in a quota, those that objects of this kind count for."""
    match kind:
        case "pods":
            return [each for each in names if each in _OF_PODS or _is_of_pods(each)]
        case "services":
            return [each for each in names if each in _OF_SERVICES]
        case "persistentvolumeclaims":
            by_class = tuple(f"{_BY_CLASS}{each}" for each in _OF_CLAIMS)
            return [each for each in names if each in (f"count/{kind}", *_OF_CLAIMS) or each.endswith(by_class)]
    return [each for each in names if each == f"count/{kind}" or (each == kind and kind in BY_PLURAL)]


def _is_of_pods(name: str) -> bool:
    if name.startswith(("hugepages-", "requests.hugepages-")):
        return True
    return name.startswith("requests.") and "/" in name and "kubernetes.io/" not in name


def matches_scopes(spec: JSON, kind: str, obj: JSON) -> bool:
    """Does a quota of this spec count the object? Scopes choose among pods, and claims by their
    VolumeAttributesClass."""
    wanted = [{"scopeName": scope, "operator": "Exists"} for scope in spec.get("scopes") or ()]
    wanted += (spec.get("scopeSelector") or {}).get("matchExpressions") or ()
    match kind:
        case "pods":
            return all(_pod_in_scope(requirement, obj) for requirement in wanted)
        case "persistentvolumeclaims":
            return all(_claim_in_scope(requirement, obj) for requirement in wanted)
    return not wanted


def _claim_in_scope(requirement: JSON, claim: JSON) -> bool:
    if requirement["scopeName"] != "VolumeAttributesClass":
        return False
    return any(_selects(requirement, name) for name in volume_attributes_classes(claim) or {""})


def volume_attributes_classes(claim: JSON) -> set[str]:
    """The VolumeAttributesClasses that a claim names: wanted, current, and on its way."""
    status = claim.get("status", {})
    names = {
        claim["spec"].get("volumeAttributesClassName") or "",
        status.get("currentVolumeAttributesClassName") or "",
        (status.get("modifyVolumeStatus") or {}).get("targetVolumeAttributesClassName") or "",
    }
    return names - {""}


def is_terminating(pod: JSON) -> bool:
    """Whether a pod has been given a time to live: what the scope Terminating means."""
    return bool(pod["spec"].get("activeDeadlineSeconds", -1) >= 0)


def _pod_in_scope(requirement: JSON, pod: JSON) -> bool:
    spec = pod["spec"]
    match requirement["scopeName"]:
        case "BestEffort":
            return _is_best_effort(pod)
        case "NotBestEffort":
            return not _is_best_effort(pod)
        case "Terminating":
            return is_terminating(pod)
        case "NotTerminating":
            return not is_terminating(pod)
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
