"""Validation of ResourceSlices."""

from __future__ import annotations

from typing import Any

import pytest

from kubeloop.devcluster.kinds.resource.resource_slice import validate_resource_slice
from kubeloop.kube.json_object import JSON
from kubeloop.kube.objects.resources import RESOURCE_SLICES
from support.objects.validation_causes import create_causes, defaulted, update_causes, validator_causes

FIRST = "spec.devices[0]"
ONE_SELECTION = "exactly one of `nodeName`, `nodeSelector`, `allNodes`, `perDeviceNodeSelection` is required"


def slice_(*devices: JSON, **spec: Any) -> JSON:
    """Return a slice of node-0."""
    pool = {"name": "node-0", "generation": 1, "resourceSliceCount": 1}
    return {"spec": {"driver": "gpu.example.com", "pool": pool, "nodeName": "node-0", "devices": list(devices), **spec}}


def device(name: str = "gpu", **fields: Any) -> JSON:
    return {"name": name, **fields}


def with_policy(**policy: Any) -> JSON:
    return device(capacity={"memory": {"value": "10", "requestPolicy": policy}}, allowMultipleAllocations=True)


POLICY = f"{FIRST}.capacity[memory].requestPolicy"


@pytest.mark.parametrize(
    ("obj", "expected"),
    [
        pytest.param(slice_(device()), [], id="minimal"),
        pytest.param(
            slice_(driver="", pool={"name": "a//b", "generation": -1, "resourceSliceCount": 0}),
            [
                "spec.driver: Required value",
                'spec.pool.name: Invalid value: ""',
                "spec.pool.resourceSliceCount: Invalid value: 0: must be greater than zero",
                "spec.pool.generation: Invalid value: -1: must be greater than or equal to zero",
            ],
            id="driver and pool",
        ),
        pytest.param(slice_(nodeName=None), [f"spec: Required value: {ONE_SELECTION}"], id="no nodes"),
        pytest.param(
            slice_(allNodes=True),
            [f'spec: Invalid value: "{{`nodeName`, `allNodes`}}": {ONE_SELECTION}, but multiple fields are set'],
            id="two selections of nodes",
        ),
        pytest.param(
            slice_(nodeName=None, allNodes=False),
            [
                "spec.allNodes: Invalid value: false: must be either unset or set to true",
                f"spec: Required value: {ONE_SELECTION}",
            ],
            id="allNodes is false",
        ),
        pytest.param(slice_(device(), device()), ['spec.devices[1]: Duplicate value: "gpu"'], id="duplicate device"),
        pytest.param(
            slice_(*(device(f"gpu-{number}") for number in range(129))),
            ["spec.devices: Too many: 129: must have at most 128 items"],
            id="too many devices",
        ),
        pytest.param(
            slice_(
                *(device(f"gpu-{number}", taints=[{"key": "a", "effect": "NoSchedule"}]) for number in range(65)),
            ),
            ["spec.devices: Too many: 65: must have at most 64 items"],
            id="too many devices with taints",
        ),
        pytest.param(
            slice_(device(), sharedCounters=[{"name": "chip", "counters": {"memory": {"value": "1"}}}]),
            ['spec: Invalid value: "": only one of `sharedCounters` or `devices` is allowed'],
            id="counters and devices",
        ),
        pytest.param(
            slice_(
                device(
                    attributes={
                        "a": {"string": "x" * 65},
                        "b": {"version": "1.2"},
                        "c": {"int": 1, "bool": True},
                        "d": {},
                        "/e": {"int": 1},
                    }
                )
            ),
            [
                f'{FIRST}.attributes: Invalid value: "": the domain must not be empty',
                f"{FIRST}.attributes[a].string: Too long: may not be more than 64 bytes",
                f'{FIRST}.attributes[b].version: Invalid value: "1.2": must be a string compatible with '
                "semver.org spec "
                "2.0.0",
                f'{FIRST}.attributes[c]: Invalid value: {{"IntValue":1,"BoolValue":true,"StringValue":null,'
                '"VersionValue":null,"IntValues":null,"BoolValues":null,'
                '"StringValues":null,"VersionValues":null}: exactly '
                "one value must be specified",
                f'{FIRST}.attributes[d]: Invalid value: "": exactly one value must be specified',
            ],
            id="attributes",
        ),
        pytest.param(
            slice_(device(attributes={f"a{number}": {"int": 1} for number in range(33)})),
            [f"{FIRST}: Invalid value: 33: the total number of attributes and capacities must not exceed 32"],
            id="too many attributes",
        ),
        pytest.param(
            slice_(device(capacity={"memory": {"value": "1", "requestPolicy": {"default": "1"}}})),
            [f"{POLICY}: Forbidden: allowMultipleAllocations must be true"],
            id="request policy of a device that is not shared",
        ),
        pytest.param(slice_(with_policy(default="2", validValues=["1", "2"])), [], id="valid values"),
        pytest.param(
            slice_(with_policy(validValues=["1"])),
            [f"{POLICY}.default: Required value: required when validValues is defined"],
            id="no default",
        ),
        pytest.param(
            slice_(with_policy(default="3", validValues=["2", "1", "11"])),
            [
                f'{POLICY}.validValues[1]: Invalid value: "1": values must be sorted in ascending order',
                f'{POLICY}.validValues[2]: Invalid value: "11": option is larger than capacity value: 10',
                f'{POLICY}.validValues: Invalid value: "3": default value is not valid according to the requestPolicy',
            ],
            id="invalid values",
        ),
        pytest.param(
            slice_(with_policy(default="4", validRange={"min": "2", "max": "8", "step": "2"})), [], id="range"
        ),
        pytest.param(
            slice_(with_policy(default="3", validRange={"min": "4", "max": "9", "step": "2"})),
            [
                f'{POLICY}.validRange.min: Invalid value: "3": default is less than min: 4',
                f'{POLICY}.validRange.step: Invalid value: "3": value is not a multiple of a given step (2) from (4)',
                f'{POLICY}.validRange.step: Invalid value: "9": value is not a multiple of a given step (2) from (4)',
            ],
            id="invalid range",
        ),
        pytest.param(
            slice_(device(consumesCounters=[{"counterSet": "", "counters": {}}])),
            [
                f"{FIRST}.consumesCounters[0].counterSet: Required value",
                f"{FIRST}.consumesCounters[0].counters: Required value",
            ],
            id="consumed counters",
        ),
        pytest.param(
            slice_(device(bindingConditions=["a", "a"], bindingFailureConditions=["a"])),
            [
                f'{FIRST}.bindingConditions[1]: Duplicate value: "a"',
                f'{FIRST}.bindingFailureConditions[0]: Invalid value: "a": bindingFailureConditions must not '
                "overlap with "
                "bindingConditions",
            ],
            id="binding conditions",
        ),
        pytest.param(
            slice_(device(nodeName="node-0")),
            [
                f"{FIRST}: Invalid value: null: `nodeName`, `nodeSelector` and `allNodes` can only be set if "
                "`perDeviceNodeSelection` is set to true in the ResourceSlice spec"
            ],
            id="nodes of a device",
        ),
        pytest.param(
            slice_(device(), device("b", allNodes=True), nodeName=None, perDeviceNodeSelection=True),
            [
                f"{FIRST}: Required value: exactly one of `nodeName`, `nodeSelector`, or `allNodes` is required when "
                "`perDeviceNodeSelection` is set to true in the ResourceSlice spec"
            ],
            id="device without nodes",
        ),
        pytest.param(
            slice_(device(nodeAllocatableResourceMappings={"example.com/a": {"capacityKey": "memory"}})),
            [
                f'{FIRST}.nodeAllocatableResourceMappings[example.com/a]: Invalid value: "example.com/a": must '
                "be a node "
                "allocatable resource name",
                f'{FIRST}.nodeAllocatableResourceMappings[example.com/a].capacityKey: Not found: "memory"',
            ],
            id="resources of the node",
        ),
    ],
)
def test_slice(obj: JSON, expected: list[str]) -> None:
    causes = validator_causes(validate_resource_slice, defaulted(RESOURCE_SLICES, obj))
    assert [cause.partition(": a lowercase")[0] for cause in causes] == expected


def test_driver_pool_and_node_are_immutable() -> None:
    pool = {"name": "b", "generation": 2, "resourceSliceCount": 1}
    changed = slice_(driver="b.example.com", pool=pool, nodeName="node-1")
    assert update_causes(RESOURCE_SLICES, slice_(), changed) == [
        'spec.pool.name: Invalid value: "b": field is immutable',
        'spec.driver: Invalid value: "b.example.com": field is immutable',
        'spec.nodeName: Invalid value: "node-1": field is immutable',
    ]


def test_stored_taints_are_not_validated_again() -> None:
    tainted = slice_(device(taints=[{"key": "a", "effect": "Future"}]))
    assert update_causes(RESOURCE_SLICES, tainted, tainted) == []
    assert len(create_causes(RESOURCE_SLICES, tainted)) == 1
