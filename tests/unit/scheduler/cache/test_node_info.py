"""Sums of a node: requests, ports, claims and images."""

import pytest

from kubeloop.scheduler.cache.node_info import (
    NodeInfo,
    PodInfo,
    is_extended_resource,
    is_scalar_resource,
    may_be_devices,
    node_allocatable,
)
from support.plugin_cluster import make_node, make_pod


def test_adding_and_removing_a_pod_restores_the_sums():
    node = NodeInfo.of(make_node("a"))
    before = dict(node.requested)
    node.add_pod(PodInfo(make_pod("web", "a", cpu="500m", memory="1Gi")))
    assert node.requested["cpu"] == before.get("cpu", 0) + 500
    assert node.requested["memory"] == before.get("memory", 0) + 2**30
    node.remove_pod("web")
    assert {name: amount for name, amount in node.requested.items() if amount} == {
        name: amount for name, amount in before.items() if amount
    }


def test_clone_does_not_change_with_the_original():
    node = NodeInfo.of(make_node("a"))
    clone = node.clone()
    node.add_pod(PodInfo(make_pod("web", "a", cpu="1")))
    assert clone.requested != node.requested


def test_allocatable_is_in_milli_cpus_and_bytes():
    amounts = node_allocatable(make_node("a", allocatable={"cpu": "2", "memory": "1Gi", "example.com/gpu": "3"}))
    assert amounts["cpu"] == 2000
    assert amounts["memory"] == 2**30
    assert amounts["example.com/gpu"] == 3


@pytest.mark.parametrize(
    ("name", "expected"),
    [("example.com/gpu", True), ("hugepages-2Mi", True), ("cpu", False), ("memory", False), ("pods", False)],
)
def test_scalar_resources_are_extended_resources_and_huge_pages(name, expected):
    assert is_scalar_resource(name) is expected


@pytest.mark.parametrize(
    ("name", "extended", "devices"),
    [
        ("example.com/gpu", True, True),
        ("deviceclass.resource.kubernetes.io/gpu", False, True),
        ("kubernetes.io/x", False, False),
        ("requests.example.com/gpu", False, False),
        ("cpu", False, False),
        ("hugepages-2Mi", False, False),
    ],
)
def test_extended_resources_may_be_devices(name, extended, devices):
    assert (is_extended_resource(name), may_be_devices(name)) == (extended, devices)
