"""Simulated nodes of a cluster with any API server: the Nodes that this process has added, and the pods bound to them.

    API server --watch--> mirror (a store) --> simulated kubelets --> mirror --changes--> writes to the API server

The kubelets are those of the development cluster. The mirror has these Nodes and pods only, so that nothing else can
be written. Writes are those of a kubelet: the status of nodes and pods, leases, Events, and the end of deleted pods.
"""

from __future__ import annotations

import asyncio
import contextlib
import dataclasses
import logging
import random
from collections import deque
from collections.abc import Collection, Iterable, Mapping
from functools import partial
from typing import TYPE_CHECKING, Any, Final

from msgspec import structs

from kubeloop.devcluster.kubelet.nodes.simulated_nodes import SimulatedNodes
from kubeloop.devcluster.simulation.node_objects import NodeSettings
from kubeloop.devcluster.storage.store import Change, ObjectStore
from kubeloop.informers.factory import InformerFactory
from kubeloop.kube.client.api_client import ApiClient, PatchType
from kubeloop.kube.clock import Clock
from kubeloop.kube.errors import AlreadyExists, ApiError, Conflict, NotFound, ServerUnreachable
from kubeloop.kube.json_object import JSON
from kubeloop.kube.objects.resources import EVENTS, LEASES, NODES, PODS, Resource

if TYPE_CHECKING:
    from kubeloop.devcluster.kubelet.stages.files import Stage

log = logging.getLogger(__name__)

OWNER_LABEL: Final = "kubeloop.dev/simulated-by"
"""Label of a node in a cluster that is not kubeloop's: names the process that simulates it."""

_WRITERS: Final = 16
_MAX_POD_WATCHES: Final = 50  # of single nodes; with more nodes, all bound pods of the cluster are watched
_RETRY_SECONDS: Final = 1.0  # after a write that did not reach the server
_CONFLICTS: Final = 5  # tries to remove a taint that others change, too
_REMOVED: Final = frozenset({"PodResizePending", "PodResizeInProgress", "NetworkUnavailable"})
"""Conditions that kubelets remove; others may have been added in the meantime."""
_NOT_READY: Final = {"key": "node.kubernetes.io/not-ready", "effect": "NoSchedule"}

_WRITTEN: Final[Mapping[str, Resource[Any]]] = {"Node": NODES, "Pod": PODS, "Lease": LEASES, "Event": EVENTS}
_Key = tuple[Resource[Any], str, str]  # resource, namespace, name


