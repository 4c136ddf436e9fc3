"""Event handlers of the informers: update the cache and the scheduling queue.

Source: pkg/scheduler/eventhandlers.go of v1.36.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Container, Mapping
from typing import Any

from kubeloop.kube.objects.api_types import Node, Pod
from kubeloop.scheduler.api import events
from kubeloop.scheduler.api.events import ActionType, ClusterEvent
from kubeloop.scheduler.cache.cache import CacheError, SchedulerCache
from kubeloop.scheduler.metrics import NO_METRICS, SchedulerMetrics
from kubeloop.scheduler.plugins.pod_groups.gang_scheduling import GangScheduling
from kubeloop.scheduler.queue.scheduling_queue import SchedulingQueue

log = logging.getLogger(__name__)


class EventDurations:
    """Durations of event handlers, for the metrics."""

    def __init__(self, metrics: SchedulerMetrics, now_ns: Callable[[], int]) -> None:
        self._metrics = metrics
        self._now_ns = now_ns

    def start(self) -> int:
        return self._now_ns()

    def handled(self, event: ClusterEvent, start_ns: int) -> None:
        self._metrics.event_handled(event.label, (self._now_ns() - start_ns) / 1e9)


NOT_MEASURED = EventDurations(NO_METRICS, int)


class PodEvents:
    """Handler of the pod informer. Pods that have Succeeded or Failed are handled like deleted ones."""

    def __init__(
        self,
        cache: SchedulerCache,
        queue: SchedulingQueue,
        *,
        scheduler_names: Container[str],
        reject_waiting_pod: Callable[[str], bool],
        durations: EventDurations = NOT_MEASURED,
        sync_calls: Callable[[Pod], None] | None = None,
        completes_gang: Callable[[Pod], bool] | None = None,
    ) -> None:
        """reject_waiting_pod(uid): rejects a pod that waits on permit; returns False if it does not wait.

        sync_calls: called with the new state of each pod, for the pending API calls about it. completes_gang(pod): True
        if a new pod is the one that its gang waited for; None without the feature gate GangScheduling, by which pending
        pods that are added may make others schedulable.
        """
        self._sync_calls = sync_calls
        self._cache = cache
        self._pod_groups = cache.pod_groups
        self._completes_gang = completes_gang
        self._queue = queue
        self._scheduler_names = scheduler_names
        self._reject_waiting_pod = reject_waiting_pod
        self._durations = durations

    def on_add(self, obj: Pod, initial: bool) -> None:
        if is_terminated(obj):
            return
        if obj.spec.node_name:
            self._add_assigned(obj, initial=initial)
        elif obj.spec.scheduler_name in self._scheduler_names:
            start_ns = self._durations.start()
            if self._pod_groups is not None:
                self._pod_groups.put(obj)  # before PreEnqueue, which counts the pods of the group
            self._queue.add(obj)
            if self._completes_gang is not None and not initial:
                # The pods that wait for others of their gang are many, and nothing else makes them schedulable.
                only = None if self._completes_gang(obj) else lambda queued: queued.gating_plugin != GangScheduling.name
                self._queue.move_all_to_active_or_backoff(events.PENDING_POD_ADD, None, obj, only)
            self._durations.handled(events.PENDING_POD_ADD, start_ns)

    def on_update(self, old: Pod, new: Pod) -> None:
        if is_terminated(old):
            if not is_terminated(new):
                self.on_add(new, False)
            return
        if is_terminated(new):
            self.on_delete(old, False)
            return
        if old.metadata.uid != new.metadata.uid:  # deleted and created again between two events
            self.on_delete(old, True)
            self.on_add(new, False)
        elif old.spec.node_name:
            self._update_assigned(old, new)
        elif new.spec.node_name:
            self._add_assigned(new, pending=old)
        elif old.spec.scheduler_name in self._scheduler_names:
            self._update_pending(old, new)

    def on_delete(self, obj: Pod, final_state_unknown: bool) -> None:
        if is_terminated(obj):
            return  # it was removed when it terminated
        if final_state_unknown:
            # The object may be outdated: the pod may have been bound since.
            self._remove_assigned(obj)
            if obj.spec.scheduler_name in self._scheduler_names:
                self._delete_pending(obj)
        elif obj.spec.node_name:
            self._remove_assigned(obj)
        elif obj.spec.scheduler_name in self._scheduler_names:
            self._delete_pending(obj)

    def _add_assigned(self, pod: Pod, pending: Pod | None = None, *, initial: bool = False) -> None:
        """Add a bound pod to the cache. pending: its former state, if it was not bound; it is no longer queued."""
        start_ns = self._durations.start()
        try:
            self._cache.add_pod(pod)
        except CacheError as error:
            log.warning("cannot add a bound pod to the cache: %s", error)
        if not initial:
            self._queue.move_all_to_active_or_backoff(events.ASSIGNED_POD_ADD, None, pod)
        self._durations.handled(events.ASSIGNED_POD_ADD, start_ns)
        if pending is not None and pending.spec.scheduler_name in self._scheduler_names:
            self._queue.delete(pending)

    def _update_assigned(self, old: Pod, new: Pod) -> None:
        start_ns = self._durations.start()
        if self._sync_calls is not None:
            self._sync_calls(new)
        try:
            self._cache.update_pod(old, new)
        except CacheError as error:
            log.warning("cannot update a bound pod in the cache: %s", error)
        for event in events.pod_update_events(old, new, self._cache.request_rules):
            self._queue.move_all_to_active_or_backoff(event, old, new)
            self._durations.handled(event, start_ns)

    def _remove_assigned(self, pod: Pod) -> None:
        start_ns = self._durations.start()
        try:
            self._cache.remove_pod(pod)
        except CacheError as error:
            log.warning("cannot remove a bound pod from the cache: %s", error)
        self._queue.move_all_to_active_or_backoff(events.ASSIGNED_POD_DELETE, pod, None)
        self._durations.handled(events.ASSIGNED_POD_DELETE, start_ns)

    def _update_pending(self, old: Pod, new: Pod) -> None:
        if old.metadata.resource_version == new.metadata.resource_version:
            return  # a repeated event; handling it would schedule a pod twice
        if self._sync_calls is not None:
            self._sync_calls(new)
        if self._pod_groups is not None:
            self._pod_groups.put(new)
        if self._cache.is_assumed(new):
            if new.metadata.deletion_timestamp is not None and old.metadata.deletion_timestamp is None:
                self._assumed_pod_deleted(new)
            return
        start_ns = self._durations.start()
        self._queue.update(old, new)
        self._durations.handled(events.PENDING_POD_UPDATE, start_ns)
        nominated = old.status.nominated_node_name
        if nominated and nominated != new.status.nominated_node_name:
            self._nomination_released(old)

    def _delete_pending(self, pod: Pod) -> None:
        self._queue.delete(pod)
        if self._pod_groups is not None:
            self._pod_groups.remove(pod)
        if self._cache.is_assumed(pod):
            self._assumed_pod_deleted(pod)
        elif pod.status.nominated_node_name:
            self._nomination_released(pod)

    def _assumed_pod_deleted(self, pod: Pod) -> None:
        """Release the room of the deleted pod at once. Its binding continues, and fails."""
        assumed = self._cache.get_pod(pod.metadata.uid)
        if assumed is None:
            return
        if not self._reject_waiting_pod(assumed.metadata.uid):
            try:
                self._cache.forget_pod(assumed)
            except CacheError as error:
                log.warning("cannot forget a deleted pod: %s", error)
        self._queue.move_all_to_active_or_backoff(events.ASSIGNED_POD_DELETE, assumed, None)

    def _nomination_released(self, pod: Pod) -> None:
        """Retry pods of the same or lower priority, as if `pod` had been deleted from its nominated node."""
        priority = pod.spec.priority or 0
        self._queue.move_all_to_active_or_backoff(
            events.ASSIGNED_POD_DELETE, pod, None, lambda queued: queued.info.priority <= priority
        )


class NodeEvents:
    """Handler of the node informer. declared_features: the feature gate NodeDeclaredFeatures."""

    def __init__(
        self,
        cache: SchedulerCache,
        queue: SchedulingQueue,
        durations: EventDurations = NOT_MEASURED,
        *,
        declared_features: bool = True,
    ) -> None:
        self._declared_features = declared_features
        self._cache = cache
        self._queue = queue
        self._durations = durations

    def on_add(self, obj: Node, initial: bool) -> None:
        start_ns = self._durations.start()
        self._cache.add_node(obj)
        if not initial:
            self._queue.move_all_to_active_or_backoff(events.NODE_ADD, None, obj)
        self._durations.handled(events.NODE_ADD, start_ns)

    def on_update(self, old: Node, new: Node) -> None:
        start_ns = self._durations.start()
        self._cache.update_node(old, new)
        for event in events.node_update_events(old, new, declared_features=self._declared_features):
            self._queue.move_all_to_active_or_backoff(event, old, new)
            self._durations.handled(event, start_ns)

    def on_delete(self, obj: Node, final_state_unknown: bool) -> None:
        start_ns = self._durations.start()
        self._queue.move_all_to_active_or_backoff(events.NODE_DELETE, obj, None)
        try:
            self._cache.remove_node(obj)
        except CacheError as error:
            log.warning("cannot remove a node from the cache: %s", error)
        self._durations.handled(events.NODE_DELETE, start_ns)


class OtherEvents:
    """Handler of the informer of any other resource: `actions` on it may make pods schedulable."""

    def __init__(
        self, queue: SchedulingQueue, resource: str, actions: ActionType, durations: EventDurations = NOT_MEASURED
    ) -> None:
        self._queue = queue
        self._durations = durations
        self._add = self._event(resource, actions, events.ADD)
        self._update = self._event(resource, actions, events.UPDATE)
        self._delete = self._event(resource, actions, events.DELETE)

    @staticmethod
    def _event(resource: str, actions: ActionType, action: ActionType) -> ClusterEvent | None:
        return events.cluster_event(resource, action) if actions & action else None

    def on_add(self, obj: Any, initial: bool) -> None:
        if not initial:
            self._move(self._add, None, obj)

    def on_update(self, old: Any, new: Any) -> None:
        self._move(self._update, old, new)

    def on_delete(self, obj: Any, final_state_unknown: bool) -> None:
        self._move(self._delete, obj, None)

    def _move(self, event: ClusterEvent | None, old: Any, new: Any) -> None:
        if event is not None:
            start_ns = self._durations.start()
            self._queue.move_all_to_active_or_backoff(event, old, new)
            self._durations.handled(event, start_ns)


def is_terminated(pod: Pod) -> bool:
    """Return True if the pod needs no room on its node any more."""
    return pod.status.phase in ("Succeeded", "Failed")


def other_resources(registered: Mapping[str, ActionType]) -> dict[str, ActionType]:
    """Return the registered resources other than pods and nodes."""
    own = (events.POD, events.NODE, events.ASSIGNED_POD_RESOURCE, events.PENDING_POD_RESOURCE, "*")
    return {resource: actions for resource, actions in registered.items() if resource not in own}
