"""Failed scheduling attempts: the reservation is undone, and the pod is requeued with an event and a condition.

Source: handleSchedulingFailure and handleBindingCycleError of pkg/scheduler/schedule_one.go, v1.36.
"""

from __future__ import annotations

import logging
from typing import NamedTuple

from kubeloop.informers.store import Store
from kubeloop.kube.objects.api_types import Pod
from kubeloop.scheduler.api import events
from kubeloop.scheduler.api.status import Status
from kubeloop.scheduler.api_calls.status_patches import StatusPatches
from kubeloop.scheduler.attempts.attempt import Attempt
from kubeloop.scheduler.cache.cache import CacheError, SchedulerCache
from kubeloop.scheduler.cache.snapshot import Snapshot
from kubeloop.scheduler.context import SchedulerContext
from kubeloop.scheduler.framework.fit_error import Diagnosis, FitError, NodeToStatus
from kubeloop.scheduler.metrics import AttemptResult
from kubeloop.scheduler.queue.nominator import WITHDRAWN, Nomination
from kubeloop.scheduler.queue.scheduling_queue import SchedulingQueue

log = logging.getLogger(__name__)


class Failure(NamedTuple):
    """Why an attempt failed, and the change of the pod's nomination.

    diagnosis: why the pod was rejected; None after an error.
    """

    message: str
    diagnosis: Diagnosis | None = None
    nomination: Nomination = WITHDRAWN


class FailedAttempts:
    """Handles attempts that failed in the scheduling cycle or in the binding cycle. pods: the informer's."""

    def __init__(
        self,
        context: SchedulerContext,
        queue: SchedulingQueue,
        cache: SchedulerCache,
        snapshot: Snapshot,
        pods: Store[Pod],
        patches: StatusPatches,
    ) -> None:
        self._context = context
        self._traces = context.traces
        self._metrics = context.metrics
        self._now_ns = context.clock.time_ns
        self._queue = queue
        self._cache = cache
        self._snapshot = snapshot
        self._pods = pods
        self._patches = patches

    def not_reserved(self, attempt: Attempt, status: Status) -> None:
        """Handle a failure of Reserve or Permit in the scheduling cycle."""
        self._unreserve_and_forget(attempt)
        self._reject(attempt, status)

    def not_bound(self, attempt: Attempt, status: Status) -> None:
        """Handle a failure of the binding cycle."""
        forgotten = self._unreserve_and_forget(attempt)
        pod = attempt.pod_info.pod
        if forgotten and not status.is_rejection:
            # For other pods it is as if the pod had been deleted: its room is free again.
            self._queue.move_all_to_active_or_backoff(events.ASSIGNED_POD_DELETE, pod, None)
        self._reject(attempt, status)
        if forgotten and status.is_rejection:
            # After the pod is requeued, so that the event of its own removal does not make it schedulable.
            uid = attempt.pod_info.uid
            self._queue.move_all_to_active_or_backoff(
                events.ASSIGNED_POD_DELETE, pod, None, lambda queued: queued.uid != uid
            )

    def _unreserve_and_forget(self, attempt: Attempt) -> bool:
        """Unreserve and forget an assumed pod; return False if it was not in the cache."""
        attempt.framework.reserve.run_unreserve(attempt.state, attempt.pod_info, attempt.node)
        try:
            self._cache.forget_pod(attempt.pod_info.pod)
        except CacheError as error:
            log.warning("cannot forget an assumed pod: %s", error)
            return False
        return True

    def _reject(self, attempt: Attempt, status: Status) -> None:
        """Requeue a pod that Reserve, Permit, PreBind or Bind rejected, or that failed there."""
        self.requeue(attempt, *self.failure_of(attempt.node, status))

    def failure_of(self, node: str, status: Status) -> Failure:
        """Return the failure of a pod that Reserve, Permit, PreBind or Bind rejected on `node`, or failed there."""
        if not status.is_rejection:
            return Failure(status.message)
        diagnosis = Diagnosis(NodeToStatus(self._snapshot))
        diagnosis.node_to_status.set(node, status)
        diagnosis.note(status)
        return Failure(str(FitError(1, diagnosis)), diagnosis)

    def requeue(
        self,
        attempt: Attempt,
        message: str,
        diagnosis: Diagnosis | None = None,
        nomination: Nomination = WITHDRAWN,
    ) -> None:
        """Requeue the pod, record an event and patch the condition. The arguments are those of a Failure."""
        queued = attempt.queued
        pod = queued.pod
        result: AttemptResult = "error" if diagnosis is None else "unschedulable"
        if attempt.facts.result != "scheduled":  # else the trace has the facts already, of the scheduling cycle
            facts = attempt.facts
            facts.result, facts.message, facts.node = result, message, attempt.node
            facts.nominated_node = nomination.node_name
            self._traces.attempt_finished(pod, facts, attempt.reserve)
        seconds = (self._now_ns() - attempt.start_ns) / 1e9
        self._metrics.attempt(result, attempt.framework.profile_name, seconds)
        queued.unschedulable_plugins = diagnosis.unschedulable_plugins if diagnosis is not None else set()
        queued.pending_plugins = diagnosis.pending_plugins if diagnosis is not None else set()
        newest = self._pods.get(queued.key)
        if newest is None or newest.metadata.uid != queued.uid or newest.spec.node_name:
            self._queue.done(queued.uid)  # deleted or bound in the meantime: nothing to retry or report
            return
        queued.update(newest)
        pod = newest
        self._queue.add_unschedulable_if_not_present(queued)
        if self._cache.pod_groups is not None:
            self._cache.pod_groups.requeued(pod)
        self._queue.nominator.add(queued.info, nomination.new_node_name)
        report_failure(self._context, pod, message)
        self._patches.set(
            pod,
            reason="SchedulerError" if diagnosis is None else "Unschedulable",
            message=message,
            nominated_node_name=nomination.new_node_name,
        )


def report_failure(context: SchedulerContext, pod: Pod, message: str) -> None:
    """Record the event FailedScheduling."""
    recorder = context.recorder_for(pod.spec.scheduler_name)
    recorder.event(pod, "Warning", "FailedScheduling", message, action="Scheduling")


def skip_deleted(context: SchedulerContext, pod: Pod) -> bool:
    """Return True for a pod that is being deleted, and report that it is not scheduled."""
    if pod.metadata.deletion_timestamp is None:
        return False
    report_failure(context, pod, f"skip schedule deleting pod: {pod.key}")
    return True
