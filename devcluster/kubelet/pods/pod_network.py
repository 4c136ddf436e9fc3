"""Addresses of the pods of one node."""

from __future__ import annotations

import ipaddress

from kubeloop.devcluster.simulation.node_addresses import DEFAULT_MAX_PODS, pod_cidr


class PodNetwork:
    """Pod network of a node; an unusable CIDR (IPv6, too small) is replaced by the default of the node's index."""

    def __init__(self, cidr: str, index: int) -> None:
        self._network = _network(cidr, index)
        self._used: set[int] = set()  # offsets in the network
        self._last = 1

    def next_address(self) -> str:
        """Take the next free address and return it."""
        size = self._network.num_addresses
        for _ in range(size):
            self._last = self._last + 1 if self._last < size - 2 else 2
            if self._last not in self._used:
                break
        self._used.add(self._last)
        return str(self._network.network_address + self._last)

    def take(self, address: str) -> None:
        """Mark an address as used."""
        self._used.add(self._offset(address))

    def release(self, address: str) -> None:
        """Free the address of a deleted pod, if it belongs to the network."""
        self._used.discard(self._offset(address))

    def _offset(self, address: str) -> int:
        """Return an address' offset in the network; 0, which no pod has, for other networks."""
        try:
            number = int(ipaddress.IPv4Address(address)) - int(self._network.network_address)
        except ValueError:  # IPv6, or not an address
            return 0
        return number if 0 < number < self._network.num_addresses else 0


def _network(cidr: str, index: int) -> ipaddress.IPv4Network:
    try:
        network = ipaddress.IPv4Network(cidr, strict=False)
    except ValueError:
        network = None
    if network is None or network.num_addresses < 8:
        network = ipaddress.IPv4Network(pod_cidr(index, DEFAULT_MAX_PODS))
    return network
