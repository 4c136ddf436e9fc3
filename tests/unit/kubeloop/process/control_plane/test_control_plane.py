"""The control plane: selection of controllers, order of the start, and imports."""

from __future__ import annotations

import asyncio
import random
import subprocess
import sys
from typing import Any

import pytest
from prometheus_client import CollectorRegistry

from kubeloop.devcluster.kubelet.nodes.simulated_nodes import SimulatedNodes
from kubeloop.devcluster.server.apiserver import ApiServer
from kubeloop.devcluster.simulation.node_objects import NodeSettings
from kubeloop.kube.client.api_client import ApiClient
from kubeloop.kube.clock import SystemClock
from kubeloop.kube.feature_gates import DEFAULT_FEATURE_GATES, FeatureGates
from kubeloop.kube.objects.resources import DEPLOYMENTS, DEVICE_TAINT_RULES, PODS, REPLICATION_CONTROLLERS
from kubeloop.kube.user_error import UserError
from kubeloop.process.control_plane.control_plane import (
    ControlPlane,
    Settings,
    enabled_controllers,
    initial_components,
    watched_resources,
)
from kubeloop.process.control_plane.controller_table import CONTROLLER_TABLE, CONTROLLERS, CONTROLLERS_BY_NAME
from kubeloop.testing import virtual_time
from kubeloop.testing.in_memory import memory_cluster
from kubeloop.testing.memory_transport import MemoryTransport
from kubeloop.testing.virtual_time import VirtualClock
from support.objects.manifests import deployment

DEPLOYMENT = deployment(replicas=2)


@pytest.fixture
async def api() -> ApiServer:
    return ApiServer(clock=SystemClock(), rng=random.Random(1), token=None)


def plane_over(api: ApiServer, settings: Settings) -> ControlPlane:
    clock, rng = SystemClock(), random.Random(2)
    client = ApiClient(MemoryTransport(api.handle), clock=clock, rng=rng)
    return ControlPlane(client, settings, clock=clock, rng=rng, registry=CollectorRegistry())


@pytest.mark.parametrize("name", [name for name in CONTROLLERS if name != "garbagecollector"])
async def test_watched_resources_match_those_of_the_component(api, name):
    gate = CONTROLLERS_BY_NAME[name].feature_gate if name in CONTROLLERS_BY_NAME else ""
    gates = FeatureGates({gate: True} if gate else {})
    settings = Settings(
        controllers=frozenset({name}),
        feature_gates=gates,
        sign_token=api.token_key.sign,
        signing_authority=api.signing_authority,
    )
    plane = plane_over(api, settings)
    plane._create_component(name)
    assert {informer.resource for informer in plane.informers.informers} == {PODS, *watched_resources(name, gates)}


async def test_resources_of_a_disabled_gate_are_not_watched(api):
    name = "device-taint-eviction"
    assert DEVICE_TAINT_RULES not in watched_resources(name, DEFAULT_FEATURE_GATES)
    gates = FeatureGates({"DRADeviceTaintRules": True})
    assert DEVICE_TAINT_RULES in watched_resources(name, gates)
    plane = plane_over(api, Settings(controllers=frozenset({name}), feature_gates=gates))
    plane._create_component(name)
    assert {informer.resource for informer in plane.informers.informers} == {PODS, *watched_resources(name, gates)}


async def test_signing_controllers_do_not_run_without_their_keys(api):
    both = {"serviceaccount-token", "csrsigning"}
    assert not both & plane_over(api, Settings()).settings.controllers
    settings = Settings(sign_token=api.token_key.sign, signing_authority=api.signing_authority)
    assert both <= plane_over(api, settings).settings.controllers


async def test_pods_of_an_existing_deployment_are_bound(api):
    plane = plane_over(api, Settings())
    nodes = SimulatedNodes(api.store, NodeSettings(count=1), clock=SystemClock(), rng=random.Random(3))
    nodes.register()
    await plane.client.create(DEPLOYMENTS, DEPLOYMENT, "default")
    async with asyncio.TaskGroup() as group, asyncio.timeout(60):
        serving = group.create_task(api.run())
        kubelets = group.create_task(nodes.run())
        control_plane_task = group.create_task(plane.run())
        await plane.synced.wait()
        assert plane.components_created.is_set()
        assert plane.scheduler is not None
        while sum(bool(pod.spec.node_name) for pod in plane.informers.informer(PODS).store.list()) < 2:
            await asyncio.sleep(0.01)
        control_plane_task.cancel()
        kubelets.cancel()
        serving.cancel()


