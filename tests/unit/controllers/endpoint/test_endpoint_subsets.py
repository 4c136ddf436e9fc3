"""Subsets of Endpoints: packing by ports, readiness, truncation."""

from __future__ import annotations

from typing import Any

import pytest
from msgspec import structs

from kubeloop.controllers.endpoint.endpoint_subsets import address_count, endpoint_subsets, truncated
from kubeloop.controllers.runtime.services.subset_packing import repacked_subsets
from kubeloop.kube.objects.api_types import Pod, Service, convert


def service(**spec: Any) -> Service:
    ports = [{"name": "http", "port": 80, "targetPort": "http"}, {"name": "admin", "port": 81, "targetPort": 9000}]
    spec = {"ports": ports, "ipFamilies": ["IPv4"], "clusterIP": "10.0.0.9", **spec}
    return convert(Service, {"metadata": {"name": "web", "namespace": "ns"}, "spec": spec})


def pod(number: int, *, ready: bool = True, port: int = 8080, **metadata: Any) -> Pod:
    containers = [{"name": "main", "ports": [{"name": "http", "containerPort": port}]}]
    ip = f"10.1.0.{number}"
    status = {"podIP": ip, "podIPs": [{"ip": "fd00::1"}, {"ip": ip}]}
    status["conditions"] = [{"type": "Ready", "status": str(ready)}]
    metadata = {"name": f"p{number}", "namespace": "ns", "uid": f"u{number}", **metadata}
    return convert(Pod, {"metadata": metadata, "spec": {"nodeName": "n", "containers": containers}, "status": status})


def ips(subset: dict[str, Any], name: str = "addresses") -> list[str]:
    return [address["ip"] for address in subset.get(name, ())]


def test_pods_with_the_same_ports_share_a_subset():
    (subset,) = endpoint_subsets(service(), [pod(2), pod(1), pod(3, ready=False)])
    assert ips(subset) == ["10.1.0.1", "10.1.0.2"]
    assert ips(subset, "notReadyAddresses") == ["10.1.0.3"]
    assert sorted((port["name"], port["port"]) for port in subset["ports"]) == [("admin", 9000), ("http", 8080)]
    assert subset["addresses"][0] == {
        "ip": "10.1.0.1",
        "nodeName": "n",
        "targetRef": {"kind": "Pod", "namespace": "ns", "name": "p1", "uid": "u1"},
    }


def test_ports_with_other_addresses_are_other_subsets():
    subsets = endpoint_subsets(service(), [pod(1), pod(2, port=9090)])
    assert sorted((port["port"], ips(subset)) for subset in subsets for port in subset["ports"]) == [
        (8080, ["10.1.0.1"]),
        (9000, ["10.1.0.1", "10.1.0.2"]),
        (9090, ["10.1.0.2"]),
    ]
    assert repacked_subsets(reversed(subsets)) == subsets


def test_terminating_pod_is_listed_only_if_published_early():
    terminating = pod(1, ready=False, deletionTimestamp="2026-01-01T00:00:00Z")
    assert endpoint_subsets(service(), [terminating]) == []
    (subset,) = endpoint_subsets(service(publishNotReadyAddresses=True), [terminating])
    assert ips(subset) == ["10.1.0.1"]


def test_headless_service_without_ports_lists_addresses_only():
    (subset,) = endpoint_subsets(service(ports=[], clusterIP="None"), [pod(1)])
    assert (ips(subset), "ports" in subset) == (["10.1.0.1"], False)
    assert repacked_subsets([subset]) == [subset]
    assert endpoint_subsets(service(ports=[]), [pod(1)]) == []


def test_address_is_of_the_first_ip_family():
    (subset,) = endpoint_subsets(service(ipFamilies=["IPv6", "IPv4"]), [pod(1)])
    assert ips(subset) == ["fd00::1"]
    assert ips(endpoint_subsets(service(ipFamilies=[]), [pod(1)])[0]) == ["10.1.0.1"]


@pytest.mark.parametrize(
    ("counts", "expected"),
    [
        ([(600, 0), (400, 0)], None),
        ([(1500, 10), (500, 0)], [(750, 0), (250, 0)]),
        ([(800, 300), (100, 100)], [(800, 75), (100, 25)]),
    ],
)
def test_truncation_keeps_ready_addresses_in_proportion(counts, expected):
    subsets = [{"addresses": [{}] * ready, "notReadyAddresses": [{}] * not_ready} for ready, not_ready in counts]
    result = truncated(subsets)
    sizes = result and [(address_count([it], "addresses"), address_count([it], "notReadyAddresses")) for it in result]
    assert sizes == expected


@pytest.mark.parametrize(
    ("spec", "ip"),
    [
        pytest.param({"ipFamilies": ["IPv4"]}, "10.1.0.1", id="first family"),
        pytest.param({"ipFamilies": ["IPv6", "IPv4"]}, "fd00::1", id="first family is IPv6"),
        pytest.param({"ipFamilies": [], "clusterIP": "10.0.0.9"}, "10.1.0.1", id="by cluster IP"),
        pytest.param({"ipFamilies": [], "clusterIP": "fd00::9"}, "fd00::1", id="by cluster IP, IPv6"),
        pytest.param({"ipFamilies": [], "clusterIP": "None"}, "10.1.0.1", id="headless: by the pod's first IP"),
    ],
)
def test_address_has_the_family_of_the_service(spec, ip):
    (subset,) = endpoint_subsets(service(**spec), [pod(1)])
    assert ips(subset) == [ip]


def test_pod_without_an_address_hides_no_other_pod():
    without = pod(1)
    without = structs.replace(without, status=structs.replace(without.status, pod_ips=()))
    (subset,) = endpoint_subsets(service(), [without, pod(2)])
    assert ips(subset) == ["10.1.0.2"]


@pytest.mark.parametrize("protocol", [None, "kubernetes.io/h2c"])
def test_port_has_the_app_protocol_of_the_service(protocol):
    port = {"name": "http", "port": 80, "targetPort": 80} | ({} if protocol is None else {"appProtocol": protocol})
    (subset,) = endpoint_subsets(service(ports=[port]), [pod(1)])
    assert subset["ports"] == [
        {"name": "http", "port": 80, "protocol": "TCP"} | ({} if protocol is None else {"appProtocol": protocol})
    ]
