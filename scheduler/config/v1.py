"""KubeSchedulerConfiguration (kubescheduler.config.k8s.io/v1): decode, apply defaults, validate, and encode again.

Unknown fields are errors, as in kube-scheduler. kubeloop's own settings are under the key `kubeloop`.
Sources: k8s.io/kube-scheduler/config/v1, pkg/scheduler/apis/config/v1/{defaults,default_plugins}.go of v1.36.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec
from msgspec.structs import replace

from kubeloop.kube import yaml
from kubeloop.kube.feature_gates import DEFAULT_FEATURE_GATES, FeatureGates
from kubeloop.kube.objects.api_types import JSONValue
from kubeloop.kube.user_error import UserError
from kubeloop.kube.values.durations import duration_text, parse_duration_seconds
from kubeloop.scheduler.config.defaults import (
    API_VERSION,
    DEFAULT_MAX_BINDINGS_IN_FLIGHT,
    DEFAULT_PARALLELISM,
    DEFAULT_POD_INITIAL_BACKOFF_SECONDS,
    DEFAULT_POD_MAX_BACKOFF_SECONDS,
    DEFAULT_SCHEDULER_NAME,
    default_args,
    default_plugins,
)
from kubeloop.scheduler.config.extenders import extender_configuration, with_ignored_resources
from kubeloop.scheduler.config.plugin_args import ARGS_TYPES, with_defaults
from kubeloop.scheduler.config.plugin_config import args_type, decode_plugin_args
from kubeloop.scheduler.config.plugin_sets import PluginRef, PluginSet, merge_plugin_sets
from kubeloop.scheduler.config.strict_decoding import StrictStruct, decode_strictly
from kubeloop.scheduler.config.types import (
    EXTENSION_POINTS,
    ClientConnectionConfiguration,
    ExtenderConfiguration,
    ExtenderFields,
    LeaderElectionConfiguration,
    Profile,
    SchedulerConfiguration,
    TieBreak,
)
from kubeloop.scheduler.config.validation import validate_configuration

KIND = "KubeSchedulerConfiguration"
_MULTI_POINT = "multiPoint"
_REMOVED_VERSIONS = ("v1alpha1", "v1alpha2", "v1beta1", "v1beta2", "v1beta3")


class _PluginSet(StrictStruct, frozen=True):
    enabled: tuple[PluginRef, ...] = ()
    disabled: tuple[PluginRef, ...] = ()


_Plugins = msgspec.defstruct(
    "_Plugins",
    [(point, _PluginSet, _PluginSet()) for point in (_MULTI_POINT, *EXTENSION_POINTS)],
    bases=(StrictStruct,),
    frozen=True,
)


class _PluginConfig(StrictStruct, frozen=True):
    name: str = ""
    args: dict[str, JSONValue] = msgspec.field(default_factory=dict)


class _Profile(StrictStruct, frozen=True):
    scheduler_name: str | None = None
    percentage_of_nodes_to_score: int | None = None
    plugins: _Plugins = msgspec.field(default_factory=_Plugins)  # type: ignore[valid-type]
    plugin_config: tuple[_PluginConfig, ...] = ()


class _Extender(ExtenderFields, frozen=True):
    enable_https: bool = msgspec.field(default=False, name="enableHTTPS")
    http_timeout: str = "5s"


class _LeaderElection(StrictStruct, frozen=True):
    leader_elect: bool = True
    lease_duration: str = ""
    renew_deadline: str = ""
    retry_period: str = ""
    resource_lock: str = ""
    resource_name: str = ""
    resource_namespace: str = ""


class _ClientConnection(StrictStruct, frozen=True):
    kubeconfig: str = ""
    accept_content_types: str = ""
    content_type: str = ""
    qps: float = 0.0
    burst: int = 0


class KubeloopSettings(StrictStruct, frozen=True):
    """kubeloop's own settings; see SchedulerConfiguration."""

    tie_break: TieBreak = "random"
    assumed_pod_ttl_seconds: float | None = msgspec.field(default=None, name="assumedPodTTLSeconds")
    class_cache: bool = True
    max_bindings_in_flight: int = DEFAULT_MAX_BINDINGS_IN_FLIGHT
    check_all_filters: bool = False


