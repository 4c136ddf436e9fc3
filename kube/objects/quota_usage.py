"""Usage of objects in a ResourceQuota: resource names, amounts and scopes.

Kinds are named by group resource, as in "count/<group resource>": "pods", "deployments.apps". Objects are plain JSON.
Source: apiserver pkg/quota/v1/generic and pkg/quota/v1/evaluator/core of v1.36.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime

from kubeloop.kube.json_object import JSON
from kubeloop.kube.objects.pod_claims import EXTENDED_RESOURCE_ANNOTATION
from kubeloop.kube.objects.pod_resources import pod_resource_totals
from kubeloop.kube.objects.qos import qos_class
from kubeloop.kube.values.quantities import Quantity, parse_quantity
from kubeloop.kube.values.times import parse_time, time_plus

Amounts = dict[str, Quantity]

NOT_COUNTED = frozenset({"events", "events.events.k8s.io", "bindings"})
BY_PLURAL = frozenset({"configmaps", "resourcequotas", "replicationcontrollers", "secrets"})
"""Kinds whose number a quota may also limit under their plain resource name."""

_ZERO, _ONE = parse_quantity(0), parse_quantity(1)
_COMPUTE, _PARTS = ("cpu", "memory", "ephemeral-storage"), ("requests", "limits")
_POD_RESOURCES = frozenset(
    {"count/pods", "pods", *_COMPUTE, *(f"{part}.{name}" for part in _PARTS for name in _COMPUTE)}
)
_SERVICE_RESOURCES = frozenset({"count/services", "services", "services.nodeports", "services.loadbalancers"})
_CLAIM_RESOURCES = ("persistentvolumeclaims", "requests.storage")
_STORAGE_CLASS_SUFFIX = ".storageclass.storage.k8s.io/"
_DEVICE_CLASS_SUFFIX = ".deviceclass.resource.k8s.io/devices"
_DEVICE_CLASS_RESOURCE = "deviceclass.resource.kubernetes.io/"
_MAX_DEVICES = 32  # that a claim for all devices may get


@dataclass(frozen=True, slots=True)
class DeviceQuota:
    """Objects of the namespace on which the usage of a ResourceClaim depends.

    resources: the extended resource that each DeviceClass names, "" for none. pod: returns the pod of a name.
    claims_of: returns the claims of a pod, by its UID.
    """

    resources: Mapping[str, str]
    pod: Callable[[str], JSON | None]
    claims_of: Callable[[str], Iterable[JSON]]


def usage(kind: str, obj: JSON, now: datetime | None = None, devices: DeviceQuota | None = None) -> Amounts:
    """Return the usage of one object, by resource name as in a quota.

    now: a pod whose grace period is over by then only counts as an object; None: ignore the time. devices: with it, a
    ResourceClaim counts for extended resources, too (feature gate DRAExtendedResource).
    """
    amounts = {f"count/{kind}": _ONE}
    match kind:
        case "pods":
            if counts_against_quota(obj, now):
                amounts |= {"pods": _ONE, **compute_usage(pod_resource_totals(obj, actual=True))}
        case "persistentvolumeclaims":
            amounts |= _claim_usage(obj)
        case "services":
            amounts |= {"services": _ONE, **_service_usage(obj["spec"])}
        case "resourceclaims.resource.k8s.io":
            amounts |= _devices_by_class(obj["spec"])
            if devices is not None:
                amounts |= _extended_resources(obj, amounts, devices)
        case _ if kind in BY_PLURAL:
            amounts[kind] = _ONE
    return amounts


def counts_against_quota(pod: JSON, now: datetime | None = None) -> bool:
    """Return True if a pod has not ended and its deletion's grace period is not over. Source: QuotaV1Pod."""
    if pod.get("status", {}).get("phase") in ("Failed", "Succeeded"):
        return False
    metadata = pod.get("metadata", {})
    deleted, grace = metadata.get("deletionTimestamp"), metadata.get("deletionGracePeriodSeconds")
    if now is None or deleted is None or grace is None:
        return True
    return now <= time_plus(parse_time(deleted), grace)


def compute_usage(resources: Mapping[str, Mapping[str, str]]) -> Amounts:
    """Return the usage for requests and limits. Extended resources count by requests only."""
    amounts: Amounts = {}
    for name, amount in resources.get("requests", {}).items():
        quantity = parse_quantity(amount)
        if name in _COMPUTE or name.startswith("hugepages-"):
            amounts[name] = amounts[f"requests.{name}"] = quantity
        elif _is_extended_resource(name):
            amounts[f"requests.{name}"] = quantity
    for name, amount in resources.get("limits", {}).items():
        if name in _COMPUTE:
            amounts[f"limits.{name}"] = parse_quantity(amount)
    return amounts