class RemoteNodes:
    """Simulates the nodes `names`, as far as they have the label OWNER_LABEL=`owner`. Call run() once."""

    def __init__(
        self,
        client: ApiClient,
        owner: str,
        names: Collection[str],
        settings: NodeSettings,
        *,
        clock: Clock,
        rng: random.Random,
        stages: Iterable[Stage] = (),
    ) -> None:
        self._client = client
        self._owner = owner
        self._names = frozenset(names)
        self._store = ObjectStore(seconds=asyncio.get_running_loop().time)
        self._informers = InformerFactory(client, clock=clock, rng=random.Random(rng.getrandbits(64)))
        settings = dataclasses.replace(settings, count=0, every_node=False, awaits_objects=False)
        self._nodes = SimulatedNodes(self._store, settings, clock=clock, rng=rng, stages=stages)
        self._remote: dict[_Key, JSON] = {}  # Nodes and pods as the API server has them
        self._orphans: dict[str, dict[_Key, JSON]] = {}  # pods of nodes that the mirror does not have yet
        self._is_applying = False  # True while a state of the API server is stored
        self._dirty: set[_Key] = set()  # written to the mirror, not yet to the API server
        self._in_flight: set[_Key] = set()
        self._queue: deque[_Key] = deque()
        self._queued = asyncio.Semaphore(0)
        self.synced = asyncio.Event()

    @property
    def pods(self) -> list[JSON]:
        """The pods of the nodes."""
        return self._store.list(PODS)

    async def run(self) -> None:
        """Simulate until cancelled."""
        nodes, pods = _as_json(NODES), _as_json(PODS)
        node_informer = self._informers.informer(nodes, label_selector=f"{OWNER_LABEL}={self._owner}")
        node_informer.on_latest(self._node_observed, deleted=self._node_deleted)
        own = [f"spec.nodeName={name}" for name in self._names]
        for selector in own if len(own) <= _MAX_POD_WATCHES else ["spec.nodeName!="]:
            pod_informer = self._informers.informer(pods, field_selector=selector)
            pod_informer.on_latest(self._pod_observed, deleted=partial(self._remove, PODS))
        for resource in _WRITTEN.values():
            self._store.subscribe(resource, self._mirror_changed)
        async with asyncio.TaskGroup() as group:
            group.create_task(self._informers.run(), name="informers")
            await self._informers.wait_synced()
            self.synced.set()
            group.create_task(self._nodes.run(), name="nodes")
            for number in range(_WRITERS):
                group.create_task(self._write_forever(), name=f"writer/{number}")

    # --- from the API server ---------------------------------------------------------------------------------------

    def _node_observed(self, node: JSON) -> None:
        name = node["metadata"]["name"]
        self._apply(NODES, node)
        for pod in self._orphans.pop(name, {}).values():
            self._apply(PODS, pod)

    def _node_deleted(self, node: JSON) -> None:
        name = node["metadata"]["name"]
        self._remove(NODES, node)
        for pod in [pod for pod in self._store.list(PODS) if pod["spec"]["nodeName"] == name]:
            self._remove(PODS, pod)

    def _pod_observed(self, pod: JSON) -> None:
        node = pod["spec"]["nodeName"]
        if node in self._names and self._store.get(NODES, "", node) is not None:
            self._apply(PODS, pod)
        elif node in self._names:
            self._orphans.setdefault(node, {})[_key(PODS, pod)] = pod

    def _apply(self, resource: Resource[Any], obj: JSON) -> None:
        """Store a state of the API server. Of an object whose write is pending, the status of the mirror stays."""
        key = _key(resource, obj)
        self._remote[key] = obj
        metadata = {name: value for name, value in obj["metadata"].items() if name != "resourceVersion"}
        mirrored = {**obj, "metadata": metadata}
        before = self._store.get(*key)
        self._is_applying = True
        try:
            if before is not None and before["metadata"]["uid"] != metadata["uid"]:
                self._store.delete(*key)
                before = None
            if before is None:
                self._store.create(resource, mirrored)
            elif key in self._dirty or key in self._in_flight:
                status = _with_status(mirrored.get("status") or {}, before.get("status") or {})
                self._store.update(resource, {**mirrored, "status": status})
            elif _without_version(before) != mirrored:
                self._store.update(resource, mirrored)
        finally:
            self._is_applying = False

    def _remove(self, resource: Resource[Any], obj: JSON) -> None:
        key = _key(resource, obj)
        uid = obj["metadata"]["uid"]
        for pods in self._orphans.values():
            pods.pop(key, None)
        if key in self._remote and self._remote[key]["metadata"]["uid"] == uid:
            del self._remote[key]
        before = self._store.get(*key)
        if before is None or before["metadata"]["uid"] != uid:
            return
        self._is_applying = True
        try:
            self._store.delete(*key)
        finally:
            self._is_applying = False

    # --- to the API server -----------------------------------------------------------------------------------------

    def _mirror_changed(self, change: Change) -> None:
        """Plan the write of what a simulated kubelet has changed."""
        if self._is_applying:
            return
        obj = change.now.object
        key = _key(_WRITTEN[obj["kind"]], obj)
        if key not in self._dirty:
            self._dirty.add(key)
            if key not in self._in_flight:  # else its writer repeats
                self._queue.append(key)
                self._queued.release()

    async def _write_forever(self) -> None:
        while True:
            await self._queued.acquire()
            key = self._queue.popleft()
            try:
                while key in self._dirty:
                    self._dirty.discard(key)
                    self._in_flight.add(key)
                    try:
                        await self._write(key)
                    finally:
                        self._in_flight.discard(key)
            except ServerUnreachable as error:
                log.warning("cannot write, retrying", extra={"object": _text(key), "error": str(error)})
                await asyncio.sleep(_RETRY_SECONDS)
                self._dirty.add(key)
                self._queue.append(key)
                self._queued.release()
            except ApiError as error:  # the object has changed or is deleted; its next state is written
                self._dirty.discard(key)
                if not isinstance(error, NotFound | Conflict):
                    log.warning("the API server refuses a write", extra={"object": _text(key), "error": str(error)})

    async def _write(self, key: _Key) -> None:
        resource = key[0]
        obj = self._store.get(*key)
        if resource is EVENTS:
            if obj is not None:
                self._store.delete(*key)
                self._dirty.discard(key)
                await self._client.create_raw(EVENTS, _without_identity(obj), obj["metadata"]["namespace"])
        elif resource is LEASES:
            if obj is not None:
                await self._write_lease(obj)
        elif (remote := self._remote.get(key)) is not None:
            if resource is PODS and (obj is None or obj["metadata"].get("deletionGracePeriodSeconds") == 0):
                await self._delete_pod(remote)
            if obj is not None:
                await self._write_object(key, remote, obj)

    async def _write_lease(self, lease: JSON) -> None:
        metadata = lease["metadata"]
        spec = {"spec": lease["spec"]}
        try:
            await self._client.patch(LEASES, metadata["name"], spec, PatchType.MERGE, namespace=metadata["namespace"])
        except NotFound:
            with contextlib.suppress(AlreadyExists):  # the next renewal follows in seconds
                await self._client.create_raw(LEASES, _without_identity(lease), metadata["namespace"])

    async def _delete_pod(self, pod: JSON) -> None:
        metadata = pod["metadata"]
        await self._client.delete(
            PODS, metadata["name"], metadata["namespace"], grace_period_seconds=0, precondition_uid=metadata["uid"]
        )

    async def _write_object(self, key: _Key, remote: JSON, obj: JSON) -> None:
        """Patch what differs from the state of the API server: metadata, the taint of a new node, and status."""
        resource, namespace, name = key
        uid = remote["metadata"]["uid"]
        if metadata := _changed_metadata(remote["metadata"], obj["metadata"]):
            body = {"metadata": {**metadata, "uid": uid}}
            await self._client.patch(resource, name, body, PatchType.MERGE, namespace=namespace)
        if resource is NODES and _NOT_READY in _taints(remote) and _NOT_READY not in _taints(obj):
            await self._remove_taint(name)
        if status := _changed_status(remote.get("status") or {}, obj.get("status") or {}):
            body = {"metadata": {"uid": uid}, "status": status}
            await self._client.patch(
                resource, name, body, PatchType.STRATEGIC, namespace=namespace, subresource="status"
            )

    async def _remove_taint(self, name: str) -> None:
        for _ in range(_CONFLICTS):
            node: Any = await self._client.get_raw(NODES, name)
            taints = [taint for taint in _taints(node) if taint != _NOT_READY]
            version = node["metadata"]["resourceVersion"]
            body = {"metadata": {"resourceVersion": version}, "spec": {"taints": taints or None}}
            try:
                await self._client.patch(NODES, name, body, PatchType.MERGE)
            except Conflict:
                continue
            return


