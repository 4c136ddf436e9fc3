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
from collections import deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, Final

import msgspec

from kubeloop.kube.objects.api_types import Pod
from kubeloop.scheduler.api import events
from kubeloop.scheduler.api.events import ClusterEvent
from kubeloop.scheduler.api.extension_points import PreEnqueuePlugin
from kubeloop.scheduler.api.queued_pod import QueuedPodInfo
from kubeloop.scheduler.api.status import Code
from kubeloop.scheduler.cache.node_info import PodInfo
from kubeloop.scheduler.cache.pod_requests import DEFAULT_REQUEST_RULES, RequestRules
from kubeloop.scheduler.metrics_interface import NO_METRICS, SchedulerMetrics
from kubeloop.scheduler.queue.backoff_queue import BackoffQueue
from kubeloop.scheduler.queue.in_flight_events import InFlightEvents
from kubeloop.scheduler.queue.nominator import Nominator
from kubeloop.scheduler.queue.pod_heap import PodHeap
from kubeloop.scheduler.queue.queueing_hints import HintMemo, QueueingHintMap, QueueingHints, QueueingStrategy
from kubeloop.scheduler.queue.unschedulable_pods import UnschedulablePods

log = logging.getLogger(__name__)

ACTIVE: Final = "active"
BACKOFF: Final = "backoff"
UNSCHEDULABLE: Final = "unschedulable"
GATED: Final = "gated"

_SLICE_PODS = 10_000  # pods per slice; between slices the loop's other tasks run ...
_MOVED_POD_COST = 9  # ... and a pod that is moved counts for this many more: some 10 us
_MAX_PENDING_MOVES = 16  # events whose moves may be pending


class _PendingMove(msgspec.Struct):
    """An event and the candidates to move. Timestamps detect a pod that was tried in the meantime."""

    candidates: list[tuple[QueuedPodInfo, int]]
    event: ClusterEvent
    old: Any
    new: Any
    memo: HintMemo | None
    done: int = 0


class QueueSettings(msgspec.Struct, frozen=True):
    """initial_backoff_seconds, max_backoff_seconds: see BackoffQueue. max_in_unschedulable_seconds: a pod is retried
    after this time although no event made it schedulable. pops_from_backoff: the feature gate SchedulerPopFromBackoffQ,
    by which a pod is popped before its backoff has expired if no pod is active; PreEnqueue then runs before the
    backoff instead of after it. pod_groups: the feature gate GenericWorkload, by which a member of a pod group is
    retried after a backoff whatever events there were, as hints concern the pod and not its group."""

    initial_backoff_seconds: float = 1.0
    max_backoff_seconds: float = 10.0
    max_in_unschedulable_seconds: float = 300.0
    pops_from_backoff: bool = True
    pod_groups: bool = False
    request_rules: RequestRules = DEFAULT_REQUEST_RULES


def _ignore(*_: object) -> None: ...


class QueueObserver(msgspec.Struct, frozen=True):
    """Receives what happens in the queue.

    duration_ns: the clock for durations of queueing hints, as the queue's own
    may stand still within one turn of the event loop. queued(pod, queue, event): the pod enters "active", "backoff",
    "unschedulable" or "gated". plugin_failed(pod, message): a PreEnqueue plugin raised.
    """

    metrics: SchedulerMetrics = NO_METRICS
    duration_ns: Callable[[], int] = int
    queued: Callable[[Pod, str, str], None] = _ignore
    plugin_failed: Callable[[Pod, str], None] = _ignore


