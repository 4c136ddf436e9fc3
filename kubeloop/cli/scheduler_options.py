"""The scheduler's configuration on the command line: a file, and options that override it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import msgspec

from kubeloop.kube.errors import UserError
from kubeloop.scheduler.config.types import SchedulerConfiguration


def read_scheduler_configuration(
    path: Path | None, *, algorithm_provider: str | None = None, scheduler_name: str | None = None
) -> SchedulerConfiguration:
    """Return the configuration of --config (KubeSchedulerConfiguration or Policy), or kube-scheduler's defaults.

    algorithm_provider selects a built-in configuration instead. scheduler_name renames the only profile. Raises
    UserError for a file that cannot be read or is invalid, or whose plugins cannot be used as configured.
    """
    config = _configuration(path, algorithm_provider=algorithm_provider)
    if path is not None:
        _check_plugins(config, path)
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


def _check_plugins(config: SchedulerConfiguration, path: Path) -> None:
    from kubeloop.scheduler.framework.profile_plugins import check_profiles
    from kubeloop.scheduler.plugins.registry import IN_TREE_PLUGINS

    try:
        check_profiles(config.profiles, IN_TREE_PLUGINS)
    except UserError as error:
        raise UserError(f"{path}: {error}", hint=error.hint) from None


def _configuration(path: Path | None, *, algorithm_provider: str | None) -> SchedulerConfiguration:
    if path is not None and algorithm_provider is not None:
        raise UserError(
            "--algorithm-provider and --config are mutually exclusive",
            hint="remove one; in the file, NodeResourcesFit with the scoringStrategy MostAllocated in its pluginConfig "
            "corresponds to ClusterAutoscalerProvider",
        )
    config = SchedulerConfiguration()
    if algorithm_provider is not None:
        from kubeloop.scheduler.config.policy import provider_configuration

        config = provider_configuration(algorithm_provider)
    elif path is not None:
        from kubeloop.scheduler.config.load import load_configuration

        try:
            config = load_configuration(path.read_text())
        except (OSError, UnicodeDecodeError) as error:
            problem = getattr(error, "strerror", None) or "not text"
            raise UserError(
                f"cannot read {path}: {problem}", hint="--config takes a KubeSchedulerConfiguration or a Policy"
            ) from None
        except UserError as error:
            raise UserError(f"{path}: {error}", hint=error.hint) from None
    return config


def options_from_configuration(path: Path | None, *, algorithm_provider: str | None = None) -> dict[str, Any]:
    """Return options of `kubeloop run` that the configuration file sets: client connection and leader election.

    Raises UserError for a file that cannot be read or is invalid.
    """
    config = _configuration(path, algorithm_provider=algorithm_provider)
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