def _is_extended_resource(name: str) -> bool:
    return name.startswith(_DEVICE_CLASS_RESOURCE) or ("/" in name and "kubernetes.io/" not in name)


def _devices_by_class(spec: JSON) -> Amounts:
    """Return the number of devices that a ResourceClaim may get, by class; the most of any alternative."""
    total: Counter[str] = Counter()
    for request in (spec.get("devices") or {}).get("requests") or ():
        most: Counter[str] = Counter()
        exactly = request.get("exactly")
        for entry in request.get("firstAvailable") or ((exactly,) if exactly else ()):
            mode = entry.get("allocationMode", "ExactCount")
            count = {"ExactCount": entry.get("count", 1), "All": _MAX_DEVICES}.get(mode, 0)
            name = entry.get("deviceClassName", "")
            most[name] = max(most[name], count)
        total.update(most)
    return {f"{name}{_DEVICE_CLASS_SUFFIX}": parse_quantity(count) for name, count in total.items()}


def _extended_resources(claim: JSON, amounts: Amounts, devices: DeviceQuota) -> Amounts:
    """Return the devices of a claim as extended resources, without those that count for its pod already."""
    extended: Amounts = {}
    for name, amount in amounts.items():
        device_class, suffix, _ = name.partition(_DEVICE_CLASS_SUFFIX)
        if suffix and device_class:
            extended[f"requests.{_DEVICE_CLASS_RESOURCE}{device_class}"] = amount
            if resource := devices.resources.get(device_class):
                extended[f"requests.{resource}"] = amount
    of_pod = _usage_of_pod(claim, devices)
    left = {name: amount - of_pod[name] if name in of_pod else amount for name, amount in extended.items()}
    return {name: amount for name, amount in left.items() if amount.sign > 0}


def _usage_of_pod(claim: JSON, devices: DeviceQuota) -> Amounts:
    """Return the usage of the pod for whose extended resources a claim was created; nothing for other claims."""
    metadata = claim["metadata"]
    if (metadata.get("annotations") or {}).get(EXTENDED_RESOURCE_ANNOTATION) != "true":
        return {}
    owner = next((owner for owner in metadata.get("ownerReferences") or () if owner.get("controller")), None)
    if owner is None or (owner["kind"], owner["apiVersion"]) != ("Pod", "v1"):
        return {}
    pod = devices.pod(owner["name"])
    if pod is None or pod["metadata"]["uid"] != owner["uid"]:
        return {}
    status = (pod.get("status") or {}).get("extendedResourceClaimStatus")
    if status is not None:
        return usage("pods", pod) if status["resourceClaimName"] == metadata.get("name") else {}
    created = (metadata.get("creationTimestamp") or "", metadata.get("name") or "")
    for other in devices.claims_of(owner["uid"]):
        if (other["metadata"].get("creationTimestamp") or "", other["metadata"]["name"]) < created:
            return {}  # an earlier claim counts as the pod's
    return usage("pods", pod)


def _claim_usage(claim: JSON) -> Amounts:
    name = claim["metadata"].get("annotations", {}).get("volume.beta.kubernetes.io/storage-class")
    if name is None:
        name = claim["spec"].get("storageClassName", "")
    amounts = {"persistentvolumeclaims": _ONE}
    storage = claim["spec"].get("resources", {}).get("requests", {}).get("storage")
    if storage is not None:
        allocated = claim.get("status", {}).get("allocatedResources", {}).get("storage", 0)
        amounts["requests.storage"] = max(_whole_units(storage), _whole_units(allocated))
    if name:
        amounts |= {
            f"{name}{_STORAGE_CLASS_SUFFIX}{resource_name}": amount for resource_name, amount in amounts.items()
        }
    return amounts


def _whole_units(amount: str | int) -> Quantity:
    quantity = parse_quantity(amount)
    return quantity if quantity.milli_value() % 1000 == 0 else parse_quantity(quantity.value())


