"""Settings of the control plane from options."""

import pytest

from kubeloop.cli.options.control_plane_settings import control_plane_settings
from kubeloop.cli.options.options import ControllerOptions, ProcessOptions
from kubeloop.kube.feature_gates import DEFAULT_FEATURE_GATES, FeatureGates
from kubeloop.kube.user_error import UserError
from kubeloop.process.control_plane.controller_selection import ControllerSelection
from kubeloop.process.control_plane.controller_table import default_options
from kubeloop.scheduler.config.types import SchedulerConfiguration


def test_options_become_settings():
    process = ProcessOptions(trace_until="ready", trace_annotate=True, trace_tail_sampling="failed")
    settings = control_plane_settings(
        process,
        ControllerSelection(frozenset({"deployment"})),
        SchedulerConfiguration(),
        FeatureGates({"MemoryQoS": True}),
        controller_options=ControllerOptions(concurrent_deployment_syncs=7),
        development=True,
    )
    assert settings.controllers == {"deployment"}
    assert settings.controller_options == {**default_options(), "concurrent_deployment_syncs": 7}
    assert settings.trace_until_ready
    assert settings.trace_annotate
    assert settings.feature_gates.enabled("MemoryQoS")
    assert settings.development


def test_invalid_trace_rule_is_rejected():
    with pytest.raises(UserError, match="sometimes"):
        control_plane_settings(
            ProcessOptions(trace_tail_sampling="sometimes"),
            ControllerSelection(frozenset()),
            SchedulerConfiguration(),
            DEFAULT_FEATURE_GATES,
            controller_options=ControllerOptions(),
        )
