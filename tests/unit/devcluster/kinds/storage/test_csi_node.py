"""Validation of CSINodes."""

from __future__ import annotations

import pytest

from kubeloop.devcluster.kinds.storage.csi_node import validate_csi_node, validate_csi_node_update
from kubeloop.kube.json_object import JSON
from support.objects.validation_causes import validator_causes

DRIVER = {"name": "a.b", "nodeID": "n", "topologyKeys": ["zone"]}


@pytest.mark.parametrize(
    ("drivers", "causes"),
    [
        pytest.param([DRIVER], [], id="valid"),
        pytest.param([DRIVER, DRIVER], ['spec.drivers[1].name: Duplicate value: "a.b"'], id="duplicate driver"),
        pytest.param([{"name": "a"}], ["spec.drivers[0].nodeID: Required value"], id="no node ID"),
        pytest.param(
            [{**DRIVER, "nodeID": "n" * 257}],
            [f'spec.drivers[0].nodeID: Invalid value: "{"n" * 257}": must be 256 characters or less'],
            id="long node ID",
        ),
        pytest.param(
            [{**DRIVER, "allocatable": {"count": -1}, "topologyKeys": ["a", "a"]}],
            [
                "spec.drivers[0].allocatable.count: Invalid value: -1: must be greater than or equal to 0",
                'spec.drivers[0]: Duplicate value: "a"',
            ],
            id="negative count and duplicate topology key",
        ),
    ],
)
def test_csi_node_causes(drivers: list[JSON], causes: list[str]) -> None:
    assert validator_causes(validate_csi_node, {"spec": {"drivers": drivers}}) == causes


def test_only_the_volume_count_of_a_driver_changes() -> None:
    old = {"spec": {"drivers": [{**DRIVER, "allocatable": {"count": 1}}]}}
    recounted, removed = {"spec": {"drivers": [DRIVER]}}, {"spec": {"drivers": []}}
    renamed = {"spec": {"drivers": [{**DRIVER, "nodeID": "m"}]}}
    assert validator_causes(validate_csi_node_update, recounted, old) == []
    assert validator_causes(validate_csi_node_update, removed, old) == []
    assert validator_causes(validate_csi_node_update, renamed, old) == [
        'spec.drivers: Invalid value: {"Name":"a.b","NodeID":"m","TopologyKeys":["zone"],"Allocatable":null}: '
        "field is immutable"
    ]
