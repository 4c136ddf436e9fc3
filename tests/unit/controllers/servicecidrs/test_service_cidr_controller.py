"""The ServiceCIDR controller with an API server in memory, in virtual time."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from msgspec import structs

from kubeloop.controllers.servicecidrs.service_cidr_controller import FINALIZER, ServiceCIDRController
from kubeloop.devcluster.api import errors
from kubeloop.kube.objects.resources import SERVICE_CIDRS, SERVICES

pytestmark = pytest.mark.virtual_time


@pytest.fixture
async def apiserver(fake_apiserver, start, recorded_events):
    context = structs.replace(fake_apiserver.context, events=recorded_events)
    await start(fake_apiserver.informers, ServiceCIDRController(context))
    return fake_apiserver


async def create(api: Any, name: str = "more", cidr: str = "10.9.0.0/24") -> None:
    api.api.create(SERVICE_CIDRS.path(), {"metadata": {"name": name}, "spec": {"cidrs": [cidr]}})
    await asyncio.sleep(1)


def ready(api: Any, name: str = "more") -> tuple[str, str]:
    """Return status and reason of the condition Ready."""
    (condition,) = api.store.get(SERVICE_CIDRS, "", name)["status"]["conditions"]
    assert condition["type"] == "Ready"
    return condition["status"], condition["reason"]


async def test_new_range_becomes_ready_and_has_a_finalizer(apiserver):
    await create(apiserver)
    assert ready(apiserver) == ("True", "")
    for name in ("more", "kubernetes"):
        assert apiserver.store.get(SERVICE_CIDRS, "", name)["metadata"]["finalizers"] == [FINALIZER]


async def test_unused_range_is_deleted_after_ten_seconds(apiserver):
    await create(apiserver)
    await apiserver.client.delete(SERVICE_CIDRS, "more")
    await asyncio.sleep(8)
    assert "more" in apiserver.names(SERVICE_CIDRS)
    await asyncio.sleep(3)
    assert "more" not in apiserver.names(SERVICE_CIDRS)


@pytest.mark.parametrize("release", ["service", "parent range"])
async def test_range_of_a_service_is_deleted_when_it_is_not_needed(apiserver, release):
    await create(apiserver)
    apiserver.api.create(
        SERVICES.path("ns"), {"metadata": {"name": "a"}, "spec": {"ports": [{"port": 80}], "clusterIP": "10.9.0.9"}}
    )
    await apiserver.client.delete(SERVICE_CIDRS, "more")
    await asyncio.sleep(30)
    assert ready(apiserver) == ("False", "Terminating")
    if release == "service":
        await apiserver.client.delete(SERVICES, "a", "ns")
    else:
        await create(apiserver, "parent", "10.9.0.0/16")
    await asyncio.sleep(2)
    assert "more" not in apiserver.names(SERVICE_CIDRS)


async def test_failed_status_write_is_reported_and_repeated(apiserver, recorded_events):
    apiserver.transport.reject = lambda method, path: (
        errors.bad_request("no") if path.startswith(SERVICE_CIDRS.path("", "more", "status")) else None
    )
    await create(apiserver)
    message = "The ServiceCIDR Status can not be set to Ready=True"
    assert {(it.reason, it.message) for it in recorded_events.events} == {("KubernetesServiceCIDRError", message)}
    apiserver.transport.reject = lambda method, path: None
    await asyncio.sleep(5)
    assert ready(apiserver) == ("True", "")
