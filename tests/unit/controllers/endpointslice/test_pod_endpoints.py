"""Endpoints of Pods: addresses, conditions, ports, keys."""

from __future__ import annotations

from typing import Any

import pytest

from kubeloop.controllers.endpointslice.pod_endpoints import (
    address_types,
    desired_endpoints,
    endpoint_ports,
    pod_endpoint,
)
from kubeloop.kube.objects.api_types import Node, Pod, Service, convert

NODE = convert(Node, {"metadata": {"name": "n", "labels": {"topology.kubernetes.io/zone": "a"}}})


def service(**spec: Any) -> Service:
    return convert(Service, {"metadata": {"name": "web", "namespace": "ns"}, "spec": spec})


def pod(name: str = "p", *, ready: bool = True, terminating: bool = False, **spec: Any) -> Pod:
    metadata: dict[str, Any] = {"name": name, "namespace": "ns", "uid": f"uid-{name}"}
    if terminating:
        metadata["deletionTimestamp"] = "2026-01-01T00:00:00Z"
    status = {
        "podIP": "10.0.0.1",
        "podIPs": [{"ip": "10.0.0.1"}, {"ip": "FD00:0::1"}],
        "conditions": [{"type": "Ready", "status": str(ready)}],
    }
    return convert(Pod, {"metadata": metadata, "spec": {"nodeName": "n", **spec}, "status": status})


@pytest.mark.parametrize(
    ("spec", "types"),
    [
        ({"ipFamilies": ["IPv4"]}, ("IPv4",)),
        ({"ipFamilies": ["IPv6", "IPv4"]}, ("IPv4", "IPv6")),
        ({"clusterIP": "fd00::9"}, ("IPv6",)),
        ({"clusterIP": "10.0.0.9"}, ("IPv4",)),
        ({"clusterIP": "None"}, ("IPv4", "IPv6")),
    ],
)
def test_address_types(spec, types):
    assert address_types(service(**spec)) == types


@pytest.mark.parametrize(
    ("ready", "terminating", "publish", "conditions"),
    [
        (True, False, False, (True, True, False)),
        (False, False, False, (False, False, False)),
        (True, True, False, (False, True, True)),
        (False, True, True, (True, False, True)),
    ],
)
def test_conditions_of_endpoint(ready, terminating, publish, conditions):
    web = service(publishNotReadyAddresses=publish)
    endpoint = pod_endpoint(web, pod(ready=ready, terminating=terminating), NODE, "IPv4")
    assert tuple(endpoint["conditions"][name] for name in ("ready", "serving", "terminating")) == conditions


def test_endpoint_has_addresses_of_one_family_node_zone_and_hostname():
    web = pod(hostname="web-0", subdomain="web")
    endpoint = pod_endpoint(service(), web, NODE, "IPv6")
    assert endpoint == {
        "addresses": ["fd00::1"],
        "conditions": {"ready": True, "serving": True, "terminating": False},
        "targetRef": {"kind": "Pod", "namespace": "ns", "name": "p", "uid": "uid-p"},
        "nodeName": "n",
        "zone": "a",
        "hostname": "web-0",
    }


def test_ports_of_pods_with_other_numbers_are_other_groups():
    web = service(ports=[{"name": "http", "port": 80, "targetPort": "http"}])
    old, new = (
        pod(name, containers=[{"name": "c", "ports": [{"name": "http", "containerPort": number}]}])
        for name, number in (("old", 8080), ("new", 9090))
    )
    desired = desired_endpoints(web, [old, new], {"n": NODE}.get, "IPv4")
    assert [group.ports[0]["port"] for group in desired.groups.values()] == [8080, 9090]
    assert endpoint_ports(web, pod()) == []


def test_pod_of_missing_node_has_no_endpoint_unless_published_early():
    desired = desired_endpoints(service(), [pod()], {}.get, "IPv4")
    assert desired.missing_nodes == [("p", "n")]
    assert [group.endpoints for group in desired.groups.values()] == [{}]
    published = desired_endpoints(service(publishNotReadyAddresses=True), [pod()], {}.get, "IPv4")
    assert [len(group.endpoints) for group in published.groups.values()] == [1]


@pytest.mark.parametrize(("field", "member"), [({}, {}), ({"appProtocol": "h2c"}, {"appProtocol": "h2c"})])
def test_port_has_the_app_protocol_of_the_service(field, member):
    web = service(ports=[{"name": "http", "protocol": "TCP", "port": 80, "targetPort": 80, **field}])
    assert endpoint_ports(web, pod()) == [{"name": "http", "protocol": "TCP", "port": 80, **member}]


def test_pod_of_missing_node_hides_no_other_pod():
    pods = [pod("lost", nodeName="gone"), pod("there")]
    desired = desired_endpoints(service(), pods, {"n": NODE}.get, "IPv4")
    assert desired.missing_nodes == [("lost", "gone")]
    (group,) = desired.groups.values()
    assert [it["targetRef"]["name"] for it in group.endpoints.values()] == ["there"]


def test_pod_without_address_hides_no_other_pod():
    empty = convert(Pod, {"metadata": {"name": "new", "namespace": "ns"}, "spec": {"nodeName": "n"}})
    (group,) = desired_endpoints(service(), [empty, pod("there")], {"n": NODE}.get, "IPv4").groups.values()
    assert [it["targetRef"]["name"] for it in group.endpoints.values()] == ["there"]
