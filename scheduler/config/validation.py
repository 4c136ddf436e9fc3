"""Validate the scheduler configuration and plugin arguments, with kube-scheduler's messages.

Source: pkg/scheduler/apis/config/validation of v1.36.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from kubeloop.kube.feature_gates import FeatureGates
from kubeloop.kube.selectors.node_selectors import NodeSelectorMatcher, NodeSelectorTermMatcher
from kubeloop.kube.validation.field_errors import (
    FieldError,
    forbidden,
    invalid,
    not_supported,
    required,
)
from kubeloop.kube.validation.name_checks import qualified_name
from kubeloop.kube.values.durations import duration_text, parse_duration_seconds
from kubeloop.scheduler.config.defaults import API_VERSION
from kubeloop.scheduler.config.plugin_args import has_binding_timeout, has_filter_timeout
from kubeloop.scheduler.config.plugin_sets import PluginRef, PluginSet
from kubeloop.scheduler.config.types import (
    ExtenderConfiguration,
    LeaderElectionConfiguration,
    Profile,
    SchedulerConfiguration,
)

_REMOVED_PLUGINS = ("AzureDiskLimits", "CinderLimits", "EBSLimits", "GCEPDLimits")
_STRATEGIES = ("LeastAllocated", "MostAllocated", "RequestedToCapacityRatio")


def _duplicate(field: str, value: str) -> FieldError:
    return FieldError("FieldValueDuplicate", field, f'Duplicate value: "{value}"')


def validate_configuration(config: SchedulerConfiguration) -> list[FieldError]:
    """Return all errors except those of plugin arguments (validate_args)."""
    errors: list[FieldError] = []
    if config.client_connection is not None and config.client_connection.burst < 0:
        errors.append(invalid("clientConnection.burst", config.client_connection.burst, "must be non-negative"))
    if config.leader_election is not None and config.leader_election.leader_elect:
        errors += _leader_election_errors(config.leader_election)
    if config.parallelism <= 0:
        errors.append(invalid("parallelism", config.parallelism, "should be an integer value greater than zero"))
    first_of: dict[str, int] = {}
    for index, profile in enumerate(config.profiles):
        path = f"profiles[{index}]"
        errors += _profile_errors(path, profile)
        if profile.scheduler_name in first_of:
            errors.append(
                _duplicate(f"{path}.schedulerName", f"profiles[{first_of[profile.scheduler_name]}].schedulerName")
            )
        first_of[profile.scheduler_name] = index
    errors += _queue_sort_errors(config.profiles)
    errors += _percentage_errors("percentageOfNodesToScore", config.percentage_of_nodes_to_score)
    initial, longest = config.pod_initial_backoff_seconds, config.pod_max_backoff_seconds
    if initial <= 0:
        errors.append(invalid("podInitialBackoffSeconds", initial, "must be greater than 0"))
    if longest < initial:
        errors.append(
            invalid("podMaxBackoffSeconds", longest, "must be greater than or equal to PodInitialBackoffSeconds")
        )
    errors += _extender_errors(config.extenders)
    if config.max_bindings_in_flight <= 0:
        errors.append(invalid("kubeloop.maxBindingsInFlight", config.max_bindings_in_flight, "must be greater than 0"))
    ttl = config.assumed_pod_ttl_seconds
    if ttl is not None and ttl <= 0:
        errors.append(invalid("kubeloop.assumedPodTTLSeconds", ttl, "must be greater than 0"))
    return errors


def _leader_election_errors(election: LeaderElectionConfiguration) -> list[FieldError]:
    """Return the errors of leaderElection. Sources: k8s.io/component-base/config/validation, kube-scheduler."""
    errors = []
    for name, seconds in (
        ("leaseDuration", election.lease_duration_seconds),
        ("renewDeadline", election.renew_deadline_seconds),
        ("retryPeriod", election.retry_period_seconds),
    ):
        if seconds <= 0:
            errors.append(invalid(f"leaderElection.{name}", duration_text(seconds), "must be greater than zero"))
    if election.lease_duration_seconds <= election.renew_deadline_seconds:
        shown = duration_text(election.renew_deadline_seconds)
        errors.append(invalid("leaderElection.leaseDuration", shown, "must be greater than `RenewDeadline`"))
    if election.resource_lock != "leases":
        problem = 'resourceLock value must be "leases"'
        errors.append(invalid("leaderElection.resourceLock", election.resource_lock, problem))
    return errors


def _profile_errors(path: str, profile: Profile) -> list[FieldError]:
    errors = [] if profile.scheduler_name else [required(f"{path}.schedulerName")]
    errors += _percentage_errors(f"{path}.percentageOfNodesToScore", profile.percentage_of_nodes_to_score)
    for point, plugin_set in (("multiPoint", profile.multi_point), *profile.points.items()):
        for index, ref in enumerate(plugin_set.enabled):
            if ref.name in _REMOVED_PLUGINS:
                errors.append(_removed(f"{path}.plugins.{point}.enabled[{index}]", ref.name))
        errors += _enabled_twice(f"{path}.plugins.{point}", plugin_set.enabled)
    errors += [_removed(f"{path}.pluginConfig", name) for name in profile.args if name in _REMOVED_PLUGINS]
    return errors


def _removed(field: str, name: str) -> FieldError:
    version = f'"{API_VERSION}"'
    return invalid(field, name, f"was invalid in version {version} (KubeSchedulerConfiguration is version {version})")


def _enabled_twice(path: str, refs: Sequence[PluginRef]) -> list[FieldError]:
    seen: set[str] = set()
    errors = []
    for index, ref in enumerate(refs):
        if ref.name in seen:
            errors.append(_duplicate(f"{path}.enabled[{index}]", ref.name))
        seen.add(ref.name)
    return errors


def _percentage_errors(path: str, percentage: int | None) -> list[FieldError]:
    if percentage is None or 0 <= percentage <= 100:
        return []
    return [invalid(path, percentage, "not in valid range [0-100]")]


def _queue_sort_errors(profiles: Sequence[Profile]) -> list[FieldError]:
    if not profiles:
        return [required("profiles")]
    first = profiles[0].points.get("queueSort", PluginSet())
    errors = []
    if len(first.enabled) > 1:
        errors.append(
            invalid(
                "profiles[0].plugins.queueSort.Enabled", len(first.enabled), "only one queue sort plugin can be enabled"
            )
        )
    for index, profile in enumerate(profiles[1:], 1):
        plugin_set = profile.points.get("queueSort", PluginSet())
        if plugin_set != first:
            shown = {"enabled": [r.name for r in plugin_set.enabled], "disabled": list(plugin_set.disabled)}
            errors.append(invalid(f"profiles[{index}].plugins.queueSort", shown, "must be the same for all profiles"))
    return errors


def _extender_errors(extenders: Sequence[ExtenderConfiguration]) -> list[FieldError]:
    errors: list[FieldError] = []
    managed: set[str] = set()
    for index, extender in enumerate(extenders):
        path = f"extenders[{index}]"
        if extender.prioritize_verb and extender.weight <= 0:
            errors.append(invalid(f"{path}.weight", extender.weight, "must have a positive weight applied to it"))
        for number, resource in enumerate(extender.managed_resources):
            field = f"{path}.managedResources[{number}].name"
            wrong = qualified_name(resource.name)
            errors += [invalid(field, resource.name, problem) for problem in wrong]
            if not wrong and not _is_extended(resource.name):
                errors.append(invalid(field, resource.name, "is an invalid extended resource name"))
            if resource.name in managed:
                errors.append(invalid(field, resource.name, "duplicate extender managed resource name"))
            managed.add(resource.name)
    binders = sum(bool(extender.bind_verb) for extender in extenders)
    if binders > 1:
        value = f"found {binders} extenders implementing bind"
        errors.append(invalid("extenders", value, "only one extender can implement bind"))
    return errors


def _is_extended(name: str) -> bool:
    return "/" in name and "kubernetes.io/" not in name and not name.startswith("requests.")


# --- Arguments of plugins ------------------------------------------------------------------------------------------


def validate_args(name: str, args: Any, path: str, gates: FeatureGates) -> Sequence[FieldError | str]:
    """Return the errors in the arguments of an in-tree plugin."""
    if name == "VolumeBinding":
        return _volume_binding(args, path, allow_shape=gates.enabled("StorageCapacityScoring"))
    if name == "DynamicResources":
        return _dynamic_resources(args, path, gates)
    check = _ARGS.get(name)
    return check(args, path) if check is not None else []


def _default_preemption(args: Any, path: str) -> list[FieldError]:
    percentage, absolute = args.min_candidate_nodes_percentage, args.min_candidate_nodes_absolute
    percentage_path, absolute_path = f"{path}.minCandidateNodesPercentage", f"{path}.minCandidateNodesAbsolute"
    errors = []
    if not 0 <= percentage <= 100:
        errors.append(invalid(percentage_path, percentage, "not in valid range [0, 100]"))
    if absolute < 0:
        errors.append(invalid(absolute_path, absolute, "not in valid range [0, inf)"))
    if percentage == 0 and absolute == 0:
        both = "cannot be zero at the same time as"
        errors.append(invalid(percentage_path, percentage, f"{both} minCandidateNodesAbsolute"))
        errors.append(invalid(absolute_path, absolute, f"{both} minCandidateNodesPercentage"))
    return errors


def _inter_pod_affinity(args: Any, path: str) -> list[FieldError]:
    weight = args.hard_pod_affinity_weight
    if 0 <= weight <= 100:
        return []
    return [invalid(f"{path}.hardPodAffinityWeight", weight, "not in valid range [0, 100]")]


def _node_affinity(args: Any, path: str) -> list[str]:
    added = args.added_affinity
    errors: list[str] = []
    if added is not None and added.required is not None:
        at = f"{path}.addedAffinity.requiredDuringSchedulingIgnoredDuringExecution"
        errors += NodeSelectorMatcher(added.required, at).errors
    for index, term in enumerate(added.preferred if added is not None else ()):
        at = f"{path}.addedAffinity.preferredDuringSchedulingIgnoredDuringExecution[{index}]"
        preference = term.preference
        if term.weight and (preference.match_expressions or preference.match_fields):
            errors += NodeSelectorTermMatcher(preference, at).errors
    return errors


def _pod_topology_spread(args: Any, path: str) -> list[FieldError]:
    errors = []
    defaulting, constraints = args.defaulting_type, args.default_constraints
    if defaulting not in ("System", "List"):
        errors.append(not_supported(f"{path}.defaultingType", defaulting, ("System", "List")))
    elif defaulting == "System" and constraints:
        errors.append(invalid(f"{path}.defaultingType", defaulting, "when .defaultConstraints are not empty"))
    seen: set[tuple[str, str]] = set()
    for index, constraint in enumerate(constraints):
        at = f"{path}.defaultConstraints[{index}]"
        if constraint.max_skew <= 0:
            errors.append(invalid(f"{at}.maxSkew", constraint.max_skew, "not in valid range (0, inf)"))
        if not constraint.topology_key:
            errors.append(required(f"{at}.topologyKey", "can not be empty"))
        else:
            errors += [
                invalid(f"{at}.topologyKey", constraint.topology_key, problem)
                for problem in qualified_name(constraint.topology_key)
            ]
        if not constraint.when_unsatisfiable:
            errors.append(required(f"{at}.whenUnsatisfiable", "can not be empty"))
        elif constraint.when_unsatisfiable not in ("DoNotSchedule", "ScheduleAnyway"):
            errors.append(
                not_supported(
                    f"{at}.whenUnsatisfiable", constraint.when_unsatisfiable, ("DoNotSchedule", "ScheduleAnyway")
                )
            )
        if constraint.label_selector is not None:
            errors.append(
                forbidden(f"{at}.labelSelector", "constraint must not define a selector, as they deduced for each pod")
            )
        key = constraint.topology_key, constraint.when_unsatisfiable
        if key in seen:
            errors.append(_duplicate(at, f"{{{key[0]}, {key[1]}}}"))
        seen.add(key)
    return errors


def _shape_errors(shape: Sequence[Any], path: str) -> list[FieldError]:
    if not shape:
        return [required(path, "at least one point must be specified")]
    errors = []
    for index in range(1, len(shape)):
        if shape[index - 1].utilization >= shape[index].utilization:
            text = "values must be sorted in increasing order"
            errors.append(invalid(f"{path}[{index}].utilization", shape[index].utilization, text))
            break
    for index, point in enumerate(shape):
        if not 0 <= point.utilization <= 100:
            errors.append(invalid(f"{path}[{index}].utilization", point.utilization, "not in valid range [0, 100]"))
        if not 0 <= point.score <= 10:
            errors.append(invalid(f"{path}[{index}].score", point.score, "not in valid range [0, 10]"))
    return errors


def _node_resources_fit(args: Any, path: str) -> list[FieldError]:
    errors = []
    for index, name in enumerate(args.ignored_resources):
        errors += [invalid(f"{path}.ignoredResources[{index}]", name, problem) for problem in qualified_name(name)]
    for index, group in enumerate(args.ignored_resource_groups):
        at = f"{path}.ignoredResourceGroups[{index}]"
        if "/" in group:
            errors.append(invalid(at, group, "resource group name can't contain '/'"))
        errors += [invalid(at, group, problem) for problem in qualified_name(group)]
    strategy, at = args.scoring_strategy, f"{path}.scoringStrategy"
    if strategy.type not in _STRATEGIES:
        errors.append(not_supported(f"{at}.type", strategy.type, _STRATEGIES))
    errors += _resource_weights(strategy, at)
    ratio = strategy.requested_to_capacity_ratio
    if ratio is not None:
        errors += _shape_errors(ratio.shape, f"{at}.shape")
    elif strategy.type == "RequestedToCapacityRatio":  # kube-scheduler crashes here
        rule = "must be specified when type is RequestedToCapacityRatio"
        errors.append(required(f"{at}.requestedToCapacityRatio", rule))
    return errors


def _resource_weights(args: Any, path: str) -> list[FieldError]:
    return [
        invalid(
            f"{path}.resources[{index}].weight",
            resource.weight,
            f"resource weight of {resource.name} not in valid range (0, 100]",
        )
        for index, resource in enumerate(args.resources)
        if not 0 < resource.weight <= 100
    ]


def _requested_to_capacity_ratio(args: Any, path: str) -> list[FieldError]:
    errors = _shape_errors(args.shape, f"{path}.shape")
    for index, resource in enumerate(args.resources):
        if resource.weight < 1:
            errors.append(invalid(f"{path}.resources[{index}].weight", resource.weight, "must not be less than 1"))
    return errors


def _balanced_allocation(args: Any, path: str) -> list[FieldError]:
    errors = []
    seen: set[str] = set()
    for index, resource in enumerate(args.resources):
        if resource.name in seen:
            errors.append(_duplicate(f"{path}.resources[{index}].name", resource.name))
        seen.add(resource.name)
        if resource.weight != 1:
            errors.append(invalid(f"{path}.resources[{index}].weight", resource.weight, "must be 1"))
    return errors


def _volume_binding(args: Any, path: str, *, allow_shape: bool) -> list[FieldError]:
    errors = []
    if args.bind_timeout_seconds < 0:
        text = "invalid BindTimeoutSeconds, should not be a negative value"
        errors.append(invalid(f"{path}.bindTimeoutSeconds", args.bind_timeout_seconds, text))
    if allow_shape:
        errors += _shape_errors(args.shape, f"{path}.shape")
    elif args.shape:
        shown = [{"Utilization": point.utilization, "Score": point.score} for point in args.shape]
        text = "unexpected field `shape`, remove it or turn on the feature gate StorageCapacityScoring"
        errors.append(invalid(f"{path}.shape", shown, text))
    return errors


def _dynamic_resources(args: Any, path: str, gates: FeatureGates) -> list[FieldError]:
    errors, filter_timeout, binding_timeout = [], args.filter_timeout, args.binding_timeout
    if filter_timeout is not None:
        if not has_filter_timeout(gates):
            detail = "DRASchedulingFilterTimeout feature gate is disabled"
            errors.append(forbidden(f"{path}.filterTimeout", detail))
        elif parse_duration_seconds(filter_timeout) < 0:
            errors.append(invalid(f"{path}.filterTimeout", filter_timeout, "must be zero or positive"))
    if binding_timeout is not None:
        if not has_binding_timeout(gates):
            detail = "DRADeviceBindingConditions or DRAResourceClaimDeviceStatus feature gate is disabled"
            errors.append(forbidden(f"{path}.bindingTimeout", detail))
        elif parse_duration_seconds(binding_timeout) < 1:
            errors.append(invalid(f"{path}.bindingTimeout", binding_timeout, "must be at least 1 second"))
    return errors


def _node_label(args: Any, path: str) -> list[FieldError]:
    pairs = (
        ("presentLabels", args.present_labels, "absentLabels", args.absent_labels),
        (
            "presentLabelsPreference",
            args.present_labels_preference,
            "absentLabelsPreference",
            args.absent_labels_preference,
        ),
    )
    return [
        invalid(f"{path}.{absent}", label, f"is also in {present}")
        for present, present_labels, absent, absent_labels in pairs
        for label in sorted(set(present_labels) & set(absent_labels))
    ]


_ARGS: Mapping[str, Callable[[Any, str], Sequence[FieldError | str]]] = {
    "DefaultPreemption": _default_preemption,
    "InterPodAffinity": _inter_pod_affinity,
    "NodeAffinity": _node_affinity,
    "NodeLabel": _node_label,
    "NodeResourcesBalancedAllocation": _balanced_allocation,
    "NodeResourcesFit": _node_resources_fit,
    "NodeResourcesLeastAllocated": _resource_weights,
    "NodeResourcesMostAllocated": _resource_weights,
    "RequestedToCapacityRatio": _requested_to_capacity_ratio,
    "PodTopologySpread": _pod_topology_spread,
}