class _Configuration(StrictStruct, frozen=True):
    api_version: str
    kind: str
    parallelism: int = DEFAULT_PARALLELISM
    leader_election: _LeaderElection | None = None
    client_connection: _ClientConnection | None = None
    enable_profiling: bool = True
    enable_contention_profiling: bool = True
    percentage_of_nodes_to_score: int | None = None
    pod_initial_backoff_seconds: int = DEFAULT_POD_INITIAL_BACKOFF_SECONDS
    pod_max_backoff_seconds: int = DEFAULT_POD_MAX_BACKOFF_SECONDS
    profiles: tuple[_Profile, ...] = ()
    extenders: tuple[_Extender, ...] = ()
    delay_cache_until_active: bool = False
    kubeloop: KubeloopSettings = KubeloopSettings()


def decode_v1(document: Mapping[str, JSONValue], gates: FeatureGates) -> SchedulerConfiguration:
    """Return the configuration of a KubeSchedulerConfiguration in plain JSON. Raises UserError."""
    _check_version(document)
    v1 = decode_strictly(
        document,
        _Configuration,
        name="the scheduler configuration",
        hint="see the reference of kube-scheduler configuration",
    )
    v1_profiles = v1.profiles or (_Profile(),)
    profiles = tuple(
        _profile(profile, f"profiles[{index}]", gates, alone=len(v1_profiles) == 1)
        for index, profile in enumerate(v1_profiles)
    )
    config = SchedulerConfiguration(
        profiles=profiles,
        extenders=tuple(map(extender_configuration, v1.extenders)),
        percentage_of_nodes_to_score=v1.percentage_of_nodes_to_score,
        pod_initial_backoff_seconds=v1.pod_initial_backoff_seconds,
        pod_max_backoff_seconds=v1.pod_max_backoff_seconds,
        parallelism=v1.parallelism,
        client_connection=_client_connection(v1.client_connection),
        leader_election=_leader_election(v1.leader_election),
    )
    config = with_kubeloop_settings(config, v1.kubeloop)
    errors = [*validate_configuration(config), *_duplicate_plugin_configs(v1), *_ignored_resources_errors(config)]
    if errors:
        raise UserError("; ".join(dict.fromkeys(map(str, errors))), hint="correct the scheduler configuration")
    return config


def with_kubeloop_settings(config: SchedulerConfiguration, settings: KubeloopSettings) -> SchedulerConfiguration:
    """Return the configuration with the settings of the section `kubeloop` of its document."""
    profiles = config.profiles
    if settings.check_all_filters:
        profiles = tuple(replace(profile, check_all_filters=True) for profile in profiles)
    return replace(
        config,
        profiles=profiles,
        tie_break=settings.tie_break,
        assumed_pod_ttl_seconds=settings.assumed_pod_ttl_seconds,
        class_cache=settings.class_cache,
        max_bindings_in_flight=settings.max_bindings_in_flight,
    )


def _leader_election(v1: _LeaderElection | None) -> LeaderElectionConfiguration | None:
    """Return the leader election settings. Zero and "" stand for the default, as in Kubernetes. Raises UserError."""
    if v1 is None:
        return None
    defaults = LeaderElectionConfiguration()
    return LeaderElectionConfiguration(
        leader_elect=v1.leader_elect,
        lease_duration_seconds=_seconds(v1.lease_duration) or defaults.lease_duration_seconds,
        renew_deadline_seconds=_seconds(v1.renew_deadline) or defaults.renew_deadline_seconds,
        retry_period_seconds=_seconds(v1.retry_period) or defaults.retry_period_seconds,
        resource_lock=v1.resource_lock or defaults.resource_lock,
        resource_name=v1.resource_name or defaults.resource_name,
        resource_namespace=v1.resource_namespace or defaults.resource_namespace,
    )


