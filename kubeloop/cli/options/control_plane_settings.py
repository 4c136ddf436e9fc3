"""Settings of the control plane from the options of `kubeloop run` and `kubeloop up`."""

from __future__ import annotations

from kubeloop.cli.options.options import ControllerOptions, ProcessOptions
from kubeloop.kube.feature_gates import FeatureGates
from kubeloop.process.control_plane.control_plane import Settings
from kubeloop.process.control_plane.controller_selection import ControllerSelection
from kubeloop.scheduler.config.types import SchedulerConfiguration
from kubeloop.tracing.sampling.samplers import parse_tail_rules


def control_plane_settings(
    process: ProcessOptions,
    controllers: ControllerSelection,
    scheduler: SchedulerConfiguration,
    gates: FeatureGates,
    *,
    controller_options: ControllerOptions,
    development: bool = False,
) -> Settings:
    """Return the settings that the options of a process select. Raises UserError.

    development: True for a development cluster, which has one API server and at first no objects.
    """
    return Settings(
        controllers=controllers.built_in,
        custom_controllers=controllers.custom,
        controller_options=vars(controller_options),
        development=development,
        scheduler=scheduler,
        feature_gates=gates,
        trace_tail_rules=parse_tail_rules(process.trace_tail_sampling),
        trace_until_ready=process.trace_until == "ready",
        trace_annotate=process.trace_annotate,
    )
