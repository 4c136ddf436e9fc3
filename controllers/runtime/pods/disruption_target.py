"""The condition DisruptionTarget, which a controller sets on a Pod before it deletes it.

Source: pkg/api/v1/pod/util.go (UpdatePodCondition), pkg/util/pod/pod.go (PatchPodStatus).
"""

from __future__ import annotations

from datetime import datetime

from kubeloop.controllers.runtime.writes.object_patch import patch_object
from kubeloop.kube.client.api_client import ApiClient, PatchType
from kubeloop.kube.clock import rfc3339
from kubeloop.kube.objects.api_types import JSONValue, Pod
from kubeloop.kube.objects.object_fields import condition_of
from kubeloop.kube.objects.resources import PODS

DISRUPTION_TARGET = "DisruptionTarget"


def has_disruption_target(pod: Pod, reason: str, message: str) -> bool:
    """Return True if the condition is already True for this reason."""
    condition = condition_of(pod.status.conditions, DISRUPTION_TARGET)
    if condition is None:
        return False
    return (condition.status, condition.reason, condition.message) == ("True", reason, message)


def disruption_target(pod: Pod, reason: str, message: str, now: datetime) -> JSONValue:
    """Return the condition as JSON. A condition that is already True keeps its time."""
    existing = condition_of(pod.status.conditions, DISRUPTION_TARGET)
    since = now
    if existing is not None and existing.status == "True" and existing.last_transition_time is not None:
        since = existing.last_transition_time
    return {
        "type": DISRUPTION_TARGET,
        "status": "True",
        "observedGeneration": pod.metadata.generation,
        "reason": reason,
        "message": message,
        "lastTransitionTime": rfc3339(since),
    }


async def patch_pod_status(client: ApiClient, pod: Pod, *conditions: JSONValue, **status: JSONValue) -> None:
    """Set conditions and other fields of a Pod's status. Raises Conflict if another Pod has its name."""
    body = pod_status_patch(pod, *conditions, **status)
    await patch_object(client, PODS, pod, body, PatchType.STRATEGIC, "status")


def pod_status_patch(pod: Pod, *conditions: JSONValue, **status: JSONValue) -> JSONValue:
    """Return the strategic merge patch of conditions and other fields of a Pod's status, with the UID as precondition.

    New conditions come last.
    """
    if conditions:
        types = dict.fromkeys([*(it.type for it in pod.status.conditions), *(it["type"] for it in conditions)])
        status["$setElementOrder/conditions"] = [{"type": type_} for type_ in types]
        status["conditions"] = list(conditions)
    return {"metadata": {"uid": pod.metadata.uid}, "status": status}
