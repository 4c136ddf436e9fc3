"""Dependent fields of Services."""

from __future__ import annotations

from typing import Any

import pytest

from kubeloop.devcluster.registry.service_fields import (
    drop_internal_traffic_policy,
    drop_type_dependent_fields,
    needs_cluster_ip,
    needs_node_ports,
    prepare_addresses_for_create,
    prepare_addresses_for_update,
)
from support.validation_causes import cause_texts

JSON = dict[str, Any]
SINGLE: JSON = {"ipFamilyPolicy": "SingleStack", "ipFamilies": ["IPv4"]}
DUAL_HEADLESS: JSON = {"ipFamilyPolicy": "RequireDualStack", "ipFamilies": ["IPv4", "IPv6"], "clusterIPs": ["None"]}


@pytest.mark.parametrize(
    ("spec", "completed"),
    [
        pytest.param({}, SINGLE, id="single stack by default"),
        pytest.param({"clusterIP": "10.0.0.7"}, {**SINGLE, "clusterIPs": ["10.0.0.7"]}, id="clusterIP sets clusterIPs"),
        pytest.param({"ipFamilyPolicy": "PreferDualStack"}, {"ipFamilies": ["IPv4"]}, id="dual stack if available"),
        pytest.param({"clusterIP": "None"}, DUAL_HEADLESS, id="headless without a selector"),
        pytest.param({"type": "ExternalName"}, {}, id="external name"),
    ],
)
def test_address_fields_of_a_new_service_are_completed(spec: JSON, completed: JSON):
    expected = {**spec, **completed}
    assert (prepare_addresses_for_create(spec), spec) == ([], expected)


@pytest.mark.parametrize(
    ("spec", "causes"),
    [
        pytest.param(
            {"ipFamilyPolicy": "RequireDualStack"},
            [
                'spec.ipFamilyPolicy: Invalid value: "RequireDualStack": this cluster is not configured for '
                "dual-stack services"
            ],
            id="dual stack",
        ),
        pytest.param(
            {"ipFamilies": ["IPv6"]},
            ['spec.ipFamilies[0]: Invalid value: "IPv6": not configured on this cluster'],
            id="other family",
        ),
    ],
)
def test_addresses_that_the_cluster_lacks_are_invalid(spec: JSON, causes: list[str]):
    assert cause_texts(prepare_addresses_for_create(spec)) == causes


@pytest.mark.parametrize(
    ("spec", "before", "completed"),
    [
        pytest.param(
            {}, {**SINGLE, "clusterIP": "10.0.0.7", "clusterIPs": ["10.0.0.7"]},
            {"clusterIP": "10.0.0.7", "clusterIPs": ["10.0.0.7"], "ipFamilyPolicy": "SingleStack",
             "ipFamilies": ["IPv4"]},
            id="absent addresses are retained",
        ),
        pytest.param(
            {"type": "NodePort", "ports": [{"name": "a", "port": 80}]},
            {**SINGLE, "type": "NodePort", "ports": [{"name": "a", "port": 80, "nodePort": 30080}]},
            {**SINGLE, "type": "NodePort", "ports": [{"name": "a", "port": 80, "nodePort": 30080}]},
            id="node ports are retained by name",
        ),
    ],
)  # fmt: skip
def test_update_retains_allocated_values(spec: JSON, before: JSON, completed: JSON):
    assert (prepare_addresses_for_update(spec, before), spec) == ([], completed)


@pytest.mark.parametrize(
    ("spec", "cluster_ip", "ports"),
    [
        ({"type": "ClusterIP"}, True, False),
        ({"type": "NodePort"}, True, True),
        ({"type": "LoadBalancer"}, True, True),
        ({"type": "LoadBalancer", "allocateLoadBalancerNodePorts": False}, True, False),
        ({"type": "ExternalName"}, False, False),
    ],
)
def test_allocations_of_a_type(spec: JSON, cluster_ip: bool, ports: bool):
    assert (needs_cluster_ip(spec), needs_node_ports(spec)) == (cluster_ip, ports)


@pytest.mark.parametrize(
    ("spec", "before", "remaining"),
    [
        pytest.param(
            {"type": "ExternalName", "clusterIP": "10.0.0.7", "clusterIPs": ["10.0.0.7"]},
            {"type": "ClusterIP", "clusterIP": "10.0.0.7", "clusterIPs": ["10.0.0.7"]},
            {"type": "ExternalName"},
            id="addresses",
        ),
        pytest.param(
            {"type": "ClusterIP", "ports": [{"port": 80, "nodePort": 30080}]},
            {"type": "NodePort", "ports": [{"port": 80, "nodePort": 30080}]},
            {"type": "ClusterIP", "ports": [{"port": 80}]},
            id="unchanged node ports",
        ),
        pytest.param(
            {"type": "ClusterIP", "ports": [{"port": 80, "nodePort": 30081}]},
            {"type": "NodePort", "ports": [{"port": 80, "nodePort": 30080}]},
            {"type": "ClusterIP", "ports": [{"port": 80, "nodePort": 30081}]},
            id="changed node ports remain",
        ),
        pytest.param(
            {"type": "NodePort", "loadBalancerClass": "x", "allocateLoadBalancerNodePorts": True},
            {"type": "LoadBalancer", "loadBalancerClass": "x", "allocateLoadBalancerNodePorts": True},
            {"type": "NodePort"},
            id="load balancer",
        ),
    ],
)
def test_fields_of_the_old_type_are_dropped(spec: JSON, before: JSON, remaining: JSON):
    service: JSON = {"spec": spec, "status": {"loadBalancer": {"ingress": [{"ip": "1.2.3.4"}]}}}
    drop_type_dependent_fields(service, {"spec": before})
    assert service == {"spec": remaining, "status": {"loadBalancer": {}}}


@pytest.mark.parametrize(("type_", "is_dropped"), [("ExternalName", True), ("ClusterIP", False)])
def test_internal_traffic_policy_of_an_external_name_is_dropped(type_: str, is_dropped: bool):
    spec = {"type": type_, "internalTrafficPolicy": "Cluster"}
    drop_internal_traffic_policy(spec)
    assert ("internalTrafficPolicy" not in spec) is is_dropped
