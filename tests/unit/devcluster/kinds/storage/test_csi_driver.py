"""Validation of CSIDrivers."""

from __future__ import annotations

import pytest

from kubeloop.devcluster.kinds.storage.csi_driver import validate_csi_driver, validate_csi_driver_update
from kubeloop.kube.json_object import JSON
from support.objects.validation_causes import validator_causes


@pytest.mark.parametrize(
    ("spec", "causes"),
    [
        pytest.param({"tokenRequests": [{}, {"audience": "a", "expirationSeconds": 600}]}, [], id="valid"),
        pytest.param(
            {"fsGroupPolicy": "Some", "volumeLifecycleModes": ["Temporary"]},
            [
                'spec.fsGroupPolicy: Unsupported value: "Some": '
                'supported values: "File", "None", "ReadWriteOnceWithFSType"',
                'spec.volumeLifecycleModes: Unsupported value: "Temporary": '
                'supported values: "Persistent", "Ephemeral"',
            ],
            id="unknown group policy and lifecycle",
        ),
        pytest.param(
            {"tokenRequests": [{"audience": "a", "expirationSeconds": 599}, {"audience": "a"}]},
            [
                "spec.tokenRequests[0].expirationSeconds: Invalid value: 599: "
                "may not specify a duration less than 10 minutes",
                'spec.tokenRequests[1].audience: Duplicate value: "a"',
            ],
            id="short token and duplicate audience",
        ),
        pytest.param(
            {"nodeAllocatableUpdatePeriodSeconds": 9},
            ["spec.nodeAllocatableUpdatePeriodSeconds: Invalid value: 9: must be greater than or equal to 10 seconds"],
            id="short update period",
        ),
        pytest.param(
            {"serviceAccountTokenInSecrets": True},
            [
                "spec.serviceAccountTokenInSecrets: Invalid value: true: "
                "serviceAccountTokenInSecrets is set but no tokenRequests are specified"
            ],
            id="tokens in secrets without requests",
        ),
    ],
)
def test_csi_driver_causes(spec: JSON, causes: list[str]) -> None:
    assert validator_causes(validate_csi_driver, {"spec": spec}) == causes


def test_attach_and_lifecycle_of_a_csi_driver_are_immutable() -> None:
    old = {"spec": {"attachRequired": True, "podInfoOnMount": False, "volumeLifecycleModes": ["Persistent"]}}
    new = {"spec": {"attachRequired": False, "podInfoOnMount": True, "volumeLifecycleModes": ["Ephemeral"]}}
    assert validator_causes(validate_csi_driver_update, new, old) == [
        "spec.attachedRequired: Invalid value: false: field is immutable",
        'spec.volumeLifecycleModes: Invalid value: ["Ephemeral"]: field is immutable',
    ]
