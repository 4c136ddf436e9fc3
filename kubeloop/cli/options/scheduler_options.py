"""The scheduler's configuration on the command line: a file, and options that override it."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import msgspec

from kubeloop.kube.errors import ApiError, ServerUnreachable
from kubeloop.kube.feature_gates import DEFAULT_FEATURE_GATES, FeatureGates
from kubeloop.kube.objects.resources import CONFIG_MAPS
from kubeloop.kube.user_error import UserError, read_text
from kubeloop.scheduler.config.types import SchedulerConfiguration, default_configuration

if TYPE_CHECKING:
    from kubeloop.kube.client.api_client import ApiClient

POLICY_KEY = "policy.cfg"


class PolicyText(NamedTuple):
    """A Policy document. source: its file or ConfigMap, for errors."""

    source: str
    text: str


def read_scheduler_configuration(
    path: Path | None,
    *,
    algorithm_provider: str | None = None,
    scheduler_name: str | None = None,
    policy: PolicyText | None = None,
    tie_break: str | None = None,
    gates: FeatureGates = DEFAULT_FEATURE_GATES,
) -> SchedulerConfiguration:
    """Return the configuration of --config (KubeSchedulerConfiguration or Policy), or kube-scheduler's defaults.

    algorithm_provider selects a built-in configuration instead. policy: applied to every profile of the configuration.
    tie_break replaces that of the file. scheduler_name renames the only profile. Raises UserError for a file that
    cannot be read or is invalid, or whose plugins or certificates cannot be used.
    """
    config = _configuration(path, algorithm_provider, gates)
    if policy is not None:
        config = _with_policy(config, policy, algorithm_provider, gates)
    if max_volumes := os.environ.get("KUBE_MAX_PD_VOLS"):
        from kubeloop.scheduler.legacy_policy.volume_limits import with_max_volumes

        config = with_max_volumes(config, max_volumes)
    if path is not None:
        _check_plugins_and_certificates(config, path)
    if tie_break is not None:
        config = msgspec.structs.replace(config, tie_break=tie_break)
    if scheduler_name is None:
        return config
    if not scheduler_name:
        raise UserError("--scheduler-name is empty", hint="pods name it in spec.schedulerName")
    if len(config.profiles) != 1:
        raise UserError(
            f"--scheduler-name with {len(config.profiles)} profiles in {path}", hint="name the profiles in the file"
        )
    profile = msgspec.structs.replace(config.profiles[0], scheduler_name=scheduler_name)
    return msgspec.structs.replace(config, profiles=(profile,))


def _with_policy(
    config: SchedulerConfiguration, policy: PolicyText, algorithm_provider: str | None, gates: FeatureGates
) -> SchedulerConfiguration:
    from kubeloop.scheduler.legacy_policy.policy import load_policy, with_policy

    if algorithm_provider is not None:
        raise UserError("--algorithm-provider and a Policy are mutually exclusive", hint="remove one")
    try:
        return with_policy(config, load_policy(policy.text), gates)
    except UserError as error:
        raise UserError(f"{policy.source}: {error}", hint=error.hint) from None


def read_policy_file(path: Path) -> PolicyText:
    """Return the Policy in the file of --policy-config-file. Raises UserError."""
    return PolicyText(f"--policy-config-file {path}", read_text(path, hint="--policy-config-file takes a Policy"))


async def read_policy_config_map(client: ApiClient, namespace: str, name: str) -> PolicyText:
    """Return the Policy under the key policy.cfg of a ConfigMap. Raises UserError."""
    source = f"ConfigMap {namespace}/{name}"
    try:
        config_map = await client.get(CONFIG_MAPS, name, namespace)
    except (ApiError, ServerUnreachable) as error:
        raise UserError(
            f"couldn't get policy config map {namespace}/{name}: {error}", hint="see --policy-configmap"
        ) from error
    text = (config_map.get("data") or {}).get(POLICY_KEY)
    if text is None:
        raise UserError(
            f'{source}: missing policy config map value at key "{POLICY_KEY}"', hint="the Policy is under that key"
        )
    return PolicyText(source, text)


def _check_plugins_and_certificates(config: SchedulerConfiguration, path: Path) -> None:
    from kubeloop.process.control_plane.scheduler_plugins import plugins_for
    from kubeloop.scheduler.framework.profile_plugins import check_profiles

    try:
        check_profiles(config.profiles, plugins_for(config.profiles))
        if config.extenders:
            from kubeloop.scheduler.extenders.extender import tls_context

            for extender in config.extenders:
                tls_context(extender)
    except UserError as error:
        raise UserError(f"--config {path}: {error}", hint=error.hint) from None


def _configuration(path: Path | None, algorithm_provider: str | None, gates: FeatureGates) -> SchedulerConfiguration:
    if path is not None and algorithm_provider is not None:
        raise UserError(
            "--algorithm-provider and --config are mutually exclusive",
            hint="remove one; in the file, NodeResourcesFit with the scoringStrategy MostAllocated in its pluginConfig "
            "corresponds to ClusterAutoscalerProvider",
        )
    config = default_configuration(gates)
    if algorithm_provider is not None:
        from kubeloop.scheduler.legacy_policy.policy import provider_configuration

        config = provider_configuration(algorithm_provider, gates)
    elif path is not None:
        from kubeloop.scheduler.config.load import load_configuration
        from kubeloop.scheduler.legacy_policy.policy import POLICY_KIND

        text = read_text(path, hint="--config takes a KubeSchedulerConfiguration or a Policy")
        try:
            config = load_configuration(text, gates, POLICY_KIND)
        except UserError as error:
            raise UserError(f"--config {path}: {error}", hint=error.hint) from None
    return config


def options_from_configuration(
    path: Path | None, *, algorithm_provider: str | None = None, gates: FeatureGates = DEFAULT_FEATURE_GATES
) -> dict[str, Any]:
    """Return options of `kubeloop run` that the configuration file sets: client connection and leader election.

    Raises UserError for a file that cannot be read or is invalid.
    """
    config = _configuration(path, algorithm_provider, gates)
    options: dict[str, Any] = {}
    connection, election = config.client_connection, config.leader_election
    if connection is not None:
        options |= {"kube_api_qps": connection.qps, "kube_api_burst": connection.burst}
        if connection.kubeconfig:
            options["kubeconfig"] = Path(connection.kubeconfig)
    if election is not None:
        options |= {
            "leader_elect": election.leader_elect,
            "leader_elect_resource_namespace": election.resource_namespace,
            "leader_elect_resource_name": election.resource_name,
            "leader_elect_lease_duration": election.lease_duration_seconds,
            "leader_elect_renew_deadline": election.renew_deadline_seconds,
            "leader_elect_retry_period": election.retry_period_seconds,
        }
    return options


def write_scheduler_configuration(config: SchedulerConfiguration, path: Path) -> None:
    """Write the complete configuration, defaults included, for --write-config-to. Raises UserError."""
    from kubeloop.scheduler.config.v1 import configuration_text

    try:
        path.write_text(configuration_text(config))
    except OSError as error:
        raise UserError(f"cannot write {path}: {error.strerror}", hint="--write-config-to FILE") from None
