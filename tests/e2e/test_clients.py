"""Python client libraries with `kubeloop apiserver`: create, read, watch, patch, apply, conflict, delete."""

from __future__ import annotations

import asyncio
import gc
import warnings
from pathlib import Path
from typing import Any

import pytest

from support.apiserver.apiserver_process import apiserver_command, running_apiserver_sync

# kr8s and lightkube leave connections to the garbage collector
pytestmark = pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning", "ignore::ResourceWarning")


@pytest.fixture(autouse=True)
def collect_connections() -> Any:
    yield
    gc.collect()


@pytest.fixture(scope="module")
def kubeconfig(tmp_path_factory) -> Any:
    folder: Path = tmp_path_factory.mktemp("clients")
    with running_apiserver_sync(apiserver_command(folder)) as (_, log):
        yield folder / "kubeconfig"
        assert "Traceback" not in log()


def config_map(name: str, **data: str) -> dict[str, Any]:
    return {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name}, "data": data}


def deployment(name: str) -> dict[str, Any]:
    labels = {"app": name}
    template = {"metadata": {"labels": labels}, "spec": {"containers": [{"name": "c", "image": "i"}]}}
    spec = {"replicas": 1, "selector": {"matchLabels": labels}, "template": template}
    return {"apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": name}, "spec": spec}


def test_kubernetes_client(kubeconfig):
    kubernetes = pytest.importorskip("kubernetes")
    with kubernetes.config.new_client_from_config(str(kubeconfig)) as api:
        core, apps = kubernetes.client.CoreV1Api(api), kubernetes.client.AppsV1Api(api)
        created = core.create_namespaced_config_map("default", config_map("official", a="1"))
        assert created.metadata.uid
        apps.create_namespaced_deployment("default", deployment("official"))
        scaled = apps.patch_namespaced_deployment_scale("official", "default", {"spec": {"replicas": 3}})
        assert scaled.spec.replicas == 3
        with pytest.raises(kubernetes.client.ApiException) as refused:
            core.create_namespaced_config_map("default", config_map("official"))
        assert (refused.value.status, refused.value.reason) == (409, "Conflict")
        seen = []
        watch = kubernetes.watch.Watch()
        for event in watch.stream(core.list_namespaced_config_map, "default", timeout_seconds=60):
            if event["object"].metadata.name == "official":
                seen.append(event["type"])
                if event["type"] == "ADDED":
                    core.patch_namespaced_config_map("official", "default", {"data": {"b": "2"}})
                elif event["type"] == "MODIFIED":
                    core.delete_namespaced_config_map("official", "default")
                else:
                    watch.stop()
        assert seen == ["ADDED", "MODIFIED", "DELETED"]


async def test_kubernetes_asyncio_client(kubeconfig):
    from kubernetes_asyncio import client, config, watch

    api = await config.new_client_from_config(str(kubeconfig))
    async with api:
        core = client.CoreV1Api(api)
        await core.create_namespaced_config_map("default", config_map("asynchronous", a="1"))
        seen = []
        async with watch.Watch() as watching, asyncio.timeout(60):
            async for event in watching.stream(core.list_namespaced_config_map, "default", timeout_seconds=60):
                if event["object"].metadata.name == "asynchronous":
                    seen.append(event["type"])
                    if event["type"] == "ADDED":
                        await core.delete_namespaced_config_map("asynchronous", "default")
                    else:
                        break
        assert seen == ["ADDED", "DELETED"]
        with pytest.raises(client.ApiException) as refused:
            await core.read_namespaced_config_map("asynchronous", "default")
        assert refused.value.status == 404


@pytest.mark.filterwarnings("ignore:Kubernetes version")  # kr8s knows releases up to 1.35
async def test_kr8s_client(kubeconfig):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # from its imports
        kr8s = pytest.importorskip("kr8s")
        from kr8s.asyncio import api as connect
        from kr8s.asyncio.objects import ConfigMap, Deployment
    api = await connect(kubeconfig=str(kubeconfig))
    created = await Deployment(deployment("kr8s"), api=api)
    await created.create()
    await created.scale(2)
    assert created.spec.replicas == 2
    await created.annotate(note="x")
    listed = [obj async for obj in api.get("deployments", namespace="default", field_selector="metadata.name=kr8s")]
    assert [obj.annotations["note"] for obj in listed] == ["x"]
    await created.delete()
    assert not await created.exists()
    with pytest.raises(kr8s.NotFoundError):
        await ConfigMap.get("no-such", namespace="default", api=api)


def test_lightkube_client(kubeconfig):
    lightkube = pytest.importorskip("lightkube")
    from lightkube.config.kubeconfig import KubeConfig
    from lightkube.models.meta_v1 import ObjectMeta
    from lightkube.resources.core_v1 import ConfigMap

    client = lightkube.Client(config=KubeConfig.from_file(str(kubeconfig)), field_manager="tests")
    config_map = ConfigMap(metadata=ObjectMeta(name="lightkube", namespace="default"), data={"a": "1"})
    applied = client.apply(config_map)
    assert applied.metadata.managedFields[0].operation == "Apply"
    config_map.data = {"a": "2"}
    with pytest.raises(lightkube.ApiError) as refused:
        client.apply(config_map, field_manager="another manager")
    assert refused.value.status.code == 409
    assert 'conflict with "tests": .data.a' in refused.value.status.message
    client.apply(config_map, field_manager="another manager", force=True)
    for event, obj in client.watch(ConfigMap, namespace="default", fields={"metadata.name": "lightkube"}):
        assert (event, obj.data) == ("ADDED", {"a": "2"})
        break
    client.delete(ConfigMap, "lightkube", namespace="default")
    assert not list(client.list(ConfigMap, namespace="default", fields={"metadata.name": "lightkube"}))
