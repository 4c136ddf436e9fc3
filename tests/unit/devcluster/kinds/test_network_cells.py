"""Cells of Services, Endpoints, EndpointSlices, Ingresses and IngressClasses."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import pytest

from support.objects.kinds import cells_of

NOW = datetime(2026, 5, 1, 12, 0, 0, tzinfo=UTC)


def cells(resource: str, **fields: Any) -> list[Any]:
    metadata = {"name": "x", "creationTimestamp": "2026-05-01T11:55:00Z"}
    return cells_of(resource, {"metadata": metadata, **fields}, NOW)


@pytest.mark.parametrize(
    ("spec", "external_ip"),
    [
        ({"type": "ClusterIP"}, "<none>"),
        ({"type": "NodePort", "externalIPs": ["192.0.2.7", "192.0.2.8"]}, "192.0.2.7,192.0.2.8"),
        ({"type": "LoadBalancer"}, "<pending>"),
        ({"type": "LoadBalancer", "externalIPs": ["192.0.2.7"]}, "192.0.2.7"),
        ({"type": "ExternalName", "externalName": "db.example.com"}, "db.example.com"),
        ({"type": "Other"}, "<unknown>"),
    ],
)
def test_external_ip_depends_on_the_service_type(spec, external_ip):
    assert cells("services", spec=spec)[3] == external_ip


def test_load_balancer_shows_its_addresses_first():
    spec = {"type": "LoadBalancer", "externalIPs": ["192.0.2.7"]}
    status = {"loadBalancer": {"ingress": [{"ip": "198.51.100.2"}, {"hostname": "lb.example.com"}]}}
    assert cells("services", spec=spec, status=status)[3] == "198.51.100.2,lb.example.com,192.0.2.7"


def test_service_port_includes_the_node_port():
    ports = [{"port": 80, "nodePort": 30080, "protocol": "TCP"}, {"port": 53, "protocol": "UDP"}]
    assert cells("services", spec={"ports": ports})[4] == "80:30080/TCP,53/UDP"


def test_endpoints_show_three_addresses_and_the_rest_as_number():
    addresses = [{"ip": f"10.0.0.{number}"} for number in range(1, 5)]
    assert cells("endpoints", subsets=[{"addresses": addresses, "ports": [{"port": 80}]}])[1] == (
        "10.0.0.1:80,10.0.0.2:80,10.0.0.3:80 + 1 more..."
    )
    assert cells("endpoints", subsets=[{"addresses": [{"ip": "fd00::1"}], "ports": [{"port": 80}]}])[1] == (
        "[fd00::1]:80"
    )
    assert cells("endpoints")[1] == "<none>"


def test_endpoint_slice_port_without_number_and_name_is_a_star():
    ports: list[dict[str, Any]] = [{"name": "http", "port": 80}, {}]
    endpoints = [{"addresses": ["10.0.0.1"]}, {"addresses": ["10.0.0.2"]}]
    row = cells("endpointslices.discovery.k8s.io", addressType="IPv4", ports=ports, endpoints=endpoints)
    assert row == ["x", "IPv4", "80,*", "10.0.0.1,10.0.0.2", "5m"]


def test_ingress_with_tls_shows_both_ports():
    spec = {"rules": [{"host": "a.example.com"}, {"host": "b.example.com"}], "tls": [{}]}
    assert cells("ingresses.networking.k8s.io", spec=spec) == [
        "x",
        "<none>",
        "a.example.com,b.example.com",
        "",
        "80, 443",
        "5m",
    ]


def test_ingress_without_hosts_shows_a_star():
    assert cells("ingresses.networking.k8s.io", spec={"rules": [{}]})[2] == "*"


@pytest.mark.parametrize(
    ("hosts", "text"),
    [
        (["a", "b", "c"], "a,b,c"),
        (["a", "b", "c", "d", "e"], "a,b,c + 2 more..."),
        (["a", "b", "c", ""], "a,b,c + 1 more..."),
        (["", "a", "b", "c"], "a,b,c"),
        (["", "", "", "a"], "a"),
    ],
)
def test_ingress_shows_three_hosts(hosts, text):
    assert cells("ingresses.networking.k8s.io", spec={"rules": [{"host": host} for host in hosts]})[2] == text


def test_ingress_class_parameters_include_the_api_group():
    parameters = {"kind": "Config", "name": "main", "apiGroup": "example.com"}
    assert cells("ingressclasses.networking.k8s.io", spec={"parameters": parameters})[2] == "Config.example.com/main"
