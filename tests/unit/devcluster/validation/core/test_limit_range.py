"""Validation of LimitRanges."""

from __future__ import annotations

from kubeloop.devcluster.api.served_resources import LIMIT_RANGES
from support.validation_causes import create_causes


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
