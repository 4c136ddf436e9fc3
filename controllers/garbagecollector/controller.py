"""The garbage collector: deletes what all its owners have left behind, in the background or foreground, or orphans it.

It watches the metadata of every resource that can be listed, watched and deleted, and keeps their graph. What the graph
points at is looked up afresh at the API server before anything is done to it. Source: kube-controller-manager v1.36,
pkg/controller/garbagecollector.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress
from typing import Any

import msgspec

from kubeloop.controllers.garbagecollector.graph import FOREGROUND, ORPHAN, Graph, Identity, Node, owner_identity
from kubeloop.controllers.runtime.controller import Controller
from kubeloop.controllers.runtime.metrics_interface import ControllerMetrics
from kubeloop.controllers.runtime.partial_object_metadata import metadata_only
from kubeloop.controllers.runtime.rate_limiter import backoff_seconds
from kubeloop.controllers.runtime.work_queue import WorkQueue
from kubeloop.informers.factory import InformerFactory
from kubeloop.informers.shared_informer import HandlerRegistration
from kubeloop.kube.client.api_client import Client, PatchType
from kubeloop.kube.client.discovery import ResourceMap
from kubeloop.kube.errors import ApiError, Conflict, NotFound, ServerUnreachable, UnsupportedMediaType
from kubeloop.kube.event_recorder import EventSink
from kubeloop.kube.objects.api_types import (
    ObjectMeta,
    ObjectReference,
    OwnerReference,
    PartialObjectMetadata,
    convert,
    to_json,
)
from kubeloop.kube.objects.resources import Resource
from kubeloop.tracing.recording.reconcile_recorder import Reconcile, ReconcileTraces

log = logging.getLogger(__name__)

_IGNORED = frozenset({"events", "events.events.k8s.io"})
_VERBS = frozenset({"delete", "list", "watch"})
_DEFINITIONS, _DEFINITION_SECONDS = "customresourcedefinitions.apiextensions.k8s.io", 0.5
_CONFLICT_TRIES, _CONFLICT_BASE_SECONDS = 4, 0.01
_MetadataResource = Resource[PartialObjectMetadata]
_ResourceKey = tuple[str, str, str]  # group, version, plural


class UnknownKind(Exception):
    """An owner reference names a kind that the server does not serve, or not yet."""


class ClusterScopedDependent(Exception):
    """An object without namespace names an owner that lives in one, which is not valid; nothing is done about it."""


class _Work:
    """What one reconcile does, for its trace."""

    def __init__(self, trace: Reconcile) -> None:
        self._trace = trace
        self._changed = False

    def doing(self, action: str) -> dict[str, str]:
        """Note an action that is about to be done; returns the headers of its request."""
        self._changed = True
        self._trace.note(action)
        traceparent = self._trace.traceparent
        return {"traceparent": traceparent} if traceparent else {}

    def finish(self, error: str | None) -> None:
        self._trace.finish(self._changed, error)


class GarbageCollector:
    """`run()` works until cancelled. Resources are discovered at its start, every `refresh_seconds`, and when a
    CustomResourceDefinition changes: a test of an operator does not wait for the next round.

    A resource that another part of the process watches already is not watched twice: its informer is shared.
    """

    name = "garbage-collector"

    def __init__(
        self,
        client: Client,
        informers: InformerFactory,
        *,
        recorder: EventSink,
        traces: ReconcileTraces,
        metrics: ControllerMetrics | None = None,
        workers: int = 20,
        refresh_seconds: float = 30.0,
        sync_timeout_seconds: float = 30.0,
    ) -> None:
        self._client = client
        self._informers = informers
        self._recorder = recorder
        self._traces = traces
        self._refresh_seconds = refresh_seconds
        self._sync_timeout_seconds = sync_timeout_seconds
        self._kinds: dict[tuple[str, str, str], _MetadataResource] = {}  # by group, version, kind
        self._preferred: dict[tuple[str, str], _MetadataResource] = {}  # by group, kind
        self._definitions_changed = asyncio.Event()
        self._monitors: dict[_ResourceKey, HandlerRegistration[Any]] = {}
        deletes, orphans = "garbage_collector_attempt_to_delete", "garbage_collector_attempt_to_orphan"
        self._to_delete = WorkQueue(deletes, metrics=metrics.queue(deletes) if metrics else None)
        self._to_orphan = WorkQueue(orphans, metrics=metrics.queue(orphans) if metrics else None)
        self.graph = Graph(to_delete=self._to_delete.add, to_orphan=self._to_orphan.add, misplaced=self._misplaced)
        self._deleting = Controller("garbagecollector", self.collect, self._to_delete, workers, metrics=metrics)
        self._orphaning = Controller("garbagecollector", self.orphan, self._to_orphan, workers, metrics=metrics)

    async def run(self) -> None:
        """Build the graph, then collect garbage until cancelled.

        Waits at most `sync_timeout_seconds` for the first lists, then goes on with what there is: nothing is deleted
        on the word of the graph alone.
        """
        try:
            async with asyncio.TaskGroup() as tasks:
                await self._discover_first()
                try:
                    async with asyncio.timeout(self._sync_timeout_seconds):
                        for registration in list(self._monitors.values()):
                            await registration.wait_synced()
                except TimeoutError:
                    log.warning("not all resources could be listed in time; collecting garbage anyway")
                tasks.create_task(self._keep_discovering(), name=f"{self.name}/discovery")
                tasks.create_task(self._deleting.run(), name=f"{self.name}/delete")
                tasks.create_task(self._orphaning.run(), name=f"{self.name}/orphan")
        finally:
            while self._monitors:
                self._informers.release(self._monitors.popitem()[1])

    # --- which resources there are ---------------------------------------------------------------------------------

    async def _discover_first(self) -> None:
        failures = 0
        while not await self._discover():
            await asyncio.sleep(backoff_seconds(failures, base=0.5, cap=self._refresh_seconds))
            failures += 1

    async def _keep_discovering(self) -> None:
        while True:
            with suppress(TimeoutError):
                async with asyncio.timeout(self._refresh_seconds):
                    await self._definitions_changed.wait()
                    await asyncio.sleep(_DEFINITION_SECONDS)  # until it is served, or no more
            self._definitions_changed.clear()
            await self._discover()

    async def _discover(self) -> bool:
        """Ask the server for its resources and watch those that are new. False: it has not answered."""
        try:
            served = await ResourceMap.discover(self._client)
        except (ApiError, ServerUnreachable, msgspec.DecodeError) as error:
            log.warning("discovery failed: %s", error)
            return False
        if not served.resources:
            return False
        kinds: dict[tuple[str, str, str], _MetadataResource] = {}
        preferred: dict[tuple[str, str], _MetadataResource] = {}
        watched: dict[_ResourceKey, _MetadataResource] = {}
        seen: set[str] = set()
        for each in served.resources:
            resource = metadata_only(each)
            kinds[each.group, each.version, each.kind] = resource
            if each.group_resource in seen:
                continue  # the server names the preferred version of a group first
            seen.add(each.group_resource)
            preferred[each.group, each.kind] = resource
            if served.verbs(each) >= _VERBS and each.group_resource not in _IGNORED:
                watched[each.group, each.version, each.plural] = resource
        self._kinds, self._preferred = kinds, preferred
        for key in [key for key in self._monitors if key not in watched]:
            self._informers.release(self._monitors.pop(key))
        for key, resource in watched.items():
            if key not in self._monitors:
                changed = self._definitions_changed.set if resource.group_resource == _DEFINITIONS else _nothing
                handler = _Monitor(self.graph, resource, changed)
                self._monitors[key] = self._informers.acquire_informer(resource).add_handler(handler)
        return True

    def _resource(self, api_version: str, kind: str) -> _MetadataResource:
        """Raises UnknownKind."""
        group, _, version = api_version.rpartition("/")
        resource = self._kinds.get((group, version, kind)) or self._preferred.get((group, kind))
        if resource is None:
            raise UnknownKind(f"unable to get REST mapping for {api_version}/{kind}.")
        return resource

    def _misplaced(self, dependent: Identity, reference: OwnerReference) -> None:
        about = ObjectReference(
            kind=dependent.kind,
            api_version=dependent.api_version,
            namespace=dependent.namespace,
            name=dependent.name,
            uid=dependent.uid,
        )
        owner = owner_identity(reference, dependent.namespace)
        text = f'ownerRef {owner} does not exist in namespace "{dependent.namespace}"'
        self._recorder.event(about, "Warning", "OwnerRefInvalidNamespace", text)

    # --- collecting ------------------------------------------------------------------------------------------------

    async def collect(self, uid: str) -> float | None:
        """Look whether the object of `uid` is garbage, or waits for its dependents, and act on it.

        Level-based. Returns when to look again, for objects that no informer has shown yet. Raising means: retry.
        """
        node = self.graph.get(uid)
        if node is None:
            return None
        virtual = node.virtual
        work, failure = self._begin(node), None
        try:
            absent = await self._collect(node, work)
        except ClusterScopedDependent as error:
            log.info("%s", error)
            return None
        except UnknownKind as error:
            failure = str(error)
            log.info("%s", error)
            self._definitions_changed.set()  # the kind may be new; if nobody serves it, this is asked ever more rarely
            node.checks += 1
            return backoff_seconds(node.checks, base=_DEFINITION_SECONDS)
        except Exception as error:
            failure = str(error)
            raise
        finally:
            work.finish(failure)
        if absent is not None:
            again = self.graph.found_absent(absent)
        else:
            # An object that came and went while a watch was down would stay in the graph for ever.
            again = virtual and self.graph.get(uid) is node and node.virtual
        if not again:
            return None
        node.checks += 1
        return backoff_seconds(node.checks)

    def _begin(self, node: Node) -> _Work:
        identity = node.identity
        key = f"{identity.namespace}/{identity.name}" if identity.namespace else identity.name
        return _Work(self._traces.reconcile("garbagecollector", key, identity.kind))

    async def _collect(self, node: Node, work: _Work) -> Identity | None:
        """Returns the identity under which no object was found, if so."""
        identity = node.identity
        if node.being_deleted and not node.deleting_dependents:
            return None  # its end will be seen
        try:
            latest = (await self._get(identity)).metadata
        except NotFound:
            return identity
        if latest.uid != identity.uid:
            return identity
        if node.deleting_dependents:
            await self._continue_foreground_deletion(node, work)
            return None
        if not latest.owner_references:
            return None
        solid, dangling, waiting = await self._classify(node, latest.owner_references)
        if solid:
            if dangling or waiting:
                # An owner that waits for its dependents would wait for ever for one that others keep.
                await self._drop_owners(node, [owner.uid for owner in (*dangling, *waiting)], work)
            return None
        if waiting and node.dependents:
            if any(dependent.deleting_dependents for dependent in node.dependents):
                await self._unblock_owners(node, work)  # there may be a circle, which would never end
            policy = "Foreground"
        elif ORPHAN in latest.finalizers:
            policy = "Orphan"
        elif FOREGROUND in latest.finalizers:
            policy = "Foreground"
        else:
            policy = "Background"
        try:
            await self._delete(identity, latest, policy, work)
        except NotFound:
            return identity
        return None

    async def _classify(
        self, node: Node, references: Sequence[OwnerReference]
    ) -> tuple[list[OwnerReference], list[OwnerReference], list[OwnerReference]]:
        """The references to owners that exist, that do not, and that exist but wait for their dependents' end."""
        solid, dangling, waiting = [], [], []
        for reference in references:
            owner = await self._owner(node.identity, reference)
            if owner is None:
                dangling.append(reference)
            elif owner.deletion_timestamp is not None and FOREGROUND in owner.finalizers:
                waiting.append(reference)
            else:
                solid.append(reference)
        return solid, dangling, waiting

    async def _owner(self, dependent: Identity, reference: OwnerReference) -> ObjectMeta | None:
        """The owner, freshly read; None if there is none. Raises ClusterScopedDependent, UnknownKind, ApiError."""
        absent = self.graph.absent
        if owner_identity(reference, "") in absent or owner_identity(reference, dependent.namespace) in absent:
            return None
        resource = self._resource(reference.api_version, reference.kind)
        if resource.namespaced and not dependent.namespace:
            raise ClusterScopedDependent(f"{dependent} lives in no namespace but refers to an owner that does")
        namespace = dependent.namespace if resource.namespaced else ""
        try:
            owner = (await self._client.get(resource, reference.name, namespace)).metadata
        except NotFound:
            owner = None
        if owner is None or owner.uid != reference.uid:
            absent.add(owner_identity(reference, namespace))
            return None
        return owner

    async def _continue_foreground_deletion(self, node: Node, work: _Work) -> None:
        blocking = node.blocking_dependents()
        if not blocking:
            await self._remove_finalizer(node.identity, FOREGROUND, work)
            return
        for dependent in blocking:
            if not dependent.deleting_dependents:
                self._to_delete.add(dependent.identity.uid)

    # --- orphaning -------------------------------------------------------------------------------------------------

    async def orphan(self, uid: str) -> float | None:
        """Take the object of `uid` out of the owners of its dependents, then let it go. Raising means: retry."""
        node = self.graph.get(uid)
        if node is None:
            return None
        work, failure = self._begin(node), None
        try:
            async with asyncio.TaskGroup() as patches:
                tasks = [patches.create_task(self._orphan_one(each, uid, work)) for each in list(node.dependents)]
            errors = [error for task in tasks if (error := task.result()) is not None]
            if errors:
                raise ExceptionGroup(f"failed to orphan dependents of {node.identity}", errors)
            await self._remove_finalizer(node.identity, ORPHAN, work)
        except Exception as error:
            failure = str(error)
            raise
        finally:
            work.finish(failure)
        return None

    async def _orphan_one(self, dependent: Node, owner_uid: str, work: _Work) -> Exception | None:
        """Returns what went wrong: one dependent must not keep the others from being orphaned."""
        try:
            await self._drop_owners(dependent, [owner_uid], work)
        except NotFound:
            return None
        except (ApiError, ServerUnreachable, UnknownKind) as error:
            return error
        return None

    # --- requests --------------------------------------------------------------------------------------------------

    def _place(self, identity: Identity) -> tuple[_MetadataResource, str]:
        """Resource and namespace of an object; the namespace of a virtual one may be that of its dependent.

        Raises UnknownKind, ClusterScopedDependent.
        """
        resource = self._resource(identity.api_version, identity.kind)
        if resource.namespaced and not identity.namespace:
            raise ClusterScopedDependent(f"{identity} lives in a namespace, but is named by an object that does not")
        return resource, identity.namespace if resource.namespaced else ""

    async def _get(self, identity: Identity) -> PartialObjectMetadata:
        resource, namespace = self._place(identity)
        return await self._client.get(resource, identity.name, namespace)

    async def _delete(self, identity: Identity, latest: ObjectMeta, policy: str, work: _Work) -> None:
        """Delete the object if it is still the one that was judged.

        A change that left the owners alone changes nothing about the judgement; objects that change all the time would
        otherwise never be deleted.
        """
        resource, namespace = self._place(identity)

        async def delete(resource_version: str) -> None:
            await self._client.delete(
                resource,
                identity.name,
                namespace,
                propagation_policy=policy,
                precondition_uid=identity.uid,
                precondition_resource_version=resource_version,
                headers=work.doing(f"delete {identity.kind} {identity.name}"),
            )

        try:
            await delete(latest.resource_version)
        except Conflict:
            live = (await self._get(identity)).metadata
            if live.uid != identity.uid or live.resource_version == latest.resource_version:
                raise
            if live.owner_references != latest.owner_references:
                raise
            await delete("")
        log.debug("deleted garbage", extra={"object": str(identity), "policy": policy})

    async def _drop_owners(self, node: Node, uids: Sequence[str], work: _Work) -> None:
        """Remove these owners from the object's references."""
        removals = [{"$patch": "delete", "uid": uid} for uid in uids]

        def without(live: ObjectMeta) -> list[Any]:
            return [to_json(reference) for reference in live.owner_references if reference.uid not in uids]

        await self._patch_owners(node, removals, without, work)

    async def _unblock_owners(self, node: Node, work: _Work) -> None:
        """Make every reference of the object one that does not block its owner's deletion."""
        changes = [
            {**to_json(reference), "blockOwnerDeletion": False}
            for reference in node.owners
            if reference.block_owner_deletion
        ]

        def unblocked(live: ObjectMeta) -> list[Any]:
            return [{**to_json(reference), "blockOwnerDeletion": False} for reference in live.owner_references]

        await self._patch_owners(node, changes, unblocked, work)

    async def _patch_owners(
        self, node: Node, strategic: list[Any], whole: Callable[[ObjectMeta], list[Any]], work: _Work
    ) -> None:
        """Patch metadata.ownerReferences; resources without strategic merge (custom ones) get them as a whole."""
        resource, namespace = self._place(node.identity)
        name = node.identity.name
        headers = work.doing(f"release {node.identity.kind} {name}")
        body: dict[str, Any] = {"metadata": {"ownerReferences": strategic, "uid": node.identity.uid}}
        try:
            await self._client.patch(resource, name, body, PatchType.STRATEGIC, namespace, headers=headers)
        except UnsupportedMediaType:
            live = (await self._get(node.identity)).metadata
            body = {"metadata": {"resourceVersion": live.resource_version, "ownerReferences": whole(live)}}
            await self._client.patch(resource, name, body, PatchType.MERGE, namespace, headers=headers)

    async def _remove_finalizer(self, identity: Identity, finalizer: str, work: _Work) -> None:
        """Raises Conflict if the object changed at every try."""
        resource, namespace = self._place(identity)

        async def remove() -> None:
            live = (await self._get(identity)).metadata
            if finalizer not in live.finalizers or live.uid != identity.uid:
                return
            finalizers = [each for each in live.finalizers if each != finalizer]
            body = {"metadata": {"resourceVersion": live.resource_version, "finalizers": finalizers}}
            headers = work.doing(f"finalize {identity.kind} {identity.name}")
            await self._client.patch(resource, identity.name, body, PatchType.MERGE, namespace, headers=headers)

        try:
            await _retry_on_conflict(remove)
        except NotFound:
            return


