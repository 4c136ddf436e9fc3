"""Allocation of node ports."""

from __future__ import annotations

import random

import pytest

from kubeloop.devcluster.api.errors import StatusError
from kubeloop.devcluster.kinds.core.node_port_allocation import (
    NODE_PORT_RANGE,
    NodePortOperation,
    allocate_health_check_port,
)
from support.apiserver.api_requests import InProcessApi
from support.objects.service_responses import SERVICES_PATH, causes_or_message, port


@pytest.mark.parametrize(
    ("port", "dry_run", "problem"),
    [
        (30001, False, ""),
        (30000, False, "provided port is already allocated"),
        (30000, True, "provided port is already allocated"),
        (80, False, "provided port is not in the valid range. The range of valid ports is 30000-32767"),
        (80, True, ""),
    ],
)
def test_allocation_of_a_requested_port(port: int, dry_run: bool, problem: str):
    ports = NodePortOperation({30000: "uid"}, random.Random(1), dry_run=dry_run)
    assert ports.allocate(port) == problem
    assert ports.allocate(port) == (problem or "provided port is already allocated")


def test_last_free_port_is_found_before_the_range_is_full():
    owners = dict.fromkeys(NODE_PORT_RANGE, "uid")
    del owners[31000]
    ports = NodePortOperation(owners, random.Random(1), dry_run=False)
    assert ports.allocate_any() == 31000
    with pytest.raises(StatusError) as raised:
        ports.allocate_any()
    assert raised.value.message == "Internal error occurred: failed to allocate a nodePort: range is full"


def test_dry_run_counts_from_the_end_of_the_range():
    ports = NodePortOperation({}, random.Random(1), dry_run=True)
    assert [ports.allocate_any(), ports.allocate_any()] == [32769, 32770]


def test_health_check_port_that_is_allocated_is_an_error():
    spec = {"healthCheckNodePort": 30000}
    with pytest.raises(StatusError) as raised:
        allocate_health_check_port(spec, NodePortOperation({30000: "uid"}, random.Random(1), dry_run=False))
    assert raised.value.message == (
        "Internal error occurred: failed to allocate requested HealthCheck NodePort 30000: "
        "provided port is already allocated"
    )


# --- requests ---------------------------------------------------------------------------------------------------------


async def test_local_traffic_policy_allocates_a_health_check_port():
    api = InProcessApi()
    body = {
        "metadata": {"name": "s"},
        "spec": {"ports": [{"port": 1}], "type": "LoadBalancer", "externalTrafficPolicy": "Local"},
    }
    status, service = api("POST", SERVICES_PATH, body)
    assert (status, 30000 <= service["spec"]["healthCheckNodePort"] < 32768) == (201, True)


async def test_update_retains_node_ports_by_port_name():
    api = InProcessApi()
    spec = {"type": "NodePort", "ports": [{"name": "t", "port": 53}]}
    created = api.create(SERVICES_PATH, {"metadata": {"name": "s"}, "spec": spec})
    node_port = created["spec"]["ports"][0]["nodePort"]
    spec = {"type": "NodePort", "ports": [{"name": "t", "port": 54}, {"name": "x", "port": 55}]}
    updated = api.succeed("PUT", f"{SERVICES_PATH}/s", {"metadata": {"name": "s"}, "spec": spec})
    assert updated["spec"]["ports"][0]["nodePort"] == node_port != updated["spec"]["ports"][1]["nodePort"]


async def test_allocated_node_port_is_rejected():
    api = InProcessApi()
    spec = {"type": "NodePort", "ports": [port(nodePort=30009)]}
    api.create(SERVICES_PATH, {"metadata": {"name": "s"}, "spec": spec})
    response = api("POST", SERVICES_PATH, {"metadata": {"name": "z"}, "spec": spec})
    cause = "spec.ports[0].nodePort: Invalid value: 30009: provided port is already allocated"
    assert causes_or_message(response) == [cause]
