"""Validation of a Service."""

from __future__ import annotations

from typing import Any

import pytest

from kubeloop.kube.objects.resources import SERVICES
from support.validation_causes import create_causes

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
