"""Validation of a PersistentVolumeClaimSpec."""

from __future__ import annotations

from typing import Any

import pytest

from kubeloop.devcluster.validation.common.persistent_volume_claim_spec import (
    validate_access_modes,
    validate_basic_quantity,
    validate_claim_spec,
)
from kubeloop.kube.json_object import JSON
from support.objects.validation_causes import validator_causes


def claim_spec(storage: str = "1Gi", **fields: Any) -> JSON:
    return {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": storage}}, **fields}


@pytest.mark.parametrize(
    ("spec", "causes"),
    [
        pytest.param(claim_spec(volumeMode="Block", storageClassName=""), [], id="valid"),
        pytest.param(
            {},
            [
                "spec.accessModes: Required value: at least 1 access mode is required",
                "spec.resources[storage]: Required value",
            ],
            id="empty",
        ),
        pytest.param(
            claim_spec("0"), ['spec.resources[storage]: Invalid value: "0": must be greater than zero'], id="no storage"
        ),
        pytest.param(
            claim_spec(volumeMode="Raw"),
            ['spec.volumeMode: Unsupported value: "Raw": supported values: "Block", "Filesystem"'],
            id="unknown volume mode",
        ),
        pytest.param(
            claim_spec(dataSource={"kind": "VolumeSnapshot", "name": "s"}),
            [
                'spec.dataSource: Invalid value: "VolumeSnapshot": '
                "must be 'PersistentVolumeClaim' when referencing the default apiGroup"
            ],
            id="snapshot without group",
        ),
        pytest.param(
            claim_spec(
                dataSource={"kind": "PersistentVolumeClaim", "name": "a"},
                dataSourceRef={"kind": "PersistentVolumeClaim", "name": "b"},
            ),
            ["spec: Invalid value: {}: must match dataSourceRef"],
            id="data sources that differ",
        ),
    ],
)
def test_claim_spec_causes(spec: JSON, causes: list[str]) -> None:
    assert validator_causes(validate_claim_spec, "spec", spec) == causes


def test_stored_data_source_may_keep_an_invalid_group() -> None:
    spec = claim_spec(dataSource={"kind": "X", "name": "s", "apiGroup": "A_B"})
    assert validator_causes(validate_claim_spec, "spec", spec, spec) == []
    [cause] = validator_causes(validate_claim_spec, "spec", spec)
    assert cause.startswith('spec.dataSource.apiGroup: Invalid value: "A_B": a lowercase RFC 1123 subdomain')


@pytest.mark.parametrize(
    ("modes", "causes"),
    [
        pytest.param(["ReadOnlyMany", "ReadWriteMany"], [], id="two modes"),
        pytest.param(
            ["ReadWrite"],
            [
                'm: Unsupported value: "ReadWrite": supported values: '
                '"ReadOnlyMany", "ReadWriteMany", "ReadWriteOnce", "ReadWriteOncePod"'
            ],
            id="unknown mode",
        ),
        pytest.param(
            ["ReadWriteOncePod", "ReadWriteOnce"],
            ["m: Forbidden: may not use ReadWriteOncePod with other access modes"],
            id="ReadWriteOncePod with another mode",
        ),
    ],
)
def test_access_mode_causes(modes: list[str], causes: list[str]) -> None:
    assert validator_causes(validate_access_modes, "m", modes) == causes


def test_negative_quantity_is_shown_as_a_number() -> None:
    assert validator_causes(validate_basic_quantity, "q", "0") == []
    assert validator_causes(validate_basic_quantity, "q", "-1Ki") == [
        "q: Invalid value: -1024: must be a valid resource quantity"
    ]
