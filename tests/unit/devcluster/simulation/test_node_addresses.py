"""Node addresses and podCIDRs: no overlap, reuse after release, foreign networks."""

from __future__ import annotations

import ipaddress
import itertools
from typing import Any

import pytest

from kubeloop.devcluster.simulation.node_addresses import NodeAddresses, host_ip, pod_cidr


def test_pod_cidr_has_at_least_twice_as_many_addresses_as_pods():
    assert pod_cidr(0, 110) == "10.128.0.0/24"
    assert pod_cidr(1, 110) == "10.128.1.0/24"
    assert pod_cidr(1, 250) == "10.128.2.0/23"
    assert pod_cidr(1, 10**12) == "10.128.0.0/9"


def node_with_addresses(host: str, cidr: str) -> dict[str, Any]:
    return {"spec": {"podCIDR": cidr}, "status": {"addresses": [{"type": "InternalIP", "address": host}]}}


def test_assigned_addresses_are_unique_until_released():
    addresses = NodeAddresses()
    nodes = []
    for index, pods in ((0, 110), (0, 110), (1, 110), (0, 500), (2, 110), (4, 110)):
        node = node_with_addresses(addresses.host_ip(index), addresses.pod_cidr(index, pods))
        addresses.take(node)
        nodes.append(node)
    networks = [ipaddress.IPv4Network(node["spec"]["podCIDR"]) for node in nodes]
    assert [network.prefixlen for network in networks] == [24, 24, 24, 22, 24, 24]
    assert not any(network.overlaps(other) for network, other in itertools.combinations(networks, 2))
    assert len({node["status"]["addresses"][0]["address"] for node in nodes}) == 6
    addresses.release(nodes[3])
    assert addresses.pod_cidr(1, 500) == nodes[3]["spec"]["podCIDR"]
    assert addresses.host_ip(3) == nodes[3]["status"]["addresses"][0]["address"]


@pytest.mark.parametrize("cidr", ["", "none", "fd00::/64", "192.168.0.0/24", "0.0.0.0/0"])
def test_foreign_pod_cidr_does_not_change_assigned_one(cidr):
    addresses = NodeAddresses()
    addresses.take(node_with_addresses("192.168.1.1", cidr))
    assert addresses.pod_cidr(3, 110) == pod_cidr(3, 110)  # 0.0.0.0/0 takes all: they are assigned again
    assert addresses.host_ip(3) == host_ip(3)
