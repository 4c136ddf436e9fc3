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


def _accept_create(errors: ErrorList, obj: JSON) -> None:
    del errors, obj


def _accept_update(errors: ErrorList, obj: JSON, old: JSON) -> None:
    del errors, obj, old


def _no_warnings(obj: JSON, old: JSON | None) -> list[str]:
    del obj, old
    return []


def _update_as_create(create: Create) -> Update:
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
    create: Create = _accept_create
    update: Update = _accept_update
    status: Update = _accept_update
    finalize: Update = _accept_update
    ephemeral: Update = _accept_update
    resize: Update = _accept_update
    warnings: Callable[[JSON, JSON | None], list[str]] = _no_warnings
    core: bool = True
    own_metadata: bool = True
    parts: str = "us"
    status_parts: str = "us"


SIMPLE = Rule()
_ADMISSION, _RBAC = "admissionregistration.k8s.io", "rbac.authorization.k8s.io"

RULES: dict[tuple[str, str], Rule] = {
    ("", "Pod"): Rule(
        create=pod_spec.validate_pod,
        update=pod_update.validate_pod_update,
        status=pod_status.validate_pod_status_update,
        ephemeral=pod_subresources.validate_ephemeral_containers_update,
        resize=pod_subresources.validate_pod_resize,
        parts="uws",
    ),
    ("", "PodTemplate"): Rule(
        create=pod_template.validate_pod_template, update=pod_template.validate_pod_template_update
    ),
    ("", "Node"): Rule(
        create=node.validate_node,
        update=node.validate_node_update,
        status=node.validate_node_status_update,
        parts="wus",
    ),
    ("", "Namespace"): Rule(
        name=dns_label,
        create=namespace.validate_namespace,
        status=namespace.validate_namespace_status_update,
        finalize=namespace.validate_namespace_finalize_update,
        parts="wus",
    ),
    ("", "Service"): Rule(
        name=dns_label,
        create=service.validate_service,
        update=service.validate_service_update,
        status=service.validate_service_status_update,
    ),
    ("", "ReplicationController"): Rule(
        name=long_name,
        create=replication_controller.validate_replication_controller,
        update=replication_controller.validate_replication_controller_update,
        status=replicaset.validate_replica_set_status_update,
    ),
    ("", "ConfigMap"): Rule(
        create=configmap_secret.validate_config_map, update=configmap_secret.validate_config_map_update, parts="usw"
    ),
    ("", "Secret"): Rule(
        create=configmap_secret.validate_secret, update=configmap_secret.validate_secret_update, parts="usw"
    ),
    ("", "ServiceAccount"): Rule(parts="uws"),
    ("", "PersistentVolume"): Rule(
        create=persistent_volume.validate_persistent_volume,
        update=persistent_volume.validate_persistent_volume_update,
        parts="s",
    ),
    ("", "PersistentVolumeClaim"): Rule(
        create=persistent_volume_claim.validate_persistent_volume_claim,
        update=persistent_volume_claim.validate_persistent_volume_claim_update,
        status=persistent_volume_claim.validate_persistent_volume_claim_status_update,
        parts="uws",
    ),
    ("", "LimitRange"): Rule(
        create=limit_range.validate_limit_range, update=_update_as_create(limit_range.validate_limit_range), parts="ws"
    ),
    ("", "ResourceQuota"): Rule(
        create=resource_quota.validate_resource_quota,
        update=resource_quota.validate_resource_quota_update,
        status=resource_quota.validate_resource_quota_status_update,
    ),
    ("", "Event"): Rule(
        create=event.validate_event, update=event.validate_event_update, core=False, own_metadata=False, parts="s"
    ),
    ("events.k8s.io", "Event"): Rule(
        create=event.validate_events_v1_event,
        update=event.validate_events_v1_event_update,
        core=False,
        own_metadata=False,
    ),
    ("apps", "Deployment"): Rule(
        create=deployment.validate_deployment,
        update=deployment.validate_deployment_update,
        status=deployment.validate_deployment_status_update,
    ),
    ("apps", "ReplicaSet"): Rule(
        create=replicaset.validate_replica_set,
        update=replicaset.validate_replica_set_update,
        status=replicaset.validate_replica_set_status_update,
    ),
    ("apps", "StatefulSet"): Rule(
        name=dns_label,
        create=statefulset.validate_stateful_set,
        update=statefulset.validate_stateful_set_update,
        status=statefulset.validate_stateful_set_status_update,
    ),
    ("apps", "DaemonSet"): Rule(
        create=daemonset.validate_daemon_set,
        update=daemonset.validate_daemon_set_update,
        status=daemonset.validate_daemon_set_status_update,
    ),
    ("apps", "ControllerRevision"): Rule(
        create=controller_revision.validate_controller_revision,
        update=controller_revision.validate_controller_revision_update,
        parts="uws",
    ),
    ("batch", "Job"): Rule(
        create=job.validate_job,
        update=job.validate_job_update,
        status=job_status.validate_job_status_update,
        parts="wus",
    ),
    ("batch", "CronJob"): Rule(
        create=cronjob.validate_cron_job, update=cronjob.validate_cron_job_update, status_parts=""
    ),
    ("policy", "PodDisruptionBudget"): Rule(
        create=pod_disruption_budget.validate_pod_disruption_budget,
        update=pod_disruption_budget.validate_pod_disruption_budget_update,
        status=pod_disruption_budget.validate_pod_disruption_budget_status_update,
        own_metadata=False,
        parts="s",
        status_parts="s",
    ),
    ("coordination.k8s.io", "Lease"): Rule(create=lease.validate_lease, update=lease.validate_lease_update, core=False),
    ("scheduling.k8s.io", "PriorityClass"): Rule(
        create=priority_class.validate_priority_class, update=priority_class.validate_priority_class_update
    ),
    ("storage.k8s.io", "StorageClass"): Rule(
        create=storage_class.validate_storage_class, update=storage_class.validate_storage_class_update, parts="wus"
    ),
    ("", "Endpoints"): Rule(
        create=endpoints.validate_endpoints, update=endpoints.validate_endpoints_update, parts="uws"
    ),
    ("discovery.k8s.io", "EndpointSlice"): Rule(
        create=endpoint_slice.validate_endpoint_slice, update=endpoint_slice.validate_endpoint_slice_update, parts="ws"
    ),
    ("networking.k8s.io", "Ingress"): Rule(
        create=ingress.validate_ingress,
        update=ingress.validate_ingress_update,
        status=ingress.validate_ingress_status_update,
        parts="uws",
    ),
    ("networking.k8s.io", "IngressClass"): Rule(
        create=ingress.validate_ingress_class, update=ingress.validate_ingress_class_update, parts="usw"
    ),
    ("networking.k8s.io", "NetworkPolicy"): Rule(
        create=network_policy.validate_network_policy, update=network_policy.validate_network_policy_update
    ),
    ("networking.k8s.io", "IPAddress"): Rule(
        name=ip_address.ip_address_name,
        create=ip_address.validate_ip_address,
        update=ip_address.validate_ip_address_update,
        parts="wus",
    ),
    ("networking.k8s.io", "ServiceCIDR"): Rule(
        create=service_cidr.validate_service_cidr, update=service_cidr.validate_service_cidr_update
    ),
    ("autoscaling", "HorizontalPodAutoscaler"): Rule(
        create=horizontal_pod_autoscaler.validate_horizontal_pod_autoscaler,
        update=horizontal_pod_autoscaler.validate_horizontal_pod_autoscaler_update,
        status=horizontal_pod_autoscaler.validate_horizontal_pod_autoscaler_status_update,
    ),
    ("node.k8s.io", "RuntimeClass"): Rule(
        create=runtime_class.validate_runtime_class,
        update=runtime_class.validate_runtime_class_update,
        core=False,
        parts="wsu",
    ),
    ("storage.k8s.io", "VolumeAttachment"): Rule(
        create=volume_attachment.validate_volume_attachment,
        update=volume_attachment.validate_volume_attachment_update,
        status=volume_attachment.validate_volume_attachment_status_update,
        parts="ws",
        status_parts="ws",
    ),
    ("storage.k8s.io", "CSINode"): Rule(
        create=csi_node.validate_csi_node, update=csi_node.validate_csi_node_update, parts="ws"
    ),
    ("storage.k8s.io", "CSIDriver"): Rule(
        create=csi_driver.validate_csi_driver, update=csi_driver.validate_csi_driver_update
    ),
    ("storage.k8s.io", "CSIStorageCapacity"): Rule(
        create=csi_storage_capacity.validate_csi_storage_capacity,
        update=csi_storage_capacity.validate_csi_storage_capacity_update,
        parts="wsu",
    ),
    ("storage.k8s.io", "VolumeAttributesClass"): Rule(
        create=volume_attributes_class.validate_volume_attributes_class,
        update=volume_attributes_class.validate_volume_attributes_class_update,
        parts="usw",
    ),
    (_ADMISSION, "MutatingAdmissionPolicy"): Rule(
        create=admission_policies.validate_mutating_policy,
        update=admission_policies.validate_mutating_policy_update,
        core=False,
        parts="ws",
    ),
    (_ADMISSION, "MutatingAdmissionPolicyBinding"): Rule(
        create=admission_policies.validate_mutating_binding,
        update=_update_as_create(admission_policies.validate_mutating_binding),
        core=False,
        parts="ws",
    ),
    (_ADMISSION, "ValidatingAdmissionPolicy"): Rule(
        create=admission_policies.validate_validating_policy,
        update=admission_policies.validate_validating_policy_update,
        status=admission_policies.validate_validating_policy_status_update,
        core=False,
        parts="ws",
        status_parts="s",
    ),
    (_ADMISSION, "ValidatingAdmissionPolicyBinding"): Rule(
        create=admission_policies.validate_validating_binding,
        update=_update_as_create(admission_policies.validate_validating_binding),
        core=False,
        parts="ws",
    ),
    (_RBAC, "Role"): Rule(
        name=path_segment, create=rbac.validate_role, update=_update_as_create(rbac.validate_role), parts="wsu"
    ),
    (_RBAC, "ClusterRole"): Rule(
        name=path_segment,
        create=rbac.validate_cluster_role,
        update=_update_as_create(rbac.validate_cluster_role),
        parts="wsu",
    ),
    (_RBAC, "RoleBinding"): Rule(
        name=path_segment, create=rbac.validate_role_binding, update=rbac.validate_role_binding_update, parts="wsu"
    ),
    (_RBAC, "ClusterRoleBinding"): Rule(
        name=path_segment,
        create=rbac.validate_cluster_role_binding,
        update=rbac.validate_cluster_role_binding_update,
        parts="wsu",
    ),
}
"""Kinds that are not here are looked at for their metadata alone."""
