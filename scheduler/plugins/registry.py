"""The in-tree plugins by name, as in pkg/scheduler/framework/plugins/registry.go."""

from __future__ import annotations

from kubeloop.scheduler.framework.profile_plugins import Registry
from kubeloop.scheduler.plugins.default_binder import DefaultBinder
from kubeloop.scheduler.plugins.dynamic_resources.dynamic_resources import DynamicResources
from kubeloop.scheduler.plugins.image_locality import ImageLocality
from kubeloop.scheduler.plugins.inter_pod_affinity.inter_pod_affinity import InterPodAffinity
from kubeloop.scheduler.plugins.node_affinity import NodeAffinityPlugin
from kubeloop.scheduler.plugins.node_declared_features import NodeDeclaredFeatures
from kubeloop.scheduler.plugins.node_name import NodeName
from kubeloop.scheduler.plugins.node_ports import NodePorts
from kubeloop.scheduler.plugins.node_resources.balanced_allocation import NodeResourcesBalancedAllocation
from kubeloop.scheduler.plugins.node_resources.fit import NodeResourcesFit
from kubeloop.scheduler.plugins.node_unschedulable import NodeUnschedulable
from kubeloop.scheduler.plugins.pod_groups.gang_scheduling import GangScheduling
from kubeloop.scheduler.plugins.pod_groups.pod_group_pods_count import PodGroupPodsCount
from kubeloop.scheduler.plugins.pod_groups.topology_placement import TopologyPlacementGenerator
from kubeloop.scheduler.plugins.pod_topology_spread.pod_topology_spread import PodTopologySpread
from kubeloop.scheduler.plugins.preemption.default_preemption import DefaultPreemption
from kubeloop.scheduler.plugins.priority_sort import PrioritySort
from kubeloop.scheduler.plugins.scheduling_gates import SchedulingGates
from kubeloop.scheduler.plugins.taint_toleration import TaintToleration
from kubeloop.scheduler.plugins.volumes.node_volume_limits import NodeVolumeLimits
from kubeloop.scheduler.plugins.volumes.volume_binding import VolumeBinding
from kubeloop.scheduler.plugins.volumes.volume_restrictions import VolumeRestrictions
from kubeloop.scheduler.plugins.volumes.volume_zone import VolumeZone

IN_TREE_PLUGINS: Registry = {
    "SchedulingGates": SchedulingGates,
    "PrioritySort": PrioritySort,
    "NodeUnschedulable": NodeUnschedulable,
    "NodeName": NodeName,
    "TaintToleration": TaintToleration,
    "NodeAffinity": NodeAffinityPlugin,
    "NodePorts": NodePorts,
    "NodeResourcesFit": NodeResourcesFit,
    "NodeResourcesBalancedAllocation": NodeResourcesBalancedAllocation,
    "ImageLocality": ImageLocality,
    "DefaultBinder": DefaultBinder,
    "NodeDeclaredFeatures": NodeDeclaredFeatures,
    "InterPodAffinity": InterPodAffinity,
    "DefaultPreemption": DefaultPreemption,
    "DynamicResources": DynamicResources,
    "VolumeRestrictions": VolumeRestrictions,
    "NodeVolumeLimits": NodeVolumeLimits,
    "VolumeBinding": VolumeBinding,
    "VolumeZone": VolumeZone,
    "PodTopologySpread": PodTopologySpread,
    "GangScheduling": GangScheduling,
    "TopologyPlacementGenerator": TopologyPlacementGenerator,
    "PodGroupPodsCount": PodGroupPodsCount,
}
"""Plugin name -> class. The order at each extension point is the one of the profile."""
