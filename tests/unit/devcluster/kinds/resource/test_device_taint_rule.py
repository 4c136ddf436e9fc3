"""Validation of DeviceTaintRules."""

from __future__ import annotations

from typing import Any

import pytest

from kubeloop.devcluster.kinds.resource import device_taint_rule
from kubeloop.devcluster.validation.common.error_list import ErrorList
from kubeloop.kube.json_object import JSON
from support.objects.validation_causes import cause_texts

TAINT = {"key": "example.com/broken", "effect": "NoExecute"}
SUPPORTED = 'supported values: "NoExecute", "NoSchedule", "None"'


def causes(validate: Any, *objects: JSON) -> list[str]:
    errors = ErrorList()
    validate(errors, *objects)
    return [text.partition(": a ")[0].partition(": name part")[0] for text in cause_texts(errors)]


def rule(selector: JSON | None = None, **taint: Any) -> JSON:
    return {"metadata": {"name": "x"}, "spec": {"deviceSelector": selector, "taint": {**TAINT, **taint}}}


@pytest.mark.parametrize(
    ("obj", "expected"),
    [
        (rule(), []),
        (rule({}), []),
        (rule({"driver": "gpu.example.com", "pool": "node-0/large", "device": "gpu-0"}, value="fan"), []),
        (rule(effect="None"), []),
        (rule(effect=""), ["spec.taint.effect: Required value"]),
        (rule(effect="PreferNoSchedule"), [f'spec.taint.effect: Unsupported value: "PreferNoSchedule": {SUPPORTED}']),
        (rule(key=""), ['spec.taint.key: Invalid value: ""'] * 2),
        (rule(value="-"), ['spec.taint.value: Invalid value: "-"']),
        (
            rule({"driver": "", "pool": "", "device": ""}),
            [
                "spec.deviceSelector.driver: Required value",
                "spec.deviceSelector.pool: Required value",
                'spec.deviceSelector.device: Invalid value: ""',
            ],
        ),
        (
            rule({"driver": "x" * 64, "pool": "a//B"}),
            [
                "spec.deviceSelector.driver: Too long: may not be more than 63 bytes",
                'spec.deviceSelector.pool: Invalid value: ""',
                'spec.deviceSelector.pool: Invalid value: "B"',
            ],
        ),
        (
            rule({"pool": "/".join(["p" * 50] * 5)}),
            ["spec.deviceSelector.pool: Too long: may not be more than 253 bytes"],
        ),
    ],
)
def test_new_rule(obj, expected):
    assert causes(device_taint_rule.validate_device_taint_rule, obj) == expected


def test_unknown_effect_may_stay():
    stored = rule(effect="Future")
    update = device_taint_rule.STRATEGY.validate_update
    assert causes(update, rule(effect="Future", key="other"), stored) == []
    assert causes(update, rule(effect="Other"), stored) == [
        f'spec.taint.effect: Unsupported value: "Other": {SUPPORTED}'
    ]


def test_conditions_of_the_status_are_validated_and_limited():
    condition = {"status": "True", "reason": "R", "lastTransitionTime": "2026-03-01T00:00:00Z"}
    conditions = [{**condition, "type": f"t{number}"} for number in range(9)]
    validate = device_taint_rule.validate_device_taint_rule_status_update
    assert causes(validate, {**rule(), "status": {"conditions": conditions}}, rule()) == [
        "status.conditions: Too many: 9: must have at most 8 items"
    ]
    assert causes(validate, {**rule(), "status": {"conditions": [{**conditions[0], "reason": ""}]}}, rule()) == [
        "status.conditions[0].reason: Required value"
    ]
    assert causes(validate, rule(), rule()) == []


def test_time_of_a_device_taint_follows_its_effect():
    def updated(**changes: str) -> str:
        old = {"key": "k", "effect": "NoSchedule", "timeAdded": "2026-01-01T00:00:00Z"}
        taint = old | changes
        device_taint_rule.update_taint_time(taint, old, lambda: "2026-03-01T00:00:00Z")
        return taint["timeAdded"]

    assert updated(key="other") == "2026-01-01T00:00:00Z"
    assert updated(effect="NoExecute") == "2026-03-01T00:00:00Z"
    assert updated(effect="NoExecute", timeAdded="2026-02-01T00:00:00Z") == "2026-02-01T00:00:00Z"
