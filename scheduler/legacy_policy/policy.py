"""Policy documents and algorithm providers: the older ways to configure a scheduler.

Both are translated to a profile of today's plugins. Source: pkg/scheduler/apis/config/legacy_types.go and
pkg/scheduler/framework/plugins/legacy_registry.go of v1.20; predicates of older versions are included.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import msgspec
from msgspec.structs import replace

from kubeloop.kube.feature_gates import DEFAULT_FEATURE_GATES, FeatureGates
from kubeloop.kube.objects.api_types import JSONValue
from kubeloop.kube.user_error import UserError
from kubeloop.kube.validation.field_errors import invalid
from kubeloop.scheduler.config.defaults import API_VERSION
from kubeloop.scheduler.config.extenders import extender_configuration
from kubeloop.scheduler.config.load import read_document
from kubeloop.scheduler.config.plugin_args import (
    ARGS_TYPES,
    CPU_AND_MEMORY,
    InterPodAffinityArgs,
    PodTopologySpreadArgs,
    RequestedToCapacityRatioArgs,
    ResourceSpec,
    UtilizationShapePoint,
)
from kubeloop.scheduler.config.plugin_config import decode_plugin_args
from kubeloop.scheduler.config.plugin_sets import PluginRef, PluginSet
from kubeloop.scheduler.config.strict_decoding import StrictStruct, decode_strictly
from kubeloop.scheduler.config.types import ExtenderFields, Profile, SchedulerConfiguration, default_configuration
from kubeloop.scheduler.config.v1 import KubeloopSettings, with_kubeloop_settings
from kubeloop.scheduler.config.validation import validate_args, validate_configuration

MAX_WEIGHT = 2**31 - 1  # v1.20 truncates greater ones to 32 bits
RATIO_PRIORITY = "RequestedToCapacityRatioPriority"
_API_VERSIONS = ("v1", API_VERSION)

# Predicate -> the plugins whose Filter replaces it, in the order in which filters run (predicateOrdering of v1.20).
PREDICATES: Mapping[str, tuple[str, ...]] = {
    "CheckNodeUnschedulable": ("NodeUnschedulable",),
    "GeneralPredicates": ("NodeResourcesFit", "NodeName", "NodePorts", "NodeAffinity"),
    "HostName": ("NodeName",),
    "PodFitsHost": ("NodeName",),
    "PodFitsHostPorts": ("NodePorts",),
    "PodFitsPorts": ("NodePorts",),
    "MatchNodeSelector": ("NodeAffinity",),
    "PodFitsResources": ("NodeResourcesFit",),
    "NoDiskConflict": ("VolumeRestrictions",),
    "PodToleratesNodeTaints": ("TaintToleration",),
    "CheckNodeCondition": ("NodeUnschedulable", "TaintToleration"),
    "MaxEBSVolumeCount": ("MaxEBSVolumeCount",),
    "MaxGCEPDVolumeCount": ("MaxGCEPDVolumeCount",),
    "MaxCSIVolumeCountPred": ("NodeVolumeLimits",),
    "MaxAzureDiskVolumeCount": ("MaxAzureDiskVolumeCount",),
    "MaxCinderVolumeCount": ("MaxCinderVolumeCount",),
    "CheckVolumeBinding": ("VolumeBinding",),
    "NoVolumeNodeConflict": ("VolumeBinding",),
    "NoVolumeZoneConflict": ("VolumeZone",),
    "CheckNodeMemoryPressure": ("NodeMemoryPressure",),
    "CheckNodePIDPressure": ("NodePIDPressure",),
    "CheckNodeDiskPressure": ("NodeDiskPressure",),
    "EvenPodsSpread": ("PodTopologySpread",),
    "MatchInterPodAffinity": ("InterPodAffinity",),
}
_FILTERS = list(dict.fromkeys(plugin for plugins in PREDICATES.values() for plugin in plugins))
_CUSTOM_FILTERS_AT = _FILTERS.index("MaxEBSVolumeCount")
_FILTER_ORDER = (*_FILTERS[:_CUSTOM_FILTERS_AT], "NodeLabel", "ServiceAffinity", *_FILTERS[_CUSTOM_FILTERS_AT:])
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
    "LeastRequestedPriority": "NodeResourcesLeastAllocated",
    "MostRequestedPriority": "NodeResourcesMostAllocated",
    "RequestedToCapacityRatioPriority": "RequestedToCapacityRatio",
    "BalancedResourceAllocation": "BalancedResourceAllocation",
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


class _ArgumentResource(StrictStruct, frozen=True):
    name: str
    weight: int = 1


class _ShapePoint(StrictStruct, frozen=True):
    utilization: int = 0
    score: int = 0


class _RatioArguments(StrictStruct, frozen=True):
    shape: tuple[_ShapePoint, ...] = ()
    resources: tuple[_ArgumentResource, ...] = ()


class _ServiceAffinity(StrictStruct, frozen=True):
    labels: tuple[str, ...] = ()


class _LabelsPresence(StrictStruct, frozen=True):
    labels: tuple[str, ...] = ()
    presence: bool = False


class _ServiceAntiAffinity(StrictStruct, frozen=True):
    label: str = ""


class _LabelPreference(StrictStruct, frozen=True):
    label: str = ""
    presence: bool = False


class _PredicateArgument(StrictStruct, frozen=True):
    service_affinity: _ServiceAffinity | None = None
    labels_presence: _LabelsPresence | None = None


class _PriorityArgument(StrictStruct, frozen=True):
    service_anti_affinity: _ServiceAntiAffinity | None = None
    label_preference: _LabelPreference | None = None
    requested_to_capacity_ratio_arguments: _RatioArguments | None = None


class _Predicate(StrictStruct, frozen=True):
    name: str
    argument: _PredicateArgument | None = None


class _Priority(StrictStruct, frozen=True):
    name: str
    weight: int = 0
    argument: _PriorityArgument | None = None


class _LegacyExtender(ExtenderFields, frozen=True):
    enable_https: bool = msgspec.field(default=False, name="enableHttps")
    http_timeout: str | int = 0


class _Policy(StrictStruct, frozen=True):
    kind: str
    api_version: str = _API_VERSIONS[0]
    predicates: tuple[_Predicate, ...] | None = None
    priorities: tuple[_Priority, ...] | None = None
    extenders: tuple[_LegacyExtender, ...] = ()
    hard_pod_affinity_symmetric_weight: int = 0
    always_check_all_predicates: bool = False
    kubeloop: KubeloopSettings = KubeloopSettings()


@dataclass(slots=True)
class _Translation:
    """The plugins of a profile that is being translated, per extension point and in the order of the document."""

    filters: list[str] = field(default_factory=list)
    scores: dict[str, int] = field(default_factory=dict)
    args: dict[str, Any] = field(default_factory=dict)

    def add_to_args(self, plugin: str, name: str, labels: Sequence[str]) -> None:
        """Add labels to the list `name` of the arguments of NodeLabel or ServiceAffinity."""
        args = self.args.get(plugin) or ARGS_TYPES[plugin]()
        self.args[plugin] = replace(args, **{name: (*getattr(args, name), *labels)})


def provider_configuration(name: str, gates: FeatureGates = DEFAULT_FEATURE_GATES) -> SchedulerConfiguration:
    """Return the configuration of an algorithm provider. Raises UserError."""
    config = default_configuration(gates)
    if name == "DefaultProvider":
        return config
    if name == "ClusterAutoscalerProvider":
        (profile,) = config.profiles
        fit = decode_plugin_args("NodeResourcesFit", {"scoringStrategy": {"type": "MostAllocated"}}, "args")
        return replace(config, profiles=(replace(profile, args={**profile.args, "NodeResourcesFit": fit}),))
    raise UserError(
        f'algorithm provider "{name}" is not registered',
        hint="--algorithm-provider takes DefaultProvider or ClusterAutoscalerProvider",
    )


def decode_policy(document: Mapping[str, JSONValue]) -> SchedulerConfiguration:
    """Return the configuration of a Policy document. Raises UserError."""
    policy = decode_strictly(document, _Policy, name="the Policy", hint="see docs/scheduler.md, Legacy configuration")
    if policy.api_version not in _API_VERSIONS:
        raise UserError(
            f'apiVersion: no kind "Policy" is registered for version "{policy.api_version}"',
            hint=f"write apiVersion: {_API_VERSIONS[0]}",
        )
    translation = _Translation()
    # Spreads by the constraints of pods only: without constraints, SelectorSpreadPriority spreads.
    translation.args["PodTopologySpread"] = PodTopologySpreadArgs(defaulting_type="List")
    weight = policy.hard_pod_affinity_symmetric_weight
    if weight:  # 0 counts as unset
        translation.args["InterPodAffinity"] = InterPodAffinityArgs(hard_pod_affinity_weight=weight)
    errors: list[object] = [*_priority_errors(policy.priorities or ())]
    if not 0 <= weight <= 100:
        errors.append(invalid("hardPodAffinitySymmetricWeight", weight, "not in valid range [0-100]"))
    if errors:
        raise UserError("; ".join(map(str, errors)), hint="correct the Policy")
    _translate_predicates(policy.predicates, translation)
    _translate_priorities(policy.priorities, translation)
    for name in ("NodeLabel", "ServiceAffinity", "RequestedToCapacityRatio"):
        if name in translation.args:
            errors += validate_args(name, translation.args[name], name, DEFAULT_FEATURE_GATES)
    config = SchedulerConfiguration(
        profiles=(replace(_profile(translation), check_all_filters=policy.always_check_all_predicates),),
        extenders=tuple(map(extender_configuration, policy.extenders)),
    )
    config = with_kubeloop_settings(config, policy.kubeloop)
    errors += validate_configuration(config)
    if errors:
        raise UserError("; ".join(map(str, errors)), hint="correct the Policy")
    return config


POLICY_KIND = {"Policy": decode_policy}
"""For config.load: the decoder of Policy documents."""


def load_policy(text: str) -> SchedulerConfiguration:
    """Return the configuration of a Policy in YAML or JSON. Raises UserError, also for other documents."""
    document = read_document(text)
    if document.get("kind") != "Policy":
        raise UserError(f'kind: no Policy, but "{document.get("kind", "")}"', hint="write kind: Policy")
    return decode_policy(document)


def with_policy(
    config: SchedulerConfiguration, policy: SchedulerConfiguration, gates: FeatureGates = DEFAULT_FEATURE_GATES
) -> SchedulerConfiguration:
    """Return the configuration with the plugins and extenders of a decoded Policy in each of its profiles.

    Settings of the Policy's section `kubeloop` take precedence where they are not the defaults.

    gates: those with which `config` was read. Raises UserError if a profile has plugins of its own, as kube-scheduler
    v1.20.
    """
    (template,) = policy.profiles
    (default,) = default_configuration(gates).profiles
    for profile in config.profiles:
        own = (profile.multi_point, profile.points, profile.args)
        if own != (default.multi_point, default.points, default.args):
            raise UserError(
                f"profile {profile.scheduler_name!r}: using Plugins or PluginConfig and Policy simultaneously is not "
                "supported",
                hint="remove plugins and pluginConfig from the profile, or do not use the Policy",
            )
    defaults = SchedulerConfiguration()
    settings = {
        name: getattr(policy, name)
        for name in ("tie_break", "assumed_pod_ttl_seconds", "class_cache", "max_bindings_in_flight")
        if getattr(policy, name) != getattr(defaults, name)
    }
    return replace(
        config,
        **settings,
        extenders=policy.extenders,
        profiles=tuple(
            replace(
                template,
                scheduler_name=profile.scheduler_name,
                percentage_of_nodes_to_score=profile.percentage_of_nodes_to_score,
                check_all_filters=template.check_all_filters or profile.check_all_filters,
            )
            for profile in config.profiles
        ),
    )


def _translate_predicates(predicates: Sequence[_Predicate] | None, translation: _Translation) -> None:
    if predicates is None:
        predicates = [_Predicate(name=name) for name in DEFAULT_PREDICATES]
    plugins: list[str] = []
    for index, predicate in enumerate(predicates):
        plugins += _plugins_of(predicate, f"predicates[{index}]", translation)
    for name in MANDATORY_PREDICATES:
        plugins += PREDICATES[name]
    translation.filters += dict.fromkeys(plugins)


def _plugins_of(predicate: _Predicate, path: str, translation: _Translation) -> Sequence[str]:
    """Return the plugins of a predicate; one with an argument may have any name that is not predefined."""
    argument = _only_argument(predicate, path, "predicate")
    if argument is None:
        plugins = PREDICATES.get(predicate.name)
        if plugins is None:
            raise UserError(
                f"invalid configuration: predicate type not found for {predicate.name!r}",
                hint=f"there are {', '.join(PREDICATES)}; other names need an argument",
            )
        return plugins
    key, value = argument
    if predicate.name in PREDICATES:
        raise UserError(f"{path}.argument.{key}: {predicate.name} takes no argument", hint="use a name of your own")
    if isinstance(value, _ServiceAffinity):
        translation.add_to_args("ServiceAffinity", "affinity_labels", value.labels)
        return ("ServiceAffinity",)
    translation.add_to_args("NodeLabel", "present_labels" if value.presence else "absent_labels", value.labels)
    return ("NodeLabel",)


def _only_argument(item: _Predicate | _Priority, path: str, kind: str) -> tuple[str, Any] | None:
    """Return (key, value) of the item's argument. Raises UserError if it has none or more than one of them."""
    if item.argument is None:
        return None
    arguments = [
        (member.encode_name, value)
        for member in msgspec.structs.fields(item.argument)
        if (value := getattr(item.argument, member.name)) is not None
    ]
    if len(arguments) != 1:
        raise UserError(
            f"{path}.argument: exactly 1 {kind} argument is required, numArgs: {len(arguments)}, {kind} {item.name!r}",
            hint=f"it may have {', '.join(member.encode_name for member in msgspec.structs.fields(item.argument))}",
        )
    return arguments[0]


