"""Nodes and a kubelet for a real API server: bound pods become ready, terminating pods are removed.

The kubelet runs in a thread with its own event loop and continues after restarts of the API server. A pod whose image
ends in ":broken" never becomes ready; one whose image ends in ":slow" becomes ready after a second.
"""

from __future__ import annotations

import asyncio
import random
import threading
from collections.abc import Awaitable, Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from kubeloop.kube.auth.credentials import connect
from kubeloop.kube.client.api_client import Client, PatchType
from kubeloop.kube.clock import SystemClock
from kubeloop.kube.errors import ApiError, ServerUnreachable
from kubeloop.kube.objects.api_types import Pod
from kubeloop.kube.objects.resources import PODS
from support.real_apiserver import RealApiServer

MERGE_PATCH = "application/merge-patch+json"
SIZE = {"cpu": "4", "memory": "8Gi", "pods": "110", "ephemeral-storage": "100Gi"}


def make_node(
    server: RealApiServer,
    name: str,
    *,
    labels: Mapping[str, str] | None = None,
    taints: list[dict[str, str]] | None = None,
    size: Mapping[str, str] = SIZE,
) -> None:
    """Create a ready node. Removes the taint that kube-apiserver adds, in place of the node lifecycle controller."""
    metadata = {"name": name, "labels": {"kubernetes.io/hostname": name, **(labels or {})}}
    server.request("POST", "/api/v1/nodes", {"apiVersion": "v1", "kind": "Node", "metadata": metadata})
    server.request("PATCH", f"/api/v1/nodes/{name}", {"spec": {"taints": taints}}, content_type=MERGE_PATCH)
    ready = {"type": "Ready", "status": "True", "reason": "KubeletReady"}
    status = {"capacity": dict(size), "allocatable": dict(size), "conditions": [ready]}
    server.request("PATCH", f"/api/v1/nodes/{name}/status", {"status": status}, content_type=MERGE_PATCH)


@contextmanager
def fake_kubelet(server: RealApiServer) -> Iterator[None]:
    """Run the kubelet of all nodes until the end of the block."""
    loop = asyncio.new_event_loop()
    stopping = asyncio.Event()

    async def until_stopped() -> None:
        running = asyncio.ensure_future(_run(server))
        await stopping.wait()
        running.cancel()
        await asyncio.gather(running, return_exceptions=True)

    thread = threading.Thread(target=loop.run_until_complete, args=(until_stopped(),), name="fake-kubelet")
    thread.start()
    try:
        yield
    finally:
        loop.call_soon_threadsafe(stopping.set)
        thread.join()
        loop.close()


async def _run(server: RealApiServer) -> None:
    client = Client(await connect(str(server.kubeconfig), None), clock=SystemClock(), rng=random.Random(0))
    handled: set[str] = set()  # UIDs of started pods; with "/end", of terminated pods
    try:
        async with asyncio.TaskGroup() as tasks:
            while True:
                try:
                    await _watch_pods(client, handled, tasks)
                except (ApiError, ServerUnreachable):
                    await asyncio.sleep(0.1)
    finally:
        await client.close()


async def _watch_pods(client: Client, handled: set[str], tasks: asyncio.TaskGroup) -> None:
    page = await client.list_all(PODS)
    for pod in page.items:
        _handle(client, pod, handled, tasks)
    async with client.watch(PODS, resource_version=page.metadata.resource_version) as events:
        async for event in events:
            if event.type == "ERROR":
                return
            if event.type in ("ADDED", "MODIFIED"):
                _handle(client, event.object, handled, tasks)


def _handle(client: Client, pod: Pod, handled: set[str], tasks: asyncio.TaskGroup) -> None:
    if not pod.spec.node_name:
        return
    key = pod.metadata.uid + ("/end" if pod.metadata.deletion_timestamp else "")
    if key in handled or (pod.status.phase != "Pending" and not pod.metadata.deletion_timestamp):
        return
    handled.add(key)
    tasks.create_task(_end(client, pod) if pod.metadata.deletion_timestamp else _start(client, pod))


async def _start(client: Client, pod: Pod) -> None:
    images = [container.image for container in pod.spec.containers]
    if any(image.endswith(":broken") for image in images):
        return
    if any(image.endswith(":slow") for image in images):
        await asyncio.sleep(1.0)
    types = ("PodReadyToStartContainers", "Initialized", "Ready", "ContainersReady")
    status: dict[str, Any] = {
        "phase": "Running",
        "podIP": "10.0.0.1",
        "podIPs": [{"ip": "10.0.0.1"}],
        "conditions": [{"type": type_, "status": "True", "lastTransitionTime": _now()} for type_ in types],
    }
    name, namespace = pod.metadata.name, pod.metadata.namespace
    body = {"metadata": {"uid": pod.metadata.uid}, "status": status}
    await _retry(lambda: client.patch(PODS, name, body, PatchType.STRATEGIC, namespace, subresource="status"))


async def _end(client: Client, pod: Pod) -> None:
    name, namespace, uid = pod.metadata.name, pod.metadata.namespace, pod.metadata.uid
    await _retry(lambda: client.delete(PODS, name, namespace, precondition_uid=uid, grace_period_seconds=0))


async def _retry(send: Callable[[], Awaitable[object]]) -> None:
    """Send a request until the server responds with success or an error that is not transient."""
    while True:
        try:
            await send()
        except ServerUnreachable:
            await asyncio.sleep(0.1)
        except ApiError as error:
            if error.code < 500 and error.code != 429:
                return
            await asyncio.sleep(0.1)
        else:
            return


def _now() -> str:
    return SystemClock().now().strftime("%Y-%m-%dT%H:%M:%SZ")
