"""Subsets of an Endpoints object, as JSON: addresses and ports of Pods, repacked and truncated. Pure functions.

Source: pkg/controller/endpoint/endpoints_controller.go, pkg/api/v1/endpoints/util.go.
"""

from __future__ import annotations

import ipaddress
import math
from collections.abc import Iterable

import msgspec

from kubeloop.controllers.runtime.name_hash import fnv1a_128
from kubeloop.controllers.runtime.service_pods import CLUSTER_IP_NONE, find_port, has_endpoint, published_hostname
from kubeloop.kube.objects.api_types import JSONValue, Pod, Service
from kubeloop.kube.objects.object_fields import is_ready

MAX_ADDRESSES = 1000

_Key = tuple[str, str]  # IP and UID of the Pod
_ReadyByPort = dict[bytes, dict[_Key, bool]]


def endpoint_subsets(service: Service, pods: Iterable[Pod]) -> list[JSONValue]:
    """Return the subsets of a Service: Pods with the same ports share one."""
    addresses: dict[_Key, JSONValue] = {}
    ready_by_port: _ReadyByPort = {}
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
    return _packed(addresses, ready_by_port)


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


def canonical(subsets: Iterable[JSONValue]) -> list[JSONValue]:
    """Return subsets in the form that endpoint_subsets() returns, to compare them."""
    addresses: dict[_Key, JSONValue] = {}
    ready_by_port: _ReadyByPort = {}
    for subset in subsets:
        for name in ("addresses", "notReadyAddresses"):
            for address in subset.get(name) or ():
                key = (address["ip"], (address.get("targetRef") or {}).get("uid", ""))
                addresses[key] = address
                for port in subset.get("ports") or (None,):
                    encoded = msgspec.json.encode(port, order="sorted") if port is not None else b""
                    ready = ready_by_port.setdefault(encoded, {})
                    ready[key] = ready.get(key, True) and name == "addresses"
    return _packed(addresses, ready_by_port)


def _packed(addresses: dict[_Key, JSONValue], ready_by_port: _ReadyByPort) -> list[JSONValue]:
    ports_by_addresses: dict[tuple[tuple[_Key, bool], ...], list[bytes]] = {}
    for port, ready in ready_by_port.items():
        ports_by_addresses.setdefault(tuple(sorted(ready.items())), []).append(port)
    subsets = []
    for members, encoded in sorted(ports_by_addresses.items(), key=lambda item: sorted(item[1])):
        subset: JSONValue = {}
        for name, is_listed in (("addresses", True), ("notReadyAddresses", False)):
            listed = [addresses[key] for key, is_ready_ in members if is_ready_ is is_listed]
            if listed:
                subset[name] = listed
        ports = [msgspec.json.decode(port) for port in encoded if port]
        if ports:
            subset["ports"] = sorted(ports, key=_port_hash)
        subsets.append(subset)
    return subsets


def _port_hash(port: JSONValue) -> int:
    """Return the hash by which kube-controller-manager sorts ports."""
    text = (
        f"(v1.EndpointPort){{Name:(string){port.get('name', '')} Port:(int32){port['port']}"
        f" Protocol:(v1.Protocol){port['protocol']} AppProtocol:(*string){port.get('appProtocol', '<nil>')}}}"
    )
    return fnv1a_128(text.encode())


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
