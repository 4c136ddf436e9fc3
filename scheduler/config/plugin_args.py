"""Arguments of the in-tree plugins, kubescheduler.config.k8s.io/v1, with the defaults of v1.36."""

from __future__ import annotations

from collections.abc import Mapping

import msgspec

from kubeloop.kube.feature_gates import FeatureGates
from kubeloop.kube.objects.api_types import NodeAffinity, Struct, TopologySpreadConstraint
from kubeloop.kube.values.durations import duration_text, parse_duration_seconds


class ResourceSpec(Struct):
    """A resource and its weight (1 to 100) in a score."""

    name: str = ""
    weight: int = 1


class UtilizationShapePoint(Struct):
    """A point of the scoring function: utilization in percent, score 0 to 10."""

    utilization: int = 0
    score: int = 0


class RequestedToCapacityRatioParam(Struct):
    shape: tuple[UtilizationShapePoint, ...] = ()


CPU_AND_MEMORY = (ResourceSpec(name="cpu"), ResourceSpec(name="memory"))


class ScoringStrategy(Struct):
    """type: LeastAllocated, MostAllocated or RequestedToCapacityRatio, which requires its parameter."""

    type: str = ""
    resources: tuple[ResourceSpec, ...] = CPU_AND_MEMORY
    requested_to_capacity_ratio: RequestedToCapacityRatioParam | None = None


class NodeResourcesFitArgs(Struct):
    """ignored_resources, ignored_resource_groups: extended resources not to filter, by name or group (before "/")."""

    ignored_resources: tuple[str, ...] = ()
    ignored_resource_groups: tuple[str, ...] = ()
    scoring_strategy: ScoringStrategy = ScoringStrategy(type="LeastAllocated")


class ResourcesArgs(Struct):
    """The scored resources with their weights."""

    resources: tuple[ResourceSpec, ...] = CPU_AND_MEMORY


class NodeAffinityArgs(Struct):
    """added_affinity: for every pod of the profile, in addition to the pod's own."""

    added_affinity: NodeAffinity | None = None


class PodTopologySpreadArgs(Struct):
    """Constraints for pods that have none: defaulting_type System (built in) or List (default_constraints)."""

    default_constraints: tuple[TopologySpreadConstraint, ...] = ()
    defaulting_type: str = "System"


class InterPodAffinityArgs(Struct):
    """hard_pod_affinity_weight: weight (0 to 100) of required affinity of existing pods in scores."""

    hard_pod_affinity_weight: int = 1
    ignore_preferred_terms_of_existing_pods: bool = False


STORAGE_CAPACITY_SHAPE = (UtilizationShapePoint(score=10), UtilizationShapePoint(utilization=100))
"""Prefers nodes where the pod's volumes leave the most capacity."""


class VolumeBindingArgs(Struct):
    """bind_timeout_seconds: timeout of PreBind. shape: score by utilization of storage capacity; () for the default.

    A shape needs the feature gate StorageCapacityScoring.
    """

    bind_timeout_seconds: int = 600
    shape: tuple[UtilizationShapePoint, ...] = ()


class DefaultPreemptionArgs(Struct):
    """Number of candidate nodes to find: a percentage of all nodes, but at least the absolute number."""

    min_candidate_nodes_percentage: int = 10
    min_candidate_nodes_absolute: int = 100


class DynamicResourcesArgs(Struct):
    """None: not set, which is the default if a gate of dynamic resource allocation is off."""

    filter_timeout: str | None = None
    binding_timeout: str | None = None


def with_defaults(args: Struct, gates: FeatureGates) -> Struct:
    """Replace empty or zero fields by their defaults, and write durations as Go does.

    Source: pkg/scheduler/apis/config/v1/defaults.go.
    """
    match args:
        case NodeResourcesFitArgs():
            strategy = args.scoring_strategy
            strategy = msgspec.structs.replace(strategy, resources=_with_weights(strategy.resources))
            return msgspec.structs.replace(args, scoring_strategy=strategy)
        case ResourcesArgs() | RequestedToCapacityRatioArgs():
            return msgspec.structs.replace(args, resources=_with_weights(args.resources))
        case VolumeBindingArgs(shape=()) if gates.enabled("StorageCapacityScoring"):
            return msgspec.structs.replace(args, shape=STORAGE_CAPACITY_SHAPE)
        case PodTopologySpreadArgs(defaulting_type=""):
            return msgspec.structs.replace(args, defaulting_type="System")
        case DynamicResourcesArgs():
            return DynamicResourcesArgs(
                filter_timeout=_duration(args.filter_timeout, "10s" if has_filter_timeout(gates) else None),
                binding_timeout=_duration(args.binding_timeout, "10m0s" if has_binding_timeout(gates) else None),
            )
    return args


