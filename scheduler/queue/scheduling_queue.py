"""The scheduling queue: active, backoff and unschedulable pods, and the pods in flight.

    add --> active --pop--> in flight --done--> removed (bound, or deleted)
              ^   \\             |
              |    <--pop when   | add_unschedulable_if_not_present
              |      active      v
              +--- backoff <--- rejected: unschedulable, until an event that may help, or 5 minutes
              |                 error: backoff
            gated pods are among the unschedulable ones

Calls PreEnqueue plugins; QueueingHints calls their queueing hints. Independent of nodes. Time is a parameter: a
monotonic clock in nanoseconds. Source: pkg/scheduler/backend/queue of v1.36.
"""

from __future__ import annotations

import asyncio
import logging
import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from kubeloop.kube.clock import pause
from kubeloop.kube.objects.api_types import Pod
from kubeloop.scheduler.api import events
from kubeloop.scheduler.api.events import ClusterEvent
from kubeloop.scheduler.api.extension_points import PreEnqueuePlugin
from kubeloop.scheduler.api.queued_pod import QueuedPodInfo
from kubeloop.scheduler.cache.node_info import PodInfo
from kubeloop.scheduler.queue.event_moves import EventMoves
from kubeloop.scheduler.queue.in_flight_events import InFlightEvents
from kubeloop.scheduler.queue.nominator import Nominator
from kubeloop.scheduler.queue.pod_queues import UNSCHEDULABLE, PendingPods, PodQueues
from kubeloop.scheduler.queue.pre_enqueue import PreEnqueue
from kubeloop.scheduler.queue.queue_settings import QueueObserver, QueueSettings
from kubeloop.scheduler.queue.queueing_hints import QueueingHintMap, QueueingHints, QueueingStrategy

log = logging.getLogger(__name__)


_LEFTOVER_SECONDS = 30.0  # between two looks for pods that were unschedulable for too long


