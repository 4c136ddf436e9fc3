"""Simulated nodes: used resources and host ports."""

from __future__ import annotations

from kubeloop.devcluster.kubelet.pods.simulated_node import SimulatedNode
from support.simulation.simulated_pods import simulated_node, simulated_pod

HTTP = ("TCP", "0.0.0.0", 80)


def test_node_counts_requests_until_pod_ends():
    node = simulated_node(allocatable={"cpu": "4"})
    for name in ("a", "b"):
        simulated_pod(node, name=name).count_resources()
    assert node.used == {"cpu": 1000, "pods": 2}
    assert node.used_without("uid-a") == {"cpu": 500, "pods": 1}
    node.release("uid-a")
    node.release("uid-a")
    assert node.used == {"cpu": 500, "pods": 1}
    node.release("uid-b")
    assert node.used == {"cpu": 0, "pods": 0}


def test_recount_replaces_requests_but_not_ports_of_counted_pod():
    node = simulated_node()
    node.count("a", {"cpu": 500}, [HTTP])
    node.recount("a", {"cpu": 2000})
    node.recount("ended", {"cpu": 1})
    assert node.used == {"cpu": 2000}
    assert list(node.used_ports()) == [HTTP]


def test_used_ports_leave_out_one_pod():
    node = simulated_node()
    node.count("a", {}, [HTTP])
    assert list(node.used_ports(without="a")) == []
    node.release("a")
    assert list(node.used_ports()) == []


def test_refresh_applies_failure_addresses_and_allocatable():
    obj = {"metadata": {"name": "node-0", "uid": "n"}, "spec": {"podCIDR": "10.128.3.0/24"}}
    node = SimulatedNode(obj, 0)
    assert not node.is_unreachable
    metadata = {**obj["metadata"], "annotations": {"kubeloop.dev/fail": "unreachable"}}
    status = {"allocatable": {"cpu": "2"}, "addresses": [{"type": "InternalIP", "address": "192.168.0.9"}]}
    node.refresh({"metadata": metadata, "spec": {"unschedulable": True}, "status": status})
    assert (node.is_unreachable, node.unschedulable, node.host_ip) == (True, True, "192.168.0.9")
    assert node.allocatable == {"cpu": 2000}
