"""Nodes and a kubelet for a real API server: bound pods become ready, terminating pods are removed.

The kubelet runs in a thread with its own event loop and continues after restarts of the API server. A pod whose image
ends in ":broken" never becomes ready; one whose image ends in ":slow" becomes ready after a second. A container whose
image ends in ":exits-0" or ":exits-1" ends with that code after a second.
"""

from __future__ import annotations

import asyncio
import contextlib
import random
import threading
import time
from collections.abc import Awaitable, Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from kubeloop.kube.auth.credentials import connect
from kubeloop.kube.client.api_client import ApiClient, PatchType
from kubeloop.kube.clock import SystemClock, rfc3339_micro
from kubeloop.kube.errors import AlreadyExists, ApiError, ServerUnreachable
from kubeloop.kube.objects.api_types import Pod
from kubeloop.kube.objects.resources import EVENTS, LEASES, NODES, PODS
from support.comparison.real_apiserver import RealApiServer

MERGE_PATCH = "application/merge-patch+json"
HEARTBEAT_SECONDS = 10.0  # as kubelets do
LEASE_NAMESPACE = "kube-node-lease"
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


class LostNodes:
    """Names of the nodes whose kubelet neither acts nor reports; may be changed from any thread."""

    def __init__(self) -> None:
        self.names: set[str] = set()
        self.changed = threading.Event()

    def lose(self, name: str) -> None:
        self.names.add(name)

    def restore(self, name: str) -> None:
        self.names.discard(name)
        self.changed.set()


@contextmanager
def fake_kubelet(
    server: RealApiServer, *, reports_containers: bool = False, heartbeats: bool = False
) -> Iterator[LostNodes]:
    """Run the kubelet of all nodes until the end of the block.

    reports_containers: it also writes the statuses of containers, and Events of their start. heartbeats: it renews the
    Leases of the nodes, for a node lifecycle controller.
    """
    loop = asyncio.new_event_loop()
    stopping = asyncio.Event()
    lost = LostNodes()

    async def until_stopped() -> None:
        running = asyncio.ensure_future(_run(server, lost, reports_containers, heartbeats))
        await stopping.wait()
        running.cancel()
        await asyncio.gather(running, return_exceptions=True)

    thread = threading.Thread(target=loop.run_until_complete, args=(until_stopped(),), name="fake-kubelet")
    thread.start()
    try:
        yield lost
    finally:
        loop.call_soon_threadsafe(stopping.set)
        thread.join()
        loop.close()


async def _run(server: RealApiServer, lost: LostNodes, reports_containers: bool, heartbeats: bool) -> None:
    client = ApiClient(await connect(str(server.kubeconfig), None), clock=SystemClock(), rng=random.Random(0))
    kubelet = _Kubelet(client, lost, reports_containers)
    try:
        async with asyncio.TaskGroup() as tasks:
            if heartbeats:
                tasks.create_task(kubelet.report_nodes(tasks))
            while True:
                try:
                    await kubelet.watch_pods(tasks)
                except (ApiError, ServerUnreachable):
                    await asyncio.sleep(0.1)
    finally:
        await client.close()