CAN_WAIT = (
    "numpy",
    "kubernetes_asyncio",
    "prometheus_client",
    "aiohttp",
    "opentelemetry",
    "rich",
    "kubeloop.devcluster",
)


@pytest.mark.parametrize(
    ("modules", "absent"),
    [
        pytest.param("kubeloop.cli.main, kubeloop.cli.run", CAN_WAIT, id="before kubeloop run sends a request"),
        pytest.param("kubeloop.cli.main", ("asyncio", "yaml", *CAN_WAIT), id="before any command runs"),
    ],
)
def test_start_does_not_import_modules_that_can_wait(modules, absent):
    program = f"import sys, {modules}; print(*[name for name in {absent} if name in sys.modules])"
    done = subprocess.run([sys.executable, "-c", program], check=True, capture_output=True, text=True)
    assert done.stdout.split() == []


async def test_run_raises_the_error_of_a_component_that_cannot_start(api, monkeypatch):
    plane = plane_over(api, Settings())

    def refuse(name):
        raise UserError(f"no {name} today", hint="try tomorrow")

    monkeypatch.setattr(plane, "_create_component", refuse)
    with pytest.raises(ExceptionGroup) as group:
        async with asyncio.timeout(60):
            await plane.run()
    assert group.group_contains(UserError, match="no deployment today")
    assert not plane.synced.is_set()


RC = {
    "apiVersion": "v1",
    "kind": "ReplicationController",
    "metadata": {"name": "web"},
    "spec": {**DEPLOYMENT["spec"], "selector": {"app": "web"}},
}


@pytest.mark.virtual_time
@pytest.mark.parametrize("controllers", ["*", "replicationcontroller"])
async def test_controller_starts_with_the_first_object_of_its_resource(controllers):
    def queues() -> set[str]:
        depth = cluster.plane._metrics.gauge("workqueue_depth", "", ("name",))
        return {name for (name,) in depth._metrics}

    async with memory_cluster(controllers=controllers) as cluster:
        await asyncio.sleep(60)
        assert "replicationmanager" not in queues()
        await cluster.client.create(REPLICATION_CONTROLLERS, RC, "default")
        await asyncio.sleep(1)
        assert "replicationmanager" in queues()
        assert len(cluster.api.store.list(PODS)) == 2


@pytest.mark.virtual_time
async def test_garbage_collector_watches_after_the_first_pods():
    async with memory_cluster(controllers="garbagecollector,deployment,replicaset") as cluster:
        started_at = asyncio.get_running_loop().time()
        await asyncio.sleep(0.3)
        watched = {informer.resource.plural for informer in cluster.plane.informers.informers}
        assert "configmaps" not in watched
        await cluster.client.create(DEPLOYMENTS, DEPLOYMENT, "default")
        while not cluster.api.store.list(PODS):
            await asyncio.sleep(0.01)
        await cluster.client.delete(DEPLOYMENTS, DEPLOYMENT["metadata"]["name"], "default")
        while cluster.api.store.list(PODS):
            await asyncio.sleep(0.01)
        assert asyncio.get_running_loop().time() - started_at < 5


@pytest.mark.parametrize("development", [False, True])
async def test_controller_of_existing_objects_starts_with_the_process(api, development):
    settings = Settings(controllers=frozenset({"replicationcontroller"}), development=development)
    plane = plane_over(api, settings)
    await plane.client.create(REPLICATION_CONTROLLERS, RC, "default")
    async with asyncio.TaskGroup() as group, asyncio.timeout(60):
        serving = group.create_task(api.run())
        control_plane_task = group.create_task(plane.run())
        while len(api.store.list(PODS)) < 2:
            await asyncio.sleep(0.01)
        control_plane_task.cancel()
        serving.cancel()


