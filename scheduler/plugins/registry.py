"""The default plugins by name, with the type of their arguments."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import msgspec

from kubeloop.kube.objects.api_types import Struct
from kubeloop.scheduler.api.extension_points import Plugin
from kubeloop.scheduler.api.handle import Handle
from kubeloop.scheduler.config import plugin_args
from kubeloop.scheduler.plugins.balanced_allocation import NodeResourcesBalancedAllocation
from kubeloop.scheduler.plugins.default_binder import DefaultBinder
from kubeloop.scheduler.plugins.default_preemption import DefaultPreemption
from kubeloop.scheduler.plugins.dynamic_resources import DynamicResources
from kubeloop.scheduler.plugins.image_locality import ImageLocality
from kubeloop.scheduler.plugins.inter_pod_affinity import InterPodAffinity
from kubeloop.scheduler.plugins.node_affinity import NodeAffinity
from kubeloop.scheduler.plugins.node_declared_features import NodeDeclaredFeatures
from kubeloop.scheduler.plugins.node_name import NodeName
from kubeloop.scheduler.plugins.node_ports import NodePorts
from kubeloop.scheduler.plugins.node_resources_fit import NodeResourcesFit
from kubeloop.scheduler.plugins.node_unschedulable import NodeUnschedulable
from kubeloop.scheduler.plugins.node_volume_limits import NodeVolumeLimits
from kubeloop.scheduler.plugins.pod_topology_spread import PodTopologySpread
from kubeloop.scheduler.plugins.priority_sort import PrioritySort
from kubeloop.scheduler.plugins.scheduling_gates import SchedulingGates
from kubeloop.scheduler.plugins.taint_toleration import TaintToleration
from kubeloop.scheduler.plugins.volume_binding import VolumeBinding
from kubeloop.scheduler.plugins.volume_restrictions import VolumeRestrictions
from kubeloop.scheduler.plugins.volume_zone import VolumeZone


class PluginType(msgspec.Struct, frozen=True):
    """How to make one plugin: `construct(args, handle)`, with `args` an `args_type`."""

    construct: Callable[[Any, Handle], Plugin]
    args_type: type[Struct] = plugin_args.NoArgs


DEFAULT_PLUGINS: Mapping[str, PluginType] = {
    "SchedulingGates": PluginType(SchedulingGates),
    "PrioritySort": PluginType(PrioritySort),
    "NodeUnschedulable": PluginType(NodeUnschedulable),
    "NodeName": PluginType(NodeName),
    "TaintToleration": PluginType(TaintToleration),
    "NodeAffinity": PluginType(NodeAffinity, plugin_args.NodeAffinityArgs),
    "NodePorts": PluginType(NodePorts),
    "NodeResourcesFit": PluginType(NodeResourcesFit, plugin_args.NodeResourcesFitArgs),
    "NodeResourcesBalancedAllocation": PluginType(
        NodeResourcesBalancedAllocation, plugin_args.NodeResourcesBalancedAllocationArgs
    ),
    "ImageLocality": PluginType(ImageLocality),
    "DefaultBinder": PluginType(DefaultBinder),
    "NodeDeclaredFeatures": PluginType(NodeDeclaredFeatures),
    "InterPodAffinity": PluginType(InterPodAffinity, plugin_args.InterPodAffinityArgs),
    "DefaultPreemption": PluginType(DefaultPreemption, plugin_args.DefaultPreemptionArgs),
    "DynamicResources": PluginType(DynamicResources, plugin_args.DynamicResourcesArgs),
    "VolumeRestrictions": PluginType(VolumeRestrictions),
    "NodeVolumeLimits": PluginType(NodeVolumeLimits),
    "VolumeBinding": PluginType(VolumeBinding, plugin_args.VolumeBindingArgs),
    "VolumeZone": PluginType(VolumeZone),
    "PodTopologySpread": PluginType(PodTopologySpread, plugin_args.PodTopologySpreadArgs),
}
"""In no order: the order at each extension point is the profile's."""