def _service_usage(spec: JSON) -> Amounts:
    kind, ports = spec.get("type", "ClusterIP"), spec.get("ports", ())
    if kind == "LoadBalancer" and spec.get("allocateLoadBalancerNodePorts") is False:
        ports = [port for port in ports if port.get("nodePort")]
    return {
        "services.nodeports": parse_quantity(len(ports)) if kind in ("NodePort", "LoadBalancer") else _ZERO,
        "services.loadbalancers": _ONE if kind == "LoadBalancer" else _ZERO,
    }


def matching_resources(kind: str, names: Iterable[str], devices: DeviceQuota | None = None) -> list[str]:
    """Return the names in a quota that objects of this kind count for. Source: Evaluator.MatchingResources.

    devices: without it, ResourceClaims may count for every extended resource.
    """
    match kind:
        case "pods":
            return [name for name in names if name in _POD_RESOURCES or _is_pod_resource(name)]
        case "services":
            return [name for name in names if name in _SERVICE_RESOURCES]
        case "persistentvolumeclaims":
            by_class = tuple(f"{_STORAGE_CLASS_SUFFIX}{name}" for name in _CLAIM_RESOURCES)
            return [name for name in names if name in (f"count/{kind}", *_CLAIM_RESOURCES) or name.endswith(by_class)]
        case "resourceclaims.resource.k8s.io":
            return [
                name
                for name in names
                if name == f"count/{kind}" or name.endswith(_DEVICE_CLASS_SUFFIX) or _is_device_resource(name, devices)
            ]
    return [name for name in names if name == f"count/{kind}" or (name == kind and kind in BY_PLURAL)]


def _is_device_resource(name: str, devices: DeviceQuota | None) -> bool:
    resource = name.removeprefix("requests.")
    if resource == name or not _is_extended_resource(resource):
        return False
    if devices is None or resource in devices.resources.values():
        return True
    return resource.removeprefix(_DEVICE_CLASS_RESOURCE) in devices.resources and resource.startswith(
        _DEVICE_CLASS_RESOURCE
    )


def _is_pod_resource(name: str) -> bool:
    if name.startswith(("hugepages-", "requests.hugepages-")):
        return True
    return name.startswith("requests.") and _is_extended_resource(name.removeprefix("requests."))


def matches_scopes(spec: JSON, kind: str, obj: JSON) -> bool:
    """Return True if the scopes of a quota's spec include the object.

    Scopes select pods, and PersistentVolumeClaims by their VolumeAttributesClass.
    """
    requirements = [{"scopeName": scope, "operator": "Exists"} for scope in spec.get("scopes") or ()]
    requirements += (spec.get("scopeSelector") or {}).get("matchExpressions") or ()
    match kind:
        case "pods":
            return all(_pod_in_scope(requirement, obj) for requirement in requirements)
        case "persistentvolumeclaims":
            return all(_claim_in_scope(requirement, obj) for requirement in requirements)
    return not requirements


def _claim_in_scope(requirement: JSON, claim: JSON) -> bool:
    if requirement["scopeName"] != "VolumeAttributesClass":
        return False
    return any(_selects(requirement, name) for name in volume_attributes_classes(claim) or {""})


def volume_attributes_classes(claim: JSON) -> set[str]:
    """Return the VolumeAttributesClasses of a claim: in the spec, current, and target of a modification."""
    status = claim.get("status", {})
    names = {
        claim["spec"].get("volumeAttributesClassName") or "",
        status.get("currentVolumeAttributesClassName") or "",
        (status.get("modifyVolumeStatus") or {}).get("targetVolumeAttributesClassName") or "",
    }
    return names - {""}


def is_terminating(pod: JSON) -> bool:
    """Return True if the pod has an active deadline, as the scope Terminating requires."""
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
            return _uses_other_namespaces(spec.get("affinity") or {})
    return False


def _is_best_effort(pod: JSON) -> bool:
    return (pod.get("status", {}).get("qosClass") or qos_class(pod["spec"])) == "BestEffort"


def _selects(requirement: JSON, name: str) -> bool:
    """Return True if a scope requirement selects this value; "" means that there is none."""
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


def _uses_other_namespaces(affinity: JSON) -> bool:
    terms: list[JSON] = []
    for kind in ("podAffinity", "podAntiAffinity"):
        pods = affinity.get(kind) or {}
        terms += pods.get("requiredDuringSchedulingIgnoredDuringExecution", ())
        preferred = pods.get("preferredDuringSchedulingIgnoredDuringExecution", ())
        terms += [term.get("podAffinityTerm", {}) for term in preferred]
    return any(bool(term.get("namespaces")) or term.get("namespaceSelector") is not None for term in terms)
