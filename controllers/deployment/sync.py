"""One sync of one Deployment: the decisions of this package, applied in the same order as in Kubernetes.

Each step calls the pure functions of `rolling_update`, `replica_sets` and `status`, and writes the result. A failed
write ends the sync and the key is retried, except where a comment says otherwise. Source: syncDeployment in
pkg/controller/deployment/deployment_controller.go, and rolling.go, recreate.go, rollback.go and sync.go next to it.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Sequence
from contextlib import suppress
from typing import Any, NamedTuple

from msgspec.structs import replace

from kubeloop.controllers.deployment import deployment_status as statuses
from kubeloop.controllers.deployment import rolling_update
from kubeloop.controllers.deployment.new_replica_set import new_replica_set, new_replica_set_annotations
from kubeloop.controllers.deployment.replica_sets import (
    REVISION,
    ROLLBACK_TO,
    find_new_replica_set,
    find_old_replica_sets,
    last_revision,
    max_revision,
    revision_of,
    rolled_back_annotations,
    sort_by_creation,
    sort_by_revision,
)
from kubeloop.controllers.deployment.rolling_update import RECREATE, ROLLING_UPDATE, UnsupportedStrategy
from kubeloop.controllers.runtime.consistency import ConsistencyStore
from kubeloop.controllers.runtime.controller_context import ControllerContext
from kubeloop.controllers.runtime.integers import MAX_INT32, InvalidInteger, int_or_none, wrap_int64
from kubeloop.controllers.runtime.owner_references import CONTROLLER_INDEX, controller_index_key
from kubeloop.controllers.runtime.pod_template_hash import (
    equal_ignore_hash,
    without_hash_label,
)
from kubeloop.controllers.runtime.status_delay import StatusDelay
from kubeloop.controllers.runtime.status_patch import changed_fields, versioned_merge_patch
from kubeloop.informers.store import Store
from kubeloop.kube.client.api_client import PatchType
from kubeloop.kube.errors import AlreadyExists, ApiError, NotFound, ServerUnreachable, is_namespace_terminating
from kubeloop.kube.event_recorder import EventType
from kubeloop.kube.objects.api_types import (
    Deployment,
    DeploymentStatus,
    JSONValue,
    Object,
    Pod,
    ReplicaSet,
    Status,
)
from kubeloop.kube.objects.object_fields import condition_of, controller_of, is_finished, replicas_of
from kubeloop.kube.objects.resources import DEPLOYMENTS, PODS, REPLICA_SETS, Resource
from kubeloop.kube.selectors import Selector, selector_from
from kubeloop.tracing.recording.reconcile_recorder import Reconcile

log = logging.getLogger(__name__)


class PendingStatus(NamedTuple):
    """Status and revision of a Deployment whose write was postponed. replaced: those on the API server at that time."""

    deployment_uid: str
    replaced: tuple[DeploymentStatus, str | None]
    status: DeploymentStatus
    revision: str | None

    def applied_to(self, deployment: Deployment) -> Deployment:
        """Return the Deployment as if the write had succeeded; unchanged if another client has written since."""
        metadata = deployment.metadata
        if metadata.uid != self.deployment_uid or _written_fields(deployment) != self.replaced:
            return deployment
        if self.revision is not None:
            metadata = replace(metadata, annotations={**metadata.annotations, REVISION: self.revision})
        return replace(deployment, metadata=metadata, status=self.status)


def _written_fields(deployment: Deployment) -> tuple[DeploymentStatus, str | None]:
    return deployment.status, deployment.metadata.annotations.get(REVISION)


def rollback_revision(deployment: Deployment) -> int | None:
    """Return the revision in the deprecated rollback annotation (0: the previous one); None without a valid one."""
    revision = deployment.metadata.annotations.get(ROLLBACK_TO)
    return None if revision is None else int_or_none(revision)


def all_replica_sets(new_rs: ReplicaSet | None, old_rss: Sequence[ReplicaSet]) -> list[ReplicaSet]:
    """Return the ReplicaSets of the Deployment, the new one last."""
    return [*old_rss] if new_rs is None else [*old_rss, new_rs]


def pods_by_replica_set(
    pods: Store[Pod], selector: Selector, replica_sets: Iterable[ReplicaSet]
) -> list[tuple[str, list[Pod]]]:
    """Return the Pods per ReplicaSet UID: those that the Deployment selects, finished ones included."""
    return [
        (
            rs.metadata.uid,
            [
                pod
                for pod in pods.by_index(CONTROLLER_INDEX, controller_index_key(rs))
                if selector.matches(pod.metadata.labels)
            ],
        )
        for rs in replica_sets
    ]


def old_pods_running(
    new_rs: ReplicaSet | None, old_rss: Sequence[ReplicaSet], pods_by_rs: Iterable[tuple[str, Sequence[Pod]]]
) -> bool:
    """Return True if a Pod of an old template may still run; a Recreate then creates no new Pods yet."""
    if any(rs.status.replicas > 0 for rs in old_rss):
        return True
    new_uid = None if new_rs is None else new_rs.metadata.uid
    return any(not is_finished(pod) for uid, pods in pods_by_rs if uid != new_uid for pod in pods)


def replica_sets_to_clean_up(deployment: Deployment, old_rss: Sequence[ReplicaSet]) -> list[ReplicaSet]:
    """Return the old ReplicaSets beyond revisionHistoryLimit that have no Pods, lowest revision first."""
    limit = deployment.spec.revision_history_limit
    if limit is None or limit == MAX_INT32:
        return []
    candidates = [rs for rs in old_rss if rs.metadata.deletion_timestamp is None]
    surplus = len(candidates) - limit
    if surplus <= 0:
        return []
    return [
        rs
        for rs in sort_by_revision(candidates)[:surplus]
        if rs.status.replicas == 0 and replicas_of(rs) == 0 and rs.metadata.generation <= rs.status.observed_generation
    ]


class DeploymentSync:
    """One sync of one Deployment, created per sync with the objects that the caches hold at its start."""

    def __init__(
        self,
        deployment: Deployment,
        replica_sets: Sequence[ReplicaSet],
        *,
        context: ControllerContext,
        consistency: ConsistencyStore,
        status_delay: StatusDelay[PendingStatus],
        reconcile: Reconcile,
    ) -> None:
        """replica_sets: those that the Deployment owns. consistency: receives the version of each write."""
        pending = status_delay.pending(deployment.key)
        self._stored = deployment  # as last seen on the API server
        # With postponed writes and the changes of this sync.
        self._deployment = deployment if pending is None else pending.applied_to(deployment)
        self._replica_sets = replica_sets
        self._client = context.client
        self._informers = context.informers
        self._events = context.events
        self._counts_terminating = context.feature_gates.enabled("DeploymentReplicaSetTerminatingReplicas")
        self._now = context.clock.now()
        self._consistency = consistency
        self._status_delay = status_delay
        self._reconcile = reconcile
        self._rs_versions: dict[str, str] = {}  # ReplicaSet UID -> resourceVersion after the last write of this sync
        self._unsent_annotations: dict[
            str, dict[str, JSONValue]
        ] = {}  # ReplicaSet UID -> annotations for its next write
        self.seconds_until_deadline: float | None = None  # progress deadline to check if nothing else changes

    async def run(self) -> None:
        """Sync the Deployment. Raises errors of writes, and UnsupportedStrategy or InvalidIntOrPercent for the spec."""
        deployment = self._deployment
        if deployment.metadata.deletion_timestamp is not None:
            new_rs, old_rss = await self._get_replica_sets(create=False)
            await self._sync_status(old_rss, new_rs)
            return
        # First, so that a rollout that was paused for long does not time out at the moment it is resumed.
        status = statuses.with_paused_condition(deployment, self._now)
        if status is not deployment.status:
            await self._write_status(status)
        if deployment.spec.paused:
            await self._scale()
        elif rollback_revision(deployment) is not None:
            await self._rollback()
        elif await self._is_scaling_event():
            await self._scale()
        elif deployment.spec.strategy.type == RECREATE:
            await self._rollout_recreate()
        elif deployment.spec.strategy.type == ROLLING_UPDATE:
            await self._rollout_rolling()
        else:
            raise UnsupportedStrategy(f"unexpected deployment strategy type: {deployment.spec.strategy.type}")

    # --- the new ReplicaSet ----------------------------------------------------------------------------------------

    async def _get_replica_sets(self, *, create: bool) -> tuple[ReplicaSet | None, list[ReplicaSet]]:
        """Return the new ReplicaSet, up to date (created if `create`), and the old ones, oldest first."""
        existing = find_new_replica_set(self._deployment, self._replica_sets)
        old_rss = find_old_replica_sets(existing, self._replica_sets)
        revision = str(wrap_int64(max_revision(old_rss) + 1))
        if existing is not None:
            return await self._update_new_rs(existing, revision), old_rss
        if create:
            return await self._create_new_rs(old_rss, revision), old_rss
        return None, old_rss

    async def _update_new_rs(self, rs: ReplicaSet, revision: str) -> ReplicaSet:
        min_ready_seconds = self._deployment.spec.min_ready_seconds
        annotations, changed = new_replica_set_annotations(
            self._deployment.metadata.annotations, rs.metadata.annotations, revision, replicas={}
        )
        changes = _annotation_changes(rs.metadata.annotations, annotations)
        if changed or rs.spec.min_ready_seconds != min_ready_seconds:
            # The next sync sets the Deployment's own revision, from the stored ReplicaSet.
            spec = {"minReadySeconds": min_ready_seconds} if rs.spec.min_ready_seconds != min_ready_seconds else {}
            return await self._patch_rs(rs, changes, spec, "update")
        if changes:
            # The revision is not a number, which alone causes no write; copied annotations go with the next write.
            self._unsent_annotations[rs.metadata.uid] = changes
            rs = replace(rs, metadata=replace(rs.metadata, annotations=annotations))
        needs_write = self._set_revision(annotations.get(REVISION, ""))
        if (
            statuses.has_progress_deadline(self._deployment)
            and condition_of(self._deployment.status.conditions, statuses.PROGRESSING) is None
        ):
            # progressDeadlineSeconds was added later: progress is measured from this first sync with a deadline.
            message = f'Found new replica set "{rs.metadata.name}"'
            self._set_condition("True", statuses.NEW_RS_FOUND, message)
            needs_write = True
        if needs_write and not self._postpone(self._deployment.status):
            await self._write_status(self._deployment.status)
        return rs

    async def _create_new_rs(self, old_rss: Sequence[ReplicaSet], revision: str) -> ReplicaSet:
        deployment = self._deployment
        name, size, body = new_replica_set(deployment, old_rss, revision)
        exists = False
        self._reconcile.will_trigger("replicaset", f"{deployment.metadata.namespace}/{name}")
        try:
            with self._reconcile.action_span(f"create replicaset {name}"):
                rs = await self._client.create(
                    REPLICA_SETS,
                    self._reconcile.annotated(body),
                    deployment.metadata.namespace,
                )
        except AlreadyExists:
            # The cache is behind, or another template has the same hash.
            exists = True
            cached = self._informers.informer(REPLICA_SETS).store.get(f"{deployment.metadata.namespace}/{name}")
            if cached is None:
                raise _not_in_cache_error(name) from None
            owner = controller_of(cached.metadata)
            ours = owner is not None and owner.uid == deployment.metadata.uid
            if not (ours and equal_ignore_hash(cached.spec.template, deployment.spec.template)):
                await self._increment_collision_count()
                raise
            rs = cached
        except (ApiError, ServerUnreachable) as error:
            if is_namespace_terminating(error):
                raise  # no object can be created in this namespace any more, so no event is needed
            await self._report_failed_create(name, error)
            raise
        else:
            self._record_rs_write(rs)
        if not exists and size > 0:
            self._event("Normal", "ScalingReplicaSet", f"Scaled up replica set {rs.metadata.name} from 0 to {size}")
        needs_write = self._set_revision(revision)
        if not exists and statuses.has_progress_deadline(deployment):
            self._set_condition("True", statuses.NEW_RS_CREATED, f'Created new replica set "{rs.metadata.name}"')
            needs_write = True
        if needs_write and not self._postpone(self._deployment.status):
            await self._write_status(self._deployment.status)
        return rs

    async def _increment_collision_count(self) -> None:
        """Change the hash for the next sync. A failed write is ignored: the next sync counts the same collision."""
        count = (self._deployment.status.collision_count or 0) + 1
        try:
            await self._write_status(replace(self._deployment.status, collision_count=count))
        except (ApiError, ServerUnreachable) as error:
            log.debug("could not count a hash collision of %s: %s", self._deployment.key, error)

    async def _report_failed_create(self, name: str, error: Exception) -> None:
        message = f'Failed to create new replica set "{name}": {error}'
        if statuses.has_progress_deadline(self._deployment):
            self._set_condition("False", statuses.NEW_RS_CREATE_ERROR, message)
            try:
                await self._write_status(self._deployment.status)
            except (ApiError, ServerUnreachable) as status_error:
                # The failed create is the more important error, and the one that the caller raises.
                log.debug("could not report a failed create of %s: %s", self._deployment.key, status_error)
        self._event("Warning", statuses.NEW_RS_CREATE_ERROR, message)

    # --- rolling update, recreate, scale ---------------------------------------------------------------------------

    async def _rollout_rolling(self) -> None:
        new_rs, old_rss = await self._get_replica_sets(create=True)
        assert new_rs is not None
        all_rss = [*old_rss, new_rs]
        scaled = await self._reconcile_new_replica_set(all_rss, new_rs) or await self._reconcile_old_replica_sets(
            all_rss, old_rss, new_rs
        )
        await self._sync_rollout_status(old_rss, new_rs, clean_up=not scaled)

    async def _reconcile_new_replica_set(self, all_rss: Sequence[ReplicaSet], new_rs: ReplicaSet) -> bool:
        size, desired = replicas_of(new_rs), replicas_of(self._deployment)
        if size == desired:
            return False
        if size < desired:
            desired = rolling_update.new_rs_new_replicas(self._deployment, all_rss, size)
        scaled, _ = await self._scale_replica_set(new_rs, desired)
        return scaled

    async def _reconcile_old_replica_sets(
        self, all_rss: Sequence[ReplicaSet], old_rss: list[ReplicaSet], new_rs: ReplicaSet
    ) -> bool:
        old_rss = rolling_update.filter_active(old_rss)
        budget = rolling_update.plan_scale_down_budget(self._deployment, all_rss, old_rss, new_rs)
        if budget <= 0:
            return False
        scaled_down = False
        try:
            old_rss = sort_by_creation(old_rss)
            for resize in rolling_update.plan_unhealthy_cleanup(old_rss, budget):
                _, updated = await self._scale_replica_set(resize.rs, resize.replicas)
                old_rss[old_rss.index(resize.rs)] = updated
                scaled_down = True
            for resize in rolling_update.plan_old_scale_down(
                self._deployment, [*old_rss, new_rs], sort_by_creation(old_rss)
            ):
                await self._scale_replica_set(resize.rs, resize.replicas)
                scaled_down = True
        except (ApiError, ServerUnreachable, ValueError) as error:
            # As in v1.36 the sync continues with the status; its write, or the next event, enqueues the key again.
            log.info("could not scale down old replica sets of %s: %s", self._deployment.key, error)
            return False
        return scaled_down

    async def _rollout_recreate(self) -> None:
        new_rs, old_rss = await self._get_replica_sets(create=False)
        scaled_down = clean_up = False
        for rs in rolling_update.filter_active(old_rss):
            scaled, _ = await self._scale_replica_set(rs, 0)
            scaled_down = scaled_down or scaled
        if not scaled_down and not old_pods_running(new_rs, old_rss, self._owned_pods()):
            if new_rs is None:
                new_rs, old_rss = await self._get_replica_sets(create=True)
            assert new_rs is not None
            await self._scale_replica_set(new_rs, replicas_of(self._deployment))
            clean_up = True
        await self._sync_rollout_status(old_rss, new_rs, clean_up=clean_up)

    def _owned_pods(self) -> list[tuple[str, list[Pod]]]:
        selector = selector_from(self._deployment.spec.selector)
        return pods_by_replica_set(self._informers.informer(PODS).store, selector, self._replica_sets)

    async def _is_scaling_event(self) -> bool:
        new_rs, old_rss = await self._get_replica_sets(create=False)
        return rolling_update.is_scaling_event(self._deployment, all_replica_sets(new_rs, old_rss))

    async def _scale(self) -> None:
        """Scale after spec.replicas changed; a paused Deployment is scaled only."""
        new_rs, old_rss = await self._get_replica_sets(create=False)
        await self.scale_replica_sets(new_rs, old_rss)
        desired = replicas_of(self._deployment)
        only = rolling_update.find_active_or_latest(new_rs, old_rss)
        if (
            only is not None
            and replicas_of(only) == desired
            and rolling_update.is_scaling_event(self._deployment, [only])
        ):
            # v1.36 does not update the annotation of a ReplicaSet that has the size already. Each sync then scales
            # again, and the Deployment is never rolled out.
            await self._scale_replica_set(only, desired, forced=True)
        if self._deployment.spec.paused and rollback_revision(self._deployment) is None:
            await self._cleanup_old_replica_sets(old_rss)
        await self._sync_status(old_rss, new_rs)

    async def scale_replica_sets(self, new_rs: ReplicaSet | None, old_rss: Sequence[ReplicaSet]) -> None:
        """Distribute spec.replicas over the ReplicaSets. Stops at the first write that fails, and raises its error."""
        scaling = rolling_update.plan_scaling(self._deployment, new_rs, old_rss)
        for resize in scaling.resizes:
            await self._scale_replica_set(resize.rs, resize.replicas, forced=scaling.forced)

    async def _scale_replica_set(self, rs: ReplicaSet, size: int, *, forced: bool = False) -> tuple[bool, ReplicaSet]:
        """Set the size of `rs`. `forced`: update its size annotations even if the size does not change.

        Returns True if the size changed, and the ReplicaSet after the write.
        """
        old_size = replicas_of(rs)
        if old_size == size and not forced:
            return False, rs
        annotations = rolling_update.changed_replicas_annotations(self._deployment, rs)
        if old_size == size and not annotations:
            return False, rs
        updated = await self._patch_rs(rs, annotations, {"replicas": size} if size != old_size else {}, "scale")
        if old_size == size:
            return False, updated
        direction = "up" if old_size < size else "down"
        self._event(
            "Normal",
            "ScalingReplicaSet",
            f"Scaled {direction} replica set {rs.metadata.name} from {old_size} to {size}",
        )
        return True, updated

    async def _cleanup_old_replica_sets(self, old_rss: Sequence[ReplicaSet]) -> None:
        for rs in replica_sets_to_clean_up(self._deployment, old_rss):
            name = rs.metadata.name
            with suppress(NotFound), self._reconcile.action_span(f"delete replicaset {name}"):
                await self._client.delete(
                    REPLICA_SETS,
                    name,
                    rs.metadata.namespace,
                    precondition_uid=rs.metadata.uid,
                )

    # --- rollback --------------------------------------------------------------------------------------------------

    async def _rollback(self) -> None:
        """Restore the template of an old revision. The next sync rolls it out."""
        new_rs, old_rss = await self._get_replica_sets(create=True)
        assert new_rs is not None
        all_rss = [*old_rss, new_rs]
        revision = rollback_revision(self._deployment) or last_revision(all_rss)
        if revision == 0:
            self._event("Warning", "DeploymentRollbackRevisionNotFound", "Unable to find last revision.")
            await self._write_rollback(None)
            return
        for rs in all_rss:
            try:
                if revision_of(rs) != revision:
                    continue
            except InvalidInteger:
                continue
            name = self._deployment.metadata.name
            if equal_ignore_hash(self._deployment.spec.template, rs.spec.template):
                message = f'The rollback revision contains the same template as current deployment "{name}"'
                self._event("Warning", "DeploymentRollbackTemplateUnchanged", message)
                await self._write_rollback(None)
            else:
                await self._write_rollback(rs)
                self._event("Normal", "DeploymentRollback", f'Rolled back deployment "{name}" to revision {revision}')
            return
        self._event("Warning", "DeploymentRollbackRevisionNotFound", "Unable to find the revision to rollback to.")
        await self._write_rollback(None)

    async def _write_rollback(self, rs: ReplicaSet | None) -> None:
        """Restore template and annotations of `rs`, if any, and remove the rollback annotation.

        A JSON patch: a merge patch would merge two templates instead of replacing one with the other.
        """
        deployment = self._deployment
        annotations = deployment.metadata.annotations
        operations: list[JSONValue] = []
        if rs is not None:
            annotations = rolled_back_annotations(annotations, rs.metadata.annotations)
            template = without_hash_label(rs.spec.template)
            operations.append({"op": "replace", "path": "/spec/template", "value": template})
        annotations = {name: value for name, value in annotations.items() if name != ROLLBACK_TO}
        operations.append({"op": "add", "path": "/metadata/annotations", "value": annotations})
        version = self._stored.metadata.resource_version
        if version:
            operations.insert(0, {"op": "replace", "path": "/metadata/resourceVersion", "value": version})
        with self._reconcile.action_span("roll back" if rs is not None else "drop the rollback annotation"):
            written = await self._client.patch(
                DEPLOYMENTS,
                deployment.metadata.name,
                operations,
                PatchType.JSON,
                deployment.metadata.namespace,
            )
        self._record_write(DEPLOYMENTS, written)

    # --- status ----------------------------------------------------------------------------------------------------

    async def _sync_status(self, old_rss: Sequence[ReplicaSet], new_rs: ReplicaSet | None) -> None:
        """Write the counts if they changed. Rollout progress is not evaluated."""
        all_rss = all_replica_sets(new_rs, old_rss)
        status = statuses.calculate_status(
            self._deployment, all_rss, new_rs, self._now, counts_terminating=self._counts_terminating
        )
        await self._write_or_postpone_status(status, all_rss)

    async def _sync_rollout_status(
        self, old_rss: Sequence[ReplicaSet], new_rs: ReplicaSet | None, *, clean_up: bool
    ) -> None:
        """Write the status if it changed. clean_up: first delete old ReplicaSets if the rollout is complete."""
        if clean_up and statuses.is_complete(self._deployment, self._deployment.status):
            await self._cleanup_old_replica_sets(old_rss)
        all_rss = all_replica_sets(new_rs, old_rss)
        status = statuses.rollout_status(
            self._deployment, all_rss, new_rs, self._now, counts_terminating=self._counts_terminating
        )
        if not await self._write_or_postpone_status(status, all_rss):
            self.seconds_until_deadline = statuses.seconds_until_progress_deadline(self._deployment, status, self._now)

    async def _write_or_postpone_status(self, status: DeploymentStatus, all_rss: Sequence[ReplicaSet]) -> bool:
        """Write `status` and the revision if they changed, or leave that to a later sync. Returns True if they changed.

        Postponed while a ReplicaSet controller has not seen the last spec of a ReplicaSet: its status, which changes
        this one, is about to follow.
        """
        key, stored = self._deployment.key, self._stored
        if status == stored.status and self._deployment.metadata.annotations == stored.metadata.annotations:
            self._status_delay.forget(key)
            return False
        outdated = bool(self._rs_versions) or any(
            rs.status.observed_generation < rs.metadata.generation for rs in all_rss
        )
        if not (outdated and self._postpone(status)):
            await self._write_status(status)
        return True

    def _postpone(self, status: DeploymentStatus) -> bool:
        """Leave the write of `status` and of the revision to a later sync, which takes them as written.

        Returns False if they are to be written now.
        """
        revision = self._deployment.metadata.annotations.get(REVISION)
        pending = PendingStatus(self._stored.metadata.uid, _written_fields(self._stored), status, revision)
        return self._status_delay.postpone(self._deployment.key, pending)

    def _set_revision(self, revision: str) -> bool:
        metadata = self._deployment.metadata
        if metadata.annotations.get(REVISION) == revision or (not revision and REVISION not in metadata.annotations):
            return False
        self._deployment = replace(
            self._deployment, metadata=replace(metadata, annotations={**metadata.annotations, REVISION: revision})
        )
        return True

    def _set_condition(self, status: str, reason: str, message: str) -> None:
        condition = statuses.new_condition(statuses.PROGRESSING, status, reason, message, self._now)
        self._deployment = replace(self._deployment, status=statuses.with_condition(self._deployment.status, condition))

    async def _write_status(self, status: DeploymentStatus) -> None:
        """Write the status, and the revision annotation if it changed."""
        self._deployment = replace(self._deployment, status=status)
        stored = self._stored
        annotations = _annotation_changes(stored.metadata.annotations, self._deployment.metadata.annotations)
        patch = versioned_merge_patch(
            stored.metadata.resource_version,
            metadata={"annotations": annotations} if annotations else {},
            status=changed_fields(stored.status, status),
        )
        with self._reconcile.action_span("update status"):
            written = await self._client.patch(
                DEPLOYMENTS,
                self._deployment.metadata.name,
                patch,
                PatchType.MERGE,
                self._deployment.metadata.namespace,
                subresource="status",
            )
        self._record_write(DEPLOYMENTS, written)
        self._status_delay.forget(self._deployment.key)
        version = written.metadata.resource_version
        self._stored = replace(self._deployment, metadata=replace(self._deployment.metadata, resource_version=version))

    # --- writes ----------------------------------------------------------------------------------------------------

    async def _patch_rs(
        self, rs: ReplicaSet, annotations: dict[str, JSONValue], spec: dict[str, JSONValue], verb: str
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
            updated = await self._client.patch(REPLICA_SETS, metadata.name, patch, PatchType.MERGE, metadata.namespace)
        self._record_rs_write(updated)
        return updated

    def _record_rs_write(self, rs: ReplicaSet) -> None:
        self._rs_versions[rs.metadata.uid] = rs.metadata.resource_version
        self._record_write(REPLICA_SETS, rs)

    def _record_write(self, resource: Resource[Any], written: Object) -> None:
        deployment, version = self._deployment, written.metadata.resource_version
        self._consistency.wrote_at(deployment.key, deployment.metadata.uid, resource.group_resource, version)

    def _event(self, type_: EventType, reason: str, message: str) -> None:
        self._events.event(self._deployment, type_, reason, message)


def _not_in_cache_error(name: str) -> NotFound:
    """Return the error of a cache read for a ReplicaSet that exists but is not cached yet: retry soon."""
    message = f'replicasets.apps "{name}" not found'
    return NotFound(Status(status="Failure", reason="NotFound", message=message, code=404))


def _annotation_changes(old: dict[str, str], new: dict[str, str]) -> dict[str, JSONValue]:
    """Return the annotations to set, and to remove (null), to turn `old` into `new`."""
    changes: dict[str, JSONValue] = {name: value for name, value in new.items() if old.get(name) != value}
    changes.update((name, None) for name in old if name not in new)
    return changes
