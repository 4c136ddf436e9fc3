"""The EndpointSlice controller with an API server in memory, in virtual time."""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime
from itertools import chain
from typing import Any

import pytest
from msgspec import structs

from kubeloop.controllers.endpointslice import endpoint_slice_controller
from kubeloop.controllers.endpointslice.endpoint_slice_controller import EndpointSliceController
from kubeloop.devcluster.api import errors
from kubeloop.kube.feature_gates import FeatureGates
from kubeloop.kube.objects.api_types import Node, Service, convert
from kubeloop.kube.objects.resources import ENDPOINT_SLICES, NODES, PODS, SERVICES
from kubeloop.process.control_plane.controller_table import default_options
from support.apiserver.fake_apiserver import FakeApiServer
from support.apiserver.faulty_transport import WatchFault

pytestmark = pytest.mark.virtual_time
ZONE = "topology.kubernetes.io/zone"


@pytest.fixture
async def apiserver(fake_apiserver, start):
    options = {**default_options(), "max_endpoints_per_slice": 3}
    context = structs.replace(fake_apiserver.context, options=options)
    for number in range(2):
        fake_apiserver.add(NODES, f"node-{number}", namespace="", labels={ZONE: f"zone-{number}"})
        status = {"allocatable": {"cpu": "4"}, "conditions": [{"type": "Ready", "status": "True"}]}
        patch(fake_apiserver, NODES, f"node-{number}", {"status": status}, namespace="", subresource="status")
    await start(fake_apiserver.informers, EndpointSliceController(context))
    return fake_apiserver


def patch(api: Any, resource: Any, name: str, body: Any, *, namespace: str = "ns", subresource: str = "") -> None:
    path = resource.path(namespace, name, subresource)
    api.api.succeed("PATCH", path, body, content_type="application/merge-patch+json")


def create_service(api: Any, name: str = "web", *, annotations: Any = None, **spec: Any) -> None:
    body = {
        "metadata": {"name": name, "labels": {"team": "x"}, "annotations": annotations or {}},
        "spec": {"selector": {"app": "web"}, "ports": [{"port": 80, "targetPort": 8080}], **spec},
    }
    api.api.create(SERVICES.path("ns"), body)


def create_pod(api: Any, number: int, *, ready: bool = True) -> None:
    spec = {"nodeName": f"node-{number % 2}", "containers": [{"name": "main", "image": "app:1"}]}
    api.api.create(PODS.path("ns"), {"metadata": {"name": f"p{number}", "labels": {"app": "web"}}, "spec": spec})
    conditions = [{"type": "Ready", "status": str(ready), "lastTransitionTime": "2026-01-01T00:00:05Z"}]
    address = f"10.1.0.{number}"
    status = {"phase": "Running", "podIP": address, "podIPs": [{"ip": address}], "conditions": conditions}
    patch(api, PODS, f"p{number}", {"status": status}, subresource="status")


def slices(api: Any) -> list[Any]:
    return [it for it in api.objects(ENDPOINT_SLICES) if it["metadata"]["namespace"] == "ns"]


def addresses(api: Any) -> list[list[str]]:
    return sorted(sorted(it["addresses"][0] for it in current["endpoints"] or ()) for current in slices(api))


async def test_service_without_pods_has_placeholder(apiserver):
    create_service(apiserver)
    await asyncio.sleep(1)
    (placeholder,) = slices(apiserver)
    assert placeholder["metadata"]["name"].startswith("web-")
    assert placeholder["metadata"]["labels"] == {
        "team": "x",
        "kubernetes.io/service-name": "web",
        "endpointslice.kubernetes.io/managed-by": "endpointslice-controller.k8s.io",
    }
    assert "endpoints.kubernetes.io/last-change-trigger-time" in placeholder["metadata"]["annotations"]
    assert (placeholder["addressType"], placeholder["endpoints"] or []) == ("IPv4", [])


