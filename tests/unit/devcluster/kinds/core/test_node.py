"""Validation of Nodes."""

from __future__ import annotations

import pytest

from kubeloop.devcluster.kinds.core.node import validate_node, validate_node_status_update
from kubeloop.kube.json_object import JSON
from kubeloop.kube.objects.resources import NODES
from support.objects.validation_causes import create_causes, update_causes, validator_causes


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


@pytest.mark.parametrize(
    ("fields", "causes"),
    [
        pytest.param({"spec": {"podCIDRs": ["10.0.0.0/24", "fd00::/64"]}}, [], id="dual stack"),
        pytest.param(
            {"spec": {"taints": [{"key": "a", "value": "b", "effect": "Evict"}]}},
            [
                'metadata.taints[0].effect: Unsupported value: "Evict": '
                'supported values: "NoSchedule", "PreferNoSchedule", "NoExecute"'
            ],
            id="unknown effect of a taint",
        ),
        pytest.param(
            {"spec": {"taints": [{"key": "a"}]}},
            ["metadata.taints[0].effect: Required value"],
            id="taint without effect",
        ),
        pytest.param(
            {"status": {"capacity": {"pods": "1500m", "cpu": "-1"}}},
            [
                'status.capacity.cpu: Invalid value: "-1": must be greater than or equal to 0',
                'status.capacity.pods: Invalid value: "1500m": must be an integer',
            ],
            id="capacity",
        ),
        pytest.param(
            {"status": {"declaredFeatures": ["B", "A", "A"]}},
            [
                'status.declaredFeatures: Invalid value: ["B","A","A"]: list must be sorted in lexicographical order',
                'status.declaredFeatures[2]: Duplicate value: "A"',
            ],
            id="declared features out of order",
        ),
    ],
)
def test_node_causes(fields: JSON, causes: list[str]) -> None:
    assert validator_causes(validate_node, {"metadata": {}, **fields}) == causes


def test_node_addresses_are_unique() -> None:
    address = {"type": "InternalIP", "address": "10.0.0.1"}
    new, old = ({"metadata": {}, "status": {"addresses": addresses}} for addresses in ([address] * 2, [address]))
    assert validator_causes(validate_node_status_update, old, {"metadata": {}}) == []
    assert validator_causes(validate_node_status_update, new, old) == [
        'status.addresses[1]: Duplicate value: {"Type":"InternalIP","Address":"10.0.0.1"}'
    ]
