"""Validation of CSIStorageCapacities."""

from __future__ import annotations

from kubeloop.devcluster.kinds.storage.csi_storage_capacity import STRATEGY, validate_csi_storage_capacity
from support.objects.validation_causes import validator_causes

CAPACITY = {"storageClassName": "s", "capacity": "0", "nodeTopology": {"matchLabels": {"zone": "a"}}}


def test_storage_capacity_is_not_negative() -> None:
    assert validator_causes(validate_csi_storage_capacity, CAPACITY) == []
    assert validator_causes(validate_csi_storage_capacity, {**CAPACITY, "capacity": "-1Gi"}) == [
        'capacity: Invalid value: "-1Gi": must be greater than or equal to 0'
    ]


def test_class_and_topology_of_a_storage_capacity_are_immutable() -> None:
    new = {**CAPACITY, "storageClassName": "t", "capacity": "1", "nodeTopology": {}}
    assert validator_causes(STRATEGY.validate_update, new, CAPACITY) == [
        "nodeTopology: Invalid value: {}: field is immutable",
        'storageClassName: Invalid value: "t": field is immutable',
    ]