async def test_slices_follow_pods(apiserver):
    create_service(apiserver)
    for number in range(1, 8):
        create_pod(apiserver, number)
    await asyncio.sleep(5)
    assert sorted(chain(*addresses(apiserver))) == [f"10.1.0.{number}" for number in range(1, 8)]
    assert max(map(len, addresses(apiserver))) == 3
    endpoint = next(it for current in slices(apiserver) for it in current["endpoints"] if "10.1.0.1" in it["addresses"])
    assert (endpoint["nodeName"], endpoint["zone"]) == ("node-1", "zone-1")
    assert endpoint["conditions"] == {"ready": True, "serving": True, "terminating": False}
    for number in range(1, 7):
        apiserver.delete(PODS, f"p{number}", gracePeriodSeconds=0)
    await asyncio.sleep(5)
    assert addresses(apiserver) == [["10.1.0.7"]]


async def test_unready_and_terminating_pods_are_not_ready(apiserver):
    create_service(apiserver)
    create_pod(apiserver, 1, ready=False)
    create_pod(apiserver, 2)
    await asyncio.sleep(2)
    apiserver.api.succeed("DELETE", PODS.path("ns", "p2"), {"gracePeriodSeconds": 30})
    await asyncio.sleep(2)
    (current,) = slices(apiserver)
    conditions = {it["addresses"][0]: it["conditions"] for it in current["endpoints"]}
    assert conditions == {
        "10.1.0.1": {"ready": False, "serving": False, "terminating": False},
        "10.1.0.2": {"ready": False, "serving": True, "terminating": True},
    }


async def test_services_without_selector_or_of_type_external_name_have_no_slices(apiserver):
    create_service(apiserver, selector=None)
    create_service(apiserver, "alias", type="ExternalName", externalName="example.com")
    await asyncio.sleep(2)
    assert slices(apiserver) == []


async def test_deleted_and_changed_slices_are_restored(apiserver):
    create_service(apiserver)
    create_pod(apiserver, 1)
    await asyncio.sleep(2)
    (current,) = slices(apiserver)
    apiserver.api.succeed("DELETE", ENDPOINT_SLICES.path("ns", current["metadata"]["name"]))
    await asyncio.sleep(5)
    (restored,) = slices(apiserver)
    assert addresses(apiserver) == [["10.1.0.1"]]
    patch(apiserver, ENDPOINT_SLICES, restored["metadata"]["name"], {"endpoints": []})
    await asyncio.sleep(5)
    assert addresses(apiserver) == [["10.1.0.1"]]


async def test_failed_sync_has_an_event_and_is_counted_and_repeated(apiserver):
    apiserver.transport.reject = lambda method, path: (
        errors.internal_error("etcd") if (method, path) == ("POST", ENDPOINT_SLICES.path("ns")) else None
    )
    before = apiserver.metrics.values("endpoint_slice_controller_syncs")[",success"]
    create_service(apiserver)
    create_pod(apiserver, 1)
    await asyncio.sleep(2)
    assert "FailedToUpdateEndpointSlices" in {event.reason for event in apiserver.context.events.events}
    failed = apiserver.metrics.values("endpoint_slice_controller_syncs")
    assert failed[",error"] > 0
    assert failed[",success"] == before
    apiserver.transport.reject = lambda method, path: None
    await asyncio.sleep(30)
    assert addresses(apiserver) == [["10.1.0.1"]]
    assert apiserver.metrics.values("endpoint_slice_controller_syncs")[",success"] > before


async def test_pod_of_missing_node_is_published_when_the_node_exists(apiserver):
    create_service(apiserver)
    create_pod(apiserver, 1)
    apiserver.api.succeed("DELETE", NODES.path("", "node-0"))
    create_pod(apiserver, 2)
    await asyncio.sleep(2)
    assert addresses(apiserver) == [["10.1.0.1"]]
    apiserver.add(NODES, "node-0", namespace="")
    await asyncio.sleep(60)
    assert addresses(apiserver) == [["10.1.0.1", "10.1.0.2"]]
    assert {event.message for event in apiserver.context.events.events} == {
        "Error updating Endpoint Slices for Service ns/web: skipping Pod p2 for Service ns/web: Node node-0 Not Found"
    }


