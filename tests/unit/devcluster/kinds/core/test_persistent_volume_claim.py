"""Validation of PersistentVolumeClaims."""

from __future__ import annotations

from typing import Any

import pytest

from kubeloop.devcluster.kinds.core.persistent_volume_claim import (
    validate_persistent_volume_claim_status_update,
    validate_persistent_volume_claim_update,
)
from kubeloop.kube.objects.resources import PERSISTENT_VOLUME_CLAIMS
from support.objects.validation_causes import update_causes, validator_causes

JSON = dict[str, Any]


def claim(size: str = "1Gi", phase: str = "Pending", **spec: Any) -> JSON:
    resources = {"requests": {"storage": size}}
    return {"spec": {"accessModes": ["ReadWriteOnce"], "resources": resources, **spec}, "status": {"phase": phase}}


def test_only_a_bound_claim_may_request_more_storage():
    assert update_causes(PERSISTENT_VOLUME_CLAIMS, claim(phase="Bound"), claim("2Gi", "Bound")) == []
    [cause] = update_causes(PERSISTENT_VOLUME_CLAIMS, claim(), claim("2Gi"))
    assert cause.startswith("spec: Forbidden: spec is immutable after creation except resources.requests and")
    assert update_causes(PERSISTENT_VOLUME_CLAIMS, claim(phase="Bound"), claim("0.5Gi", "Bound")) == []
    have = {**claim(phase="Bound"), "status": {"phase": "Bound", "capacity": {"storage": "1Gi"}}}
    assert update_causes(PERSISTENT_VOLUME_CLAIMS, have, claim("512Mi", "Bound")) == [
        "spec.resources.requests.storage: Forbidden: field can not be less than status.capacity"
    ]


def test_applied_attributes_class_cannot_be_removed() -> None:
    old = {**claim(phase="Bound", volumeAttributesClassName="gold"), "metadata": {}}
    old["status"]["currentVolumeAttributesClassName"] = "gold"
    for fields, shown in (({}, "nil"), ({"volumeAttributesClassName": ""}, "empty string")):
        new = {**claim(phase="Bound", **fields), "metadata": {}}
        assert validator_causes(validate_persistent_volume_claim_update, new, old) == [
            f"spec.volumeAttributesClassName: Forbidden: update to {shown} is forbidden when "
            "status.currentVolumeAttributesClassName is not nil"
        ]


@pytest.mark.parametrize(
    ("status", "causes"),
    [
        pytest.param({"allocatedResourceStatuses": {"storage": "NodeResizePending"}}, [], id="valid"),
        pytest.param(
            {"capacity": {"storage": "-1"}},
            ["status.capacity[storage]: Invalid value: -1: must be a valid resource quantity"],
            id="negative capacity",
        ),
        pytest.param(
            {"allocatedResources": {"cpu": "1"}},
            ['status.allocatedResources: Unsupported value: "cpu": supported values: "storage"'],
            id="resource of a pod",
        ),
        pytest.param(
            {"allocatedResourceStatuses": {"storage": "Done"}},
            [
                'status.allocatedResourceStatus: Unsupported value: "storage": supported values: '
                '"ControllerResizeInProgress", "ControllerResizeInfeasible", "NodeResizeInProgress", '
                '"NodeResizeInfeasible", "NodeResizePending"'
            ],
            id="unknown state",
        ),
    ],
)
def test_claim_status_causes(status: JSON, causes: list[str]) -> None:
    assert validator_causes(validate_persistent_volume_claim_status_update, {"status": status}, {}) == causes
