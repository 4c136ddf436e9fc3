"""Fields of typed objects that many parts read: conditions, phase, replicas, controller.

Pure functions. Source: pkg/api/v1/pod/util.go.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Protocol, TypeVar

from kubeloop.kube.objects.api_types import (
    Condition,
    Deployment,
    Job,
    JSONValue,
    Object,
    Pod,
    ReplicaSet,
    ReplicationController,
    StatefulSet,
)

POD_TEMPLATE_HASH_LABEL = "pod-template-hash"

RENEWED_ON_READ = "kubeloop.dev/renewed-on-read"
"""Annotation of a Lease that is renewed until it changes, which is written only when a client reads it."""

_ZONE = "topology.kubernetes.io/zone"
_REGION = "topology.kubernetes.io/region"
_OLD_ZONE = "failure-domain.beta.kubernetes.io/zone"
_OLD_REGION = "failure-domain.beta.kubernetes.io/region"


class _Reference(Protocol):
    @property
    def controller(self) -> bool | None: ...


ReferenceT = TypeVar("ReferenceT", bound=_Reference)
_ReferenceT_co = TypeVar("_ReferenceT_co", bound=_Reference, covariant=True)


class OwnedMetadata(Protocol[_ReferenceT_co]):
    """metadata of an object, in any of the types that declare its owners."""

    @property
    def owner_references(self) -> Sequence[_ReferenceT_co]: ...


def controller_of(metadata: OwnedMetadata[ReferenceT]) -> ReferenceT | None:
    """Return the owner reference with controller=true, or None."""
    for reference in metadata.owner_references:
        if reference.controller:
            return reference
    return None


def controller_reference(owner: Object) -> JSONValue:
    """Return the controller owner reference to `owner`, as JSON, for objects that it creates or adopts."""
    return {
        "apiVersion": owner.api_version,
        "kind": owner.kind,
        "name": owner.metadata.name,
        "uid": owner.metadata.uid,
        "controller": True,
        "blockOwnerDeletion": True,
    }


def condition_of(conditions: Iterable[Condition], type_: str) -> Condition | None:
    """Return the condition of a type, or None."""
    for condition in conditions:
        if condition.type == type_:
            return condition
    return None


def replace_condition(conditions: tuple[Condition, ...], condition: Condition) -> tuple[Condition, ...]:
    """Return the conditions with this one in the place of the one of its type, or at the end."""
    if condition_of(conditions, condition.type) is None:
        return (*conditions, condition)
    return tuple(condition if other.type == condition.type else other for other in conditions)


def is_ready(pod: Pod) -> bool:
    """Return True if the condition Ready of the Pod is True."""
    for condition in pod.status.conditions:
        if condition.type == "Ready":
            return condition.status == "True"
    return False


def pod_group_key(pod: Pod) -> str | None:
    """Return the key of the PodGroup in spec.schedulingGroup, None for a Pod without one."""
    group = pod.spec.scheduling_group
    if group is None or group.pod_group_name is None:
        return None
    return f"{pod.metadata.namespace}/{group.pod_group_name}"


def is_finished(pod: Pod) -> bool:
    """Return True if the Pod has the phase Succeeded or Failed."""
    return pod.status.phase in ("Succeeded", "Failed")


def replicas_of(workload: Deployment | ReplicaSet | ReplicationController | StatefulSet) -> int:
    """Return spec.replicas; 1 if it is not set, which is the API's default."""
    replicas = workload.spec.replicas
    return 1 if replicas is None else replicas


def zone_key(labels: Mapping[str, str]) -> str:
    """Return region and zone as one key; "" if the node has neither. The beta labels win.

    Source: component-helpers' GetZoneKey.
    """
    zone = labels[_OLD_ZONE] if _OLD_ZONE in labels else labels.get(_ZONE, "")
    region = labels[_OLD_REGION] if _OLD_REGION in labels else labels.get(_REGION, "")
    return f"{region}:\x00:{zone}" if region or zone else ""


def job_finished_condition(job: Job) -> Condition | None:
    """Return the condition Complete or Failed with which a Job has finished; None for a Job that has not."""
    for condition in job.status.conditions:
        if condition.type in ("Complete", "Failed") and condition.status == "True":
            return condition
    return None