async def test_hints_follow_annotation_and_nodes(apiserver):
    create_service(apiserver, annotations={"service.kubernetes.io/topology-mode": "Auto"})
    for number in range(1, 5):
        create_pod(apiserver, number)
    await asyncio.sleep(5)

    def zones() -> list[Any]:
        endpoints = [it for current in slices(apiserver) for it in current["endpoints"]]
        return sorted(it["hints"]["forZones"][0]["name"] if "hints" in it else "" for it in endpoints)

    assert zones() == ["zone-0", "zone-0", "zone-1", "zone-1"]
    patch(apiserver, NODES, "node-0", {"metadata": {"labels": {ZONE: None}}}, namespace="")
    await asyncio.sleep(2)
    assert zones() == ["", "", "", ""]


async def test_traffic_distribution_sets_hints(apiserver):
    create_service(apiserver, trafficDistribution="PreferSameNode")
    create_pod(apiserver, 1)
    await asyncio.sleep(2)
    (current,) = slices(apiserver)
    assert current["endpoints"][0]["hints"] == {"forZones": [{"name": "zone-1"}], "forNodes": [{"name": "node-1"}]}
    patch(apiserver, SERVICES, "web", {"spec": {"trafficDistribution": None}})
    await asyncio.sleep(2)
    (current,) = slices(apiserver)
    assert "hints" not in current["endpoints"][0]


async def test_metrics_count_syncs_and_changes(apiserver):
    create_service(apiserver, trafficDistribution="PreferClose")
    await asyncio.sleep(5)
    create_pod(apiserver, 1)
    await asyncio.sleep(5)
    values = apiserver.metrics.values("endpoint_slice_controller_")
    counts = {name: value for name, value in values.items() if not name.startswith(("syncs", "endpoint"))}
    assert counts == {
        "changes,create": 1,  # a placeholder, which gets the endpoint later
        "changes,update": 1,
        "num_endpoint_slices": 1,
        "desired_endpoint_slices": 1,
        "services_count_by_traffic_distribution,PreferClose": 1,
    }
    assert values["endpoints_desired"] == 1
    assert values["syncs,success"] >= values["endpointslices_changed_per_sync_count,Disabled,PreferClose"] >= 2
    assert values["endpoints_added_per_sync_count"] == values["endpoints_removed_per_sync_count"] >= 2


async def test_deleted_service_is_forgotten(fake_apiserver, start):
    controller = EndpointSliceController(structs.replace(fake_apiserver.context, options=default_options()))
    await start(fake_apiserver.informers, controller)
    create_service(fake_apiserver)
    await asyncio.sleep(2)
    controller._topology._hints["ns/web"] = {"IPv4", "IPv6"}
    assert "ns/web" in controller._trigger_times._times
    assert fake_apiserver.metrics.values("endpoint_slice_controller_")["num_endpoint_slices"] == 1
    assert controller._slices.tracker.is_stale("ns/web", [])
    fake_apiserver.delete(SERVICES, "web")
    await asyncio.sleep(2)
    assert controller._trigger_times._times == {}
    assert controller._topology._hints == {}
    assert fake_apiserver.metrics.values("endpoint_slice_controller_")["num_endpoint_slices"] == 0
    assert not controller._slices.tracker.is_stale("ns/web", [])
    assert controller.queue.pop_reasons("ns/web") == "retry or time", "no reason of an earlier event"


