"""Validation of PodDisruptionBudgets."""

from __future__ import annotations

import pytest

from kubeloop.devcluster.kinds.policy.pod_disruption_budget import (
    STRATEGY,
    validate_pod_disruption_budget,
    validate_pod_disruption_budget_status_update,
)
from kubeloop.kube.json_object import JSON
from support.objects.validation_causes import validator_causes


@pytest.mark.parametrize(
    ("spec", "causes"),
    [
        pytest.param({"minAvailable": "100%", "unhealthyPodEvictionPolicy": "AlwaysAllow"}, [], id="valid"),
        pytest.param(
            {"minAvailable": -1},
            ["spec.minAvailable: Invalid value: -1: must be greater than or equal to 0"],
            id="negative number",
        ),
        pytest.param(
            {"maxUnavailable": "101%"},
            ['spec.maxUnavailable: Invalid value: "101%": must not be greater than 100%'],
            id="more than 100 percent",
        ),
        pytest.param(
            {"maxUnavailable": "half"},
            [
                'spec.maxUnavailable: Invalid value: "half": a valid percent string must be a numeric string followed '
                "by an ending '%'"
            ],
            id="text without percent sign",
        ),
        pytest.param(
            {"selector": {"matchExpressions": [{"key": "a", "operator": "In"}]}},
            [
                "spec.selector.matchExpressions[0].values: Required value: must be specified when `operator` is 'In' "
                "or 'NotIn'"
            ],
            id="selector without values",
        ),
        pytest.param(
            {"unhealthyPodEvictionPolicy": "Never"},
            [
                'spec.unhealthyPodEvictionPolicy: Unsupported value: "Never": '
                'supported values: "AlwaysAllow", "IfHealthyBudget"'
            ],
            id="unknown eviction policy",
        ),
    ],
)
def test_pod_disruption_budget_causes(spec: JSON, causes: list[str]) -> None:
    assert validator_causes(validate_pod_disruption_budget, {"spec": spec}) == causes


def test_unchanged_pod_disruption_budget_is_not_validated() -> None:
    old, new = {"spec": {"minAvailable": -1}}, {"spec": {"minAvailable": -2}}
    assert validator_causes(STRATEGY.validate_update, old, old) == []
    assert validator_causes(STRATEGY.validate_update, new, old) == [
        "spec.minAvailable: Invalid value: -2: must be greater than or equal to 0"
    ]


def test_pod_disruption_budget_status_counts_are_not_negative() -> None:
    status = {"disruptionsAllowed": -1, "currentHealthy": 0, "desiredHealthy": 1, "expectedPods": -3}
    assert validator_causes(validate_pod_disruption_budget_status_update, {"status": status}, {}) == [
        f"status.{field}: Invalid value: {number}: must be greater than or equal to 0"
        for field, number in (("disruptionsAllowed", -1), ("expectedPods", -3))
    ]