def has_filter_timeout(gates: FeatureGates) -> bool:
    """Return True if DynamicResources may have a filterTimeout."""
    return gates.enabled("DRASchedulerFilterTimeout")


def has_binding_timeout(gates: FeatureGates) -> bool:
    """Return True if DynamicResources may have a bindingTimeout."""
    return gates.enabled("DRADeviceBindingConditions") and gates.enabled("DRAResourceClaimDeviceStatus")


def _duration(text: str | None, default: str | None) -> str | None:
    """Return a duration as Go writes it."""
    return default if text is None else duration_text(parse_duration_seconds(text))


def _with_weights(resources: tuple[ResourceSpec, ...]) -> tuple[ResourceSpec, ...]:
    return tuple(
        ResourceSpec(name=resource.name, weight=resource.weight or 1) for resource in resources or CPU_AND_MEMORY
    )


class RequestedToCapacityRatioArgs(Struct):
    """shape: score by utilization; resources: the scored resources."""

    shape: tuple[UtilizationShapePoint, ...] = ()
    resources: tuple[ResourceSpec, ...] = CPU_AND_MEMORY


class NodeLabelArgs(Struct):
    """Labels that a node must have or must not have, to be feasible or (`*_preference`) to be preferred."""

    present_labels: tuple[str, ...] = ()
    absent_labels: tuple[str, ...] = ()
    present_labels_preference: tuple[str, ...] = ()
    absent_labels_preference: tuple[str, ...] = ()


class ServiceAffinityArgs(Struct):
    """affinity_labels: nodes of a service's pods have the same values; anti_affinity_labels_preference: spread over."""

    affinity_labels: tuple[str, ...] = ()
    anti_affinity_labels_preference: tuple[str, ...] = ()


class NoArgs(Struct):
    """Arguments of a plugin that takes none."""


class VolumeCountArgs(Struct):
    """max_volumes: disks per node; None: that of the node or the cloud."""

    max_volumes: int | None = None


ARGS_TYPES: Mapping[str, type[Struct]] = {
    "SchedulingGates": NoArgs,
    "PrioritySort": NoArgs,
    "NodeUnschedulable": NoArgs,
    "NodeName": NoArgs,
    "TaintToleration": NoArgs,
    "NodeAffinity": NodeAffinityArgs,
    "NodePorts": NoArgs,
    "NodeResourcesFit": NodeResourcesFitArgs,
    "NodeResourcesBalancedAllocation": ResourcesArgs,
    "ImageLocality": NoArgs,
    "DefaultBinder": NoArgs,
    "NodeDeclaredFeatures": NoArgs,
    "InterPodAffinity": InterPodAffinityArgs,
    "DefaultPreemption": DefaultPreemptionArgs,
    "DynamicResources": DynamicResourcesArgs,
    "VolumeRestrictions": NoArgs,
    "NodeVolumeLimits": NoArgs,
    "VolumeBinding": VolumeBindingArgs,
    "VolumeZone": NoArgs,
    "PodTopologySpread": PodTopologySpreadArgs,
    "GangScheduling": NoArgs,
    "TopologyPlacementGenerator": NoArgs,
    "PodGroupPodsCount": NoArgs,
    # Plugins of older schedulers, for Policy documents.
    "SelectorSpread": NoArgs,
    "NodePreferAvoidPods": NoArgs,
    "NodeResourcesLeastAllocated": ResourcesArgs,
    "NodeResourcesMostAllocated": ResourcesArgs,
    "RequestedToCapacityRatio": RequestedToCapacityRatioArgs,
    "BalancedResourceAllocation": NoArgs,
    "NodeLabel": NodeLabelArgs,
    "ServiceAffinity": ServiceAffinityArgs,
    "MaxEBSVolumeCount": VolumeCountArgs,
    "MaxGCEPDVolumeCount": VolumeCountArgs,
    "MaxAzureDiskVolumeCount": VolumeCountArgs,
    "MaxCinderVolumeCount": VolumeCountArgs,
    "NodeMemoryPressure": NoArgs,
    "NodeDiskPressure": NoArgs,
    "NodePIDPressure": NoArgs,
}
"""Plugin name -> the type of its arguments, for every in-tree plugin and those of `legacy_policy`."""