async def test_slices_of_other_address_types_are_deleted(apiserver):
    create_service(apiserver)
    create_pod(apiserver, 1)
    await asyncio.sleep(2)
    (current,) = slices(apiserver)
    metadata = {"name": "web-v6", "labels": current["metadata"]["labels"]}
    other = {"metadata": metadata, "addressType": "IPv6", "endpoints": [{"addresses": ["fd00::1"]}], "ports": []}
    apiserver.api.create(ENDPOINT_SLICES.path("ns"), other)
    await asyncio.sleep(5)
    assert slices(apiserver) == [current]


async def test_sync_waits_for_the_cache_of_its_slices(apiserver):
    create_service(apiserver)
    create_pod(apiserver, 1)
    await asyncio.sleep(2)
    apiserver.transport.watch_faults.append(WatchFault("silence", resource="endpointslices"))
    apiserver.transport.break_watches("endpointslices")
    create_pod(apiserver, 2)
    await asyncio.sleep(5)
    updates = len(apiserver.written("PUT"))
    create_pod(apiserver, 3)
    await asyncio.sleep(5)
    assert len(apiserver.written("PUT")) == updates, "the cache lacks the last update"
    assert apiserver.metrics.values("endpoint_slice_controller_syncs")[",stale"] > 0
    assert not apiserver.context.events.events


async def test_hints_are_reported_by_events(apiserver):
    create_service(apiserver, annotations={"service.kubernetes.io/topology-mode": "Auto"})
    for number in range(1, 5):
        create_pod(apiserver, number)
    await asyncio.sleep(5)
    reasons = [event.reason for event in apiserver.context.events.events]
    assert reasons[-1] == "TopologyAwareHintsEnabled"
    patch(apiserver, NODES, "node-0", {"metadata": {"labels": {ZONE: None}}}, namespace="")
    await asyncio.sleep(2)
    event = apiserver.context.events.events[-1]
    assert (event.type, event.reason) == ("Warning", "TopologyAwareHintsDisabled")


# --- events to keys, and pure decisions ------------------------------------------------------------------------------


def cluster_node(*, ready: str | None = "True", zone: str | None = "a", **labels: str) -> Node:
    """Return a node. ready: status of its condition Ready, None for none."""
    conditions = [{"type": "MemoryPressure", "status": "True"}]
    if ready is not None:
        conditions.append({"type": "Ready", "status": ready})
    zones = {} if zone is None else {ZONE: zone}
    metadata = {"name": "n", "uid": "n", "resourceVersion": "1", "labels": {**zones, **labels}}
    return convert(Node, {"metadata": metadata, "status": {"conditions": conditions}})


@pytest.mark.parametrize(
    ("old", "new", "enqueued"),
    [
        pytest.param(cluster_node(), cluster_node(), False, id="unchanged"),
        pytest.param(cluster_node(), cluster_node(team="x"), False, id="another label"),
        pytest.param(cluster_node(), cluster_node(zone="b"), True, id="another zone"),
        pytest.param(cluster_node(), cluster_node(zone=None), True, id="zone removed"),
        pytest.param(cluster_node(zone=None), cluster_node(), True, id="zone added"),
        pytest.param(cluster_node(), cluster_node(ready="False"), True, id="not ready"),
        pytest.param(cluster_node(ready="Unknown"), cluster_node(), True, id="ready"),
        pytest.param(cluster_node(ready="Unknown"), cluster_node(ready="False"), False, id="still not ready"),
        pytest.param(cluster_node(ready=None), cluster_node(ready="False"), False, id="condition added: not ready"),
        pytest.param(cluster_node(ready=None), cluster_node(), True, id="condition added: ready"),
        pytest.param(cluster_node(ready="False"), cluster_node(ready="False", zone="b"), True, id="zone, not ready"),
    ],
)
@pytest.mark.parametrize("services", [[], ["ns/a"], ["ns/a", "ns/b"]], ids=str)
async def test_node_change_enqueues_services_with_hints(fake_apiserver, old, new, enqueued, services):
    context = structs.replace(fake_apiserver.context, options=default_options())
    controller = EndpointSliceController(context)
    controller._topology._hints = {service: {"IPv4"} for service in services}
    nodes = context.informers.informer(NODES)
    added: list[str] = []
    controller.queue.add = lambda key, reason: added.append(f"{key}: {reason}")  # type: ignore[method-assign]
    expected = [f"{service}: nodes changed" for service in services]
    nodes.apply("ADDED", old, 0)
    assert added == expected
    added.clear()
    nodes.apply("MODIFIED", structs.replace(new, metadata=structs.replace(new.metadata, resource_version="2")), 0)
    assert added == (expected if enqueued else [])
    added.clear()
    nodes.apply("DELETED", new, 0)
    assert added == expected


