"""The scheduling cycle: pops a pod, chooses its node, and reserves the node for it. One pod at a time.

    snapshot -> pop -> filter and score -> assume -> reserve -> permit -> binding cycle
                          |                            |
                          v no node: post-filter       v rejected
                          +-----> FailedAttempts <-----+

Source: schedulingCycle of pkg/scheduler/schedule_one.go, v1.36.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Mapping

import msgspec

from kubeloop.kube.objects.api_types import Pod
from kubeloop.scheduler.algorithm import Algorithm
from kubeloop.scheduler.api.status import Code, Status
from kubeloop.scheduler.attempt import Attempt
from kubeloop.scheduler.cache.cache import Cache, CacheError
from kubeloop.scheduler.cache.node_info import PodInfo
from kubeloop.scheduler.context import SchedulerContext
from kubeloop.scheduler.failed_attempts import FailedAttempts, report_failure
from kubeloop.scheduler.framework.fit_error import Diagnosis, FitError, NodeToStatus, NoNodesAvailable
from kubeloop.scheduler.framework.plugin_calls import SchedulingError
from kubeloop.scheduler.framework.runtime import Framework
from kubeloop.scheduler.framework.timing import MEASURED_CYCLES
from kubeloop.scheduler.queue.scheduling_queue import SchedulingQueue
from kubeloop.tracing.spans.pod_record import Phase

log = logging.getLogger(__name__)

_SNAPSHOT_SLICE = 1000  # nodes copied without yielding: some 10 ms
_SLOW_CYCLE_NS = 100_000_000  # duration of a scheduling cycle from which it is logged


class SchedulingCycle:
    """Runs one scheduling cycle after the other. frameworks: by scheduler name.

    awaits_call: True while the response of an extender is awaited; the snapshot must not change then.
    """

    def __init__(
        self,
        context: SchedulerContext,
        frameworks: Mapping[str, Framework],
        queue: SchedulingQueue,
        cache: Cache,
        algorithm: Algorithm,
        failed_attempts: FailedAttempts,
    ) -> None:
        self._context = context
        self._traces = context.traces
        self._metrics = context.metrics
        self._now_ns = context.clock.time_ns  # within a turn of the event loop, whose time may stand still
        self._frameworks = frameworks
        self._queue = queue
        self._cache = cache
        self._algorithm = algorithm
        self._snapshot = algorithm.snapshot
        self._failed_attempts = failed_attempts
        self.awaits_call = False

    async def run(self) -> Attempt | None:
        """Wait for the next pod, and choose and reserve its node. Raises nothing but cancellation.

        Returns the attempt, to be bound; None if there was no pod or its attempt ended.
        """
        cache, queue = self._cache, self._queue
        while len(cache.update_snapshot(self._snapshot, at_most=_SNAPSHOT_SLICE)) >= _SNAPSHOT_SLICE:
            await asyncio.sleep(0)
        queued = queue.pop()
        if queued is None:
            await queue.wait()
            return None
        pod = queued.pod
        framework = self._frameworks.get(pod.spec.scheduler_name)
        # An assumed pod was updated during the cycle that placed it.
        if framework is None or self._skip_deleted(pod) or cache.is_assumed(pod):
            queue.done(queued.uid)
            return None
        # True: the plugin calls of this cycle are measured
        measured = self._metrics is not None and queue.scheduling_cycle % MEASURED_CYCLES == 0
        attempt = Attempt(framework, queued, self._now_ns(), measured=measured)
        self._traces.attempt_started(pod, queued.attempts)
        try:
            node = await self._choose_node(attempt)
            assumed = _with_node(attempt, node)
            cache.assume_pod(assumed)
        except FitError as error:
            await self._post_filter_and_fail(attempt, error)
        except NoNodesAvailable as error:
            self._failed_attempts.requeue(attempt, str(error), Diagnosis(NodeToStatus(self._snapshot)))
        except (SchedulingError, CacheError) as error:
            log.warning("scheduling failed", extra={"pod": pod.key, "error": str(error)})
            self._failed_attempts.requeue(attempt, str(error))
        except Exception as error:  # a mistake of ours or of a plugin's array: it costs this attempt, not the scheduler
            log.exception("scheduling failed", extra={"pod": pod.key})
            self._failed_attempts.requeue(attempt, f"{type(error).__name__}: {error}")
        else:
            queue.nominator.remove(queued.uid)
            attempt.pod, attempt.node = assumed, node
            status = self._reserve(attempt)
            if status is None:
                # From here on no event can make the pod schedulable: a failure is retried after a backoff.
                queue.done(queued.uid)
            elif status.code is not Code.WAIT:
                self._failed_attempts.not_reserved(attempt, status)
                return None
            attempt.facts.result = "scheduled"
            self._traces.attempt_finished(pod, attempt.facts, attempt.reserve)
            return attempt
        return None

    def _skip_deleted(self, pod: Pod) -> bool:
        """Return True for a pod that is being deleted, and report that it is not scheduled."""
        if pod.metadata.deletion_timestamp is None:
            return False
        report_failure(self._context, pod, f"skip schedule deleting pod: {pod.key}")
        return True

    async def _choose_node(self, attempt: Attempt) -> str:
        """Return the node for the pod. Raises like Algorithm.schedule."""
        start_ns = self._now_ns()
        self._cache.update_snapshot(self._snapshot)
        self.awaits_call = True
        try:
            return await self._algorithm.schedule(attempt)
        finally:
            self.awaits_call = False
            end_ns = self._now_ns()
            if end_ns - start_ns >= _SLOW_CYCLE_NS:
                _log_slow_cycle(attempt, start_ns, end_ns)
            if self._metrics is not None:
                self._metrics.algorithm((end_ns - start_ns) / 1e9)

    def _reserve(self, attempt: Attempt) -> Status | None:
        """Run the Reserve and Permit plugins. None: the pod can be bound. Code.WAIT: it waits on permit first."""
        points = attempt.framework.reserve
        reserve_ns = self._now_ns()
        status = points.run_reserve(attempt.state, attempt.pod, attempt.node)
        error = None if status is None else status.message
        attempt.reserve = Phase(reserve_ns, "reserve", attempt.node, self._now_ns(), error)
        return status if status is not None else points.run_permit(attempt.state, attempt.pod, attempt.node)

    async def _post_filter_and_fail(self, attempt: Attempt, error: FitError) -> None:
        """Run the PostFilter plugins (preemption), then requeue the pod with the reasons why it does not fit."""
        nominated: str | None = ""
        filters, facts, diagnosis = attempt.framework.filters, attempt.facts, error.diagnosis
        if filters.post_filter:
            post_filter_ns = self._now_ns()
            self.awaits_call = True
            try:
                result, status = await filters.run_post_filter(
                    attempt.state, attempt.pod, self._snapshot, diagnosis.node_to_status
                )
            finally:
                self.awaits_call = False
            facts.post_filter_ns = (post_filter_ns, self._now_ns())
            facts.victims = result.victims if result is not None else 0
            if self._metrics is not None and "DefaultPreemption" in attempt.framework.plugins:
                self._metrics.preemption(victims=facts.victims)
            diagnosis.post_filter_message = status.message
            nominated = None if result is None else result.nominated_node_name
        self._failed_attempts.requeue(attempt, str(error), diagnosis, nominated)


def _with_node(attempt: Attempt, node: str) -> PodInfo:
    """Return the PodInfo of the pod as it will be once it is bound."""
    pod, status, claims = attempt.pod.pod, attempt.pod.pod.status, attempt.state.node_allocatable_claims
    if claims or status.node_allocatable_resource_claim_statuses:
        statuses = claims.get(node, ())
        status = msgspec.structs.replace(status, node_allocatable_resource_claim_statuses=statuses)
    spec = msgspec.structs.replace(pod.spec, node_name=node)
    return attempt.pod.with_pod(msgspec.structs.replace(pod, spec=spec, status=status))


def _log_slow_cycle(attempt: Attempt, start_ns: int, end_ns: int) -> None:
    """Log the duration of a scheduling cycle and of its completed steps. Source: schedulePod, which traces them."""
    facts = attempt.facts
    steps: dict[str, float] = {}
    previous_ns = start_ns
    snapshot_ns = facts.pre_filter_ns and (start_ns, facts.pre_filter_ns[0])
    for step, interval in (
        ("Snapshotting scheduler cache and node infos done", snapshot_ns),
        ("Computing predicates done", facts.filter_ns or facts.pre_filter_ns),
        ("Prioritizing done", facts.score_ns),
    ):
        if interval is not None:
            steps[step] = (interval[1] - previous_ns) / 1e6
            previous_ns = interval[1]
    pod, total_ms = attempt.queued.pod, (end_ns - start_ns) / 1e6
    log.warning(
        "slow scheduling cycle of %s: %.0f ms (%s)",
        pod.key,
        total_ms,
        ", ".join(f"{step}: {milliseconds:.0f} ms" for step, milliseconds in steps.items()),
        extra={"pod": pod.key, "milliseconds": total_ms, "steps": steps},
    )
