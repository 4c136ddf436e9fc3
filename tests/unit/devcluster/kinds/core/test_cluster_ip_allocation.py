"""Allocation of cluster IPs."""

from __future__ import annotations

import ipaddress
import random
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from kubeloop.devcluster.api.errors import StatusError
from kubeloop.devcluster.api.served_resources import IP_ADDRESSES, SERVICE_CIDRS
from kubeloop.devcluster.kinds.core.cluster_ip_allocation import ServiceAllocator
from kubeloop.devcluster.server.apiserver import ServingSettings
from kubeloop.devcluster.storage.store import ObjectStore
from kubeloop.devcluster.validation.common.error_list import ErrorList, error_list_type
from kubeloop.kube.feature_gates import FeatureGates
from kubeloop.kube.objects.resources import SERVICES
from support.apiserver.api_requests import InProcessApi
from support.objects.service_responses import SERVICES_PATH, causes_or_message, port
from support.simulation.set_clock import SetClock

JSON = dict[str, Any]
NOW = datetime(2026, 1, 1, tzinfo=UTC)


def service(name: str, **spec: Any) -> JSON:
    return {"metadata": {"name": name, "namespace": "ns", "uid": f"uid-{name}"}, "spec": spec}


class Allocation:
    """An allocator over a store with the ServiceCIDR 10.0.0.0/30, which has two addresses."""

    def __init__(self, error_list: type[ErrorList] = ErrorList) -> None:
        self.clock, self.store = SetClock(NOW), ObjectStore(seconds=lambda: 0.0)
        self.add_range("kubernetes", "10.0.0.0/30")
        self.allocator = ServiceAllocator(self.store, self.clock, random.Random(1), error_list)

    def add_range(self, name: str, *cidrs: str, ready: str = "", **metadata: str) -> None:
        """Create a ServiceCIDR. ready: status of the condition Ready, "" for none."""
        conditions = [{"type": "Ready", "status": ready}] if ready else []
        head = {"name": name, "creationTimestamp": NOW.isoformat(), **metadata}
        self.store.create(
            SERVICE_CIDRS, {"metadata": head, "spec": {"cidrs": [*cidrs]}, "status": {"conditions": conditions}}
        )

    def create(self, name: str, **spec: Any) -> JSON:
        obj = service(name, **spec)
        self.allocator.create(obj, dry_run=False)
        return self.store.create(SERVICES, obj)

    def addresses(self) -> list[str]:
        return [obj["metadata"]["name"] for obj in self.store.list(IP_ADDRESSES)]


def test_addresses_are_allocated_until_the_range_is_full():
    allocation = Allocation()
    assert {allocation.create(name)["spec"]["clusterIP"] for name in "ab"} == {"10.0.0.1", "10.0.0.2"}
    assert allocation.addresses() == ["10.0.0.1", "10.0.0.2"]
    with pytest.raises(StatusError) as raised:
        allocation.create("c")
    message = 'Internal error occurred: failed to allocate a serviceIP for Service "c": range is full'
    assert (raised.value.code, raised.value.message) == (500, message)


def test_address_in_another_notation_is_the_same():
    allocation = Allocation(error_list_type(FeatureGates({"StrictIPCIDRValidation": False})))
    assert allocation.create("a", clusterIP="010.0.0.02")["spec"]["clusterIPs"] == ["010.0.0.02"]
    assert allocation.addresses() == ["10.0.0.2"]
    with pytest.raises(StatusError, match="provided IP is already allocated"):
        allocation.create("b", clusterIP="10.0.0.2")


def test_deleted_service_releases_its_address():
    allocation = Allocation()
    allocation.create("a", clusterIP="10.0.0.2")
    allocation.store.delete(SERVICES, "ns", "a")
    assert allocation.addresses() == []
    assert allocation.create("b", clusterIP="10.0.0.2")["spec"]["clusterIPs"] == ["10.0.0.2"]


@pytest.mark.parametrize(
    ("address", "reason"),
    [
        pytest.param("10.0.0.1", "provided IP is already allocated", id="allocated"),
        pytest.param("10.1.0.1", "the provided network does not match the current range", id="outside of the range"),
        pytest.param("10.0.0.3", "the provided network does not match the current range", id="broadcast address"),
    ],
)
def test_requested_address_that_is_not_available_is_invalid(address: str, reason: str):
    allocation = Allocation()
    allocation.create("a", clusterIP="10.0.0.1")
    with pytest.raises(StatusError) as raised:
        allocation.create("b", clusterIP=address)
    assert (raised.value.code, raised.value.message) == (
        422,
        f'Service "b" is invalid: spec.clusterIPs: Invalid value: ["{address}"]: failed to allocate IP {address}: '
        f"{reason}",
    )


