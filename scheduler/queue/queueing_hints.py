"""Which plugin wants to hear of which event, and whom to ask whether it helps a pod.

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

# Resources whose events wake a pod that a plugin without events_to_register rejected.
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

# Their hints look at nothing of the pending pod but its namespace, labels and spec, so that replicas share an answer.
DECIDED_BY_SPEC = frozenset(
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
    """What the plugins of one profile register, completed as kube-scheduler does. Raises UserError if one fails."""
    result = []
    for plugin in plugins:
        if isinstance(plugin, EnqueueExtensions):
            registered: Sequence[ClusterEventWithHint] = _registered_by(plugin)
        else:
            registered = [ClusterEventWithHint(events.cluster_event(name, events.ALL)) for name in EVERY_RESOURCE]
        on_node_add = on_taint_update = False
        for each in registered:
            result.append(Registration(plugin.name, each.event, each.hint, each.pod_info_hint))
            if each.event.resource == events.NODE:
                on_node_add |= bool(each.event.action & events.ADD)
                on_taint_update |= bool(each.event.action & ActionType.UPDATE_NODE_TAINT)
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


class HintMap:
    """The registrations of one profile, looked up by event."""

    def __init__(self, registered: Sequence[Registration]) -> None:
        self._registered = registered
        self._by_event: dict[tuple[str, int], tuple[Registration, ...]] = {}
        self._last: ClusterEvent | None = None
        self._last_found: tuple[Registration, ...] = ()

    def matching(self, event: ClusterEvent) -> tuple[Registration, ...]:
        """All registrations that hear of `event`."""
        if event is self._last:  # one event is asked about for each pod that waits
            return self._last_found
        key = event.resource, int(event.action)
        found = self._by_event.get(key)
        if found is None:
            found = tuple(each for each in self._registered if events.matches(each.event, event))
            self._by_event[key] = found
        self._last, self._last_found = event, found
        return found

    def events_of(self, plugin: str) -> list[ClusterEvent]:
        return [each.event for each in self._registered if each.plugin == plugin]


def watched(hint_maps: Iterable[HintMap]) -> Mapping[str, ActionType]:
    """Resource -> all actions on it that any plugin hears of."""
    actions: dict[str, ActionType] = {}
    for hint_map in hint_maps:
        for each in hint_map._registered:
            resource = each.event.resource
            actions[resource] = actions.get(resource, ActionType(0)) | each.event.action
    return actions