def _client_connection(v1: _ClientConnection | None) -> ClientConnectionConfiguration | None:
    if v1 is None:
        return None
    defaults = ClientConnectionConfiguration()
    return ClientConnectionConfiguration(
        kubeconfig=v1.kubeconfig, qps=v1.qps or defaults.qps, burst=v1.burst or defaults.burst
    )


def _seconds(text: str) -> float:
    return parse_duration_seconds(text) if text else 0.0


def _check_version(document: Mapping[str, JSONValue]) -> None:
    group, _, version = str(document.get("apiVersion", "")).rpartition("/")
    kind = document.get("kind")
    if kind != KIND or group != "kubescheduler.config.k8s.io":
        raise UserError(
            f'no kind "{kind}" is registered for version "{document.get("apiVersion", "")}"',
            hint=f"write apiVersion: {API_VERSION} and kind: {KIND}",
        )
    if version != "v1":
        removed = version in _REMOVED_VERSIONS
        text = f'no kind "{KIND}" is registered for version "{group}/{version}"'
        raise UserError(text, hint=f"{'it was removed; ' if removed else ''}use {API_VERSION}")


def _profile(v1: _Profile, path: str, gates: FeatureGates, *, alone: bool) -> Profile:
    name = v1.scheduler_name
    if name is None:
        name = DEFAULT_SCHEDULER_NAME if alone else ""
    points = {point: _plugin_set(getattr(v1.plugins, point)) for point in EXTENSION_POINTS}
    multi_point = _plugin_set(getattr(v1.plugins, _MULTI_POINT))
    profile = Profile(
        scheduler_name=name,
        multi_point=merge_plugin_sets(PluginSet(default_plugins(gates)), multi_point),
        points={point: plugin_set for point, plugin_set in points.items() if plugin_set.enabled or plugin_set.disabled},
        percentage_of_nodes_to_score=v1.percentage_of_nodes_to_score,
    )
    enabled = {ref.name for ref in profile.enabled()}
    args = {
        entry.name: decode_plugin_args(
            entry.name,
            entry.args,
            f"{path}.pluginConfig[{index}].args",
            gates,
            enabled=entry.name in enabled,
        )
        for index, entry in enumerate(v1.plugin_config)
    }
    return replace(profile, args=default_args(gates) | args)


def _plugin_set(v1: _PluginSet) -> PluginSet:
    return PluginSet(v1.enabled, tuple(plugin.name for plugin in v1.disabled))


def _duplicate_plugin_configs(v1: _Configuration) -> list[str]:
    errors = []
    for number, profile in enumerate(v1.profiles):
        seen: set[str] = set()
        for index, entry in enumerate(profile.plugin_config):
            if entry.name in seen:
                errors.append(f'profiles[{number}].pluginConfig[{index}]: Duplicate value: "{entry.name}"')
            seen.add(entry.name)
    return errors


def _ignored_resources_errors(config: SchedulerConfiguration) -> list[str]:
    """Return an error if extenders have ignored resources, and a profile no NodeResourcesFit that could ignore them."""
    managed = (resource for extender in config.extenders for resource in extender.managed_resources)
    if not any(resource.ignored_by_scheduler for resource in managed):
        return []
    return [
        f"profiles[{number}]: can't find NodeResourcesFitArgs in plugin config"
        for number, profile in enumerate(config.profiles)
        if "NodeResourcesFit" not in {ref.name for ref in profile.enabled()} | profile.args.keys()
    ]


# --- Encoding ------------------------------------------------------------------------------------------------------


