"""Heartbeats of a node, and the conditions of a node without heartbeats.

Pure but for the record `NodeHealth`. Source: tryUpdateNodeHealth in
pkg/controller/nodelifecycle/node_lifecycle_controller.go.
"""

from __future__ import annotations

import math
from datetime import datetime

from kubeloop.kube.clock import rfc3339
from kubeloop.kube.objects.api_types import Condition, JSONValue, Lease, Node
from kubeloop.kube.objects.object_fields import RENEWED_ON_READ, condition_of
from kubeloop.kube.values.times import seconds_between

_KUBELET_CONDITIONS = ("Ready", "MemoryPressure", "DiskPressure", "PIDPressure")  # NetworkUnavailable is no kubelet's


class NodeHealth:
    """The last heartbeat of one node that the controller has observed.

    ready: the condition Ready of that time. probed_at: loop time of the observation; clocks of nodes do not count.
    is_alive: the node has heartbeats until its Lease changes (RENEWED_ON_READ).
    """

    __slots__ = ("is_alive", "probed_at", "ready", "renewed", "uid")

    def __init__(self, node: Node, now: float, wall: datetime) -> None:
        """A node that has never reported counts from its creation, any other from now."""
        self.uid = node.metadata.uid
        self.ready = condition_of(node.status.conditions, "Ready")
        self.renewed: datetime | None = None
        self.is_alive = False
        self.probed_at = now
        created = node.metadata.creation_timestamp
        if self.ready is None and created is not None:
            self.probed_at -= max(0.0, seconds_between(created, wall))

    def observe(self, node: Node, lease: Lease | None, now: float, wall: datetime) -> None:
        """Record the heartbeats of this version of the node: a status report, or a renewal of its Lease."""
        ready, before = condition_of(node.status.conditions, "Ready"), self.ready
        if _heartbeat(ready) != _heartbeat(before):
            self.probed_at = now
        self.ready = ready
        renewed = None if lease is None else lease.spec.renew_time
        if renewed is not None and (self.renewed is None or self.renewed < renewed):
            self.renewed, self.probed_at = renewed, now
            if self.is_alive:  # the simulated node has died since then, and both have the same clock
                self.probed_at -= max(0.0, seconds_between(renewed, wall))
        self.is_alive = lease is not None and RENEWED_ON_READ in lease.metadata.annotations

    @property
    def is_unknown(self) -> bool:
        """True if the node is known to be lost."""
        return self.ready is not None and self.ready.status == "Unknown"

    def lost_at(self, *, grace: float, startup_grace: float) -> float:
        """Return the loop time at which the grace period since the last heartbeat ends (seconds)."""
        return math.inf if self.is_alive else self.probed_at + (startup_grace if self.ready is None else grace)


def _heartbeat(condition: Condition | None) -> tuple[bool, datetime | None]:
    return (False, None) if condition is None else (True, condition.last_heartbeat_time)


def unknown_conditions(node: Node, now: datetime) -> list[JSONValue]:
    """Return the patch of the conditions that become Unknown when the node's heartbeats are missing.

    Empty if Ready is Unknown already.
    """
    ready = condition_of(node.status.conditions, "Ready")
    if ready is not None and ready.status == "Unknown":
        return []
    # In the node's order: a strategic merge patch would apply its own.
    changed = {condition.type: _unknown(condition, now) for condition in node.status.conditions}
    created = node.metadata.creation_timestamp
    for type_ in _KUBELET_CONDITIONS:
        if type_ not in changed:
            changed[type_] = {
                "type": type_,
                "status": "Unknown",
                "reason": "NodeStatusNeverUpdated",
                "message": "Kubelet never posted node status.",
                "lastHeartbeatTime": None if created is None else rfc3339(created),
                "lastTransitionTime": rfc3339(now),
            }
    return list(changed.values())


def _unknown(condition: Condition, now: datetime) -> JSONValue:
    """Return the patch of a condition; of one that does not change, the key of the merge."""
    if condition.type not in _KUBELET_CONDITIONS or condition.status == "Unknown":
        return {"type": condition.type}
    return {
        "type": condition.type,
        "status": "Unknown",
        "reason": "NodeStatusUnknown",
        "message": "Kubelet stopped posting node status.",
        "lastTransitionTime": rfc3339(now),
    }
