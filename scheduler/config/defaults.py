"""Defaults of KubeSchedulerConfiguration: names, numbers, and the plugins of the default profile.

Defaults of plugin arguments are those of the types in `config.plugin_args`; some depend on feature gates.
Source: pkg/scheduler/apis/config/v1/{defaults,default_plugins}.go of v1.36.
"""

from __future__ import annotations

from kubeloop.kube.feature_gates import DEFAULT_FEATURE_GATES, FeatureGates
from kubeloop.kube.objects.api_types import Struct
from kubeloop.scheduler.config.plugin_args import DynamicResourcesArgs, VolumeBindingArgs, with_defaults
from kubeloop.scheduler.config.plugin_sets import PluginRef

API_VERSION = "kubescheduler.config.k8s.io/v1"
DEFAULT_SCHEDULER_NAME = "default-scheduler"
DEFAULT_PARALLELISM = 16
DEFAULT_POD_INITIAL_BACKOFF_SECONDS = 1
DEFAULT_POD_MAX_BACKOFF_SECONDS = 10
DEFAULT_EXTENDER_TIMEOUT_SECONDS = 5.0
DEFAULT_MAX_BINDINGS_IN_FLIGHT = 256  # kubeloop's own setting

# Order and weights of v1.36 with default feature gates (apis/config/v1/default_plugins.go).
DEFAULT_PLUGINS = (
    PluginRef("SchedulingGates"),
    PluginRef("PrioritySort"),
    PluginRef("NodeUnschedulable"),
    PluginRef("NodeName"),
    PluginRef("TaintToleration", 3),
    PluginRef("NodeAffinity", 2),
    PluginRef("NodePorts"),
    PluginRef("NodeResourcesFit", 1),
    PluginRef("VolumeRestrictions"),
    PluginRef("NodeVolumeLimits"),
    PluginRef("VolumeBinding"),
    PluginRef("VolumeZone"),
    PluginRef("PodTopologySpread", 2),
    PluginRef("InterPodAffinity", 2),
    PluginRef("DynamicResources", 2),
    PluginRef("DefaultPreemption"),
    PluginRef("NodeResourcesBalancedAllocation", 1),
    PluginRef("ImageLocality", 1),
    PluginRef("DefaultBinder"),
    PluginRef("NodeDeclaredFeatures"),
)


def default_plugins(gates: FeatureGates) -> tuple[PluginRef, ...]:
    """Return the plugins of the default profile."""
    plugins: tuple[PluginRef, ...] = DEFAULT_PLUGINS
    if not gates.enabled("NodeDeclaredFeatures"):
        plugins = tuple(ref for ref in plugins if ref.name != "NodeDeclaredFeatures")
    if gates.enabled("GangScheduling"):
        plugins += (PluginRef("GangScheduling"),)
    if gates.enabled("TopologyAwareWorkloadScheduling"):
        plugins += (PluginRef("TopologyPlacementGenerator"), PluginRef("PodGroupPodsCount", 1))
    return plugins


def default_args(gates: FeatureGates) -> dict[str, Struct]:
    """Return the default arguments of plugins that these feature gates change, by plugin name."""
    arguments: dict[str, Struct] = {"DynamicResources": DynamicResourcesArgs(), "VolumeBinding": VolumeBindingArgs()}
    return {
        name: changed
        for name, args in arguments.items()
        if (changed := with_defaults(args, gates)) != with_defaults(args, DEFAULT_FEATURE_GATES)
    }
