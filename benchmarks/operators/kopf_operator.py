"""Sites, written for kopf: a ConfigMap and a Deployment for each Site, and its status.

kopf run --standalone --all-namespaces kopf_operator.py
"""

import os
from datetime import UTC, datetime
from typing import Any

import kopf
from kubernetes_asyncio import client, config
from kubernetes_asyncio.client.exceptions import ApiException

SITES = "sites.bench.example.com"

counted = os.open(os.environ["RECONCILES"], os.O_WRONLY | os.O_APPEND)


@kopf.on.startup()
async def connect(memo: kopf.Memo, **_: Any) -> None:
    await config.load_kube_config()
    memo.api = client.ApiClient()


@kopf.on.cleanup()
async def disconnect(memo: kopf.Memo, **_: Any) -> None:
    await memo.api.close()


@kopf.on.create(SITES)
@kopf.on.resume(SITES)
@kopf.on.update(SITES, field="spec")
async def reconcile(
    namespace: str,
    name: str,
    spec: kopf.Spec,
    status: kopf.Status,
    meta: kopf.Meta,
    memo: kopf.Memo,
    patch: kopf.Patch,
    **_: Any,
) -> None:
    os.write(counted, b".")
    core, apps = client.CoreV1Api(memo.api), client.AppsV1Api(memo.api)
    config_map = {"metadata": {"name": name}, "data": {"index.html": spec["text"]}}
    kopf.adopt(config_map)
    try:
        await core.create_namespaced_config_map(namespace, config_map)
    except ApiException as error:
        if error.status != 409:
            raise
        await core.patch_namespaced_config_map(name, namespace, config_map)
    deployment = deployment_of(name, spec)
    kopf.adopt(deployment)
    try:
        created = await apps.create_namespaced_deployment(namespace, deployment)
    except ApiException as error:
        if error.status != 409:
            raise
        created = await apps.patch_namespaced_deployment(name, namespace, deployment)
    ready = created.status.ready_replicas or 0
    patch.status["readyReplicas"] = ready
    patch.status["conditions"] = conditions(status, ready >= spec["replicas"], meta["generation"])


@kopf.on.event("apps", "v1", "deployments", labels={"site": kopf.PRESENT})
async def deployment_changed(namespace: str, name: str, status: kopf.Status, memo: kopf.Memo, **_: Any) -> None:
    ready = status.get("readyReplicas", 0)
    if ready == memo.get("ready", 0):
        return
    memo.ready = ready
    sites = client.CustomObjectsApi(memo.api)
    site = await sites.get_namespaced_custom_object("bench.example.com", "v1", namespace, "sites", name)
    is_ready, generation = ready >= site["spec"]["replicas"], site["metadata"]["generation"]
    changed = {"readyReplicas": ready, "conditions": conditions(site.get("status", {}), is_ready, generation)}
    await sites.patch_namespaced_custom_object_status(
        "bench.example.com", "v1", namespace, "sites", name, {"status": changed}
    )


def conditions(status: Any, is_ready: bool, generation: int) -> list[dict[str, Any]]:
    """Return the conditions of a Site."""
    present = next(iter(status.get("conditions", ())), {})
    now = datetime.now(UTC).isoformat(timespec="seconds").replace("+00:00", "Z")
    is_same = present.get("status") == str(is_ready)
    return [
        {
            "type": "Ready",
            "status": str(is_ready),
            "reason": "MinimumReplicasAvailable" if is_ready else "ReplicasMissing",
            "message": "",
            "lastTransitionTime": present["lastTransitionTime"] if is_same else now,
            "observedGeneration": generation,
        }
    ]


def deployment_of(name: str, spec: kopf.Spec) -> dict[str, Any]:
    labels = {"site": name}
    container = {"name": "web", "image": spec["image"]}
    return {
        "metadata": {"name": name, "labels": labels},
        "spec": {
            "replicas": spec["replicas"],
            "selector": {"matchLabels": labels},
            "template": {"metadata": {"labels": labels}, "spec": {"containers": [container]}},
        },
    }