def _translate_priorities(priorities: Sequence[_Priority] | None, translation: _Translation) -> None:
    if priorities is None:
        priorities = [_Priority(name=name, weight=weight) for name, weight in DEFAULT_PRIORITIES.items()]
    for index, priority in enumerate(priorities):
        argument = _only_argument(priority, f"priorities[{index}]", "priority")
        weight = priority.weight
        if argument is None:
            plugin = _predefined_plugin(priority)
        elif isinstance(argument[1], _RatioArguments):
            plugin = PRIORITIES[RATIO_PRIORITY]
            translation.args[plugin] = _ratio_args(argument[1])
        else:
            # Each adds a label to the same plugin, and its weight, which is the same for all of them.
            plugin = _add_label_preference(argument[1], translation)
            weight += translation.scores.get(plugin, 0)
        if plugin:
            translation.scores[plugin] = weight  # the last one of several priorities for a plugin


def _add_label_preference(argument: _ServiceAntiAffinity | _LabelPreference, translation: _Translation) -> str:
    """Add the label to the arguments of its plugin. Return the plugin."""
    if isinstance(argument, _ServiceAntiAffinity):
        translation.add_to_args("ServiceAffinity", "anti_affinity_labels_preference", (argument.label,))
        return "ServiceAffinity"
    name = "present_labels_preference" if argument.presence else "absent_labels_preference"
    translation.add_to_args("NodeLabel", name, (argument.label,))
    return "NodeLabel"


