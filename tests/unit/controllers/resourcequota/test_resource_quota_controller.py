"""The resource quota controller with the development API server, in virtual time; no other controller runs."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import pytest

from kubeloop.controllers.resourcequota.resource_quota_controller import ResourceQuotaController, _namespace
from kubeloop.kube.client.api_client import PatchType
from kubeloop.kube.errors import NotFound, ServerUnreachable
from kubeloop.kube.objects.api_types import Pod, convert
from kubeloop.kube.objects.resources import (
    CONFIG_MAPS,
    DEVICE_CLASSES,
    PERSISTENT_VOLUME_CLAIMS,
    PODS,
    RESOURCE_CLAIMS,
    RESOURCE_QUOTAS,
    SECRETS,
    SERVICES,
    Resource,
)
from kubeloop.testing.in_memory import MemoryCluster, memory_cluster
from kubeloop.testing.virtual_time import VirtualClock
from support.apiserver.faulty_transport import injected_error

pytestmark = pytest.mark.virtual_time

JSON = dict[str, Any]
DEFINITION = {
    "apiVersion": "apiextensions.k8s.io/v1",
    "kind": "CustomResourceDefinition",
    "metadata": {"name": "widgets.example.com"},
    "spec": {
        "group": "example.com",
        "names": {"kind": "Widget", "plural": "widgets", "singular": "widget"},
        "scope": "Namespaced",
        "versions": [
            {
                "name": "v1",
                "served": True,
                "storage": True,
                "schema": {"openAPIV3Schema": {"type": "object", "x-kubernetes-preserve-unknown-fields": True}},
            }
        ],
    },
}
DEFINITIONS: Resource[JSON] = Resource(
    "apiextensions.k8s.io", "v1", "CustomResourceDefinition", "customresourcedefinitions", False, dict
)
WIDGETS: Resource[JSON] = Resource("example.com", "v1", "Widget", "widgets", True, dict)


@pytest.fixture
async def cluster(clock: VirtualClock) -> AsyncIterator[MemoryCluster]:
    async with memory_cluster(controllers="resourcequota", nodes=0, clock=clock) as api:
        yield api


async def create(cluster: MemoryCluster, resource: Resource[Any], name: str, **fields: Any) -> None:
    body = {"apiVersion": resource.api_version, "kind": resource.kind, "metadata": {"name": name}, **fields}
    await cluster.client.create_raw(resource, body, "default" if resource.namespaced else "")


async def patch(cluster: MemoryCluster, resource: Resource[Any], name: str, body: JSON, subresource: str = "") -> None:
    await cluster.client.patch(resource, name, body, PatchType.MERGE, "default", subresource=subresource)


async def limit(cluster: MemoryCluster, name: str = "q", *, scopes: JSON | None = None, **hard: str) -> None:
    await create(cluster, RESOURCE_QUOTAS, name, spec={"hard": hard, **(scopes or {})})
    await asyncio.sleep(2)


def used(cluster: MemoryCluster, name: str = "q") -> dict[str, str]:
    quota = cluster.api.store.get(RESOURCE_QUOTAS, "default", name)
    assert quota is not None
    assert quota["status"]["hard"] == quota["spec"]["hard"]
    amounts: dict[str, str] = quota["status"]["used"]
    return amounts


def pod(requests: JSON | None = None, limits: JSON | None = None, **spec: Any) -> JSON:
    resources = {"requests": requests or {}, "limits": limits or {}}
    return {**spec, "containers": [{"name": "main", "image": "app:1", "resources": resources}]}


PORTS = [{"name": "a", "port": 80}, {"name": "b", "port": 81}]


def claim(storage: str, storage_class: str) -> JSON:
    resources = {"requests": {"storage": storage}}
    return {"accessModes": ["ReadWriteOnce"], "storageClassName": storage_class, "resources": resources}


async def test_existing_objects_are_counted_for_every_quota_name(cluster):
    extended = {"example.com/gpu": "2", "hugepages-2Mi": "4Mi"}
    requested = {"cpu": "250m", "memory": "1Gi", "ephemeral-storage": "1Gi", **extended}
    allowed = {"cpu": "1", "memory": "2Gi", "ephemeral-storage": "2Gi", **extended}
    await create(cluster, PODS, "one", spec=pod(requested, allowed))
    await create(cluster, PODS, "two", spec=pod({"cpu": "1"}))
    await create(cluster, SERVICES, "inside", spec={"ports": PORTS})
    await create(cluster, SERVICES, "ported", spec={"ports": PORTS, "type": "NodePort"})
    await create(cluster, SERVICES, "balanced", spec={"ports": PORTS[:1], "type": "LoadBalancer"})
    await create(cluster, PERSISTENT_VOLUME_CLAIMS, "slow", spec=claim("1Gi", "slow"))
    await create(cluster, PERSISTENT_VOLUME_CLAIMS, "fast", spec=claim("2Gi", "fast"))
    await create(cluster, SECRETS, "s")
    await create(cluster, CONFIG_MAPS, "c")
    hard = {
        **dict.fromkeys(
            ("pods", "count/pods", "cpu", "requests.cpu", "limits.cpu", "memory", "limits.memory"), "100Gi"
        ),
        **dict.fromkeys(("requests.ephemeral-storage", "limits.ephemeral-storage"), "100Gi"),
        **dict.fromkeys(("requests.example.com/gpu", "hugepages-2Mi", "requests.hugepages-2Mi"), "100Gi"),
        **dict.fromkeys(("services", "services.nodeports", "services.loadbalancers", "count/services"), "100"),
        **dict.fromkeys(("persistentvolumeclaims", "requests.storage", "count/persistentvolumeclaims"), "100Gi"),
        "fast.storageclass.storage.k8s.io/requests.storage": "10Gi",
        "fast.storageclass.storage.k8s.io/persistentvolumeclaims": "10",
        **dict.fromkeys(("secrets", "configmaps", "count/configmaps", "resourcequotas", "replicationcontrollers"), "9"),
        **dict.fromkeys(("count/deployments.apps", "count/jobs.batch"), "9"),
    }
    await limit(cluster, **hard)
    root_certificates = len(cluster.api.store.list(CONFIG_MAPS, "default")) - 1
    assert used(cluster) == {
        "pods": "2",
        "count/pods": "2",
        "cpu": "1250m",
        "requests.cpu": "1250m",
        "limits.cpu": "1",
        "memory": "1Gi",
        "limits.memory": "2Gi",
        "requests.ephemeral-storage": "1Gi",
        "limits.ephemeral-storage": "2Gi",
        "requests.example.com/gpu": "2",
        "hugepages-2Mi": "4Mi",
        "requests.hugepages-2Mi": "4Mi",
        "services": str(len(cluster.api.store.list(SERVICES, "default"))),
        "services.nodeports": "3",
        "services.loadbalancers": "1",
        "count/services": str(len(cluster.api.store.list(SERVICES, "default"))),
        "persistentvolumeclaims": "2",
        "requests.storage": "3Gi",
        "count/persistentvolumeclaims": "2",
        "fast.storageclass.storage.k8s.io/requests.storage": "2Gi",
        "fast.storageclass.storage.k8s.io/persistentvolumeclaims": "1",
        "secrets": "1",
        "configmaps": str(root_certificates + 1),
        "count/configmaps": str(root_certificates + 1),
        "resourcequotas": "1",
        "replicationcontrollers": "0",
        "count/deployments.apps": "0",
        "count/jobs.batch": "0",
    }


async def test_deleted_objects_decrease_usage(cluster):
    await limit(cluster, pods="2", **{"requests.cpu": "1", "secrets": "1"})
    for name in ("one", "two"):
        await create(cluster, PODS, name, spec=pod({"cpu": "400m"}))
    await create(cluster, SECRETS, "s")
    assert used(cluster) == {"pods": "2", "requests.cpu": "800m", "secrets": "1"}
    await cluster.client.delete(PODS, "one", "default", grace_period_seconds=0)
    await cluster.client.delete(SECRETS, "s", "default")
    await asyncio.sleep(1)
    assert used(cluster) == {"pods": "1", "requests.cpu": "400m", "secrets": "0"}


@pytest.mark.parametrize("phase", ["Succeeded", "Failed"])
async def test_finished_pod_counts_for_count_pods_only(cluster, phase):
    await limit(cluster, pods="2", **{"requests.cpu": "1", "count/pods": "2"})
    await create(cluster, PODS, "job", spec=pod({"cpu": "1"}))
    await patch(cluster, PODS, "job", {"status": {"phase": phase}}, "status")
    await asyncio.sleep(1)
    assert used(cluster) == {"pods": "0", "requests.cpu": "0", "count/pods": "1"}


async def test_stuck_terminating_pod_is_released_by_resync(cluster, clock):
    await limit(cluster, pods="1")
    await create(cluster, PODS, "lost", spec=pod(nodeName="gone"))
    await patch(cluster, PODS, "lost", {"metadata": {"finalizers": ["example.com/hold"]}})
    await cluster.client.delete(PODS, "lost", "default", grace_period_seconds=20)
    await asyncio.sleep(10)
    assert used(cluster) == {"pods": "1"}
    await asyncio.sleep(330)
    assert used(cluster) == {"pods": "0"}


async def test_updated_service_releases_node_ports(cluster):
    await limit(cluster, **{"services.nodeports": "5", "services.loadbalancers": "1"})
    await create(cluster, SERVICES, "web", spec={"ports": PORTS, "type": "LoadBalancer"})
    assert used(cluster) == {"services.nodeports": "2", "services.loadbalancers": "1"}
    await patch(cluster, SERVICES, "web", {"spec": {"type": "NodePort"}})
    await asyncio.sleep(1)
    assert used(cluster) == {"services.nodeports": "2", "services.loadbalancers": "0"}
    await patch(cluster, SERVICES, "web", {"spec": {"ports": PORTS[:1]}})
    await asyncio.sleep(1)
    assert used(cluster) == {"services.nodeports": "1", "services.loadbalancers": "0"}


async def test_scopes_select_the_counted_pods(cluster):
    for name, scopes in {
        "best-effort": {"scopes": ["BestEffort"]},
        "terminating": {"scopes": ["Terminating"]},
        "urgent": {
            "scopeSelector": {
                "matchExpressions": [
                    {"scopeName": "PriorityClass", "operator": "In", "values": ["system-node-critical"]}
                ]
            }
        },
    }.items():
        await limit(cluster, name, scopes=scopes, pods="5")
    await create(cluster, PODS, "plain", spec=pod())
    await create(cluster, PODS, "short", spec=pod({"cpu": "1"}, activeDeadlineSeconds=600))
    await create(cluster, PODS, "urgent", spec=pod({"cpu": "1"}, priorityClassName="system-node-critical"))
    assert [used(cluster, name)["pods"] for name in ("best-effort", "terminating", "urgent")] == ["1", "1", "1"]
    for name in ("plain", "short", "urgent"):
        await cluster.client.delete(PODS, name, "default", grace_period_seconds=0)
    await asyncio.sleep(1)
    assert [used(cluster, name)["pods"] for name in ("best-effort", "terminating", "urgent")] == ["0", "0", "0"]


async def test_changed_limits_are_recounted_and_removed_ones_dropped(cluster):
    await create(cluster, PODS, "one", spec=pod({"cpu": "1"}))
    await limit(cluster, pods="5")
    assert used(cluster) == {"pods": "1"}
    await patch(cluster, RESOURCE_QUOTAS, "q", {"spec": {"hard": {"pods": None, "requests.cpu": "3"}}})
    await asyncio.sleep(1)
    assert used(cluster) == {"requests.cpu": "1"}


async def test_custom_resources_are_counted_once_served(cluster):
    await limit(cluster, pods="3", **{"count/widgets.example.com": "3"})
    quota = cluster.api.store.get(RESOURCE_QUOTAS, "default", "q")
    assert quota["status"]["used"] == {"pods": "0"}
    await create(cluster, DEFINITIONS, DEFINITION["metadata"]["name"], spec=DEFINITION["spec"])
    await asyncio.sleep(3)
    assert used(cluster) == {"pods": "0", "count/widgets.example.com": "0"}
    await create(cluster, WIDGETS, "w")
    assert used(cluster)["count/widgets.example.com"] == "1"
    await cluster.client.delete(WIDGETS, "w", "default")
    await asyncio.sleep(1)
    assert used(cluster)["count/widgets.example.com"] == "0"


async def test_cluster_scoped_kinds_are_not_counted(cluster):
    await limit(cluster, **{f"count/{kind}": "3" for kind in ("configmaps", "namespaces", "nodes")})
    quota = cluster.api.store.get(RESOURCE_QUOTAS, "default", "q")
    assert list(quota["status"]["used"]) == ["count/configmaps"]


async def test_only_kinds_limited_by_a_quota_are_watched(cluster):
    def watched() -> dict[str, int]:
        return {
            informer.resource.group_resource: len(informer._registrations)
            for informer in cluster.plane.informers.informers
        }

    before = watched()
    assert before == {"pods": 1, "resourcequotas": 1, "deployments.apps": 0}  # traces follow pods, tests Deployments
    await limit(cluster, "secrets", secrets="3")
    assert watched() == {**before, "secrets": 1}
    await limit(cluster, "pods", pods="3", **{"count/deployments.apps": "3"})
    assert watched() == {
        "pods": 2,
        "resourcequotas": 1,
        "secrets": 1,
        "deployments.apps": 1,
        "customresourcedefinitions.apiextensions.k8s.io": 1,
    }
    for name in ("secrets", "pods"):
        await cluster.client.delete(RESOURCE_QUOTAS, name, "default")
    await asyncio.sleep(1)
    assert watched() == before


async def test_quota_deleted_during_count_leaves_no_state(cluster, monkeypatch):
    await create(cluster, RESOURCE_QUOTAS, "first", spec={"hard": {"pods": "9"}})  # starts the controller
    await asyncio.sleep(1)
    await cluster.client.delete(RESOURCE_QUOTAS, "first", "default")
    registrations = cluster.plane.informers.informer(RESOURCE_QUOTAS)._registrations
    handlers = [registration.handler._on_update for registration in registrations]  # type: ignore[attr-defined]
    (controller,) = [handler.__self__ for handler in handlers if isinstance(handler.__self__, ResourceQuotaController)]
    written = cluster.plane.client.patch

    async def deleted_meanwhile(*arguments: Any, **options: Any) -> Any:
        response = await written(*arguments, **options)
        await cluster.client.delete(RESOURCE_QUOTAS, "q", "default")
        await asyncio.sleep(1)
        return response

    monkeypatch.setattr(cluster.plane.client, "patch", deleted_meanwhile)
    await limit(cluster, pods="3", secrets="5")
    await asyncio.sleep(3)
    with pytest.raises(NotFound):
        await cluster.client.get(RESOURCE_QUOTAS, "q", "default")
    assert (controller._object_counts, controller._written_at) == ({}, {})
    assert "secrets" not in {informer.resource.group_resource for informer in cluster.plane.informers.informers}


async def test_quota_that_is_gone_before_its_status_is_written_is_no_error(cluster, monkeypatch, caplog):
    written = cluster.plane.client.patch
    patches = []

    async def delete_first(resource: Resource[Any], name: str, *arguments: Any, **options: Any) -> Any:
        await cluster.client.delete(RESOURCE_QUOTAS, name, "default")
        patches.append(name)
        return await written(resource, name, *arguments, **options)

    monkeypatch.setattr(cluster.plane.client, "patch", delete_first)
    await limit(cluster, pods="3")
    assert patches == ["q"]
    assert caplog.messages == []


async def test_correct_status_is_not_written(cluster):
    await limit(cluster, pods="3", **{"count/nothing.example.com": "1"})
    await create(cluster, PODS, "one", spec=pod())
    revision = cluster.api.store.revision
    await asyncio.sleep(700)  # two resyncs, and many rounds of discovery
    assert cluster.api.store.revision == revision


@pytest.mark.parametrize("lag_seconds", [0.5, 10.0])
async def test_count_from_stale_cache_is_corrected(cluster, monkeypatch, lag_seconds):
    await create(cluster, SECRETS, "s")
    await limit(cluster, pods="5", secrets="5")
    informer, held_events = cluster.plane.informers.informer(PODS), []
    with monkeypatch.context() as late:
        late.setattr(informer, "apply", lambda *event: held_events.append(event))
        await create(cluster, PODS, "unseen", spec=pod())
        await asyncio.sleep(0.1)
        await cluster.client.delete(SECRETS, "s", "default")
        await asyncio.sleep(lag_seconds)
        assert used(cluster) == {"pods": "0", "secrets": "0"}
    for event in held_events:
        informer.apply(*event)
    await asyncio.sleep(2)
    assert used(cluster) == {"pods": "1", "secrets": "0"}


async def test_recount_after_a_write_does_not_decrease_usage(cluster, monkeypatch):
    await create(cluster, SECRETS, "s")
    await limit(cluster, pods="5", secrets="5")
    monkeypatch.setattr(cluster.plane.informers.informer(PODS), "apply", lambda *event: None)
    await cluster.client.delete(SECRETS, "s", "default")
    await asyncio.sleep(0.5)
    assert used(cluster) == {"pods": "0", "secrets": "0"}
    await create(cluster, PODS, "unseen", spec=pod())
    await asyncio.sleep(3)
    assert used(cluster) == {"pods": "1", "secrets": "0"}


async def test_repeated_first_count_does_not_decrease_usage(cluster, monkeypatch):
    send = cluster.plane.client.patch

    async def lose_answer(*arguments: Any, **options: Any) -> Any:
        monkeypatch.setattr(cluster.plane.client, "patch", send)
        await send(*arguments, **options)
        monkeypatch.setattr(cluster.plane.informers.informer(PODS), "apply", lambda *event: None)
        await create(cluster, PODS, "unseen", spec=pod())
        raise ServerUnreachable("the answer is lost")

    monkeypatch.setattr(cluster.plane.client, "patch", lose_answer)
    await limit(cluster, pods="5")
    assert used(cluster) == {"pods": "1"}


async def test_pod_observed_during_status_write_is_recounted(cluster, monkeypatch):
    await create(cluster, SECRETS, "s")
    await limit(cluster, pods="5", secrets="5")
    informer, held_events = cluster.plane.informers.informer(PODS), []
    send = cluster.plane.client.patch

    async def release_and_send(*arguments: Any, **options: Any) -> Any:
        late.undo()
        for event in held_events:
            informer.apply(*event)
        return await send(*arguments, **options)

    with monkeypatch.context() as late:
        late.setattr(informer, "apply", lambda *event: held_events.append(event))
        late.setattr(cluster.plane.client, "patch", release_and_send)
        await asyncio.sleep(70)  # longer than the recount window after the last write
        await create(cluster, PODS, "unseen", spec=pod())
        await asyncio.sleep(0.1)
        await cluster.client.delete(SECRETS, "s", "default")
        await asyncio.sleep(0.5)
        assert held_events
        assert used(cluster) == {"pods": "0", "secrets": "0"}
    await asyncio.sleep(2)
    assert used(cluster) == {"pods": "1", "secrets": "0"}


@pytest.mark.parametrize(
    ("resource", "name", "usage"),
    [
        (SECRETS, "secrets", "1"),
        (DEVICE_CLASSES, "requests.example.com/gpu", "2"),
        (PODS, "requests.example.com/gpu", "2"),
    ],
)
async def test_objects_are_not_counted_before_they_are_listed(fake_apiserver, start, resource, name, usage):
    """Usage without the objects that exist would allow more of them than the quota does."""
    api = fake_apiserver.api
    fake_apiserver.add(SECRETS, "s")
    device_class = {"metadata": {"name": "gpu"}, "spec": {"extendedResourceName": "example.com/gpu"}}
    api.create(DEVICE_CLASSES.path(), device_class)
    requests = [{"name": "r", "exactly": {"deviceClassName": "gpu", "count": 2}}]
    api.create(RESOURCE_CLAIMS.path("ns"), {"metadata": {"name": "c"}, "spec": {"devices": {"requests": requests}}})
    api.create(RESOURCE_QUOTAS.path("ns"), {"metadata": {"name": "q"}, "spec": {"hard": {name: "5", "services": "5"}}})
    fake_apiserver.transport.reject = lambda method, path: injected_error(500) if path == resource.path() else None
    await start(fake_apiserver.informers, ResourceQuotaController(fake_apiserver.context))

    def used() -> JSON:
        status: JSON = fake_apiserver.store.get(RESOURCE_QUOTAS, "ns", "q")["status"]
        return status["used"]

    await asyncio.sleep(100)
    assert used() == {"services": "0"}
    fake_apiserver.transport.reject = lambda method, path: None
    await asyncio.sleep(100)
    assert used() == {"services": "0", name: usage}


async def test_status_without_usage_is_counted_at_once(cluster):
    await create(cluster, PODS, "one", spec=pod())
    await limit(cluster, pods="3")
    await asyncio.sleep(70)  # longer than the recount window after the last write
    await patch(cluster, RESOURCE_QUOTAS, "q", {"status": {"used": {"pods": None}}}, "status")
    await asyncio.sleep(1)
    assert used(cluster) == {"pods": "1"}


async def test_queues_of_new_and_counted_quotas(fake_apiserver, start):
    """Quotas without usage are not delayed by recounts, and usage that admission has written causes no recount."""

    def adds() -> tuple[float, float]:
        added = fake_apiserver.metrics.values("workqueue_adds_total")
        return added[",resourcequota_priority"], added[",resourcequota_primary"]

    await start(fake_apiserver.informers, ResourceQuotaController(fake_apiserver.context))
    hard = {"pods": "5", "count/nothing.example.com": "1"}
    fake_apiserver.api.create(RESOURCE_QUOTAS.path("ns"), {"metadata": {"name": "q"}, "spec": {"hard": hard}})
    await asyncio.sleep(70)  # longer than the recount window after the last write
    priority, primary = adds()
    assert priority > 0
    fake_apiserver.add(PODS, "p")
    await asyncio.sleep(5)
    assert fake_apiserver.store.get(RESOURCE_QUOTAS, "ns", "q")["status"]["used"] == {"pods": "1"}
    assert adds() == (priority, primary)
    fake_apiserver.delete(PODS, "p")
    await asyncio.sleep(5)
    assert fake_apiserver.store.get(RESOURCE_QUOTAS, "ns", "q")["status"]["used"] == {"pods": "0"}
    assert adds()[0] == priority
    assert adds()[1] > primary


async def test_decrease_waits_for_the_increase_before_it(fake_apiserver, start):
    """Otherwise it would be compared with the usage before both, and never be written."""
    await start(fake_apiserver.informers, ResourceQuotaController(fake_apiserver.context))
    fake_apiserver.api.create(RESOURCE_QUOTAS.path("ns"), {"metadata": {"name": "q"}, "spec": {"hard": {"pods": "5"}}})
    await asyncio.sleep(5)

    def used() -> JSON:
        status: JSON = fake_apiserver.store.get(RESOURCE_QUOTAS, "ns", "q")["status"]
        return status["used"]

    watch = RESOURCE_QUOTAS.path()
    fake_apiserver.transport.reject = lambda method, path: injected_error(500) if path == watch else None
    fake_apiserver.transport.break_watches("resourcequotas")
    metadata = {"name": "p", "namespace": "ns", "uid": "p"}
    fake_apiserver.store.create(PODS, {"metadata": metadata, "spec": pod(), "status": {}})  # not counted by admission
    await asyncio.sleep(3)
    assert used() == {"pods": "1"}
    fake_apiserver.delete(PODS, "p")
    await asyncio.sleep(3)
    fake_apiserver.transport.reject = lambda method, path: None
    await asyncio.sleep(100)
    assert used() == {"pods": "0"}


async def test_wrong_status_is_corrected_by_resync(cluster):
    await create(cluster, PODS, "one", spec=pod())
    await limit(cluster, pods="3")
    await patch(cluster, RESOURCE_QUOTAS, "q", {"status": {"used": {"pods": "3"}}}, "status")
    await asyncio.sleep(310)
    assert used(cluster) == {"pods": "1"}


@pytest.mark.parametrize(
    ("obj", "namespace"),
    [
        ({"metadata": {"namespace": "ns"}}, "ns"),
        ({"metadata": {}}, ""),
        ({"metadata": None}, ""),
        ({}, ""),
        (convert(Pod, {"metadata": {"name": "p", "namespace": "ns"}}), "ns"),
    ],
)
def test_namespace_of_a_cached_object(obj, namespace):
    assert _namespace(obj) == namespace
