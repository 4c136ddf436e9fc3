"""Validation of LimitRanges."""

from __future__ import annotations

import pytest

from kubeloop.devcluster.api.served_resources import LIMIT_RANGES
from kubeloop.devcluster.kinds.core.limit_range import validate_limit_range
from kubeloop.kube.json_object import JSON
from support.objects.validation_causes import create_causes, validator_causes


def test_limit_range_amounts_must_be_consistent():
    body = {
        "spec": {"limits": [{"type": "Container", "min": {"cpu": "2"}, "max": {"cpu": "1"}, "default": {"cpu": "3"}}]}
    }
    where = "spec.limits[0]"
    assert create_causes(LIMIT_RANGES, body) == [
        f'{where}.min[cpu]: Invalid value: "2": min value 2 is greater than max value 1',
        f'{where}.defaultRequest[cpu]: Invalid value: "3": default request value 3 is greater than max value 1',
        f'{where}.default[cpu]: Invalid value: "1": default value 3 is greater than max value 1',
    ]
    assert create_causes(LIMIT_RANGES, {"spec": {"limits": [{"type": "PersistentVolumeClaim"}]}}) == [
        "spec.limits[0].limits: Required value: "
        "either minimum or maximum storage value is required, but neither was provided"
    ]


ITEM = "spec.limits[0]"


@pytest.mark.parametrize(
    ("item", "causes"),
    [
        pytest.param({"type": "Container", "min": {"cpu": "1"}, "max": {"cpu": "2"}}, [], id="valid"),
        pytest.param(
            {"type": "Node"},
            [f'{ITEM}.type: Invalid value: "Node": must be a standard limit type or fully qualified'],
            id="unknown type",
        ),
        pytest.param(
            {"type": "Pod", "default": {"cpu": "1"}},
            [f"{ITEM}.default: Forbidden: may not be specified when `type` is 'Pod'"],
            id="default of a pod",
        ),
        pytest.param(
            {"type": "Pod", "min": {"cpu": "1"}, "max": {"cpu": "2"}, "maxLimitRequestRatio": {"cpu": "3"}},
            [f'{ITEM}.maxLimitRequestRatio[cpu]: Invalid value: "3": ratio 3 is greater than max/min = 2.000000'],
            id="ratio above the limits",
        ),
        pytest.param(
            {"type": "Container", "maxLimitRequestRatio": {"cpu": "500m"}},
            [f'{ITEM}.maxLimitRequestRatio[cpu]: Invalid value: "500m": ratio 500m is less than 1'],
            id="ratio below one",
        ),
        pytest.param(
            {"type": "Container", "default": {"a.b/gpu": "2"}, "defaultRequest": {"a.b/gpu": "1"}},
            [
                f'{ITEM}.defaultRequest[a.b/gpu]: Invalid value: "1": '
                "default value 2 must equal to defaultRequest value 1 in a.b/gpu"
            ],
            id="extended resource",
        ),
    ],
)
def test_limit_range_item_causes(item: JSON, causes: list[str]) -> None:
    assert validator_causes(validate_limit_range, {"spec": {"limits": [item]}}) == causes


def test_limit_types_are_unique() -> None:
    obj = {"spec": {"limits": [{"type": "Pod"}, {"type": "Pod"}]}}
    assert validator_causes(validate_limit_range, obj) == ['spec.limits[1].type: Duplicate value: "Pod"']
