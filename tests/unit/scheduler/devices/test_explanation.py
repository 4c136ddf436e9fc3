"""Explanation of unsatisfied claims: rejected devices per request and reason, constraints, pools."""

from __future__ import annotations

import pytest

from kubeloop.scheduler.devices.allocator import SearchSettings
from kubeloop.scheduler.devices.explanation import explain_requests
from kubeloop.scheduler.devices.requests import claim_requests
from support.objects.devices import (
    FilledDevices,
    allocated,
    alternative,
    claim,
    device,
    device_class,
    device_slice,
    request,
    typed,
)

MODEL = "device.attributes['gpu.example.com'].model == 'a100'"
NUMA = "gpu.example.com/numa"


def lines_for(devices, *claims, nodes=("a", "b")):
    entries = [
        claim_requests(typed(entry), devices.device_class, devices.features, devices.selector_lists) for entry in claims
    ]
    settings = SearchSettings(devices.features, devices.selectors, devices.usage.pool, lambda: 0, 1.0)
    return explain_requests(entries, devices.pools, {name: {} for name in nodes}, settings)


def gpu(name, model="a100", numa=0, **fields):
    return device(name, attributes={"model": model, "numa": numa}, **fields)


def test_devices_are_counted_by_reason():
    taint = {"key": "broken", "value": "yes", "effect": "NoSchedule"}
    devices = FilledDevices(
        device_class("gpu", "device.driver == 'gpu.example.com'"),
        device_slice("a", gpu("used"), gpu("tainted", taints=[taint]), gpu("old", "v100"), gpu("older", "v100")),
        device_slice("b", gpu("free"), gpu("small", capacity={"memory": "1Gi"})),
        claim("used", status=allocated(("a", "used"))),
    )
    wanted = request("r", "gpu", MODEL, count=2, capacity={"requests": {"memory": "2Gi"}})
    assert lines_for(devices, claim("c", wanted)) == [
        "default/c, request r: needs 2 devices; at most 0 of one node can be used; other devices: "
        f"2 rejected by the selector of claim default/c: {MODEL}, 2 without enough capacity, 1 in use, "
        "1 tainted (broken=yes:NoSchedule)"
    ]


def test_constraints_and_alternatives():
    devices = FilledDevices(device_class(), device_slice("a", *(gpu(f"d{n}", numa=n % 2) for n in range(3))))
    options = {"name": "r", "firstAvailable": [alternative("many", count=3), alternative("all", allocationMode="All")]}
    constraints = [{"matchAttribute": NUMA, "requests": ["r/many"]}, {"distinctAttribute": NUMA}]
    usable = "at most 3 of one node can be used"
    assert lines_for(devices, claim("c", options, constraints=constraints)) == [
        f"default/c, request r/many: needs 3 devices; {usable}",
        f"default/c, request r/many: matchAttribute {NUMA}: at most 2 of them with the same value",
        f"default/c, request r/many: distinctAttribute {NUMA}: at most 2 of them with different values",
        f"default/c, request r/all: needs all devices; {usable}",
        f"default/c, request r/all: distinctAttribute {NUMA}: at most 2 of them with different values",
    ]


def test_unusable_pools_and_devices_of_other_nodes():
    devices = FilledDevices(
        device_class(),
        device_slice("a", gpu("d"), count=2),
        device_slice("b", gpu("d"), gpu("d")),
        device_slice(None, gpu("x", nodeName="c"), perDeviceNodeSelection=True),
    )
    assert lines_for(devices, claim("c")) == [
        "pool gpu.example.com/a is being updated",
        "pool gpu.example.com/b is invalid: duplicate device name d",
        "default/c, request r: needs 1 device; at most 0 of one node can be used",
    ]


def test_selector_that_fails_is_the_explanation():
    devices = FilledDevices(device_class("gpu", "device.attributes['x'].y == 1"), device_slice("a", gpu("d")))
    assert lines_for(devices, claim("c")) == ["class gpu: selector #0: CEL runtime error: no such key: y"]


def lines_on_a(*devices, gates=None, **fields):
    """Return the explanation of a claim for one GPU on node a."""
    filled = FilledDevices(device_class(), device_slice(None, *devices, **fields), gates=gates)
    return lines_for(filled, claim("c"), nodes=("a",))


def test_devices_of_the_node_are_usable():
    lines = lines_on_a(
        gpu("x", nodeName="a"), gpu("y", nodeName="b"), gpu("z", nodeName="a"), perDeviceNodeSelection=True
    )
    assert lines == ["default/c, request r: needs 1 device; at most 2 of one node can be used"]


def test_devices_with_an_invalid_node_selector_are_not_usable():
    """The API server accepts values of Gt that are not numbers."""
    terms = {"nodeSelectorTerms": [{"matchExpressions": [{"key": "slots", "operator": "Gt", "values": ["many"]}]}]}
    lines = lines_on_a(gpu("x", nodeName="a"), gpu("y", nodeSelector=terms), perDeviceNodeSelection=True)
    assert lines == ["default/c, request r: needs 1 device; at most 1 of one node can be used"]


@pytest.mark.parametrize(
    ("enabled", "explained"),
    [
        (True, "at most 1 of one node can be used"),
        (False, "can be used; other devices: 1 need a disabled feature gate"),
    ],
)
def test_devices_with_binding_conditions_need_their_gate(enabled, explained):
    gates = {"DRADeviceBindingConditions": enabled, "DRAResourceClaimDeviceStatus": True}
    conditions = {"bindingConditions": ["Attached"], "bindingFailureConditions": ["Failed"]}
    (line,) = lines_on_a(gpu("x", **conditions), allNodes=True, gates=gates)
    assert line.endswith(explained)


def test_values_of_lists_count_for_constraints():
    devices = FilledDevices(
        device_class(),
        device_slice("a", *(gpu(f"d{n}", numa=numas) for n, numas in enumerate(([0, 1], [1, 2], [3])))),
        gates={"DRAListTypeAttributes": True},
    )
    constraints = [{"matchAttribute": NUMA}]
    assert lines_for(devices, claim("c", request(count=3), constraints=constraints)) == [
        "default/c, request r: needs 3 devices; at most 3 of one node can be used",
        f"default/c, request r: matchAttribute {NUMA}: at most 2 of them with the same value",
    ]