def configuration_document(config: SchedulerConfiguration) -> dict[str, JSONValue]:
    """Return `config` as a complete KubeSchedulerConfiguration, for --write-config-to and /configz."""
    document: dict[str, JSONValue] = {
        "apiVersion": API_VERSION,
        "kind": KIND,
        "parallelism": config.parallelism,
        "podInitialBackoffSeconds": int(config.pod_initial_backoff_seconds),
        "podMaxBackoffSeconds": int(config.pod_max_backoff_seconds),
        "profiles": [
            _profile_document(with_ignored_resources(profile, config.extenders)) for profile in config.profiles
        ],
        "kubeloop": {
            "tieBreak": config.tie_break,
            "classCache": config.class_cache,
            "maxBindingsInFlight": config.max_bindings_in_flight,
        },
    }
    if config.percentage_of_nodes_to_score is not None:
        document["percentageOfNodesToScore"] = config.percentage_of_nodes_to_score
    if config.assumed_pod_ttl_seconds is not None:
        document["kubeloop"]["assumedPodTTLSeconds"] = config.assumed_pod_ttl_seconds
    if any(profile.check_all_filters for profile in config.profiles):
        document["kubeloop"]["checkAllFilters"] = True
    if config.extenders:
        document["extenders"] = [_extender_document(extender) for extender in config.extenders]
    if config.client_connection is not None:
        document["clientConnection"] = msgspec.structs.asdict(config.client_connection)
    if config.leader_election is not None:
        election = config.leader_election
        document["leaderElection"] = {
            "leaderElect": election.leader_elect,
            "leaseDuration": duration_text(election.lease_duration_seconds),
            "renewDeadline": duration_text(election.renew_deadline_seconds),
            "retryPeriod": duration_text(election.retry_period_seconds),
            "resourceLock": election.resource_lock,
            "resourceName": election.resource_name,
            "resourceNamespace": election.resource_namespace,
        }
    return document


def configuration_text(config: SchedulerConfiguration) -> str:
    """Return `config` as a complete KubeSchedulerConfiguration in YAML."""
    return yaml.write(configuration_document(config))


def _profile_document(profile: Profile) -> dict[str, JSONValue]:
    """Return the profile as kube-scheduler prints it: merged multiPoint plugins, every other point as configured."""
    points = {_MULTI_POINT: profile.multi_point} | {
        point: profile.points.get(point, PluginSet()) for point in EXTENSION_POINTS
    }
    document: dict[str, JSONValue] = {
        "schedulerName": profile.scheduler_name,
        "plugins": {point: _plugin_set_document(plugin_set) for point, plugin_set in points.items()},
    }
    if profile.percentage_of_nodes_to_score is not None:
        document["percentageOfNodesToScore"] = profile.percentage_of_nodes_to_score
    configs = []
    for name in sorted({ref.name for ref in profile.enabled()}):
        args = profile.args.get(name)
        if args is None:
            type_ = args_type(name)
            if type_ is None or not msgspec.structs.fields(type_):
                continue
            args = with_defaults(type_(), DEFAULT_FEATURE_GATES)
        entry: dict[str, JSONValue] = {"name": name}
        if isinstance(args, msgspec.Struct):
            in_tree = {"apiVersion": API_VERSION, "kind": f"{name}Args"} if name in ARGS_TYPES else {}
            entry["args"] = in_tree | _to_json(args)
        elif args:
            entry["args"] = dict(args)
        configs.append(entry)
    if configs:
        document["pluginConfig"] = configs
    return document


def _to_json(value: Any) -> Any:
    """Return a Struct as JSON, including fields with default values, except empty lists."""
    if isinstance(value, msgspec.Struct):
        shown = {}
        for field in msgspec.structs.fields(value):
            member = getattr(value, field.name)
            if member not in (None, ()):
                shown[field.encode_name] = _to_json(member)
        return shown
    if isinstance(value, (list, tuple)):
        return [_to_json(member) for member in value]
    return value


def _plugin_set_document(plugin_set: PluginSet) -> dict[str, JSONValue]:
    document: dict[str, JSONValue] = {}
    if plugin_set.enabled:
        document["enabled"] = [msgspec.to_builtins(ref) for ref in plugin_set.enabled]
    if plugin_set.disabled:
        document["disabled"] = [{"name": name} for name in plugin_set.disabled]
    return document


def _extender_document(extender: ExtenderConfiguration) -> dict[str, JSONValue]:
    document: dict[str, JSONValue] = msgspec.json.decode(msgspec.json.encode(extender))
    document["httpTimeout"] = duration_text(document.pop("httpTimeoutSeconds"))
    tls = document["tlsConfig"]
    if tls is not None and tls["keyData"]:
        tls["keyData"] = "(redacted)"
    return {key: value for key, value in document.items() if value not in (None, "", 0, False, [])}
