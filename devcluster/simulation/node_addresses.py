"""Addresses of simulated nodes, and their podCIDRs.

Assigned by node index; addresses of other nodes are skipped. podCIDRs do not overlap, also if nodes take different
numbers of pods.
"""

from __future__ import annotations

import ipaddress
from collections.abc import Iterator

from kubeloop.kube.json_object import JSON

_NODE_NETWORK = ipaddress.IPv4Network("172.16.0.0/12")
_POD_NETWORK = ipaddress.IPv4Network("10.128.0.0/9")
_BLOCK = 256  # addresses of the smallest podCIDR, a /24
_BLOCKS = _POD_NETWORK.num_addresses // _BLOCK
DEFAULT_MAX_PODS = 110
"""Default number of pods of a node."""


def host_ip(index: int) -> str:
    """Return the address of the index-th node."""
    return str(_NODE_NETWORK.network_address + 2 + index % (_NODE_NETWORK.num_addresses - 3))


def pod_cidr(index: int, pods: int) -> str:
    """Return the index-th podCIDR: at least a /24, with at least twice as many addresses as pods."""
    return _cidr(_share(index, pods))


class NodeAddresses:
    """Addresses in use, and the choice of free ones.

    When all are in use they are assigned again.
    """

    def __init__(self) -> None:
        self._hosts: set[str] = set()
        self._blocks: set[int] = set()  # /24s of the pod network, by number

    def take(self, node: JSON) -> None:
        """Reserve the addresses of `node`."""
        self._hosts |= _hosts(node)
        self._blocks.update(_blocks(node))

    def release(self, node: JSON) -> None:
        """Release the addresses of a deleted node."""
        self._hosts -= _hosts(node)
        self._blocks.difference_update(_blocks(node))

    def host_ip(self, index: int) -> str:
        """Return the index-th address, or the next free one."""
        candidates = (host_ip(index + further) for further in range(len(self._hosts) + 1))
        return next((address for address in candidates if address not in self._hosts), host_ip(index))

    def pod_cidr(self, index: int, pods: int) -> str:
        """Return the index-th podCIDR for this number of pods, or the next free one."""
        first = _share(index, pods)
        further = range(_BLOCKS) if len(self._blocks) + len(first) <= _BLOCKS else range(0)
        candidates = (_share(index + number, pods) for number in further)
        return _cidr(next((share for share in candidates if self._blocks.isdisjoint(share)), first))


def _hosts(node: JSON) -> set[str]:
    addresses = (node.get("status") or {}).get("addresses") or ()
    return {address.get("address", "") for address in addresses if address.get("type") == "InternalIP"}


def _share(index: int, pods: int) -> range:
    """Return the block numbers of pod_cidr()."""
    size = min(_BLOCKS, max(1, (1 << (max(pods, 1) * 2 - 1).bit_length()) // _BLOCK))
    start = index % (_BLOCKS // size) * size
    return range(start, start + size)


def _cidr(share: range) -> str:
    bits = (len(share) * _BLOCK).bit_length() - 1
    return f"{_POD_NETWORK.network_address + share.start * _BLOCK}/{32 - bits}"


def _blocks(node: JSON) -> Iterator[int]:
    """Return the block numbers that the node's podCIDRs overlap; none for other networks and IPv6."""
    spec = node.get("spec") or {}
    for cidr in {spec.get("podCIDR", ""), *(spec.get("podCIDRs") or ())}:
        try:
            network = ipaddress.IPv4Network(cidr, strict=False)
        except ValueError:
            continue
        first = int(network.network_address) - int(_POD_NETWORK.network_address)
        yield from range(max(0, first // _BLOCK), min(_BLOCKS, (first + network.num_addresses - 1) // _BLOCK + 1))
