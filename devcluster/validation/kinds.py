"""Which rules each kind has: how it may be named, and what is looked at on create, update and status writes."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from kubeloop.devcluster.api.name_checks import dns_label, dns_subdomain, long_name
from kubeloop.devcluster.validation import (
    autoscaling,
    claims,
    cluster,
    csi,
    events,
    job_statuses,
    jobs,
    network,
    pod_statuses,
    pod_subresources,
    pod_updates,
    pods,
    policies,
    quotas,
    rbac,
    services,
    storage,
    workloads,
)
from kubeloop.devcluster.validation.field import Errors
from kubeloop.devcluster.validation.metadata import NameCheck, path_segment
from kubeloop.kube.json_object import JSON

Create = Callable[[Errors, JSON], None]
Update = Callable[[Errors, JSON, JSON], None]


def _nothing(errors: Errors, obj: JSON) -> None:
    del errors, obj


def _no_update(errors: Errors, obj: JSON, old: JSON) -> None:
    del errors, obj, old


def _no_warnings(obj: JSON, old: JSON | None) -> list[str]:
    del obj, old
    return []


def _again(create: Create) -> Update:
    """An update that is looked at like a new object."""

    def update(errors: Errors, obj: JSON, old: JSON) -> None:
        if any(obj.get(name) != old.get(name) for name in {*obj, *old} - {"metadata", "status"}):
            create(errors, obj)

    return update


@dataclass(frozen=True, slots=True)
class Rule:
    """One kind's validation: what strategy.Validate and strategy.ValidateUpdate do beyond metadata.

    core: unqualified finalizers have to be known ones, as for all kinds that use core's ValidateObjectMeta.
    parts: what an update looks at besides the store's own check of metadata, in this order: u, how metadata have
    changed; w, the new metadata by themselves; s, `update`. status_parts: the same of a write to a subresource.
    """

    name: NameCheck = dns_subdomain
    create: Create = _nothing
    update: Update = _no_update
    status: Update = _no_update
    finalize: Update = _no_update
    ephemeral: Update = _no_update
    resize: Update = _no_update
    warnings: Callable[[JSON, JSON | None], list[str]] = _no_warnings
    core: bool = True
    own_metadata: bool = True
    parts: str = "us"
    status_parts: str = "us"


SIMPLE = Rule()
_ADMISSION, _RBAC = "admissionregistration.k8s.io", "rbac.authorization.k8s.io"

RULES: dict[tuple[str, str], Rule] = {
    ("", "Pod"): Rule(
        create=pods.pod_create,
        update=pod_updates.pod_update,
        status=pod_statuses.pod_status_update,
        ephemeral=pod_subresources.ephemeral_containers_update,
        resize=pod_subresources.resize,
        parts="uws",
    ),
    ("", "PodTemplate"): Rule(create=workloads.pod_template_create, update=workloads.pod_template_update),
    ("", "Node"): Rule(
        create=cluster.node_create, update=cluster.node_update, status=cluster.node_status_update, parts="wus"
    ),
    ("", "Namespace"): Rule(
        name=dns_label,
        create=cluster.namespace_create,
        status=cluster.namespace_status_update,
        finalize=cluster.namespace_finalize_update,
        parts="wus",
    ),
    ("", "Service"): Rule(
        name=dns_label,
        create=services.service_create,
        update=services.service_update,
        status=services.service_status_update,
    ),
    ("", "ReplicationController"): Rule(
        name=long_name,
        create=workloads.replication_controller_create,
        update=workloads.replication_controller_update,
        status=workloads.replica_set_status,
    ),
    ("", "ConfigMap"): Rule(create=cluster.config_map_create, update=cluster.config_map_update, parts="usw"),
    ("", "Secret"): Rule(create=cluster.secret_create, update=cluster.secret_update, parts="usw"),
    ("", "ServiceAccount"): Rule(parts="uws"),
    ("", "PersistentVolume"): Rule(create=storage.volume_create, update=storage.volume_update, parts="s"),
    ("", "PersistentVolumeClaim"): Rule(
        create=claims.claim_create, update=claims.claim_update, status=claims.claim_status_update, parts="uws"
    ),
    ("", "LimitRange"): Rule(create=quotas.limit_range_create, update=_again(quotas.limit_range_create), parts="ws"),
    ("", "ResourceQuota"): Rule(
        create=quotas.quota_create, update=quotas.quota_update, status=quotas.quota_status_update
    ),
    ("", "Event"): Rule(
        create=events.event_create, update=events.event_update, core=False, own_metadata=False, parts="s"
    ),
    ("events.k8s.io", "Event"): Rule(
        create=events.new_event_create, update=events.new_event_update, core=False, own_metadata=False
    ),
    ("apps", "Deployment"): Rule(
        create=workloads.deployment_create, update=workloads.deployment_update, status=workloads.deployment_status
    ),
    ("apps", "ReplicaSet"): Rule(
        create=workloads.replica_set_create,
        update=workloads.replica_set_update,
        status=workloads.replica_set_status,
    ),
    ("apps", "StatefulSet"): Rule(
        name=dns_label,
        create=workloads.stateful_set_create,
        update=workloads.stateful_set_update,
        status=workloads.stateful_set_status,
    ),
    ("apps", "DaemonSet"): Rule(
        create=workloads.daemon_set_create,
        update=workloads.daemon_set_update,
        status=workloads.daemon_set_status,
    ),
    ("apps", "ControllerRevision"): Rule(
        create=workloads.revision_create, update=workloads.revision_update, parts="uws"
    ),
    ("batch", "Job"): Rule(
        create=jobs.job_create, update=jobs.job_update, status=job_statuses.job_status_update, parts="wus"
    ),
    ("batch", "CronJob"): Rule(create=jobs.cron_job_create, update=jobs.cron_job_update, status_parts=""),
    ("policy", "PodDisruptionBudget"): Rule(
        create=cluster.disruption_budget_create,
        update=cluster.disruption_budget_update,
        status=cluster.disruption_budget_status,
        own_metadata=False,
        parts="s",
        status_parts="s",
    ),
    ("coordination.k8s.io", "Lease"): Rule(create=cluster.lease_create, update=cluster.lease_update, core=False),
    ("scheduling.k8s.io", "PriorityClass"): Rule(
        create=cluster.priority_class_create, update=cluster.priority_class_update
    ),
    ("storage.k8s.io", "StorageClass"): Rule(
        create=storage.storage_class_create, update=storage.storage_class_update, parts="wus"
    ),
    ("", "Endpoints"): Rule(create=network.endpoints_create, update=network.endpoints_update, parts="uws"),
    ("discovery.k8s.io", "EndpointSlice"): Rule(
        create=network.endpoint_slice_create, update=network.endpoint_slice_update, parts="ws"
    ),
    ("networking.k8s.io", "Ingress"): Rule(
        create=network.ingress_create, update=network.ingress_update, status=network.ingress_status, parts="uws"
    ),
    ("networking.k8s.io", "IngressClass"): Rule(
        create=network.ingress_class_create, update=network.ingress_class_update, parts="usw"
    ),
    ("networking.k8s.io", "NetworkPolicy"): Rule(
        create=network.network_policy_create, update=network.network_policy_update
    ),
    ("networking.k8s.io", "IPAddress"): Rule(
        name=network.ip_address_name, create=network.ip_address_create, update=network.ip_address_update, parts="wus"
    ),
    ("networking.k8s.io", "ServiceCIDR"): Rule(create=network.service_cidr_create, update=network.service_cidr_update),
    ("autoscaling", "HorizontalPodAutoscaler"): Rule(
        create=autoscaling.autoscaler_create,
        update=autoscaling.autoscaler_update,
        status=autoscaling.autoscaler_status,
    ),
    ("node.k8s.io", "RuntimeClass"): Rule(
        create=cluster.runtime_class_create, update=cluster.runtime_class_update, core=False, parts="wsu"
    ),
    ("storage.k8s.io", "VolumeAttachment"): Rule(
        create=csi.attachment_create,
        update=csi.attachment_update,
        status=csi.attachment_status,
        parts="ws",
        status_parts="ws",
    ),
    ("storage.k8s.io", "CSINode"): Rule(create=csi.csi_node_create, update=csi.csi_node_update, parts="ws"),
    ("storage.k8s.io", "CSIDriver"): Rule(create=csi.csi_driver_create, update=csi.csi_driver_update),
    ("storage.k8s.io", "CSIStorageCapacity"): Rule(create=csi.capacity_create, update=csi.capacity_update, parts="wsu"),
    ("storage.k8s.io", "VolumeAttributesClass"): Rule(
        create=csi.attributes_class_create, update=csi.attributes_class_update, parts="usw"
    ),
    (_ADMISSION, "MutatingAdmissionPolicy"): Rule(
        create=policies.mutating_policy_create, update=policies.mutating_policy_update, core=False, parts="ws"
    ),
    (_ADMISSION, "MutatingAdmissionPolicyBinding"): Rule(
        create=policies.mutating_binding_create,
        update=_again(policies.mutating_binding_create),
        core=False,
        parts="ws",
    ),
    (_ADMISSION, "ValidatingAdmissionPolicy"): Rule(
        create=policies.validating_policy_create,
        update=policies.validating_policy_update,
        status=policies.validating_policy_status,
        core=False,
        parts="ws",
        status_parts="s",
    ),
    (_ADMISSION, "ValidatingAdmissionPolicyBinding"): Rule(
        create=policies.validating_binding_create,
        update=_again(policies.validating_binding_create),
        core=False,
        parts="ws",
    ),
    (_RBAC, "Role"): Rule(name=path_segment, create=rbac.role_create, update=_again(rbac.role_create), parts="wsu"),
    (_RBAC, "ClusterRole"): Rule(
        name=path_segment, create=rbac.cluster_role_create, update=_again(rbac.cluster_role_create), parts="wsu"
    ),
    (_RBAC, "RoleBinding"): Rule(
        name=path_segment, create=rbac.role_binding_create, update=rbac.role_binding_update, parts="wsu"
    ),
    (_RBAC, "ClusterRoleBinding"): Rule(
        name=path_segment,
        create=rbac.cluster_role_binding_create,
        update=rbac.cluster_role_binding_update,
        parts="wsu",
    ),
}
"""Kinds that are not here are looked at for their metadata alone."""
