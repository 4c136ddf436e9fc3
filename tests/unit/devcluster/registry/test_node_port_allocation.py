"""Allocation of node ports."""

from __future__ import annotations

from support.api_requests import InProcessApi


async def test_local_traffic_policy_allocates_a_health_check_port():
    api = InProcessApi()
    body = {
        "metadata": {"name": "s"},
        "spec": {"ports": [{"port": 1}], "type": "LoadBalancer", "externalTrafficPolicy": "Local"},
    }
    status, service = api("POST", "/api/v1/namespaces/default/services", body)
    assert (status, 30000 <= service["spec"]["healthCheckNodePort"] < 32768) == (201, True)
