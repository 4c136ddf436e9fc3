"""Validation of RuntimeClasses."""

from __future__ import annotations

import pytest

from kubeloop.devcluster.kinds.node.runtime_class import STRATEGY, validate_runtime_class
from kubeloop.kube.json_object import JSON
from support.objects.validation_causes import validator_causes

TOLERATION = {"key": "a", "operator": "Exists"}


@pytest.mark.parametrize(
    ("fields", "causes"),
    [
        pytest.param({"handler": "runc", "scheduling": {"tolerations": [TOLERATION]}}, [], id="valid"),
        pytest.param({}, ["handler: Required value"], id="no handler"),
        pytest.param(
            {"handler": "a.b"},
            ['handler: Invalid value: "a.b": must not contain dots'],
            id="handler that is not a DNS label",
        ),
        pytest.param(
            {"handler": "h", "overhead": {"podFixed": {"cpu": "-1"}}},
            ['overhead.limits[cpu]: Invalid value: "-1": must be greater than or equal to 0'],
            id="negative overhead",
        ),
        pytest.param(
            {"handler": "h", "scheduling": {"tolerations": [TOLERATION, TOLERATION]}},
            [
                'scheduling.tolerations[1]: Duplicate value: {"Key":"a","Operator":"Exists","Value":"","Effect":"",'
                '"TolerationSeconds":null}'
            ],
            id="duplicate toleration",
        ),
    ],
)
def test_runtime_class_causes(fields: JSON, causes: list[str]) -> None:
    assert validator_causes(validate_runtime_class, fields) == causes


def test_runtime_class_handler_is_immutable() -> None:
    assert validator_causes(STRATEGY.validate_update, {"handler": "b"}, {"handler": "a"}) == [
        'handler: Invalid value: "b": field is immutable'
    ]
