"""Queueing hints: which plugins registered for which cluster events, with which hint.

Source: buildQueueingHintMap of pkg/scheduler/scheduler.go, v1.36.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

import msgspec

from kubeloop.kube.errors import UserError
from kubeloop.scheduler.api import events
from kubeloop.scheduler.api.events import (
    ActionType,
    ClusterEvent,
    ClusterEventWithHint,
    HintFunction,
    PodInfoHintFunction,
)
from kubeloop.scheduler.api.extension_points import EnqueueExtensions, Plugin

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


def registrations(plugins: Iterable[Plugin]) -> list[Registration]:
    """Return the registrations of the plugins of one profile, completed as in kube-scheduler.

    Raises UserError if events_to_register of a plugin fails.
    """
    result = []
    for plugin in plugins:
        if isinstance(plugin, EnqueueExtensions):
            registered: Sequence[ClusterEventWithHint] = _registered_by(plugin)
        else:
            registered = [ClusterEventWithHint(events.cluster_event(name, events.ALL)) for name in EVERY_RESOURCE]
        on_node_add = on_taint_update = False
        for entry in registered:
            result.append(Registration(plugin.name, entry.event, entry.hint, entry.pod_info_hint))
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
