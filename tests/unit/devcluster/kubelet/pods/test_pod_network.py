"""Addresses of the pods of a node."""

from __future__ import annotations

import pytest

from kubeloop.devcluster.kubelet.pods.pod_network import PodNetwork


def test_addresses_are_unique_and_reused_after_release():
    network = PodNetwork("10.128.3.0/29", 0)  # addresses 2 to 6 are for pods
    assert [network.next_address() for _ in range(5)] == [f"10.128.3.{number}" for number in (2, 3, 4, 5, 6)]
    network.release("10.128.3.3")
    assert network.next_address() == "10.128.3.3"


def test_taken_address_is_not_assigned_again():
    network = PodNetwork("10.128.3.0/24", 0)
    network.take("10.128.3.2")
    network.take("fd00::7")
    assert network.next_address() == "10.128.3.3"


@pytest.mark.parametrize("cidr", ["fd00::/64", "10.0.0.0/31"])
def test_unusable_pod_cidr_is_replaced_by_default(cidr):
    assert PodNetwork(cidr, 0).next_address() == "10.128.0.2"
