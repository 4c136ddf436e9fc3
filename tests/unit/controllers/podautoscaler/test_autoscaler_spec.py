"""Metrics and behavior of autoscalers."""

from __future__ import annotations

from typing import Any

import pytest

from kubeloop.controllers.podautoscaler.autoscaler_spec import behavior_of, metric_specs, tolerances_of
from kubeloop.controllers.podautoscaler.replica_calculation import Tolerances
from kubeloop.kube.objects.api_types import HorizontalPodAutoscaler, convert


def autoscaler(**spec: Any) -> HorizontalPodAutoscaler:
    return convert(HorizontalPodAutoscaler, {"spec": spec})


def test_metrics_are_decoded_and_kept_as_json():
    body = {
        "type": "Pods",
        "pods": {"metric": {"name": "m", "selector": {}}, "target": {"type": "AverageValue", "averageValue": "1500m"}},
    }
    ((spec, json),) = metric_specs(autoscaler(metrics=[body]))
    assert json == body
    assert spec.pods is not None
    assert (spec.pods.metric.name, spec.pods.target.average_value_milli, spec.pods.target.value_milli) == (
        "m",
        1500,
        None,
    )


def test_rules_without_policy_selection_use_the_greatest_change():
    behavior = behavior_of(autoscaler(behavior={"scaleUp": {"stabilizationWindowSeconds": 30}}))
    assert behavior is not None
    assert (behavior.scale_up.stabilization_window_seconds, behavior.scale_up.select_policy) == (30, "Max")
    assert behavior.scale_down.stabilization_window_seconds is None


@pytest.mark.parametrize(
    ("behavior", "configurable", "expected"),
    [
        pytest.param(None, True, Tolerances(0.1, 0.1), id="no behavior"),
        pytest.param({"scaleUp": {"tolerance": "0.05"}}, True, Tolerances(0.1, 0.05), id="scale-up"),
        pytest.param({"scaleDown": {"tolerance": "500m"}}, True, Tolerances(0.5, 0.1), id="scale-down"),
        pytest.param({"scaleUp": {"tolerance": "0"}}, False, Tolerances(0.1, 0.1), id="gate off"),
    ],
)
def test_tolerances(behavior, configurable, expected):
    assert tolerances_of(behavior_of(autoscaler(behavior=behavior)), 0.1, configurable=configurable) == expected
