"""Which ServiceCIDRs an address or another range belongs to, and whether one can be deleted. Pure functions of JSON.

Source: v1.36 pkg/controller/servicecidrs/servicecidrs_controller.go, pkg/api/servicecidr/servicecidr.go.
"""

from __future__ import annotations

from collections.abc import Iterable
from ipaddress import IPv4Network, IPv6Address, IPv6Network, ip_address, ip_network

from kubeloop.kube.objects.api_types import JSONValue

_MANAGED_BY, _ALLOCATOR = "ipaddress.kubernetes.io/managed-by", "ipallocator.k8s.io"

_Network = IPv4Network | IPv6Network


def networks_of(service_cidr: JSONValue) -> list[_Network]:
    """Return the ranges of a ServiceCIDR."""
    return [ip_network(cidr) for cidr in service_cidr["spec"].get("cidrs") or ()]


def is_allocated(ip_address_object: JSONValue) -> bool:
    """Return True for an IPAddress that the API server allocated."""
    return bool((ip_address_object["metadata"].get("labels") or {}).get(_MANAGED_BY) == _ALLOCATOR)


def overlapping(service_cidr: JSONValue, service_cidrs: Iterable[JSONValue]) -> set[str]:
    """Return the names of ServiceCIDRs that share addresses with this one."""
    networks = networks_of(service_cidr)
    return {
        other["metadata"]["name"]
        for other in service_cidrs
        for network in networks_of(other)
        if any(network.version == own.version and network.overlaps(own) for own in networks)
    }


def containing_address(name: str, service_cidrs: Iterable[JSONValue]) -> set[str]:
    """Return the names of ServiceCIDRs from which the address of the IPAddress `name` can be allocated."""
    address = ip_address(name)
    return {
        service_cidr["metadata"]["name"]
        for service_cidr in service_cidrs
        for network in networks_of(service_cidr)
        if address in network
        and address != network.network_address
        and (isinstance(address, IPv6Address) or address != network.broadcast_address)
    }


def can_delete(service_cidr: JSONValue, service_cidrs: list[JSONValue], addresses: Iterable[JSONValue]) -> bool:
    """Return True if each address that was allocated from a ServiceCIDR belongs to another one, too.

    service_cidrs: all, those in deletion included. addresses: all IPAddresses.
    """
    name = service_cidr["metadata"]["name"]
    if all(_containing_network(network, service_cidrs) - {name} for network in networks_of(service_cidr)):
        return True
    return not any(
        is_allocated(address) and containing_address(address["metadata"]["name"], service_cidrs) == {name}
        for address in addresses
    )


def _containing_network(network: _Network, service_cidrs: Iterable[JSONValue]) -> set[str]:
    return {
        other["metadata"]["name"]
        for other in service_cidrs
        for candidate in networks_of(other)
        if candidate.version == network.version
        and candidate.overlaps(network)
        and candidate.prefixlen <= network.prefixlen
    }
