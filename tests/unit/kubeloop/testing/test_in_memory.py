"""Clusters in the test's process: parts, caches, and the report of a namespace."""

import asyncio
from random import Random
from typing import Any

import msgspec
import pytest

from kubeloop.controllers.api import Controller, For, Request, Watches, to_self
from kubeloop.devcluster.api.served_resources import BY_PATH, CLUSTER_ROLES
from kubeloop.devcluster.registry.preparation import drop_empty_lists
from kubeloop.devcluster.serializer.decoding import decode
from kubeloop.devcluster.serializer.defaulting import apply_defaults
from kubeloop.kube.client.api_client import PatchType
from kubeloop.kube.client.transport import HttpRequest
from kubeloop.kube.objects.api_types import Condition
from kubeloop.kube.objects.object_fields import condition_of
from kubeloop.kube.objects.resources import CONFIG_MAPS, LEASES, NODES
from kubeloop.testing import virtual_time
from kubeloop.testing.assembly import run_api_server
from kubeloop.testing.cluster_options import cluster_options
from kubeloop.testing.faults.cluster import first_error
from kubeloop.testing.in_memory import MemoryCluster, memory_cluster
from kubeloop.testing.memory_transport import MemoryTransport
from kubeloop.testing.report import report_lines
from kubeloop.testing.virtual_time import VirtualClock
from support.controllers.sites import CRD, Sites, site
from support.objects.manifests import deployment
from support.objects.role_bindings import binding

ROLE_BINDING = {"apiVersion": "rbac.authorization.k8s.io/v1", "kind": "RoleBinding"}

DEPLOYMENT = deployment(replicas=2)


def test_caches_show_the_deployment_its_pods_and_the_nodes():
    async def scenario() -> None:
        async with memory_cluster(clock=VirtualClock(), nodes=2) as cluster:
            await cluster.apply(DEPLOYMENT)
            await cluster.until(lambda: sum(bool(pod.spec.node_name) for pod in cluster.seen_pods()) == 2)
            deployment = cluster.seen_deployment("web")
            assert deployment is not None
            assert deployment.spec.replicas == 2
            assert len(cluster.seen_nodes()) == 2
            assert cluster.seen_deployment("other") is None
            assert cluster.seen_pods("other") == []

    virtual_time.run(scenario())


def test_objects_are_stored_decoded_and_with_defaults():
    """Patches of a status rely on it: they share the rest of the stored object, and apply defaults to the whole."""
    claim = {
        "apiVersion": "v1",
        "kind": "PersistentVolumeClaim",
        "metadata": {"name": "data"},
        "spec": {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}}},
    }

    async def scenario() -> None:
        async with memory_cluster(clock=VirtualClock(), nodes=2) as cluster:
            await cluster.apply(DEPLOYMENT, claim)
            await cluster.until(lambda: sum(bool(pod.spec.node_name) for pod in cluster.seen_pods()) == 2)
            await asyncio.sleep(60.0)
            stored = [
                (served, obj)
                for served in BY_PATH.values()
                if served.is_stored and served.storage_resource is None and served.resource.group != "events.k8s.io"
                for obj in cluster.api.store.list(served.resource)
            ]
            assert len(stored) > 100
            for served, obj in stored:
                decoded, unknown = decode(served.resource, msgspec.json.decode(msgspec.json.encode(obj)))
                apply_defaults(served.resource, decoded)
                drop_empty_lists(served, decoded)
                assert (decoded, unknown) == (obj, [])

    virtual_time.run(scenario())


class Copies(Controller):
    """Copies labelled ConfigMaps to the cluster "west", and the states of the copies back."""

    name = "copies"
    watches = (
        For(CONFIG_MAPS, label_selector="copied"),
        Watches(CONFIG_MAPS, to_self, cluster="west", label_selector="copy"),
    )

    async def reconcile(self, request: Request) -> None:
        west, source = self.cluster("west"), self.cache.get(CONFIG_MAPS, request)
        metadata = {"name": request.name, "namespace": request.namespace}
        manifest: dict[str, Any] = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata}
        if source is not None:
            await west.client.apply({**manifest, "metadata": {**metadata, "labels": {"copy": ""}}})
        if (copy := west.cache.get(CONFIG_MAPS, request)) is not None:
            await self.client.apply({**manifest, "data": copy.get("data", {})})


def test_controller_watches_and_writes_another_memory_cluster():
    async def scenario() -> None:
        clock = VirtualClock()
        async with (
            memory_cluster(clock=clock, nodes=0) as west,
            memory_cluster(clock=clock, nodes=0, controllers=[Copies], clusters={"west": west}) as cluster,
        ):
            source = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "a", "labels": {"copied": ""}}}
            await cluster.apply(source)
            await west.wait_for("configmap/a", "create")
            await west.apply({**source, "metadata": {"name": "a"}, "data": {"state": "seen"}})
            await cluster.wait_for("configmap/a", lambda copied: copied.get("data") == {"state": "seen"})

    virtual_time.run(scenario())


def test_controllers_of_a_test_use_no_context_of_the_user():
    async def scenario() -> None:
        async with memory_cluster(clock=VirtualClock(), nodes=0, controllers=[Copies]):
            await asyncio.sleep(10)

    with pytest.raises(ExceptionGroup) as failed:
        virtual_time.run(scenario())
    assert str(first_error(failed.value)) == "the test has no cluster 'west'"


