"""Policy documents and algorithm providers: the older ways to configure a scheduler.

Both are translated to a profile of today's plugins. Source: pkg/scheduler/apis/config/legacy_types.go and
pkg/scheduler/framework/plugins/legacy_registry.go of v1.20; predicates of older versions are included.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import msgspec
from msgspec.structs import replace

from kubeloop.kube.errors import UserError
from kubeloop.kube.objects.api_types import JSONValue, without_nulls
from kubeloop.scheduler.config.defaults import DEFAULT_PLUGINS
from kubeloop.scheduler.config.extenders import extender_configuration
from kubeloop.scheduler.config.plugin_config import decode_plugin_args
from kubeloop.scheduler.config.plugin_sets import PluginRef, PluginSet
from kubeloop.scheduler.config.types import (
    Profile,
    SchedulerConfiguration,
)
from kubeloop.scheduler.config.validation import validate_configuration

MAX_WEIGHT = (2**31 - 1) // 100

# Predicate -> the plugins whose Filter replaces it.
PREDICATES: Mapping[str, tuple[str, ...]] = {
    "GeneralPredicates": ("NodeResourcesFit", "NodeName", "NodePorts", "NodeAffinity"),
    "PodFitsResources": ("NodeResourcesFit",),
    "PodFitsHost": ("NodeName",),
    "HostName": ("NodeName",),
    "PodFitsHostPorts": ("NodePorts",),
    "PodFitsPorts": ("NodePorts",),
    "MatchNodeSelector": ("NodeAffinity",),
    "PodToleratesNodeTaints": ("TaintToleration",),
    "CheckNodeUnschedulable": ("NodeUnschedulable",),
    "CheckNodeCondition": ("NodeUnschedulable", "TaintToleration"),
    "CheckNodeMemoryPressure": ("NodeMemoryPressure",),
    "CheckNodeDiskPressure": ("NodeDiskPressure",),
    "CheckNodePIDPressure": ("NodePIDPressure",),
    "NoDiskConflict": ("VolumeRestrictions",),
    "NoVolumeZoneConflict": ("VolumeZone",),
    "NoVolumeNodeConflict": ("VolumeBinding",),
    "CheckVolumeBinding": ("VolumeBinding",),
    # Disks of these clouds are CSI volumes today, limited by their drivers.
    "MaxCSIVolumeCountPred": ("NodeVolumeLimits",),
    "MaxEBSVolumeCount": ("NodeVolumeLimits",),
    "MaxGCEPDVolumeCount": ("NodeVolumeLimits",),
    "MaxAzureDiskVolumeCount": ("NodeVolumeLimits",),
    "MaxCinderVolumeCount": ("NodeVolumeLimits",),
    "MatchInterPodAffinity": ("InterPodAffinity",),
    "EvenPodsSpread": ("PodTopologySpread",),
}
MANDATORY_PREDICATES = ("CheckNodeUnschedulable", "PodToleratesNodeTaints")
DEFAULT_PREDICATES = (
    "NoVolumeZoneConflict",
    "MaxEBSVolumeCount",
    "MaxGCEPDVolumeCount",
    "MaxAzureDiskVolumeCount",
    "MaxCSIVolumeCountPred",
    "MatchInterPodAffinity",
    "NoDiskConflict",
    "GeneralPredicates",
    "PodToleratesNodeTaints",
    "CheckVolumeBinding",
    "CheckNodeUnschedulable",
    "EvenPodsSpread",
)

# Priority -> the plugin whose Score replaces it; "" for one without effect.
PRIORITIES: Mapping[str, str] = {
    "EqualPriority": "",
    "LeastRequestedPriority": "NodeResourcesFit",
    "MostRequestedPriority": "NodeResourcesFit",
    "RequestedToCapacityRatioPriority": "NodeResourcesFit",
    "BalancedResourceAllocation": "NodeResourcesBalancedAllocation",
    "SelectorSpreadPriority": "SelectorSpread",
    "ServiceSpreadingPriority": "SelectorSpread",
    "InterPodAffinityPriority": "InterPodAffinity",
    "NodeAffinityPriority": "NodeAffinity",
    "TaintTolerationPriority": "TaintToleration",
    "ImageLocalityPriority": "ImageLocality",
    "NodePreferAvoidPodsPriority": "NodePreferAvoidPods",
    "EvenPodsSpreadPriority": "PodTopologySpread",
}
DEFAULT_PRIORITIES = {
    "SelectorSpreadPriority": 1,
    "InterPodAffinityPriority": 1,
    "LeastRequestedPriority": 1,
    "BalancedResourceAllocation": 1,
    "NodePreferAvoidPodsPriority": 10000,
    "NodeAffinityPriority": 1,
    "TaintTolerationPriority": 1,
    "ImageLocalityPriority": 1,
    "EvenPodsSpreadPriority": 2,
}
_STRATEGIES = {
    "LeastRequestedPriority": "LeastAllocated",
    "MostRequestedPriority": "MostAllocated",
    "RequestedToCapacityRatioPriority": "RequestedToCapacityRatio",
}
# If several of them are configured: NodeResourcesFit has one strategy only.
_PLUGIN_OF_STRATEGY = {
    "LeastRequestedPriority": "NodeResourcesLeastAllocated",
    "MostRequestedPriority": "NodeResourcesMostAllocated",
    "RequestedToCapacityRatioPriority": "RequestedToCapacityRatio",
}


class _Lenient(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """A type of the document."""


class _ArgumentResource(_Lenient, frozen=True):
    name: str
    weight: int = 1


class _ShapePoint(_Lenient, frozen=True):
    utilization: int = 0
    score: int = 0


class _RatioArguments(_Lenient, frozen=True):
    shape: tuple[_ShapePoint, ...] = ()
    resources: tuple[_ArgumentResource, ...] = ()


class _Arguments(_Lenient, frozen=True):
    requested_to_capacity_ratio_arguments: _RatioArguments | None = None
    service_affinity: JSONValue = None
    labels_presence: JSONValue = None
    service_anti_affinity: JSONValue = None
    label_preference: JSONValue = None


class _Predicate(_Lenient, frozen=True):
    name: str
    argument: _Arguments | None = None


class _Priority(_Lenient, frozen=True):
    name: str
    weight: int = 0
    argument: _Arguments | None = None


class _TLS(_Lenient, frozen=True):
    insecure: bool = False
    server_name: str = ""
    cert_file: str = ""
    key_file: str = ""
    ca_file: str = msgspec.field(default="", name="caFile")
    cert_data: str = ""
    key_data: str = ""
    ca_data: str = msgspec.field(default="", name="caData")


class _ManagedResource(_Lenient, frozen=True):
    name: str
    ignored_by_scheduler: bool = False


class _LegacyExtender(_Lenient, frozen=True):
    url_prefix: str = ""
    filter_verb: str = ""
    preempt_verb: str = ""
    prioritize_verb: str = ""
    weight: int = 0
    bind_verb: str = ""
    enable_https: bool = msgspec.field(default=False, name="enableHttps")
    tls_config: _TLS | None = None
    http_timeout: str | int = 0
    node_cache_capable: bool = False
    managed_resources: tuple[_ManagedResource, ...] = ()
    ignorable: bool = False


class _Policy(_Lenient, frozen=True):
    predicates: tuple[_Predicate, ...] | None = None
    priorities: tuple[_Priority, ...] | None = None
    extenders: tuple[_LegacyExtender, ...] = ()
    hard_pod_affinity_symmetric_weight: int = 1
    always_check_all_predicates: bool = False


@dataclass(slots=True)
class _Translation:
    """The plugins of a profile that is being translated, per extension point and in the order of the document."""

    filters: list[str] = field(default_factory=list)
    scores: dict[str, int] = field(default_factory=dict)
    args: dict[str, Any] = field(default_factory=dict)


def provider_configuration(name: str) -> SchedulerConfiguration:
    """Return the configuration of an algorithm provider. Raises UserError."""
    if name == "DefaultProvider":
        return SchedulerConfiguration()
    if name == "ClusterAutoscalerProvider":
        fit = decode_plugin_args("NodeResourcesFit", {"scoringStrategy": {"type": "MostAllocated"}}, "args")
        return SchedulerConfiguration(profiles=(Profile(args={"NodeResourcesFit": fit}),))
    raise UserError(
        f'algorithm provider "{name}" is not registered', hint="there are DefaultProvider and ClusterAutoscalerProvider"
    )


def decode_policy(document: Mapping[str, JSONValue]) -> SchedulerConfiguration:
    """Return the configuration of a Policy document. Raises UserError."""
    try:
        policy = msgspec.convert(without_nulls(dict(document)), _Policy)
    except msgspec.ValidationError as error:
        raise UserError(f"cannot read the Policy: {error}", hint="see its predicates and priorities") from error
    weight = policy.hard_pod_affinity_symmetric_weight
    if not 0 <= weight <= 100:
        raise UserError(
            f"invalid hardPodAffinitySymmetricWeight: {weight}, must be in the range [0-100]", hint="its default is 1"
        )
    translation = _Translation()
    _translate_predicates(policy.predicates, translation)
    _translate_priorities(policy.priorities, translation)
    affinity_args = {"hardPodAffinityWeight": weight}
    translation.args["InterPodAffinity"] = decode_plugin_args("InterPodAffinity", affinity_args, "args")
    config = SchedulerConfiguration(
        profiles=(replace(_profile(translation), check_all_filters=policy.always_check_all_predicates),),
        extenders=tuple(extender_configuration(extender) for extender in policy.extenders),
    )
    errors = validate_configuration(config)
    if errors:
        raise UserError("; ".join(map(str, errors)), hint="correct the Policy")
    return config


def _translate_predicates(predicates: Sequence[_Predicate] | None, translation: _Translation) -> None:
    names = list(DEFAULT_PREDICATES) if predicates is None else [predicate.name for predicate in predicates]
    for name in (*names, *MANDATORY_PREDICATES):
        if name not in PREDICATES:
            raise UserError(
                f"invalid configuration: predicate type not found for {name!r}",
                hint=f"there are {', '.join(PREDICATES)}",
            )
        translation.filters += [plugin for plugin in PREDICATES[name] if plugin not in translation.filters]


def _translate_priorities(priorities: Sequence[_Priority] | None, translation: _Translation) -> None:
    if priorities is None:
        priorities = [_Priority(name=name, weight=weight) for name, weight in DEFAULT_PRIORITIES.items()]
    strategies = {priority.name for priority in priorities} & _STRATEGIES.keys()
    for priority in priorities:
        if priority.name not in PRIORITIES:
            raise UserError(
                f"invalid configuration: priority type not found for {priority.name!r}",
                hint=f"there are {', '.join(PRIORITIES)}",
            )
        if not 0 < priority.weight <= MAX_WEIGHT:
            raise UserError(
                f"priority {priority.name} should have a positive weight applied to it or it has overflown",
                hint="give it a weight of 1 or more",
            )
        plugin = PRIORITIES[priority.name]
        if priority.name in _STRATEGIES:
            if len(strategies) > 1:
                plugin = _PLUGIN_OF_STRATEGY[priority.name]
            translation.args[plugin] = _fit_args(priority)
        if plugin:
            translation.scores[plugin] = translation.scores.get(plugin, 0) + priority.weight


def _fit_args(priority: _Priority) -> Any:
    scoring: dict[str, JSONValue] = {"type": _STRATEGIES[priority.name]}
    if priority.name == "RequestedToCapacityRatioPriority":
        argument = priority.argument
        ratio = argument.requested_to_capacity_ratio_arguments if argument is not None else None
        if ratio is None:
            raise UserError(
                "RequestedToCapacityRatioPriority needs requestedToCapacityRatioArguments",
                hint="give it a shape: a list of utilization and score",
            )
        shape = [{"utilization": point.utilization, "score": point.score} for point in ratio.shape]
        scoring["requestedToCapacityRatio"] = {"shape": shape}
        if ratio.resources:
            scoring["resources"] = [{"name": resource.name, "weight": resource.weight} for resource in ratio.resources]
    return decode_plugin_args("NodeResourcesFit", {"scoringStrategy": scoring}, "priorities")


def _profile(translation: _Translation) -> Profile:
    """Return the profile. Filters run in the default order, so that the first reason reported is the usual one."""
    order = [ref.name for ref in DEFAULT_PLUGINS]
    filters = sorted(translation.filters, key=lambda name: order.index(name) if name in order else len(order))
    scores_only = tuple(name for name in translation.scores if name not in filters)
    filters_only = tuple(name for name in filters if name not in translation.scores)
    names = ("SchedulingGates", "PrioritySort", *filters, *scores_only, "DefaultPreemption", "DefaultBinder")
    return Profile(
        # No default plugin is added when the written configuration is read again.
        multi_point=PluginSet(tuple(PluginRef(name, translation.scores.get(name, 0)) for name in names), ("*",)),
        points={
            "preFilter": PluginSet(disabled=scores_only),
            "filter": PluginSet(disabled=scores_only),
            "preScore": PluginSet(disabled=filters_only),
            "score": PluginSet(disabled=filters_only),
        },
        args=translation.args,
    )
