"""Addresses of simulated nodes, and the shares of the pod network that they give out.

Node by node in the order of their indexes; what another node has, whoever gave it, is passed over. The shares of two
nodes do not overlap, also if these take different numbers of pods.
"""

from __future__ import annotations

import ipaddress
from collections.abc import Iterator

from kubeloop.kube.json_object import JSON

_NODE_NETWORK = ipaddress.IPv4Network("172.16.0.0/12")
_POD_NETWORK = ipaddress.IPv4Network("10.128.0.0/9")
_BLOCK = 256  # addresses of the smallest share, a /24
_BLOCKS = _POD_NETWORK.num_addresses // _BLOCK
USUAL_PODS = 110
"""That a node takes which does not say how many."""


def host_ip(index: int) -> str:
    """The address of the index-th node."""
    return str(_NODE_NETWORK.network_address + 2 + index % (_NODE_NETWORK.num_addresses - 3))


def pod_cidr(index: int, pods: int) -> str:
    """The index-th node's share of the pod network: at least a /24, and twice as many addresses as it takes pods."""
    return _cidr(_share(index, pods))


class NodeAddresses:
    """What the nodes have, and what the next one may have.

    When all is taken, it is given out a second time: a cluster so large has other worries.
    """

    def __init__(self) -> None:
        self._hosts: set[str] = set()
        self._blocks: set[int] = set()  # /24s of the pod network, by number

    def take(self, node: JSON) -> None:
        """Note what `node` has."""
        self._hosts |= _hosts(node)
        self._blocks.update(_blocks(node))

    def release(self, node: JSON) -> None:
        """The node is gone."""
        self._hosts -= _hosts(node)
        self._blocks.difference_update(_blocks(node))

    def host_ip(self, index: int) -> str:
        """The index-th address, or the next that no node has."""
        candidates = (host_ip(index + further) for further in range(len(self._hosts) + 1))
        return next((each for each in candidates if each not in self._hosts), host_ip(index))

    def pod_cidr(self, index: int, pods: int) -> str:
        """The index-th share for so many pods, or the next of which no node has a part."""
        candidates = (_share(index + further, pods) for further in range(_BLOCKS))
        return _cidr(next((each for each in candidates if self._blocks.isdisjoint(each)), _share(index, pods)))


def _hosts(node: JSON) -> set[str]:
    addresses = (node.get("status") or {}).get("addresses") or ()
    return {each.get("address", "") for each in addresses if each.get("type") == "InternalIP"}


def _share(index: int, pods: int) -> range:
    """Of pod_cidr(), as numbers of blocks."""
    size = min(_BLOCKS, max(1, (1 << (max(pods, 1) * 2 - 1).bit_length()) // _BLOCK))
    start = index % (_BLOCKS // size) * size
    return range(start, start + size)


def _cidr(share: range) -> str:
    bits = (len(share) * _BLOCK).bit_length() - 1
    return f"{_POD_NETWORK.network_address + share.start * _BLOCK}/{32 - bits}"


def _blocks(node: JSON) -> Iterator[int]:
    """Those that its networks have a part of; none of a network that lies elsewhere or is of IPv6."""
    spec = node.get("spec") or {}
    for cidr in {spec.get("podCIDR", ""), *(spec.get("podCIDRs") or ())}:
        try:
            network = ipaddress.IPv4Network(cidr, strict=False)
        except ValueError:
            continue
        first = int(network.network_address) - int(_POD_NETWORK.network_address)
        yield from range(max(0, first // _BLOCK), min(_BLOCKS, (first + network.num_addresses - 1) // _BLOCK + 1))
