"""Validation of Nodes."""

from __future__ import annotations

from kubeloop.kube.objects.resources import NODES
from support.validation_causes import create_causes, update_causes


def test_node_pod_cidr_and_provider_are_immutable():
    old, new = (
        {"metadata": {"name": "a"}, "spec": {"podCIDR": cidr, "podCIDRs": [cidr], "providerID": provider}}
        for cidr, provider in (("10.0.0.0/24", "x"), ("10.0.1.0/24", "y"))
    )
    assert update_causes(NODES, old, new) == [
        'spec.podCIDRs: Forbidden: node updates may not change podCIDR except from "" to valid',
        'spec.providerID: Forbidden: node updates may not change providerID except from "" to valid',
    ]


def test_node_swap_and_pod_cidr_causes():
    swap = {"status": {"nodeInfo": {"swap": {"capacity": 0}}}, "spec": {"podCIDRs": ["10.0.0.0/24"] * 2}}
    assert create_causes(NODES, swap) == [
        "metadata.nodeSwapStatus.capacity: Invalid value: 0: must be greater than zero",
        'spec.podCIDRs: Invalid value: ["10.0.0.0/24","10.0.0.0/24"]: '
        "may specify no more than one CIDR for each IP family",
    ]
