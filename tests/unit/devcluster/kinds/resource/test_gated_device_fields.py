"""Fields of disabled feature gates in the kinds of resource.k8s.io."""

from __future__ import annotations

from copy import deepcopy
from typing import Any

import pytest

from kubeloop.devcluster.api.strategy import Write, strategy_of
from kubeloop.devcluster.kinds.resource.resource_claim import STRATEGY
from kubeloop.devcluster.registry.disabled_fields import DEFAULT_FIELDS, DisabledFields
from kubeloop.kube.feature_gates import FeatureGates
from kubeloop.kube.objects.resources import RESOURCE_CLAIMS, RESOURCE_SLICES
from support.objects.kinds import strategy_named

JSON = dict[str, Any]

SLICE = {
    "spec": {
        "sharedCounters": [{"name": "c"}],
        "devices": [
            {
                "name": "d",
                "taints": [{"key": "k"}],
                "consumesCounters": [{}],
                "bindingConditions": ["b"],
                "allowMultipleAllocations": True,
                "capacity": {"m": {"value": "1", "requestPolicy": {}}},
                "attributes": {"a": {"string": "s"}},
            }
        ],
    }
}
SPEC = {
    "devices": {
        "requests": [
            {"name": "r", "exactly": {"deviceClassName": "c", "tolerations": [{}], "capacity": {}}},
            {"name": "f", "firstAvailable": [{"name": "s", "tolerations": [{}]}]},
        ],
        "constraints": [{"distinctAttribute": "a"}],
    }
}
RESULT = {"driver": "d", "pool": "p", "device": "x", "shareID": "1", "bindingConditions": ["b"]}
STATUS = {"allocation": {"devices": {"results": [RESULT]}}, "devices": [{"driver": "d", "pool": "p", "device": "x"}]}
OBJECTS: dict[str, JSON] = {
    "resourceslices.resource.k8s.io": SLICE,
    "resourceclaims.resource.k8s.io": {"spec": SPEC},
    "resourceclaimtemplates.resource.k8s.io": {"spec": {"spec": SPEC}},
    "deviceclasses.resource.k8s.io": {"spec": {"extendedResourceName": "e"}},
}


def without(obj: Any, *names: str) -> Any:
    """Return a copy without the fields of these names."""
    if isinstance(obj, dict):
        return {name: without(value, *names) for name, value in obj.items() if name not in names}
    return [without(item, *names) for item in obj] if isinstance(obj, list) else obj


@pytest.mark.parametrize(
    ("kind", "gate", "dropped"),
    [
        ("resourceslices", "DRADeviceTaints", ("taints",)),
        ("resourceslices", "DRAPartitionableDevices", ("sharedCounters", "consumesCounters")),
        ("resourceslices", "DRADeviceBindingConditions", ("bindingConditions",)),
        ("resourceslices", "DRAConsumableCapacity", ("allowMultipleAllocations", "requestPolicy")),
        ("resourceclaims", "DRAPrioritizedList", ("firstAvailable",)),
        ("resourceclaims", "DRADeviceTaints", ("tolerations",)),
        ("resourceclaims", "DRAConsumableCapacity", ("distinctAttribute", "capacity")),
        ("resourceclaimtemplates", "DRADeviceTaints", ("tolerations",)),
        ("deviceclasses", "DRAExtendedResource", ("extendedResourceName",)),
    ],
)
def test_fields_of_disabled_gate_are_dropped_unless_stored(kind: str, gate: str, dropped: tuple[str, ...]):
    name, fields = f"{kind}.resource.k8s.io", DisabledFields(FeatureGates({gate: False}))
    obj = deepcopy(OBJECTS[name])
    fields.drop(strategy_named(name), obj)
    assert obj == without(OBJECTS[name], *dropped) != OBJECTS[name]
    fields.drop(strategy_named(name), obj := deepcopy(OBJECTS[name]), OBJECTS[name])
    assert obj == OBJECTS[name]


@pytest.mark.parametrize("name", OBJECTS)
def test_default_gates_drop_nothing(name: str):
    DEFAULT_FIELDS.drop(strategy_named(name), obj := deepcopy(OBJECTS[name]))
    assert obj == OBJECTS[name]


def test_fields_of_alpha_gates_are_dropped_by_default():
    device = {"nodeAllocatableResourceMappings": {"cpu": {}}, "attributes": {"a": {"strings": ["s"]}}}
    DEFAULT_FIELDS.drop(strategy_of(RESOURCE_SLICES), {"spec": {"devices": [device]}})
    assert device == {"attributes": {"a": {}}}


@pytest.mark.parametrize(
    ("gate", "dropped"),
    [
        ("DRAConsumableCapacity", ("shareID",)),
        ("DRADeviceBindingConditions", ("bindingConditions",)),
    ],
)
def test_status_fields_of_disabled_gate_are_dropped_unless_stored(gate: str, dropped: tuple[str, ...]):
    fields = DisabledFields(FeatureGates({gate: False}))
    assert status_after(fields, {}) == without(STATUS, *dropped) != STATUS
    assert status_after(fields, STATUS) == STATUS


def test_device_statuses_need_their_gate():
    assert "devices" not in status_after(DisabledFields(FeatureGates({"DRAResourceClaimDeviceStatus": False})), {})


def status_after(fields: DisabledFields, stored: JSON) -> JSON:
    """Return the status of a claim that is stored after disabled fields are dropped from it."""
    claim: JSON = {"status": deepcopy(STATUS)}
    fields.drop_status(strategy_of(RESOURCE_CLAIMS), claim, {"status": stored})
    status: JSON = claim["status"]
    return status


def test_status_of_a_deallocated_device_is_dropped():
    kept, removed = ({"driver": "d", "pool": "p", "device": name} for name in ("kept", "removed"))
    old: JSON = {"status": {"allocation": {"devices": {"results": [kept, removed]}}}}
    assert STRATEGY.prepare_status is not None
    for allocation, devices in (({"devices": {"results": [kept]}}, [kept]), ({}, None)):
        claim: JSON = {"status": {"allocation": allocation, "devices": [kept, removed]}}
        STRATEGY.prepare_status(claim, old, Write())
        assert claim["status"].get("devices") == devices
