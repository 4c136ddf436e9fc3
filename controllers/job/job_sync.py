"""One sync of a Job: claims its Pods, creates and deletes them, counts the finished ones, and writes the status.

Decisions are those of `job_state`, `pod_plan`, `pod_tracking` and `job_status`. Source: syncJob in v1.36
pkg/controller/job/job_controller.go.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Coroutine, Iterable, Sequence
from datetime import datetime
from typing import Any

from msgspec.structs import replace

from kubeloop.controllers.job.conditions import SUCCESS, final_condition, new_condition, seconds_to_deadline
from kubeloop.controllers.job.job_fields import TRACKING_FINALIZER, has_tracking_finalizer
from kubeloop.controllers.job.job_records import JobRecords
from kubeloop.controllers.job.job_scheduling import JobScheduling
from kubeloop.controllers.job.job_state import JobState, observe
from kubeloop.controllers.job.job_status import (
    finished_status,
    needs_write,
    status_changes,
    with_suspension,
    with_target,
)
from kubeloop.controllers.job.metrics import JobMetrics, SyncAction
from kubeloop.controllers.job.pod_plan import JobPodPlan, plan_pods, pod_bodies
from kubeloop.controllers.job.pod_tracking import count_released, has_uncounted, track_pods
from kubeloop.controllers.job.policies.pod_backoff import BackoffRecord
from kubeloop.controllers.runtime.controller_context import ControllerContext
from kubeloop.controllers.runtime.owners.adoption import Claim, claim_cached
from kubeloop.controllers.runtime.pods.pod_control import CannotDeletePods, PodControl
from kubeloop.controllers.runtime.pods.slow_start import slow_start_batch
from kubeloop.controllers.runtime.writes.object_patch import patch_object, patch_status
from kubeloop.kube.client.api_client import PatchType
from kubeloop.kube.errors import ApiError, NotFound, ServerUnreachable, is_namespace_terminating
from kubeloop.kube.objects.api_types import Condition, Job, JobStatus, JSONValue, Pod
from kubeloop.kube.objects.object_fields import is_ready
from kubeloop.kube.objects.resources import JOBS, PODS
from kubeloop.kube.selectors.selectors import Selector
from kubeloop.tracing.recording.reconcile_recorder import Reconcile

BATCH_SECONDS = 1.0
"""Delay between an event of a Pod and the sync, so that one sync handles the events of many Pods."""


class JobSync:
    """One sync. It may be cancelled between any two writes; the next one continues from what is stored."""

    def __init__(
        self,
        job: Job,
        context: ControllerContext,
        pod_control: PodControl,
        records: JobRecords,
        reconcile: Reconcile,
        metrics: JobMetrics,
        scheduling: JobScheduling | None = None,
    ) -> None:
        """job: as cached. scheduling: None if Jobs have no PodGroups."""
        self.action: SyncAction = "reconciling"
        self._metrics = metrics
        self._stored = job
        self._client = context.client
        self._clock = context.clock
        self._events = context.events
        self._resets_start_time = context.feature_gates.enabled("MutableSchedulingDirectivesForSuspendedJobs")
        self._pod_control = pod_control
        self._records = records
        self._reconcile = reconcile
        self._scheduling = scheduling
        self._active = self._ready = self._terminating = 0
        self._failed_creations = 0

    async def run(self, candidates: Iterable[Pod], selector: Selector) -> float | None:
        """Sync once. Returns the seconds after which time alone may change the result.

        candidates: Pods of this Job, and Pods without a controller. Raises the first error of a write, after the
        status.
        """
        job = self._stored
        caught_up = self._records.expectations.met(job.key)  # before Pods are read: a new one may appear meanwhile
        pods = await self._claim(candidates, selector)
        pod_group: str | None = None
        if self._scheduling is not None:
            pod_group = await self._scheduling.pod_group_of(job, pods, self._reconcile)
        now = self._clock.now()
        state = observe(
            job,
            pods,
            untracked=self._records.released.pending(job.key),
            backoff=self._records.backoffs.get(job.key, BackoffRecord()),
            now=now,
        )
        self._active, self._ready, self._terminating = len(state.active), state.ready, state.terminating
        status, target, plan = state.job.status, state.target, JobPodPlan()
        failure: Exception | None = None
        if target is not None:
            failure = await self._delete(state.active, self._delete_pod)
            if self._active or not caught_up:
                target = None  # Pods remain, or the cache does not show all of them yet
        else:
            manages = caught_up and job.metadata.deletion_timestamp is None
            if manages:
                plan = plan_pods(state, now)
                self.action = _action(job, plan)
                failure = await self._apply(plan, state, pod_group)
            if self._is_complete(state):
                target = new_condition(SUCCESS, "CompletionsReached", "Reached expected number of succeeded pods", now)
            elif manages:
                status = self._with_suspension(status, now)
        status = replace(status, active=self._active, ready=self._ready, terminating=self._terminating)
        await self._track(state, status, target, now)
        if failure is not None:
            raise failure
        return self._seconds_to_next_sync(state, plan, now)

    def _is_complete(self, state: JobState) -> bool:
        completions = state.job.spec.completions
        return self._active == 0 and state.succeeded >= (1 if completions is None else completions)

    def _with_suspension(self, status: JobStatus, now: datetime) -> JobStatus:
        changed = with_suspension(self._stored, status, now, resets_start_time=self._resets_start_time)
        if changed is not status:
            state = "suspended" if self._stored.spec.suspend else "resumed"
            self._events.event(self._stored, "Normal", state.capitalize(), f"Job {state}")
        return changed

    @staticmethod
    def _seconds_to_next_sync(state: JobState, plan: JobPodPlan, now: datetime) -> float | None:
        waits: list[float] = []
        if plan.wait_seconds:
            waits.append(max(BATCH_SECONDS, plan.wait_seconds))
        if state.target is None and (deadline := seconds_to_deadline(state.job, now)) is not None:
            waits.append(deadline)
        return min(waits, default=None)

    # --- pods --------------------------------------------------------------------------------------------------------

    async def _claim(self, candidates: Iterable[Pod], selector: Selector) -> list[Pod]:
        """Adopt and release Pods as needed, and return those of the Job. Raises ClaimErrors."""
        adopted: dict[str, Pod] = {}

        def record(written: Pod, claim: Claim) -> None:
            self._records.consistency.wrote(self._stored, PODS, written)
            if claim is Claim.ADOPT:
                adopted[written.key] = written

        claimed = await claim_cached(
            self._client,
            JOBS,
            self._stored,
            PODS,
            candidates,
            selector,
            self._reconcile,
            wrote=record,
            finalizer=TRACKING_FINALIZER,
        )
        return [adopted.get(pod.key, pod) for pod in claimed] if adopted else claimed

    async def _apply(self, plan: JobPodPlan, state: JobState, pod_group: str | None) -> Exception | None:
        """Create or delete Pods; new ones belong to the PodGroup.

        Returns the first failure instead of raising it, since the status follows.
        """
        expectations, key = self._records.expectations, self._stored.key
        if plan.delete:
            expectations.expect_deletions(key, (pod.key for pod in plan.delete))
            return await self._delete(plan.delete, self._release_and_delete_pod)
        if plan.wait_seconds:
            self._active = 0  # as upstream: status.active is 0 while failed Pods wait for their replacements
        if plan.create:
            # Before the first request: the watch may show a Pod before our call returns.
            expectations.expect_creations(key, plan.create)
            bodies = pod_bodies(state, plan, pod_group)
            created, failure = await slow_start_batch(plan.create, lambda: self._create_pod(next(bodies)))
            for _ in range(plan.create - created):
                expectations.creation_observed(key)  # not tried, or failed: no event will show them
            self._active += created
            self._metrics.pods_created(state, created, self._failed_creations)
            return failure
        return None

    async def _create_pod(self, body: dict[str, JSONValue]) -> None:
        """Create one Pod. Raises the error of the request, unless the namespace is being deleted."""
        try:
            pod = await self._pod_control.create(self._stored, body, self._reconcile)
        except (ApiError, ServerUnreachable) as error:
            self._failed_creations += 1
            if isinstance(error, ApiError) and is_namespace_terminating(error):
                return
            raise
        self._records.consistency.wrote(self._stored, PODS, pod)

    async def _delete(self, pods: Sequence[Pod], delete: Callable[[Pod], Awaitable[None]]) -> Exception | None:
        """Delete Pods concurrently. Counts those that are deleted or gone as terminating; returns the first failure."""
        failures: list[Exception] = []

        async def attempt(pod: Pod) -> None:
            try:
                await delete(pod)
            except NotFound:
                pass
            except (ApiError, ServerUnreachable, CannotDeletePods) as error:
                failures.append(error)
                return
            self._active -= 1
            self._terminating += 1
            self._ready -= is_ready(pod)

        await _run_concurrently(pods, attempt)
        return failures[0] if failures else None

    async def _delete_pod(self, pod: Pod) -> None:
        await self._pod_control.delete(self._stored, pod, self._reconcile)

    async def _release_and_delete_pod(self, pod: Pod) -> None:
        """Delete an active Pod that is not counted. Lowers the expectation after a failure."""
        try:
            if has_tracking_finalizer(pod):
                await self._remove_finalizer(pod)
            await self._delete_pod(pod)
        except Exception:
            self._records.expectations.deletion_observed(self._stored.key, pod.key)  # no event will show it
            raise

    async def _remove_finalizer(self, pod: Pod) -> None:
        with self._reconcile.action_span(f"remove the finalizer of pod {pod.metadata.name}"):
            written = await patch_object(self._client, PODS, pod, finalizer_removal(pod), PatchType.STRATEGIC)
        self._records.consistency.wrote(self._stored, PODS, written)

    # --- status ------------------------------------------------------------------------------------------------------

    async def _track(self, state: JobState, status: JobStatus, target: Condition | None, now: datetime) -> None:
        """Count finished Pods and remove their finalizers; finish the Job when all are counted and gone.

        Raises the first error of a write.
        """
        job, records = self._stored, self._records
        plan = track_pods(state, status, target)
        status = plan.status if target is None else with_target(plan.status, target)
        if needs_write(job.status, status):
            await self._write_status(status)
            records.backoffs[job.key] = state.backoff
        tracked = set(state.tracked)
        self._metrics.failures_handled(plan.policy_actions)
        failure = await self._release(plan.release, tracked)
        counted = count_released(status, tracked)
        final: Condition | None = None
        all_counted = failure is None and plan.complete and not has_uncounted(counted)
        if target is not None and all_counted and self._terminating == 0:
            final = final_condition(target, now)
            counted = finished_status(counted, final)
        if counted != status:
            await self._write_status(counted)
        if failure is not None:
            raise failure
        if final is not None:
            records.finished[job.key] = job.metadata.uid
            self._record_end(final)

    async def _release(self, pods: Sequence[Pod], tracked: set[str]) -> Exception | None:
        """Remove finalizers concurrently, and the UIDs of the Pods that have none any more from `tracked`."""
        key, released = self._stored.key, self._records.released
        released.expect(key, (pod.metadata.uid for pod in pods))
        failures: list[Exception] = []

        async def attempt(pod: Pod) -> None:
            uid = pod.metadata.uid
            try:
                await self._remove_finalizer(pod)
            except NotFound:
                pass  # upstream stops to expect it here, and counts the pod again while the cache still shows it
            except (ApiError, ServerUnreachable) as error:
                released.observed(key, uid)
                failures.append(error)
                return
            tracked.discard(uid)

        await _run_concurrently(pods, attempt)
        return failures[0] if failures else None

    async def _write_status(self, status: JobStatus) -> None:
        before = self._stored.status
        with self._reconcile.action_span("update status"):
            self._stored = await patch_status(self._client, JOBS, self._stored, status_changes(before, status))
        self._records.consistency.wrote(self._stored, JOBS, self._stored)
        self._metrics.status_written(self._stored, before)

    def _record_end(self, final: Condition) -> None:
        job = self._stored
        self._metrics.job_finished(job, final)
        if final.type == "Failed":
            self._events.event(job, "Warning", final.reason, final.message)
            return
        if job.spec.completions is not None and job.status.succeeded > job.spec.completions:
            message = "Too many succeeded pods running after completion count reached"
            self._events.event(job, "Warning", "TooManySucceededPods", message)
        self._events.event(job, "Normal", "Completed", "Job completed")


def _action(job: Job, plan: JobPodPlan) -> SyncAction:
    """Return the label of a sync that manages Pods."""
    if plan.delete or job.spec.suspend:
        return "pods_deleted"
    return "pods_created" if plan.create or plan.wait_seconds else "tracking"


def finalizer_removal(pod: Pod) -> JSONValue:
    """Return the strategic merge patch that removes the tracking finalizer, with the UID as precondition."""
    return {"metadata": {"uid": pod.metadata.uid, "$deleteFromPrimitiveList/finalizers": [TRACKING_FINALIZER]}}


async def _run_concurrently(pods: Iterable[Pod], act: Callable[[Pod], Coroutine[Any, Any, None]]) -> None:
    async with asyncio.TaskGroup() as tasks:
        for pod in pods:
            tasks.create_task(act(pod))
