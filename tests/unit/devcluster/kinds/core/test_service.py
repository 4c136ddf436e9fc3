"""Validation of a Service."""

from __future__ import annotations

from typing import Any

import pytest

from kubeloop.devcluster.kinds.core.service import (
    address_field_errors,
    is_externally_accessible,
    is_headless,
    validate_reachable_ip,
    validate_service_status_update,
    validate_service_update,
)
from kubeloop.kube.objects.resources import SERVICES
from support.objects.validation_causes import cause_texts, create_causes, defaulted, validator_causes

JSON = dict[str, Any]


def service(**spec: Any) -> JSON:
    return {"spec": {"ports": [{"port": 80}], **spec}}


@pytest.mark.parametrize(
    ("body", "causes"),
    [
        pytest.param(service(), [], id="minimal service"),
        pytest.param(
            service(externalIPs=["127.0.0.1"]),
            [
                'spec.externalIPs[0]: Invalid value: "127.0.0.1": '
                "may not be in the loopback range (127.0.0.0/8, ::1/128)"
            ],
            id="loopback address as external IP",
        ),
        pytest.param(
            service(loadBalancerClass="x/y", allocateLoadBalancerNodePorts=True, loadBalancerSourceRanges=["1.2.3.4"]),
            [
                "spec.LoadBalancerSourceRanges: Forbidden: may only be used when `type` is 'LoadBalancer'",
                'spec.LoadBalancerSourceRanges[0]: Invalid value: "1.2.3.4": must be a valid CIDR value,',
                "spec.allocateLoadBalancerNodePorts: Forbidden: may only be used when `type` is 'LoadBalancer'",
                "spec.loadBalancerClass: Forbidden: may only be used when `type` is 'LoadBalancer'",
            ],
            id="load balancer fields of a ClusterIP service",
        ),
        pytest.param(
            service(trafficDistribution="Near"),
            [
                'spec.trafficDistribution: Unsupported value: "Near": '
                'supported values: "PreferClose", "PreferSameZone", "PreferSameNode"'
            ],
            id="unknown traffic distribution",
        ),
    ],
)
def test_causes_of_a_new_service(body: JSON, causes: list[str]):
    assert create_causes(SERVICES, body) == causes


@pytest.mark.parametrize(
    ("spec", "headless", "accessible"),
    [
        pytest.param({"type": "ClusterIP", "clusterIP": "None"}, True, False, id="headless"),
        pytest.param({"type": "ClusterIP", "clusterIPs": ["10.0.0.1"]}, False, False, id="cluster IP"),
        pytest.param({"type": "ClusterIP", "externalIPs": ["1.2.3.4"]}, False, True, id="external IP"),
        pytest.param({"type": "NodePort"}, False, True, id="node port"),
    ],
)
def test_headless_and_externally_accessible_services(spec: JSON, headless: bool, accessible: bool) -> None:
    assert (is_headless(spec), is_externally_accessible(spec)) == (headless, accessible)


@pytest.mark.parametrize(
    ("spec", "causes"),
    [
        pytest.param({"clusterIP": "10.0.0.1", "clusterIPs": ["10.0.0.1", "fd00::1"]}, [], id="dual stack"),
        pytest.param({"clusterIP": "10.0.0.1"}, ["spec.clusterIPs: Required value"], id="clusterIP alone"),
        pytest.param(
            {"clusterIP": "10.0.0.1", "clusterIPs": ["10.0.0.2"]},
            ['spec.clusterIPs: Invalid value: ["10.0.0.2"]: first value must match `clusterIP`'],
            id="other first address",
        ),
        pytest.param(
            {"clusterIP": "10.0.0.1", "clusterIPs": ["10.0.0.1", "10.0.0.2"]},
            [
                'spec.clusterIPs: Invalid value: ["10.0.0.1","10.0.0.2"]: '
                "may specify no more than one IP for each IP family"
            ],
            id="two addresses of one family",
        ),
        pytest.param(
            {"clusterIP": "10.0.0.1", "clusterIPs": ["10.0.0.1"], "ipFamilies": ["IPv6"]},
            ['spec.clusterIPs[0]: Invalid value: "10.0.0.1": expected an IPv6 value as indicated by `ipFamilies[0]`'],
            id="address of another family",
        ),
        pytest.param(
            {"ipFamilies": ["IPv4", "IPv4"], "ipFamilyPolicy": "Dual"},
            [
                'spec.ipFamilies[1]: Duplicate value: "IPv4"',
                'spec.ipFamilyPolicy: Unsupported value: "Dual": '
                'supported values: "PreferDualStack", "RequireDualStack", "SingleStack"',
            ],
            id="duplicate family and unknown policy",
        ),
    ],
)
def test_service_address_causes(spec: JSON, causes: list[str]) -> None:
    assert cause_texts(address_field_errors({"type": "ClusterIP", **spec}, None)) == causes


def test_cluster_ip_of_a_service_is_immutable() -> None:
    old, new = (
        defaulted(SERVICES, service(clusterIP=address, clusterIPs=[address])) for address in ("10.0.0.1", "10.0.0.2")
    )
    assert validator_causes(validate_service_update, old, old) == []
    assert validator_causes(validate_service_update, new, old) == [
        'spec.clusterIPs[0]: Invalid value: ["10.0.0.2"]: may not change once set'
    ]


@pytest.mark.parametrize(
    ("address", "detail"),
    [
        ("0.0.0.0", "may not be unspecified (0.0.0.0)"),
        ("::1", "may not be in the loopback range (127.0.0.0/8, ::1/128)"),
        ("169.254.0.1", "may not be in the link-local range (169.254.0.0/16, fe80::/10)"),
        ("224.0.0.1", "may not be in the link-local multicast range (224.0.0.0/24, ff02::/10)"),
        ("a", "must be a valid IP address"),
    ],
)
def test_unreachable_address_causes(address: str, detail: str) -> None:
    assert validator_causes(validate_reachable_ip, "ip", address) == [f'ip: Invalid value: "{address}": {detail}']


@pytest.mark.parametrize(
    ("kind", "ingress", "causes"),
    [
        pytest.param("LoadBalancer", {"ip": "1.2.3.4", "ipMode": "VIP"}, [], id="valid"),
        pytest.param(
            "ClusterIP",
            {"ip": "1.2.3.4"},
            [": Forbidden: may only be used when `spec.type` is 'LoadBalancer'"],
            id="type",
        ),
        pytest.param(
            "LoadBalancer",
            {"ip": "1.2.3.4"},
            ["[0].ipMode: Required value: must be specified when `ip` is set"],
            id="no mode",
        ),
        pytest.param(
            "LoadBalancer",
            {"hostname": "1.2.3.4"},
            ['[0].hostname: Invalid value: "1.2.3.4": must be a DNS name, not an IP address'],
            id="address as a host name",
        ),
    ],
)
def test_load_balancer_status_causes(kind: str, ingress: JSON, causes: list[str]) -> None:
    obj = {"spec": {"type": kind}, "status": {"loadBalancer": {"ingress": [ingress]}}}
    expected = [f"status.loadBalancer.ingress{cause}" for cause in causes]
    assert validator_causes(validate_service_status_update, obj, {}) == expected
