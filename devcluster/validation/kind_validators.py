"""Which rules each kind has: how it may be named, and what is looked at on create, update and status writes."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from kubeloop.devcluster.api.name_checks import dns_label, dns_subdomain, long_name
from kubeloop.devcluster.validation import (
    admission_policies,
    horizontal_pod_autoscaler,
    lease,
    pod_disruption_budget,
    priority_class,
    rbac,
    runtime_class,
)
from kubeloop.devcluster.validation.apps import controller_revision, daemonset, deployment, replicaset, statefulset
from kubeloop.devcluster.validation.batch import cronjob, job, job_status
from kubeloop.devcluster.validation.common.error_list import ErrorList
from kubeloop.devcluster.validation.common.object_meta import NameCheck, path_segment
from kubeloop.devcluster.validation.core import (
    configmap_secret,
    endpoints,
    event,
    limit_range,
    namespace,
    node,
    persistent_volume,
    persistent_volume_claim,
    pod_template,
    replication_controller,
    resource_quota,
    service,
)
from kubeloop.devcluster.validation.networking import endpoint_slice, ingress, ip_address, network_policy, service_cidr
from kubeloop.devcluster.validation.pod import pod_spec, pod_status, pod_subresources, pod_update
from kubeloop.devcluster.validation.storage import (
    csi_driver,
    csi_node,
    csi_storage_capacity,
    storage_class,
    volume_attachment,
    volume_attributes_class,
)
from kubeloop.kube.json_object import JSON

Create = Callable[[ErrorList, JSON], None]
Update = Callable[[ErrorList, JSON, JSON], None]


def _nothing(errors: ErrorList, obj: JSON) -> None:
    del errors, obj


def _no_update(errors: ErrorList, obj: JSON, old: JSON) -> None:
    del errors, obj, old


def _no_warnings(obj: JSON, old: JSON | None) -> list[str]:
    del obj, old
    return []


def _again(create: Create) -> Update:
    """An update that is looked at like a new object."""

    def update(errors: ErrorList, obj: JSON, old: JSON) -> None:
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
        create=pod_spec.pod_create,
        update=pod_update.pod_update,
        status=pod_status.pod_status_update,
        ephemeral=pod_subresources.ephemeral_containers_update,
        resize=pod_subresources.resize,
        parts="uws",
    ),
    ("", "PodTemplate"): Rule(create=pod_template.pod_template_create, update=pod_template.pod_template_update),
    ("", "Node"): Rule(create=node.node_create, update=node.node_update, status=node.node_status_update, parts="wus"),
    ("", "Namespace"): Rule(
        name=dns_label,
        create=namespace.namespace_create,
        status=namespace.namespace_status_update,
        finalize=namespace.namespace_finalize_update,
        parts="wus",
    ),
    ("", "Service"): Rule(
        name=dns_label,
        create=service.service_create,
        update=service.service_update,
        status=service.service_status_update,
    ),
    ("", "ReplicationController"): Rule(
        name=long_name,
        create=replication_controller.replication_controller_create,
        update=replication_controller.replication_controller_update,
        status=replicaset.replica_set_status,
    ),
    ("", "ConfigMap"): Rule(
        create=configmap_secret.config_map_create, update=configmap_secret.config_map_update, parts="usw"
    ),
    ("", "Secret"): Rule(create=configmap_secret.secret_create, update=configmap_secret.secret_update, parts="usw"),
    ("", "ServiceAccount"): Rule(parts="uws"),
    ("", "PersistentVolume"): Rule(
        create=persistent_volume.volume_create, update=persistent_volume.volume_update, parts="s"
    ),
    ("", "PersistentVolumeClaim"): Rule(
        create=persistent_volume_claim.claim_create,
        update=persistent_volume_claim.claim_update,
        status=persistent_volume_claim.claim_status_update,
        parts="uws",
    ),
    ("", "LimitRange"): Rule(
        create=limit_range.limit_range_create, update=_again(limit_range.limit_range_create), parts="ws"
    ),
    ("", "ResourceQuota"): Rule(
        create=resource_quota.quota_create,
        update=resource_quota.quota_update,
        status=resource_quota.quota_status_update,
    ),
    ("", "Event"): Rule(
        create=event.event_create, update=event.event_update, core=False, own_metadata=False, parts="s"
    ),
    ("events.k8s.io", "Event"): Rule(
        create=event.new_event_create, update=event.new_event_update, core=False, own_metadata=False
    ),
    ("apps", "Deployment"): Rule(
        create=deployment.deployment_create, update=deployment.deployment_update, status=deployment.deployment_status
    ),
    ("apps", "ReplicaSet"): Rule(
        create=replicaset.replica_set_create,
        update=replicaset.replica_set_update,
        status=replicaset.replica_set_status,
    ),
    ("apps", "StatefulSet"): Rule(
        name=dns_label,
        create=statefulset.stateful_set_create,
        update=statefulset.stateful_set_update,
        status=statefulset.stateful_set_status,
    ),
    ("apps", "DaemonSet"): Rule(
        create=daemonset.daemon_set_create,
        update=daemonset.daemon_set_update,
        status=daemonset.daemon_set_status,
    ),
    ("apps", "ControllerRevision"): Rule(
        create=controller_revision.revision_create, update=controller_revision.revision_update, parts="uws"
    ),
    ("batch", "Job"): Rule(
        create=job.job_create, update=job.job_update, status=job_status.job_status_update, parts="wus"
    ),
    ("batch", "CronJob"): Rule(create=cronjob.cron_job_create, update=cronjob.cron_job_update, status_parts=""),
    ("policy", "PodDisruptionBudget"): Rule(
        create=pod_disruption_budget.disruption_budget_create,
        update=pod_disruption_budget.disruption_budget_update,
        status=pod_disruption_budget.disruption_budget_status,
        own_metadata=False,
        parts="s",
        status_parts="s",
    ),
    ("coordination.k8s.io", "Lease"): Rule(create=lease.lease_create, update=lease.lease_update, core=False),
    ("scheduling.k8s.io", "PriorityClass"): Rule(
        create=priority_class.priority_class_create, update=priority_class.priority_class_update
    ),
    ("storage.k8s.io", "StorageClass"): Rule(
        create=storage_class.storage_class_create, update=storage_class.storage_class_update, parts="wus"
    ),
    ("", "Endpoints"): Rule(create=endpoints.endpoints_create, update=endpoints.endpoints_update, parts="uws"),
    ("discovery.k8s.io", "EndpointSlice"): Rule(
        create=endpoint_slice.endpoint_slice_create, update=endpoint_slice.endpoint_slice_update, parts="ws"
    ),
    ("networking.k8s.io", "Ingress"): Rule(
        create=ingress.ingress_create, update=ingress.ingress_update, status=ingress.ingress_status, parts="uws"
    ),
    ("networking.k8s.io", "IngressClass"): Rule(
        create=ingress.ingress_class_create, update=ingress.ingress_class_update, parts="usw"
    ),
    ("networking.k8s.io", "NetworkPolicy"): Rule(
        create=network_policy.network_policy_create, update=network_policy.network_policy_update
    ),
    ("networking.k8s.io", "IPAddress"): Rule(
        name=ip_address.ip_address_name,
        create=ip_address.ip_address_create,
        update=ip_address.ip_address_update,
        parts="wus",
    ),
    ("networking.k8s.io", "ServiceCIDR"): Rule(
        create=service_cidr.service_cidr_create, update=service_cidr.service_cidr_update
    ),
    ("autoscaling", "HorizontalPodAutoscaler"): Rule(
        create=horizontal_pod_autoscaler.autoscaler_create,
        update=horizontal_pod_autoscaler.autoscaler_update,
        status=horizontal_pod_autoscaler.autoscaler_status,
    ),
    ("node.k8s.io", "RuntimeClass"): Rule(
        create=runtime_class.runtime_class_create, update=runtime_class.runtime_class_update, core=False, parts="wsu"
    ),
    ("storage.k8s.io", "VolumeAttachment"): Rule(
        create=volume_attachment.attachment_create,
        update=volume_attachment.attachment_update,
        status=volume_attachment.attachment_status,
        parts="ws",
        status_parts="ws",
    ),
    ("storage.k8s.io", "CSINode"): Rule(create=csi_node.csi_node_create, update=csi_node.csi_node_update, parts="ws"),
    ("storage.k8s.io", "CSIDriver"): Rule(create=csi_driver.csi_driver_create, update=csi_driver.csi_driver_update),
    ("storage.k8s.io", "CSIStorageCapacity"): Rule(
        create=csi_storage_capacity.capacity_create, update=csi_storage_capacity.capacity_update, parts="wsu"
    ),
    ("storage.k8s.io", "VolumeAttributesClass"): Rule(
        create=volume_attributes_class.attributes_class_create,
        update=volume_attributes_class.attributes_class_update,
        parts="usw",
    ),
    (_ADMISSION, "MutatingAdmissionPolicy"): Rule(
        create=admission_policies.mutating_policy_create,
        update=admission_policies.mutating_policy_update,
        core=False,
        parts="ws",
    ),
    (_ADMISSION, "MutatingAdmissionPolicyBinding"): Rule(
        create=admission_policies.mutating_binding_create,
        update=_again(admission_policies.mutating_binding_create),
        core=False,
        parts="ws",
    ),
    (_ADMISSION, "ValidatingAdmissionPolicy"): Rule(
        create=admission_policies.validating_policy_create,
        update=admission_policies.validating_policy_update,
        status=admission_policies.validating_policy_status,
        core=False,
        parts="ws",
        status_parts="s",
    ),
    (_ADMISSION, "ValidatingAdmissionPolicyBinding"): Rule(
        create=admission_policies.validating_binding_create,
        update=_again(admission_policies.validating_binding_create),
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