class _Kubelet:
    """The kubelet of all nodes. _handled: UIDs of started pods; with "/end", of terminated pods."""

    def __init__(self, client: ApiClient, lost: LostNodes, reports_containers: bool) -> None:
        self._client = client
        self._lost = lost
        self._reports_containers = reports_containers
        self._handled: set[str] = set()

    async def report_nodes(self, tasks: asyncio.TaskGroup) -> None:
        """Renew the Leases of all nodes that are not lost; a node that is restored becomes ready, and ends its pods."""
        renewed: dict[str, float] = {}
        while True:
            try:
                if self._lost.changed.is_set():
                    self._lost.changed.clear()
                    await self._report_restored(tasks)
                now = time.monotonic()
                for node in (await self._client.list_all(NODES)).items:
                    name = node.metadata.name
                    if name not in self._lost.names and now - renewed.get(name, 0.0) >= HEARTBEAT_SECONDS:
                        await self._renew(name, first=name not in renewed)
                        renewed[name] = now
            except (ApiError, ServerUnreachable):
                pass  # the next turn repeats it
            await asyncio.sleep(1.0)

    async def _renew(self, name: str, *, first: bool) -> None:
        spec = {"holderIdentity": name, "leaseDurationSeconds": 40, "renewTime": rfc3339_micro(SystemClock().now())}
        if first:
            body = {"metadata": {"name": name, "namespace": LEASE_NAMESPACE}, "spec": spec}
            with contextlib.suppress(AlreadyExists):
                await self._client.create(LEASES, body, LEASE_NAMESPACE)
        await self._client.patch(LEASES, name, {"spec": spec}, PatchType.MERGE, LEASE_NAMESPACE)

    async def _report_restored(self, tasks: asyncio.TaskGroup) -> None:
        for node in (await self._client.list_all(NODES)).items:
            name = node.metadata.name
            if name in self._lost.names or all(
                it.status == "True" for it in node.status.conditions if it.type == "Ready"
            ):
                continue
            ready = {"type": "Ready", "status": "True", "reason": "KubeletReady", "lastTransitionTime": _now()}
            body = {"status": {"conditions": [{**ready, "lastHeartbeatTime": _now()}]}}
            await self._client.patch(NODES, name, body, PatchType.STRATEGIC, subresource="status")
        for pod in (await self._client.list_all(PODS)).items:
            self._handle(pod, tasks)

    async def watch_pods(self, tasks: asyncio.TaskGroup) -> None:
        page = await self._client.list_all(PODS)
        for pod in page.items:
            self._handle(pod, tasks)
        async with self._client.watch(PODS, resource_version=page.metadata.resource_version) as events:
            async for event in events:
                if event.type == "ERROR":
                    return
                if event.type in ("ADDED", "MODIFIED"):
                    self._handle(event.object, tasks)

    def _handle(self, pod: Pod, tasks: asyncio.TaskGroup) -> None:
        if not pod.spec.node_name or pod.spec.node_name in self._lost.names:
            return
        key = pod.metadata.uid + ("/end" if pod.metadata.deletion_timestamp else "")
        if key in self._handled or (pod.status.phase != "Pending" and not pod.metadata.deletion_timestamp):
            return
        self._handled.add(key)
        tasks.create_task(self._end(pod) if pod.metadata.deletion_timestamp else self._start(pod))

    async def _start(self, pod: Pod) -> None:
        images = [container.image for container in pod.spec.containers]
        if any(image.endswith(":broken") for image in images):
            return
        if any(image.endswith(":slow") for image in images):
            await asyncio.sleep(1.0)
        if self._reports_containers:
            for container in pod.spec.containers:
                await self._report_start(pod, container.name, container.image)
        types = ("PodReadyToStartContainers", "Initialized", "Ready", "ContainersReady")
        status: dict[str, Any] = {
            "phase": "Running",
            "podIP": "10.0.0.1",
            "podIPs": [{"ip": "10.0.0.1"}],
            "conditions": [{"type": type_, "status": "True", "lastTransitionTime": _now()} for type_ in types],
        }
        if self._reports_containers:
            status["containerStatuses"] = [
                _running(container.name, container.image) for container in pod.spec.containers
            ]
        await self._write_status(pod, status)
        codes = [code for image in images for code in (0, 1) if image.endswith(f":exits-{code}")]
        if codes:
            await asyncio.sleep(1.0)
            await self._write_status(pod, _ended(pod, max(codes)))

    async def _write_status(self, pod: Pod, status: dict[str, Any]) -> None:
        name, namespace = pod.metadata.name, pod.metadata.namespace
        body = {"metadata": {"uid": pod.metadata.uid}, "status": status}
        await _retry(lambda: self._client.patch(PODS, name, body, PatchType.STRATEGIC, namespace, subresource="status"))

    async def _report_start(self, pod: Pod, container: str, image: str) -> None:
        """Write the Events of the start of a container whose image takes a tenth of a second to pull."""
        await self._event(pod, container, "Pulling", f'Pulling image "{image}"')
        await asyncio.sleep(0.1)
        took = "100ms (100ms including waiting). Image size: 1000000 bytes."
        await self._event(pod, container, "Pulled", f'Successfully pulled image "{image}" in {took}')
        await self._event(pod, container, "Created", f"Created container: {container}")
        await self._event(pod, container, "Started", f"Started container {container}")

    async def _event(self, pod: Pod, container: str, reason: str, message: str) -> None:
        metadata = pod.metadata
        involved = {"kind": "Pod", "apiVersion": "v1", "namespace": metadata.namespace, "name": metadata.name}
        involved |= {"uid": metadata.uid, "fieldPath": f"spec.containers{{{container}}}"}
        body = {
            "metadata": {"name": f"{metadata.name}.{container}.{reason.lower()}", "namespace": metadata.namespace},
            "involvedObject": involved,
            "reason": reason,
            "message": message,
            "type": "Normal",
            "source": {"component": "kubelet", "host": pod.spec.node_name},
            "firstTimestamp": _now(),
            "lastTimestamp": _now(),
            "count": 1,
            "reportingComponent": "kubelet",
            "reportingInstance": pod.spec.node_name,
        }
        await _retry(lambda: self._client.create(EVENTS, body, metadata.namespace))

    async def _end(self, pod: Pod) -> None:
        name, namespace, uid = pod.metadata.name, pod.metadata.namespace, pod.metadata.uid
        await _retry(lambda: self._client.delete(PODS, name, namespace, precondition_uid=uid, grace_period_seconds=0))


def _running(container: str, image: str) -> dict[str, Any]:
    state = {"running": {"startedAt": _now()}}
    status = {"name": container, "image": image, "imageID": "", "restartCount": 0, "state": state}
    return {**status, "ready": True, "started": True}


def _ended(pod: Pod, code: int) -> dict[str, Any]:
    """Return the status of a pod of which each container has ended with this code."""
    false = [{"type": type_, "status": "False", "lastTransitionTime": _now()} for type_ in ("Ready", "ContainersReady")]
    end = {"exitCode": code, "startedAt": _now(), "finishedAt": _now(), "reason": "Error" if code else "Completed"}
    statuses = [
        {
            "name": it.name,
            "image": it.image,
            "imageID": "",
            "ready": False,
            "restartCount": 0,
            "state": {"terminated": end},
        }
        for it in pod.spec.containers
    ]
    return {"phase": "Failed" if code else "Succeeded", "conditions": false, "containerStatuses": statuses}


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
