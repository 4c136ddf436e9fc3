"""Validation of VolumeAttributesClasses."""

from __future__ import annotations

from kubeloop.devcluster.kinds.storage.volume_attributes_class import (
    validate_volume_attributes_class,
    validate_volume_attributes_class_update,
)
from support.objects.validation_causes import validator_causes

CLASS = {"driverName": "a.b", "parameters": {"iops": "1"}}


def test_volume_attributes_class_requires_driver_and_parameters() -> None:
    assert validator_causes(validate_volume_attributes_class, CLASS) == []
    assert validator_causes(validate_volume_attributes_class, {}) == [
        "driverName: Required value",
        "parameters: Required value: must contain at least one key/value pair",
    ]


def test_driver_and_parameters_of_a_class_are_immutable() -> None:
    new = {"driverName": "c.d", "parameters": {"iops": "2"}}
    assert validator_causes(validate_volume_attributes_class_update, new, CLASS) == [
        f"{field}: Forbidden: updates to {field} are forbidden." for field in ("driverName", "parameters")
    ]
