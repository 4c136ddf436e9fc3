"""Garbage collector: deletes objects whose owners are all gone, and finishes foreground and orphan deletions.

It watches the metadata of every resource that can be listed, watched and deleted, and keeps a graph of their owners.
Before it acts on an object that the graph points to, it reads the object from the API server again. Source:
kube-controller-manager v1.36, pkg/controller/garbagecollector.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Sequence
from typing import Any

import msgspec

from kubeloop.controllers.garbagecollector.graph import (
    FOREGROUND,
    ORPHAN,
    Graph,
    GraphNode,
    ObjectIdentity,
    owner_identity,
)
from kubeloop.controllers.runtime.controller import ReconcileLoop
from kubeloop.controllers.runtime.controller_context import ControllerContext
from kubeloop.controllers.runtime.queue.rate_limiter import backoff_seconds
from kubeloop.controllers.runtime.resources.partial_object_metadata import metadata_only
from kubeloop.controllers.runtime.resources.rediscovery import CRD_SETTLE_SECONDS, REFRESH_SECONDS, Rediscovery
from kubeloop.informers.shared_informer import HandlerRegistration
from kubeloop.kube.client.api_client import PatchType
from kubeloop.kube.client.discovery import ResourceMap
from kubeloop.kube.clock import is_virtual
from kubeloop.kube.errors import ApiError, Conflict, NotFound, ServerUnreachable, UnsupportedMediaType
from kubeloop.kube.objects.api_types import (
    ObjectMeta,
    ObjectReference,
    OwnerReference,
    PartialObjectMetadata,
    convert,
    to_json,
)
from kubeloop.kube.objects.resources import Resource
from kubeloop.tracing.recording.reconcile_recorder import Reconcile

log = logging.getLogger(__name__)

_SYNC_TIMEOUT_SECONDS = 30.0
_IGNORED_RESOURCES = frozenset({"events", "events.events.k8s.io"})
_REQUIRED_VERBS = frozenset({"delete", "list", "watch"})
_CRDS = "customresourcedefinitions.apiextensions.k8s.io"
_CONFLICT_TRIES, _CONFLICT_BASE_SECONDS = 4, 0.01
_MetadataResource = Resource[PartialObjectMetadata]
_ResourceKey = tuple[str, str, str]  # group, version, plural


class UnknownKind(Exception):
    """An owner reference has a kind that the server does not serve, or does not serve yet."""


class ClusterScopedDependent(Exception):
    """A cluster-scoped object refers to a namespaced owner, which is invalid; nothing is done about it."""


class GarbageCollector:
    """Garbage collector; `run()` works until cancelled.

    Resources are discovered at the start, every 30 seconds, and when a CustomResourceDefinition changes, so that
    tests of operators need not wait for the next refresh. A resource that another part of the process watches already
    is not watched twice: its informer is shared.
    """

    name = "garbage-collector"

    def __init__(self, context: ControllerContext) -> None:
        self._client = context.client
        self._informers = context.informers
        self._recorder = context.events
        self._traces = context.traces
        self._kinds: dict[tuple[str, str, str], _MetadataResource] = {}  # by group, version, kind
        self._preferred: dict[tuple[str, str], _MetadataResource] = {}  # by group, kind
        self._rediscovery = Rediscovery()
        self._monitors: dict[_ResourceKey, HandlerRegistration[Any]] = {}
        self._attempt_to_delete = context.new_queue("garbage_collector_attempt_to_delete")
        self._attempt_to_orphan = context.new_queue("garbage_collector_attempt_to_orphan")
        self.graph = Graph(
            attempt_to_delete=self._attempt_to_delete.add,
            attempt_to_orphan=self._attempt_to_orphan.add,
            on_invalid_namespace=self._report_invalid_namespace,
        )
        self._deleting = ReconcileLoop(
            "garbagecollector", self.attempt_to_delete_item, self._attempt_to_delete, context.workers, context
        )
        self._orphaning = ReconcileLoop(
            "garbagecollector", self.attempt_to_orphan_item, self._attempt_to_orphan, context.workers, context
        )

    async def run(self) -> None:
        """Build the graph, then collect garbage until cancelled.

        Waits at most 30 seconds for the first lists, then continues with an incomplete graph. That is safe,
        because every object and owner is read again before a deletion.
        """
        try:
            async with asyncio.TaskGroup() as tasks:
                await self._discover_first()
                try:
                    async with asyncio.timeout(_SYNC_TIMEOUT_SECONDS):
                        for registration in list(self._monitors.values()):
                            await registration.wait_synced()
                except TimeoutError:
                    log.warning("not all resources could be listed in time; collecting garbage anyway")
                tasks.create_task(self._discover_periodically(), name=f"{self.name}/discovery")
                tasks.create_task(self._deleting.run(), name=f"{self.name}/delete")
                tasks.create_task(self._orphaning.run(), name=f"{self.name}/orphan")
        finally:
            while self._monitors:
                self._informers.release(self._monitors.popitem()[1])

    # --- discovery -------------------------------------------------------------------------------------------------

    async def _discover_first(self) -> None:
        failures = 0
        while not await self._discover():
            await asyncio.sleep(backoff_seconds(failures, base=0.5, cap=REFRESH_SECONDS))
            failures += 1

    async def _discover_periodically(self) -> None:
        # in virtual time, only a CustomResourceDefinition changes what the server serves
        in_virtual_time, is_discovered = is_virtual(asyncio.get_running_loop()), True
        while True:
            await self._rediscovery.wait(periodic=not (in_virtual_time and is_discovered))
            is_discovered = await self._discover()

    async def _discover(self) -> bool:
        """Discover the resources of the server and watch new ones. Returns False if discovery failed."""
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
        seen_group_resources: set[str] = set()
        for served_resource in served.resources:
            resource = metadata_only(served_resource)
            kinds[served_resource.group, served_resource.version, served_resource.kind] = resource
            if served_resource.group_resource in seen_group_resources:
                continue  # the server lists the preferred version of a group first
            seen_group_resources.add(served_resource.group_resource)
            preferred[served_resource.group, served_resource.kind] = resource
            if (
                served.verbs(served_resource) >= _REQUIRED_VERBS
                and served_resource.group_resource not in _IGNORED_RESOURCES
            ):
                watched[served_resource.group, served_resource.version, served_resource.plural] = resource
        self._kinds, self._preferred = kinds, preferred
        for key in [key for key in self._monitors if key not in watched]:
            self._informers.release(self._monitors.pop(key))
        for key, resource in watched.items():
            if key not in self._monitors:
                changed = self._rediscovery.request if resource.group_resource == _CRDS else _no_op
                handler = _GraphUpdater(self.graph, resource, changed)
                self._monitors[key] = self._informers.acquire_informer(resource).add_handler(handler)
        return True

    def _resource(self, api_version: str, kind: str) -> _MetadataResource:
        """Return the resource of a kind, in its preferred version if this one is not served. Raises UnknownKind."""
        group, _, version = api_version.rpartition("/")
        resource = self._kinds.get((group, version, kind)) or self._preferred.get((group, kind))
        if resource is None:
            raise UnknownKind(f"unable to get REST mapping for {api_version}/{kind}.")
        return resource

    def _report_invalid_namespace(self, dependent: ObjectIdentity, reference: OwnerReference) -> None:
        dependent_reference = ObjectReference(
            kind=dependent.kind,
            api_version=dependent.api_version,
            namespace=dependent.namespace,
            name=dependent.name,
            uid=dependent.uid,
        )
        owner = owner_identity(reference, dependent.namespace)
        message = f'ownerRef {owner} does not exist in namespace "{dependent.namespace}"'
        self._recorder.event(dependent_reference, "Warning", "OwnerRefInvalidNamespace", message)

    # --- deletion --------------------------------------------------------------------------------------------------

    async def attempt_to_delete_item(self, uid: str) -> float | None:
        """Delete the object of `uid` if it is garbage, or continue its foreground deletion.

        Level-based. Returns the seconds until the next check, for objects that no informer has shown yet. An exception
        means: retry with backoff.
        """
        node = self.graph.get(uid)
        if node is None:
            return None
        virtual = node.virtual
        reconcile, failure = self._start_trace(node), None
        try:
            absent = await self._attempt_to_delete_node(node, reconcile)
        except ClusterScopedDependent as error:
            log.info("%s", error)
            return None
        except UnknownKind as error:
            failure = str(error)
            log.info("%s", error)
            self._rediscovery.request()  # the kind may be new; with backoff, in case it is never served
            node.rechecks += 1
            return backoff_seconds(node.rechecks, base=CRD_SETTLE_SECONDS)
        except Exception as error:
            failure = str(error)
            raise
        finally:
            reconcile.finish(error=failure)
        if absent is not None:
            again = self.graph.handle_absent(absent)
        else:
            # Otherwise an object created and deleted while a watch was interrupted would stay in the graph forever.
            again = virtual and self.graph.get(uid) is node and node.virtual
        if not again:
            return None
        node.rechecks += 1
        return backoff_seconds(node.rechecks)

    def _start_trace(self, node: GraphNode) -> Reconcile:
        identity = node.identity
        key = f"{identity.namespace}/{identity.name}" if identity.namespace else identity.name
        return self._traces.reconcile("garbagecollector", key, identity.kind)

    async def _attempt_to_delete_node(self, node: GraphNode, reconcile: Reconcile) -> ObjectIdentity | None:
        """Act on the object of `node`. Returns its identity if no object of that identity exists, else None."""
        identity = node.identity
        if node.being_deleted and not node.deleting_dependents:
            return None  # an informer will show its deletion
        if not node.deleting_dependents:
            self._check_owner_kinds(node)
        try:
            latest = (await self._get(identity)).metadata
        except NotFound:
            return identity
        if latest.uid != identity.uid:
            return identity
        if node.deleting_dependents:
            await self._continue_foreground_deletion(node, reconcile)
            return None
        if not latest.owner_references:
            return None
        solid, dangling, waiting_for_dependents = await self._classify_references(node, latest.owner_references)
        if solid:
            if dangling or waiting_for_dependents:
                # Otherwise an owner in foreground deletion would wait forever for a dependent that has other owners.
                await self._remove_owner_references(
                    node, [owner.uid for owner in (*dangling, *waiting_for_dependents)], reconcile
                )
            return None
        if waiting_for_dependents and node.dependents:
            if any(dependent.deleting_dependents for dependent in node.dependents):
                await self._unset_block_owner_deletion(node, reconcile)  # a cycle of owners would block forever
            policy = "Foreground"
        elif ORPHAN in latest.finalizers:
            policy = "Orphan"
        elif FOREGROUND in latest.finalizers:
            policy = "Foreground"
        else:
            policy = "Background"
        try:
            await self._delete(identity, latest, policy, reconcile)
        except NotFound:
            return identity
        return None

    def _check_owner_kinds(self, node: GraphNode) -> None:
        """Raise UnknownKind if an owner's kind is unknown: reading the object would not decide its fate.

        Retries for kinds that are never served thus send no requests, which would delay those for other objects.
        """
        for reference in node.owners:
            if not self._is_known_absent(node.identity, reference):
                self._resource(reference.api_version, reference.kind)

    def _is_known_absent(self, dependent: ObjectIdentity, reference: OwnerReference) -> bool:
        absent_owners = self.graph.absent_owners
        return (
            owner_identity(reference, "") in absent_owners
            or owner_identity(reference, dependent.namespace) in absent_owners
        )

    async def _classify_references(
        self, node: GraphNode, references: Sequence[OwnerReference]
    ) -> tuple[list[OwnerReference], list[OwnerReference], list[OwnerReference]]:
        """Return the references to existing owners, to absent ones, and to owners that wait for their dependents."""
        solid, dangling, waiting_for_dependents = [], [], []
        for reference in references:
            owner = await self._read_owner(node.identity, reference)
            if owner is None:
                dangling.append(reference)
            elif owner.deletion_timestamp is not None and FOREGROUND in owner.finalizers:
                waiting_for_dependents.append(reference)
            else:
                solid.append(reference)
        return solid, dangling, waiting_for_dependents

    async def _read_owner(self, dependent: ObjectIdentity, reference: OwnerReference) -> ObjectMeta | None:
        """Read and return an owner; None if it does not exist. Raises ClusterScopedDependent, UnknownKind, ApiError."""
        if self._is_known_absent(dependent, reference):
            return None
        resource = self._resource(reference.api_version, reference.kind)
        if resource.namespaced and not dependent.namespace:
            raise ClusterScopedDependent(f"cluster-scoped {dependent} refers to a namespaced owner")
        namespace = dependent.namespace if resource.namespaced else ""
        try:
            owner = (await self._client.get(resource, reference.name, namespace)).metadata
        except NotFound:
            owner = None
        if owner is None or owner.uid != reference.uid:
            self.graph.absent_owners.add(owner_identity(reference, namespace))
            return None
        return owner

    async def _continue_foreground_deletion(self, node: GraphNode, reconcile: Reconcile) -> None:
        blocking = node.blocking_dependents()
        if not blocking:
            await self._remove_finalizer(node.identity, FOREGROUND, reconcile)
            return
        for dependent in blocking:
            if not dependent.deleting_dependents:
                self._attempt_to_delete.add(dependent.identity.uid)

    # --- orphaning -------------------------------------------------------------------------------------------------

    async def attempt_to_orphan_item(self, uid: str) -> float | None:
        """Remove the object of `uid` from its dependents' owners, then remove its finalizer. Raises to be retried."""
        node = self.graph.get(uid)
        if node is None:
            return None
        reconcile, failure = self._start_trace(node), None
        try:
            async with asyncio.TaskGroup() as patches:
                tasks = [
                    patches.create_task(self._orphan_dependent(dependent, uid, reconcile))
                    for dependent in list(node.dependents)
                ]
            errors = [error for task in tasks if (error := task.result()) is not None]
            if errors:
                raise ExceptionGroup(f"failed to orphan dependents of {node.identity}", errors)
            await self._remove_finalizer(node.identity, ORPHAN, reconcile)
        except Exception as error:
            failure = str(error)
            raise
        finally:
            reconcile.finish(error=failure)
        return None

    async def _orphan_dependent(self, dependent: GraphNode, owner_uid: str, reconcile: Reconcile) -> Exception | None:
        """Orphan one dependent. Returns the error, so that the other dependents are still orphaned."""
        try:
            await self._remove_owner_references(dependent, [owner_uid], reconcile)
        except NotFound:
            return None
        except (ApiError, ServerUnreachable, UnknownKind) as error:
            return error
        return None

    # --- requests --------------------------------------------------------------------------------------------------

    def _locate(self, identity: ObjectIdentity) -> tuple[_MetadataResource, str]:
        """Return resource and namespace of an object; a virtual node may have the namespace of its dependent.

        Raises UnknownKind, ClusterScopedDependent.
        """
        resource = self._resource(identity.api_version, identity.kind)
        if resource.namespaced and not identity.namespace:
            raise ClusterScopedDependent(f"namespaced {identity} is referred to by a cluster-scoped object")
        return resource, identity.namespace if resource.namespaced else ""

    async def _get(self, identity: ObjectIdentity) -> PartialObjectMetadata:
        resource, namespace = self._locate(identity)
        return await self._client.get(resource, identity.name, namespace)

    async def _delete(self, identity: ObjectIdentity, latest: ObjectMeta, policy: str, reconcile: Reconcile) -> None:
        """Delete the object unless its owner references changed since it was read.

        If only something else changed, the deletion is retried; otherwise objects that change all the time would never
        be deleted.
        """
        resource, namespace = self._locate(identity)

        async def delete(resource_version: str) -> None:
            reconcile.add_action(f"delete {identity.kind} {identity.name}")
            await self._client.delete(
                resource,
                identity.name,
                namespace,
                propagation_policy=policy,
                precondition_uid=identity.uid,
                precondition_resource_version=resource_version,
            )

        try:
            await delete(latest.resource_version)
        except Conflict:
            current = (await self._get(identity)).metadata
            if current.uid != identity.uid or current.resource_version == latest.resource_version:
                raise
            if current.owner_references != latest.owner_references:
                raise
            await delete("")
        log.debug("deleted garbage", extra={"object": str(identity), "policy": policy})

    async def _remove_owner_references(self, node: GraphNode, uids: Sequence[str], reconcile: Reconcile) -> None:
        """Remove the references to these owners from the object."""
        removals = [{"$patch": "delete", "uid": uid} for uid in uids]

        def without(current: ObjectMeta) -> list[Any]:
            return [to_json(reference) for reference in current.owner_references if reference.uid not in uids]

        await self._patch_owners(node, removals, without, reconcile)

    async def _unset_block_owner_deletion(self, node: GraphNode, reconcile: Reconcile) -> None:
        """Set blockOwnerDeletion to false in all owner references of the object."""
        changes = [
            {**to_json(reference), "blockOwnerDeletion": False}
            for reference in node.owners
            if reference.block_owner_deletion
        ]

        def unblocked(current: ObjectMeta) -> list[Any]:
            return [{**to_json(reference), "blockOwnerDeletion": False} for reference in current.owner_references]

        await self._patch_owners(node, changes, unblocked, reconcile)

    async def _patch_owners(
        self,
        node: GraphNode,
        strategic: list[Any],
        owner_references: Callable[[ObjectMeta], list[Any]],
        reconcile: Reconcile,
    ) -> None:
        """Patch metadata.ownerReferences; resources without strategic merge patch (custom ones) get the full list."""
        resource, namespace = self._locate(node.identity)
        name = node.identity.name
        reconcile.add_action(f"release {node.identity.kind} {name}")
        body: dict[str, Any] = {"metadata": {"ownerReferences": strategic, "uid": node.identity.uid}}
        try:
            await self._client.patch(resource, name, body, PatchType.STRATEGIC, namespace)
        except UnsupportedMediaType:
            current = (await self._get(node.identity)).metadata
            body = {
                "metadata": {"resourceVersion": current.resource_version, "ownerReferences": owner_references(current)}
            }
            await self._client.patch(resource, name, body, PatchType.MERGE, namespace)

    async def _remove_finalizer(self, identity: ObjectIdentity, finalizer: str, reconcile: Reconcile) -> None:
        """Remove a finalizer. Raises Conflict if the object changed at every try."""
        resource, namespace = self._locate(identity)

        async def remove() -> None:
            current = (await self._get(identity)).metadata
            if finalizer not in current.finalizers or current.uid != identity.uid:
                return
            finalizers = [name for name in current.finalizers if name != finalizer]
            body = {"metadata": {"resourceVersion": current.resource_version, "finalizers": finalizers}}
            reconcile.add_action(f"finalize {identity.kind} {identity.name}")
            await self._client.patch(resource, identity.name, body, PatchType.MERGE, namespace)

        try:
            await _retry_on_conflict(remove)
        except NotFound:
            return


async def _retry_on_conflict(call: Callable[[], Awaitable[None]]) -> None:
    for attempt in range(_CONFLICT_TRIES - 1):
        try:
            await call()
        except Conflict:
            await asyncio.sleep(_CONFLICT_BASE_SECONDS * 5**attempt)
        else:
            return
    await call()


def _no_op() -> None: ...


class _GraphUpdater:
    """Event handler that updates the graph from one resource; calls `changed` for every event after the first list."""

    def __init__(self, graph: Graph, resource: _MetadataResource, changed: Callable[[], None] = _no_op) -> None:
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
    """Return the metadata of a Struct or dict; the object type depends on who created the shared informer first."""
    if isinstance(obj, dict):
        return convert(ObjectMeta, obj.get("metadata") or {})
    metadata: ObjectMeta = obj.metadata
    return metadata