class SchedulingQueue:
    """Pending pods of all profiles.

    hint_maps, pre_enqueue: by scheduler name. nominator: the nominated pods, which the queue keeps up to date.
    in_flight: popped pods until done(), and the events since.
    """

    def __init__(
        self,
        *,
        sort_key: Callable[[QueuedPodInfo], Any],
        hint_maps: Mapping[str, QueueingHintMap],
        pre_enqueue: Mapping[str, Sequence[PreEnqueuePlugin]],
        nominator: Nominator,
        now_ns: Callable[[], int],
        settings: QueueSettings = QueueSettings(),  # noqa: B008  # immutable
        observer: QueueObserver = QueueObserver(),  # noqa: B008  # immutable
    ) -> None:
        self._hint_maps = hint_maps
        self._hints = QueueingHints(hint_maps, observer.metrics, observer.duration_ns)
        self._now_ns = now_ns
        self._max_in_unschedulable_ns = round(settings.max_in_unschedulable_seconds * 1e9)
        self._request_rules = settings.request_rules
        self._pod_groups = settings.pod_groups
        gates = PreEnqueue(pre_enqueue, hint_maps, observer.plugin_failed)
        self._queues = PodQueues(sort_key, now_ns, gates, nominator, settings, observer)
        self._moves = EventMoves(self._queues, self._hints)
        self.in_flight = InFlightEvents()
        self.nominator = nominator
        self.scheduling_cycle = 0  # pods popped so far

    # --- Called by the scheduling loop --------------------------------------------------------------------------------

    @property
    def has_work(self) -> bool:
        """True if there may be a pod to pop."""
        return self._queues.may_pop.is_set()

    async def wait(self) -> None:
        """Wait until there may be a pod to pop."""
        await self._queues.may_pop.wait()

    def pop(self) -> QueuedPodInfo | None:
        """Return the next pod, or None. It is in flight until done() or add_unschedulable_if_not_present()."""
        if not self._moves.pending:  # else a pod that is still to be moved may be the most important one
            while (queued := self._queues.pop()) is not None:
                if self._start_attempt(queued):
                    return queued
        self._queues.may_pop.clear()
        return None

    def pop_specific(self, pod: Pod) -> QueuedPodInfo | None:
        """Activate and pop this pod; None if it is gated or not queued."""
        self.activate((pod,))
        queued = self._queues.active.discard(pod.key)
        return queued if queued is not None and self._start_attempt(queued) else None

    def _start_attempt(self, queued: QueuedPodInfo) -> bool:
        """Mark a popped pod as in flight; False: it is dropped, as it is in flight already."""
        queued.attempts += 1
        if queued.uid in self.in_flight:
            log.error("dropped a pod that is being scheduled already", extra={"pod": queued.key})
            return False
        self.in_flight.start(queued.uid, queued.key)
        self.scheduling_cycle += 1
        return True

    def done(self, uid: str) -> None:
        """Remove the pod from the pods in flight: it is not requeued."""
        self.in_flight.done(uid)

    def add_unschedulable_if_not_present(self, queued: QueuedPodInfo) -> None:
        """Requeue a popped pod whose attempt failed; without `rejectors` the attempt ended in an error."""
        try:
            if self._queues.get(queued.key) is not None:
                log.error("a failed pod is already queued", extra={"pod": queued.key})
                return
            if queued.unschedulable_plugins or queued.pending_plugins:
                queued.unschedulable_count += 1
                queued.consecutive_errors_count = 0
            else:
                queued.consecutive_errors_count += 1
            queued.timestamp_ns = self._now_ns()
            queued.backoff_expiration_ns = 0
            queued.was_flushed_from_unschedulable = False
            self._queues.requeue(queued, self._strategy_after_attempt(queued), events.SCHEDULE_ATTEMPT_FAILURE)
        finally:
            self.done(queued.uid)

    def _strategy_after_attempt(self, queued: QueuedPodInfo) -> QueueingStrategy:
        if not queued.unschedulable_plugins and not queued.pending_plugins:
            return QueueingStrategy.AFTER_BACKOFF
        if self._is_group_member(queued.pod):
            return QueueingStrategy.AFTER_BACKOFF
        if queued.uid not in self.in_flight:
            log.error("a failed pod was not in flight", extra={"pod": queued.key})
            return QueueingStrategy.AFTER_BACKOFF
        strategy = QueueingStrategy.SKIP
        for missed in self.in_flight.events_since(queued.uid):
            outcome = self._hints.strategy(queued, missed.event, missed.old, missed.new, None)
            if outcome is QueueingStrategy.IMMEDIATELY:
                return outcome
            if outcome is QueueingStrategy.AFTER_BACKOFF:
                strategy = outcome
                if not queued.pending_plugins:
                    return outcome
        return strategy

    def _is_group_member(self, pod: Pod) -> bool:
        return self._pod_groups and pod.spec.scheduling_group is not None

    # --- Called by event handlers -------------------------------------------------------------------------------------

    def add(self, pod: Pod) -> None:
        """Add a new pending pod."""
        self._queues.to_active(self._new(pod), events.PENDING_POD_ADD.label)

    def _new(self, pod: Pod) -> QueuedPodInfo:
        return QueuedPodInfo(PodInfo(pod, self._request_rules), self._now_ns())

    def update(self, old: Pod, new: Pod) -> None:
        """Update a pending pod."""
        pod_events = events.pod_update_events(old, new, self._request_rules)
        if new.metadata.uid in self.in_flight:
            for event in pod_events:  # when its attempt ends, the newest version is requeued after these events
                self.in_flight.add_event(event, old, new)
            return
        key, queues = new.key, self._queues
        for heap in (queues.active, queues.backoff.rejected, queues.backoff.failed):
            queued = heap.get(key)
            if queued is not None:
                queued.update(new)
                heap.put(queued)
                self.nominator.update(old, queued.info)
                return
        queued = queues.unschedulable.get(key)
        if queued is not None:
            queued.update(new)
            self.nominator.update(old, queued.info)
            for event in pod_events:
                strategy = self._hints.strategy(queued, event, old, new, None)
                if queues.requeue(queued, strategy, event.label) != UNSCHEDULABLE:
                    break
            return
        queues.to_active(self._new(new), events.PENDING_POD_UPDATE.label)

    def delete(self, pod: Pod) -> None:
        """Remove a pod that was deleted or bound. A pod in flight stays in flight."""
        self.nominator.remove(pod.metadata.uid)
        self._queues.discard(pod.key)

    def activate(self, pods: Iterable[Pod]) -> None:
        """Move pods to the active queue from wherever they are; gated pods stay gated."""
        for pod in pods:
            if pod.metadata.uid in self.in_flight:
                if not self._is_group_member(pod):
                    self.in_flight.add_event(events.FORCE_ACTIVATE, None, pod)
                continue
            queued = self._queues.unschedulable.get(pod.key)
            from_backoff = queued is None
            if queued is None:
                queued = self._queues.backoff.discard(pod.key)
            if queued is not None:
                self._queues.to_active(queued, events.FORCE_ACTIVATE.label, from_backoff=from_backoff)

    def activate_gated(self) -> None:
        """Queue the pods that PreEnqueue plugins accept now, but for those with schedulingGates of their own."""
        gated = [queued.pod for queued in self._queues.unschedulable if queued.gated]
        self.activate(pod for pod in gated if not pod.spec.scheduling_gates)

    def move_all_to_active_or_backoff(
        self, event: ClusterEvent, old: Any, new: Any, only: Callable[[QueuedPodInfo], bool] | None = None
    ) -> None:
        """Move the unschedulable pods (only those for which `only` is true) that an event may make schedulable."""
        plugins = self._hints.plugins_registered_for(event)
        if plugins is not None and not plugins:
            return
        unschedulable = self._queues.unschedulable
        candidates = (
            list(unschedulable)
            if plugins is None
            else unschedulable.rejected_by(plugins, self._hints.claim_needed(event, old, new))
        )
        if only is not None:
            candidates = [queued for queued in candidates if only(queued)]
        self._move(candidates, event, old, new)

    def _move(self, candidates: Iterable[QueuedPodInfo], event: ClusterEvent, old: Any, new: Any) -> None:
        self._moves.move(candidates, event, old, new)
        self.in_flight.add_event(event, old, new)

    # --- Periodic -----------------------------------------------------------------------------------------------------

    def flush_backoff_completed(self) -> None:
        """Move the pods whose backoff has expired to the active queue. Called once a second."""
        for queued in self._queues.backoff.pop_completed():
            self._queues.to_active(queued, events.BACKOFF_COMPLETE, from_backoff=True)

    def flush_unschedulable_leftover(self) -> None:
        """Retry pods that were unschedulable for 5 minutes, in case an event was missed. Called every 30 seconds."""
        now = self._now_ns()
        old = [q for q in self._queues.unschedulable if now - q.timestamp_ns > self._max_in_unschedulable_ns]
        if old:
            for queued in old:
                queued.was_flushed_from_unschedulable = True
            self._move(old, events.UNSCHEDULABLE_TIMEOUT, None, None)

    async def run(self) -> None:
        """Flush the queues and process pending moves until cancelled."""
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(self._flush_forever(), name="scheduler/queue-flush")
            tasks.create_task(self._moves.run(), name="scheduler/queue-moves")

    async def _flush_forever(self) -> None:
        loop = asyncio.get_running_loop()
        leftover_due = loop.time() + _LEFTOVER_SECONDS
        while True:
            await pause(1.0, due=self._next_flush(leftover_due), has_work=self._queues.may_move_by_time)
            self.flush_backoff_completed()
            if (late := loop.time() - leftover_due) >= 0:
                leftover_due += (late // _LEFTOVER_SECONDS + 1) * _LEFTOVER_SECONDS
                self.flush_unschedulable_leftover()

    def _next_flush(self, leftover_due: float) -> float | None:
        """Return the loop time from which a flush moves a pod, None if time alone moves none."""
        seconds, now = asyncio.get_running_loop().time(), self._now_ns()
        completion, oldest = self._queues.backoff.next_completion_ns(), self._queues.oldest_unschedulable_ns()
        dues = [] if completion is None else [seconds + (completion - now) / 1e9]
        if oldest is not None:
            too_long = seconds + (oldest + self._max_in_unschedulable_ns - now) / 1e9
            looks = max(0, math.ceil((too_long - leftover_due) / _LEFTOVER_SECONDS))
            dues.append(leftover_due + looks * _LEFTOVER_SECONDS)
        return min(dues, default=None)

    # --- Reading ------------------------------------------------------------------------------------------------------

    def get(self, key: str) -> tuple[str, QueuedPodInfo] | None:
        """Return (queue, pod) of a queued pod by "namespace/name"; the queue is "gated" for a gated pod."""
        return self._queues.get(key)

    def pending_pods(self) -> PendingPods:
        """Return all queued pods."""
        return self._queues.pending()

    def remaining_backoff_seconds(self, queued: QueuedPodInfo) -> float:
        """Return the seconds until the pod's backoff expires; 0.0 if it is not backing off."""
        backoff = self._queues.backoff
        if queued.key not in backoff:
            return 0.0
        return max(0.0, (backoff.expiration_ns(queued) - self._now_ns()) / 1e9)

    def has_profile(self, scheduler_name: str) -> bool:
        """Return True if pods of this scheduler name are queued here."""
        return scheduler_name in self._hint_maps

    def check(self) -> None:
        """Assert that no pod is in two queues, and that the indexes are consistent."""
        self._queues.check()
        self.nominator.check()
