"""Check kubernetes_asyncio: list and watch, server-side apply, logs and exec."""

import asyncio

from kubernetes_asyncio import client, config, watch
from kubernetes_asyncio.stream import WsApiClient

TIMEOUT_SECONDS = 30


async def main() -> None:
    await config.load_kube_config()
    async with client.ApiClient() as api, asyncio.timeout(2 * TIMEOUT_SECONDS):
        core = client.CoreV1Api(api)
        metadata = client.V1ObjectMeta(generate_name="kubernetes-asyncio-")
        namespace = (await core.create_namespace(client.V1Namespace(metadata=metadata))).metadata.name
        await check_watch(core, namespace)
        await check_apply(api, namespace)
        await check_pod(core, namespace)


async def check_watch(core: client.CoreV1Api, namespace: str) -> None:
    async def create(name: str) -> None:
        metadata = client.V1ObjectMeta(name=name, labels={"check": "watch"})
        await core.create_namespaced_config_map(namespace, client.V1ConfigMap(metadata=metadata))

    await create("before")
    listed = await core.list_namespaced_config_map(namespace, label_selector="check=watch")
    assert [item.metadata.name for item in listed.items] == ["before"], listed.items
    await create("after")
    await core.patch_namespaced_config_map("after", namespace, {"data": {"key": "value"}})
    await core.delete_namespaced_config_map("after", namespace)
    events = []
    async with watch.Watch() as changes:
        async for event in changes.stream(
            core.list_namespaced_config_map,
            namespace,
            label_selector="check=watch",
            resource_version=listed.metadata.resource_version,
            timeout_seconds=TIMEOUT_SECONDS,
        ):
            events.append((event["type"], event["object"].metadata.name, event["object"].data))
            if event["type"] == "DELETED":
                break
    value = {"key": "value"}
    assert events == [("ADDED", "after", None), ("MODIFIED", "after", value), ("DELETED", "after", value)], events


async def check_apply(api: client.ApiClient, namespace: str) -> None:
    batch = client.BatchV1Api(api)
    body = {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": {"name": "sum"},
        "spec": {
            "completions": 2,
            "parallelism": 2,
            "template": {
                "spec": {"restartPolicy": "Never", "containers": [{"name": "main", "image": "busybox:1.37"}]},
            },
        },
    }
    await batch.patch_namespaced_job(
        "sum", namespace, body, field_manager="check", _content_type="application/apply-patch+yaml"
    )
    async with watch.Watch() as changes:
        async for event in changes.stream(batch.list_namespaced_job, namespace, timeout_seconds=TIMEOUT_SECONDS):
            if event["object"].status.succeeded == 2:
                return
    raise AssertionError("the watch ended before the Job had 2 succeeded pods")


async def check_pod(core: client.CoreV1Api, namespace: str) -> None:
    spec = client.V1PodSpec(containers=[client.V1Container(name="main", image="busybox:1.37")])
    await core.create_namespaced_pod(namespace, client.V1Pod(metadata=client.V1ObjectMeta(name="shell"), spec=spec))
    while (await core.read_namespaced_pod_status("shell", namespace)).status.phase != "Running":
        await asyncio.sleep(0.05)
    log = await core.read_namespaced_pod_log("shell", namespace, tail_lines=1)
    assert log == "second line\n", log
    async with WsApiClient() as websockets:
        output = await client.CoreV1Api(websockets).connect_get_namespaced_pod_exec(
            "shell", namespace, command=["fail"], stdout=True, stderr=True
        )
    assert output == "refused\n", output


if __name__ == "__main__":
    asyncio.run(main())
