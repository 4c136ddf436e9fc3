"""Validation of StorageClasses."""

from __future__ import annotations

from typing import Any

import pytest

from kubeloop.devcluster.kinds.storage.storage_class import STRATEGY, validate_parameters, validate_storage_class
from kubeloop.kube.objects.resources import STORAGE_CLASSES
from support.objects.validation_causes import create_causes, validator_causes


def test_empty_topology_terms_are_duplicates():
    body = {"provisioner": "a.b/c", "allowedTopologies": [{}, {}]}
    first, second = (f'allowedTopologies[{i}].matchLabelExpressions: Duplicate value: ""' for i in (0, 1))
    assert create_causes(STORAGE_CLASSES, body) == [first, first, second, second, second]


def storage_class(**fields: Any) -> dict[str, Any]:
    return {"provisioner": "a.b/c", "reclaimPolicy": "Delete", "volumeBindingMode": "Immediate", **fields}


@pytest.mark.parametrize(
    ("fields", "causes"),
    [
        pytest.param({}, [], id="valid"),
        pytest.param({"provisioner": ""}, ["provisioner: Required value"], id="no provisioner"),
        pytest.param(
            {"reclaimPolicy": "Recycle", "volumeBindingMode": ""},
            [
                'reclaimPolicy: Unsupported value: "Recycle": supported values: "Delete", "Retain"',
                'volumeBindingMode: Unsupported value: "": supported values: "Immediate", "WaitForFirstConsumer"',
            ],
            id="reclaim policy and binding mode",
        ),
        pytest.param(
            {"allowedTopologies": [{"matchLabelExpressions": [{"key": "zone", "values": ["a", "a"]}]}]},
            ['allowedTopologies[0].matchLabelExpressions[0].values[1]: Duplicate value: "a"'],
            id="duplicate zone",
        ),
    ],
)
def test_storage_class_causes(fields: dict[str, Any], causes: list[str]) -> None:
    assert validator_causes(validate_storage_class, storage_class(**fields)) == causes


@pytest.mark.parametrize(
    ("parameters", "causes"),
    [
        pytest.param({"a": "b"}, [], id="valid"),
        pytest.param({"": "b"}, ['parameters: Invalid value: "": field can not be empty.'], id="empty name"),
        pytest.param(
            {str(i): "" for i in range(513)}, ["parameters: Too long: may not be more than 512 bytes"], id="too many"
        ),
        pytest.param(
            {"a": "b" * 262144}, ["parameters: Too long: may not be more than 262144 bytes"], id="more than 256 KiB"
        ),
    ],
)
def test_class_parameter_causes(parameters: dict[str, str], causes: list[str]) -> None:
    assert validator_causes(validate_parameters, parameters) == causes


def test_only_expansion_of_a_storage_class_changes() -> None:
    assert validator_causes(STRATEGY.validate_update, storage_class(allowVolumeExpansion=True), storage_class()) == []
    assert validator_causes(STRATEGY.validate_update, storage_class(parameters={"a": "b"}), storage_class()) == [
        'parameters: Invalid value: {"a":"b"}: field is immutable'
    ]