async def _retry_on_conflict(act: Callable[[], Awaitable[None]]) -> None:
    for attempt in range(_CONFLICT_TRIES - 1):
        try:
            await act()
        except Conflict:
            await asyncio.sleep(_CONFLICT_BASE_SECONDS * 5**attempt)
        else:
            return
    await act()


def _nothing() -> None: ...


class _Monitor:
    """Tells the graph of the objects of one resource; calls `changed` when there are others than at the beginning."""

    def __init__(self, graph: Graph, resource: _MetadataResource, changed: Callable[[], None] = _nothing) -> None:
        self._graph = graph
        self._changed = changed
        self._api_version = resource.api_version
        self._kind = resource.kind

    def on_add(self, obj: Any, initial: bool) -> None:
        self._graph.changed(self._api_version, self._kind, None, _metadata(obj))
        if not initial:
            self._changed()

    def on_update(self, old: Any, new: Any) -> None:
        self._graph.changed(self._api_version, self._kind, _metadata(old), _metadata(new))
        self._changed()

    def on_delete(self, obj: Any, final_state_unknown: bool) -> None:
        del final_state_unknown
        self._graph.deleted(self._api_version, self._kind, _metadata(obj))
        self._changed()


def _metadata(obj: Any) -> ObjectMeta:
    """The metadata of a Struct or of plain JSON: informers are shared, and others choose how objects are read."""
    if isinstance(obj, dict):
        return convert(ObjectMeta, obj.get("metadata") or {})
    metadata: ObjectMeta = obj.metadata
    return metadata
