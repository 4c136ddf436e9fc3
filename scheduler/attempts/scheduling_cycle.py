"""The scheduling cycle: pops a pod, chooses its node, and reserves the node for it. One pod at a time.

    snapshot -> pop -> filter and score -> assume -> reserve -> permit -> binding cycle
                 |        |                            |
                 |        v no node: post-filter       v rejected
                 |        +-----> FailedAttempts <-----+
                 v member of a pod group: the whole group is scheduled
                 PodGroupCycle

Source: schedulingCycle of pkg/scheduler/schedule_one.go, v1.36.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Mapping

from kubeloop.scheduler.api.queued_pod import QueuedPodInfo
from kubeloop.scheduler.attempts.attempt import Attempt
from kubeloop.scheduler.attempts.attempt_steps import AttemptSteps
from kubeloop.scheduler.attempts.failed_attempts import FailedAttempts, skip_deleted
from kubeloop.scheduler.cache.cache import CacheError, SchedulerCache
from kubeloop.scheduler.cache.snapshot import Snapshot
from kubeloop.scheduler.context import SchedulerContext
from kubeloop.scheduler.framework.fit_error import Diagnosis, FitError, NodeToStatus, NoNodesAvailable
from kubeloop.scheduler.framework.plugin_calls import SchedulingError
from kubeloop.scheduler.framework.runtime import Framework
from kubeloop.scheduler.framework.timing import MEASURED_CYCLES
from kubeloop.scheduler.queue.scheduling_queue import SchedulingQueue

log = logging.getLogger(__name__)

_SNAPSHOT_SLICE = 1000  # nodes copied without yielding: some 10 ms


class SchedulingCycle:
    """Runs one scheduling cycle after the other. frameworks: by scheduler name."""

    def __init__(
        self,
        context: SchedulerContext,
        frameworks: Mapping[str, Framework],
        queue: SchedulingQueue,
        cache: SchedulerCache,
        snapshot: Snapshot,
        steps: AttemptSteps,
        failed_attempts: FailedAttempts,
        schedule_group: Callable[[QueuedPodInfo], Awaitable[None]] | None = None,
    ) -> None:
        """schedule_group: schedules the group of a popped pod; None: its pods are scheduled like others."""
        self._context = context
        self._traces = context.traces
        self._now_ns = context.clock.time_ns  # within a turn of the event loop, whose time may stand still
        self._frameworks = frameworks
        self._queue = queue
        self._cache = cache
        self._steps = steps
        self._snapshot = snapshot
        self._failed_attempts = failed_attempts
        self._schedule_group = schedule_group

    async def run(self) -> Attempt | None:
        """Pop the next pod, and choose and reserve its node. Raises nothing but cancellation.

        Returns the attempt, to be bound; None if there was no pod, its attempt ended, or it is a member of a pod group.
        """
        cache, queue = self._cache, self._queue
        while len(cache.update_snapshot(self._snapshot, at_most=_SNAPSHOT_SLICE)) >= _SNAPSHOT_SLICE:
            await asyncio.sleep(0)
        queued = queue.pop()
        if queued is None:
            return None
        pod = queued.pod
        if self._schedule_group is not None and pod.spec.scheduling_group is not None:
            await self._schedule_group(queued)
            return None
        framework = self._frameworks.get(pod.spec.scheduler_name)
        # An assumed pod was updated during the cycle that placed it.
        if framework is None or skip_deleted(self._context, pod) or cache.is_assumed(pod):
            queue.done(queued.uid)
            return None
        # True: the plugin calls of this cycle are measured
        measured = queue.scheduling_cycle % MEASURED_CYCLES == 0
        attempt = Attempt(framework, queued, self._now_ns(), measured=measured)
        self._traces.attempt_started(pod, queued.attempts)
        try:
            cache.update_snapshot(self._snapshot)
            node = await self._steps.choose_node(attempt)
        except FitError as error:
            nomination = await self._steps.post_filter(attempt, error)
            self._failed_attempts.requeue(attempt, str(error), error.diagnosis, nomination)
        except NoNodesAvailable as error:
            self._failed_attempts.requeue(attempt, str(error), Diagnosis(NodeToStatus(self._snapshot)))
        except (SchedulingError, CacheError) as error:
            log.warning("scheduling failed", extra={"pod": pod.key, "error": str(error)})
            self._failed_attempts.requeue(attempt, str(error))
        except Exception as error:  # a mistake of ours or of a plugin's array: it costs this attempt, not the scheduler
            log.exception("scheduling failed", extra={"pod": pod.key})
            self._failed_attempts.requeue(attempt, f"{type(error).__name__}: {error}")
        else:
            return attempt if self._steps.assume_and_reserve(attempt, node) else None
        return None