def _priority_errors(priorities: Sequence[_Priority]) -> Iterator[str]:
    """Yield what is wrong with weights, and with priorities that have arguments. Source: ValidatePolicy of v1.20."""
    first_custom: dict[str, _Priority] = {}  # by key of the argument
    for index, priority in enumerate(priorities):
        path = f"priorities[{index}]"
        if not 0 < priority.weight <= MAX_WEIGHT:
            yield f"priority {priority.name} should have a positive weight applied to it or it has overflown"
        argument = _only_argument(priority, path, "priority")
        if argument is None:
            continue
        key, value = argument
        ratio = isinstance(value, _RatioArguments)
        first = first_custom.setdefault(key, priority)
        if priority.name in PRIORITIES and not (ratio and priority.name == RATIO_PRIORITY):
            yield f"{path}.argument.{key}: {priority.name} takes no such argument"
        elif first is priority:
            continue
        elif ratio:
            yield (
                f"{path}.argument.{key}: priority {priority.name!r} redeclares custom priority "
                f"'RequestedToCapacityRatio', from: {first.name!r}"
            )
        elif first.weight != priority.weight:
            yield f"{path}.weight: {key} priority {priority.name!r} has a different weight with {first.name!r}"


def _predefined_plugin(priority: _Priority) -> str:
    """Return the plugin of a priority without an argument; "" for none."""
    name = priority.name
    if name not in PRIORITIES:
        raise UserError(
            f"invalid configuration: priority type not found for {name!r}",
            hint=f"there are {', '.join(PRIORITIES)}; other names need an argument",
        )
    if name == RATIO_PRIORITY:
        raise UserError(
            f"{name} needs requestedToCapacityRatioArguments",
            hint="give it a shape: a list of utilization and score",
        )
    return PRIORITIES[name]


def _ratio_args(ratio: _RatioArguments) -> RequestedToCapacityRatioArgs:
    return RequestedToCapacityRatioArgs(
        shape=tuple(UtilizationShapePoint(utilization=point.utilization, score=point.score) for point in ratio.shape),
        resources=tuple(ResourceSpec(name=item.name, weight=item.weight or 1) for item in ratio.resources)
        or CPU_AND_MEMORY,
    )


def _profile(translation: _Translation) -> Profile:
    filters = sorted(translation.filters, key=_FILTER_ORDER.index)
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
