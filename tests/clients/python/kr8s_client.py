"""Check kr8s: create, wait, scale, watch, logs and exec."""

import asyncio

import kr8s
from kr8s.asyncio.objects import ConfigMap, Deployment, Namespace, Pod

TIMEOUT_SECONDS = 30


async def main() -> None:
    async with asyncio.timeout(2 * TIMEOUT_SECONDS):
        namespace = await Namespace({"metadata": {"generateName": "kr8s-"}})
        await namespace.create()
        await check_watch(namespace.name)
        await check_deployment(namespace.name)


async def check_watch(namespace: str) -> None:
    config_map = await ConfigMap({"metadata": {"name": "watched", "namespace": namespace}})
    await config_map.create()
    events = []
    async for event, obj in kr8s.asyncio.watch(
        "configmaps", namespace=namespace, field_selector="metadata.name=watched"
    ):
        events.append((event, obj.raw.get("data", {}).get("key")))
        if event == "ADDED":
            await config_map.patch({"data": {"key": "value"}})
        elif event == "MODIFIED":
            await config_map.delete()
        else:
            break
    assert events == [("ADDED", None), ("MODIFIED", "value"), ("DELETED", "value")], events
    assert not await config_map.exists()


async def check_deployment(namespace: str) -> None:
    template = {
        "metadata": {"labels": {"app": "web"}},
        "spec": {"containers": [{"name": "web", "image": "nginx:1.27"}]},
    }
    deployment = await Deployment(
        {
            "metadata": {"name": "web", "namespace": namespace},
            "spec": {"replicas": 1, "selector": {"matchLabels": {"app": "web"}}, "template": template},
        }
    )
    await deployment.create()
    await deployment.wait("condition=Available", timeout=TIMEOUT_SECONDS)
    await deployment.scale(3)
    await deployment.wait("jsonpath='{.status.availableReplicas}'=3", timeout=TIMEOUT_SECONDS)
    pods = await deployment.pods()
    assert len(pods) == 3, pods
    pod: Pod = pods[0]
    lines = [line async for line in pod.logs()]
    assert lines == ["first line", "second line"], lines
    result = await pod.exec(["fail"], check=False)
    assert (result.returncode, result.stderr) == (3, b"refused\n"), result
    await deployment.delete()
    await deployment.wait("delete", timeout=TIMEOUT_SECONDS)


if __name__ == "__main__":
    asyncio.run(main())