class SchedulingQueue:
    """Pending pods of all profiles.

    hint_maps, pre_enqueue: by scheduler name. nominator: the nominated pods, which the queue keeps up to date.
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
        self._pre_enqueue = pre_enqueue
        self._now_ns = now_ns
        self._metrics = observer.metrics
        self._on_queued = observer.queued
        self._on_plugin_failure = observer.plugin_failed
        self._max_in_unschedulable_ns = round(settings.max_in_unschedulable_seconds * 1e9)
        self._active = PodHeap(sort_key)
        self._backoff = BackoffQueue(
            sort_key,
            now_ns,
            initial_backoff_seconds=settings.initial_backoff_seconds,
            max_backoff_seconds=settings.max_backoff_seconds,
            pops_early=settings.pops_from_backoff,
            pod_groups=settings.pod_groups,
        )
        self._request_rules = settings.request_rules
        self._pops_from_backoff = settings.pops_from_backoff
        self._pod_groups = settings.pod_groups
        self._unschedulable = UnschedulablePods()
        self._in_flight = InFlightEvents()
        self.nominator = nominator
        self.scheduling_cycle = 0  # pods popped so far
        self._work = asyncio.Event()
        self._run_in_slices = False  # run() is active and processes the remaining slices
        self._moves: deque[_PendingMove] = deque()
        self._moves_pending = asyncio.Event()

    # --- Called by the scheduling loop --------------------------------------------------------------------------------

    @property
    def has_work(self) -> bool:
        """True if there may be a pod to pop."""
        return self._work.is_set()

    async def wait(self) -> None:
        """Wait until there may be a pod to pop."""
        await self._work.wait()

    def pop(self) -> QueuedPodInfo | None:
        """Return the next pod, or None. It is in flight until done() or add_unschedulable_if_not_present()."""
        if self._moves:  # the pods that are still to be moved may include the most important one
            self._work.clear()
            return None
        while True:
            queued = self._active.pop()
            if queued is None:
                queued = self._backoff.pop() if self._pops_from_backoff else None
                if queued is None:
                    self._work.clear()
                    return None
                self._metrics.queue_incoming(ACTIVE, events.POP_FROM_BACKOFF)
                self._on_queued(queued.pod, ACTIVE, events.POP_FROM_BACKOFF)
            if self._start_attempt(queued):
                return queued

    def pop_specific(self, pod: Pod) -> QueuedPodInfo | None:
        """Activate and pop this pod; None if it is gated or not queued."""
        self.activate((pod,))
        queued = self._active.discard(pod.key)
        return queued if queued is not None and self._start_attempt(queued) else None

    def _start_attempt(self, queued: QueuedPodInfo) -> bool:
        """Mark a popped pod as in flight; False: it is dropped, as it is in flight already."""
        queued.attempts += 1
        if queued.uid in self._in_flight:
            log.error("dropped a pod that is being scheduled already", extra={"pod": queued.key})
            return False
        self._in_flight.start(queued.uid, queued.key)
        self.scheduling_cycle += 1
        return True

    def done(self, uid: str) -> None:
        """Remove the pod from the pods in flight: it is not requeued."""
        self._in_flight.done(uid)

    def add_unschedulable_if_not_present(self, queued: QueuedPodInfo) -> None:
        """Requeue a popped pod whose attempt failed; without `rejectors` the attempt ended in an error."""
        try:
            if self._queue_of(queued.key):
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
            self._requeue(queued, self._strategy_after_attempt(queued), events.SCHEDULE_ATTEMPT_FAILURE)
        finally:
            self.done(queued.uid)

    def _strategy_after_attempt(self, queued: QueuedPodInfo) -> QueueingStrategy:
        if not queued.unschedulable_plugins and not queued.pending_plugins:
            return QueueingStrategy.AFTER_BACKOFF
        if self._is_group_member(queued.pod):
            return QueueingStrategy.AFTER_BACKOFF
        if queued.uid not in self._in_flight:
            log.error("a failed pod was not in flight", extra={"pod": queued.key})
            return QueueingStrategy.AFTER_BACKOFF
        strategy = QueueingStrategy.SKIP
        for missed in self._in_flight.events_since(queued.uid):
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
        self._to_active(self._new(pod), events.PENDING_POD_ADD.label)

    def _new(self, pod: Pod) -> QueuedPodInfo:
        return QueuedPodInfo(PodInfo(pod, self._request_rules), self._now_ns())

    def update(self, old: Pod, new: Pod) -> None:
        """Update a pending pod."""
        pod_events = events.pod_update_events(old, new, self._request_rules)
        if new.metadata.uid in self._in_flight:
            for event in pod_events:  # when its attempt ends, the newest version is requeued after these events
                self._in_flight.add_event(event, old, new)
            return
        key = new.key
        for heap in (self._active, self._backoff.rejected, self._backoff.failed):
            queued = heap.get(key)
            if queued is not None:
                queued.update(new)
                heap.put(queued)
                self.nominator.update(old, queued.info)
                return
        queued = self._unschedulable.get(key)
        if queued is not None:
            queued.update(new)
            self.nominator.update(old, queued.info)
            for event in pod_events:
                strategy = self._hints.strategy(queued, event, old, new, None)
                if self._requeue(queued, strategy, event.label) != UNSCHEDULABLE:
                    break
            return
        self._to_active(self._new(new), events.PENDING_POD_UPDATE.label)

    def delete(self, pod: Pod) -> None:
        """Remove a pod that was deleted or bound. A pod in flight stays in flight."""
        self.nominator.remove(pod.metadata.uid)
        key = pod.key
        if self._active.discard(key) is None and self._backoff.discard(key) is None:
            self._unschedulable.discard(key)

    def activate(self, pods: Iterable[Pod]) -> None:
        """Move pods to the active queue from wherever they are; gated pods stay gated."""
        for pod in pods:
            if pod.metadata.uid in self._in_flight:
                if not self._is_group_member(pod):
                    self._in_flight.add_event(events.FORCE_ACTIVATE, None, pod)
                continue
            queued = self._unschedulable.get(pod.key)
            from_backoff = queued is None
            if queued is None:
                queued = self._backoff.discard(pod.key)
            if queued is not None:
                self._to_active(queued, events.FORCE_ACTIVATE.label, from_backoff=from_backoff)

    def move_all_to_active_or_backoff(
        self, event: ClusterEvent, old: Any, new: Any, only: Callable[[QueuedPodInfo], bool] | None = None
    ) -> None:
        """Move the unschedulable pods (only those for which `only` is true) that an event may make schedulable."""
        plugins = self._hints.plugins_registered_for(event)
        if plugins is not None and not plugins:
            return
        candidates = list(self._unschedulable) if plugins is None else self._unschedulable.rejected_by(plugins)
        if only is not None:
            candidates = [queued for queued in candidates if only(queued)]
        self._move(candidates, event, old, new)

    def _move(self, candidates: Iterable[QueuedPodInfo], event: ClusterEvent, old: Any, new: Any) -> None:
        memo: HintMemo | None = None if event.resource == events.PENDING_POD_RESOURCE else {}
        move = _PendingMove([(queued, queued.timestamp_ns) for queued in candidates], event, old, new, memo)
        if not self._run_slice(move, sliced=self._run_in_slices and len(self._moves) < _MAX_PENDING_MOVES):
            self._moves.append(move)
            self._moves_pending.set()
        self._in_flight.add_event(event, old, new)

    def _run_slice(self, move: _PendingMove, *, sliced: bool) -> bool:
        """Continue a move until it is done (True), or, if sliced, until the slice is used up (False)."""
        event, unschedulable = move.event, self._unschedulable
        left = _SLICE_PODS if sliced else math.inf
        while move.done < len(move.candidates):
            if left <= 0:
                return False
            left -= 1
            queued, timestamp_ns = move.candidates[move.done]
            move.done += 1
            if queued.timestamp_ns != timestamp_ns or unschedulable.get(queued.key) is not queued:
                continue  # moved, or tried again after the event, between two slices
            if queued.gated and not any(events.matches(registered, event) for registered in queued.gating_events):
                continue
            strategy = self._hints.strategy(queued, event, move.old, move.new, move.memo)
            if strategy is not QueueingStrategy.SKIP:
                left -= _MOVED_POD_COST
                unschedulable.discard(queued.key)
                self._requeue(queued, strategy, event.label)
        return True

    # --- Periodic -----------------------------------------------------------------------------------------------------

    def flush_backoff_completed(self) -> None:
        """Move the pods whose backoff has expired to the active queue. Called once a second."""
        for queued in self._backoff.pop_completed():
            self._to_active(queued, events.BACKOFF_COMPLETE, from_backoff=True)

    def flush_unschedulable_leftover(self) -> None:
        """Retry pods that were unschedulable for 5 minutes, in case an event was missed. Called every 30 seconds."""
        now = self._now_ns()
        old = [q for q in self._unschedulable if now - q.timestamp_ns > self._max_in_unschedulable_ns]
        if old:
            for queued in old:
                queued.was_flushed_from_unschedulable = True
            self._move(old, events.UNSCHEDULABLE_TIMEOUT, None, None)

    async def run(self) -> None:
        """Flush the queues and process pending moves until cancelled."""
        try:
            self._run_in_slices = True
            async with asyncio.TaskGroup() as tasks:
                tasks.create_task(self._flush_forever(), name="scheduler/queue-flush")
                tasks.create_task(self._move_forever(), name="scheduler/queue-moves")
        finally:
            self._run_in_slices = False
            while self._moves:
                self._run_slice(self._moves.popleft(), sliced=False)

    async def _move_forever(self) -> None:
        """Process pending moves, slice by slice; no pod is popped until all are done."""
        while True:
            await self._moves_pending.wait()
            await asyncio.sleep(0)
            if self._run_slice(self._moves[0], sliced=True):
                self._moves.popleft()
                if not self._moves:
                    self._moves_pending.clear()
                    self._work.set()

    async def _flush_forever(self) -> None:
        since_leftover = 0
        while True:
            await asyncio.sleep(1.0)
            self.flush_backoff_completed()
            since_leftover += 1
            if since_leftover == 30:
                since_leftover = 0
                self.flush_unschedulable_leftover()
            self.report()

    # --- Moving ----------------------------------------------------------------------------------------------------

    def _requeue(self, queued: QueuedPodInfo, strategy: QueueingStrategy, event: str) -> str:
        if strategy is QueueingStrategy.SKIP:
            self._to_unschedulable(queued, event)
            return UNSCHEDULABLE
        if strategy is QueueingStrategy.AFTER_BACKOFF and self._backoff.is_backing_off(queued):
            return BACKOFF if self._to_backoff(queued, event) else UNSCHEDULABLE
        return ACTIVE if self._to_active(queued, event) else UNSCHEDULABLE

    def _to_active(self, queued: QueuedPodInfo, event: str, *, from_backoff: bool = False) -> bool:
        """Move the pod to the active queue; False: it is gated, and was moved to the unschedulable pods."""
        key = queued.key
        if not (from_backoff and self._pops_from_backoff):  # else PreEnqueue ran before the backoff
            self._run_pre_enqueue(queued)
        if queued.gated:
            if key not in self._active and key not in self._backoff:
                self._to_unschedulable(queued, event)
            return False
        if queued.initial_attempt_ns == 0:
            queued.initial_attempt_ns = self._now_ns()
        self._unschedulable.discard(key)
        self._backoff.discard(key)
        self._active.put(queued)
        self._metrics.queue_incoming(ACTIVE, event)
        self._on_queued(queued.pod, ACTIVE, event)
        if event in (events.PENDING_POD_ADD.label, events.PENDING_POD_UPDATE.label):
            self.nominator.add(queued.info, None)
        self._work.set()
        return True

    def _to_backoff(self, queued: QueuedPodInfo, event: str) -> bool:
        if self._pops_from_backoff:
            self._run_pre_enqueue(queued)
            if queued.gated:
                self._to_unschedulable(queued, event)
                return False
        self._unschedulable.discard(queued.key)
        self._backoff.put(queued)
        self._metrics.queue_incoming(BACKOFF, event)
        self._on_queued(queued.pod, BACKOFF, event)
        self._work.set()
        return True

    def _to_unschedulable(self, queued: QueuedPodInfo, event: str) -> None:
        present = queued.key in self._unschedulable
        self._unschedulable.put(queued)
        if not present:
            self._metrics.queue_incoming(UNSCHEDULABLE, event)
            self._on_queued(queued.pod, GATED if queued.gated else UNSCHEDULABLE, event)

    def _run_pre_enqueue(self, queued: QueuedPodInfo) -> None:
        """Set or clear the gating plugin. The plugin that gated the pod last is called first."""
        plugins = self._pre_enqueue.get(queued.pod.spec.scheduler_name, ())
        gated_by = queued.gating_plugin
        if gated_by:
            plugins = sorted(plugins, key=lambda plugin: plugin.name != gated_by)
        for plugin in plugins:
            try:
                status = plugin.pre_enqueue(queued.pod)
                if status is None or status.code is Code.SUCCESS:
                    continue
            except Exception as error:  # the pod stays gated; the next event or flush runs the plugin again
                log.exception("PreEnqueue failed", extra={"plugin": plugin.name, "pod": queued.key})
                self._on_plugin_failure(queued.pod, f'running PreEnqueue plugin "{plugin.name}": {error}')
            queued.unschedulable_plugins.add(plugin.name)
            queued.gating_plugin = plugin.name
            hint_map = self._hint_maps.get(queued.pod.spec.scheduler_name)
            queued.gating_events = hint_map.events_of(plugin.name) if hint_map is not None else ()
            return
        queued.gating_plugin = ""
        queued.gating_events = ()

    def _queue_of(self, key: str) -> str:
        if key in self._active:
            return ACTIVE
        if key in self._backoff:
            return BACKOFF
        return UNSCHEDULABLE if key in self._unschedulable else ""

    # --- Reading ------------------------------------------------------------------------------------------------------

    def get(self, key: str) -> tuple[str, QueuedPodInfo] | None:
        """Return (queue, pod) of a queued pod by "namespace/name"; the queue is "gated" for a gated pod."""
        for name, queue in ((ACTIVE, self._active), (BACKOFF, self._backoff), (UNSCHEDULABLE, self._unschedulable)):
            queued = queue.get(key)
            if queued is not None:
                return (GATED if queued.gated else name), queued
        return None

    def remaining_backoff_seconds(self, queued: QueuedPodInfo) -> float:
        """Return the seconds until the pod's backoff expires; 0.0 if it is not backing off."""
        if queued.key not in self._backoff:
            return 0.0
        return max(0.0, (self._backoff.expiration_ns(queued) - self._now_ns()) / 1e9)

    def has_profile(self, scheduler_name: str) -> bool:
        """Return True if pods of this scheduler name are queued here."""
        return scheduler_name in self._hint_maps

    def active_pods(self) -> list[QueuedPodInfo]:
        """Return the active pods in the order they will be popped; likewise for the backoff queues."""
        return self._active.sorted()

    def backoff_pods(self) -> list[QueuedPodInfo]:
        return self._backoff.rejected.sorted()

    def error_backoff_pods(self) -> list[QueuedPodInfo]:
        return self._backoff.failed.sorted()

    def unschedulable_pods(self) -> list[QueuedPodInfo]:
        """Return the unschedulable pods, including gated ones."""
        return list(self._unschedulable)

    def in_flight_keys(self) -> list[str]:
        return self._in_flight.keys()

    def in_flight_log(self) -> list[tuple[str, str]]:
        return list(self._in_flight.log())

    def is_in_flight(self, uid: str) -> bool:
        return uid in self._in_flight

    def report(self) -> None:
        """Report the number of pods in each queue to the metrics."""
        gated = sum(queued.gated for queued in self._unschedulable)
        self._metrics.pending_pods(
            active=len(self._active),
            backoff=len(self._backoff),
            unschedulable=len(self._unschedulable) - gated,
            gated=gated,
        )

    def check(self) -> None:
        """Assert that no pod is in two queues, and that the indexes are consistent."""
        active, backoff = {q.key for q in self._active}, {q.key for q in self._backoff}
        unschedulable = {q.key for q in self._unschedulable}
        assert not active & backoff
        assert not (active | backoff) & unschedulable
        for part in (self._active, self._backoff.rejected, self._backoff.failed, self._unschedulable, self.nominator):
            part.check()