CHANGED_AT = datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC)
TRIGGER_TIME = "endpoints.kubernetes.io/last-change-trigger-time"


@pytest.mark.parametrize(
    ("annotations", "changed_at", "expected"),
    [
        (None, None, {}),
        (None, CHANGED_AT, {TRIGGER_TIME: "2026-01-02T03:04:05Z"}),
        ({TRIGGER_TIME: "old"}, CHANGED_AT, {TRIGGER_TIME: "2026-01-02T03:04:05Z"}),
        ({TRIGGER_TIME: "old"}, None, {}),
        ({"a": "b", TRIGGER_TIME: "old"}, None, {"a": "b"}),
        ({"a": "b"}, CHANGED_AT, {"a": "b", TRIGGER_TIME: "2026-01-02T03:04:05Z"}),
    ],
)
def test_trigger_time_of_a_slice(annotations, changed_at, expected):
    metadata: dict[str, Any] = {"name": "s"} if annotations is None else {"name": "s", "annotations": annotations}
    before = None if annotations is None else dict(annotations)
    endpoint_slice = {"metadata": metadata}
    endpoint_slice_controller._set_trigger_time(endpoint_slice, changed_at)
    assert endpoint_slice["metadata"] == {"name": "s", "annotations": expected}
    assert annotations == before, "that of the cache does not change"


@pytest.mark.parametrize(
    ("distribution", "annotations", "gate", "effective"),
    [
        (None, {}, True, ""),
        ("PreferClose", {}, True, "PreferClose"),
        ("PreferClose", {}, False, "PreferClose"),
        ("PreferSameNode", {}, True, "PreferSameNode"),
        ("PreferSameZone", {}, True, "PreferSameZone"),
        ("PreferSameNode", {}, False, ""),
        ("Unknown", {}, True, ""),
        ("PreferClose", {"service.kubernetes.io/topology-mode": "Auto"}, True, ""),
        ("PreferClose", {"service.kubernetes.io/topology-mode": "Disabled"}, True, "PreferClose"),
    ],
)
async def test_traffic_distribution_that_applies_to_a_service(distribution, annotations, gate, effective):
    server = FakeApiServer(gates=FeatureGates({"PreferSameTrafficDistribution": gate}))
    controller = EndpointSliceController(structs.replace(server.context, options=default_options()))
    metadata = {"name": "web", "namespace": "ns", "annotations": annotations}
    service = convert(Service, {"metadata": metadata, "spec": {"trafficDistribution": distribution}})
    assert controller._distribution(service) == effective


async def test_deleted_service_gets_no_new_slices(apiserver):
    apiserver.transport.reject = lambda method, path: (
        errors.internal_error("etcd") if (method, path) == ("POST", ENDPOINT_SLICES.path("ns")) else None
    )
    create_service(apiserver)
    await asyncio.sleep(0.2)
    patch(apiserver, SERVICES, "web", {"metadata": {"finalizers": ["example.com/f"]}})
    apiserver.api.succeed("DELETE", SERVICES.path("ns", "web"))
    apiserver.transport.reject = lambda method, path: None
    create_pod(apiserver, 1)
    await asyncio.sleep(60)
    assert slices(apiserver) == []
