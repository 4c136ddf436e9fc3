"""Resources with an informer besides pods and nodes, by their name in Listers."""

from __future__ import annotations

from typing import Any

from kubeloop.kube.feature_gates import FeatureGates
from kubeloop.kube.objects import resources
from kubeloop.kube.objects.resources import Resource

LISTER_RESOURCES: dict[str, Resource[Any]] = {
    "namespaces": resources.NAMESPACES,
    "services": resources.SERVICES,
    "replica_sets": resources.REPLICA_SETS,
    "stateful_sets": resources.STATEFUL_SETS,
    "replication_controllers": resources.REPLICATION_CONTROLLERS,
    "pod_disruption_budgets": resources.POD_DISRUPTION_BUDGETS,
    "persistent_volumes": resources.PERSISTENT_VOLUMES,
    "persistent_volume_claims": resources.PERSISTENT_VOLUME_CLAIMS,
    "storage_classes": resources.STORAGE_CLASSES,
    "csi_nodes": resources.CSI_NODES,
    "csi_drivers": resources.CSI_DRIVERS,
    "csi_storage_capacities": resources.CSI_STORAGE_CAPACITIES,
    "volume_attachments": resources.VOLUME_ATTACHMENTS,
}


def lister_resources(gates: FeatureGates) -> dict[str, Resource[Any]]:
    """Return the resources of the scheduler's listers with these feature gates."""
    if gates.enabled("GenericWorkload"):
        return LISTER_RESOURCES | {"pod_groups": resources.POD_GROUPS}
    return LISTER_RESOURCES
