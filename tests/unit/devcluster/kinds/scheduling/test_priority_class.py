"""Validation of PriorityClasses."""

from __future__ import annotations

import pytest

from kubeloop.devcluster.kinds.scheduling.priority_class import validate_priority_class, validate_priority_class_update
from kubeloop.kube.json_object import JSON
from support.objects.validation_causes import validator_causes

RESERVED = "priority class names with 'system-' prefix are reserved for system use only. error:"


@pytest.mark.parametrize(
    ("name", "fields", "causes"),
    [
        pytest.param("high", {"value": 1_000_000_000, "preemptionPolicy": "Never"}, [], id="highest user priority"),
        pytest.param("low", {"value": -2_000_000_000}, [], id="negative priority"),
        pytest.param("system-node-critical", {"value": 2_000_001_000}, [], id="system class"),
        pytest.param(
            "system-custom",
            {"value": 1},
            [f"metadata.name: Forbidden: {RESERVED} system-custom is not a known system priority class"],
            id="unknown system class",
        ),
        pytest.param(
            "system-cluster-critical",
            {"value": 1},
            [f"metadata.name: Forbidden: {RESERVED} value of system-cluster-critical PriorityClass must be 2000000000"],
            id="system class with another value",
        ),
        pytest.param(
            "system-node-critical",
            {"value": 2_000_001_000, "globalDefault": True},
            [f"metadata.name: Forbidden: {RESERVED} globalDefault of system-node-critical PriorityClass must be false"],
            id="system class as default",
        ),
        pytest.param(
            "high",
            {"value": 1_000_000_001, "preemptionPolicy": "Sometimes"},
            [
                "value: Forbidden: maximum allowed value of a user defined priority is 1000000000",
                'preemptionPolicy: Unsupported value: "Sometimes": supported values: "PreemptLowerPriority", "Never"',
            ],
            id="value above the maximum and unknown preemption policy",
        ),
    ],
)
def test_priority_class_causes(name: str, fields: JSON, causes: list[str]) -> None:
    assert validator_causes(validate_priority_class, {"metadata": {"name": name}, **fields}) == causes


def test_priority_class_value_and_preemption_policy_are_immutable() -> None:
    old, new = {"value": 0, "preemptionPolicy": "Never"}, {"value": 1, "preemptionPolicy": "PreemptLowerPriority"}
    assert validator_causes(validate_priority_class_update, old, {"preemptionPolicy": "Never"}) == []
    assert validator_causes(validate_priority_class_update, new, old) == [
        "value: Forbidden: may not be changed in an update.",
        'preemptionPolicy: Invalid value: "PreemptLowerPriority": field is immutable',
    ]