def test_dry_run_allocates_a_placeholder():
    allocation, obj = Allocation(), service("a")
    allocation.create("b", clusterIP="10.0.0.1")
    allocation.allocator.create(obj, dry_run=True)
    assert (obj["spec"]["clusterIP"], allocation.addresses()) == ("10.0.0.0", ["10.0.0.1"])
    allocation.allocator.create(service("c", clusterIP="10.0.0.1"), dry_run=True)
    with pytest.raises(StatusError, match=r"the provided IP \(10.0.0.3\) is not in the valid range. .* 10.0.0.0/30"):
        allocation.allocator.create(service("c", clusterIP="10.0.0.3"), dry_run=True)


def test_second_range_is_used_when_the_first_is_full():
    allocation = Allocation()
    for name in "ab":
        allocation.create(name)
    allocation.add_range("dual", "fd00::/112", "10.9.0.0/30")
    assert {allocation.create(name)["spec"]["clusterIP"] for name in "cd"} == {"10.9.0.1", "10.9.0.2"}
    with pytest.raises(StatusError, match="range is full"):
        allocation.create("e")


@pytest.mark.parametrize(
    "service_cidr",
    [
        pytest.param({"ready": "True"}, id="ready"),
        pytest.param({}, id="without a controller manager"),
        pytest.param({"ready": "False"}, id="not ready"),
        pytest.param({"ready": "True", "deletionTimestamp": "2026-01-01T00:00:00Z"}, id="in deletion"),
    ],
)
def test_addresses_of_ready_ranges_can_be_requested(service_cidr: dict[str, str]):
    allocation = Allocation()
    allocation.add_range("more", "10.9.0.0/30", **service_cidr)
    if service_cidr in ({}, {"ready": "True"}):
        assert allocation.create("a", clusterIP="10.9.0.1")["spec"]["clusterIP"] == "10.9.0.1"
    else:
        with pytest.raises(StatusError, match="the provided network does not match the current range"):
            allocation.create("a", clusterIP="10.9.0.1")


@pytest.mark.parametrize("cidr", ["10.9.0.0/31", "10.9.0.0/32"])
def test_range_without_hosts_provides_no_addresses(cidr: str):
    allocation = Allocation()
    allocation.add_range("tiny", cidr)
    for name in "ab":
        allocation.create(name)
    with pytest.raises(StatusError, match="range is full"):
        allocation.create("c")


def test_default_range_in_deletion_provides_no_addresses():
    allocation = Allocation()
    default = allocation.store.get(SERVICE_CIDRS, "", "kubernetes")
    assert default is not None
    metadata = {**default["metadata"], "deletionTimestamp": "2026-01-01T00:00:00Z"}
    allocation.store.update(SERVICE_CIDRS, {**default, "metadata": metadata})
    with pytest.raises(StatusError, match="range is full"):
        allocation.create("a")
    with pytest.raises(StatusError, match="allocator not ready"):
        allocation.allocator.create(service("a"), dry_run=True)


def test_upper_part_of_the_range_is_allocated_first():
    allocation = Allocation()
    allocation.add_range("more", "10.9.0.0/27")
    for name in "ab":
        allocation.create(name, clusterIP=f"10.0.0.{1 + 'ab'.index(name)}")
    numbers = [int(allocation.create(f"s{i}")["spec"]["clusterIP"].rpartition(".")[2]) for i in range(30)]
    assert sorted(numbers[:14]) == [*range(17, 31)]
    assert sorted(numbers) == [*range(1, 31)]


def test_ports_with_the_same_number_share_a_node_port():
    ports = [{"port": 53, "protocol": "UDP"}, {"port": 53, "protocol": "TCP"}, {"port": 80}]
    first, second, third = (
        port["nodePort"] for port in Allocation().create("a", type="NodePort", ports=ports)["spec"]["ports"]
    )
    assert (first == second, first == third) == (True, False)


@pytest.mark.parametrize("labels", [{}, {"ipaddress.kubernetes.io/managed-by": "somebody-else"}])
def test_repair_keeps_addresses_of_other_managers(labels: dict[str, str]):
    allocation = Allocation()
    metadata = {"name": "10.0.0.2", "labels": labels, "creationTimestamp": "2025-01-01T00:00:00Z"}
    allocation.store.create(IP_ADDRESSES, {"metadata": metadata})
    allocation.allocator.repair()
    assert allocation.addresses() == ["10.0.0.2"]


