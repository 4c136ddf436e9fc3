"""Subsets of an Endpoints object, as JSON: addresses and ports of Pods, and their limit. Pure functions.

Source: pkg/controller/endpoint/endpoints_controller.go.
"""

from __future__ import annotations

import ipaddress
import math
from collections.abc import Iterable

import msgspec

from kubeloop.controllers.runtime.services.service_pods import (
    CLUSTER_IP_NONE,
    find_port,
    has_endpoint,
    published_hostname,
)
from kubeloop.controllers.runtime.services.subset_packing import AddressKey, ReadyByPort, pack_subsets
from kubeloop.kube.objects.api_types import JSONValue, Pod, Service
from kubeloop.kube.objects.object_fields import is_ready

MAX_ADDRESSES = 1000


def endpoint_subsets(service: Service, pods: Iterable[Pod]) -> list[JSONValue]:
    """Return the subsets of a Service: Pods with the same ports share one."""
    addresses: dict[AddressKey, JSONValue] = {}
    ready_by_port: ReadyByPort = {}
    early = service.spec.publish_not_ready_addresses
    for pod in pods:
        if not has_endpoint(pod, include_terminating=early):
            continue
        address = _address(service, pod)
        if address is None:
            continue
        key = (address["ip"], pod.metadata.uid)
        addresses[key] = address
        for port in _ports(service, pod):
            ready_by_port.setdefault(port, {})[key] = early or is_ready(pod)
    return pack_subsets(addresses, ready_by_port)


def _address(service: Service, pod: Pod) -> JSONValue | None:
    """Return the Pod's address of the Service's first IP family, None without one."""
    families, cluster_ip = service.spec.ip_families, service.spec.cluster_ip
    if families:
        version = 6 if families[0] == "IPv6" else 4
    else:
        decisive = cluster_ip if cluster_ip not in ("", CLUSTER_IP_NONE) else pod.status.pod_ip
        version = 6 if ":" in decisive else 4
    ips = (ipaddress.ip_address(pod_ip.ip) for pod_ip in pod.status.pod_ips)
    ip = next((it for it in ips if it.version == version), None)
    if ip is None:
        return None
    metadata = pod.metadata
    target = {"kind": "Pod", "namespace": metadata.namespace, "name": metadata.name, "uid": metadata.uid}
    address: JSONValue = {"ip": str(ip), "nodeName": pod.spec.node_name, "targetRef": target}
    if hostname := published_hostname(pod, service):
        address["hostname"] = hostname
    return address


def _ports(service: Service, pod: Pod) -> Iterable[bytes]:
    """Yield the ports of a Pod as JSON; b"" for a headless Service without ports."""
    if not service.spec.ports and service.spec.cluster_ip == CLUSTER_IP_NONE:
        yield b""
    for port in service.spec.ports:
        number = find_port(pod, port)
        if number is not None:
            entry: JSONValue = {"port": number, "protocol": port.protocol}
            if port.name:
                entry["name"] = port.name
            if port.app_protocol is not None:
                entry["appProtocol"] = port.app_protocol
            yield msgspec.json.encode(entry, order="sorted")


def truncated(subsets: list[JSONValue]) -> list[JSONValue] | None:
    """Return subsets with at most 1000 addresses, ready ones first and in proportion; None if there are not more."""
    ready, not_ready = (address_count(subsets, name) for name in ("addresses", "notReadyAddresses"))
    if ready + not_ready <= MAX_ADDRESSES:
        return None
    name, total, room = "notReadyAddresses", not_ready, MAX_ADDRESSES - ready
    if ready > MAX_ADDRESSES:
        name, total, room = "addresses", ready, MAX_ADDRESSES
    free = room
    result = []
    for subset in subsets:
        listed = subset.get(name) or []
        count = min(free, math.ceil(len(listed) / total * room))
        truncated = {**subset, name: listed[:count]}
        free -= len(truncated[name])
        if name == "addresses":
            truncated.pop("notReadyAddresses", None)
        result.append({field: value for field, value in truncated.items() if value})
    return result


def address_count(subsets: Iterable[JSONValue], *names: str) -> int:
    return sum(len(subset.get(name) or ()) for subset in subsets for name in names)
