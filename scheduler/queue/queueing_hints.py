"""Queueing hints: which plugins registered for which cluster events, and where an event moves a rejected pod.

Sources: buildQueueingHintMap of pkg/scheduler/scheduler.go, isPodWorthRequeuing of the scheduling queue, v1.36.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Mapping, Sequence
from enum import Enum
from typing import Any, cast

import msgspec

from kubeloop.kube.objects.api_types import Pod
from kubeloop.kube.user_error import UserError
from kubeloop.scheduler.api import events
from kubeloop.scheduler.api.events import (
    ActionType,
    ClusterEvent,
    ClusterEventWithHint,
    Hint,
    HintFunction,
    PodInfoHintFunction,
)
from kubeloop.scheduler.api.extension_points import EnqueueExtensions, Plugin
from kubeloop.scheduler.api.queued_pod import QueuedPodInfo
from kubeloop.scheduler.cache.pod_classes import SpecClasses
from kubeloop.scheduler.metrics import SchedulerMetrics

log = logging.getLogger(__name__)

_MEASURED_HINTS = 10  # one of this many queueing hints is measured

# Resources whose events make a pod schedulable that a plugin without events_to_register rejected.
EVERY_RESOURCE = (
    "Pod",
    "Node",
    "PersistentVolume",
    "PersistentVolumeClaim",
    "storage.k8s.io/CSINode",
    "storage.k8s.io/CSIDriver",
    "storage.k8s.io/CSIStorageCapacity",
    "storage.k8s.io/StorageClass",
)

# Plugins whose hints read nothing of the pending pod but its namespace, labels and spec; replicas share a hint.
HINTS_DECIDED_BY_SPEC = frozenset(
    (
        "InterPodAffinity",
        "NodeAffinity",
        "NodeName",
        "NodePorts",
        "NodeResourcesFit",
        "NodeUnschedulable",
        "PodTopologySpread",
        "TaintToleration",
    )
)


class Registration(msgspec.Struct, frozen=True):
    plugin: str
    event: ClusterEvent
    hint: HintFunction | None  # None: always QUEUE
    pod_info_hint: PodInfoHintFunction | None = None
    claim: Callable[[Any, Any], str | None] | None = None


def registrations(plugins: Iterable[Plugin], *, pod_groups: bool = False) -> list[Registration]:
    """Return the registrations of the plugins of one profile, completed as in kube-scheduler.

    pod_groups: the feature gate GenericWorkload. Raises UserError if events_to_register of a plugin fails.
    """
    every_resource = (*EVERY_RESOURCE, events.POD_GROUP) if pod_groups else EVERY_RESOURCE
    result = []
    for plugin in plugins:
        if callable(getattr(plugin, "events_to_register", None)):  # isinstance() of a protocol takes 10 us
            registered: Sequence[ClusterEventWithHint] = _registered_by(cast("EnqueueExtensions", plugin))
        else:
            registered = [ClusterEventWithHint(events.cluster_event(name, events.ALL)) for name in every_resource]
        on_node_add = on_taint_update = False
        for entry in registered:
            result.append(Registration(plugin.name, entry.event, entry.hint, entry.pod_info_hint, entry.claim))
            if entry.event.resource == events.NODE:
                on_node_add |= bool(entry.event.action & events.ADD)
                on_taint_update |= bool(entry.event.action & ActionType.UPDATE_NODE_TAINT)
        if on_node_add and not on_taint_update:
            event = events.cluster_event(events.NODE, ActionType.UPDATE_NODE_TAINT)
            result.append(Registration(plugin.name, event, None))
    return result


def _registered_by(plugin: EnqueueExtensions) -> Sequence[ClusterEventWithHint]:
    try:
        return tuple(plugin.events_to_register())
    except Exception as error:
        raise UserError(
            f"the events of the scheduler plugin {plugin.name!r} cannot be registered: {error}",
            hint="see its events_to_register()",
        ) from error


class QueueingHintMap:
    """The registrations of one profile, looked up by event."""

    def __init__(self, registered: Sequence[Registration]) -> None:
        self._registered = registered
        self._by_event: dict[tuple[str, int], tuple[Registration, ...]] = {}
        self._last: ClusterEvent | None = None
        self._last_matching: tuple[Registration, ...] = ()

    def matching(self, event: ClusterEvent) -> tuple[Registration, ...]:
        """Return all registrations that match `event`."""
        if event is self._last:  # called with the same event for each unschedulable pod
            return self._last_matching
        key = event.resource, int(event.action)
        matching = self._by_event.get(key)
        if matching is None:
            matching = tuple(entry for entry in self._registered if events.matches(entry.event, event))
            self._by_event[key] = matching
        self._last, self._last_matching = event, matching
        return matching

    def events_of(self, plugin: str) -> list[ClusterEvent]:
        return [entry.event for entry in self._registered if entry.plugin == plugin]


def registered_actions(hint_maps: Iterable[QueueingHintMap]) -> Mapping[str, ActionType]:
    """Return resource -> all actions on it that any plugin registered for."""
    actions: dict[str, ActionType] = {}
    for hint_map in hint_maps:
        for entry in hint_map._registered:
            resource = entry.event.resource
            actions[resource] = actions.get(resource, ActionType(0)) | entry.event.action
    return actions


class QueueingStrategy(Enum):
    """The queue for a pod after an event that may make it schedulable."""

    SKIP = "skip"
    AFTER_BACKOFF = "after backoff"
    IMMEDIATELY = "immediately"


HintMemo = dict[tuple[int, int], Hint]
"""(id of the registration, spec class) -> hint, for one event."""


class QueueingHints:
    """Decides which events may make a rejected pod schedulable.

    maps: by scheduler name. metrics, duration_ns: as in QueueObserver.
    """

    def __init__(
        self,
        maps: Mapping[str, QueueingHintMap],
        metrics: SchedulerMetrics,
        duration_ns: Callable[[], int],
    ) -> None:
        self._maps = maps
        self._metrics = metrics
        self._duration_ns = duration_ns
        self._calls = 0  # of hints so far
        self._classes = SpecClasses()
        self._plugins: dict[tuple[str, int], frozenset[str]] = {}  # registered, by resource and action of the event

    def plugins_registered_for(self, event: ClusterEvent) -> frozenset[str] | None:
        """Return the plugins registered for `event`; None: it concerns every pod."""
        if events.is_wildcard(event):
            return None
        key = event.resource, int(event.action)
        plugins = self._plugins.get(key)
        if plugins is None:
            matching = (registered for hint_map in self._maps.values() for registered in hint_map.matching(event))
            plugins = self._plugins[key] = frozenset(registered.plugin for registered in matching)
        return plugins

    def claim_needed(self, event: ClusterEvent, old: Any, new: Any) -> str | None:
        """Return the key of the ResourceClaim that a pod must use for the event to move it; None: also other pods."""
        claims = {
            registered.claim(old, new) if registered.claim is not None else None
            for hint_map in self._maps.values()
            for registered in hint_map.matching(event)
        }
        return claims.pop() if len(claims) == 1 else None

    def strategy(
        self, queued: QueuedPodInfo, event: ClusterEvent, old: Any, new: Any, memo: HintMemo | None
    ) -> QueueingStrategy:
        """Return where `event` moves a pod that was rejected."""
        rejected_by, pending = queued.unschedulable_plugins, queued.pending_plugins
        if not rejected_by and not pending:
            return QueueingStrategy.AFTER_BACKOFF
        if events.is_wildcard(event):
            if new is not None and (not isinstance(new, Pod) or new.metadata.uid != queued.uid):
                return QueueingStrategy.SKIP  # the event is for that one pod
            return QueueingStrategy.AFTER_BACKOFF
        hint_map = self._maps.get(queued.info.pod.spec.scheduler_name)
        if hint_map is None:
            return QueueingStrategy.AFTER_BACKOFF
        strategy = QueueingStrategy.SKIP
        for registered in hint_map.matching(event):
            plugin = registered.plugin
            if plugin not in rejected_by and plugin not in pending:
                continue
            if registered.hint is not None and (old is not None or new is not None):  # else there is nothing to check
                memo_key = None
                if memo is not None and plugin in HINTS_DECIDED_BY_SPEC:
                    memo_key = id(registered), self._class_of(queued)
                    hint = memo.get(memo_key)
                    if hint is Hint.SKIP:
                        continue
                else:
                    hint = None
                if hint is None:
                    hint = self._measured_hint(registered, queued, event, old, new)
                    if memo is not None and memo_key is not None:
                        memo[memo_key] = hint
                if hint is Hint.SKIP:
                    continue
            if plugin in pending:
                return QueueingStrategy.IMMEDIATELY
            strategy = QueueingStrategy.AFTER_BACKOFF
            if not pending:
                break
        return strategy

    def _class_of(self, queued: QueuedPodInfo) -> int:
        if queued.spec_class < 0:
            queued.spec_class = self._classes.number(queued.pod)
        return queued.spec_class

    def _measured_hint(
        self, registered: Registration, queued: QueuedPodInfo, event: ClusterEvent, old: Any, new: Any
    ) -> Hint:
        self._calls += 1
        if self._calls % _MEASURED_HINTS != 1:
            return self._hint(registered, queued, old, new)
        start_ns = self._duration_ns()
        hint = self._hint(registered, queued, old, new)
        seconds = (self._duration_ns() - start_ns) / 1e9
        self._metrics.queueing_hint(
            registered.plugin, event.label, "Queue" if hint is Hint.QUEUE else "QueueSkip", seconds
        )
        return hint

    @staticmethod
    def _hint(registered: Registration, queued: QueuedPodInfo, old: Any, new: Any) -> Hint:
        try:
            if registered.pod_info_hint is not None:
                return registered.pod_info_hint(queued.info, old, new)
            assert registered.hint is not None
            return registered.hint(queued.pod, old, new)
        except Exception:  # a failing hint must not leave the pod unschedulable
            extra = {"plugin": registered.plugin, "pod": queued.key}
            log.warning("queueing hint failed", exc_info=True, extra=extra)
            return Hint.QUEUE