def test_impersonated_user_has_what_its_roles_grant():
    """The ClusterRole `view` has rules when the controllers have aggregated them."""

    async def scenario() -> list[int]:
        async with memory_cluster(clock=VirtualClock(), nodes=1) as cluster:
            transport = MemoryTransport(cluster.api.handle)

            async def status(path: str) -> int:
                return (await transport.send(HttpRequest("GET", path, {"impersonate-user": "alice"}))).status

            statuses = [await status("/api/v1/namespaces/default/pods")]
            await cluster.apply(binding("alice", "view", "alice", kind="ClusterRole") | ROLE_BINDING)
            await cluster.until(lambda: bool(cluster.api.store.get(CLUSTER_ROLES, "", "view")["rules"]))
            paths = ("/api/v1/namespaces/default/pods", "/api/v1/namespaces/default/secrets", "/api/v1/pods")
            return statuses + [await status(path) for path in paths]

    assert virtual_time.run(scenario()) == [403, 200, 403, 403]


def test_report_lists_objects_pods_events_and_a_trace():
    async def scenario() -> list[str]:
        async with memory_cluster(clock=VirtualClock(), nodes=1) as cluster:
            assert await report_lines(cluster) == ["objects:", "  service/kubernetes"]
            await cluster.apply(DEPLOYMENT)
            await cluster.wait_for("deployment/web", "Available")
            return await report_lines(cluster)

    lines = virtual_time.run(scenario())
    assert lines[0] == "objects:"
    assert any(line.startswith("  deployment/web: desired 2: replicas 2") for line in lines)
    assert sum("Running, ready, on node-0" in line for line in lines) == 2
    assert "last events:" in lines
    assert "slowest trace:" in lines


def test_api_server_alone_registers_its_nodes():
    async def scenario() -> int:
        async with run_api_server(cluster_options({"nodes": 3}), clock=VirtualClock(), rng=Random(0)) as api:
            return len(api.store.list(NODES))

    assert virtual_time.run(scenario()) == 3


def test_condition_that_never_holds_times_out():
    async def scenario() -> None:
        async with memory_cluster(clock=VirtualClock(), nodes=0) as cluster:
            await cluster.until(lambda: False, timeout=1)

    with pytest.raises(BaseExceptionGroup) as raised:
        virtual_time.run(scenario())
    assert raised.group_contains(TimeoutError)


def test_services_of_a_small_range_get_addresses_of_another_when_it_is_full():
    async def scenario() -> list[str]:
        async with memory_cluster(clock=VirtualClock(), nodes=0, service_cluster_ip_range="10.3.0.0/29") as cluster:
            cidr = {"kind": "ServiceCIDR", "metadata": {"name": "more"}, "spec": {"cidrs": ["10.9.0.0/24"]}}
            await cluster.apply({"apiVersion": "networking.k8s.io/v1", **cidr})
            for number in range(6):  # the range has six addresses, one for the Service kubernetes
                service = {"metadata": {"name": f"s{number}"}, "spec": {"ports": [{"port": 80}]}}
                await cluster.apply({"apiVersion": "v1", "kind": "Service", **service})
            services = [await cluster.get(f"service/s{number}") for number in range(6)]
            return [service["spec"]["clusterIP"] for service in services]

    addresses = virtual_time.run(scenario())
    assert sorted(addresses[:5]) == [f"10.3.0.{number}" for number in range(2, 7)]
    assert addresses[5].startswith("10.9.0.")


def test_idle_day_of_a_cluster_runs_almost_nothing():
    async def scenario() -> tuple[int, int]:
        async with memory_cluster(clock=VirtualClock(), nodes=20) as cluster:
            await asyncio.sleep(300.0)
            before = cluster.api.store.revision
            await asyncio.sleep(86_400.0)
            return cluster.api.store.revision - before, sum(node.status == "True" for node in _ready(cluster))

    writes, ready = virtual_time.run(scenario())
    assert writes == 0
    assert ready == 20


def test_idle_node_that_dies_is_marked_as_lost_within_its_grace_period():
    async def scenario() -> tuple[str, str, float]:
        async with memory_cluster(clock=VirtualClock(), nodes=3) as cluster:
            await asyncio.sleep(7_200.0)
            lease = await cluster.client.get(LEASES, "node-1", "kube-node-lease")
            age = (cluster.client.clock.now() - lease.spec.renew_time).total_seconds()
            failing = {"metadata": {"annotations": {"kubeloop.dev/fail": "unreachable"}}}
            await cluster.client.patch(NODES, "node-1", failing, PatchType.MERGE)
            await asyncio.sleep(39.0)
            before = _ready(cluster)[1].status
            await asyncio.sleep(30.0)
            return before, _ready(cluster)[1].status, age

    before, after, age = virtual_time.run(scenario())
    assert (before, after) == ("True", "Unknown")
    assert age < 10.0


def _ready(cluster: MemoryCluster) -> list[Condition]:
    nodes = sorted(cluster.seen_nodes(), key=lambda node: node.metadata.name)
    return [condition for node in nodes if (condition := condition_of(node.status.conditions, "Ready"))]


def test_custom_controller_runs_with_the_built_in_ones():
    async def scenario() -> dict[str, Any]:
        async with memory_cluster(clock=VirtualClock(), nodes=2, controllers=["*", Sites]) as cluster:
            await cluster.apply(CRD)
            await cluster.apply(site(replicas=2))
            await cluster.wait_for("site/blog", "Ready")
            return dict((await cluster.get("site/blog"))["status"])

    assert virtual_time.run(scenario())["readyReplicas"] == 2
