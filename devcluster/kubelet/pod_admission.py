"""Pod admission of the kubelet: resources, node affinity and host ports, checked again after the scheduler.

Pure functions on plain JSON. Resource amounts are integers: cpu in millicores, everything else in units (bytes, pods).
Source: pkg/kubelet/lifecycle/predicate.go and component-helpers' resource.PodRequests.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import msgspec

from kubeloop.kube import quantities
from kubeloop.kube.json_object import JSON
from kubeloop.kube.node_selectors import RequiredNodeAffinity
from kubeloop.kube.objects import api_types
from kubeloop.kube.objects.pod_resources import pod_requests

Amounts = dict[str, int]
HostPort = tuple[str, str, int]  # protocol, address ("0.0.0.0": all addresses), port


class AdmissionRejection(msgspec.Struct, frozen=True):
    """Reason and message with which a node rejects a pod; status.reason and status.message of the failed pod."""

    reason: str
    message: str


def amount(resource: str, value: str | float) -> int:
    return quantities.milli_value(value) if resource == "cpu" else quantities.value(value)


def amounts(resources: Mapping[str, Any] | None) -> Amounts:
    """Return a ResourceList as integers."""
    return {name: amount(name, value) for name, value in (resources or {}).items()}


def requested_amounts(pod: JSON) -> Amounts:
    """Return the requests of the pod as integers, including one of "pods".

    Without the extended resources of containers for which the scheduler has allocated devices, and with what the pod's
    claims take of the node's resources.
    """
    spec, status = pod["spec"], pod.get("status") or {}
    special = status.get("extendedResourceClaimStatus")
    if special:
        spec = _without_devices(spec, special["requestMappings"])
    requested = {**amounts(pod_requests(spec)), "pods": 1}
    pod_level = (spec.get("resources") or {}).get("requests") or {}
    for claim in status.get("nodeAllocatableResourceClaimStatuses") or ():
        for name, value in amounts(claim["resources"]).items():
            if name not in pod_level:
                requested[name] = requested.get(name, 0) + value
    return requested


def _without_devices(spec: JSON, mappings: Iterable[JSON]) -> JSON:
    allocated = {(mapping["containerName"], mapping["resourceName"]) for mapping in mappings}
    changed = {
        field: [
            {
                **container,
                "resources": {
                    "requests": {
                        name: quantity
                        for name, quantity in ((container.get("resources") or {}).get("requests") or {}).items()
                        if (container["name"], name) not in allocated
                    }
                },
            }
            for container in spec.get(field) or ()
        ]
        for field in ("containers", "initContainers")
    }
    return {**spec, **changed}


def host_ports(pod: JSON) -> list[HostPort]:
    """Return the host ports of the pod's containers."""
    spec = pod["spec"]
    running = [*(spec.get("containers") or ())]
    running += [
        container for container in spec.get("initContainers") or () if container.get("restartPolicy") == "Always"
    ]
    return [
        (port.get("protocol") or "TCP", port.get("hostIP") or "0.0.0.0", port["hostPort"])
        for container in running
        for port in container.get("ports") or ()
        if port.get("hostPort")
    ]


def ports_conflict(requested: Iterable[HostPort], used: Iterable[HostPort]) -> bool:
    """Return True if a requested port is used: same protocol, port and address, or one of them at all addresses."""
    taken: dict[tuple[str, int], set[str]] = {}
    for protocol, address, port in used:
        taken.setdefault((protocol, port), set()).add(address)
    for protocol, address, port in requested:
        addresses = taken.get((protocol, port))
        if addresses and (address == "0.0.0.0" or address in addresses or "0.0.0.0" in addresses):
            return True
    return False


def fits_node_affinity(pod: JSON, node: JSON) -> bool:
    """Return True if the node matches the pod's nodeSelector and required node affinity."""
    spec = pod["spec"]
    selector, affinity = spec.get("nodeSelector") or {}, (spec.get("affinity") or {}).get("nodeAffinity")
    if not selector and not affinity:
        return True
    typed = api_types.convert(api_types.Affinity, {"nodeAffinity": affinity or {}})
    metadata = node["metadata"]
    return RequiredNodeAffinity(selector, typed).matches(metadata["name"], metadata.get("labels") or {})


def rejection(
    pod: JSON,
    node: JSON,
    requested: Mapping[str, int],
    *,
    used: Mapping[str, int],
    allocatable: Mapping[str, int],
    used_ports: Iterable[HostPort],
) -> AdmissionRejection | None:
    """Return why `node` must reject `pod`, None if it admits it. `used` and `used_ports` are those of its other pods.

    Extended resources that the node does not have are ignored.
    """
    first = ("pods", "cpu", "memory", "ephemeral-storage")
    for name in (*first, *(name for name in requested if name not in first)):
        requested_amount = requested.get(name, 0)
        if not requested_amount or ("/" in name and name not in allocatable):
            continue
        free = allocatable.get(name, 0) - used.get(name, 0)
        if requested_amount > free:
            return AdmissionRejection(
                f"OutOf{name}",
                f"Node didn't have enough resource: {name}, requested: {requested_amount}, used: {used.get(name, 0)}, "
                f"capacity: {allocatable.get(name, 0)}",
            )
    if not fits_node_affinity(pod, node):
        return AdmissionRejection(
            "NodeAffinity", "Predicate NodeAffinity failed: node(s) didn't match Pod's node affinity/selector"
        )
    if ports_conflict(host_ports(pod), used_ports):
        text = "node(s) didn't have free ports for the requested pod ports"
        return AdmissionRejection("NodePorts", f"Predicate NodePorts failed: {text}")
    return None
