"""Workload and PodGroup of scheduling.k8s.io with the fields that control logic reads.

The rules of `api_types` apply. Source: staging/src/k8s.io/api/scheduling/v1alpha2/types.go.
"""

from __future__ import annotations

from kubeloop.kube.objects.api_types import Condition, JSONValue, Object, Struct


class GangSchedulingPolicy(Struct):
    min_count: int = 0


class PodGroupSchedulingPolicy(Struct):
    """One of the fields is set; basic has no fields of its own."""

    basic: JSONValue = None
    gang: GangSchedulingPolicy | None = None


class TopologyConstraint(Struct):
    key: str = ""


class PodGroupSchedulingConstraints(Struct):
    topology: tuple[TopologyConstraint, ...] = ()


class PodGroupResourceClaim(Struct):
    name: str = ""
    resource_claim_name: str | None = None
    resource_claim_template_name: str | None = None


class PodGroupTemplate(Struct):
    name: str = ""
    scheduling_policy: PodGroupSchedulingPolicy = PodGroupSchedulingPolicy()
    scheduling_constraints: JSONValue = None
    resource_claims: JSONValue = None
    disruption_mode: str | None = None
    priority_class_name: str = ""
    priority: int | None = None


class TypedLocalObjectReference(Struct):
    api_group: str = ""
    kind: str = ""
    name: str = ""


class WorkloadSpec(Struct):
    controller_ref: TypedLocalObjectReference | None = None
    pod_group_templates: tuple[PodGroupTemplate, ...] = ()


class Workload(Object):
    spec: WorkloadSpec = WorkloadSpec()


class WorkloadPodGroupTemplateReference(Struct):
    workload_name: str = ""
    pod_group_template_name: str = ""


class PodGroupTemplateReference(Struct):
    workload: WorkloadPodGroupTemplateReference | None = None


class PodGroupSpec(Struct):
    """disruption_mode: "Pod" or "PodGroup"."""

    pod_group_template_ref: PodGroupTemplateReference | None = None
    scheduling_policy: PodGroupSchedulingPolicy = PodGroupSchedulingPolicy()
    scheduling_constraints: PodGroupSchedulingConstraints | None = None
    resource_claims: tuple[PodGroupResourceClaim, ...] = ()
    disruption_mode: str | None = None
    priority_class_name: str = ""
    priority: int | None = None


class PodGroupResourceClaimStatus(Struct):
    name: str = ""
    resource_claim_name: str | None = None


class PodGroupStatus(Struct):
    conditions: tuple[Condition, ...] = ()
    resource_claim_statuses: tuple[PodGroupResourceClaimStatus, ...] = ()


class PodGroup(Object):
    spec: PodGroupSpec = PodGroupSpec()
    status: PodGroupStatus = PodGroupStatus()
