"""The steps of a scheduling attempt: choose a node, look for pods to preempt, reserve the node.

They are the same for a pod that is scheduled on its own and for a member of a pod group.
Source: schedulingAlgorithm and prepareForBindingCycle of pkg/scheduler/schedule_one.go, v1.36.
"""

from __future__ import annotations

import logging

import msgspec

from kubeloop.scheduler.api.status import Code, Status
from kubeloop.scheduler.attempts.algorithm import Algorithm
from kubeloop.scheduler.attempts.attempt import Attempt
from kubeloop.scheduler.attempts.failed_attempts import FailedAttempts
from kubeloop.scheduler.cache.arrays import Rows
from kubeloop.scheduler.cache.cache import CacheError, SchedulerCache
from kubeloop.scheduler.cache.node_info import PodInfo
from kubeloop.scheduler.context import SchedulerContext
from kubeloop.scheduler.framework.fit_error import FitError
from kubeloop.scheduler.queue.nominator import UNCHANGED, WITHDRAWN, Nomination
from kubeloop.scheduler.queue.scheduling_queue import SchedulingQueue
from kubeloop.tracing.spans.pod_record import Phase

log = logging.getLogger(__name__)

_SLOW_CYCLE_NS = 100_000_000  # duration of a scheduling cycle from which it is logged


class AttemptSteps:
    """The steps of an attempt, on the snapshot of `algorithm`.

    awaits_call: True while an extender, a search for devices or PostFilter may be awaited; the snapshot must not
    change then.
    """

    def __init__(
        self,
        context: SchedulerContext,
        queue: SchedulingQueue,
        cache: SchedulerCache,
        algorithm: Algorithm,
        failed_attempts: FailedAttempts,
    ) -> None:
        self._traces = context.traces
        self._metrics = context.metrics
        self._now_ns = context.clock.time_ns  # within a turn of the event loop, whose time may stand still
        self._queue = queue
        self._cache = cache
        self._algorithm = algorithm
        self._snapshot = algorithm.snapshot
        self._failed_attempts = failed_attempts
        self.awaits_call = False

    async def choose_node(self, attempt: Attempt, rows: Rows | None = None) -> str:
        """Return the node for the pod. rows: as for Algorithm.schedule, which it raises like."""
        self.awaits_call = True
        try:
            return await self._algorithm.schedule(attempt, rows)
        finally:
            self.awaits_call = False
            end_ns = self._now_ns()
            if end_ns - attempt.start_ns >= _SLOW_CYCLE_NS:
                _log_slow_cycle(attempt, end_ns)
            self._metrics.algorithm((end_ns - attempt.start_ns) / 1e9)

    async def post_filter(self, attempt: Attempt, error: FitError) -> Nomination:
        """Run the PostFilter plugins (preemption); return the change of the pod's nomination.

        Their message becomes part of the error.
        """
        filters, facts, diagnosis = attempt.framework.filters, attempt.facts, error.diagnosis
        if not filters.post_filter:
            return WITHDRAWN
        start_ns = self._now_ns()
        self.awaits_call = True
        try:
            result, status = await filters.run_post_filter(
                attempt.state, attempt.pod_info, self._snapshot, diagnosis.node_to_status
            )
        finally:
            self.awaits_call = False
        facts.post_filter_start_ns, facts.post_filter_end_ns = start_ns, self._now_ns()
        facts.victims = result.victims if result is not None else 0
        diagnosis.post_filter_message = status.message
        return UNCHANGED if result is None else Nomination(result.nominated_node_name)

    def reserve(self, attempt: Attempt) -> Status | None:
        """Run the Reserve and Permit plugins. None: the pod can be bound. Code.WAIT: it waits on permit first."""
        points = attempt.framework.reserve
        reserve_ns = self._now_ns()
        status = points.run_reserve(attempt.state, attempt.pod_info, attempt.node)
        error = None if status is None else status.message
        attempt.reserve = Phase(reserve_ns, "reserve", attempt.node, self._now_ns(), error)
        return status if status is not None else points.run_permit(attempt.state, attempt.pod_info, attempt.node)

    def assume_and_reserve(self, attempt: Attempt, node: str) -> bool:
        """Assume the pod on `node` and reserve it. True: the pod is to be bound. False: the attempt ended."""
        pod = attempt.queued.pod
        assumed = with_node(attempt, node)
        try:
            self._cache.assume_pod(assumed)
        except CacheError as error:
            log.warning("scheduling failed", extra={"pod": pod.key, "error": str(error)})
            self._failed_attempts.requeue(attempt, str(error))
            return False
        self._queue.nominator.remove(attempt.queued.uid)
        attempt.pod_info, attempt.node = assumed, node
        status = self.reserve(attempt)
        if status is None:
            # From here on no event can make the pod schedulable: a failure is retried after a backoff.
            self._queue.done(attempt.queued.uid)
        elif status.code is not Code.WAIT:
            self._failed_attempts.not_reserved(attempt, status)
            return False
        attempt.facts.result = "scheduled"
        self._traces.attempt_finished(pod, attempt.facts, attempt.reserve)
        return True


def with_node(attempt: Attempt, node: str) -> PodInfo:
    """Return the PodInfo of the pod as it will be once it is bound."""
    pod, status, claims = attempt.pod_info.pod, attempt.pod_info.pod.status, attempt.state.node_allocatable_claims
    if claims or status.node_allocatable_resource_claim_statuses:
        statuses = claims.get(node, ())
        status = msgspec.structs.replace(status, node_allocatable_resource_claim_statuses=statuses)
    spec = msgspec.structs.replace(pod.spec, node_name=node)
    return attempt.pod_info.with_pod(msgspec.structs.replace(pod, spec=spec, status=status))


def _log_slow_cycle(attempt: Attempt, end_ns: int) -> None:
    """Log the duration of a scheduling cycle and of its completed steps. Source: schedulePod, which traces them."""
    facts, start_ns = attempt.facts, attempt.start_ns
    steps: dict[str, float] = {}
    previous_ns = start_ns
    for step, step_end_ns in (
        ("Snapshotting scheduler cache and node infos done", facts.pre_filter_start_ns),
        ("Computing predicates done", facts.filter_end_ns or facts.pre_filter_end_ns),
        ("Prioritizing done", facts.score_end_ns),
    ):
        if step_end_ns:
            steps[step] = (step_end_ns - previous_ns) / 1e6
            previous_ns = step_end_ns
    pod, total_ms = attempt.queued.pod, (end_ns - start_ns) / 1e6
    log.warning(
        "slow scheduling cycle of %s: %.0f ms (%s)",
        pod.key,
        total_ms,
        ", ".join(f"{step}: {milliseconds:.0f} ms" for step, milliseconds in steps.items()),
        extra={"pod": pod.key, "milliseconds": total_ms, "steps": steps},
    )
