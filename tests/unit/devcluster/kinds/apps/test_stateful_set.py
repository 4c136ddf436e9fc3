"""Validation of StatefulSets."""

from __future__ import annotations

from typing import Any

import pytest

from kubeloop.devcluster.kinds.apps.stateful_set import validate_stateful_set, validate_stateful_set_status_update
from kubeloop.kube.json_object import JSON
from kubeloop.kube.objects.resources import STATEFUL_SETS
from support.objects.validation_causes import defaulted, update_causes, validator_causes, workload


def test_most_stateful_set_fields_are_immutable() -> None:
    old = workload(serviceName="s")
    assert update_causes(STATEFUL_SETS, old, workload(serviceName="s", replicas=3)) == []
    assert update_causes(STATEFUL_SETS, old, workload(serviceName="t")) == [
        "spec: Forbidden: updates to statefulset spec for fields other than 'replicas', 'ordinals', 'template', "
        "'updateStrategy', 'revisionHistoryLimit', 'persistentVolumeClaimRetentionPolicy' and 'minReadySeconds' "
        "are forbidden"
    ]


@pytest.mark.parametrize(
    ("spec", "causes"),
    [
        pytest.param({"podManagementPolicy": "Parallel", "updateStrategy": {"type": "OnDelete"}}, [], id="valid"),
        pytest.param(
            {"podManagementPolicy": "Serial"},
            ["spec.podManagementPolicy: Invalid value: \"Serial\": must be 'OrderedReady' or 'Parallel'"],
            id="unknown pod management policy",
        ),
        pytest.param(
            {"updateStrategy": {"type": "OnDelete", "rollingUpdate": {"partition": 1}}},
            [
                'spec.updateStrategy.rollingUpdate: Invalid value: {"Partition":1,"MaxUnavailable":null}: '
                "only allowed for updateStrategy 'RollingUpdate'"
            ],
            id="rollingUpdate with OnDelete",
        ),
        pytest.param(
            {"updateStrategy": {"rollingUpdate": {"partition": -1}}},
            ["spec.updateStrategy.rollingUpdate.partition: Invalid value: -1: must be greater than or equal to 0"],
            id="negative partition",
        ),
        pytest.param(
            {"persistentVolumeClaimRetentionPolicy": {"whenDeleted": "Keep"}},
            [
                'spec.persistentVolumeClaimRetentionPolicy.whenDeleted: Unsupported value: "Keep": '
                'supported values: "Retain", "Delete"'
            ],
            id="unknown retention policy",
        ),
        pytest.param(
            {"volumeClaimTemplates": [{"metadata": {"name": "data"}, "spec": {"accessModes": ["ReadWriteOnce"]}}]},
            ["spec.volumeClaimTemplates[0].spec.resources[storage]: Required value"],
            id="claim without size",
        ),
        pytest.param(
            {"ordinals": {"start": -1}},
            ["spec.ordinals.start: Invalid value: -1: must be greater than or equal to 0"],
            id="negative first ordinal",
        ),
    ],
)
def test_stateful_set_causes(spec: dict[str, Any], causes: list[str]) -> None:
    obj: JSON = defaulted(STATEFUL_SETS, workload(serviceName="s", **spec))
    assert validator_causes(validate_stateful_set, obj) == causes


def test_stateful_set_status_names_the_full_path_of_ready_replicas() -> None:
    status = {"replicas": 1, "availableReplicas": 1}
    assert validator_causes(validate_stateful_set_status_update, {"status": status}, {}) == [
        "status.availableReplicas: Invalid value: 1: cannot be greater than status.readyReplicas"
    ]
