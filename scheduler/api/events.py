"""Cluster events: changes that may make a pending pod schedulable.

Source: pkg/scheduler/framework/{events,types}.go of v1.36.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from enum import IntEnum, IntFlag
from typing import Any

import msgspec

from kubeloop.kube.objects.api_types import Node, Pod
from kubeloop.scheduler.cache.node_info import PodInfo
from kubeloop.scheduler.cache.pod_requests import DEFAULT_REQUEST_RULES, RequestRules, requests_nano


class ActionType(IntFlag):
    """Kinds of changes to a resource, as a bit mask (values of v1.36)."""

    ADD = 1 << 0
    DELETE = 1 << 1
    UPDATE_NODE_ALLOCATABLE = 1 << 2
    UPDATE_NODE_LABEL = 1 << 3
    UPDATE_NODE_TAINT = 1 << 4
    UPDATE_NODE_CONDITION = 1 << 5
    UPDATE_NODE_ANNOTATION = 1 << 6
    UPDATE_NODE_DECLARED_FEATURE = 1 << 7
    UPDATE_POD_LABEL = 1 << 8
    UPDATE_POD_SCALE_DOWN = 1 << 9
    UPDATE_POD_TOLERATION = 1 << 10
    UPDATE_POD_SCHEDULING_GATES_ELIMINATED = 1 << 11
    UPDATE_POD_GENERATED_RESOURCE_CLAIM = 1 << 12


class Hint(IntEnum):
    """Result of a queueing hint: whether the event may make the pod schedulable."""

    SKIP = 0
    QUEUE = 1


class ClusterEvent(msgspec.Struct, frozen=True):
    """`resource` is "Node", "Pod", "AssignedPod", "UnschedulablePod", "PersistentVolume", ... or "*"."""

    resource: str
    action: ActionType
    label: str = ""


HintFunction = Callable[[Pod, Any, Any], Hint]
"""(pending pod, old object or None, new object or None) -> Hint. An exception counts as QUEUE.

