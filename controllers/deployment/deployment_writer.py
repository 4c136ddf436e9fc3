"""Writes of one sync of a Deployment: its status, its ReplicaSets, and events. Decides nothing about the rollout.

A write is a patch with the resourceVersion that the decision was based on, except for creates and deletes.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import suppress

from msgspec.structs import replace

from kubeloop.controllers.deployment.deployment_status import NEW_RS_AVAILABLE, PROGRESSING
from kubeloop.controllers.deployment.pending_status import PendingStatus
from kubeloop.controllers.deployment.rollback import rollback_patch
from kubeloop.controllers.deployment.rolling_update import changed_replicas_annotations
from kubeloop.controllers.runtime.controller_context import ControllerContext
from kubeloop.controllers.runtime.writes.consistency import ConsistencyStore
from kubeloop.controllers.runtime.writes.object_patch import changed_fields, patch_object, versioned_merge_patch
from kubeloop.controllers.runtime.writes.status_delay import StatusDelay
from kubeloop.kube.client.api_client import PatchType
from kubeloop.kube.errors import NotFound
from kubeloop.kube.events.event_recorder import EventType
from kubeloop.kube.objects.api_types import Deployment, DeploymentStatus, JSONValue, ReplicaSet
from kubeloop.kube.objects.object_fields import replicas_of
from kubeloop.kube.objects.resources import DEPLOYMENTS, REPLICA_SETS
from kubeloop.tracing.recording.reconcile_recorder import Reconcile


class DeploymentWriter:
    """Writes of one sync. `deployment` has its postponed and unwritten changes; assign it to change what is written."""

    def __init__(
        self,
        deployment: Deployment,
        context: ControllerContext,
        consistency: ConsistencyStore,
        status_delay: StatusDelay[PendingStatus],
        reconcile: Reconcile,
    ) -> None:
        """consistency: receives the version of each write."""
        pending = status_delay.pending(deployment.key)
        self.deployment = deployment if pending is None else pending.applied_to(deployment)
        self._stored = deployment  # as last seen on the API server
        self._client = context.client
        self._events = context.events
        self._consistency = consistency
        self._status_delay = status_delay
        self._reconcile = reconcile
        self._rs_versions: dict[str, str] = {}  # ReplicaSet UID -> resourceVersion after the last write of this sync
        self._unsent_annotations: dict[str, dict[str, JSONValue]] = {}  # by ReplicaSet UID

    def event(self, type_: EventType, reason: str, message: str) -> None:
        self._events.event(self.deployment, type_, reason, message)

    # --- the Deployment --------------------------------------------------------------------------------------------

    async def write_status(self, status: DeploymentStatus) -> None:
        """Write the status, and the revision annotation if it changed."""
        self.deployment = replace(self.deployment, status=status)
        stored, metadata = self._stored, self.deployment.metadata
        annotations = annotation_changes(stored.metadata.annotations, metadata.annotations)
        patch = versioned_merge_patch(
            stored.metadata.resource_version,
            metadata={"annotations": annotations} if annotations else {},
            status=changed_fields(stored.status, status),
        )
        with self._reconcile.action_span("update status"):
            written = await patch_object(self._client, DEPLOYMENTS, self.deployment, patch, subresource="status")
        self._consistency.wrote(self.deployment, DEPLOYMENTS, written)
        self._status_delay.forget(self.deployment.key)
        version = written.metadata.resource_version
        self._stored = replace(self.deployment, metadata=replace(metadata, resource_version=version))

    async def write_or_postpone(self, deployment: Deployment) -> None:
        """Write the status and revision of `deployment` unless they are unchanged; postponed if that is possible."""
        if deployment is not self.deployment:
            self.deployment = deployment
            if not self._postpone(deployment.status):
                await self.write_status(deployment.status)

    async def write_changed_status(self, status: DeploymentStatus, all_rss: Sequence[ReplicaSet]) -> bool:
        """Write `status` and the revision if they changed, or leave that to a later sync. Returns True if they changed.

        Postponed while a ReplicaSet controller has not seen the last spec of a ReplicaSet: its status, which changes
        this one, is about to follow.
        """
        deployment, stored = self.deployment, self._stored
        if status == stored.status and deployment.metadata.annotations == stored.metadata.annotations:
            self._status_delay.forget(deployment.key)
            return False
        outdated = bool(self._rs_versions) or any(
            rs.status.observed_generation < rs.metadata.generation for rs in all_rss
        )
        if not (outdated and self._postpone(status)):
            await self.write_status(status)
        return True

    def _postpone(self, status: DeploymentStatus) -> bool:
        """Leave the write of `status` and of the revision to a later sync, which takes them as written.

        Returns False if they are to be written now: also where `status` starts a rollout after a complete one, because
        a crash would leave the Deployment complete, and no progress deadline would end the new rollout.
        """
        if _is_marked_complete(self._stored.status) and not _is_marked_complete(status):
            return False
        pending = PendingStatus.of(self._stored, replace(self.deployment, status=status))
        return self._status_delay.postpone(self.deployment.key, pending)

    async def roll_back(self, rs: ReplicaSet | None) -> None:
        """Restore template and annotations of `rs`, if any, and remove the rollback annotation."""
        patch = rollback_patch(self.deployment, rs, self._stored.metadata.resource_version)
        with self._reconcile.action_span("roll back" if rs is not None else "drop the rollback annotation"):
            written = await patch_object(self._client, DEPLOYMENTS, self.deployment, patch, PatchType.JSON)
        self._consistency.wrote(self.deployment, DEPLOYMENTS, written)

    # --- ReplicaSets -----------------------------------------------------------------------------------------------

    async def create_replica_set(self, name: str, body: dict[str, JSONValue]) -> ReplicaSet:
        namespace = self.deployment.metadata.namespace
        self._reconcile.will_trigger("replicaset", f"{namespace}/{name}")
        with self._reconcile.action_span(f"create replicaset {name}"):
            rs = await self._client.create(REPLICA_SETS, self._reconcile.annotated(body), namespace)
        self._record_rs_write(rs)
        return rs

    async def delete_replica_set(self, rs: ReplicaSet) -> None:
        name, namespace = rs.metadata.name, rs.metadata.namespace
        with suppress(NotFound), self._reconcile.action_span(f"delete replicaset {name}"):
            await self._client.delete(REPLICA_SETS, name, namespace, precondition_uid=rs.metadata.uid)

    async def scale_replica_set(self, rs: ReplicaSet, size: int, *, forced: bool = False) -> tuple[bool, ReplicaSet]:
        """Set the size of `rs`. `forced`: update its size annotations even if the size does not change.

        Returns True if the size changed, and the ReplicaSet after the write.
        """
        old_size = replicas_of(rs)
        if old_size == size and not forced:
            return False, rs
        annotations = changed_replicas_annotations(self.deployment, rs)
        if old_size == size and not annotations:
            return False, rs
        updated = await self.patch_replica_set(rs, annotations, {"replicas": size} if size != old_size else {}, "scale")
        if old_size == size:
            return False, updated
        direction = "up" if old_size < size else "down"
        message = f"Scaled {direction} replica set {rs.metadata.name} from {old_size} to {size}"
        self.event("Normal", "ScalingReplicaSet", message)
        return True, updated

    def annotate_with_next_write(self, rs: ReplicaSet, changes: dict[str, JSONValue]) -> None:
        """Add annotations that cause no write of their own to the next patch of `rs` in this sync."""
        self._unsent_annotations[rs.metadata.uid] = changes

    async def patch_replica_set(
        self, rs: ReplicaSet, annotations: Mapping[str, JSONValue], spec: dict[str, JSONValue], verb: str
    ) -> ReplicaSet:
        """Set annotations and fields of a ReplicaSet; conflicts if it changed since it was read."""
        metadata = rs.metadata
        annotations = {**self._unsent_annotations.get(metadata.uid, {}), **annotations}
        patch = versioned_merge_patch(
            self._rs_versions.get(metadata.uid, metadata.resource_version),
            metadata={"annotations": annotations} if annotations else {},
            **({"spec": spec} if spec else {}),
        )
        action = f"{verb} replicaset {metadata.name}"
        if "replicas" in spec:
            action += f" to {spec['replicas']}"
            self._reconcile.will_trigger("replicaset", rs.key)
        with self._reconcile.action_span(action):
            updated = await patch_object(self._client, REPLICA_SETS, rs, patch)
        self._record_rs_write(updated)
        return updated

    def _record_rs_write(self, rs: ReplicaSet) -> None:
        self._rs_versions[rs.metadata.uid] = rs.metadata.resource_version
        self._consistency.wrote(self.deployment, REPLICA_SETS, rs)


def annotation_changes(old: Mapping[str, str], new: Mapping[str, str]) -> dict[str, JSONValue]:
    """Return the annotations to set, and to remove (null), to turn `old` into `new`."""
    changes: dict[str, JSONValue] = {name: value for name, value in new.items() if old.get(name) != value}
    changes.update((name, None) for name in old if name not in new)
    return changes


def _is_marked_complete(status: DeploymentStatus) -> bool:
    return any(
        condition.type == PROGRESSING and condition.reason == NEW_RS_AVAILABLE for condition in status.conditions
    )
