"""Tainted devices in a whole cluster: their pods move to other devices."""

from __future__ import annotations

from typing import Any

import pytest

from kubeloop.kube.objects.resources import (
    DEPLOYMENTS,
    DEVICE_CLASSES,
    DEVICE_TAINT_RULES,
    PODS,
    RESOURCE_CLAIM_TEMPLATES,
    RESOURCE_SLICES,
)
from kubeloop.testing.in_memory import MemoryCluster, memory_cluster
from support.apiserver.api_requests import InProcessApi
from support.objects.devices import taint_rule
from support.objects.resource_claims import claim_spec, template_body

JSON = dict[str, Any]
DRIVER = "gpu.example.com"
TAINT = {"key": "example.com/broken", "effect": "NoExecute"}
DEPLOYMENT: JSON = {
    "metadata": {"name": "web"},
    "spec": {
        "replicas": 2,
        "selector": {"matchLabels": {"app": "web"}},
        "template": {
            "metadata": {"labels": {"app": "web"}},
            "spec": {
                "containers": [{"name": "main", "image": "app:1"}],
                "resourceClaims": [{"name": "gpu", "resourceClaimTemplateName": "gpus"}],
            },
        },
    },
}


def ready_nodes(cluster: MemoryCluster) -> list[str]:
    """Return the nodes of the pods that are ready and not terminating."""
    return sorted(
        pod["spec"]["nodeName"]
        for pod in cluster.api.store.list(PODS)
        if "deletionTimestamp" not in pod["metadata"]
        for condition in pod.get("status", {}).get("conditions", ())
        if (condition["type"], condition["status"]) == ("Ready", "True")
    )


def taint_slice(api: InProcessApi, node: str) -> None:
    name = f"{node}-{DRIVER}-0"
    spec = api("GET", RESOURCE_SLICES.path(name=name))[1]["spec"]
    devices = [{**device, "taints": [TAINT]} for device in spec["devices"]]
    api.succeed("PATCH", RESOURCE_SLICES.path(name=name), {"spec": {"devices": devices}})


def create_rule(api: InProcessApi, node: str) -> None:
    rule = taint_rule(pool=node)
    del rule["metadata"]["uid"]
    api.create(DEVICE_TAINT_RULES.path(), rule)


@pytest.mark.virtual_time
@pytest.mark.parametrize("taint", [taint_slice, create_rule])
async def test_pods_of_tainted_devices_move(clock, tmp_path, taint):
    devices = tmp_path / "devices.yaml"
    devices.write_text(f"- {{driver: {DRIVER}, devices: [{{name: gpu, count: 2}}]}}")
    gates = {"DRADeviceTaintRules": taint is create_rule}
    async with memory_cluster(clock=clock, nodes=2, devices=devices, feature_gates=gates) as cluster:
        api = InProcessApi(cluster.api)
        api.create(DEVICE_CLASSES.path(), {"metadata": {"name": DRIVER}, "spec": {}})
        api.create(RESOURCE_CLAIM_TEMPLATES.path("default"), template_body(spec=claim_spec(DRIVER)))
        api.create(DEPLOYMENTS.path("default"), DEPLOYMENT)
        await cluster.until(lambda: len(ready_nodes(cluster)) == 2)
        tainted = ready_nodes(cluster)[0]
        taint(api, tainted)
        await cluster.until(lambda: len(ready_nodes(cluster)) == 2 and tainted not in ready_nodes(cluster))
        if taint is create_rule:
            await cluster.until(lambda: "Completed" in str(api("GET", DEVICE_TAINT_RULES.path(name="rule"))[1]))
