"""Validation functions of each kind: its names, and its create, update, status and other subresource writes."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import cache
from typing import TypeAlias

import msgspec

from kubeloop.devcluster.validation.common.error_list import ErrorList
from kubeloop.devcluster.validation.common.object_meta import NameCheck, path_segment
from kubeloop.kube.json_object import JSON
from kubeloop.kube.name_checks import dns_1035_label, dns_label, dns_subdomain, long_name

CreateValidator = Callable[[ErrorList, JSON], None]
UpdateValidator = Callable[[ErrorList, JSON, JSON], None]


def _accept_create(errors: ErrorList, obj: JSON) -> None:
    del errors, obj


def _accept_update(errors: ErrorList, obj: JSON, old: JSON) -> None:
    del errors, obj, old


def _no_warnings(obj: JSON, old: JSON | None) -> list[str]:
    del obj, old
    return []


def _update_as_create(create: CreateValidator) -> UpdateValidator:
    """Return an update validator that validates a changed object like a new one."""

    def update(errors: ErrorList, obj: JSON, old: JSON) -> None:
        if any(obj.get(name) != old.get(name) for name in {*obj, *old} - {"metadata", "status"}):
            create(errors, obj)

    return update


class KindValidators(msgspec.Struct, frozen=True):
    """Validation functions of a kind: what strategy.Validate and strategy.ValidateUpdate do.

    core_finalizers: unqualified finalizers must be standard ones, as in kinds that use core's ValidateObjectMeta.
    strategy_metadata: on create, the strategy validates metadata, too; otherwise only the store does.
    update_steps: steps of an update after the store's own check of metadata, in order: "u", metadata against the stored
    version; "w", the new metadata alone; "s", `update`. subresource_steps: the same for writes to a subresource.
    """

    name_check: NameCheck = dns_subdomain
    strict_name_check: NameCheck | None = None
    create: CreateValidator = _accept_create
    update: UpdateValidator = _accept_update
    status: UpdateValidator = _accept_update
    finalize: UpdateValidator = _accept_update
    ephemeral_containers: UpdateValidator = _accept_update
    resize: UpdateValidator = _accept_update
    warnings: Callable[[JSON, JSON | None], list[str]] = _no_warnings
    core_finalizers: bool = True
    strategy_metadata: bool = True
    update_steps: str = "us"
    subresource_steps: str = "us"


METADATA_ONLY = KindValidators()
Table: TypeAlias = Mapping[str, KindValidators]
"""Validators of an API group by kind."""


@cache
def validators_for(group: str, kind: str) -> KindValidators:
    """Return the validators of a kind: METADATA_ONLY for one without its own."""
    return _group_table(group).get(kind, METADATA_ONLY)


@cache
def _group_table(group: str) -> Table:
    """Return the table of an API group, importing its modules: few clusters need those of all groups at their start."""
    return _TABLES.get(group, dict)()


def register_group(group: str, table: Callable[[], Table]) -> None:
    """Set the validators of an API group whose modules are in a layer above this one."""
    _TABLES[group] = table


def _core() -> Table:
    from kubeloop.devcluster.validation.apps import replicaset
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
    from kubeloop.devcluster.validation.pod import (
        pod_spec,
        pod_status,
        pod_subresources,
        pod_update,
    )

    return {
        "Pod": KindValidators(
            create=pod_spec.validate_pod,
            update=pod_update.validate_pod_update,
            status=pod_status.validate_pod_status_update,
            ephemeral_containers=pod_subresources.validate_ephemeral_containers_update,
            resize=pod_subresources.validate_pod_resize,
            update_steps="uws",
        ),
        "PodTemplate": KindValidators(
            create=pod_template.validate_pod_template, update=pod_template.validate_pod_template_update
        ),
        "Node": KindValidators(
            create=node.validate_node,
            update=node.validate_node_update,
            status=node.validate_node_status_update,
            update_steps="wus",
        ),
        "Namespace": KindValidators(
            name_check=dns_label,
            create=namespace.validate_namespace,
            status=namespace.validate_namespace_status_update,
            finalize=namespace.validate_namespace_finalize_update,
            update_steps="wus",
        ),
        "Service": KindValidators(
            name_check=dns_label,
            strict_name_check=dns_1035_label,
            create=service.validate_service,
            update=service.validate_service_update,
            status=service.validate_service_status_update,
        ),
        "ReplicationController": KindValidators(
            name_check=long_name,
            create=replication_controller.validate_replication_controller,
            update=replication_controller.validate_replication_controller_update,
            status=replicaset.validate_replica_set_status_update,
        ),
        "ConfigMap": KindValidators(
            create=configmap_secret.validate_config_map,
            update=configmap_secret.validate_config_map_update,
            update_steps="usw",
        ),
        "Secret": KindValidators(
            create=configmap_secret.validate_secret, update=configmap_secret.validate_secret_update, update_steps="usw"
        ),
        "ServiceAccount": KindValidators(update_steps="uws"),
        "PersistentVolume": KindValidators(
            create=persistent_volume.validate_persistent_volume,
            update=persistent_volume.validate_persistent_volume_update,
            update_steps="s",
        ),
        "PersistentVolumeClaim": KindValidators(
            create=persistent_volume_claim.validate_persistent_volume_claim,
            update=persistent_volume_claim.validate_persistent_volume_claim_update,
            status=persistent_volume_claim.validate_persistent_volume_claim_status_update,
            update_steps="uws",
        ),
        "LimitRange": KindValidators(
            create=limit_range.validate_limit_range,
            update=_update_as_create(limit_range.validate_limit_range),
            update_steps="ws",
        ),
        "ResourceQuota": KindValidators(
            create=resource_quota.validate_resource_quota,
            update=resource_quota.validate_resource_quota_update,
            status=resource_quota.validate_resource_quota_status_update,
        ),
        "Event": KindValidators(
            create=event.validate_event,
            update=event.validate_event_update,
            core_finalizers=False,
            strategy_metadata=False,
            update_steps="s",
        ),
        "Endpoints": KindValidators(
            create=endpoints.validate_endpoints, update=endpoints.validate_endpoints_update, update_steps="uws"
        ),
    }


def _events() -> Table:
    from kubeloop.devcluster.validation.core import event

    return {
        "Event": KindValidators(
            create=event.validate_events_v1_event,
            update=event.validate_events_v1_event_update,
            core_finalizers=False,
            strategy_metadata=False,
        ),
    }


def _apps() -> Table:
    from kubeloop.devcluster.validation.apps import (
        controller_revision,
        daemonset,
        deployment,
        replicaset,
        statefulset,
    )

    return {
        "Deployment": KindValidators(
            create=deployment.validate_deployment,
            update=deployment.validate_deployment_update,
            status=deployment.validate_deployment_status_update,
        ),
        "ReplicaSet": KindValidators(
            create=replicaset.validate_replica_set,
            update=replicaset.validate_replica_set_update,
            status=replicaset.validate_replica_set_status_update,
        ),
        "StatefulSet": KindValidators(
            name_check=dns_label,
            create=statefulset.validate_stateful_set,
            update=statefulset.validate_stateful_set_update,
            status=statefulset.validate_stateful_set_status_update,
        ),
        "DaemonSet": KindValidators(
            create=daemonset.validate_daemon_set,
            update=daemonset.validate_daemon_set_update,
            status=daemonset.validate_daemon_set_status_update,
        ),
        "ControllerRevision": KindValidators(
            create=controller_revision.validate_controller_revision,
            update=controller_revision.validate_controller_revision_update,
            update_steps="uws",
        ),
    }


def _batch() -> Table:
    from kubeloop.devcluster.validation.batch import cronjob, job, job_status

    return {
        "Job": KindValidators(
            create=job.validate_job,
            update=job.validate_job_update,
            status=job_status.validate_job_status_update,
            update_steps="wus",
        ),
        "CronJob": KindValidators(
            create=cronjob.validate_cron_job, update=cronjob.validate_cron_job_update, subresource_steps=""
        ),
    }


def _policy() -> Table:
    from kubeloop.devcluster.validation import pod_disruption_budget

    return {
        "PodDisruptionBudget": KindValidators(
            create=pod_disruption_budget.validate_pod_disruption_budget,
            update=pod_disruption_budget.validate_pod_disruption_budget_update,
            status=pod_disruption_budget.validate_pod_disruption_budget_status_update,
            strategy_metadata=False,
            update_steps="s",
            subresource_steps="s",
        ),
    }


def _coordination() -> Table:
    from kubeloop.devcluster.validation import lease

    return {
        "Lease": KindValidators(create=lease.validate_lease, update=lease.validate_lease_update, core_finalizers=False),
    }


def _scheduling() -> Table:
    from kubeloop.devcluster.validation import priority_class, workload

    return {
        "PriorityClass": KindValidators(
            create=priority_class.validate_priority_class, update=priority_class.validate_priority_class_update
        ),
        "PodGroup": KindValidators(
            create=workload.validate_pod_group,
            update=workload.validate_pod_group_update,
            status=workload.validate_pod_group_status_update,
        ),
        "Workload": KindValidators(create=workload.validate_workload, update=workload.validate_workload_update),
    }


def _resource() -> Table:
    from kubeloop.devcluster.validation.resource import device_taint_rule, resource_claim, resource_slice

    return {
        "DeviceClass": KindValidators(
            name_check=long_name,
            create=resource_claim.validate_device_class,
            update=_update_as_create(resource_claim.validate_device_class),
            update_steps="wus",
        ),
        "DeviceTaintRule": KindValidators(
            create=device_taint_rule.validate_device_taint_rule,
            update=device_taint_rule.validate_device_taint_rule_update,
            status=device_taint_rule.validate_device_taint_rule_status_update,
        ),
        "ResourceClaim": KindValidators(
            create=resource_claim.validate_resource_claim,
            update=resource_claim.validate_resource_claim_update,
            status=resource_claim.validate_resource_claim_status_update,
            update_steps="wus",
        ),
        "ResourceClaimTemplate": KindValidators(
            create=resource_claim.validate_resource_claim_template,
            update=resource_claim.validate_resource_claim_template_update,
            update_steps="wsu",
        ),
        "ResourceSlice": KindValidators(
            create=resource_slice.validate_resource_slice, update=resource_slice.validate_resource_slice_update
        ),
    }


def _storage() -> Table:
    from kubeloop.devcluster.validation.storage import (
        csi_driver,
        csi_node,
        csi_storage_capacity,
        storage_class,
        volume_attachment,
        volume_attributes_class,
    )

    return {
        "StorageClass": KindValidators(
            create=storage_class.validate_storage_class,
            update=storage_class.validate_storage_class_update,
            update_steps="wus",
        ),
        "VolumeAttachment": KindValidators(
            create=volume_attachment.validate_volume_attachment,
            update=volume_attachment.validate_volume_attachment_update,
            status=volume_attachment.validate_volume_attachment_status_update,
            update_steps="ws",
            subresource_steps="ws",
        ),
        "CSINode": KindValidators(
            create=csi_node.validate_csi_node, update=csi_node.validate_csi_node_update, update_steps="ws"
        ),
        "CSIDriver": KindValidators(
            create=csi_driver.validate_csi_driver, update=csi_driver.validate_csi_driver_update
        ),
        "CSIStorageCapacity": KindValidators(
            create=csi_storage_capacity.validate_csi_storage_capacity,
            update=csi_storage_capacity.validate_csi_storage_capacity_update,
            update_steps="wsu",
        ),
        "VolumeAttributesClass": KindValidators(
            create=volume_attributes_class.validate_volume_attributes_class,
            update=volume_attributes_class.validate_volume_attributes_class_update,
            update_steps="usw",
        ),
    }


def _discovery() -> Table:
    from kubeloop.devcluster.validation.networking import endpoint_slice

    return {
        "EndpointSlice": KindValidators(
            create=endpoint_slice.validate_endpoint_slice,
            update=endpoint_slice.validate_endpoint_slice_update,
            update_steps="ws",
        ),
    }


def _networking() -> Table:
    from kubeloop.devcluster.validation.networking import (
        ingress,
        ip_address,
        network_policy,
        service_cidr,
    )

    return {
        "Ingress": KindValidators(
            create=ingress.validate_ingress,
            update=ingress.validate_ingress_update,
            status=ingress.validate_ingress_status_update,
            update_steps="uws",
        ),
        "IngressClass": KindValidators(
            create=ingress.validate_ingress_class, update=ingress.validate_ingress_class_update, update_steps="usw"
        ),
        "NetworkPolicy": KindValidators(
            create=network_policy.validate_network_policy, update=network_policy.validate_network_policy_update
        ),
        "IPAddress": KindValidators(
            name_check=ip_address.ip_address_name,
            create=ip_address.validate_ip_address,
            update=ip_address.validate_ip_address_update,
            update_steps="wus",
        ),
        "ServiceCIDR": KindValidators(
            create=service_cidr.validate_service_cidr, update=service_cidr.validate_service_cidr_update
        ),
    }


def _autoscaling() -> Table:
    from kubeloop.devcluster.validation import horizontal_pod_autoscaler

    return {
        "HorizontalPodAutoscaler": KindValidators(
            create=horizontal_pod_autoscaler.validate_horizontal_pod_autoscaler,
            update=horizontal_pod_autoscaler.validate_horizontal_pod_autoscaler_update,
            status=horizontal_pod_autoscaler.validate_horizontal_pod_autoscaler_status_update,
        ),
    }


def _node() -> Table:
    from kubeloop.devcluster.validation import runtime_class

    return {
        "RuntimeClass": KindValidators(
            create=runtime_class.validate_runtime_class,
            update=runtime_class.validate_runtime_class_update,
            core_finalizers=False,
            update_steps="wsu",
        ),
    }


def _admissionregistration() -> Table:
    from kubeloop.devcluster.validation import admission_policies

    return {
        "MutatingAdmissionPolicy": KindValidators(
            create=admission_policies.validate_mutating_policy,
            update=admission_policies.validate_mutating_policy_update,
            core_finalizers=False,
            update_steps="ws",
        ),
        "MutatingAdmissionPolicyBinding": KindValidators(
            create=admission_policies.validate_mutating_binding,
            update=_update_as_create(admission_policies.validate_mutating_binding),
            core_finalizers=False,
            update_steps="ws",
        ),
        "ValidatingAdmissionPolicy": KindValidators(
            create=admission_policies.validate_validating_policy,
            update=admission_policies.validate_validating_policy_update,
            status=admission_policies.validate_validating_policy_status_update,
            core_finalizers=False,
            update_steps="ws",
            subresource_steps="s",
        ),
        "ValidatingAdmissionPolicyBinding": KindValidators(
            create=admission_policies.validate_validating_binding,
            update=_update_as_create(admission_policies.validate_validating_binding),
            core_finalizers=False,
            update_steps="ws",
        ),
    }


def _rbac() -> Table:
    from kubeloop.devcluster.validation import rbac

    return {
        "Role": KindValidators(
            name_check=path_segment,
            create=rbac.validate_role,
            update=_update_as_create(rbac.validate_role),
            update_steps="wsu",
        ),
        "ClusterRole": KindValidators(
            name_check=path_segment,
            create=rbac.validate_cluster_role,
            update=_update_as_create(rbac.validate_cluster_role),
            update_steps="wsu",
        ),
        "RoleBinding": KindValidators(
            name_check=path_segment,
            create=rbac.validate_role_binding,
            update=rbac.validate_role_binding_update,
            update_steps="wsu",
        ),
        "ClusterRoleBinding": KindValidators(
            name_check=path_segment,
            create=rbac.validate_cluster_role_binding,
            update=rbac.validate_cluster_role_binding_update,
            update_steps="wsu",
        ),
    }


_TABLES: dict[str, Callable[[], Table]] = {
    "": _core,
    "events.k8s.io": _events,
    "apps": _apps,
    "batch": _batch,
    "policy": _policy,
    "coordination.k8s.io": _coordination,
    "scheduling.k8s.io": _scheduling,
    "resource.k8s.io": _resource,
    "storage.k8s.io": _storage,
    "discovery.k8s.io": _discovery,
    "networking.k8s.io": _networking,
    "autoscaling": _autoscaling,
    "node.k8s.io": _node,
    "admissionregistration.k8s.io": _admissionregistration,
    "rbac.authorization.k8s.io": _rbac,
}
