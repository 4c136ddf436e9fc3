"""Validation of meta/v1 Conditions."""

from __future__ import annotations

import pytest

from kubeloop.devcluster.validation.common.status_conditions import validate_conditions
from kubeloop.kube.json_object import JSON
from support.objects.validation_causes import validator_causes

CONDITION = {"type": "Ready", "status": "True", "reason": "Ok", "lastTransitionTime": "2026-01-01T00:00:00Z"}


@pytest.mark.parametrize(
    ("conditions", "causes"),
    [
        pytest.param([CONDITION, {**CONDITION, "type": "a.b/C"}], [], id="valid"),
        pytest.param([CONDITION, CONDITION], ['c[1].type: Duplicate value: "Ready"'], id="duplicate type"),
        pytest.param(
            [{"type": "Ready"}],
            [
                'c[0].status: Unsupported value: "": supported values: "False", "True", "Unknown"',
                "c[0].lastTransitionTime: Required value",
                "c[0].reason: Required value",
            ],
            id="only a type",
        ),
        pytest.param(
            [{**CONDITION, "observedGeneration": -1}],
            ["c[0].observedGeneration: Invalid value: -1: must be greater than or equal to zero"],
            id="negative generation",
        ),
        pytest.param(
            [{**CONDITION, "reason": "not ok"}],
            [
                'c[0].reason: Invalid value: "not ok": a condition reason must start with alphabetic character, '
                "optionally followed by a string of alphanumeric characters or '_,:', and must end with an "
                "alphanumeric character or '_'"
            ],
            id="reason with a space",
        ),
        pytest.param(
            [{**CONDITION, "reason": "a" * 1025, "message": "é" * 16385}],
            [
                "c[0].reason: Too long: may not be more than 1024 bytes",
                "c[0].message: Too long: may not be more than 32768 bytes",
            ],
            id="long texts",
        ),
    ],
)
def test_condition_causes(conditions: list[JSON], causes: list[str]) -> None:
    assert validator_causes(validate_conditions, "c", conditions) == causes
