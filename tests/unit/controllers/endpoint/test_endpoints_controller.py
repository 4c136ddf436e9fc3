"""The Endpoints controller with an API server in memory, in virtual time."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from msgspec import structs

from kubeloop.controllers.endpoint.endpoints_controller import EndpointsController
from kubeloop.controllers.runtime.controller import StaleCache
from kubeloop.devcluster.api import errors
from kubeloop.kube.objects.resources import ENDPOINTS, PODS, SERVICES
from kubeloop.process.control_plane.controller_table import default_options
from support.apiserver.faulty_transport import SentRequest, WatchFault

pytestmark = pytest.mark.virtual_time


@pytest.fixture
async def apiserver(fake_apiserver, start):
    fake_apiserver.api.create(ENDPOINTS.path("ns"), {"metadata": {"name": "leftover"}})
    context = structs.replace(fake_apiserver.context, options=default_options())
    await start(fake_apiserver.informers, EndpointsController(context))
    return fake_apiserver


def create_service(api: Any, name: str = "web", **spec: Any) -> None:
    spec = {"selector": {"app": "web"}, "ports": [{"port": 80}], **spec}
    api.api.create(SERVICES.path("ns"), {"metadata": {"name": name, "labels": {"team": "x"}}, "spec": spec})


def create_pod(api: Any, number: int, *, ready: bool = True) -> None:
    spec = {"nodeName": "n", "containers": [{"name": "main", "image": "app:1"}]}
    api.api.create(PODS.path("ns"), {"metadata": {"name": f"p{number}", "labels": {"app": "web"}}, "spec": spec})
    address = f"10.1.{number // 250}.{number % 250 + 1}"
    conditions = [{"type": "Ready", "status": str(ready), "lastTransitionTime": "2026-01-01T00:00:05Z"}]
    status = {"phase": "Running", "podIP": address, "podIPs": [{"ip": address}], "conditions": conditions}
    path = PODS.path("ns", f"p{number}", "status")
    api.api.succeed("PATCH", path, {"status": status}, content_type="application/merge-patch+json")


def endpoints(api: Any, name: str = "web") -> Any:
    return api.store.get(ENDPOINTS, "ns", name)


def addresses(api: Any) -> list[str]:
    return [it["ip"] for subset in endpoints(api).get("subsets") or () for it in subset.get("addresses", ())]


async def test_endpoints_follow_pods_and_service(apiserver):
    create_service(apiserver)
    await asyncio.sleep(1)
    assert addresses(apiserver) == []
    for number in range(3):
        create_pod(apiserver, number, ready=number != 2)
    await asyncio.sleep(2)
    assert addresses(apiserver) == ["10.1.0.1", "10.1.0.2"]
    metadata = endpoints(apiserver)["metadata"]
    assert metadata["labels"] == {"team": "x", "endpoints.kubernetes.io/managed-by": "endpoint-controller"}
    assert list(metadata["annotations"]) == ["endpoints.kubernetes.io/last-change-trigger-time"]
    apiserver.api.succeed("DELETE", PODS.path("ns", "p0"), {"gracePeriodSeconds": 30})
    await asyncio.sleep(2)
    assert addresses(apiserver) == ["10.1.0.2"]
    apiserver.api.succeed("DELETE", SERVICES.path("ns", "web"))
    await asyncio.sleep(2)
    assert endpoints(apiserver) is None


async def test_leftover_endpoints_are_deleted_and_deleted_ones_restored(apiserver):
    assert endpoints(apiserver, "leftover") is None
    create_service(apiserver)
    create_service(apiserver, "manual", selector=None)
    await asyncio.sleep(1)
    assert endpoints(apiserver, "manual") is None
    apiserver.api.succeed("DELETE", ENDPOINTS.path("ns", "web"))
    await asyncio.sleep(2)
    assert endpoints(apiserver) is not None


async def test_more_than_1000_addresses_are_truncated(apiserver):
    create_service(apiserver)
    for number in range(1003):
        create_pod(apiserver, number)
    await asyncio.sleep(5)
    assert len(addresses(apiserver)) == 1000
    assert endpoints(apiserver)["metadata"]["annotations"]["endpoints.kubernetes.io/over-capacity"] == "truncated"
    apiserver.delete(PODS, "p0", gracePeriodSeconds=0)
    for number in (1, 2):
        apiserver.delete(PODS, f"p{number}", gracePeriodSeconds=0)
    await asyncio.sleep(5)
    assert len(addresses(apiserver)) == 1000
    assert "endpoints.kubernetes.io/over-capacity" not in endpoints(apiserver)["metadata"].get("annotations", {})
    assert apiserver.context.events.events == []


async def test_sync_is_postponed_until_the_cache_shows_the_last_write(apiserver):
    await silence_watch(apiserver)
    create_service(apiserver)
    await asyncio.sleep(2)
    create_pod(apiserver, 0)
    await asyncio.sleep(5)
    assert addresses(apiserver) == []
    apiserver.transport.break_watches("endpoints")
    await asyncio.sleep(20)
    assert addresses(apiserver) == ["10.1.0.1"]
    assert apiserver.context.events.events == []


async def test_endpoints_that_the_cache_never_shows_are_created_again(apiserver):
    await silence_watch(apiserver)
    create_service(apiserver)
    await asyncio.sleep(2)
    apiserver.delete(ENDPOINTS, "web")
    create_pod(apiserver, 0)
    apiserver.transport.compacted_version = (
        apiserver.store.revision
    )  # the next list is the first one after the deletion
    apiserver.transport.break_watches("endpoints")
    await asyncio.sleep(20)
    assert addresses(apiserver) == ["10.1.0.1"]


async def test_uncached_endpoints_of_a_deleted_service_are_deleted_by_uid(apiserver):
    await silence_watch(apiserver)
    create_service(apiserver)
    await asyncio.sleep(2)
    uid = endpoints(apiserver)["metadata"]["uid"]
    apiserver.api.succeed("DELETE", SERVICES.path("ns", "web"))
    await asyncio.sleep(2)
    deletions = [body for method, path, body in apiserver.requests if method == "DELETE" and path.endswith("/web")]
    assert [body["preconditions"] for body in deletions] == [{"uid": uid}]
    assert endpoints(apiserver) is None


@pytest.mark.parametrize("cached", [True, False])
async def test_endpoints_that_are_gone_before_their_deletion_are_no_error(apiserver, cached):
    if not cached:
        await silence_watch(apiserver)
    create_service(apiserver)
    await asyncio.sleep(2)
    method = "DELETE" if cached else "GET"
    sent = []

    def delete_first(request: SentRequest) -> None:
        if (request.method, request.path) == (method, ENDPOINTS.path("ns", "web")):
            sent.append(request)
            apiserver.store.delete(ENDPOINTS, "ns", "web")

    apiserver.transport.on_send = delete_first
    apiserver.api.succeed("DELETE", SERVICES.path("ns", "web"))
    await asyncio.sleep(30)
    assert len(sent) == 1
    assert not any(apiserver.metrics.values("kubeloop_reconcile_errors").values())


@pytest.mark.parametrize(("method", "reason"), [("POST", "FailedToCreateEndpoint"), ("PUT", "FailedToUpdateEndpoint")])
async def test_failed_write_has_an_event_and_is_repeated(apiserver, method, reason):
    if method == "PUT":
        create_service(apiserver)
        await asyncio.sleep(2)
    apiserver.transport.reject = lambda sent, path: (
        errors.internal_error("etcd") if sent == method and "/endpoints" in path else None
    )
    if method == "POST":
        create_service(apiserver)
    create_pod(apiserver, 1)
    await asyncio.sleep(5)
    assert {event.reason for event in apiserver.context.events.events} == {reason}
    apiserver.transport.reject = lambda method, path: None
    await asyncio.sleep(30)
    assert addresses(apiserver) == ["10.1.0.2"]


async def silence_watch(api: Any) -> None:
    api.transport.watch_faults.append(WatchFault("silence", resource="endpoints"))
    api.transport.break_watches("endpoints")
    await asyncio.sleep(2)


async def test_deleted_service_is_forgotten(fake_apiserver, start):
    controller = EndpointsController(structs.replace(fake_apiserver.context, options=default_options()))
    await start(fake_apiserver.informers, controller)
    create_service(fake_apiserver)
    await asyncio.sleep(2)
    await silence_watch(fake_apiserver)
    create_pod(fake_apiserver, 1)
    await asyncio.sleep(5)
    with pytest.raises(StaleCache):
        controller._consistency.ensure_ready("ns/web")
    fake_apiserver.api.succeed("DELETE", SERVICES.path("ns", "web"))
    await asyncio.sleep(5)
    controller._consistency.ensure_ready("ns/web")
    assert controller._trigger_times._times == {}
    assert controller.queue.pop_reasons("ns/web") == "retry or time", "no reason of an earlier event"