def test_initial_components_leave_out_those_that_start_on_their_first_object():
    every = frozenset(CONTROLLERS)
    late = {row.name for row in CONTROLLER_TABLE if row.starts_late}
    assert {"garbagecollector", "job", "serviceaccount"} <= late
    assert initial_components(every, development=False) == [*CONTROLLERS]
    assert initial_components(every, development=True) == [name for name in CONTROLLERS if name not in late]
    assert initial_components({"scheduler", "namespace"}, development=True) == ["namespace", "scheduler"]


def test_controllers_of_disabled_gates_do_not_run():
    every = frozenset(CONTROLLERS)
    assert every - enabled_controllers(every, FeatureGates({})) == {"podgroup-protection", "svm"}
    assert enabled_controllers(every, FeatureGates({"GenericWorkload": True, "StorageVersionMigrator": True})) == every


def test_trace_of_a_pod_whose_job_another_process_created_names_the_cron_job():
    async def scenario() -> dict[str, Any]:
        async with memory_cluster(clock=VirtualClock(), nodes=1, controllers="scheduler") as cluster:
            pod_spec = {"restartPolicy": "Never", "containers": [{"name": "main", "image": "app:1"}]}
            job_spec = {"template": {"spec": pod_spec}}
            owner: list[dict[str, Any]] = []
            for kind, name, spec in (
                ("CronJob", "load", {"schedule": "0 0 1 1 *", "jobTemplate": {"spec": job_spec}}),
                ("Job", "load-1", job_spec),
                ("Pod", "load-1-x", pod_spec),
            ):
                api_version = "v1" if kind == "Pod" else "batch/v1"
                metadata = {"name": name, "ownerReferences": owner}
                await cluster.apply({"apiVersion": api_version, "kind": kind, "metadata": metadata, "spec": spec})
                uid = (await cluster.get(f"{kind}/{name}"))["metadata"]["uid"]
                owner = [{"apiVersion": api_version, "kind": kind, "name": name, "uid": uid, "controller": True}]
            await cluster.wait_for("pod/load-1-x", "PodScheduled")
            await asyncio.sleep(60)
            return await cluster.trace("load-1-x")

    root = virtual_time.run(scenario())["spans"][0]
    assert [root["attributes"].get(f"k8s.{kind}.name") for kind in ("job", "cronjob")] == ["load-1", "load"]


def test_pod_group_has_a_trace_that_its_pods_link_to():
    async def scenario() -> tuple[dict[str, Any], list[dict[str, Any]]]:
        async with memory_cluster(clock=VirtualClock(), nodes=1, node_cpu="1", gang_scheduling=True) as cluster:
            group = {"schedulingPolicy": {"gang": {"minCount": 2}}}
            container = {"name": "main", "image": "app:1", "resources": {"requests": {"cpu": "1"}}}
            spec = {"containers": [container], "schedulingGroup": {"podGroupName": "train"}}
            version = "scheduling.k8s.io/v1alpha2"
            await cluster.apply(
                {"apiVersion": version, "kind": "PodGroup", "metadata": {"name": "train"}, "spec": group},
                *({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name}, "spec": spec} for name in ("a", "b")),
            )
            await cluster.wait_for("podgroup/train", "PodGroupScheduled=False")
            await cluster.apply({"apiVersion": "v1", "kind": "Node", "metadata": {"name": "second"}})
            await cluster.wait_for("podgroup/train", "complete", timeout=60)
            for name in ("a", "b"):
                await cluster.wait_for(f"pod/{name}", "Ready")
            pods = [await cluster.trace(name) for name in ("a", "b")]
            trace_id = pods[0]["spans"][0]["links"][-1]["traceId"]
            trace = cluster.plane.tracing.recent.find_linked_trace(trace_id)
            assert trace is not None
            return trace, pods

    trace, pods = virtual_time.run(scenario())
    assert {link["traceId"] for link in trace["spans"][0]["links"]} == {pod["traceId"] for pod in pods}
    names = [span["name"] for span in trace["spans"]]
    assert names[0] == "pod group"
    assert names.count("group attempt") >= 2
    assert "group binding" in names
    assert trace["spans"][0]["attributes"]["kubeloop.pod_group.outcome"] == "bound"
