"""Custom resources with kubectl, with Python clients and after SIGKILL."""

from __future__ import annotations

import asyncio
import gc
import json
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import aiohttp
import pytest
import yaml

from support.apiserver.apiserver_process import (
    TOKEN,
    apiserver_command,
    kill_process,
    running_apiserver,
    running_apiserver_sync,
)
from support.comparison.custom_resource_requests import WIDGETS, widget
from support.processes.cli_processes import Kubectl

pytestmark = pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning", "ignore::ResourceWarning")

DEFINITION = yaml.safe_dump(WIDGETS)


@pytest.fixture(scope="module")
def folder(tmp_path_factory) -> Iterator[Path]:
    folder: Path = tmp_path_factory.mktemp("custom")
    with running_apiserver_sync(apiserver_command(folder)) as (_, log):
        yield folder
        gc.collect()  # connections of kr8s
        assert "Traceback" not in log()


@pytest.mark.usefixtures("needs_kubectl")
def test_kubectl_commands_on_custom_resources(folder):
    kubectl = Kubectl(str(folder / "kubeconfig"), folder)
    kubectl("apply", "-f", "-", stdin=DEFINITION)
    kubectl("wait", "--for=condition=Established", "crd/widgets.example.com", "--timeout=90s")
    assert "widgets wd example.com/v1 true Widget" in " ".join(kubectl("api-resources").split())
    kubectl("apply", "-f", "-", stdin=json.dumps(widget("w1", {"parts": [{"name": "a"}]})))
    header, row = kubectl("get", "wd").splitlines()
    assert header.split() == ["NAME", "COLOR", "REPLICAS", "READY", "PARTS", "LABELS", "AGE"]
    assert row.split()[:4] == ["w1", "red", "1", "a"]
    assert "RATIO" in kubectl("get", "widgets", "-o", "wide")
    assert "Its color." in kubectl("explain", "widgets.spec.color")
    kubectl("patch", "wd", "w1", "--type=merge", "-p", '{"spec":{"ratio":1.5}}')
    kubectl("scale", "wd/w1", "--replicas=3")
    kubectl("patch", "wd", "w1", "--subresource=status", "--type=merge", "-p", '{"status":{"phase":"Running"}}')
    shown = kubectl.json("get", "widget", "w1")
    assert (shown["spec"]["replicas"], shown["status"], shown["metadata"]["generation"]) == (3, {"phase": "Running"}, 3)
    refused = kubectl.run("patch", "wd", "w1", "--type=merge", "-p", '{"spec":{"color":"pink"}}').stderr
    assert 'spec.color: Unsupported value: "pink": supported values: "red", "green", "blue"' in refused
    unknown = kubectl.run("apply", "-f", "-", stdin=json.dumps(widget("w2", {"colour": "red"}))).stderr
    assert 'unknown field "spec.colour"' in unknown
    kubectl("apply", "--server-side", "-f", "-", stdin=json.dumps(widget("w3", {"color": "blue"})))
    assert kubectl("get", "wd", "--field-selector", "spec.color=blue", "-o", "name").split() == [
        "widget.example.com/w3"
    ]
    assert "widget.example.com/w1" in kubectl("get", "all", "-o", "name")
    assert "Color:" in kubectl("describe", "wd", "w1")
    kubectl("delete", "crd", "widgets.example.com")
    assert kubectl.run("get", "widgets").returncode == 1


async def test_python_clients_on_custom_resources(folder):
    from kubernetes_asyncio import client, config, watch

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # from its imports
        pytest.importorskip("kr8s")
        from kr8s.asyncio import api as connect
        from kr8s.asyncio.objects import new_class
    warnings.filterwarnings("ignore", "Kubernetes version")  # kr8s knows releases up to 1.35
    location: dict[str, Any] = {"group": "example.com", "version": "v1", "namespace": "default", "plural": "widgets"}
    async with await config.new_client_from_config(str(folder / "kubeconfig")) as api:
        await client.ApiextensionsV1Api(api).create_custom_resource_definition(WIDGETS)
        widgets = client.CustomObjectsApi(api)
        await widgets.create_namespaced_custom_object(**location, body=widget("asynchronous"))
        seen = []
        async with watch.Watch() as watching, asyncio.timeout(60):
            async for event in watching.stream(widgets.list_namespaced_custom_object, **location, timeout_seconds=60):
                seen.append(event["type"])
                if event["type"] == "ADDED":
                    await widgets.patch_namespaced_custom_object_status(
                        **location,
                        name="asynchronous",
                        body={"status": {"phase": "Running"}},
                        _content_type="application/merge-patch+json",
                    )
                elif event["type"] == "MODIFIED":
                    await widgets.delete_namespaced_custom_object(**location, name="asynchronous")
                else:
                    break
        assert seen == ["ADDED", "MODIFIED", "DELETED"]
        with pytest.raises(client.ApiException) as refused:
            await widgets.create_namespaced_custom_object(**location, body=widget("bad", {"replicas": 101}))
        assert refused.value.status == 422

        kr8s_api = await connect(kubeconfig=str(folder / "kubeconfig"))
        widget_class = new_class(kind="Widget", version="example.com/v1", namespaced=True, asyncio=True)
        created = widget_class(widget("kr8s"), api=kr8s_api)
        await created.create()
        await created.patch({"spec": {"replicas": 5}})
        listed = [obj async for obj in kr8s_api.get("widgets.example.com", namespace="default")]
        assert [(obj.name, obj.spec.replicas) for obj in listed] == [("kr8s", 5)]
        await created.delete()
        assert not await created.exists()
        definitions = client.ApiextensionsV1Api(api)
        await definitions.delete_custom_resource_definition("widgets.example.com")
        async with asyncio.timeout(60):  # before the next test defines it again
            while (await definitions.list_custom_resource_definition()).items:
                await asyncio.sleep(0.05)


async def test_definitions_and_objects_survive_sigkill(tmp_path):
    crds = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"
    objects = "/apis/example.com/v1/namespaces/default/widgets"
    headers = {"Authorization": f"Bearer {TOKEN}"}
    async with aiohttp.ClientSession(headers=headers) as session:
        async with running_apiserver(apiserver_command(tmp_path, f"--data-dir={tmp_path / 'data'}")) as (process, url):
            async with session.post(url + crds, json=WIDGETS) as response:
                assert response.status == 201
            created = []
            for index in range(20):
                async with session.post(url + objects, json=widget(f"w{index:02}")) as response:
                    created.append(await response.json())
            kill_process(process)
        async with running_apiserver(apiserver_command(tmp_path, f"--data-dir={tmp_path / 'data'}")) as (_, url):
            async with session.get(url + objects) as response:
                listed = await response.json()
            async with session.post(url + objects, json=widget("bad", {"color": "pink"})) as response:
                assert response.status == 422
    assert listed["items"] == created
