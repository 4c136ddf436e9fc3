"""One sync of one Deployment: the decisions of this package, applied in the same order as in Kubernetes.

Each step calls the pure functions of `rolling_update`, `new_replica_set`, `replica_sets`, `rollback` and
`deployment_status`, and passes the result to `deployment_writer`. A failed write ends the sync and the key is retried,
except where a comment says otherwise. Source: syncDeployment in
pkg/controller/deployment/deployment_controller.go, and rolling.go, recreate.go, rollback.go and sync.go next to it.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence

from msgspec.structs import replace

from kubeloop.controllers.deployment import deployment_status as statuses
from kubeloop.controllers.deployment import rolling_update
from kubeloop.controllers.deployment.deployment_writer import DeploymentWriter, annotation_changes
from kubeloop.controllers.deployment.new_replica_set import new_replica_set, new_replica_set_annotations
from kubeloop.controllers.deployment.pending_status import PendingStatus
from kubeloop.controllers.deployment.replica_sets import (
    REVISION,
    all_replica_sets,
    find_new_replica_set,
    find_old_replica_sets,
    max_revision,
    old_pods_running,
    pods_by_replica_set,
    replica_sets_to_clean_up,
    sort_by_creation,
    with_revision,
)
from kubeloop.controllers.deployment.rollback import plan_rollback, rollback_revision
from kubeloop.controllers.deployment.rolling_update import RECREATE, ROLLING_UPDATE, UnsupportedStrategy
from kubeloop.controllers.runtime.controller_context import ControllerContext
from kubeloop.controllers.runtime.integers import wrap_int64
from kubeloop.controllers.runtime.revisions.pod_template_hash import equal_ignore_hash
from kubeloop.controllers.runtime.writes.consistency import ConsistencyStore
from kubeloop.controllers.runtime.writes.status_delay import StatusDelay
from kubeloop.kube.errors import AlreadyExists, ApiError, NotFound, ServerUnreachable, is_namespace_terminating
from kubeloop.kube.objects.api_types import ApiStatus, Deployment, ReplicaSet
from kubeloop.kube.objects.object_fields import controller_of, replicas_of
from kubeloop.kube.objects.resources import PODS, REPLICA_SETS
from kubeloop.kube.selectors.selectors import selector_from
from kubeloop.tracing.recording.reconcile_recorder import Reconcile

log = logging.getLogger(__name__)


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
        self._writer = DeploymentWriter(deployment, context, consistency, status_delay, reconcile)
        self._replica_sets = replica_sets
        self._informers = context.informers
        self._counts_terminating = context.feature_gates.enabled("DeploymentReplicaSetTerminatingReplicas")
        self._now = context.clock.now()
        self.seconds_until_deadline: float | None = None  # progress deadline to check if nothing else changes

    @property
    def _deployment(self) -> Deployment:
        return self._writer.deployment

    async def run(self) -> None:
        """Sync the Deployment. Raises errors of writes, and UnsupportedStrategy or InvalidIntOrPercent for the spec."""
        deployment = self._deployment
        if deployment.metadata.deletion_timestamp is not None:
            new_rs, old_rss = await self._sync_revisions(create=False)
            await self._sync_status(old_rss, new_rs)
            return
        # First, so that a rollout that was paused for long does not time out at the moment it is resumed.
        status = statuses.with_paused_condition(deployment, self._now)
        if status is not deployment.status:
            await self._writer.write_status(status)
        if deployment.spec.paused:
            await self._scale()
            return
        if rollback_revision(deployment) is not None:
            await self._rollback()
            return
        new_rs, old_rss = await self._sync_revisions(create=False)
        if rolling_update.is_scaling_event(self._deployment, all_replica_sets(new_rs, old_rss)):
            await self._scale()
        elif deployment.spec.strategy.type == RECREATE:
            await self._rollout_recreate()
        elif deployment.spec.strategy.type == ROLLING_UPDATE:
            await self._rollout_rolling()
        else:
            raise UnsupportedStrategy(f"unexpected deployment strategy type: {deployment.spec.strategy.type}")

    # --- the new ReplicaSet ----------------------------------------------------------------------------------------

    async def _sync_revisions(self, *, create: bool) -> tuple[ReplicaSet | None, list[ReplicaSet]]:
        """Return the new ReplicaSet, up to date (created if `create`), and the old ones, oldest first."""
        existing = find_new_replica_set(self._deployment, self._replica_sets)
        old_rss = find_old_replica_sets(existing, self._replica_sets)
        revision = str(wrap_int64(max_revision(old_rss) + 1))
        if existing is not None:
            return await self._update_new_rs(existing, revision), old_rss
        if create:
            return await self._create_new_rs(old_rss, revision), old_rss
        return None, old_rss

    async def _create_revisions(self) -> tuple[ReplicaSet, list[ReplicaSet]]:
        """Return the new ReplicaSet, created if there is none, and the old ones, oldest first."""
        new_rs, old_rss = await self._sync_revisions(create=True)
        assert new_rs is not None
        return new_rs, old_rss

    async def _update_new_rs(self, rs: ReplicaSet, revision: str) -> ReplicaSet:
        deployment = self._deployment
        min_ready_seconds = deployment.spec.min_ready_seconds
        annotations, changed = new_replica_set_annotations(
            deployment.metadata.annotations, rs.metadata.annotations, revision, replicas={}
        )
        changes = annotation_changes(rs.metadata.annotations, annotations)
        if changed or rs.spec.min_ready_seconds != min_ready_seconds:
            # The next sync sets the Deployment's own revision, from the stored ReplicaSet.
            spec = {"minReadySeconds": min_ready_seconds} if rs.spec.min_ready_seconds != min_ready_seconds else {}
            return await self._writer.patch_replica_set(rs, changes, spec, "update")
        if changes:
            # The revision is not a number, which alone causes no write; copied annotations go with the next write.
            self._writer.annotate_with_next_write(rs, changes)
            rs = replace(rs, metadata=replace(rs.metadata, annotations=annotations))
        deployment = with_revision(deployment, annotations.get(REVISION, ""))
        await self._writer.write_or_postpone(statuses.with_new_rs_found(deployment, rs, self._now))
        return rs

    async def _create_new_rs(self, old_rss: Sequence[ReplicaSet], revision: str) -> ReplicaSet:
        deployment = self._deployment
        name, size, body = new_replica_set(deployment, old_rss, revision)
        try:
            rs = await self._writer.create_replica_set(name, body)
        except AlreadyExists as error:
            rs = await self._own_existing_rs(name, error)
            await self._writer.write_or_postpone(with_revision(deployment, revision))
            return rs
        except (ApiError, ServerUnreachable) as error:
            # No object can be created in a namespace that is being deleted, so that needs no event.
            if not is_namespace_terminating(error):
                await self._report_failed_create(name, error)
            raise
        if size > 0:
            message = f"Scaled up replica set {rs.metadata.name} from 0 to {size}"
            self._writer.event("Normal", "ScalingReplicaSet", message)
        message = f'Created new replica set "{rs.metadata.name}"'
        deployment = with_revision(deployment, revision)
        await self._writer.write_or_postpone(
            statuses.with_progressing(deployment, "True", statuses.NEW_RS_CREATED, message, self._now)
        )
        return rs

    async def _own_existing_rs(self, name: str, error: AlreadyExists) -> ReplicaSet:
        """Return the cached ReplicaSet `name` if it is that of this template. Otherwise the hashes of two templates
        collide: change the hash for the next sync, and raise `error`."""
        deployment = self._deployment
        cached = self._informers.informer(REPLICA_SETS).store.get(f"{deployment.metadata.namespace}/{name}")
        if cached is None:
            raise _not_in_cache_error(name) from None
        owner = controller_of(cached.metadata)
        is_own = owner is not None and owner.uid == deployment.metadata.uid
        if is_own and equal_ignore_hash(cached.spec.template, deployment.spec.template):
            return cached
        count = (deployment.status.collision_count or 0) + 1
        try:
            await self._writer.write_status(replace(deployment.status, collision_count=count))
        except (ApiError, ServerUnreachable) as status_error:
            # The next sync counts the same collision.
            log.debug("could not count a hash collision of %s: %s", deployment.key, status_error)
        raise error

    async def _report_failed_create(self, name: str, error: Exception) -> None:
        message = f'Failed to create new replica set "{name}": {error}'
        deployment = self._deployment
        failed = statuses.with_progressing(deployment, "False", statuses.NEW_RS_CREATE_ERROR, message, self._now)
        if statuses.has_progress_deadline(deployment):
            try:
                await self._writer.write_status(failed.status)
            except (ApiError, ServerUnreachable) as status_error:
                # The failed create is the more important error, and the one that the caller raises.
                log.debug("could not report a failed create of %s: %s", deployment.key, status_error)
        self._writer.event("Warning", statuses.NEW_RS_CREATE_ERROR, message)

    # --- rolling update, recreate, scale ---------------------------------------------------------------------------

    async def _rollout_rolling(self) -> None:
        new_rs, old_rss = await self._create_revisions()
        size = rolling_update.plan_new_size(self._deployment, [*old_rss, new_rs], new_rs)
        scaled, _ = await self._writer.scale_replica_set(new_rs, size)
        if not scaled:
            scaled = await self._scale_down_old_replica_sets(old_rss, new_rs)
        await self._sync_rollout_status(old_rss, new_rs, clean_up=not scaled)

    async def _scale_down_old_replica_sets(self, old_rss: list[ReplicaSet], new_rs: ReplicaSet) -> bool:
        """Remove the old Pods that the new ones allow. Returns True if there were any."""
        all_rss, active = [*old_rss, new_rs], rolling_update.filter_active(old_rss)
        budget = rolling_update.plan_scale_down_budget(self._deployment, all_rss, active, new_rs)
        if budget <= 0:
            return False
        scaled_down = False
        try:
            active = sort_by_creation(active)
            for resize in rolling_update.plan_unhealthy_cleanup(active, budget):
                _, updated = await self._writer.scale_replica_set(resize.rs, resize.replicas)
                active[active.index(resize.rs)] = updated
                scaled_down = True
            for resize in rolling_update.plan_old_scale_down(
                self._deployment, [*active, new_rs], sort_by_creation(active)
            ):
                await self._writer.scale_replica_set(resize.rs, resize.replicas)
                scaled_down = True
        except (ApiError, ServerUnreachable, ValueError) as error:
            # As in v1.36 the sync continues with the status; its write, or the next event, enqueues the key again.
            log.info("could not scale down old replica sets of %s: %s", self._deployment.key, error)
            return False
        return scaled_down

    async def _rollout_recreate(self) -> None:
        new_rs, old_rss = await self._sync_revisions(create=False)
        scaled_down = clean_up = False
        for rs in rolling_update.filter_active(old_rss):
            scaled, _ = await self._writer.scale_replica_set(rs, 0)
            scaled_down = scaled_down or scaled
        selector, pods = selector_from(self._deployment.spec.selector), self._informers.informer(PODS).store
        if not scaled_down and not old_pods_running(
            new_rs, old_rss, pods_by_replica_set(pods, selector, self._replica_sets)
        ):
            if new_rs is None:
                new_rs, old_rss = await self._create_revisions()
            await self._writer.scale_replica_set(new_rs, replicas_of(self._deployment))
            clean_up = True
        await self._sync_rollout_status(old_rss, new_rs, clean_up=clean_up)

    async def _scale(self) -> None:
        """Scale after spec.replicas changed; a paused Deployment is scaled only."""
        new_rs, old_rss = await self._sync_revisions(create=False)
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
            await self._writer.scale_replica_set(only, desired, forced=True)
        if self._deployment.spec.paused and rollback_revision(self._deployment) is None:
            await self._clean_up(old_rss)
        await self._sync_status(old_rss, new_rs)

    async def scale_replica_sets(self, new_rs: ReplicaSet | None, old_rss: Sequence[ReplicaSet]) -> None:
        """Distribute spec.replicas over the ReplicaSets. Stops at the first write that fails, and raises its error."""
        scaling = rolling_update.plan_scaling(self._deployment, new_rs, old_rss)
        for resize in scaling.resizes:
            await self._writer.scale_replica_set(resize.rs, resize.replicas, forced=scaling.forced)

    async def _clean_up(self, old_rss: Sequence[ReplicaSet]) -> None:
        for rs in replica_sets_to_clean_up(self._deployment, old_rss):
            await self._writer.delete_replica_set(rs)

    async def _rollback(self) -> None:
        """Restore the template of an old revision. The next sync rolls it out."""
        new_rs, old_rss = await self._create_revisions()
        rollback = plan_rollback(self._deployment, [*old_rss, new_rs])
        if rollback.replica_set is None:
            self._writer.event("Warning", rollback.reason, rollback.message)
            await self._writer.roll_back(None)
        else:
            await self._writer.roll_back(rollback.replica_set)
            self._writer.event("Normal", rollback.reason, rollback.message)

    # --- status ----------------------------------------------------------------------------------------------------

    async def _sync_status(self, old_rss: Sequence[ReplicaSet], new_rs: ReplicaSet | None) -> None:
        """Write the counts if they changed. Rollout progress is not evaluated."""
        all_rss = all_replica_sets(new_rs, old_rss)
        status = statuses.calculate_status(
            self._deployment, all_rss, new_rs, self._now, counts_terminating=self._counts_terminating
        )
        await self._writer.write_changed_status(status, all_rss)

    async def _sync_rollout_status(
        self, old_rss: Sequence[ReplicaSet], new_rs: ReplicaSet | None, *, clean_up: bool
    ) -> None:
        """Write the status if it changed. clean_up: first delete old ReplicaSets if the rollout is complete."""
        if clean_up and statuses.is_complete(self._deployment, self._deployment.status):
            await self._clean_up(old_rss)
        all_rss = all_replica_sets(new_rs, old_rss)
        status = statuses.rollout_status(
            self._deployment, all_rss, new_rs, self._now, counts_terminating=self._counts_terminating
        )
        if not await self._writer.write_changed_status(status, all_rss):
            self.seconds_until_deadline = statuses.seconds_until_progress_deadline(self._deployment, status, self._now)


def _not_in_cache_error(name: str) -> NotFound:
    """Return the error of a cache read for a ReplicaSet that exists but is not cached yet: retry soon."""
    message = f'replicasets.apps "{name}" not found'
    return NotFound(ApiStatus(status="Failure", reason="NotFound", message=message, code=404))
