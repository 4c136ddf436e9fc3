"""Registry of a scheduler that accepts Policy documents: the in-tree plugins and those of older schedulers."""

from __future__ import annotations

from kubeloop.scheduler.framework.profile_plugins import Registry
from kubeloop.scheduler.legacy_policy.node_label import NodeLabel
from kubeloop.scheduler.legacy_policy.node_prefer_avoid_pods import NodePreferAvoidPods
from kubeloop.scheduler.legacy_policy.node_pressure import NodeDiskPressure, NodeMemoryPressure, NodePIDPressure
from kubeloop.scheduler.legacy_policy.resource_scores import (
    BalancedResourceAllocation,
    NodeResourcesLeastAllocated,
    NodeResourcesMostAllocated,
    RequestedToCapacityRatioPriority,
)
from kubeloop.scheduler.legacy_policy.selector_spread import SelectorSpread
from kubeloop.scheduler.legacy_policy.service_affinity import ServiceAffinity
from kubeloop.scheduler.legacy_policy.volume_limits import (
    MaxAzureDiskVolumeCount,
    MaxCinderVolumeCount,
    MaxEBSVolumeCount,
    MaxGCEPDVolumeCount,
)
from kubeloop.scheduler.plugins.registry import IN_TREE_PLUGINS

ALL_PLUGINS: Registry = {
    **IN_TREE_PLUGINS,
    "SelectorSpread": SelectorSpread,
    "NodePreferAvoidPods": NodePreferAvoidPods,
    "NodeResourcesLeastAllocated": NodeResourcesLeastAllocated,
    "NodeResourcesMostAllocated": NodeResourcesMostAllocated,
    "RequestedToCapacityRatio": RequestedToCapacityRatioPriority,
    "BalancedResourceAllocation": BalancedResourceAllocation,
    "NodeLabel": NodeLabel,
    "ServiceAffinity": ServiceAffinity,
    "MaxEBSVolumeCount": MaxEBSVolumeCount,
    "MaxGCEPDVolumeCount": MaxGCEPDVolumeCount,
    "MaxAzureDiskVolumeCount": MaxAzureDiskVolumeCount,
    "MaxCinderVolumeCount": MaxCinderVolumeCount,
    "NodeMemoryPressure": NodeMemoryPressure,
    "NodeDiskPressure": NodeDiskPressure,
    "NodePIDPressure": NodePIDPressure,
}
