"""Endpoints of Pods, as JSON: addresses, ports, conditions. Pure functions.

Source: staging/src/k8s.io/endpointslice/utils.go, util/controller_utils.go.
"""

from __future__ import annotations

import ipaddress
from collections.abc import Callable, Iterable
from functools import lru_cache

import msgspec

from kubeloop.controllers.runtime.services.endpoint_slices import EndpointKey, endpoint_key, port_key, sorted_ports
from kubeloop.controllers.runtime.services.service_pods import (
    CLUSTER_IP_NONE,
    find_port,
    has_endpoint,
    published_hostname,
)
from kubeloop.kube.objects.api_types import JSONValue, Node, Pod, Service
from kubeloop.kube.objects.object_fields import is_ready

ZONE = "topology.kubernetes.io/zone"


class PortGroup(msgspec.Struct):
    """Endpoints with the same ports, which share EndpointSlices."""

    ports: list[JSONValue]
    endpoints: dict[EndpointKey, JSONValue] = {}


class DesiredEndpoints(msgspec.Struct):
    """Endpoints of a Service and an address type.

    groups: by the JSON of their ports. missing_nodes: (Pod, node) of Pods without an endpoint, because their node does
    not exist.
    """

    groups: dict[bytes, PortGroup]
    missing_nodes: list[tuple[str, str]]


def address_types(service: Service) -> tuple[str, ...]:
    """Return the address types of a Service's EndpointSlices, IPv4 before IPv6."""
    families = service.spec.ip_families
    if not families:
        cluster_ip = service.spec.cluster_ip
        if not cluster_ip or cluster_ip == CLUSTER_IP_NONE:
            return "IPv4", "IPv6"  # a headless Service of an API server without dual stack
        families = ("IPv6" if ":" in cluster_ip else "IPv4",)
    return tuple(family for family in ("IPv4", "IPv6") if family in families)


def desired_endpoints(
    service: Service, pods: Iterable[Pod], node_of: Callable[[str], Node | None], address_type: str
) -> DesiredEndpoints:
    """Return the endpoints of all Pods with addresses, those that terminate or are not ready included."""
    desired = DesiredEndpoints({}, [])
    for pod in pods:
        if not has_endpoint(pod, include_terminating=True):
            continue
        ports = endpoint_ports(service, pod)
        group = desired.groups.setdefault(port_key(ports), PortGroup(ports))
        node = node_of(pod.spec.node_name)
        if node is None and not service.spec.publish_not_ready_addresses:
            desired.missing_nodes.append((pod.metadata.name, pod.spec.node_name))
            continue
        endpoint = pod_endpoint(service, pod, node, address_type)
        if endpoint["addresses"]:
            group.endpoints[endpoint_key(endpoint)] = endpoint
    return desired


def pod_endpoint(service: Service, pod: Pod, node: Node | None, address_type: str) -> JSONValue:
    """Return the endpoint of a Pod; without addresses if it has none of the type."""
    serving = is_ready(pod)
    terminating = pod.metadata.deletion_timestamp is not None
    endpoint: JSONValue = {
        "addresses": [
            address for pod_ip in pod.status.pod_ips if (address := _canonical(pod_ip.ip, address_type)) is not None
        ],
        "conditions": {
            "ready": service.spec.publish_not_ready_addresses or (serving and not terminating),
            "serving": serving,
            "terminating": terminating,
        },
        "targetRef": {
            "kind": "Pod",
            "namespace": pod.metadata.namespace,
            "name": pod.metadata.name,
            "uid": pod.metadata.uid,
        },
    }
    if pod.spec.node_name:
        endpoint["nodeName"] = pod.spec.node_name
    if node is not None and (zone := node.metadata.labels.get(ZONE)):
        endpoint["zone"] = zone
    if hostname := published_hostname(pod, service):
        endpoint["hostname"] = hostname
    return endpoint


@lru_cache(maxsize=65536)
def _canonical(text: str, address_type: str) -> str | None:
    """Return an address in its canonical form, None if it is not of the type."""
    address = ipaddress.ip_address(text)
    return str(address) if f"IPv{address.version}" == address_type else None


def endpoint_ports(service: Service, pod: Pod) -> list[JSONValue]:
    """Return the ports of a Pod's endpoint, in the order in which kube-controller-manager writes them."""
    ports = []
    for port in service.spec.ports:
        number = find_port(pod, port)
        if number is not None:
            entry: JSONValue = {"name": port.name, "protocol": port.protocol, "port": number}
            if port.app_protocol is not None:
                entry["appProtocol"] = port.app_protocol
            ports.append(entry)
    return sorted_ports(ports)