Not called for an event without objects, such as that the caches of devices are complete: it counts as QUEUE."""


PodInfoHintFunction = Callable[[PodInfo, Any, Any], Hint]


class ClusterEventWithHint(msgspec.Struct, frozen=True):
    """pod_info_hint: the same results as `hint`, computed from the PodInfo; preferred because faster.

    claim: returns, of the old and the new object, the key of the ResourceClaim that a pod must use for `hint` not to be
    SKIP; None if there is no such condition. The hint is then called for these pods only.
    """

    event: ClusterEvent
    hint: HintFunction | None = None  # None: always QUEUE
    pod_info_hint: PodInfoHintFunction | None = None
    claim: Callable[[Any, Any], str | None] | None = None


ADD = ActionType.ADD
DELETE = ActionType.DELETE
UPDATE_NODE = (
    ActionType.UPDATE_NODE_ALLOCATABLE
    | ActionType.UPDATE_NODE_LABEL
    | ActionType.UPDATE_NODE_TAINT
    | ActionType.UPDATE_NODE_CONDITION
    | ActionType.UPDATE_NODE_ANNOTATION
    | ActionType.UPDATE_NODE_DECLARED_FEATURE
)
UPDATE_POD = (
    ActionType.UPDATE_POD_LABEL
    | ActionType.UPDATE_POD_SCALE_DOWN
    | ActionType.UPDATE_POD_TOLERATION
    | ActionType.UPDATE_POD_SCHEDULING_GATES_ELIMINATED
    | ActionType.UPDATE_POD_GENERATED_RESOURCE_CLAIM
)
UPDATE = UPDATE_NODE | UPDATE_POD  # any update; resources other than Pod and Node have no more specific one
ALL = ADD | DELETE | UPDATE

_NAMES: Mapping[int, str] = {int(UPDATE): "Update", int(ALL): "All"} | {
    int(action): "".join(word.capitalize() for word in (action.name or "").split("_")) for action in ActionType
}


def action_name(action: ActionType) -> str:
    """Return the action as kube-scheduler prints it: "UpdateNodeTaint", "Update"."""
    return _NAMES.get(int(action)) or "|".join(_NAMES[int(flag)] for flag in action)


def cluster_event(resource: str, action: ActionType) -> ClusterEvent:
    return ClusterEvent(resource, action, f"{resource}{action_name(action)}")


NODE = "Node"
POD = "Pod"
POD_GROUP = "scheduling.k8s.io/PodGroup"
ASSIGNED_POD_RESOURCE = "AssignedPod"
PENDING_POD_RESOURCE = "UnschedulablePod"

NODE_ADD = cluster_event(NODE, ADD)
NODE_DELETE = cluster_event(NODE, DELETE)
ASSIGNED_POD_ADD = cluster_event(ASSIGNED_POD_RESOURCE, ADD)
ASSIGNED_POD_UPDATE = cluster_event(ASSIGNED_POD_RESOURCE, UPDATE)
ASSIGNED_POD_DELETE = cluster_event(ASSIGNED_POD_RESOURCE, DELETE)
PENDING_POD_ADD = cluster_event(PENDING_POD_RESOURCE, ADD)
PENDING_POD_UPDATE = cluster_event(PENDING_POD_RESOURCE, UPDATE)
UNSCHEDULABLE_TIMEOUT = ClusterEvent("*", ALL, "UnschedulableTimeout")
FORCE_ACTIVATE = ClusterEvent("*", ALL, "ForceActivate")

# Reasons other than a cluster event (label "event" of scheduler_queue_incoming_pods_total).
SCHEDULE_ATTEMPT_FAILURE = "ScheduleAttemptFailure"
BACKOFF_COMPLETE = "BackoffComplete"
POP_FROM_BACKOFF = "PopFromBackoffQ"

_NODE_UPDATES = {
    action: cluster_event(NODE, action)
    for action in (
        ActionType.UPDATE_NODE_TAINT,
        ActionType.UPDATE_NODE_ALLOCATABLE,
        ActionType.UPDATE_NODE_LABEL,
        ActionType.UPDATE_NODE_CONDITION,
        ActionType.UPDATE_NODE_ANNOTATION,
        ActionType.UPDATE_NODE_DECLARED_FEATURE,
    )
}
_POD_UPDATES = {
    (resource, action): cluster_event(resource, action)
    for resource in (ASSIGNED_POD_RESOURCE, PENDING_POD_RESOURCE)
    for action in UPDATE_POD
}


def is_wildcard(event: ClusterEvent) -> bool:
    return event.resource == "*" and event.action == ALL


def matches(registered: ClusterEvent, event: ClusterEvent) -> bool:
    """Return True if a plugin registered for `registered` receives `event`: not if `event` is less specific."""
    if is_wildcard(registered):
        return True
    resource = registered.resource
    if resource not in ("*", event.resource) and (
        resource != POD or event.resource not in (ASSIGNED_POD_RESOURCE, PENDING_POD_RESOURCE)
    ):
        return False
    mask, action = int(registered.action), int(event.action)
    return mask & action != 0 and action <= mask


def node_update_events(old: Node, new: Node, *, declared_features: bool = True) -> list[ClusterEvent]:
    """Return the events of a node update; none if nothing changed that affects scheduling.

    declared_features: the feature gate NodeDeclaredFeatures.
    """
    events = []
    if old.spec.unschedulable and not new.spec.unschedulable:
        events.append(_NODE_UPDATES[ActionType.UPDATE_NODE_TAINT])
    if old.status.allocatable != new.status.allocatable:
        events.append(_NODE_UPDATES[ActionType.UPDATE_NODE_ALLOCATABLE])
    if old.metadata.labels != new.metadata.labels:
        events.append(_NODE_UPDATES[ActionType.UPDATE_NODE_LABEL])
    if old.spec.taints != new.spec.taints:
        events.append(_NODE_UPDATES[ActionType.UPDATE_NODE_TAINT])
    if old.status.conditions is not new.status.conditions and _conditions(old) != _conditions(new):
        events.append(_NODE_UPDATES[ActionType.UPDATE_NODE_CONDITION])
    if old.metadata.annotations != new.metadata.annotations:
        events.append(_NODE_UPDATES[ActionType.UPDATE_NODE_ANNOTATION])
    if declared_features and old.status.declared_features != new.status.declared_features:
        events.append(_NODE_UPDATES[ActionType.UPDATE_NODE_DECLARED_FEATURE])
    return events


def _conditions(node: Node) -> dict[str, str]:
    return {condition.type: condition.status for condition in node.status.conditions}


def pod_update_events(old: Pod, new: Pod, rules: RequestRules = DEFAULT_REQUEST_RULES) -> list[ClusterEvent]:
    """Return the events of a pod update; the general Update if nothing specific changed."""
    resource = ASSIGNED_POD_RESOURCE if new.spec.node_name else PENDING_POD_RESOURCE
    events = []
    if old.metadata.labels != new.metadata.labels:
        events.append(_POD_UPDATES[resource, ActionType.UPDATE_POD_LABEL])
    if _scaled_down(old, new, rules):
        events.append(_POD_UPDATES[resource, ActionType.UPDATE_POD_SCALE_DOWN])
    if old.spec.scheduling_gates and not new.spec.scheduling_gates:
        events.append(_POD_UPDATES[resource, ActionType.UPDATE_POD_SCHEDULING_GATES_ELIMINATED])
    if len(old.spec.tolerations) != len(new.spec.tolerations):
        events.append(_POD_UPDATES[resource, ActionType.UPDATE_POD_TOLERATION])
    if (
        old.status.resource_claim_statuses != new.status.resource_claim_statuses
        or old.status.extended_resource_claim_status != new.status.extended_resource_claim_status
    ):
        events.append(_POD_UPDATES[resource, ActionType.UPDATE_POD_GENERATED_RESOURCE_CLAIM])
    if not events:
        events.append(ASSIGNED_POD_UPDATE if new.spec.node_name else PENDING_POD_UPDATE)
    return events


def _scaled_down(old: Pod, new: Pod, rules: RequestRules) -> bool:
    spec, status = new.spec, new.status
    if (
        spec.containers == old.spec.containers
        and spec.init_containers == old.spec.init_containers
        and spec.resources == old.spec.resources
        and spec.overhead == old.spec.overhead
        and not status.resize
        and status.resources == old.status.resources
        and status.allocated_resources == old.status.allocated_resources
        and not any(container.resources or container.allocated_resources for container in status.container_statuses)
        and not any(container.resources or container.allocated_resources for container in old.status.container_statuses)
        and not any(
            container.resources or container.allocated_resources for container in status.init_container_statuses
        )
        and not any(
            container.resources or container.allocated_resources for container in old.status.init_container_statuses
        )
    ):
        return False
    # as in kube-scheduler, pod-level requests count here even if their gate is off
    rules = msgspec.structs.replace(rules, pod_level=True)
    after = requests_nano(new, use_status=True, rules=rules)
    before = requests_nano(old, use_status=True, rules=rules)
    return any(name not in after or amount > after[name] for name, amount in before.items())