async def remove_nodes(client: ApiClient, names: Collection[str], owner: str, pods: Iterable[JSON]) -> None:
    """Delete the nodes of `owner` with these names, and their pods, which no kubelet ends any more."""
    for name in names:
        try:
            node = await client.get(NODES, name)
            if node.metadata.labels.get(OWNER_LABEL) == owner:
                await client.delete(NODES, name, precondition_uid=node.metadata.uid)
        except NotFound:
            continue
    for pod in pods:
        metadata = pod["metadata"]
        try:
            await client.delete(
                PODS, metadata["name"], metadata["namespace"], grace_period_seconds=0, precondition_uid=metadata["uid"]
            )
        except (NotFound, Conflict):
            continue


def _as_json(resource: Resource[Any]) -> Resource[JSON]:
    return structs.replace(resource, type=dict)


def _key(resource: Resource[Any], obj: JSON) -> _Key:
    metadata = obj["metadata"]
    return resource, metadata.get("namespace", "") if resource.namespaced else "", metadata["name"]


def _text(key: _Key) -> str:
    resource, namespace, name = key
    return f"{resource.singular} {f'{namespace}/' if namespace else ''}{name}"


def _taints(node: JSON) -> list[JSON]:
    return node["spec"].get("taints") or []


def _without_version(obj: JSON) -> JSON:
    metadata = {name: value for name, value in obj["metadata"].items() if name != "resourceVersion"}
    return {**obj, "metadata": metadata}


def _without_identity(obj: JSON) -> JSON:
    """Return the object as a client creates it."""
    owned = ("uid", "resourceVersion", "creationTimestamp")
    return {**obj, "metadata": {name: value for name, value in obj["metadata"].items() if name not in owned}}


def _changed_metadata(before: JSON, after: JSON) -> JSON:
    """Return a merge patch of annotations, labels and finalizers, {} if they are equal."""
    changed: JSON = {}
    for field in ("annotations", "labels"):
        old, new = before.get(field) or {}, after.get(field) or {}
        if old != new:
            changed[field] = {name: new.get(name) for name in {*old, *new} if old.get(name) != new.get(name)}
    if (before.get("finalizers") or []) != (after.get("finalizers") or []):
        changed["finalizers"] = after.get("finalizers") or None
    return changed


def _with_status(remote: JSON, own: JSON) -> JSON:
    """Return the status of a kubelet with the fields and conditions that only the API server has: those of others."""
    types = {condition["type"] for condition in own.get("conditions") or ()}
    others = [condition for condition in remote.get("conditions") or () if condition["type"] not in types]
    merged = {**remote, **own}
    if others:
        merged["conditions"] = [*(own.get("conditions") or ()), *others]
    return merged


def _changed_status(before: JSON, after: JSON) -> JSON:
    """Return a strategic merge patch of the status, {} if nothing differs. Conditions are merged by type: those that
    others write in the meantime stay."""
    changed: JSON = {name: None for name in before if name not in after}
    for name, value in after.items():
        if before.get(name) != value:
            changed[name] = _changed_conditions(before.get(name) or (), value) if name == "conditions" else value
    return changed


def _changed_conditions(before: Iterable[JSON], after: Iterable[JSON]) -> list[JSON]:
    old, new = ({condition["type"]: condition for condition in conditions} for conditions in (before, after))
    removed = [{"type": type_, "$patch": "delete"} for type_ in old if type_ in _REMOVED and type_ not in new]
    return [condition for type_, condition in new.items() if old.get(type_) != condition] + removed
