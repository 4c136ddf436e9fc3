"""Settings of the control plane from the options of `kubeloop run` and `kubeloop up`."""

from __future__ import annotations

from typing import TYPE_CHECKING

from kubeloop.kube.feature_gates import FeatureGates
from kubeloop.process.control_plane import Settings
from kubeloop.scheduler.config.types import SchedulerConfiguration
from kubeloop.tracing.sampling.samplers import parse_tail_rules

if TYPE_CHECKING:
    from kubeloop.cli.options import ProcessOptions


def control_plane_settings(
    process: ProcessOptions,
    controllers: frozenset[str],
    scheduler: SchedulerConfiguration,
    gates: FeatureGates,
    *,
    namespace_grace_seconds: float = 5.0,
) -> Settings:
    """Return the settings that the options of a process select. Raises UserError."""
    return Settings(
        controllers=controllers,
        concurrent_deployment_syncs=process.concurrent_deployment_syncs,
        concurrent_replicaset_syncs=process.concurrent_replicaset_syncs,
        concurrent_rc_syncs=process.concurrent_rc_syncs,
        namespace_grace_seconds=namespace_grace_seconds,
        scheduler=scheduler,
        feature_gates=gates,
        trace_tail_rules=parse_tail_rules(process.trace_tail_sampling),
        trace_until_ready=process.trace_until == "ready",
        trace_annotate=process.trace_annotate,
    )
