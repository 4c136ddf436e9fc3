"""InMemoryCluster: informers, API client and event sink of a scheduler, with objects in memory."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable
from typing import Any

import msgspec

from kubeloop.informers.store import Store
from kubeloop.kube.client.api_client import ListPage
from kubeloop.kube.errors import ServerUnreachable, from_status
from kubeloop.kube.objects.api_types import Node, Object, Pod, Status, convert, to_json
from kubeloop.kube.objects.resources import NODES, PODS, Resource
from kubeloop.scheduler.config.types import SchedulerConfiguration
from kubeloop.scheduler.context import SchedulerContext
from kubeloop.scheduler.plugins.registry import IN_TREE_PLUGINS
from kubeloop.scheduler.scheduler import Scheduler
from support.disabled_recorders import DisabledPodRecorder


def new_scheduler(cluster: Any, config: SchedulerConfiguration, clock: Any, **context: Any) -> Scheduler:
    """Return a scheduler of the in-tree plugins. cluster: its API client, informers and event sink.

    context: other fields of SchedulerContext than the defaults here.
    """
    fields = {"client": cluster, "clock": clock, "rng": random.Random(1), "recorder": cluster}
    fields["traces"] = DisabledPodRecorder()
    return Scheduler(SchedulerContext(**(fields | context)), cluster, config, IN_TREE_PLUGINS)


class Synced:
    async def wait_synced(self) -> None: ...


class MemoryInformer:
    """A store with event handlers that is synced from the start."""

    def __init__(self) -> None:
        self.store: Store[Any] = Store()
        self.handlers: list[Any] = []

    def add_handler(self, handler: Any) -> Synced:
        self.handlers.append(handler)
        for obj in self.store.list():
            handler.on_add(obj, True)
        return Synced()

    async def wait_synced(self) -> None: ...

    def put(self, obj: Object) -> None:
        old = self.store.put(obj.key, obj)
        for handler in self.handlers:
            if old is None:
                handler.on_add(obj, False)
            else:
                handler.on_update(old, obj)

    def remove(self, key: str) -> None:
        old = self.store.remove(key)
        for handler in self.handlers:
            handler.on_delete(old, False)


class InMemoryCluster:
    """Informer factory, API client and event sink.

    before_bind(pod, node): called before a binding; may raise, or return an awaitable. lost_responses: number of
    bindings that are applied although the client gets an error.
    """

    def __init__(self, clock: Any) -> None:
        self.clock = clock
        self.informers: dict[str, MemoryInformer] = {}
        self.version = 0
        self.events: list[tuple[str, str, str]] = []  # (pod key, reason, message)
        self.bindings: list[tuple[str, str]] = []
        self.patches: list[tuple[str, dict[str, Any]]] = []
        self.before_bind: Callable[[str, str], Any] | None = None
        self.lost_responses = 0
        self.fetched: list[str] = []  # names of the full objects that were read; "all nodes" for lists

    def informer(self, resource: Resource[Any], **_: Any) -> Any:
        return self.informers.setdefault(resource.plural, MemoryInformer())

    def event(self, about: Any, type_: str, reason: str, message: str) -> None:
        self.events.append((about.key, reason, message))

    def node(self, name: str, *, cpu: str = "4", memory: str = "8Gi", pods: str = "110", **fields: Any) -> Node:
        allocatable = {"cpu": cpu, "memory": memory, "pods": pods}
        metadata = {"name": name, "labels": {"kubernetes.io/hostname": name} | fields.pop("labels", {})}
        node = self.versioned(
            convert(Node, {"metadata": metadata, "status": {"allocatable": allocatable}, "spec": fields})
        )
        self.informer(NODES).put(node)
        return node

    def pod(self, name: str, *, cpu: str = "100m", namespace: str = "default", **spec: Any) -> Pod:
        metadata = {"name": name, "namespace": namespace, "uid": f"uid-{name}-{self.version}"}
        metadata |= spec.pop("metadata", {})
        container = {"name": "c", "image": "i", "resources": {"requests": {"cpu": cpu}} if cpu else {}}
        spec = {"schedulerName": "default-scheduler", "containers": [container], **spec}
        pod = self.versioned(convert(Pod, {"metadata": metadata, "spec": spec, "status": {"phase": "Pending"}}))
        self.informer(PODS).put(pod)
        return pod

    def versioned(self, obj: Any) -> Any:
        self.version += 1
        metadata = msgspec.structs.replace(obj.metadata, resource_version=str(self.version))
        return msgspec.structs.replace(obj, metadata=metadata)

    def change_pod(self, key: str, **spec: Any) -> None:
        pod = self.informer(PODS).store.get(key)
        changed = msgspec.structs.replace(pod, spec=msgspec.structs.replace(pod.spec, **spec))
        self.informer(PODS).put(self.versioned(changed))

    def delete_pod(self, key: str) -> None:
        self.informer(PODS).remove(key)

    def node_of(self, key: str) -> str:
        pod = self.informer(PODS).store.get(key)
        return pod.spec.node_name if pod is not None else ""

    async def create_raw(self, resource: Any, body: Any, namespace: str, *, name: str, **_: Any) -> None:
        await asyncio.sleep(0.001)
        key, node = f"{namespace}/{name}", body["target"]["name"]
        if self.before_bind is not None:
            awaitable = self.before_bind(key, node)
            if awaitable is not None:
                await awaitable
        pod = self.informer(PODS).store.get(key)
        if pod is None or pod.metadata.uid != body["metadata"]["uid"]:
            raise api_error(404, "NotFound", f'pods "{name}" not found')
        if pod.spec.node_name:
            raise api_error(409, "Conflict", f"pod {name} is already assigned to node {pod.spec.node_name}")
        self.bindings.append((key, node))
        self.change_pod(key, node_name=node)
        if self.lost_responses:
            self.lost_responses -= 1
            raise ServerUnreachable("the response was lost", maybe_applied=True)

    async def get(self, resource: Any, name: str, namespace: str, **_: Any) -> Pod:
        await asyncio.sleep(0.001)
        pod = self.informer(PODS).store.get(f"{namespace}/{name}")
        if pod is None:
            raise api_error(404, "NotFound", f'pods "{name}" not found')
        return pod

    def full_object(self, resource: Any, obj: Any) -> dict[str, Any]:
        """Return the object as the API server has it, with fields that the Structs do not declare."""
        body: dict[str, Any] = to_json(obj)
        body["metadata"]["managedFields"] = [{"manager": "kubectl"}]
        body["spec"] = {**body.get("spec", {}), "unknownToUs": obj.metadata.name}
        return {"apiVersion": "v1", "kind": resource.kind, **body}

    async def get_raw(self, resource: Any, name: str, namespace: str = "", **_: Any) -> dict[str, Any]:
        await asyncio.sleep(0.001)
        self.fetched.append(name)
        obj = self.informer(resource).store.get(f"{namespace}/{name}" if namespace else name)
        if obj is None:
            raise api_error(404, "NotFound", f'{resource.plural} "{name}" not found')
        return self.full_object(resource, obj)

    async def list_all(self, resource: Any, **_: Any) -> ListPage[Any]:
        await asyncio.sleep(0.001)
        self.fetched.append(f"all {resource.plural}")
        return ListPage(items=[self.full_object(resource, obj) for obj in self.informer(resource).store.list()])

    async def patch(self, resource: Any, name: str, body: Any, patch_type: Any, namespace: str, **_: Any) -> None:
        await asyncio.sleep(0.001)
        self.patches.append((f"{namespace}/{name}", body["status"]))

    async def delete(self, resource: Any, name: str, namespace: str, **_: Any) -> None:
        await asyncio.sleep(0.001)
        self.delete_pod(f"{namespace}/{name}")


def api_error(code: int, reason: str, message: str) -> Exception:
    return from_status(Status(status="Failure", code=code, reason=reason, message=message))
