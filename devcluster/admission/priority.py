"""Priority: priorities of pods and pod groups from their priority classes, and the single default class.

Source: plugin/pkg/admission/priority of Kubernetes v1.36.
"""

from __future__ import annotations

from typing import Any

from kubeloop.devcluster.api import errors
from kubeloop.devcluster.storage.store import ObjectStore
from kubeloop.kube.json_object import JSON
from kubeloop.kube.objects.resources import POD_GROUPS, PODS, PRIORITY_CLASSES, Resource


def set_priority(store: ObjectStore, pod: JSON) -> None:
    """Set a new pod's priority and preemption policy from its class, in place. Raises StatusError 403."""
    spec = pod["spec"]
    value, policy = _resolve_class(store, PODS, pod)
    if spec.get("priority") not in (None, value):
        message = (
            f"the integer value of priority ({spec['priority']}) must not be provided in pod spec; "
            f"priority admission controller computed {value} from the given PriorityClass name"
        )
        raise errors.forbidden(PODS, errors.name_in_message(pod), message)
    if spec.get("preemptionPolicy") not in (None, policy):
        message = (
            f"the string value of PreemptionPolicy ({spec['preemptionPolicy']}) must not be provided in pod spec; "
            f"priority admission controller computed {policy} from the given PriorityClass name"
        )
        raise errors.forbidden(PODS, errors.name_in_message(pod), message)
    spec["priority"] = value
    spec["preemptionPolicy"] = policy


def set_group_priority(store: ObjectStore, pod_group: JSON) -> None:
    """Set a new PodGroup's priority from its class, in place. Raises StatusError 403."""
    spec = pod_group["spec"]
    value, _ = _resolve_class(store, POD_GROUPS, pod_group)
    if spec.get("priority") not in (None, value):
        message = (
            f"priority set in the pod group ({spec['priority']}) must match the priority computed ({value}) "
            "based on the priority class set in the spec"
        )
        raise errors.forbidden(POD_GROUPS, errors.name_in_message(pod_group), message)
    spec["priority"] = value


def _resolve_class(store: ObjectStore, resource: Resource[Any], obj: JSON) -> tuple[int, str]:
    """Return priority and preemption policy of an object's class; set the default class. Raises StatusError 403."""
    spec = obj["spec"]
    name = spec.get("priorityClassName", "")
    policy = "PreemptLowerPriority"
    if not name:
        default = default_priority_class(store)
        if default is None:
            return 0, policy
        spec["priorityClassName"] = default["metadata"]["name"]
        return default["value"], default.get("preemptionPolicy", policy)
    if (priority_class := store.get(PRIORITY_CLASSES, "", name)) is not None:
        return priority_class["value"], priority_class.get("preemptionPolicy", policy)
    if name in SYSTEM_PRIORITY_CLASSES:
        return SYSTEM_PRIORITY_CLASSES[name], policy
    raise errors.forbidden(resource, errors.name_in_message(obj), f"no PriorityClass with name {name} was found")


def default_priority_class(store: ObjectStore) -> JSON | None:
    """Return the priority class for pods without one; of several, the one with the lowest value."""
    defaults = [
        priority_class for priority_class in store.list(PRIORITY_CLASSES) if priority_class.get("globalDefault")
    ]
    return min(defaults, key=lambda priority_class: int(priority_class["value"]), default=None)


SYSTEM_PRIORITY_CLASSES = {"system-cluster-critical": 2_000_000_000, "system-node-critical": 2_000_001_000}
"""Values of the built-in priority classes."""