@pytest.mark.parametrize(("age_seconds", "remaining"), [(59, ["10.0.0.1", "10.0.0.2"]), (61, ["10.0.0.1"])])
def test_repair_restores_missing_and_deletes_leaked_addresses(age_seconds: int, remaining: list[str]):
    allocation = Allocation()
    allocation.create("a", clusterIP="10.0.0.1")
    leaked = allocation.store.get(IP_ADDRESSES, "", "10.0.0.1")
    assert leaked is not None
    allocation.store.delete(IP_ADDRESSES, "", "10.0.0.1")
    allocation.store.create(IP_ADDRESSES, {**leaked, "metadata": {**leaked["metadata"], "name": "10.0.0.2"}})
    allocation.clock.moment = NOW + timedelta(seconds=age_seconds)
    allocation.allocator.repair()
    assert allocation.addresses() == remaining


# --- requests ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("spec", "causes"),
    [
        pytest.param(
            {"ipFamilyPolicy": "RequireDualStack"},
            [
                'spec.ipFamilyPolicy: Invalid value: "RequireDualStack": '
                "this cluster is not configured for dual-stack services"
            ],
            id="dual stack",
        ),
        pytest.param(
            {"ipFamilies": ["IPv6"]},
            ['spec.ipFamilies[0]: Invalid value: "IPv6": not configured on this cluster'],
            id="IPv6 family",
        ),
        pytest.param(
            {"clusterIP": "10.0.0.1", "clusterIPs": ["10.0.0.2"]},
            ['spec.clusterIPs: Invalid value: ["10.0.0.2"]: first value must match `clusterIP`'],
            id="clusterIP is not the first of clusterIPs",
        ),
        pytest.param(
            {"clusterIPs": ["10.0.0.2"]},
            ['spec.clusterIPs: Invalid value: ["10.0.0.2"]: must be empty when `clusterIP` is not specified'],
            id="clusterIPs without clusterIP",
        ),
        pytest.param(
            {"clusterIP": "10.1.0.1"},
            [
                'spec.clusterIPs: Invalid value: ["10.1.0.1"]: failed to allocate IP 10.1.0.1: '
                "the provided network does not match the current range"
            ],
            id="address out of range",
        ),
        pytest.param(
            {"clusterIP": "fd00::1"},
            ['spec.clusterIPs[0]: Invalid value: ["fd00::1"]: IPv6 is not configured on this cluster'],
            id="IPv6 address",
        ),
        pytest.param(
            {"type": "NodePort", "ports": [port(nodePort=80)]},
            [
                "spec.ports[0].nodePort: Invalid value: 80: provided port is not in the valid range. "
                "The range of valid ports is 30000-32767"
            ],
            id="node port out of range",
        ),
        pytest.param(
            {"type": "LoadBalancer", "externalTrafficPolicy": "Local", "healthCheckNodePort": 80},
            [
                "Internal error occurred: failed to allocate requested HealthCheck NodePort 80: "
                "provided port is not in the valid range. The range of valid ports is 30000-32767"
            ],
            id="health check port out of range",
        ),
    ],
)
async def test_allocation_errors_precede_all_other_errors(spec: JSON, causes: list[str]):
    body = {"metadata": {"name": "A_b"}, "spec": {"ports": [port()], "sessionAffinity": "x", **spec}}
    assert causes_or_message(InProcessApi()("POST", SERVICES_PATH, body)) == causes


@pytest.mark.parametrize(
    ("address", "query", "reason"),
    [
        pytest.param(
            "1.2.3.4", "", "the provided network does not match the current range", id="outside of the network"
        ),
        pytest.param(
            "1.2.3.4",
            "?dryRun=All",
            "the provided IP (1.2.3.4) is not in the valid range. The range of valid IPs is",
            id="outside of the network in a dry run",
        ),
        pytest.param(
            "10.0.0.0",
            "",
            "the provided network does not match the current range",
            id="network address",
        ),
    ],
)
async def test_address_out_of_range_is_rejected(address: str, query: str, reason: str):
    body = {"metadata": {"name": "s"}, "spec": {"ports": [port()], "clusterIP": address}}
    (cause,) = causes_or_message(InProcessApi()("POST", f"{SERVICES_PATH}{query}", body))
    assert f"failed to allocate IP {address}: {reason}" in cause


async def test_server_allocates_addresses_of_its_service_range():
    network = ipaddress.IPv4Network("10.9.0.0/29")
    api = InProcessApi(settings=ServingSettings(service_range=network))
    responses = [
        api("POST", SERVICES_PATH, {"metadata": {"name": name}, "spec": {"ports": [port()]}}) for name in "abcdef"
    ]
    assert [status for status, _ in responses] == [201] * 5 + [500]
    allocated = sorted(service["spec"]["clusterIP"] for _, service in responses[:5])
    assert allocated == [str(network[number]) for number in range(2, 7)]
    reason = 'failed to allocate a serviceIP for Service "f": range is full'
    assert responses[5][1]["message"] == f"Internal error occurred: {reason}"
