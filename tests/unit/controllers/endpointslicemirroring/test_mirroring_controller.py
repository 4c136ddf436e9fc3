"""The EndpointSlice mirroring controller with an API server in memory, in virtual time."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from msgspec import structs

from kubeloop.controllers.endpointslicemirroring.mirroring_controller import EndpointSliceMirroringController
from kubeloop.kube.objects.resources import ENDPOINT_SLICES, ENDPOINTS, SERVICES
from kubeloop.process.control_plane.controller_table import default_options
from support.apiserver.faulty_transport import WatchFault
from support.simulation.metric_values import RecordedMetrics

pytestmark = pytest.mark.virtual_time
PREFIX = "endpoint_slice_mirroring_controller_"
SUBSET: dict[str, Any] = {"addresses": [{"ip": "10.1.0.1"}, {"ip": "10.1.0.2"}], "ports": [{"port": 80}]}


@pytest.fixture
def metrics() -> RecordedMetrics:
    return RecordedMetrics()


@pytest.fixture
async def apiserver(fake_apiserver, start, recorded_events, metrics):
    options = {**default_options(), "mirroring_max_endpoints_per_subset": 2}
    context = structs.replace(fake_apiserver.context, options=options, events=recorded_events, metrics=metrics)
    await start(fake_apiserver.informers, EndpointSliceMirroringController(context))
    return fake_apiserver


def create(api: Any, *, selector: Any = None, **metadata: Any) -> None:
    spec = {"ports": [{"port": 80}], **({"selector": selector} if selector else {})}
    api.api.create(SERVICES.path("ns"), {"metadata": {"name": "web"}, "spec": spec})
    api.api.create(ENDPOINTS.path("ns"), {"metadata": {"name": "web", **metadata}, "subsets": [SUBSET]})


def patch(api: Any, resource: Any, body: Any) -> None:
    api.api.succeed("PATCH", resource.path("ns", "web"), body, content_type="application/merge-patch+json")


async def addresses(api: Any) -> list[str]:
    """Return the mirrored addresses after some time."""
    await asyncio.sleep(2)
    slices = [it for it in api.objects(ENDPOINT_SLICES) if it["metadata"]["namespace"] == "ns"]
    return sorted(endpoint["addresses"][0] for it in slices for endpoint in it["endpoints"])


async def test_endpoints_are_mirrored_and_followed(apiserver):
    create(apiserver)
    assert await addresses(apiserver) == ["10.1.0.1", "10.1.0.2"]
    patch(apiserver, ENDPOINTS, {"subsets": [{**SUBSET, "addresses": [{"ip": "10.1.0.3"}]}]})
    assert await addresses(apiserver) == ["10.1.0.3"]
    (name,) = apiserver.names(ENDPOINT_SLICES)
    await apiserver.client.delete(ENDPOINT_SLICES, name, "ns")
    assert await addresses(apiserver) == ["10.1.0.3"]


@pytest.mark.parametrize(
    ("resource", "change"),
    [
        (ENDPOINTS, None),
        (SERVICES, None),
        (SERVICES, {"spec": {"selector": {"app": "web"}}}),
        (ENDPOINTS, {"metadata": {"labels": {"endpointslice.kubernetes.io/skip-mirror": "true"}}}),
        (ENDPOINTS, {"metadata": {"annotations": {"control-plane.alpha.kubernetes.io/leader": "{}"}}}),
        (ENDPOINTS, {"subsets": []}),
    ],
)
async def test_slices_of_what_is_not_mirrored_any_more_are_deleted(apiserver, metrics, resource, change):
    create(apiserver)
    assert len(await addresses(apiserver)) == 2
    if change is None:
        await apiserver.client.delete(resource, "web", "ns")
    else:
        patch(apiserver, resource, change)
    assert await addresses(apiserver) == []
    assert metrics.values(PREFIX)["num_endpoint_slices"] == 0


async def test_endpoints_of_a_service_with_selector_are_mirrored_without_it(apiserver):
    create(apiserver, selector={"app": "web"})
    assert await addresses(apiserver) == []
    patch(apiserver, SERVICES, {"spec": {"selector": None}})
    assert len(await addresses(apiserver)) == 2


async def test_changed_slice_is_restored(apiserver):
    create(apiserver)
    await addresses(apiserver)
    (name,) = apiserver.names(ENDPOINT_SLICES)
    path = ENDPOINT_SLICES.path("ns", name)
    for body in ({"endpoints": []}, {"metadata": {"labels": {"endpointslice.kubernetes.io/managed-by": "x"}}}):
        apiserver.api.succeed("PATCH", path, body, content_type="application/merge-patch+json")
        assert "10.1.0.1" in await addresses(apiserver)


async def test_sync_waits_for_the_cache_of_its_slices(apiserver):
    create(apiserver)
    await addresses(apiserver)
    apiserver.transport.watch_faults.append(WatchFault("silence", resource="endpointslices"))
    apiserver.transport.break_watches("endpointslices")
    patch(apiserver, ENDPOINTS, {"subsets": [{**SUBSET, "addresses": [{"ip": "10.1.0.3"}]}]})
    assert await addresses(apiserver) == ["10.1.0.3"]
    patch(apiserver, ENDPOINTS, {"subsets": [{**SUBSET, "addresses": [{"ip": "10.1.0.4"}]}]})
    assert await addresses(apiserver) == ["10.1.0.3"], "the cache lacks the last update"


async def test_addresses_above_the_limit_are_reported(apiserver, recorded_events, metrics):
    create(apiserver)
    three = [*SUBSET["addresses"], {"ip": "10.1.0.3"}]
    patch(apiserver, ENDPOINTS, {"subsets": [{**SUBSET, "addresses": three}]})
    assert await addresses(apiserver) == ["10.1.0.1", "10.1.0.2"]
    (event,) = {(it.type, it.reason, it.message) for it in recorded_events.events}
    message = "A max of 2 addresses can be mirrored to EndpointSlices per Endpoints subset. 1 addresses were skipped"
    assert event == ("Warning", "TooManyAddressesToMirror", message)
    assert metrics.values(PREFIX)["endpoints_desired"] == 2


async def test_invalid_addresses_are_reported(apiserver, recorded_events):
    create(apiserver)
    await addresses(apiserver)
    endpoints = apiserver.store.get(ENDPOINTS, "ns", "web")
    subset = {**endpoints["subsets"][0], "addresses": [{"ip": "10.1.0.1"}, {"ip": "nowhere"}]}
    apiserver.store.update(ENDPOINTS, {**endpoints, "subsets": [subset]})
    assert await addresses(apiserver) == ["10.1.0.1"]
    assert {(it.reason, it.message) for it in recorded_events.events} == {
        ("InvalidIPAddress", "Skipped 1 invalid IP addresses when mirroring to EndpointSlices")
    }
